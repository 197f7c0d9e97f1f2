/*
 * decode.h -- which decoder an extension asks for: .npy, .npz, .wav, .cls, ...
 *
 * Used where members of archives become fields. Only the last part of an extension counts
 * ("left.wav" is a wav); what no decoder knows is given as bytes.
 */
#ifndef FB_DECODE_DECODE_H
#define FB_DECODE_DECODE_H
#include "decode/npy.h"
#include "decode/sound.h"

/* What an encoded array turns out to be. */
struct fb_decoded {
    forebay_dtype dtype;
    unsigned ndim;
    uint64_t shape[FB_NPY_DIMS];
    union {
        struct fb_npy npy;
        struct fb_sound sound;
        int64_t number;
    } as;
};

struct fb_decode_options {
    const char *array; /* of an .npz: which */
    uint32_t rate;     /* sounds are resampled to; 0: left as they are */
};

/* One way of decoding. `work` is work_bytes long and 16-byte aligned. */
struct fb_decoder {
    const char *extensions; /* "wav flac ogg", or "" for what is left: bytes */
    bool is_text;           /* bytes one behind the other, under every collate */
    bool is_archive;        /* holds several arrays by name: fb_decode_options.array */
    bool is_sound;
    bool is_plain; /* behind a header lie the values themselves: an .npy, unless it is turned */
    bool is_picture; /* what is made of it is the source's matter: no look, no read */
    uint64_t work_bytes, library_bytes;

    /* (optional) What it is, reading as little as possible; without it `input->bytes` of u8. */
    int (*look)(struct fb_decoded *decoded, const struct fb_input *input,
                const struct fb_decode_options *options, void *work, forebay_error *error);
    /* All of it to `to`: C order, native endian. `decoded` is what look() said. */
    int (*read)(const struct fb_decoded *decoded, const struct fb_input *input,
                const struct fb_decode_options *options, void *to, void *work,
                forebay_error *error);
};

/* Never NULL. */
const struct fb_decoder *fb_decoder_find(const char *extension);
uint64_t fb_decoded_bytes(const struct fb_decoded *decoded); /* UINT64_MAX if it overflows */
#endif
