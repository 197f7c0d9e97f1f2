/*
 * tar_made.c -- a source over a source: the inner one hands out packed units, this one slices and
 * groups of them.
 *
 *     window    rows [k * stride, k * stride + length) of the unit     a group is a unit
 *     row       the same, one row long and without that dimension      a group is a unit
 *     sequence  units [k * stride, k * stride + length) of its folder  a group is a folder
 *
 * A row or a window is read alone, if its unit's values lie in the member as they are.
 * The index is somebody's file: whatever does not fit the members that are there (a shard is
 * missing, a count is wrong) leaves the units as they are, and that is said.
 */
#include "source/tar/tar_made.h"

#include <inttypes.h>
#include <string.h>

#include "base/search.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/source.h"
#include "source/tar/tar_source.h"
#include "source/window_count.h"

#define LENGTH_MAX ((uint64_t)1 << 32)
#define SEQUENCE_MAX 65536

struct made_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_source *inner;
    struct fb_tar_made made;
    uint64_t groups;      /* room for */
    uint64_t *first_unit; /* [groups]: the inner sample it begins with */
    uint64_t *ends;       /* [groups]: samples up to its end */
};

/* ---- What the index says ---- */

static int read_groups(struct fb_tar_made *made, const json_t *list, struct fb_budget *budget,
                       forebay_error *error)
{
    uint64_t count = json_array_size(list);

    if (count == 0) {
        made->each = FB_TAR_EACH_UNIT;
        return FOREBAY_OK;
    }
    made->groups = fb_block_new(budget, FB_STAGE_INDEX, count, sizeof(*made->groups),
                                "folders of sequences", error);
    if (!made->groups)
        return fb_failed(error);
    made->group_count = count;
    for (uint64_t i = 0; i < count; i++) {
        json_int_t samples = json_integer_value(json_array_get(list, i));

        made->groups[i] = samples > 0 ? (uint64_t)samples : 0;
    }
    return FOREBAY_OK;
}

static uint64_t number_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

int fb_tar_made_read(struct fb_tar_made *made, const json_t *index, struct fb_budget *budget,
                     forebay_error *error)
{
    const json_t *of = json_object_get(index, "made_of");
    const char *each = json_string_value(json_object_get(of, "each"));
    const char *tail = json_string_value(json_object_get(of, "tail"));
    bool sequence = each && strcmp(each, "sequence") == 0;

    *made = (struct fb_tar_made){ .stride = number_of(of, "stride"),
                                  .length = number_of(of, sequence ? "sequence" : "window"),
                                  .pad = tail && strcmp(tail, "pad") == 0 };
    if (!each || strcmp(each, "unit") == 0)
        return FOREBAY_OK;
    if (strcmp(each, "row") == 0)
        *made = (struct fb_tar_made){ .each = FB_TAR_EACH_ROW, .length = 1, .stride = 1 };
    if (made->length == 0 || made->length > (sequence ? SEQUENCE_MAX : LENGTH_MAX) ||
        made->stride == 0 || made->stride > LENGTH_MAX)
        return FOREBAY_OK;
    if (strcmp(each, "window") == 0)
        made->each = FB_TAR_EACH_WINDOW;
    if (!sequence)
        return FOREBAY_OK;
    made->each = FB_TAR_EACH_SEQUENCE;
    /* Units that no sequence has were not packed. */
    made->stride = fb_min(made->stride, made->length);
    return read_groups(made, json_object_get(of, "groups"), budget, error);
}

void fb_tar_made_release(struct fb_tar_made *made, struct fb_budget *budget)
{
    fb_block_free(budget, FB_STAGE_INDEX, made->groups, made->group_count, sizeof(*made->groups));
    made->groups = NULL;
    made->group_count = 0;
}

/* ---- What is where ---- */

static const struct made_source *made_of(const struct fb_source *source)
{
    return (const struct made_source *)source;
}

static bool is_sequence(const struct made_source *self)
{
    return self->made.each == FB_TAR_EACH_SEQUENCE;
}

/* How many of the pipeline's rows a row of the unit is: as a sample it has no such dimension. */
static uint64_t per_row(const struct made_source *self, unsigned field)
{
    const struct fb_field *shown = &self->base.fields[field];

    return self->made.each == FB_TAR_EACH_ROW && shown->ndim ? shown->shape[0] : 1;
}

/* The rows that all fields of an inner sample have; UINT64_MAX if they have not the same, or one is
 * broken. */
static uint64_t rows_of(const struct made_source *self, uint64_t inner)
{
    const struct fb_source *source = self->inner;
    uint64_t rows = UINT64_MAX;

    for (unsigned f = 0; f < source->field_count; f++) {
        struct fb_extent extent = source->ops->extent(source, inner * source->field_count + f);

        if (extent.known != FB_EXTENT_EXACT || (f && extent.rows != rows))
            return UINT64_MAX;
        rows = extent.rows;
    }
    return rows;
}

/* A broken unit is one sample, which fails. */
static uint64_t count_windows(const struct made_source *self, uint64_t inner)
{
    uint64_t rows = rows_of(self, inner);

    if (rows == UINT64_MAX)
        return 1;
    return fb_window_count(rows, self->made.length, self->made.stride, self->made.pad);
}

/* The group that has the sample: the first one that ends after it. */
static uint64_t find_group(const struct made_source *self, uint64_t sample)
{
    return fb_range_of(self->ends, self->groups, sample);
}

static uint64_t before(const struct made_source *self, uint64_t group)
{
    return group ? self->ends[group - 1] : 0;
}

static unsigned made_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    const struct made_source *self = made_of(source);
    uint64_t group = find_group(self, sample);
    uint64_t at = (sample - before(self, group)) * self->made.stride;
    uint64_t first = self->first_unit[group], rows, fields = source->field_count;
    unsigned count = 0;

    if (is_sequence(self)) {
        for (uint32_t f = 0; f < fields; f++)
            for (uint32_t i = 0; i < self->made.length; i++)
                parts[count++] = (struct fb_part){ .unit = (first + at + i) * fields + f,
                                                   .field = f,
                                                   .item = i,
                                                   .rows = FB_ALL_ROWS };
        return count;
    }
    rows = rows_of(self, first);
    for (uint32_t f = 0; f < fields; f++) {
        parts[f] = (struct fb_part){ .unit = first * fields + f, .field = f };
        if (rows == UINT64_MAX)
            continue;
        parts[f].first_row = at * per_row(self, f);
        parts[f].rows = fb_min(self->made.length, rows - at) * per_row(self, f);
    }
    return (unsigned)fields;
}

static struct fb_extent made_extent(const struct fb_source *source, uint64_t unit)
{
    const struct made_source *self = made_of(source);
    struct fb_extent extent = self->inner->ops->extent(self->inner, unit);

    if (is_sequence(self))
        return extent;
    if (rows_of(self, unit / source->field_count) == UINT64_MAX)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN, .columns = 1 };
    extent.rows *= per_row(self, (unsigned)(unit % source->field_count));
    return extent;
}

static int made_probe(struct fb_source *source, uint64_t unit, const struct fb_load *load,
                      forebay_error *error)
{
    struct fb_source *inner = made_of(source)->inner;

    return inner->ops->probe(inner, unit, load, error);
}

static int made_load(const struct fb_source *source, const struct fb_load *load,
                     forebay_error *error)
{
    const struct made_source *self = made_of(source);
    struct fb_load whole = *load;
    uint64_t sample = load->unit / source->field_count;
    unsigned field = (unsigned)(load->unit % source->field_count);

    if (!is_sequence(self)) {
        struct fb_extent extent = self->inner->ops->extent(self->inner, load->unit);

        if (extent.known == FB_EXTENT_EXACT && rows_of(self, sample) == UINT64_MAX)
            return fb_fail(error, FOREBAY_BAD_DATA,
                           "its %" PRIu64 " rows are not as many as another field of the same "
                           "key has, or that is broken", extent.rows);
        if (source->rows_alone && extent.known == FB_EXTENT_EXACT)
            return fb_tar_load_part((const struct fb_tar_source *)self->inner, load,
                                    load->first_row * source->fields[field].cell_bytes, error);
        whole.rows = load->rows / per_row(self, field);
    }
    return self->inner->ops->load(self->inner, &whole, error);
}

static void made_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    const struct fb_source *inner = made_of(source)->inner;

    inner->ops->place(inner, unit, text, size);
}

/* The group whose units have this one. */
static uint64_t group_of(const struct made_source *self, uint64_t inner)
{
    return fb_range_of(self->first_unit + 1, self->groups, inner);
}

static void made_users(const struct fb_source *source, uint64_t unit, uint64_t *first,
                       uint64_t *count)
{
    const struct made_source *self = made_of(source);
    uint64_t inner = unit / source->field_count, group = group_of(self, inner), place, low, high;
    uint64_t samples = self->ends[group] - before(self, group);

    *first = before(self, group);
    *count = samples;
    if (!is_sequence(self))
        return;
    place = inner - self->first_unit[group];
    low = place < self->made.length ? 0 : (place - self->made.length) / self->made.stride + 1;
    high = fb_min(place / self->made.stride + 1, samples);
    *first += fb_min(low, samples);
    *count = high > low ? high - low : 0;
}

/* The inner source goes with it, if it was taken over. */
static void made_close(struct fb_source *source)
{
    struct made_source *self = (struct made_source *)source;
    struct fb_budget *budget = self->budget;

    fb_block_free(budget, FB_STAGE_INDEX, source->fields, source->field_count,
                  sizeof(*source->fields));
    fb_block_free(budget, FB_STAGE_INDEX, self->first_unit, self->groups, sizeof(uint64_t));
    fb_block_free(budget, FB_STAGE_INDEX, self->ends, self->groups, sizeof(uint64_t));
    if (self->inner)
        fb_source_close(self->inner);
    fb_block_free(budget, FB_STAGE_INDEX, self, 1, sizeof(*self));
}

static const struct fb_source_ops ops = {
    .kind = "tar",
    .description = "tar shards that forebay packed",
    .close = made_close,
    .parts = made_parts,
    .extent = made_extent,
    .probe = made_probe,
    .load = made_load,
    .users = made_users,
    .place = made_place,
};

/* ---- Open ---- */

/* Windows are counted by the rows that units have: find out all of them. */
static int probe_all(struct fb_source *inner, struct fb_budget *budget, const struct fb_log *log,
                     forebay_error *error)
{
    struct fb_reader_options options = { .log = log };
    struct fb_load load = { .scratch.bytes = inner->scratch_bytes };
    int status = fb_budget_reserve(budget, FB_STAGE_INDEX, FB_READER_BYTES, "looking at the units",
                                   error);

    if (status)
        return status;
    load.scratch.memory = fb_block_new(budget, FB_STAGE_INDEX, fb_max(inner->scratch_bytes, 1), 1,
                                       "looking at the units", error);
    status = load.scratch.memory ? fb_reader_new(&load.reader, &options, error) : fb_failed(error);
    for (uint64_t unit = 0; unit < inner->unit_count && !status; unit++) {
        if (unit % 256 == 0)
            status = fb_progress(log, "units", unit, inner->unit_count, error);
        if (!status && inner->ops->extent(inner, unit).known == FB_EXTENT_UNKNOWN) {
            load.unit = unit;
            status = inner->ops->probe(inner, unit, &load, error);
            if (fb_status_is_data(status)) /* its sample will fail */
                status = FOREBAY_OK;
        }
    }
    if (load.reader)
        fb_reader_free(load.reader);
    fb_block_free(budget, FB_STAGE_INDEX, load.scratch.memory, fb_max(inner->scratch_bytes, 1), 1);
    fb_budget_refund(budget, FB_STAGE_INDEX, FB_READER_BYTES);
    return status;
}

/* Where groups begin and how many samples they have. False: what is there is something else. */
static bool find_groups(struct made_source *self)
{
    uint64_t unit = 0, samples = 0;

    for (uint64_t g = 0; g < self->groups; g++) {
        uint64_t count = is_sequence(self) ? self->made.groups[g] : count_windows(self, g), units;

        self->first_unit[g] = unit;
        if (!is_sequence(self))
            units = 1;
        else if (count == 0 || !fb_mul(count - 1, self->made.stride, &units) ||
                 !fb_add(units, self->made.length, &units))
            return false;
        if (!fb_add(samples, count, &samples) || units > self->inner->sample_count - unit)
            return false;
        unit += units;
        self->ends[g] = samples;
    }
    self->base.sample_count = samples;
    return samples > 0 && unit == self->inner->sample_count;
}

static bool describe_field(struct made_source *self, unsigned f)
{
    const struct fb_field *unit = &self->inner->fields[f];
    struct fb_field *field = &self->base.fields[f];

    *field = *unit;
    if (unit->finished || unit->always_ragged || unit->indexed || unit->ndim == 0)
        return false;
    if (is_sequence(self)) {
        field->items = (unsigned)self->made.length;
        field->sequence = self->made.length > 1;
        return true;
    }
    if (unit->vary != 1)
        return false;
    field->vary = 0;
    field->shape[0] = self->made.length;
    if (self->made.each == FB_TAR_EACH_WINDOW)
        return true;
    field->ndim--;
    memmove(field->shape, field->shape + 1, (FB_MAX_DIMS - 1) * sizeof(field->shape[0]));
    if (field->ndim && field->shape[0])
        field->cell_bytes /= field->shape[0];
    return field->ndim == 0 || field->shape[0] > 0;
}

static bool describe(struct made_source *self)
{
    const struct fb_source *inner = self->inner;
    struct fb_source *base = &self->base;
    uint64_t items = is_sequence(self) ? self->made.length : 1;

    for (unsigned f = 0; f < inner->field_count; f++)
        if (!describe_field(self, f))
            return false;
    base->unit_count = inner->unit_count;
    base->parts_max = (unsigned)(inner->field_count * items);
    base->unit_bytes_max = inner->unit_bytes_max;
    base->unit_bytes_total = inner->unit_bytes_total;
    base->scratch_bytes = inner->scratch_bytes;
    base->library_bytes = inner->library_bytes;
    base->open_bytes = inner->open_bytes;
    base->broken_count = inner->broken_count;
    base->sliced = base->uniform = !is_sequence(self);
    base->rows_alone = inner->rows_alone && !is_sequence(self);
    base->raw = inner->raw && is_sequence(self);
    base->shared_units = is_sequence(self) && self->made.length > self->made.stride;
    base->fingerprint = inner->fingerprint;
    base->identity = fb_mix2(inner->identity,
                             fb_mix2(self->made.each, fb_mix2(self->made.length,
                                                              self->made.stride)));
    base->group_count = self->groups;
    base->group_ends = self->ends;
    return find_groups(self);
}

static int make(struct made_source *self, const struct fb_log *log, forebay_error *error)
{
    struct fb_source *inner = self->inner;
    uint64_t groups = is_sequence(self) ? self->made.group_count : inner->sample_count;
    int status = is_sequence(self) ? FOREBAY_OK : probe_all(inner, self->budget, log, error);

    if (status)
        return status;
    self->base.fields = fb_block_new(self->budget, FB_STAGE_INDEX, inner->field_count,
                                     sizeof(*self->base.fields), "the fields", error);
    if (!self->base.fields)
        return fb_failed(error);
    self->base.field_count = inner->field_count;
    self->groups = groups;
    self->first_unit = fb_block_new(self->budget, FB_STAGE_INDEX, groups, sizeof(uint64_t),
                                    "the list of samples", error);
    self->ends = fb_block_new(self->budget, FB_STAGE_INDEX, groups, sizeof(uint64_t),
                              "the list of samples", error);
    return self->first_unit && self->ends ? FOREBAY_OK : fb_failed(error);
}

int fb_tar_made_open(struct fb_source **source, const struct fb_tar_made *made,
                     struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct made_source *self;
    int status;

    if (made->each == FB_TAR_EACH_UNIT)
        return FOREBAY_OK;
    self = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*self), "the source", error);
    if (!self)
        return fb_failed(error);
    self->base.ops = &ops;
    self->budget = budget;
    self->made = *made;
    self->inner = *source;
    status = make(self, log, error);
    if (!status && describe(self)) {
        self->made.groups = NULL; /* the list is the inner source's, and no longer needed */
        *source = &self->base;
        return FOREBAY_OK;
    }
    if (!status)
        fb_say(log, "tar: what the index says of windows, rows or sequences does not fit these "
                    "shards; a sample is a whole unit of them");
    self->inner->rows_alone = false; /* that is for slices only */
    self->inner = NULL;
    made_close(&self->base);
    return status;
}
