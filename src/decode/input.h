/* input.h -- where a decoder's bytes come from: a file, or a part of one. Any part of them may be
 * asked for, in any order; a decoder knows no files. */
#ifndef FB_DECODE_INPUT_H
#define FB_DECODE_INPUT_H
#include <inttypes.h>

#include "base/error.h"

struct fb_input {
    int (*read)(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error);
    void *data;
    uint64_t bytes; /* there are */
};

/* `bytes` at `offset`, or BAD_DATA if there are not so many. */
static inline int fb_input_read(const struct fb_input *input, void *into, uint64_t bytes,
                                uint64_t offset, forebay_error *error)
{
    if (offset > input->bytes || bytes > input->bytes - offset)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "it ends early: %" PRIu64 " bytes are wanted from "
                       "byte %" PRIu64 " on, but it has %" PRIu64,
                       bytes, offset, input->bytes);
    return bytes ? input->read(input->data, into, bytes, offset, error) : FOREBAY_OK;
}
#endif
