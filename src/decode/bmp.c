/*
 * bmp.c -- BMP: 1, 4 and 8 bits with a palette, 16, 24 and 32 bits with or without masks. Pixels are
 * taken from where they lie in the file. Run-length coded pictures are refused.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/little.h"
#include "base/size.h"
#include "decode/image.h"

enum { PLAIN, MASKS = 3, ALPHA_MASKS = 6 };

struct bmp {
    uint32_t bits, packing, data; /* data: where the pixels begin */
    uint64_t stride;
    bool top_down;
    uint8_t palette[256][4]; /* RGBA */
    uint32_t mask[4];        /* red, green, blue, alpha; 0: none */
};

/* Entries that the file does not have are black. */
static void read_palette(const struct fb_image *image, struct bmp *bmp, uint64_t at, uint32_t used,
                         unsigned entry)
{
    uint64_t count = fb_min(used ? used : UINT32_MAX, (uint64_t)1 << bmp->bits);

    for (uint64_t i = 0; i < 256; i++, at += entry) {
        bool there = i < count && at + entry <= image->file_bytes && at + entry <= bmp->data;

        for (unsigned c = 0; c < 3; c++)
            bmp->palette[i][c] = there ? image->file[at + 2 - c] : 0;
        bmp->palette[i][3] = 255;
    }
}

static void read_masks(const struct fb_image *image, struct bmp *bmp, uint32_t header)
{
    static const uint32_t usual[2][3] = { { 0x7c00, 0x3e0, 0x1f }, { 0xff0000, 0xff00, 0xff } };
    bool given = bmp->packing != PLAIN, alpha = header >= 56 || bmp->packing == ALPHA_MASKS;

    for (unsigned c = 0; c < 3; c++)
        bmp->mask[c] = given ? fb_le32(image->file + 54 + 4 * c) : usual[bmp->bits > 16][c];
    bmp->mask[3] = given && alpha ? fb_le32(image->file + 66) : 0;
}

static bool is_read(const struct bmp *bmp)
{
    bool wide = bmp->bits == 16 || bmp->bits == 24 || bmp->bits == 32;
    if (bmp->packing == MASKS || bmp->packing == ALPHA_MASKS)
        return wide;
    return bmp->packing == PLAIN && (wide || bmp->bits == 1 || bmp->bits == 4 || bmp->bits == 8);
}

static int read_header(struct fb_image *image, struct bmp *bmp, forebay_error *error)
{
    const uint8_t *file = image->file;
    uint64_t width, height, header = image->file_bytes >= 26 ? fb_le32(file + 14) : 0;
    bool old = header == 12;
    int status;

    if (image->file_bytes < 26 || image->file_bytes < header + 14)
        return fb_fail(error, FOREBAY_BAD_DATA, "BMP: the file ends early, after its %" PRIu64
                       " bytes, inside the header", image->file_bytes);
    width = old ? fb_le16(file + 18) : fb_le32(file + 18);
    height = old ? fb_le16(file + 20) : fb_le32(file + 22);
    bmp->top_down = height > INT32_MAX;
    height = bmp->top_down ? (UINT32_MAX - height + 1) : height;
    bmp->bits = old || header >= 40 ? fb_le16(file + (old ? 24 : 28)) : 0;
    bmp->packing = old || header < 40 ? PLAIN : fb_le32(file + 30);
    bmp->data = fb_le32(file + 10);
    if (!is_read(bmp) || (bmp->packing != PLAIN && image->file_bytes < 70))
        return fb_fail(error, FOREBAY_BAD_DATA, "BMP: a header of %" PRIu64 " bytes with %" PRIu32
                       " bits a pixel and compression %" PRIu32 " is not read; save it as PNG",
                       header, bmp->bits, bmp->packing);
    status = fb_image_check_size(image, width, height, error);
    if (status)
        return status;
    image->width = (uint32_t)width;
    image->height = (uint32_t)height;
    bmp->stride = (width * bmp->bits + 31) / 32 * 4;
    if (bmp->bits <= 8)
        read_palette(image, bmp, header + 14, old ? 0 : fb_le32(file + 46), old ? 3 : 4);
    else
        read_masks(image, bmp, (uint32_t)header);
    image->need = sizeof(*bmp) + 64;
    return fb_image_check_need(image, "a BMP", error);
}

static int bmp_open(struct fb_image *image, forebay_error *error)
{
    image->decoder = calloc(1, sizeof(struct bmp));
    if (!image->decoder)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to decode a BMP picture");
    return read_header(image, image->decoder, error);
}

/* The bits of a mask, spread to 0..255 as Pillow does: rounded down. */
static uint8_t masked(uint32_t pixel, uint32_t mask, uint8_t none)
{
    uint32_t most = mask ? mask >> __builtin_ctz(mask) : 0;

    if (mask == 0)
        return none;
    return (uint8_t)((uint64_t)((pixel & mask) >> __builtin_ctz(mask)) * 255 / most);
}

static void read_pixel(const struct bmp *bmp, const uint8_t *row, uint32_t x, uint8_t *to)
{
    uint32_t pixel, per = bmp->bits <= 8 ? 8 / bmp->bits : 1;

    if (bmp->bits <= 8) {
        pixel = row[x / per] >> (8 - bmp->bits - x % per * bmp->bits) & ((1u << bmp->bits) - 1);
        memcpy(to, bmp->palette[pixel], 4);
        return;
    }
    row += (uint64_t)x * (bmp->bits / 8);
    pixel = fb_le16(row) | (bmp->bits > 16 ? (uint32_t)row[2] << 16 : 0) |
            (bmp->bits > 24 ? (uint32_t)row[3] << 24 : 0);
    for (unsigned c = 0; c < 4; c++)
        to[c] = masked(pixel, bmp->mask[c], c == 3 ? 255 : 0);
}

static int bmp_rows(struct fb_image *image, const struct fb_image_job *job, forebay_error *error)
{
    const struct bmp *bmp = image->decoder;

    for (uint32_t y = job->box.y; y < job->box.y + job->box.height; y++) {
        uint64_t stored = bmp->top_down ? y : image->height - 1 - y;
        uint64_t at = bmp->data + stored * bmp->stride;
        uint64_t used = (image->width * (uint64_t)bmp->bits + 7) / 8;

        if (at > image->file_bytes || image->file_bytes - at < used)
            return fb_fail(error, FOREBAY_BAD_DATA, "BMP, row %" PRIu32 " of %" PRIu32 ": it lies "
                           "at byte %" PRIu64 ", but the file has %" PRIu64 " bytes", y + 1,
                           image->height, at, image->file_bytes);
        for (uint32_t x = 0; x < job->box.width; x++)
            read_pixel(bmp, image->file + at, job->box.x + x, job->row + (size_t)x * 4);
        job->take(job->data, job->row, y);
    }
    return FOREBAY_OK;
}

static bool bmp_matches(const uint8_t *file, uint64_t bytes)
{
    return bytes >= 18 && file[0] == 'B' && file[1] == 'M' && file[15] == 0 && file[16] == 0;
}

const struct fb_image_ops fb_bmp = {
    .name = "BMP", .matches = bmp_matches, .open = bmp_open, .rows = bmp_rows
};
