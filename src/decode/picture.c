/* picture.c -- which part of a picture is decoded, and the way from its file to a sample's pixels. */
#include "decode/picture.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"

#define TRIES 10
#define AREA_LEAST 0.08
#define LOG_RATIO 0.28768207245178092744 /* of 4 to 3, which is also the largest aspect ratio */

/* ---- Which part ---- */

/* e^x for |x| < 0.3, by its series: the same bits everywhere, which libm does not promise. */
static double exp_small(double x)
{
    double sum = 1.0;

    for (unsigned n = 14; n > 0; n--)
        sum = 1.0 + x / (double)n * sum;
    return sum;
}

static uint32_t round_side(double side)
{
    return (uint32_t)(side + 0.5);
}

static struct fb_box centered(uint32_t width, uint32_t height, uint32_t box_width,
                              uint32_t box_height)
{
    return (struct fb_box){ .x = (width - box_width) / 2, .y = (height - box_height) / 2,
                            .width = box_width, .height = box_height };
}

/* The largest box of the result's proportions, in the middle. */
static struct fb_box box_center(const struct fb_picture_options *options, uint32_t width,
                                uint32_t height)
{
    uint64_t fits = (uint64_t)height * options->width, wide = (uint64_t)width * options->height;

    if (wide > fits) { /* wider than the result: cut off left and right */
        uint64_t side = (2 * fits + options->height) / (2 * (uint64_t)options->height);

        return centered(width, height, (uint32_t)fb_min(width, fb_max(1, side)), height);
    } else {
        uint64_t side = (2 * wide + options->width) / (2 * (uint64_t)options->width);

        return centered(width, height, width, (uint32_t)fb_min(height, fb_max(1, side)));
    }
}

/* torchvision's RandomResizedCrop: 8 to 100 % of the area, 3:4 to 4:3; ten tries, or the middle. */
static struct fb_box box_random(uint32_t width, uint32_t height, struct fb_random *random)
{
    double area = (double)width * (double)height, ratio = (double)width / (double)height;

    for (unsigned try = 0; try < TRIES; try++) {
        double target = area * (AREA_LEAST + (1.0 - AREA_LEAST) * fb_random_unit(random));
        double aspect = exp_small(LOG_RATIO * (2.0 * fb_random_unit(random) - 1.0));
        uint32_t wide = round_side(sqrt(target * aspect)), high = round_side(sqrt(target / aspect));
        struct fb_box box = { .width = wide, .height = high };

        if (wide == 0 || high == 0 || wide > width || high > height)
            continue;
        box.y = (uint32_t)fb_random_below(random, (uint64_t)height - high + 1);
        box.x = (uint32_t)fb_random_below(random, (uint64_t)width - wide + 1);
        return box;
    }
    if (ratio < 0.75)
        return centered(width, height, width,
                        (uint32_t)fb_max(1, round_side((double)width / 0.75)));
    if (ratio > 4.0 / 3.0)
        return centered(width, height,
                        (uint32_t)fb_max(1, round_side((double)height * (4.0 / 3.0))), height);
    return centered(width, height, width, height);
}

struct fb_box fb_picture_box(const struct fb_picture_options *options, uint32_t width,
                             uint32_t height, struct fb_random *random)
{
    if (options->crop == FB_CROP_RANDOM && random)
        return box_random(width, height, random);
    if (options->crop == FB_CROP_CENTER)
        return box_center(options, width, height);
    return centered(width, height, width, height);
}

/* ---- Decode and resize ---- */

static void seen_size(const struct fb_image *image, uint32_t *width, uint32_t *height)
{
    bool turned = fb_orientation_turns(image->orientation);

    *width = turned ? image->height : image->width;
    *height = turned ? image->width : image->height;
}

/* The memory of one call, cut up. */
struct rooms {
    uint8_t *decoded;  /* a row of the picture */
    uint32_t *pixels;  /* the result as stored */
    uint32_t *row;     /* of the result as seen */
    void *resize;
    uint64_t resize_bytes;
};

static uint32_t side_max(const struct fb_picture_options *options)
{
    return (uint32_t)fb_min(FB_IMAGE_SIDE_MAX, fb_max(1, options->limits.pixels));
}

/* Cut `memory` up, or with NULL only count; returns the bytes. A picture on its side has its result
 * on its side too, so both forms must fit. */
static uint64_t rooms_cut(struct rooms *rooms, const struct fb_picture_options *options,
                          char *memory)
{
    uint32_t w = options->width, h = options->height, side = side_max(options);
    uint64_t at = 0;

    memset(rooms, 0, sizeof(*rooms));
    rooms->decoded = (uint8_t *)memory;
    at += fb_round_up(fb_image_row_bytes(side), 64);
    if (w == 0)
        return at;
    rooms->pixels = (uint32_t *)(void *)(memory + at);
    at += fb_round_up((uint64_t)w * h * 4 + FB_RESIZE_PADDING, 64);
    rooms->row = (uint32_t *)(void *)(memory + at);
    at += fb_round_up((uint64_t)w * 4, 64);
    rooms->resize = memory + at;
    rooms->resize_bytes = fb_max(fb_resize_bytes(side, w, h, options->filter),
                                 fb_resize_bytes(side, h, w, options->filter));
    return at + rooms->resize_bytes;
}

uint64_t fb_picture_memory_bytes(const struct fb_picture_options *options)
{
    static char nothing[1];
    struct rooms rooms;

    return rooms_cut(&rooms, options, nothing);
}

/* How much smaller the decoder may make it: never below the result's size. */
static unsigned reduce_of(const struct fb_picture_options *options, const struct fb_image *image,
                          struct fb_box box, uint32_t out_width, uint32_t out_height)
{
    unsigned reduce = 1;

    if (options->exact || !image->format->reduces)
        return 1;
    while (reduce < 8 && box.width / (reduce * 2) >= out_width &&
           box.height / (reduce * 2) >= out_height)
        reduce *= 2;
    return reduce;
}

static void take_resized(void *data, const uint8_t *rgbx, uint32_t y)
{
    (void)y;
    fb_resize_row(data, rgbx);
}

static struct fb_span span_of(uint32_t start, uint32_t size, uint32_t small_start,
                              uint32_t small_size, unsigned reduce, uint32_t out)
{
    return (struct fb_span){ .start = (double)start / reduce - (double)small_start,
                             .size = (double)size / reduce, .in = small_size, .out = out };
}

static int resize_box(struct fb_image *image, const struct fb_picture_options *options,
                      struct fb_box box, uint32_t out_width, uint32_t out_height,
                      const struct rooms *rooms, forebay_error *error)
{
    unsigned reduce = reduce_of(options, image, box, out_width, out_height);
    struct fb_box small = fb_box_reduced(box, reduce);
    struct fb_resize resize;
    struct fb_image_job job = { .box = box, .reduce = reduce, .exact = options->exact,
                                .row = rooms->decoded, .take = take_resized, .data = &resize };

    if (!fb_resize_begin(&resize,
                         span_of(box.x, box.width, small.x, small.width, reduce, out_width),
                         span_of(box.y, box.height, small.y, small.height, reduce, out_height),
                         options->filter, rooms->resize, rooms->resize_bytes, rooms->pixels, false))
        return fb_fail(error, FOREBAY_BAD_USE, "%" PRIu32 " x %" PRIu32 " pixels to %" PRIu32
                       " x %" PRIu32 " do not fit in the memory for resizing", box.width,
                       box.height, out_width, out_height);
    return fb_image_rows(image, &job, error);
}

int fb_picture_make(struct fb_picture *picture, const struct fb_picture_options *options,
                    const uint8_t *file, uint64_t bytes, struct fb_random *random, void *memory,
                    forebay_error *error)
{
    uint32_t out_width = options->width, out_height = options->height, width, height;
    struct rooms rooms;
    struct fb_image image;
    struct fb_box box;
    int status = fb_image_open(&image, file, bytes, &options->limits, error);
    bool turned;

    if (status)
        return status;
    rooms_cut(&rooms, options, memory);
    turned = fb_orientation_turns(image.orientation);
    seen_size(&image, &width, &height);
    box = fb_box_stored(fb_picture_box(options, width, height, random), image.orientation, width,
                        height);
    if (turned) {
        out_width = options->height;
        out_height = options->width;
    }
    status = resize_box(&image, options, box, out_width, out_height, &rooms, error);
    if (!status)
        *picture = (struct fb_picture){ .pixels = (const uint8_t *)rooms.pixels, .row = rooms.row,
                                        .view = fb_view_oriented(image.orientation, out_width,
                                                                 out_height) };
    fb_image_close(&image);
    return status;
}

/* ---- As it is ---- */

/* The bytes end before the picture's size as seen is sure. Of a file's beginning the caller reads
 * more; of a whole file it is an error. */
static int fail_cut(const struct fb_image *image, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_DATA, "%s: the file ends early, after its %" PRIu64
                   " bytes, inside a chunk", image->format->name, image->file_bytes);
}

int fb_picture_size(const struct fb_picture_options *options, const uint8_t *file, uint64_t bytes,
                    uint32_t *width, uint32_t *height, forebay_error *error)
{
    struct fb_image image;
    int status = fb_image_open(&image, file, bytes, &options->limits, error);

    if (status)
        return status;
    if (image.cut)
        status = fail_cut(&image, error);
    else
        seen_size(&image, width, height);
    fb_image_close(&image);
    return status;
}

struct scatter {
    struct fb_pixel_view place;
    uint32_t width;
    uint8_t *rgb;
};

static void take_scattered(void *data, const uint8_t *rgbx, uint32_t y)
{
    const struct scatter *scatter = data;

    fb_pixels_scatter(rgbx, scatter->width, scatter->place, y, scatter->rgb);
}

int fb_picture_whole(const struct fb_picture_options *options, const uint8_t *file, uint64_t bytes,
                     uint8_t *rgb, uint64_t rgb_bytes, void *memory, forebay_error *error)
{
    struct rooms rooms;
    struct fb_image image;
    struct scatter scatter = { .rgb = rgb };
    struct fb_image_job job = { .reduce = 1, .exact = true, .take = take_scattered,
                                .data = &scatter };
    uint32_t width, height;
    int status = fb_image_open(&image, file, bytes, &options->limits, error);

    if (status)
        return status;
    rooms_cut(&rooms, options, memory);
    seen_size(&image, &width, &height);
    job.row = rooms.decoded;
    job.box = (struct fb_box){ .width = image.width, .height = image.height };
    scatter.width = image.width;
    scatter.place = fb_view_oriented(fb_orientation_inverse(image.orientation), width, height);
    if (image.cut)
        status = fail_cut(&image, error);
    else if ((uint64_t)width * height * 3 != rgb_bytes)
        status = fb_fail(error, FOREBAY_BAD_DATA, "the picture has %" PRIu32 " x %" PRIu32
                         " pixels, which is not the size it was indexed with", width, height);
    else
        status = fb_image_rows(&image, &job, error);
    fb_image_close(&image);
    return status;
}
