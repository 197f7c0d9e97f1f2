#include "source/normal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "decode/cast.h"
#include "memory/block.h"
#include "source/source.h"

#define CHUNK_BYTES ((uint64_t)256 * 1024)

bool fb_normal_is_wanted(const struct fb_config *config)
{
    return config->source_normalise == FB_NORMALISE_AUTO || config->source_mean.count > 0 ||
           config->source_std.count > 0;
}

/* Integers to f32; floating point is fb_cast's. */
#define INTEGERS(X)                                                                                \
    X(U8, uint8_t)                                                                                 \
    X(I8, int8_t) X(U16, uint16_t) X(I16, int16_t) X(U32, uint32_t) X(I32, int32_t)                \
        X(U64, uint64_t) X(I64, int64_t)

bool fb_normal_takes(forebay_dtype dtype)
{
    return dtype != FOREBAY_C64 && dtype != FOREBAY_C128 && dtype != FOREBAY_BOOL;
}

static void to_floats(float *to, const void *from, forebay_dtype dtype, uint64_t count)
{
    switch (dtype) {
#define FB_X(name, type)                                                                           \
    case FOREBAY_##name:                                                                           \
        for (uint64_t i = 0; i < count; i++)                                                       \
            to[i] = (float)((const type *)from)[i];                                                \
        return;
        INTEGERS(FB_X)
#undef FB_X
    default:
        if (to != from)
            fb_cast(to, FOREBAY_F32, from, dtype, count);
    }
}

static double number_at(const void *values, forebay_dtype dtype, uint64_t at)
{
    float small;

    switch (dtype) {
#define FB_X(name, type)                                                                           \
    case FOREBAY_##name:                                                                           \
        return (double)((const type *)values)[at];
        INTEGERS(FB_X)
#undef FB_X
    case FOREBAY_F64:
        return ((const double *)values)[at];
    default:
        fb_cast(&small, FOREBAY_F32, (const char *)values + at * forebay_dtype_bytes(dtype), dtype,
                1);
        return small;
    }
}

void fb_normal_apply(const struct fb_normal *normal, float *to, const void *from,
                     forebay_dtype dtype, uint64_t rows)
{
    const float *mean = normal->mean, *std = normal->std;
    uint64_t columns = normal->columns;

    to_floats(to, from, dtype, rows * columns);
    for (uint64_t r = 0; r < rows; r++, to += columns)
        for (uint64_t c = 0; c < columns; c++)
            to[c] = (to[c] - mean[c]) / std[c];
}

/* ---- From the data ---- */

/* Welford's running mean and sum of squares, a row at a time. */
struct moments {
    uint64_t rows;
    double *mean, *squares; /* [columns] */
};

static void moments_add(struct moments *moments, const void *values, forebay_dtype dtype,
                        uint64_t rows, uint64_t columns)
{
    for (uint64_t r = 0; r < rows; r++) {
        double count = (double)++moments->rows;

        for (uint64_t c = 0; c < columns; c++) {
            double x = number_at(values, dtype, r * columns + c);
            double delta = x - moments->mean[c];

            moments->mean[c] += delta / count;
            moments->squares[c] += delta * (x - moments->mean[c]);
        }
    }
}

static int add_unit(struct moments *moments, const struct fb_series_set *set, uint64_t unit,
                    void *chunk, struct fb_reader *reader, forebay_error *error)
{
    const struct fb_series_field *field = fb_series_field(set, unit);
    uint64_t step = fb_max(1, CHUNK_BYTES / field->row_bytes), rows = set->series[unit].rows;

    for (uint64_t first = 0; first < rows; first += step) {
        uint64_t count = fb_min(step, rows - first);
        int status = fb_series_read(set, unit, first, count, chunk, reader, error);

        if (status)
            return status;
        moments_add(moments, chunk, field->dtype, count, field->row_numbers);
    }
    return FOREBAY_OK;
}

static int add_all(struct moments *moments, const struct fb_series_set *set, unsigned field,
                   void *chunk, struct fb_reader *reader, const struct fb_log *log,
                   forebay_error *error)
{
    for (uint64_t i = 0; i < set->count; i++) {
        uint64_t unit = i * set->field_count + field;
        int status = fb_progress(log, "mean and std", i, set->count, error);

        if (!status && !set->series[unit].fault)
            status = add_unit(moments, set, unit, chunk, reader, error);
        if (status)
            return status;
    }
    return FOREBAY_OK;
}

static int compute(struct fb_normal *normal, const struct fb_series_set *set, unsigned field,
                   struct fb_reader *reader, const struct fb_log *log, forebay_error *error)
{
    struct fb_budget *budget = normal->budget;
    uint64_t bytes = fb_max(CHUNK_BYTES, set->fields[field].row_bytes), columns = normal->columns;
    char *chunk = fb_block_new(budget, FB_STAGE_SCRATCH, bytes, 1, "computing mean and std", error);
    double *sums = fb_block_new(budget, FB_STAGE_SCRATCH, 2 * columns, sizeof(*sums),
                                "computing mean and std", error);
    struct moments moments = { .mean = sums, .squares = sums ? sums + columns : NULL };
    int status =
        chunk && sums ? add_all(&moments, set, field, chunk, reader, log, error) : fb_failed(error);

    for (uint64_t c = 0; !status && c < columns; c++) {
        double deviation = sqrt(moments.squares[c] / (double)fb_max(1, moments.rows));

        normal->mean[c] = (float)moments.mean[c];
        normal->std[c] = deviation > 0 ? (float)deviation : 1; /* a constant column becomes 0 */
    }
    fb_block_free(budget, FB_STAGE_SCRATCH, sums, 2 * columns, sizeof(*sums));
    fb_block_free(budget, FB_STAGE_SCRATCH, chunk, bytes, 1);
    return status;
}

/* ---- Given ---- */

static int take_given(float *to, uint64_t columns, const struct fb_reals *given, float fallback,
                      const char *key, const struct fb_config *config, forebay_error *error)
{
    bool is_std = fallback > 0;

    if (given->count > 1 && given->count != columns) {
        fb_fail(error, FOREBAY_BAD_CONFIG,
                "%s has %zu numbers; give one, or one for each of the %" PRIu64 " columns", key,
                given->count, columns);
        fb_config_place(config, key, error);
        return FOREBAY_BAD_CONFIG;
    }
    for (uint64_t c = 0; c < columns; c++) {
        to[c] = given->count ? (float)given->values[given->count == 1 ? 0 : c] : fallback;
        if (isfinite(to[c]) && (!is_std || to[c] > 0))
            continue;
        fb_fail(error, FOREBAY_BAD_CONFIG, "%s: %g is no %s", key, (double)to[c],
                is_std ? "positive number" : "finite number");
        fb_config_place(config, key, error);
        return FOREBAY_BAD_CONFIG;
    }
    return FOREBAY_OK;
}

static int fill(struct fb_normal *normal, const struct fb_config *config,
                const struct fb_series_set *set, unsigned field, struct fb_reader *reader,
                const struct fb_log *log, forebay_error *error)
{
    int status;

    if (config->source_normalise == FB_NORMALISE_AUTO)
        return compute(normal, set, field, reader, log, error);
    status = take_given(normal->mean, normal->columns, &config->source_mean, 0, "source.mean",
                        config, error);
    if (!status)
        status = take_given(normal->std, normal->columns, &config->source_std, 1, "source.std",
                            config, error);
    return status;
}

int fb_normal_open(struct fb_normal *normal, const struct fb_config *config,
                   const struct fb_series_set *set, unsigned field, struct fb_reader *reader,
                   const struct fb_log *log, forebay_error *error)
{
    const struct fb_series_field *about = &set->fields[field];
    int status;

    if (!fb_normal_takes(about->dtype))
        return fb_fail(error, FOREBAY_BAD_CONFIG, "field %s is %s, which cannot be normalised",
                       about->name, forebay_dtype_name(about->dtype));
    *normal = (struct fb_normal){ .budget = set->budget, .columns = about->row_numbers };
    normal->mean = fb_block_new(set->budget, FB_STAGE_INDEX, 2 * normal->columns, sizeof(float),
                                "mean and std", error);
    if (!normal->mean)
        return fb_failed(error);
    normal->std = normal->mean + normal->columns;
    status = fill(normal, config, set, field, reader, log, error);
    if (status)
        fb_normal_release(normal);
    return status;
}

void fb_normal_release(struct fb_normal *normal)
{
    if (normal->mean)
        fb_block_free(normal->budget, FB_STAGE_INDEX, normal->mean, 2 * normal->columns,
                      sizeof(float));
    *normal = (struct fb_normal){ .columns = 0 };
}
