/*
 * resize.h -- pictures to another size, row by row as they are decoded.
 *
 * Antialiased like Pillow's: the filter is as wide as the pixels of the smaller picture. Rows are
 * resized horizontally as they come and added, weighted, to the rows of the result that they are
 * part of; so the memory it takes depends on the result, not on the picture. All sums are of
 * integers: the same bits on every CPU. They are Pillow's own: weights of 22 bits, each direction
 * rounded to bytes, across first. Pillow begins with the other direction for some sizes; bilinear
 * then differs by 1 at most.
 */
#ifndef FB_DECODE_RESIZE_H
#define FB_DECODE_RESIZE_H
#include <stdbool.h>
#include <stdint.h>

/* In the order of source.filter. */
enum fb_filter { FB_FILTER_BILINEAR, FB_FILTER_NEAREST, FB_FILTER_BICUBIC };

#define FB_RESIZE_PADDING 64 /* bytes behind the result that are written, and mean nothing */

/* One direction: `size` pixels from `start` on, out of the `in` that there are, become `out`. */
struct fb_span {
    double start, size;
    uint32_t in, out;
};

struct fb_weights {
    uint32_t taps;   /* of every output */
    uint32_t *first; /* [out] the first input of each */
    int16_t *values; /* [out][2][taps]: see resize.c */
};

struct fb_resize {
    struct fb_span across, down;
    struct fb_weights columns, rows;
    uint32_t stride;        /* numbers in a row of `lines` and `sums` */
    int16_t *lines[2];      /* two rows, resized horizontally, values from 0 to 255 */
    int32_t *sums;          /* [ring][stride] rows of the result under way */
    uint32_t ring;
    uint32_t fed;           /* rows so far */
    uint32_t begun, done;   /* rows of the result: [done, begun) are under way */
    uint32_t *to;
    bool plain;
};

/* Memory for any picture of up to `side` pixels a side. */
uint64_t fb_resize_bytes(uint32_t side, uint32_t out_width, uint32_t out_height,
                         enum fb_filter filter);
/* Begin. `to` has out x out pixels of four bytes and FB_RESIZE_PADDING. False if `bytes` of memory
 * are too few. `plain`: without what only some CPUs have; for tests. */
bool fb_resize_begin(struct fb_resize *resize, struct fb_span across, struct fb_span down,
                     enum fb_filter filter, void *memory, uint64_t bytes, uint32_t *to, bool plain);
/* The next of down.in rows of across.in pixels, RGBX; 16 bytes behind it may be read. */
void fb_resize_row(struct fb_resize *resize, const uint8_t *rgbx);
#endif
