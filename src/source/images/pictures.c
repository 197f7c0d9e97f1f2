#include "source/images/pictures.h"

#include <inttypes.h>

#include "base/size.h"
#include "decode/cast.h"

#define SIDE_MAX 16384 /* of a result */
#define FILE_BYTES_MAX                                                                             \
    (64 * FB_MIB) /* of a picture's file, or source.decode_memory if that is more */

static int bad_key(const struct fb_config *config, const char *key, const char *why,
                   forebay_error *error)
{
    int status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s: %s", key, why);

    fb_config_place(config, key, error);
    return status;
}

static int read_size(struct fb_pictures *pictures, const struct fb_config *config,
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
    pictures->options.height = (uint32_t)size->values[0];
    pictures->options.width = (uint32_t)size->values[size->count - 1];
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
            return bad_key(config, key,
                           fallback == 1.0 ? "a number above 0, for pixels of 0 to 1"
                                           : "a number, for pixels of 0 to 1",
                           error);
    }
    return FOREBAY_OK;
}

/* What needs source.size and does not have it. */
static int check_needs_size(const struct fb_config *config, forebay_error *error)
{
    const char *key = config->source_crop != FB_CROP_NONE ? "source.crop"
                      : config->source_flip               ? "source.flip"
                      : config->source_mean.count         ? "source.mean"
                      : config->source_std.count          ? "source.std"
                      : config->source_layout != 0        ? "source.layout"
                                                          : NULL;

    if (!key)
        return FOREBAY_OK;
    return bad_key(config, key, "needs source.size, so that all images have one shape", error);
}

static int read_config(struct fb_pictures *pictures, const struct fb_config *config,
                       forebay_error *error)
{
    static const double zero[3], one[3] = { 1, 1, 1 };
    bool normalised = config->source_mean.count || config->source_std.count;
    forebay_dtype dtype =
        normalised ? fb_cast_target(config->batch_dtype, FOREBAY_F32) : FOREBAY_U8;
    double mean[3], std[3];
    int status = read_size(pictures, config, error);

    if (!status && !pictures->options.width)
        status = check_needs_size(config, error);
    if (!status)
        status = read_channels(mean, config, "source.mean", &config->source_mean, 0.0, error);
    if (!status)
        status = read_channels(std, config, "source.std", &config->source_std, 1.0, error);
    if (status)
        return status;
    pictures->options.crop = (enum fb_crop)config->source_crop;
    pictures->options.filter = (enum fb_filter)config->source_filter;
    pictures->options.exact = config->source_exact;
    pictures->flip = config->source_flip;
    pictures->encoded = config->source_crop == FB_CROP_RANDOM;
    fb_pixel_style_init(&pictures->style, dtype, config->source_layout == 1, mean, std);
    fb_pixel_style_init(&pictures->plain, FOREBAY_U8, false, zero, one);
    return FOREBAY_OK;
}

uint64_t fb_decode_memory(const struct fb_config *config, struct fb_budget *shared)
{
    struct fb_budget_report budget;

    if (config->source_decode_memory.mode != FB_SIZE_AUTO)
        return config->source_decode_memory.value;
    fb_budget_read(shared, &budget);
    return fb_max(FB_DECODE_MEMORY_LEAST, fb_min(64 * FB_MIB, budget.limit / 32));
}

static void read_limits(struct fb_pictures *pictures, const struct fb_config *config,
                        struct fb_budget *shared)
{
    uint64_t bytes = fb_decode_memory(config, shared);

    pictures->options.limits =
        (struct fb_image_limits){ .pixels = config->source_max_pixels.value, .bytes = bytes };
    pictures->file_bytes_max = fb_max(FILE_BYTES_MAX, bytes);
}

int fb_pictures_init(struct fb_pictures *pictures, const struct fb_config *config,
                     struct fb_budget *budget, forebay_error *error)
{
    int status = read_config(pictures, config, error);

    if (status)
        return status;
    read_limits(pictures, config, budget);
    pictures->finished = pictures->encoded || pictures->flip || pictures->style.planar ||
                         pictures->style.dtype != FOREBAY_U8;
    pictures->work_bytes = fb_round_up(fb_picture_memory_bytes(&pictures->options), 64);
    return FOREBAY_OK;
}

void fb_pictures_describe(const struct fb_pictures *pictures, struct fb_field *field)
{
    uint64_t width = pictures->options.width, height = pictures->options.height;

    field->dtype = pictures->style.dtype;
    field->items = 1;
    field->vary = width ? 0 : 2;
    field->ndim = 3;
    field->shape[0] = height;
    field->shape[1] = width;
    field->shape[2] = 3;
    field->cell_bytes = width ? width * 3 : 3;
    field->finished = pictures->finished;
    if (pictures->style.planar) {
        field->shape[0] = 3;
        field->shape[1] = height;
        field->shape[2] = width;
    }
    if (field->finished)
        field->cell_bytes = field->shape[1] * field->shape[2] * forebay_dtype_bytes(field->dtype);
}

uint64_t fb_pictures_unit_bytes(const struct fb_pictures *pictures)
{
    return pictures->encoded ? 0 : (uint64_t)pictures->options.width * pictures->options.height * 3;
}

struct fb_extent fb_pictures_extent(const struct fb_pictures *pictures, uint64_t file_bytes)
{
    struct fb_extent extent = { .known = FB_EXTENT_EXACT, .columns = 1 };

    if (pictures->encoded)
        extent.rows = file_bytes;
    else if (pictures->finished)
        extent.rows = fb_pictures_unit_bytes(pictures);
    else if (pictures->options.width)
        extent.rows = pictures->options.height;
    else
        extent.known = FB_EXTENT_UNKNOWN;
    return extent;
}

uint64_t fb_pictures_hash(const struct fb_pictures *pictures)
{
    const struct fb_picture_options *options = &pictures->options;
    uint64_t hash = fb_mix2(FB_KIND_IMAGES, pictures->encoded);

    if (pictures->encoded)
        return hash;
    hash = fb_mix2(hash, (uint64_t)options->width << 32 | options->height);
    return fb_mix2(hash,
                   (uint64_t)options->crop << 8 | (uint64_t)options->filter << 4 | options->exact);
}

/* The resized picture, u8 HWC. */
static int load_resized(const struct fb_pictures *pictures, const uint8_t *file,
                        uint64_t file_bytes, void *to, void *work, forebay_error *error)
{
    const struct fb_picture_options *options = &pictures->options;
    struct fb_picture picture;
    int status = fb_picture_make(&picture, options, file, file_bytes, NULL, work, error);

    if (!status)
        fb_pixels_write(&pictures->plain, picture.pixels, 4, picture.view, options->width,
                        options->height, picture.row, to);
    return status;
}

int fb_pictures_load(const struct fb_pictures *pictures, const uint8_t *file, uint64_t file_bytes,
                     void *to, uint64_t bytes, void *work, forebay_error *error)
{
    if (pictures->options.width)
        return load_resized(pictures, file, file_bytes, to, work, error);
    return fb_picture_whole(&pictures->options, file, file_bytes, to, bytes, work, error);
}

int fb_pictures_finish(const struct fb_pictures *pictures, const void *in, uint64_t in_bytes,
                       struct fb_random random, void *out, uint64_t out_bytes, void *work,
                       forebay_error *error)
{
    const struct fb_picture_options *options = &pictures->options;
    uint32_t width = options->width, height = options->height;
    struct fb_picture picture = { .pixels = in,
                                  .row = work,
                                  .view = fb_view_oriented(1, width, height) };
    int status = FOREBAY_OK;

    if (out_bytes != (uint64_t)width * height * 3 * forebay_dtype_bytes(pictures->style.dtype))
        return fb_fail(error, FOREBAY_BAD_USE, "pictures: a place of %" PRIu64 " bytes", out_bytes);
    if (pictures->encoded)
        status = fb_picture_make(&picture, options, in, in_bytes, &random, work, error);
    if (status)
        return status;
    if (pictures->flip && fb_random_next(&random) >> 63)
        picture.view = fb_view_mirrored(picture.view, width);
    fb_pixels_write(&pictures->style, picture.pixels, pictures->encoded ? 4 : 3, picture.view,
                    width, height, picture.row, out);
    return FOREBAY_OK;
}

int fb_pictures_check(const struct fb_pictures *pictures, const void *in, uint64_t in_bytes,
                      void *work, forebay_error *error)
{
    struct fb_picture_options options = pictures->options;
    struct fb_picture picture;

    if (!pictures->encoded)
        return FOREBAY_OK; /* it was decoded when it was loaded */
    options.crop = FB_CROP_NONE;
    return fb_picture_make(&picture, &options, in, in_bytes, NULL, work, error);
}
