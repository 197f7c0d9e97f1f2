/*
 * source_images.c -- JPEG and PNG files with a label each.
 *
 *   source.size   crop        a unit is                          finish() does
 *   none          none        the picture, u8 HWC, its own size  nothing
 *   set           none|center the picture, u8 HWC, resized       mirror, normalise, lay out
 *   set           random      the file as it is                  all, and decodes one box only
 *
 * So the cache always keeps the last thing that is the same in every epoch. Unit i is image i;
 * label i is unit N + i, which is made from the index.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "decode/cast.h"
#include "decode/picture.h"
#include "memory/block.h"
#include "source/image_list.h"
#include "source/source_kinds.h"

#define SIDE_MAX 16384                /* of a result */
#define FILE_BYTES_MAX (64 * FB_MIB)  /* of a file, or source.decode_memory if that is more */
#define HEADER_BYTES (64 * FB_KIB)    /* what is read first to learn a picture's size */
#define SIZE_BROKEN UINT64_MAX

enum { IMAGE, LABEL, FIELDS };

struct images_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_field fields[FIELDS];
    struct fb_image_list list;
    struct fb_picture_options options;
    struct fb_pixel_style style, plain; /* of the field; of a unit: u8 HWC */
    bool flip, encoded;                 /* encoded: a unit is a file as it is */
    uint64_t file_bytes_max;            /* larger ones are broken */
    uint64_t largest;                   /* of those that are not */
    uint64_t picture_bytes;             /* of scratch, for decode/picture.h; then the file */
    _Atomic uint64_t *sizes;            /* no source.size: 0, SIZE_BROKEN, rows << 32 | columns */
};

static void images_close(struct fb_source *source)
{
    struct images_source *images = (struct images_source *)source;

    fb_block_free(images->budget, FB_STAGE_INDEX, images->sizes, images->list.files.count,
                  sizeof(*images->sizes));
    fb_image_list_release(&images->list);
    fb_block_free(images->budget, FB_STAGE_INDEX, images, 1, sizeof(*images));
}

/* ---- Asked without I/O ---- */

static uint64_t image_count(const struct images_source *images)
{
    return images->list.files.count;
}

static bool is_broken(const struct images_source *images, uint64_t number)
{
    const struct fb_file *file = &images->list.files.file[number];

    return file->fault || file->bytes == 0 || file->bytes > images->file_bytes_max;
}

static unsigned images_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    const struct images_source *images = (const struct images_source *)source;

    parts[0] = (struct fb_part){ .unit = sample, .field = IMAGE, .rows = FB_ALL_ROWS };
    parts[1] = (struct fb_part){ .unit = image_count(images) + sample, .field = LABEL,
                                 .rows = FB_ALL_ROWS };
    return 2;
}

static struct fb_extent extent_exact(uint64_t rows, uint64_t columns)
{
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = rows, .columns = columns };
}

static struct fb_extent images_extent(const struct fb_source *source, uint64_t unit)
{
    const struct images_source *images = (const struct images_source *)source;
    const struct fb_picture_options *options = &images->options;
    uint64_t size;

    if (unit >= image_count(images))
        return extent_exact(1, 1);
    if (is_broken(images, unit))
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    if (images->encoded)
        return extent_exact(images->list.files.file[unit].bytes, 1);
    if (images->fields[IMAGE].finished)
        return extent_exact((uint64_t)options->width * options->height * 3, 1);
    if (options->width)
        return extent_exact(options->height, 1);
    size = atomic_load_explicit(&images->sizes[unit], memory_order_relaxed);
    if (size == SIZE_BROKEN)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    if (size == 0)
        return (struct fb_extent){ .known = FB_EXTENT_UNKNOWN };
    return extent_exact(size >> 32, size & UINT32_MAX);
}

static void images_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    const struct images_source *images = (const struct images_source *)source;

    fb_files_place(&images->list.files, unit % image_count(images), text, size);
}

static bool images_file(const struct fb_source *source, uint64_t unit, char *path, size_t size,
                        uint64_t *bytes)
{
    const struct images_source *images = (const struct images_source *)source;

    if (unit >= image_count(images))
        return false;
    fb_files_path(&images->list.files, unit, path, size);
    *bytes = images->list.files.file[unit].bytes;
    return true;
}

/* ---- Reading ---- */

/* The first `most` bytes of the file at `to`, or all of it if it is shorter. It must be as long as
 * it was when it was listed. */
static int read_file(const struct images_source *images, uint64_t unit, struct fb_reader *reader,
                     void *to, uint64_t most, uint64_t *bytes, forebay_error *error)
{
    const struct fb_file *file = &images->list.files.file[unit];
    char path[FB_PATH_BYTES];
    uint64_t found;
    int fd, status;

    fb_files_path(&images->list.files, unit, path, sizeof(path));
    status = fb_reader_open(reader, path, &fd, &found, error);
    if (status)
        return status;
    *bytes = fb_min(found, most);
    if (found == 0)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' is empty", path);
    else if (found > images->file_bytes_max)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' has %" PRIu64 " bytes; more than %" PRIu64
                         " for one picture need a larger source.decode_memory", path, found,
                         images->file_bytes_max);
    else if (found != file->bytes || file->fault)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' changed since it was indexed: %" PRIu64
                         " bytes then, %" PRIu64 " now", path, file->bytes, found);
    else
        status = fb_reader_read(reader, fd, path, to, *bytes, 0, error);
    close(fd);
    return status;
}

/* Behind the part of scratch that decode/picture.h works in. */
static uint8_t *file_room(const struct images_source *images, struct fb_scratch scratch)
{
    return (uint8_t *)scratch.memory + images->picture_bytes;
}

static int name_file(const struct images_source *images, uint64_t unit, int status,
                     forebay_error *error)
{
    char place[256];

    if (status && error) {
        fb_files_place(&images->list.files, unit, place, sizeof(place));
        fb_error_context(error, "'%s'", place);
    }
    return status;
}

static int images_probe(struct fb_source *source, uint64_t unit, const struct fb_load *load,
                        forebay_error *error)
{
    struct images_source *images = (struct images_source *)source;
    uint8_t *file = file_room(images, load->scratch);
    uint64_t bytes, most = HEADER_BYTES;
    uint32_t width, height;
    int status;

    for (;;) {
        status = read_file(images, unit, load->reader, file, most, &bytes, error);
        if (!status)
            status = name_file(images, unit, fb_picture_size(&images->options, file, bytes, &width,
                                                             &height, error), error);
        if (!fb_status_is_data(status) || bytes < most || most == images->largest)
            break;
        most = images->largest; /* the header is longer than most are */
    }
    if (!status)
        atomic_store_explicit(&images->sizes[unit], (uint64_t)height << 32 | width,
                              memory_order_relaxed);
    else if (fb_status_is_data(status))
        atomic_store_explicit(&images->sizes[unit], SIZE_BROKEN, memory_order_relaxed);
    return status;
}

static int load_label(const struct images_source *images, const struct fb_load *load)
{
    int64_t label = fb_image_list_label(&images->list, load->unit - image_count(images));

    memcpy(load->to, &label, fb_min(load->bytes, sizeof(label)));
    return FOREBAY_OK;
}

/* The resized picture, u8 HWC. */
static int load_resized(const struct images_source *images, const struct fb_load *load,
                        const uint8_t *file, uint64_t bytes, forebay_error *error)
{
    const struct fb_picture_options *options = &images->options;
    struct fb_picture picture;
    int status = fb_picture_make(&picture, options, file, bytes, NULL, load->scratch.memory, error);

    if (!status)
        fb_pixels_write(&images->plain, picture.pixels, 4, picture.view, options->width,
                        options->height, picture.row, load->to);
    return status;
}

static int images_load(const struct fb_source *source, const struct fb_load *load,
                       forebay_error *error)
{
    const struct images_source *images = (const struct images_source *)source;
    uint8_t *file;
    uint64_t bytes;
    int status;

    if (load->unit >= image_count(images))
        return load_label(images, load);
    if (images->encoded)
        return read_file(images, load->unit, load->reader, load->to, load->bytes, &bytes, error);
    file = file_room(images, load->scratch);
    status = read_file(images, load->unit, load->reader, file, images->largest, &bytes, error);
    if (status)
        return status;
    if (images->options.width)
        status = load_resized(images, load, file, bytes, error);
    else
        status = fb_picture_whole(&images->options, file, bytes, load->to, load->bytes,
                                  load->scratch.memory, error);
    return name_file(images, load->unit, status, error);
}

static int images_finish(const struct fb_source *source, uint64_t sample, const void *in,
                         struct fb_extent extent, struct fb_random random, void *out,
                         uint64_t out_bytes, struct fb_scratch scratch, forebay_error *error)
{
    const struct images_source *images = (const struct images_source *)source;
    const struct fb_picture_options *options = &images->options;
    uint32_t width = options->width, height = options->height;
    struct fb_picture picture = { .pixels = in, .row = scratch.memory,
                                  .view = fb_view_oriented(1, width, height) };
    int status = FOREBAY_OK;

    if (out_bytes != (uint64_t)width * height * 3 * forebay_dtype_bytes(images->style.dtype))
        return fb_fail(error, FOREBAY_BAD_USE, "images: a place of %" PRIu64 " bytes", out_bytes);
    if (images->encoded)
        status =
            fb_picture_make(&picture, options, in, extent.rows, &random, scratch.memory, error);
    if (status)
        return name_file(images, sample, status, error);
    if (images->flip && fb_random_next(&random) >> 63)
        picture.view = fb_view_mirrored(picture.view, width);
    fb_pixels_write(&images->style, picture.pixels, images->encoded ? 4 : 3, picture.view, width,
                    height, picture.row, out);
    return FOREBAY_OK;
}

/* The whole picture is decoded, not only what a random box would have of it. */
static int images_check(const struct fb_source *source, uint64_t unit, const void *in,
                        struct fb_extent extent, struct fb_scratch scratch, forebay_error *error)
{
    const struct images_source *images = (const struct images_source *)source;
    struct fb_picture_options options = images->options;
    struct fb_picture picture;

    if (!images->encoded)
        return FOREBAY_OK; /* it was decoded when it was loaded */
    options.crop = FB_CROP_NONE;
    return name_file(images, unit, fb_picture_make(&picture, &options, in, extent.rows, NULL,
                                                   scratch.memory, error), error);
}

/* ---- Opening ---- */

static int bad_key(const struct fb_config *config, const char *key, const char *why,
                   forebay_error *error)
{
    int status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s: %s", key, why);

    fb_config_place(config, key, error);
    return status;
}

static int read_size(struct images_source *images, const struct fb_config *config,
                     forebay_error *error)
{
    const struct fb_reals *size = &config->source_size;

    if (size->count == 0)
        return FOREBAY_OK;
    if (size->count > 2)
        return bad_key(config, "source.size", "a side, or [height, width]", error);
    for (size_t i = 0; i < size->count; i++)
        if (!(size->values[i] >= 1 && size->values[i] <= SIDE_MAX) ||
            size->values[i] != (double)(uint32_t)size->values[i])
            return bad_key(config, "source.size", "sides are whole numbers from 1 to 16384", error);
    images->options.height = (uint32_t)size->values[0];
    images->options.width = (uint32_t)size->values[size->count - 1];
    return FOREBAY_OK;
}

/* One number for all channels, or one each; `fallback` if the key is not set. */
static int read_channels(double values[3], const struct fb_config *config, const char *key,
                         const struct fb_reals *reals, double fallback, forebay_error *error)
{
    if (reals->count != 0 && reals->count != 1 && reals->count != 3)
        return bad_key(config, key, "one number, or three: red, green, blue", error);
    for (unsigned c = 0; c < 3; c++) {
        values[c] = reals->count == 0 ? fallback : reals->values[reals->count == 3 ? c : 0];
        if (!(values[c] >= -1e6 && values[c] <= 1e6) || (fallback == 1.0 && values[c] < 1e-6))
            return bad_key(config, key, fallback == 1.0 ? "a number above 0, for pixels of 0 to 1"
                                                        : "a number, for pixels of 0 to 1", error);
    }
    return FOREBAY_OK;
}

/* What needs source.size and does not have it. */
static int check_needs_size(const struct fb_config *config, forebay_error *error)
{
    const char *key = config->source_crop != FB_CROP_NONE  ? "source.crop"
                      : config->source_flip                ? "source.flip"
                      : config->source_mean.count          ? "source.mean"
                      : config->source_std.count           ? "source.std"
                      : config->source_layout != 0         ? "source.layout"
                                                           : NULL;

    if (!key)
        return FOREBAY_OK;
    return bad_key(config, key, "needs source.size, so that all images have one shape", error);
}

static int read_config(struct images_source *images, const struct fb_config *config,
                       forebay_error *error)
{
    static const double zero[3], one[3] = { 1, 1, 1 };
    bool normalised = config->source_mean.count || config->source_std.count;
    forebay_dtype dtype =
        normalised ? fb_cast_target(config->batch_dtype, FOREBAY_F32) : FOREBAY_U8;
    double mean[3], std[3];
    int status = read_size(images, config, error);

    if (!status && !images->options.width)
        status = check_needs_size(config, error);
    if (!status)
        status = read_channels(mean, config, "source.mean", &config->source_mean, 0.0, error);
    if (!status)
        status = read_channels(std, config, "source.std", &config->source_std, 1.0, error);
    if (status)
        return status;
    images->options.crop = (enum fb_crop)config->source_crop;
    images->options.filter = (enum fb_filter)config->source_filter;
    images->options.exact = config->source_exact;
    images->flip = config->source_flip;
    images->encoded = config->source_crop == FB_CROP_RANDOM;
    fb_pixel_style_init(&images->style, dtype, config->source_layout == 1, mean, std);
    fb_pixel_style_init(&images->plain, FOREBAY_U8, false, zero, one);
    return FOREBAY_OK;
}

static void read_limits(struct images_source *images, const struct fb_config *config)
{
    struct fb_budget_report budget;
    uint64_t bytes = config->source_decode_memory.value;

    fb_budget_read(images->budget, &budget);
    if (config->source_decode_memory.mode == FB_SIZE_AUTO)
        bytes = fb_max(8 * FB_MIB, fb_min(64 * FB_MIB, budget.limit / 32));
    images->options.limits = (struct fb_image_limits){ .pixels = config->source_max_pixels.value,
                                                       .bytes = bytes };
    images->file_bytes_max = fb_max(FILE_BYTES_MAX, bytes);
}

static void describe_fields(struct images_source *images)
{
    uint64_t width = images->options.width, height = images->options.height;
    struct fb_field *image = &images->fields[IMAGE];

    *image = (struct fb_field){ .name = "image", .dtype = images->style.dtype, .items = 1,
                                .vary = width ? 0 : 2, .ndim = 3, .shape = { height, width, 3 },
                                .cell_bytes = width ? width * 3 : 3 };
    image->finished = images->encoded || images->flip || images->style.planar ||
                      images->style.dtype != FOREBAY_U8;
    if (images->style.planar) {
        image->shape[0] = 3;
        image->shape[1] = height;
        image->shape[2] = width;
    }
    if (image->finished)
        image->cell_bytes = image->shape[1] * image->shape[2] *
                            forebay_dtype_bytes(image->dtype);
    images->fields[LABEL] = (struct fb_field){ .name = "label", .dtype = FOREBAY_I64, .items = 1,
                                               .cell_bytes = sizeof(int64_t), .indexed = true };
}

static void measure(struct images_source *images)
{
    struct fb_source *base = &images->base;
    uint64_t decoded = (uint64_t)images->options.width * images->options.height * 3;

    for (uint64_t i = 0; i < image_count(images); i++) {
        uint64_t bytes = images->list.files.file[i].bytes;

        if (is_broken(images, i)) {
            base->broken_count++;
            continue;
        }
        images->largest = fb_max(images->largest, bytes);
        base->unit_bytes_total += images->encoded ? bytes : decoded;
    }
    images->largest = fb_max(images->largest, 1);
    base->unit_bytes_max = images->encoded ? images->largest : decoded;
}

/* Everything that changes what a unit holds. */
static uint64_t identity_of(const struct images_source *images)
{
    const struct fb_picture_options *options = &images->options;
    uint64_t hash = fb_mix2(FB_KIND_IMAGES, images->encoded);

    if (!images->encoded) {
        hash = fb_mix2(hash, (uint64_t)options->width << 32 | options->height);
        hash = fb_mix2(hash, (uint64_t)options->crop << 8 | (uint64_t)options->filter << 4 |
                                 options->exact);
    }
    return fb_files_hash(&images->list.files, hash);
}

static void describe(struct images_source *images)
{
    struct fb_source *base = &images->base;

    describe_fields(images);
    measure(images);
    images->picture_bytes = fb_round_up(fb_picture_memory_bytes(&images->options), 64);
    base->sample_count = base->unit_count = image_count(images);
    base->field_count = FIELDS;
    base->fields = images->fields;
    base->parts_max = FIELDS;
    base->scratch_bytes = images->picture_bytes + (images->encoded ? 0 : images->largest);
    base->library_bytes = images->options.limits.bytes;
    base->raw = images->encoded;
    base->uniform = images->options.width != 0;
    base->identity = identity_of(images);
}

static int images_open(struct fb_source **out, const struct fb_config *config,
                       struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct images_source *images = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*images),
                                                "images source", error);
    int status;

    if (!images)
        return fb_failed(error);
    images->base.ops = &fb_source_images;
    images->budget = budget;
    status = read_config(images, config, error);
    if (!status)
        status = fb_image_list_open(&images->list, config, budget, log, error);
    if (status)
        goto fail;
    read_limits(images, config);
    describe(images);
    if (!images->options.width) {
        images->sizes = fb_block_new(budget, FB_STAGE_INDEX, image_count(images),
                                     sizeof(*images->sizes), "sizes of images", error);
        if (!images->sizes) {
            status = fb_failed(error);
            goto fail;
        }
    }
    if (images->list.class_count)
        fb_say(log, "images: %" PRIu64 " files in %" PRIu64 " classes", image_count(images),
               images->list.class_count);
    *out = &images->base;
    return FOREBAY_OK;

fail:
    images_close(&images->base);
    return status;
}

const struct fb_source_ops fb_source_images = {
    .kind = "images",
    .description = "JPEG and PNG files, labelled by their folder or by a list",
    .open = images_open,
    .close = images_close,
    .parts = images_parts,
    .extent = images_extent,
    .probe = images_probe,
    .load = images_load,
    .finish = images_finish,
    .check = images_check,
    .file = images_file,
    .place = images_place,
};
