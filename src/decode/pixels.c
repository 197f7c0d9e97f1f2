#include "decode/pixels.h"

#include <string.h>

#include "decode/cast.h"

#define INLINE static inline __attribute__((always_inline))
/* Where the compiler may make a second version for CPUs that have more; the sums are the same, as
 * this file is built without contraction. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

struct fb_pixel_view fb_view_oriented(unsigned orientation, uint32_t width, uint32_t height)
{
    int64_t w = width, h = height;

    switch (orientation) {
    case 2:
        return (struct fb_pixel_view){ w - 1, w, -1 };
    case 3:
        return (struct fb_pixel_view){ w * h - 1, -w, -1 };
    case 4:
        return (struct fb_pixel_view){ (h - 1) * w, -w, 1 };
    case 5:
        return (struct fb_pixel_view){ 0, 1, w };
    case 6:
        return (struct fb_pixel_view){ (h - 1) * w, 1, -w };
    case 7:
        return (struct fb_pixel_view){ w * h - 1, -1, -w };
    case 8:
        return (struct fb_pixel_view){ w - 1, -1, w };
    default:
        return (struct fb_pixel_view){ 0, w, 1 };
    }
}

struct fb_pixel_view fb_view_mirrored(struct fb_pixel_view view, uint32_t columns)
{
    view.first += view.column_step * ((int64_t)columns - 1);
    view.column_step = -view.column_step;
    return view;
}

unsigned fb_orientation_inverse(unsigned orientation)
{
    return orientation == 6 ? 8 : orientation == 8 ? 6 : orientation;
}

struct fb_box fb_box_stored(struct fb_box seen, unsigned orientation, uint32_t width,
                            uint32_t height)
{
    struct fb_box box = seen;
    bool from_right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    bool from_bottom = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;

    if (from_right)
        box.x = width - seen.x - seen.width;
    if (from_bottom)
        box.y = height - seen.y - seen.height;
    if (fb_orientation_turns(orientation))
        box = (struct fb_box){ .x = box.y, .y = box.x, .width = box.height, .height = box.width };
    return box;
}

void fb_pixel_style_init(struct fb_pixel_style *style, forebay_dtype dtype, bool planar,
                         const double mean[3], const double std[3])
{
    *style = (struct fb_pixel_style){ .dtype = dtype, .planar = planar };
    for (unsigned c = 0; c < 3; c++) {
        style->scale[c] = (float)(1.0 / (255.0 * std[c]));
        style->offset[c] = (float)(-mean[c] / std[c]);
        if (dtype != FOREBAY_F16 && dtype != FOREBAY_BF16)
            continue;
        for (unsigned i = 0; i < 256; i++) {
            float value = (float)i * style->scale[c] + style->offset[c];

            fb_cast(&style->halves[c][i], dtype, &value, FOREBAY_F32, 1);
        }
    }
}

/* ---- A row of the picture as seen, four bytes a pixel, one behind the other ---- */

static const uint32_t *gather_row(const uint8_t *pixels, unsigned pixel_bytes, struct fb_pixel_view view,
                                  uint32_t y, uint32_t width, uint32_t *row)
{
    const uint8_t *from = pixels + (view.first + (int64_t)y * view.row_step) * pixel_bytes;
    int64_t step = view.column_step * pixel_bytes;

    if (pixel_bytes == 4 && view.column_step == 1 && (uintptr_t)from % sizeof(uint32_t) == 0)
        return (const uint32_t *)(const void *)from;
    if (pixel_bytes == 4)
        for (uint32_t x = 0; x < width; x++, from += step)
            memcpy(&row[x], from, 4);
    else
        for (uint32_t x = 0; x < width; x++, from += step)
            row[x] = (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16;
    return row;
}

/* Bytes of a pixel by channel; pixels were copied as bytes, so the first is the lowest on a
 * little-endian machine only. */
INLINE uint32_t channel(uint32_t pixel, unsigned c)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return pixel >> (8 * c) & 255;
#else
#error "pixels are taken apart as little-endian numbers"
#endif
}

CLONES static void row_f32_planar(const struct fb_pixel_style *style, const uint32_t *row,
                                  uint32_t width, float *to, uint64_t plane)
{
    for (unsigned c = 0; c < 3; c++, to += plane) {
        float scale = style->scale[c], offset = style->offset[c];

        for (uint32_t x = 0; x < width; x++)
            to[x] = (float)(int32_t)channel(row[x], c) * scale + offset;
    }
}

static void row_f32(const struct fb_pixel_style *style, const uint32_t *row, uint32_t width,
                    float *to)
{
    for (uint32_t x = 0; x < width; x++, to += 3)
        for (unsigned c = 0; c < 3; c++)
            to[c] = (float)(int32_t)channel(row[x], c) * style->scale[c] + style->offset[c];
}

static void row_halves(const struct fb_pixel_style *style, const uint32_t *row, uint32_t width,
                       uint16_t *to, uint64_t step, uint64_t plane)
{
    for (unsigned c = 0; c < 3; c++, to += plane)
        for (uint32_t x = 0; x < width; x++)
            to[x * step] = style->halves[c][channel(row[x], c)];
}

static void row_bytes(const uint32_t *row, uint32_t width, uint8_t *to)
{
    for (uint32_t x = 0; x < width; x++, to += 3)
        for (unsigned c = 0; c < 3; c++)
            to[c] = (uint8_t)channel(row[x], c);
}

CLONES static void row_bytes_planar(const uint32_t *row, uint32_t width, uint8_t *to,
                                    uint64_t plane)
{
    for (unsigned c = 0; c < 3; c++, to += plane)
        for (uint32_t x = 0; x < width; x++)
            to[x] = (uint8_t)channel(row[x], c);
}

void fb_pixels_write(const struct fb_pixel_style *style, const uint8_t *pixels,
                     unsigned pixel_bytes, struct fb_pixel_view view, uint32_t width, uint32_t height,
                     uint32_t *row, void *to)
{
    uint64_t plane = (uint64_t)width * height, number = forebay_dtype_bytes(style->dtype);
    uint64_t step = (style->planar ? width : (uint64_t)width * 3) * number;
    char *at = to;

    for (uint32_t y = 0; y < height; y++, at += step) {
        const uint32_t *seen = gather_row(pixels, pixel_bytes, view, y, width, row);

        if (style->dtype == FOREBAY_F32 && style->planar)
            row_f32_planar(style, seen, width, (float *)(void *)at, plane);
        else if (style->dtype == FOREBAY_F32)
            row_f32(style, seen, width, (float *)(void *)at);
        else if (style->dtype != FOREBAY_U8)
            row_halves(style, seen, width, (uint16_t *)(void *)at, style->planar ? 1 : 3,
                       style->planar ? plane : 1);
        else if (style->planar)
            row_bytes_planar(seen, width, (uint8_t *)at, plane);
        else
            row_bytes(seen, width, (uint8_t *)at);
    }
}

void fb_pixels_scatter(const uint8_t *rgbx, uint32_t pixels, struct fb_pixel_view place, uint32_t y,
                       uint8_t *rgb)
{
    uint8_t *to = rgb + (place.first + (int64_t)y * place.row_step) * 3;
    int64_t step = place.column_step * 3;

    for (uint32_t x = 0; x < pixels; x++, rgbx += 4, to += step)
        for (unsigned c = 0; c < 3; c++)
            to[c] = rgbx[c];
}
