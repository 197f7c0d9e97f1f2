#include "pipeline/collate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decode/cast.h"
#include "memory/block.h"
#include "pipeline/device_stage.h"

#define ALIGNMENT 64 /* of every output: a cache line, and what DLPack asks for */

static bool is_wanted(const struct fb_config *config, const char *name)
{
    for (size_t i = 0; i < config->batch_fields.count; i++)
        if (!strcmp(config->batch_fields.values[i], name))
            return true;
    return config->batch_fields.count == 0;
}

static bool has_field(const struct fb_source *source, const char *name)
{
    for (unsigned f = 0; f < source->field_count; f++)
        if (!strcmp(source->fields[f].name, name))
            return true;
    return false;
}

static int check_wanted(const struct fb_source *source, const struct fb_config *config,
                        forebay_error *error)
{
    for (size_t i = 0; i < config->batch_fields.count; i++) {
        int status;

        if (has_field(source, config->batch_fields.values[i]))
            continue;
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "batch.fields: the source has no field '%s'; `forebay inspect` lists them",
                         config->batch_fields.values[i]);
        fb_config_place(config, "batch.fields", error);
        return status;
    }
    return FOREBAY_OK;
}

/* Rows (and columns) apart, the rest is one cell. */
static void column_init(struct fb_column *column, const struct fb_field *field,
                        const struct fb_config *config)
{
    unsigned vary = field->ndim == 0 ? 0 : field->vary == 2 ? 2 : 1;
    uint64_t numbers = 1;

    *column = (struct fb_column){ .wanted = is_wanted(config, field->name),
                                  .collate = field->always_ragged && vary ? FB_COLLATE_RAGGED
                                                                          : config->batch_collate,
                                  .vary = vary };
    column->dtype = fb_cast_target(config->batch_dtype, field->dtype);
    for (unsigned d = vary; d < field->ndim; d++) {
        column->tail[column->tail_count++] = field->shape[d];
        numbers *= field->shape[d];
    }
    column->cell_in = numbers * forebay_dtype_bytes(field->dtype);
    column->cell_out = numbers * forebay_dtype_bytes(column->dtype);
}

static void output_add(struct fb_collation *collation, enum fb_output_role role, unsigned field,
                       const char *name, const char *suffix, forebay_dtype dtype)
{
    struct fb_output *output = &collation->outputs[collation->output_count++];

    *output = (struct fb_output){ .role = role, .field = field, .dtype = dtype };
    snprintf(output->name, sizeof(output->name), "%s%s", name, suffix);
}

static void outputs_init(struct fb_collation *collation)
{
    const struct fb_source *source = collation->source;

    output_add(collation, FB_OUTPUT_INDEX, 0, "index", "", FOREBAY_I64);
    for (unsigned f = 0; f < source->field_count; f++) {
        struct fb_column *column = &collation->columns[f];
        const char *name = source->fields[f].name;

        if (!column->wanted)
            continue;
        column->data = collation->output_count;
        output_add(collation, FB_OUTPUT_DATA, f, name, "", column->dtype);
        if (column->collate == FB_COLLATE_STACK || column->vary == 0)
            continue;
        column->extra = collation->output_count;
        if (column->collate == FB_COLLATE_PAD)
            output_add(collation, FB_OUTPUT_LENGTH, f, name, "_length", FOREBAY_I64);
        else
            output_add(collation, FB_OUTPUT_OFFSETS, f, name, "_offsets", FOREBAY_I64);
    }
}

int fb_collation_open(struct fb_collation *collation, const struct fb_source *source,
                      const struct fb_config *config, struct fb_budget *budget,
                      forebay_error *error)
{
    int status = check_wanted(source, config, error);

    if (status)
        return status;
    *collation = (struct fb_collation){ .source = source,
                                        .budget = budget,
                                        .field_count = source->field_count,
                                        .collate = config->batch_collate,
                                        .batch_size = config->batch_size.value };
    /* By the configuration and not by the device, so that plan and run agree. */
    collation->align = config->device_kind && strcmp(config->device_kind, "host") ? FB_DEVICE_ALIGN
                                                                                : ALIGNMENT;
    collation->fixed = collation->collate == FB_COLLATE_STACK && source->uniform;
    collation->columns = fb_block_new(budget, FB_STAGE_OTHER, source->field_count,
                                      sizeof(*collation->columns), "the batch's fields", error);
    collation->outputs = fb_block_new(budget, FB_STAGE_OTHER, 1 + 2 * (uint64_t)source->field_count,
                                      sizeof(*collation->outputs), "the batch's fields", error);
    if (!collation->columns || !collation->outputs) {
        fb_collation_close(collation);
        return error ? error->status : FOREBAY_NO_MEMORY;
    }
    for (unsigned f = 0; f < source->field_count; f++)
        column_init(&collation->columns[f], &source->fields[f], config);
    outputs_init(collation);
    if (collation->align == FB_DEVICE_ALIGN && config->device_cache.mode != FB_SIZE_OFF)
        collation->tail = fb_round_up(collation->batch_size * 3 * sizeof(uint64_t) *
                                          fb_max(collation->output_count, source->parts_max),
                                      collation->align);
    return FOREBAY_OK;
}

void fb_collation_close(struct fb_collation *collation)
{
    uint64_t fields = collation->field_count;

    fb_block_free(collation->budget, FB_STAGE_OTHER, collation->columns, fields,
                  sizeof(*collation->columns));
    fb_block_free(collation->budget, FB_STAGE_OTHER, collation->outputs, 1 + 2 * fields,
                  sizeof(*collation->outputs));
    collation->columns = NULL;
    collation->outputs = NULL;
}

void fb_measure_add(struct fb_measure *measure, struct fb_extent extent)
{
    if (measure->items++ == 0) {
        measure->rows_min = extent.rows;
        measure->columns_min = extent.columns;
    }
    measure->rows_max = fb_max(measure->rows_max, extent.rows);
    measure->rows_min = fb_min(measure->rows_min, extent.rows);
    measure->columns_max = fb_max(measure->columns_max, extent.columns);
    measure->columns_min = fb_min(measure->columns_min, extent.columns);
    if (!fb_add(measure->rows_total, extent.rows, &measure->rows_total))
        measure->rows_total = UINT64_MAX; /* place() will refuse it */
}

static void shape_push(struct fb_placed *placed, uint64_t size)
{
    placed->shape[placed->ndim++] = (int64_t)size;
}

/* [samples, items] of every array that has one entry per item. */
static void shape_items(struct fb_placed *placed, const struct fb_field *field, uint64_t samples)
{
    shape_push(placed, samples);
    if (field->sequence || field->items > 1)
        shape_push(placed, field->items);
}

static bool place_data(const struct fb_collation *collation, unsigned f, uint64_t samples,
                       const struct fb_measure *measure, struct fb_placed *placed)
{
    const struct fb_column *column = &collation->columns[f];
    const struct fb_field *field = &collation->source->fields[f];
    bool ragged = column->collate == FB_COLLATE_RAGGED && column->vary > 0;
    uint64_t count = samples * field->items, cells;

    placed->rows = ragged ? measure->rows_total : measure->rows_max;
    placed->columns = measure->columns_max;
    if (!fb_mul(placed->rows, placed->columns, &cells) ||
        (!ragged && !fb_mul(cells, count, &cells)) ||
        !fb_mul(cells, column->cell_out, &placed->bytes) || placed->bytes > INT64_MAX)
        return false;
    if (!ragged)
        shape_items(placed, field, samples);
    if (column->vary >= 1)
        shape_push(placed, placed->rows);
    if (column->vary >= 2)
        shape_push(placed, placed->columns);
    for (unsigned d = 0; d < column->tail_count; d++)
        shape_push(placed, column->tail[d]);
    return true;
}

/* Lengths are [samples, items] and, where two dimensions vary, [..., 2]; offsets one row more. */
static void place_extra(const struct fb_collation *collation, const struct fb_output *output,
                        uint64_t samples, struct fb_placed *placed)
{
    const struct fb_field *field = &collation->source->fields[output->field];
    uint64_t count = samples * field->items;

    if (output->role == FB_OUTPUT_OFFSETS) {
        shape_push(placed, ++count);
    } else {
        shape_items(placed, field, samples);
        if (collation->columns[output->field].vary == 2) {
            shape_push(placed, 2);
            count *= 2;
        }
    }
    placed->bytes = count * sizeof(int64_t);
}

static int check_stack(const struct fb_collation *collation, unsigned f,
                       const struct fb_measure *measure, forebay_error *error)
{
    int collate = collation->columns[f].collate;
    bool stack = collate == FB_COLLATE_STACK;
    bool rows_differ = stack && measure->rows_min != measure->rows_max;
    bool columns_differ = collate != FB_COLLATE_PAD &&
                          measure->columns_min != measure->columns_max;

    if (!rows_differ && !columns_differ)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_DATA,
                   "field '%s': the samples of this batch have %" PRIu64 " to %" PRIu64
                   " %s, which batch.collate: %s cannot join; use pad%s",
                   collation->source->fields[f].name,
                   rows_differ ? measure->rows_min : measure->columns_min,
                   rows_differ ? measure->rows_max : measure->columns_max,
                   rows_differ ? "rows" : "columns", stack ? "stack" : "ragged",
                   rows_differ ? " or ragged" : "");
}

int fb_collation_place(const struct fb_collation *collation, uint64_t samples,
                       const struct fb_measure *measures, struct fb_placed *placed,
                       uint64_t *bytes, forebay_error *error)
{
    uint64_t end = 0;

    for (unsigned o = 0; o < collation->output_count; o++) {
        const struct fb_output *output = &collation->outputs[o];
        const struct fb_measure *measure = &measures[output->field];
        int status;

        placed[o] = (struct fb_placed){ .offset = end };
        if (output->role == FB_OUTPUT_INDEX) {
            shape_push(&placed[o], samples);
            placed[o].bytes = samples * sizeof(int64_t);
        } else if (output->role != FB_OUTPUT_DATA) {
            place_extra(collation, output, samples, &placed[o]);
        } else {
            status = check_stack(collation, output->field, measure, error);
            if (status)
                return status;
            if (!place_data(collation, output->field, samples, measure, &placed[o]))
                return fb_fail(error, FOREBAY_OVER_BUDGET,
                               "field '%s': a batch of %" PRIu64
                               " samples has more bytes than there are; lower batch.size",
                               output->name, samples);
        }
        if (!fb_add(end, placed[o].bytes, &end) || end > INT64_MAX)
            return fb_fail(error, FOREBAY_OVER_BUDGET, "a batch of %" PRIu64
                           " samples has more bytes than there are; lower batch.size", samples);
        end = fb_round_up(end, collation->align);
    }
    *bytes = end + collation->tail;
    return FOREBAY_OK;
}

/* The most bytes one item of a field takes as loaded. */
static uint64_t item_bytes_max(const struct fb_source *source, const struct fb_field *field)
{
    uint64_t bytes = forebay_dtype_bytes(field->dtype);

    if (field->vary > 0)
        return fb_field_bytes_max(source, field);
    for (unsigned d = 0; d < field->ndim; d++)
        if (!fb_mul(bytes, field->shape[d], &bytes))
            return UINT64_MAX;
    return bytes;
}

uint64_t fb_collation_largest(const struct fb_collation *collation)
{
    const struct fb_source *source = collation->source;
    uint64_t total = fb_round_up(collation->batch_size * sizeof(int64_t), collation->align);

    if (source->unit_bytes_max == 0)
        return 0;
    for (unsigned f = 0; f < source->field_count; f++) {
        const struct fb_column *column = &collation->columns[f];
        const struct fb_field *field = &source->fields[f];
        uint64_t count = collation->batch_size * field->items, bytes, extra;

        if (!column->wanted)
            continue;
        if (!fb_mul(count, item_bytes_max(source, field), &bytes) || bytes > INT64_MAX / 8)
            return INT64_MAX / 4;
        if (column->cell_in) /* the cast's share, rounded up: never too small */
            bytes = bytes / column->cell_in * column->cell_out + column->cell_out;
        extra = column->extra ? (count * column->vary + 1) * sizeof(int64_t) : 0;
        total += fb_round_up(bytes, collation->align) +
                 fb_round_up(extra, collation->align);
    }
    return total + collation->tail;
}

void *fb_collation_item(const struct fb_collation *collation, const struct fb_placed *placed,
                        void *memory, unsigned field, uint64_t at, unsigned item, uint64_t *room)
{
    const struct fb_column *column = &collation->columns[field];
    const struct fb_placed *data = &placed[column->data];
    uint64_t number = at * collation->source->fields[field].items + item;
    uint64_t row = data->columns * column->cell_out;
    char *base = (char *)memory + data->offset;

    if (column->collate == FB_COLLATE_RAGGED && column->extra) {
        const int64_t *offsets = (const int64_t *)(void *)((char *)memory +
                                                           placed[column->extra].offset);

        *room = (uint64_t)(offsets[number + 1] - offsets[number]) * row;
        return base + (uint64_t)offsets[number] * row;
    }
    *room = data->rows * row;
    return base + number * *room;
}

void fb_collation_note(const struct fb_collation *collation, const struct fb_placed *placed,
                       void *memory, unsigned field, uint64_t at, unsigned item,
                       struct fb_extent extent)
{
    const struct fb_column *column = &collation->columns[field];
    uint64_t number = at * collation->source->fields[field].items + item;
    int64_t *extra;

    if (!column->extra)
        return;
    extra = (int64_t *)(void *)((char *)memory + placed[column->extra].offset);
    if (column->collate == FB_COLLATE_RAGGED) {
        if (number == 0)
            extra[0] = 0;
        extra[number + 1] = extra[number] + (int64_t)extent.rows;
    } else if (column->vary == 2) {
        extra[2 * number] = (int64_t)extent.rows;
        extra[2 * number + 1] = (int64_t)extent.columns;
    } else {
        extra[number] = (int64_t)extent.rows;
    }
}

/* Close the gaps of an array with `bytes` per sample. */
static void compact_equal(char *data, uint64_t bytes, uint64_t samples, const bool *kept)
{
    uint64_t to = 0;

    for (uint64_t at = 0; at < samples; at++) {
        if (!kept[at])
            continue;
        if (to != at)
            memmove(data + to * bytes, data + at * bytes, bytes);
        to++;
    }
}

static void compact_ragged(const struct fb_collation *collation, struct fb_placed *placed,
                           char *memory, unsigned field, uint64_t samples, const bool *kept)
{
    const struct fb_column *column = &collation->columns[field];
    struct fb_placed *data = &placed[column->data], *extra = &placed[column->extra];
    int64_t *offsets = (int64_t *)(void *)(memory + extra->offset);
    uint64_t row = data->columns * column->cell_out, to = 0;
    uint64_t items = collation->source->fields[field].items;
    int64_t end = 0, begin = offsets[0];

    for (uint64_t number = 0; number < samples * items; number++) {
        int64_t next = offsets[number + 1], rows = next - begin;

        if (kept[number / items]) {
            memmove(memory + data->offset + (uint64_t)end * row,
                    memory + data->offset + (uint64_t)begin * row, (uint64_t)rows * row);
            end += rows;
            offsets[++to] = end;
        }
        begin = next;
    }
    data->rows = (uint64_t)end;
    data->shape[0] = end;
    data->bytes = (uint64_t)end * row;
    extra->shape[0] = (int64_t)to + 1;
    extra->bytes = (to + 1) * sizeof(int64_t);
}

uint64_t fb_collation_compact(const struct fb_collation *collation, struct fb_placed *placed,
                              void *memory, uint64_t samples, const bool *kept)
{
    uint64_t left = 0;

    for (uint64_t at = 0; at < samples; at++)
        left += kept[at];
    for (unsigned o = 0; o < collation->output_count; o++) {
        const struct fb_output *output = &collation->outputs[o];
        uint64_t bytes = placed[o].bytes / samples;
        const struct fb_column *column = &collation->columns[output->field];
        bool ragged = output->role != FB_OUTPUT_INDEX && column->extra &&
                      column->collate == FB_COLLATE_RAGGED;

        if (ragged && output->role == FB_OUTPUT_DATA)
            compact_ragged(collation, placed, memory, output->field, samples, kept);
        if (ragged)
            continue; /* its offsets went with the data */
        compact_equal((char *)memory + placed[o].offset, bytes, samples, kept);
        placed[o].shape[0] = (int64_t)left;
        placed[o].bytes = left * bytes;
    }
    return left;
}
