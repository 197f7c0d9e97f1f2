/*
 * picture.h -- a picture's file, in memory, to the pixels a sample wants: which part of it, at
 * which size, which way up. Only what is needed is decoded.
 */
#ifndef FB_DECODE_PICTURE_H
#define FB_DECODE_PICTURE_H
#include "base/mix.h"
#include "decode/image.h"
#include "decode/pixels.h"
#include "decode/resize.h"

/* In the order of source.crop. */
enum fb_crop { FB_CROP_NONE, FB_CROP_CENTER, FB_CROP_RANDOM };

struct fb_picture_options {
    struct fb_image_limits limits;
    uint32_t width, height; /* of the result; 0 x 0: as the picture is */
    enum fb_crop crop;
    enum fb_filter filter;
    bool exact; /* JPEG: never let the decoder halve the picture, and decode over the box's edges */
};

/* A result that lies in the memory it was made in: pixels of four bytes. */
struct fb_picture {
    const uint8_t *pixels;
    struct fb_pixel_view view; /* as seen */
    uint32_t *row;       /* room for a row, for fb_pixels_write */
};

/* What the functions below need to work in. */
uint64_t fb_picture_memory_bytes(const struct fb_picture_options *options);

/* Cut, decode, resize to options->width x height. `random` is drawn from if the crop is random. */
int fb_picture_make(struct fb_picture *picture, const struct fb_picture_options *options,
                    const uint8_t *file, uint64_t bytes, struct fb_random *random, void *memory,
                    forebay_error *error);

/* The size as seen. The beginning of a file may do. */
int fb_picture_size(const struct fb_picture_options *options, const uint8_t *file, uint64_t bytes,
                    uint32_t *width, uint32_t *height, forebay_error *error);
/* The whole picture as seen, RGB, into exactly `rgb_bytes`; BAD_DATA if it is of another size. */
int fb_picture_whole(const struct fb_picture_options *options, const uint8_t *file, uint64_t bytes,
                     uint8_t *rgb, uint64_t rgb_bytes, void *memory, forebay_error *error);

/* The part of a picture of `width` x `height` as seen that is used. */
struct fb_box fb_picture_box(const struct fb_picture_options *options, uint32_t width,
                             uint32_t height, struct fb_random *random);
#endif
