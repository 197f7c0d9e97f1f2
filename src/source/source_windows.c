/*
 * source_windows.c -- windows of `window` rows, `stride` rows apart, over long arrays.
 *
 *     rows      0....5....10...15...20...      window: 8, stride: 5
 *     sample 0  [------)
 *     sample 1       [------)
 *     sample 2            [------)             no window crosses the end of a file
 *
 * A unit is a file (of one field): what overlapping windows share is kept once. A window that is
 * not cached is read alone. tail: drop leaves out rows that fill no window, and with them a file
 * that is shorter than one; pad gives one more window, with zeros after the last row, if the next
 * window would begin before the end of the file. A broken file counts as one window, which fails, so
 * that on_error decides about it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/search.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/normal.h"
#include "source/source.h"
#include "source/window_count.h"

#define SCRATCH_BYTES ((uint64_t)256 * 1024) /* numbers that become f32 pass through it */
#define WINDOW_MAX ((uint64_t)1 << 32)

struct windows_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_series_set set;
    struct fb_field *fields; /* [set.field_count], as is: */
    struct fb_normal *normals;
    uint64_t window, stride;
    bool pad;
    uint64_t recordings; /* room for */
    uint64_t *ends;      /* recording r has the samples [ends[r-1], ends[r]) */
};

static void windows_close(struct fb_source *source)
{
    struct windows_source *windows = (struct windows_source *)source;
    struct fb_budget *budget = windows->budget;
    unsigned fields = windows->set.field_count;

    for (unsigned f = 0; windows->normals && f < fields; f++)
        fb_normal_release(&windows->normals[f]);
    fb_block_free(budget, FB_STAGE_INDEX, windows->normals, fields, sizeof(*windows->normals));
    fb_block_free(budget, FB_STAGE_INDEX, windows->fields, fields, sizeof(*windows->fields));
    fb_block_free(budget, FB_STAGE_INDEX, windows->ends, windows->recordings, sizeof(uint64_t));
    if (fields)
        fb_series_release(&windows->set);
    fb_block_free(budget, FB_STAGE_INDEX, windows, 1, sizeof(*windows));
}

/* ---- The index ---- */

static bool is_broken(const struct windows_source *windows, uint64_t recording)
{
    const struct fb_series *series = &windows->set.series[recording * windows->set.field_count];

    for (unsigned f = 0; f < windows->set.field_count; f++)
        if (series[f].fault)
            return true;
    return false;
}

static uint64_t count_windows(const struct windows_source *windows, uint64_t recording)
{
    uint64_t rows = windows->set.series[recording * windows->set.field_count].rows;

    if (is_broken(windows, recording))
        return 1;
    return fb_window_count(rows, windows->window, windows->stride, windows->pad);
}

static int index_windows(struct windows_source *windows, forebay_error *error)
{
    const struct fb_series_set *set = &windows->set;
    uint64_t end = 0;

    windows->ends = fb_block_new(windows->budget, FB_STAGE_INDEX, set->count, sizeof(uint64_t),
                                 "the list of windows", error);
    if (!windows->ends)
        return fb_failed(error);
    windows->recordings = set->count;
    for (uint64_t r = 0; r < set->count; r++) {
        if (!fb_add(end, count_windows(windows, r), &end))
            return fb_fail(error, FOREBAY_BAD_DATA, "there are more windows than can be counted");
        windows->ends[r] = end;
    }
    windows->base.sample_count = end;
    return FOREBAY_OK;
}

static int describe_field(struct windows_source *windows, unsigned f, forebay_error *error)
{
    const struct fb_series_field *series = &windows->set.fields[f];
    struct fb_field *field = &windows->fields[f];
    uint64_t bytes;

    *field = (struct fb_field){ .dtype = windows->normals[f].columns ? FOREBAY_F32 : series->dtype,
                                .items = 1,
                                .ndim = series->ndim,
                                .cell_bytes = 1 };
    if (strlen(series->name) >= sizeof(field->name))
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.fields: '%s' is longer than %zu bytes",
                       series->name, sizeof(field->name) - 1);
    memcpy(field->name, series->name, strlen(series->name) + 1);
    memcpy(field->shape, series->shape, sizeof(field->shape));
    field->shape[0] = windows->window;
    field->cell_bytes = series->row_numbers * forebay_dtype_bytes(field->dtype);
    if (!fb_mul(field->cell_bytes, windows->window, &bytes))
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       "source.window: a window of %" PRIu64 " rows has more bytes than there are",
                       windows->window);
    return FOREBAY_OK;
}

static void describe_source(struct windows_source *windows)
{
    const struct fb_series_set *set = &windows->set;
    struct fb_source *base = &windows->base;
    uint64_t hash = fb_series_hash(set);

    base->unit_count = set->count * set->field_count;
    base->field_count = base->parts_max = set->field_count;
    base->fields = windows->fields;
    base->rows_alone = base->sliced = base->uniform = true;
    /* Not `raw`: a window from the page cache costs twice the CPU time of one from our own memory
     * (0.21 and 0.11 s per GB, windows of 24 KiB), and each row is delivered window/stride times.
     */
    base->group_count = set->count;
    base->group_ends = windows->ends;
    for (uint64_t unit = 0; unit < base->unit_count; unit++) {
        uint64_t bytes =
            set->series[unit].rows * windows->fields[unit % set->field_count].cell_bytes;

        base->broken_count += set->series[unit].fault != FB_SERIES_GOOD;
        if (set->series[unit].fault)
            continue;
        base->unit_bytes_max = fb_max(base->unit_bytes_max, bytes);
        base->unit_bytes_total += bytes;
    }
    for (unsigned f = 0; f < set->field_count; f++) {
        const struct fb_normal *normal = &windows->normals[f];

        for (uint64_t i = 0; i < 2 * normal->columns; i++) {
            uint32_t bits;

            memcpy(&bits, &normal->mean[i], sizeof(bits));
            hash = fb_mix2(hash, bits);
        }
        if (normal->columns && set->fields[f].dtype != FOREBAY_F32)
            base->scratch_bytes =
                fb_max(base->scratch_bytes, fb_max(SCRATCH_BYTES, set->fields[f].row_bytes));
    }
    base->identity = hash;
    base->fingerprint = fb_series_fingerprint(set);
}

/* ---- Open ---- */

static int read_options(struct windows_source *windows, const struct fb_config *config,
                        forebay_error *error)
{
    static const char *const keys[] = { "source.window", "source.stride", "source.columns" };
    const struct fb_count *const counts[] = { &config->source_window, &config->source_stride,
                                              &config->source_columns };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (counts[i]->value > 0 && counts[i]->value <= WINDOW_MAX)
            continue;
        fb_fail(error, FOREBAY_BAD_CONFIG, "%s is %" PRIu64 ", expected 1 to %" PRIu64, keys[i],
                counts[i]->value, WINDOW_MAX);
        fb_config_place(config, keys[i], error);
        return FOREBAY_BAD_CONFIG;
    }
    windows->window = config->source_window.value;
    windows->stride = config->source_stride.value;
    windows->pad = config->source_tail == FB_TAIL_PAD;
    return FOREBAY_OK;
}

static int describe(struct windows_source *windows, const struct fb_config *config,
                    struct fb_reader *reader, const struct fb_log *log, forebay_error *error)
{
    unsigned fields = windows->set.field_count;
    int status = FOREBAY_OK;

    windows->fields = fb_block_new(windows->budget, FB_STAGE_INDEX, fields,
                                   sizeof(*windows->fields), "the fields", error);
    windows->normals = fb_block_new(windows->budget, FB_STAGE_INDEX, fields,
                                    sizeof(*windows->normals), "mean and std", error);
    if (!windows->fields || !windows->normals)
        return fb_failed(error);
    for (unsigned f = 0; f < fields && !status; f++) {
        if (!windows->set.fields[f].known) { /* let the first file say what is wrong */
            status = fb_series_read(&windows->set, f, 0, 0, NULL, reader, error);
            break;
        }
        if (fb_normal_is_wanted(config))
            status =
                fb_normal_open(&windows->normals[f], config, &windows->set, f, reader, log, error);
        if (!status)
            status = describe_field(windows, f, error);
    }
    return status;
}

static int open_with(struct windows_source *windows, const struct fb_config *config,
                     const struct fb_log *log, forebay_error *error)
{
    struct fb_reader_options options = { .direct = config->source_direct, .log = log };
    struct fb_reader *reader;
    int status = fb_budget_reserve(windows->budget, FB_STAGE_INDEX, FB_READER_BYTES,
                                   "reading the files' headers", error);

    if (status)
        return status;
    status = fb_reader_new(&reader, &options, error);
    if (!status) {
        status = fb_series_open(&windows->set, config, windows->budget, reader, log, error);
        if (!status)
            status = describe(windows, config, reader, log, error);
        fb_reader_free(reader);
    }
    fb_budget_refund(windows->budget, FB_STAGE_INDEX, FB_READER_BYTES);
    return status;
}

static int windows_open(struct fb_source **out, const struct fb_config *config,
                        struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct windows_source *windows =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*windows), "the source", error);
    int status;

    if (!windows)
        return fb_failed(error);
    windows->base.ops = &fb_source_windows;
    windows->budget = budget;
    status = read_options(windows, config, error);
    if (!status)
        status = open_with(windows, config, log, error);
    if (!status)
        status = index_windows(windows, error);
    if (!status && windows->base.sample_count == 0)
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "none of the %" PRIu64 " files has the %" PRIu64
                         " rows of one window; lower source.window or set source.tail: pad",
                         windows->set.count, windows->window);
    if (status) {
        windows_close(&windows->base);
        return status;
    }
    describe_source(windows);
    *out = &windows->base;
    return FOREBAY_OK;
}

/* ---- What the pipeline asks ---- */

/* The recording that has the sample: the first one that ends after it. */
static uint64_t find_recording(const struct windows_source *windows, uint64_t sample)
{
    return fb_range_of(windows->ends, windows->recordings, sample);
}

static unsigned windows_parts(const struct fb_source *source, uint64_t sample,
                              struct fb_part *parts)
{
    const struct windows_source *windows = (const struct windows_source *)source;
    const struct fb_series_set *set = &windows->set;
    uint64_t recording = find_recording(windows, sample);
    uint64_t first = (sample - (recording ? windows->ends[recording - 1] : 0)) * windows->stride;
    bool broken = is_broken(windows, recording);

    for (unsigned f = 0; f < set->field_count; f++) {
        uint64_t unit = recording * set->field_count + f;

        parts[f] = (struct fb_part){ .unit = unit, .field = f, .first_row = first };
        if (!broken)
            parts[f].rows = fb_min(windows->window, set->series[unit].rows - first);
    }
    return set->field_count;
}

static struct fb_extent windows_extent(const struct fb_source *source, uint64_t unit)
{
    const struct fb_series *series = &((const struct windows_source *)source)->set.series[unit];

    if (series->fault)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN, .columns = 1 };
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = series->rows, .columns = 1 };
}

static int load_normal(const struct windows_source *windows, const struct fb_load *load,
                       forebay_error *error)
{
    const struct fb_series_field *field = fb_series_field(&windows->set, load->unit);
    const struct fb_normal *normal = &windows->normals[load->unit % windows->set.field_count];
    bool in_place = field->dtype == FOREBAY_F32;
    uint64_t step = in_place ? load->rows : fb_max(1, load->scratch.bytes / field->row_bytes);
    float *to = load->to;

    for (uint64_t done = 0; done < load->rows; done += step) {
        uint64_t count = fb_min(step, load->rows - done);
        void *into = in_place ? load->to : load->scratch.memory;
        int status = fb_series_read(&windows->set, load->unit, load->first_row + done, count, into,
                                    load->reader, error);

        if (status)
            return status;
        fb_normal_apply(normal, to + done * normal->columns, into, field->dtype, count);
    }
    return FOREBAY_OK;
}

static int windows_load(const struct fb_source *source, const struct fb_load *load,
                        forebay_error *error)
{
    const struct windows_source *windows = (const struct windows_source *)source;
    const struct fb_series *series = &windows->set.series[load->unit];
    unsigned f = (unsigned)(load->unit % windows->set.field_count);

    if (!series->fault &&
        (load->first_row > series->rows || load->rows > series->rows - load->first_row ||
         load->bytes != load->rows * windows->fields[f].cell_bytes))
        return fb_fail(error, FOREBAY_BAD_USE,
                       "windows: unit %" PRIu64 " has %" PRIu64 " rows, not %" PRIu64
                       " from row %" PRIu64 " on",
                       load->unit, series->rows, load->rows, load->first_row);
    if (windows->normals[f].columns && !series->fault)
        return load_normal(windows, load, error);
    return fb_series_read(&windows->set, load->unit, load->first_row, load->rows, load->to,
                          load->reader, error);
}

static void windows_users(const struct fb_source *source, uint64_t unit, uint64_t *first,
                          uint64_t *count)
{
    const struct windows_source *windows = (const struct windows_source *)source;
    uint64_t recording = unit / windows->set.field_count;

    *first = recording ? windows->ends[recording - 1] : 0;
    *count = windows->ends[recording] - *first;
}

static void windows_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    fb_series_place(&((const struct windows_source *)source)->set, unit, text, size);
}

const struct fb_source_ops fb_source_windows = {
    .kind = "windows",
    .description = "sliding windows over long arrays in .npy or flat binary files",
    .open = windows_open,
    .close = windows_close,
    .parts = windows_parts,
    .extent = windows_extent,
    .load = windows_load,
    .users = windows_users,
    .place = windows_place,
};
