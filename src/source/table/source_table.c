/*
 * source_table.c -- rows of a CSV file or its shards, converted once and read from then on.
 *
 * A sample is a row. With `as: columns` each column is a field, with `as: matrix` the row is one
 * field `data` of f32. A unit is a block of rows (of one field). Rows are so small that what counts
 * is what happens per row: gather() copies many at once, from the table's own memory or, where it
 * did not fit, from the converted file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/glob.h"
#include "source/source.h"
#include "source/store.h"
#include "source/table/table_keep.h"

#define SCRATCH_BYTES ((uint64_t)64 * 1024)
#define AHEAD 24 /* rows that are on their way from memory while one is copied */
#define FIELD "data"

struct table_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_table table;
    struct fb_table_file *file;
    struct fb_field *fields;
    unsigned block_shift;
    struct fb_table_keep keep;
};

static void table_close(struct fb_source *source)
{
    struct table_source *self = (struct table_source *)source;

    fb_table_keep_close(&self->keep);
    fb_table_file_close(self->file);
    fb_block_free(self->budget, FB_STAGE_INDEX, self->fields, self->base.field_count,
                  sizeof(*self->fields));
    if (self->table.budget)
        fb_table_release(&self->table);
    fb_block_free(self->budget, FB_STAGE_INDEX, self, 1, sizeof(*self));
}

/* ---- Open ---- */

/* What was converted before, else convert it now. */
static int open_file(struct table_source *self, const struct fb_log *log, forebay_error *error)
{
    char path[FB_PATH_BYTES], text[32];
    uint64_t begun = fb_now_ns(), bytes = 0;
    int status = fb_store_path(path, sizeof(path), "table", self->table.identity, error);

    if (status)
        return status;
    status = fb_table_file_open(&self->file, path, &self->table, error);
    if (status != FOREBAY_MISSING)
        return status;
    status = fb_table_convert(&self->table, path, log, error);
    if (status)
        return status;
    for (uint64_t i = 0; i < self->table.shard_count; i++)
        bytes += self->table.shards[i].bytes;
    fb_say(log, "table: parsed %s in %.2f s, kept as '%s'", fb_size_text(bytes, text),
           (double)(fb_now_ns() - begun) / 1e9, path);
    return fb_table_file_open(&self->file, path, &self->table, error);
}

static int describe_fields(struct table_source *self, const struct fb_log *log,
                           forebay_error *error)
{
    static const forebay_dtype types[FB_CELL_COUNT] = {
        [FB_CELL_I64] = FOREBAY_I64,  [FB_CELL_U64] = FOREBAY_U64,
        [FB_CELL_F32] = FOREBAY_F32,  [FB_CELL_F64] = FOREBAY_F64,
        [FB_CELL_BOOL] = FOREBAY_BOOL, [FB_CELL_DATE] = FOREBAY_I64,
        [FB_CELL_TIME] = FOREBAY_I64, [FB_CELL_CATEGORY] = FOREBAY_I32,
    };
    const struct fb_table *table = &self->table;
    unsigned count = table->matrix ? 1 : table->column_count;

    self->fields = fb_block_new(self->budget, FB_STAGE_INDEX, count, sizeof(*self->fields),
                                "the fields", error);
    if (!self->fields)
        return fb_failed(error);
    self->base.field_count = count;
    self->base.fields = self->fields;
    for (unsigned i = 0; i < count; i++) {
        struct fb_field *field = &self->fields[i];

        *field = (struct fb_field){ .dtype = types[table->columns[i].type], .items = 1 };
        memcpy(field->name, table->columns[i].name, sizeof(field->name));
        field->cell_bytes = forebay_dtype_bytes(field->dtype);
        if (table->columns[i].type == FB_CELL_DATE)
            field->unit = "days since 1970-01-01";
        if (table->columns[i].type == FB_CELL_TIME)
            field->unit = "ns since 1970-01-01 UTC";
        if (field->unit && !table->matrix)
            fb_say(log, "table: column '%s' is given as i64, %s", field->name, field->unit);
    }
    if (table->matrix)
        self->fields[0] = (struct fb_field){ .name = FIELD,
                                             .dtype = FOREBAY_F32,
                                             .items = 1,
                                             .ndim = 1,
                                             .shape = { table->column_count },
                                             .cell_bytes = sizeof(float) };
    return FOREBAY_OK;
}

static void describe_source(struct table_source *self)
{
    struct fb_source *base = &self->base;
    uint64_t rows = fb_table_file_rows(self->file), blocks;

    while ((uint64_t)1 << self->block_shift < self->table.block_rows)
        self->block_shift++;
    blocks = (rows >> self->block_shift) + ((rows & (self->table.block_rows - 1)) != 0);
    base->sample_count = rows;
    base->unit_count = blocks * base->field_count;
    base->parts_max = base->field_count;
    base->unit_bytes_max = self->table.block_rows * self->table.row_bytes;
    base->unit_bytes_total = rows * self->table.row_bytes;
    base->open_bytes = fb_table_convert_bytes(&self->table);
    base->scratch_bytes = fb_max(SCRATCH_BYTES, self->table.row_bytes);
    base->rows_alone = base->sliced = base->uniform = true;
    base->block_samples = self->table.block_rows;
    base->identity = self->table.identity;
    base->fingerprint = fb_table_fingerprint(&self->table);
}

static int table_open(struct fb_source **out, const struct fb_config *config,
                      struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct table_source *self =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*self), "the source", error);
    int status;

    if (!self)
        return fb_failed(error);
    self->base.ops = &fb_source_table;
    self->budget = budget;
    status = fb_table_find(&self->table, config, budget, log, error);
    if (!status)
        status = open_file(self, log, error);
    if (!status && fb_table_file_rows(self->file) == 0)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' has no row", self->table.shards[0].path);
    if (!status)
        status = describe_fields(self, log, error);
    if (!status) {
        describe_source(self);
        status = fb_table_keep_open(&self->keep, budget, self->base.unit_bytes_max,
                                    self->base.unit_count / self->base.field_count, error);
    }
    if (status) {
        table_close(&self->base);
        return status;
    }
    *out = &self->base;
    return FOREBAY_OK;
}

/* ---- One sample ---- */

/* The row of a matrix is shape[0] numbers of one unit, a cell of a column is one. */
static uint64_t units_rows(const struct table_source *self)
{
    return self->table.matrix ? self->table.column_count : 1;
}

static unsigned table_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    const struct table_source *self = (const struct table_source *)source;
    uint64_t block = sample >> self->block_shift, rows = units_rows(self);

    for (unsigned f = 0; f < source->field_count; f++)
        parts[f] = (struct fb_part){ .unit = block * source->field_count + f,
                                     .field = f,
                                     .first_row = (sample & (self->table.block_rows - 1)) * rows,
                                     .rows = rows };
    return source->field_count;
}

static uint64_t block_rows(const struct table_source *self, uint64_t block)
{
    return fb_min(self->table.block_rows, self->base.sample_count - (block << self->block_shift));
}

static struct fb_extent table_extent(const struct fb_source *source, uint64_t unit)
{
    const struct table_source *self = (const struct table_source *)source;

    return (struct fb_extent){ .known = FB_EXTENT_EXACT,
                               .columns = 1,
                               .rows = block_rows(self, unit / source->field_count) *
                                       units_rows(self) };
}

static int load_column(const struct table_source *self, const struct fb_load *load,
                       forebay_error *error)
{
    unsigned f = (unsigned)(load->unit % self->base.field_count);
    uint64_t first = ((load->unit / self->base.field_count) << self->block_shift) + load->first_row;
    uint64_t row = self->table.row_bytes, size = self->fields[f].cell_bytes;
    uint64_t step = load->scratch.bytes / row;
    char *to = load->to;

    for (uint64_t done = 0; done < load->rows; done += step) {
        uint64_t count = fb_min(step, load->rows - done);
        const char *from = (const char *)load->scratch.memory + self->table.columns[f].offset;
        int status = fb_table_file_read(self->file, first + done, count, load->scratch.memory,
                                        load->reader, error);

        if (status)
            return status;
        for (uint64_t i = 0; i < count; i++, to += size, from += row)
            memcpy(to, from, size);
    }
    return FOREBAY_OK;
}

static int table_load(const struct fb_source *source, const struct fb_load *load,
                      forebay_error *error)
{
    const struct table_source *self = (const struct table_source *)source;
    uint64_t block = load->unit / source->field_count, rows = units_rows(self);
    uint64_t have = block_rows(self, block) * rows;

    if (load->first_row > have || load->rows > have - load->first_row || load->first_row % rows ||
        load->rows % rows)
        return fb_fail(error, FOREBAY_BAD_USE,
                       "table: block %" PRIu64 " has %" PRIu64 " rows, not %" PRIu64
                       " from row %" PRIu64 " on",
                       block, have, load->rows, load->first_row);
    if (!self->table.matrix)
        return load_column(self, load, error);
    return fb_table_file_read(self->file, (block << self->block_shift) + load->first_row / rows,
                              load->rows / rows, load->to, load->reader, error);
}

static void table_users(const struct fb_source *source, uint64_t unit, uint64_t *first,
                        uint64_t *count)
{
    const struct table_source *self = (const struct table_source *)source;
    uint64_t block = unit / source->field_count;

    *first = block << self->block_shift;
    *count = block_rows(self, block);
}

static void table_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    const struct table_source *self = (const struct table_source *)source;
    uint64_t block = unit / source->field_count;

    snprintf(text, size, "%s rows %" PRIu64 " to %" PRIu64, self->table.shards[0].path,
             block << self->block_shift,
             (block << self->block_shift) + block_rows(self, block) - 1);
}

/* ---- Many samples ---- */

/* A row is a few dozen numbers: calling memcpy would cost as much as copying it. */
static inline void copy_numbers(char *to, const char *from, uint64_t bytes)
{
    for (; bytes >= 32; bytes -= 32, to += 32, from += 32)
        memcpy(to, from, 32);
    for (; bytes >= 4; bytes -= 4, to += 4, from += 4)
        memcpy(to, from, 4);
}

/* One row to its place in every field that is wanted. */
static inline void put_row(const struct table_source *self, const struct fb_gather *gather,
                           uint64_t at, const char *row)
{
    if (self->table.matrix) {
        copy_numbers(gather->to[0] + at * self->table.row_bytes, row, self->table.row_bytes);
        return;
    }
    for (unsigned f = 0; f < self->base.field_count; f++) {
        const char *from = row + self->table.columns[f].offset;

        if (!gather->to[f])
            continue;
        if (self->fields[f].cell_bytes == 8)
            memcpy(gather->to[f] + at * 8, from, 8);
        else if (self->fields[f].cell_bytes == 1)
            gather->to[f][at] = *from;
        else
            memcpy(gather->to[f] + at * 4, from, 4);
    }
}

static inline void prefetch_row(const char *row, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes && at < 512; at += 64)
        __builtin_prefetch(row + at);
    __builtin_prefetch(row + bytes - 1);
}

/* All that is wanted is in memory. */
static void gather_ready(const struct table_source *self, const struct fb_gather *gather)
{
    const char *rows = self->keep.rows;
    uint64_t bytes = self->table.row_bytes;

    for (uint64_t i = 0; i < gather->count; i++) {
        if (i + AHEAD < gather->count)
            prefetch_row(rows + gather->samples[i + AHEAD] * bytes, bytes);
        put_row(self, gather, i, rows + gather->samples[i] * bytes);
    }
    *gather->hits += gather->count;
}

/* Outside: read the block that is not here to a slot, if it gets one. */
static int bring_block(struct table_source *self, uint64_t block, const struct fb_gather *gather,
                       bool *brought, forebay_error *error)
{
    char *rows = fb_table_keep_claim(&self->keep, block);
    int status = FOREBAY_OK;

    *brought = rows != NULL;
    if (rows) {
        status = fb_table_file_block(self->file, block, rows, gather->reader, error);
        fb_table_keep_filled(&self->keep, rows, !status);
    }
    return status;
}

/* A row whose block was not in memory; outside when it begins and when it ends. */
static int gather_absent(struct table_source *self, const struct fb_gather *gather, uint64_t at,
                         forebay_error *error)
{
    uint64_t sample = gather->samples[at], block = sample >> self->block_shift;
    uint64_t inside = sample & (self->table.block_rows - 1);
    const char *rows;
    bool brought;
    unsigned turn;
    int status = bring_block(self, block, gather, &brought, error);

    if (status)
        return status;
    turn = fb_table_keep_enter(&self->keep);
    rows = fb_table_keep_find(&self->keep, block);
    if (rows)
        put_row(self, gather, at, rows + inside * self->table.row_bytes);
    fb_table_keep_leave(&self->keep, turn);
    if (rows && !brought)
        ++*gather->hits;
    else
        ++*gather->misses;
    if (rows)
        return FOREBAY_OK;
    status =
        fb_table_file_read(self->file, sample, 1, gather->scratch.memory, gather->reader, error);
    if (!status)
        put_row(self, gather, at, gather->scratch.memory);
    return status;
}

/* As many rows from `at` on as are in memory; returns how many. */
static uint64_t gather_present(struct table_source *self, const struct fb_gather *gather,
                               uint64_t at)
{
    uint64_t from = at;

    for (; at < gather->count; at++) {
        uint64_t sample = gather->samples[at];
        uint64_t inside = sample & (self->table.block_rows - 1);
        const char *rows = fb_table_keep_find(&self->keep, sample >> self->block_shift);

        if (!rows)
            break;
        put_row(self, gather, at, rows + inside * self->table.row_bytes);
    }
    *gather->hits += at - from;
    return at - from;
}

static int table_gather(const struct fb_source *source, const struct fb_gather *gather,
                        forebay_error *error)
{
    struct table_source *self = (struct table_source *)(uintptr_t)source;
    struct fb_table_keep *keep = &self->keep;
    uint64_t at = 0;
    int status = FOREBAY_OK;

    while (at < gather->count && !status) {
        unsigned turn = fb_table_keep_enter(keep);

        if (at == 0 && fb_table_keep_is_whole(keep)) {
            gather_ready(self, gather);
            at = gather->count;
        } else {
            at += gather_present(self, gather, at);
        }
        fb_table_keep_leave(keep, turn);
        if (at < gather->count)
            status = gather_absent(self, gather, at++, error);
    }
    return status;
}

static uint64_t table_keep(struct fb_source *source, uint64_t bytes, uint64_t window)
{
    return fb_table_keep_limit(&((struct table_source *)source)->keep, bytes, window);
}

static struct fb_kept table_kept(struct fb_source *source)
{
    struct fb_table_keep *keep = &((struct table_source *)source)->keep;
    struct fb_kept kept = { .items = atomic_load(&keep->ready) };

    kept.bytes = kept.items * keep->block_bytes;
    pthread_mutex_lock(&keep->lock);
    kept.limit_bytes = keep->kept * keep->block_bytes;
    pthread_mutex_unlock(&keep->lock);
    return kept;
}

const struct fb_source_ops fb_source_table = {
    .kind = "table",
    .description = "rows of a CSV file or of its parts name_part1.csv ...",
    .open = table_open,
    .close = table_close,
    .parts = table_parts,
    .extent = table_extent,
    .load = table_load,
    .gather = table_gather,
    .keep = table_keep,
    .kept = table_kept,
    .users = table_users,
    .place = table_place,
};
