/* Any bytes as a tar archive: no member reaches outside of it, sparse ones are read within it, and the
 * walk ends. */
#include <string.h>

#include "decode/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_memory(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *e)
{
    (void)e;
    memcpy(into, (const uint8_t *)data + offset, bytes); /* fb_input_read has looked */
    return FOREBAY_OK;
}

/* Fuzzers seldom find a checksum: the first byte says whether ours is put in. */
static void mend(uint8_t *header)
{
    unsigned sum = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    for (int i = 0; i < 6; i++)
        header[148 + i] = (uint8_t)('0' + (sum >> (15 - 3 * i) & 7));
    header[154] = '\0';
}

/* Its beginning and its end. */
static void read_holes(const struct fb_input *input, const struct fb_tar_member *member)
{
    char bytes[700];
    uint64_t step = member->bytes < sizeof(bytes) ? member->bytes : sizeof(bytes);

    if (member->sparse == FB_TAR_WHOLE || member->sparse == FB_TAR_HOLES_UNKNOWN)
        return;
    fb_tar_read_sparse(input, member, bytes, step, 0, NULL);
    fb_tar_read_sparse(input, member, bytes, step, member->bytes - step, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t copy[1 << 16];
    struct fb_input input = { read_memory, copy, 0 };
    struct fb_tar_member member;
    struct fb_tar tar;
    forebay_error error;
    bool end = false;

    if (size < 1 || size > sizeof(copy))
        return 0;
    memcpy(copy, data + 1, size - 1);
    input.bytes = size - 1;
    for (size_t at = 0; (data[0] & 1) && at + 512 <= input.bytes; at += 512)
        if (copy[at] && memcmp(copy + at + 257, "ustar", 5) == 0)
            mend(copy + at);
    fb_tar_init(&tar, &input);
    while (!end && !fb_tar_next(&tar, &member, &end, &error)) {
        char extension[64];
        size_t key;

        if (end)
            break;
        if (member.data + member.stored > input.bytes || member.data % FB_TAR_BLOCK ||
            !memchr(member.name, '\0', sizeof(member.name)))
            __builtin_trap();
        read_holes(&input, &member);
        if (fb_tar_split(member.name, &key, extension, sizeof(extension)) &&
            (key >= strlen(member.name) || !extension[0]))
            __builtin_trap();
    }
    return 0;
}
