#include "decode/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* A format is one line. The first that matches is taken. */
static const struct fb_image_ops *const formats[] = {
    &fb_jpeg,
    &fb_png,
    &fb_bmp,
    &fb_ppm,
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static const struct fb_image_ops *find_format(const uint8_t *file, uint64_t bytes)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i]->matches(file, bytes))
            return formats[i];
    return NULL;
}

bool fb_image_is_known(const uint8_t *file, uint64_t bytes)
{
    return find_format(file, bytes) != NULL;
}

/* "JPEG, PNG, BMP, PPM" */
static void name_formats(char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < FORMATS && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", formats[i]->name);
}

static int fail_unknown(const uint8_t *file, uint64_t bytes, forebay_error *error)
{
    char start[3 * 8 + 1] = "", names[128];

    if (bytes == 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "the file is empty");
    for (uint64_t i = 0; i < bytes && i < 8; i++) {
        static const char digits[] = "0123456789abcdef";
        char *to = start + 3 * i;

        to[0] = ' ', to[1] = digits[file[i] >> 4], to[2] = digits[file[i] & 15], to[3] = '\0';
    }
    name_formats(names, sizeof(names));
    return fb_fail(error, FOREBAY_BAD_DATA, "no picture of a format that is read (%s): it begins "
                   "with the bytes%s", names, start);
}

int fb_image_check_size(const struct fb_image *image, uint64_t width, uint64_t height,
                        forebay_error *error)
{
    if (width == 0 || height == 0 || width > FB_IMAGE_SIDE_MAX || height > FB_IMAGE_SIDE_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "a picture of %" PRIu64 " x %" PRIu64 " pixels; its "
                       "sides must be 1 to %d",
                       width, height, FB_IMAGE_SIDE_MAX);
    if (width * height > image->limits.pixels)
        return fb_fail(error, FOREBAY_BAD_DATA, "a picture of %" PRIu64 " x %" PRIu64 " = %" PRIu64
                       " pixels; source.max_pixels allows %" PRIu64, width, height, width * height,
                       image->limits.pixels);
    return FOREBAY_OK;
}

int fb_image_check_need(const struct fb_image *image, const char *why, forebay_error *error)
{
    if (image->need <= image->limits.bytes)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_DATA, "%s takes %" PRIu64 " bytes to decode; "
                   "source.decode_memory allows a worker %" PRIu64, why, image->need,
                   image->limits.bytes);
}

int fb_image_open(struct fb_image *image, const uint8_t *file, uint64_t bytes,
                  const struct fb_image_limits *limits, forebay_error *error)
{
    int status;

    *image = (struct fb_image){ .file = file, .file_bytes = bytes, .limits = *limits,
                                .orientation = 1 };
    image->format = find_format(file, bytes);
    if (!image->format)
        return fail_unknown(file, bytes, error);
    status = image->format->open(image, error);
    if (status)
        fb_image_close(image);
    return status;
}

int fb_image_rows(struct fb_image *image, const struct fb_image_job *job, forebay_error *error)
{
    const struct fb_box *box = &job->box;

    if (box->width == 0 || box->height == 0 || box->x >= image->width ||
        box->width > image->width - box->x || box->y >= image->height ||
        box->height > image->height - box->y)
        return fb_fail(error, FOREBAY_BAD_USE, "a box outside the picture");
    if (job->reduce != 1 && !image->format->reduces)
        return fb_fail(error, FOREBAY_BAD_USE, "a %s cannot be reduced while it is decoded",
                       image->format->name);
    return image->format->rows(image, job, error);
}

void fb_image_close(struct fb_image *image)
{
    if (image->decoder && image->format->close)
        image->format->close(image);
    else
        free(image->decoder);
    image->decoder = NULL;
}

struct fb_box fb_box_reduced(struct fb_box box, unsigned reduce)
{
    uint32_t right = (box.x + box.width + reduce - 1) / reduce;
    uint32_t bottom = (box.y + box.height + reduce - 1) / reduce;
    struct fb_box small = { .x = box.x / reduce, .y = box.y / reduce };

    small.width = right - small.x;
    small.height = bottom - small.y;
    return small;
}
