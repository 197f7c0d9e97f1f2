/* Any bytes as a manifest: every line is told once, none is longer than it may be. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "source/audio/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    const uint8_t *data;
    size_t size;
    uint64_t number, end;
};

static int on_line(void *data, const char *line, size_t bytes, uint64_t at, uint64_t number,
                   forebay_error *error)
{
    struct seen *seen = data;
    struct fb_utterance said;
    char text[256];

    if (number <= seen->number || at < seen->end || at + bytes > seen->size ||
        bytes > FB_MANIFEST_LINE_BYTES || memcmp(line, seen->data + at, bytes) != 0)
        __builtin_trap();
    seen->number = number;
    seen->end = at + bytes;
    if (fb_utterance_parse(&said, line, bytes, error))
        return FOREBAY_OK;
    fb_utterance_text(&said, "text", text, sizeof(text));
    fb_utterance_text(&said, "a", text, sizeof(text));
    fb_utterance_release(&said);
    return FOREBAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char room[2 * FB_MANIFEST_LINE_BYTES];
    struct seen seen = { .data = data, .size = size };
    forebay_error error;
    int fd = memfd_create("manifest", MFD_CLOEXEC);

    if (fd >= 0 && write(fd, data, size) == (ssize_t)size)
        fb_manifest_walk(fd, room, on_line, &seen, &error);
    close(fd);
    return 0;
}
