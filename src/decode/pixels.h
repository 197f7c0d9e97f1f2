/*
 * pixels.h -- the last pass: pixels as bytes to their place in a batch. Turned as EXIF says,
 * mirrored, normalised, cast and laid out on the way.
 */
#ifndef FB_DECODE_PIXELS_H
#define FB_DECODE_PIXELS_H
#include "decode/image.h"

/* How a picture is walked: pixel (row, column) as seen is at first + row * row_step + column *
 * column_step, counted in pixels. */
struct fb_pixel_view {
    int64_t first, row_step, column_step;
};

/* A stored picture as its orientation says it is to be seen. */
struct fb_pixel_view fb_view_oriented(unsigned orientation, uint32_t width, uint32_t height);
/* Left and right exchanged; `columns` as seen. */
struct fb_pixel_view fb_view_mirrored(struct fb_pixel_view view, uint32_t columns);
/* The orientation that undoes another. */
unsigned fb_orientation_inverse(unsigned orientation);
/* A box of the picture as seen (`width` x `height`) in its stored form. */
struct fb_box fb_box_stored(struct fb_box seen, unsigned orientation, uint32_t width,
                            uint32_t height);

/* What becomes of a byte. */
struct fb_pixel_style {
    forebay_dtype dtype; /* U8: as it is; F32, F16, BF16: byte * scale + offset, by channel */
    bool planar;         /* CHW; else HWC */
    float scale[3], offset[3];
    uint16_t halves[3][256]; /* F16, BF16: every value there is */
};

/* torchvision's Normalize: (byte / 255 - mean) / std. */
void fb_pixel_style_init(struct fb_pixel_style *style, forebay_dtype dtype, bool planar,
                         const double mean[3], const double std[3]);
/* `pixels` are of `pixel_bytes` (3 or 4) bytes. `row` is room for a row: width x 4 bytes. */
void fb_pixels_write(const struct fb_pixel_style *style, const uint8_t *pixels,
                     unsigned pixel_bytes, struct fb_pixel_view view, uint32_t width, uint32_t height,
                     uint32_t *row, void *to);
/* One stored row (RGBX) of a picture into the RGB bytes of the whole as seen. `place` is the view
 * of the inverse orientation over the picture as seen. */
void fb_pixels_scatter(const uint8_t *rgbx, uint32_t pixels, struct fb_pixel_view place, uint32_t y,
                       uint8_t *rgb);
#endif
