/*
 * png.c -- PNG through libspng, row by row; interlaced ones are decoded whole, because their rows
 * come in seven passes.
 *
 * libspng allocates through hooks that know no context, so the allowance of the picture at hand is
 * the thread's.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <spng.h>

#include "base/size.h"
#include "decode/exif.h"
#include "decode/image.h"

#define CHUNK_BYTES_MAX ((size_t)4 << 20) /* of a chunk that is no pixels (a profile, a text) */
#define FIXED_BYTES (96 * FB_KIB) /* context and inflate's window; measured: 45 KiB */

struct png {
    spng_ctx *context;
    uint64_t left;    /* of the allowance */
    uint8_t *whole;   /* an interlaced picture */
    bool interlaced;
};

/* Whose hooks are being called. Set around every call of the library. */
static _Thread_local struct png *at_work;

/* Each block knows its size, so that the allowance gets it back. */
union head {
    uint64_t bytes;
    max_align_t align;
};

static void *hook_malloc(size_t bytes)
{
    union head *head;

    if (bytes > at_work->left || at_work->left - bytes < sizeof(*head))
        return NULL;
    head = malloc(sizeof(*head) + bytes);
    if (!head)
        return NULL;
    head->bytes = sizeof(*head) + bytes;
    at_work->left -= head->bytes;
    return head + 1;
}

static void hook_free(void *block)
{
    union head *head = block;

    if (!block)
        return;
    at_work->left += head[-1].bytes;
    free(head - 1);
}

static void *hook_realloc(void *block, size_t bytes)
{
    void *grown = hook_malloc(bytes);

    if (grown && block) {
        uint64_t old = ((union head *)block)[-1].bytes - sizeof(union head);

        memcpy(grown, block, fb_min(old, bytes));
        hook_free(block);
    }
    return grown;
}

static void *hook_calloc(size_t count, size_t size)
{
    uint64_t bytes;
    void *block = fb_mul(count, size, &bytes) ? hook_malloc(bytes) : NULL;

    if (block)
        memset(block, 0, bytes);
    return block;
}

/* The library's codes in words that say what was expected. */
static const char *reason_of(int code)
{
    switch (code) {
    case SPNG_ECHUNK_CRC:
        return "a chunk's checksum does not match its data: the file is damaged";
    case SPNG_EZLIB:
    case SPNG_EZLIB_INIT:
        return "its compressed pixels are damaged";
    case SPNG_EFILTER:
        return "a row has a filter type above 4: its pixels are damaged";
    case SPNG_ENOPLTE:
        return "its pixels are indexes into a palette (PLTE chunk), but it has none";
    case SPNG_EPLTE_IDX:
        return "a pixel has an index beyond the end of the palette";
    case SPNG_ESIGNATURE:
        return "it does not begin with PNG's signature";
    case SPNG_ENOIHDR:
    case SPNG_EIHDR_SIZE:
        return "the header (IHDR chunk of 13 bytes) is missing or of another length";
    case SPNG_EBADSTATE:
        return "its chunks before the pixels are damaged or in the wrong order";
    default:
        return spng_strerror(code);
    }
}

static int fail(const struct fb_image *image, int code, const char *where, forebay_error *error)
{
    const struct png *png = image->decoder;

    if (code == SPNG_EMEM)
        return fb_fail(error, FOREBAY_BAD_DATA, "PNG: it wants more memory than the %" PRIu64
                       " bytes a worker has (source.decode_memory); %" PRIu64 " were left",
                       image->limits.bytes, png->left);
    if (code == SPNG_EOF || code == SPNG_IO_EOF || code == SPNG_EIDAT_TOO_SHORT)
        return fb_fail(error, FOREBAY_BAD_DATA, "PNG, %s: the file ends early, after its %" PRIu64
                       " bytes", where, image->file_bytes);
    return fb_fail(error, FOREBAY_BAD_DATA, "PNG of %" PRIu64 " bytes, %s: %s", image->file_bytes,
                   where, reason_of(code));
}

/* The same, in a row of the picture. */
static int fail_row(const struct fb_image *image, int code, uint32_t row, forebay_error *error)
{
    char where[64];

    snprintf(where, sizeof(where), "row %" PRIu32 " of %" PRIu32, row + 1, image->height);
    return fail(image, code, where, error);
}

static void png_close(struct fb_image *image)
{
    struct png *png = image->decoder;

    at_work = png;
    spng_ctx_free(png->context);
    hook_free(png->whole);
    at_work = NULL;
    free(png);
}

/* Rows of up to 8 bytes a pixel twice (this and the one before), and once as RGBA. */
static uint64_t need_of(const struct spng_ihdr *header)
{
    uint64_t bytes = FIXED_BYTES + (uint64_t)header->width * (2 * 8 + 4);

    if (header->interlace_method)
        bytes += (uint64_t)header->width * header->height * 4;
    return bytes;
}

static int read_header(struct fb_image *image, struct png *png, forebay_error *error)
{
    struct spng_ihdr header;
    int code = spng_set_png_buffer(png->context, image->file, image->file_bytes), status;

    if (!code)
        code = spng_set_chunk_limits(png->context, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX);
    if (!code)
        code = spng_get_ihdr(png->context, &header);
    if (code)
        return fail(image, code, "in its header", error);
    image->need = need_of(&header);
    png->interlaced = header.interlace_method != 0;
    status = fb_image_check_size(image, header.width, header.height, error);
    if (!status)
        status = fb_image_check_need(image, png->interlaced ? "an interlaced PNG, which is decoded "
                                                              "whole," : "a PNG", error);
    if (status)
        return status;
    image->width = header.width;
    image->height = header.height;
    image->orientation = fb_exif_png_orientation(image->file, image->file_bytes, &image->cut);
    return FOREBAY_OK;
}

static int png_open(struct fb_image *image, forebay_error *error)
{
    struct spng_alloc hooks = { .malloc_fn = hook_malloc, .realloc_fn = hook_realloc,
                                .calloc_fn = hook_calloc, .free_fn = hook_free };
    struct png *png = calloc(1, sizeof(*png));
    int status;

    if (!png)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to decode a PNG picture");
    image->decoder = png;
    png->left = image->limits.bytes;
    at_work = png;
    png->context = spng_ctx_new2(&hooks, 0);
    status = png->context ? read_header(image, png, error) : fail(image, SPNG_EMEM, "", error);
    at_work = NULL;
    return status;
}

static int decode_whole(struct fb_image *image, struct png *png, const struct fb_image_job *job,
                        forebay_error *error)
{
    uint64_t row_bytes = (uint64_t)image->width * 4, bytes = row_bytes * image->height;
    int code;

    png->whole = hook_malloc(bytes);
    if (!png->whole)
        return fail(image, SPNG_EMEM, "", error);
    code = spng_decode_image(png->context, png->whole, bytes, SPNG_FMT_RGBA8, SPNG_DECODE_TRNS);
    if (code)
        return fail(image, code, "before or in its pixels", error);
    for (uint32_t y = job->box.y; y < job->box.y + job->box.height; y++) {
        memcpy(job->row, png->whole + y * row_bytes, row_bytes);
        job->take(job->data, job->row + (size_t)job->box.x * 4, y);
    }
    return FOREBAY_OK;
}

static int decode_rows(struct fb_image *image, struct png *png, const struct fb_image_job *job,
                       forebay_error *error)
{
    uint32_t end = job->box.y + job->box.height;
    int code = spng_decode_image(png->context, NULL, 0, SPNG_FMT_RGBA8,
                                 SPNG_DECODE_TRNS | SPNG_DECODE_PROGRESSIVE);

    if (code)
        return fail(image, code, "before or in its pixels", error);
    for (uint32_t y = 0; y < end; y++) {
        code = spng_decode_row(png->context, job->row, (size_t)image->width * 4);
        if (code && !(code == SPNG_EOI && y + 1 == image->height))
            return fail_row(image, code, y, error);
        if (y >= job->box.y)
            job->take(job->data, job->row + (size_t)job->box.x * 4, y);
    }
    return FOREBAY_OK;
}

static int png_rows(struct fb_image *image, const struct fb_image_job *job, forebay_error *error)
{
    struct png *png = image->decoder;
    int status;

    at_work = png;
    status = png->interlaced ? decode_whole(image, png, job, error)
                             : decode_rows(image, png, job, error);
    at_work = NULL;
    return status;
}

static bool png_matches(const uint8_t *file, uint64_t bytes)
{
    return bytes >= 8 && memcmp(file, "\x89PNG\r\n\x1a\n", 8) == 0;
}

const struct fb_image_ops fb_png = {
    .name = "PNG",
    .matches = png_matches,
    .open = png_open,
    .rows = png_rows,
    .close = png_close,
};
