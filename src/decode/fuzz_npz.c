/* Any bytes as a .npz: every member that is listed is read to its end or refused. */
#include <stdlib.h>
#include <string.h>

#include "decode/npz.h"

struct bytes {
    const uint8_t *data;
    size_t size;
};

static int read_bytes(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    const struct bytes *from = data;

    if (offset > from->size || bytes > from->size - offset)
        abort(); /* whoever asks must know better */
    (void)error;
    if (bytes)
        memcpy(into, from->data + offset, bytes);
    return FOREBAY_OK;
}

static void read_member(const struct fb_npz_file *file, const struct fb_npz_member *member,
                        void *work)
{
    struct fb_npz_stream *stream = NULL;
    forebay_error error;
    char some[4096];

    if (!fb_npz_stream_open(&stream, file, member, work, &error)) {
        uint64_t left = member->bytes;
        int status = fb_npz_stream_skip(stream, left / 3, &error);

        for (left -= left / 3; !status && left;) {
            uint64_t step = left < sizeof(some) ? left : sizeof(some);

            status = fb_npz_stream_read(stream, some, step, &error);
            left -= step;
        }
        if (!status)
            fb_npz_stream_finish(stream, &error);
    }
    fb_npz_stream_close(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fb_npz_member members[FB_NPZ_MEMBERS], found;
    static _Alignas(16) char work[FB_NPZ_WORK_BYTES];
    struct bytes bytes = { data, size };
    struct fb_npz_file file = { read_bytes, &bytes, size };
    forebay_error error;
    unsigned count;

    if (fb_npz_list(&file, work, members, FB_NPZ_MEMBERS, &count, &error))
        return 0;
    for (unsigned i = 0; i < count; i++) {
        if (fb_npz_find(&file, work, members[i].name, &found, &error) ||
            found.header != members[i].header)
            abort();
        read_member(&file, &members[i], work);
    }
    return 0;
}
