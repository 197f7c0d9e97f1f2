/*
 * ppm.c -- PBM, PGM and PPM (P1 to P6), as text or as bytes, taken from where they lie in the file.
 * Values above 255 and odd maxima are scaled as Pillow does; of 16-bit grey the upper byte is kept.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decode/image.h"

struct ppm {
    unsigned kind; /* the digit after P */
    unsigned channels;
    uint32_t most; /* the value of white */
    uint64_t data; /* where the pixels begin */
};

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The next number of a text, comments and space skipped; `digits` at most: P1 has no space between.
 * False at the end of the file, at another character, or above `limit`. */
static bool read_number(const struct fb_image *image, uint64_t *at, unsigned digits, uint32_t limit,
                        uint32_t *number)
{
    const uint8_t *file = image->file;
    uint64_t i = *at, first, value = 0;

    for (; i < image->file_bytes && (is_space(file[i]) || file[i] == '#'); i++)
        if (file[i] == '#')
            while (i + 1 < image->file_bytes && file[i + 1] != '\n' && file[i + 1] != '\r')
                i++;
    for (first = i; i < image->file_bytes && i - first < digits &&
                    (unsigned)(file[i] - '0') < 10; i++)
        value = value * 10 + (uint64_t)(file[i] - '0');
    *at = i;
    *number = (uint32_t)value;
    return i > first && value <= limit;
}

static int read_header(struct fb_image *image, struct ppm *ppm, forebay_error *error)
{
    uint32_t width, height;
    uint64_t at = 2;
    int status;

    ppm->kind = image->file[1] - '0';
    ppm->channels = ppm->kind % 3 ? 1 : 3;
    ppm->most = 1;
    if (!read_number(image, &at, 9, UINT32_MAX, &width) ||
        !read_number(image, &at, 9, UINT32_MAX, &height) ||
        (ppm->kind % 3 != 1 && !read_number(image, &at, 9, 65535, &ppm->most)) || ppm->most == 0 ||
        at >= image->file_bytes || !is_space(image->file[at]))
        return fb_fail(error, FOREBAY_BAD_DATA, "PPM, byte %" PRIu64 ": the header must be P%u, "
                       "width, height%s, then a space", at, ppm->kind,
                       ppm->kind % 3 != 1 ? ", a maximum of 1 to 65535" : "");
    status = fb_image_check_size(image, width, height, error);
    if (status)
        return status;
    ppm->data = at + 1;
    image->width = width;
    image->height = height;
    image->need = sizeof(*ppm) + 64;
    return fb_image_check_need(image, "a PPM", error);
}

static int ppm_open(struct fb_image *image, forebay_error *error)
{
    image->decoder = calloc(1, sizeof(struct ppm));
    if (!image->decoder)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to decode a PPM picture");
    return read_header(image, image->decoder, error);
}

/* Pillow's scale: of grey to 65535 if there are more than 255 values, else to 255, rounded. */
static uint8_t scaled(const struct ppm *ppm, uint32_t value)
{
    bool deep = ppm->channels == 1 && ppm->most > 255;
    double to = deep ? 65535.0 : 255.0, scale = rint((double)value / ppm->most * to);
    uint32_t number = (uint32_t)(scale > to ? to : scale);

    if (ppm->kind % 3 == 1)
        return value ? 0 : 255; /* a bit that is set is black */
    return (uint8_t)(deep ? number >> 8 : number);
}

/* The values of a row of bytes; false if the file ends before. */
static bool row_bytes(const struct fb_image *image, uint32_t y, uint8_t *row)
{
    const struct ppm *ppm = image->decoder;
    uint64_t each = ppm->most > 255 ? 2 : 1, count = (uint64_t)image->width * ppm->channels;
    uint64_t stride = ppm->kind == 4 ? (count + 7) / 8 : count * each, at = ppm->data + y * stride;
    const uint8_t *from = image->file + at;

    if (at > image->file_bytes || image->file_bytes - at < stride)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t value = ppm->kind == 4 ? (uint32_t)from[i / 8] >> (7 - i % 8) & 1
                         : each == 1    ? from[i]
                                        : (uint32_t)from[2 * i] << 8 | from[2 * i + 1];

        row[i / ppm->channels * 4 + i % ppm->channels] = scaled(ppm, value);
    }
    return true;
}

static bool row_text(const struct fb_image *image, uint64_t *at, uint8_t *row)
{
    const struct ppm *ppm = image->decoder;
    uint32_t value;

    for (uint64_t i = 0; i < (uint64_t)image->width * ppm->channels; i++) {
        if (!read_number(image, at, ppm->kind == 1 ? 1 : 6, ppm->most, &value))
            return false;
        row[i / ppm->channels * 4 + i % ppm->channels] = scaled(ppm, value);
    }
    return true;
}

static int ppm_rows(struct fb_image *image, const struct fb_image_job *job, forebay_error *error)
{
    const struct ppm *ppm = image->decoder;
    uint64_t at = ppm->data;

    for (uint32_t y = ppm->kind <= 3 ? 0 : job->box.y; y < job->box.y + job->box.height; y++) {
        if (!(ppm->kind <= 3 ? row_text(image, &at, job->row) : row_bytes(image, y, job->row)))
            return fb_fail(error, FOREBAY_BAD_DATA, "PPM, row %" PRIu32 " of %" PRIu32 ": the file "
                           "ends early, after its %" PRIu64 " bytes, or a value is no number from "
                           "0 to %" PRIu32, y + 1, image->height, image->file_bytes, ppm->most);
        for (uint8_t *p = job->row; p < job->row + (size_t)image->width * 4; p += 4) {
            if (ppm->channels == 1)
                p[1] = p[2] = p[0];
            p[3] = 255;
        }
        if (y >= job->box.y)
            job->take(job->data, job->row + (size_t)job->box.x * 4, y);
    }
    return FOREBAY_OK;
}

static bool ppm_matches(const uint8_t *file, uint64_t bytes)
{
    return bytes >= 3 && file[0] == 'P' && file[1] >= '1' && file[1] <= '6' &&
           (is_space(file[2]) || file[2] == '#');
}

const struct fb_image_ops fb_ppm = {
    .name = "PPM", .matches = ppm_matches, .open = ppm_open, .rows = ppm_rows
};
