#include "pipeline/fetch.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "decode/cast.h"

/* One slice on its way: what is read, where it goes. */
struct load_job {
    const struct fb_fetcher *fetcher;
    struct fb_worker_state *state;
    const struct fb_column *column;
    const struct fb_field *field;
    uint64_t unit;
    uint64_t unit_rows;        /* of the whole unit */
    uint64_t first_row, rows;  /* of the slice */
    uint64_t columns;
    uint64_t row_in, row_out;  /* bytes of a row as loaded, and in the batch */
    char *to;
};

static bool is_converted(const struct load_job *job)
{
    return job->column->dtype != job->field->dtype;
}

static uint64_t row_bytes_max(const struct fb_source *source, const struct fb_field *field)
{
    uint64_t columns = field->vary == 2 ? source->unit_bytes_max / (field->cell_bytes + 1) + 1 : 1;

    return columns * field->cell_bytes;
}

uint64_t fb_fetch_chunk_bytes(const struct fb_source *source, const struct fb_collation *collation,
                              bool cached)
{
    uint64_t most = 0;

    for (unsigned f = 0; f < source->field_count; f++) {
        const struct fb_column *column = &collation->columns[f];
        bool converts = column->wanted && column->dtype != source->fields[f].dtype;
        uint64_t unit = fb_field_bytes_max(source, &source->fields[f]);

        if (column->wanted && source->fields[f].finished)
            most = fb_max(most, unit);
        /* A slice of a unit that is read whole: to be admitted, or because it cannot be otherwise. */
        if (!converts && !(source->sliced && (cached || !source->rows_alone)))
            continue;
        most = fb_max(most, source->rows_alone
                                ? fb_max(FB_CONVERT_BYTES, row_bytes_max(source, &source->fields[f]))
                                : unit);
    }
    return fb_round_up(most, 64);
}

/* Rows [first, first + rows) of the job's unit, decoded, at `to`. */
static int load_rows(const struct load_job *job, uint64_t first, uint64_t rows, void *to,
                     forebay_error *error)
{
    struct fb_load load = { .unit = job->unit,
                            .first_row = first,
                            .rows = rows,
                            .to = to,
                            .bytes = rows * job->row_in,
                            .scratch = job->state->scratch,
                            .reader = job->state->reader };

    return job->fetcher->source->ops->load(job->fetcher->source, &load, error);
}

/* Put loaded rows that start at unit row `first` where the batch wants them, as far as it does. */
static void put_rows(const struct load_job *job, const char *from, uint64_t first, uint64_t rows)
{
    uint64_t begin = fb_max(first, job->first_row);
    uint64_t end = fb_min(first + rows, job->first_row + job->rows);
    uint64_t numbers;

    if (begin >= end)
        return;
    numbers = (end - begin) * job->row_in / forebay_dtype_bytes(job->field->dtype);
    fb_cast(job->to + (begin - job->first_row) * job->row_out, job->column->dtype,
            from + (begin - first) * job->row_in, job->field->dtype, numbers);
}

static uint64_t chunk_rows(const struct load_job *job, uint64_t rows)
{
    if (!job->fetcher->source->rows_alone || job->row_in == 0)
        return rows;
    return fb_max(1, fb_min(rows, job->state->chunk.bytes / job->row_in));
}

static int admit(const struct load_job *job, const struct fb_cache_pin *pin, uint64_t offset,
                 const void *from, uint64_t bytes, forebay_error *error)
{
    uint64_t began = fb_now_ns();
    int status = fb_cache_write(job->fetcher->cache, pin, offset, from, bytes, error);

    job->state->copy_ns += fb_now_ns() - began;
    return status;
}

/* Rows through the worker's chunk: converted on the way, and written to the cache if `pin`. */
static int load_chunked(const struct load_job *job, uint64_t first, uint64_t rows,
                        const struct fb_cache_pin *pin, forebay_error *error)
{
    uint64_t step = chunk_rows(job, rows);
    char *chunk = job->state->chunk.memory;

    if (step * job->row_in > job->state->chunk.bytes)
        return fb_fail(error, FOREBAY_OVER_BUDGET,
                       "%" PRIu64 " bytes to convert do not fit in a worker's %" PRIu64,
                       step * job->row_in, job->state->chunk.bytes);
    for (uint64_t done = 0; done < rows; done += step) {
        uint64_t count = fb_min(step, rows - done);
        int status = load_rows(job, first + done, count, chunk, error);

        if (!status && pin)
            status = admit(job, pin, (first + done) * job->row_in, chunk,
                           count * job->row_in, error);
        if (status)
            return status;
        put_rows(job, chunk, first + done, count);
    }
    return FOREBAY_OK;
}

/* The slice, and nothing but the slice where the source can. */
static int load_slice(const struct load_job *job, forebay_error *error)
{
    bool whole = job->first_row == 0 && job->rows == job->unit_rows;

    if (!is_converted(job) && (whole || job->fetcher->source->rows_alone))
        return load_rows(job, job->first_row, job->rows, job->to, error);
    if (job->fetcher->source->rows_alone)
        return load_chunked(job, job->first_row, job->rows, NULL, error);
    return load_chunked(job, 0, job->unit_rows, NULL, error);
}

/* The whole unit into the cache, and the slice into the batch. */
static int admit_own(const struct load_job *job, const struct fb_cache_pin *pin,
                     forebay_error *error)
{
    bool whole = job->first_row == 0 && job->rows == job->unit_rows;
    int status;

    if (!whole || is_converted(job))
        return load_chunked(job, 0, job->unit_rows, pin, error);
    status = load_rows(job, 0, job->rows, job->to, error);
    if (!status)
        status = admit(job, pin, 0, job->to, job->rows * job->row_in, error);
    return status;
}

static int load_and_admit(const struct load_job *job, struct fb_cache_pin *pin,
                          forebay_error *error)
{
    struct fb_cache *cache = job->fetcher->cache;
    int status;

    /* Raw data that we keep need not be kept by the kernel as well. */
    fb_reader_forget(job->state->reader, job->fetcher->source->raw);
    status = admit_own(job, pin, error);
    fb_reader_forget(job->state->reader, false);
    if (status) {
        fb_cache_abandon(cache, pin);
        return status;
    }
    fb_cache_publish(cache, pin);
    fb_cache_done(cache, pin);
    return FOREBAY_OK;
}

static int copy_cached(const struct load_job *job, struct fb_cache_pin *pin, forebay_error *error)
{
    struct fb_cache *cache = job->fetcher->cache;
    uint64_t step = is_converted(job) ? chunk_rows(job, job->rows) : job->rows;
    uint64_t began = fb_now_ns();
    int status = FOREBAY_OK;

    for (uint64_t done = 0; done < job->rows && !status; done += step) {
        uint64_t count = fb_min(step, job->rows - done), first = job->first_row + done;
        void *to = is_converted(job) ? job->state->chunk.memory
                                        : job->to + done * job->row_out;

        status = fb_cache_read(cache, pin, first * job->row_in, to,
                               count * job->row_in, error);
        if (!status && is_converted(job))
            put_rows(job, to, first, count);
    }
    fb_cache_done(cache, pin);
    job->state->copy_ns += fb_now_ns() - began;
    return status;
}

/* Ask the cache; only what is not kept elsewhere is offered to it. */
static enum fb_cache_answer ask(const struct load_job *job, uint64_t next_use,
                                struct fb_cache_pin *pin)
{
    struct fb_cache *cache = job->fetcher->cache;
    uint64_t bytes = job->unit_rows * job->row_in;
    enum fb_cache_answer answer;
    uint64_t use;

    if (!job->state->device_keeps)
        return fb_cache_find(cache, job->unit, bytes, next_use, true, pin);
    answer = fb_cache_look(cache, job->unit, &use, pin);
    if (answer == FB_CACHE_HIT && pin->bytes != bytes) {
        fb_cache_done(cache, pin);
        return FB_CACHE_MISS;
    }
    return answer;
}

static int run_job(struct load_job *job, uint64_t next_use, forebay_error *error)
{
    struct fb_cache_pin pin;

    if (job->field->indexed)
        return load_rows(job, job->first_row, job->rows, job->to, error);
    if (job->fetcher->cache && job->unit_rows * job->row_in > 0) {
        switch (ask(job, next_use, &pin)) {
        case FB_CACHE_HIT:
            job->state->hits++;
            return copy_cached(job, &pin, error);
        case FB_CACHE_FILL:
            job->state->misses++;
            return load_and_admit(job, &pin, error);
        case FB_CACHE_MISS:
            break;
        }
    }
    job->state->misses++;
    return load_slice(job, error);
}

/* The whole unit into the worker's chunk, and what finish() makes of it into `to`. */
static int run_and_finish(struct load_job *job, const struct fb_batch *batch, uint64_t at,
                          uint64_t next_use, uint64_t room, forebay_error *error)
{
    const struct fb_fetcher *fetcher = job->fetcher;
    struct fb_worker_state *state = job->state;
    uint64_t sample = batch->samples[at];
    struct fb_random random = { fb_mix2(fb_mix2(fetcher->seed, batch->at.epoch), sample) };
    struct fb_extent extent = { .known = FB_EXTENT_EXACT, .rows = job->unit_rows, .columns = 1 };
    void *to = job->to;
    int status;

    if (job->unit_rows > state->chunk.bytes)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "%" PRIu64 " bytes do not fit in a worker's %" PRIu64, job->unit_rows,
                       state->chunk.bytes);
    job->to = state->chunk.memory;
    status = run_job(job, next_use, error);
    if (status)
        return status;
    return fetcher->source->ops->finish(fetcher->source, sample, state->chunk.memory, extent,
                                        random, to, room, state->scratch, error);
}

/* Zeros behind an item that is smaller than its room, rows set apart where columns vary. */
static void pad_item(const struct load_job *job, uint64_t room, uint64_t room_columns)
{
    uint64_t filled = job->rows * job->row_out, row = room_columns * job->column->cell_out;

    if (room_columns == job->columns) {
        memset(job->to + filled, 0, room - filled);
        return;
    }
    for (uint64_t r = job->rows; r-- > 0;) { /* from the last, so that nothing is run over */
        memmove(job->to + r * row, job->to + r * job->row_out, job->row_out);
        memset(job->to + r * row + job->row_out, 0, row - job->row_out);
    }
    memset(job->to + job->rows * row, 0, room - job->rows * row);
}

/* When this unit is needed again, what next-use eviction goes by; never after the last epoch. Where
 * each unit is used once in every epoch only the epoch counts: no choice among those of the same
 * epoch wins a hit (caching.md 1), and each swap would cost a copy. */
static uint64_t next_use_of(const struct fb_fetcher *fetcher, const struct fb_worker_state *state,
                            const struct fb_batch *batch, uint64_t at, uint64_t unit)
{
    uint64_t first = batch->samples[at], count = 1, from = 0, next;

    if (!fetcher->next_use)
        return 0;
    if (fetcher->source->ops->users)
        fetcher->source->ops->users(fetcher->source, unit, &first, &count);
    if (!state->preloading)
        from = batch->at.start + (batch->first + at) * fetcher->ranks.world + fetcher->ranks.rank +
               1;
    next = fb_order_next_use(fetcher->order, first, count, batch->at.epoch, from);
    if (batch->at.epoch + 1 == fetcher->epochs &&
        next / fb_order_length(fetcher->order) > batch->at.epoch)
        return UINT64_MAX;
    if (count == 1 && next != UINT64_MAX && fb_order_once(fetcher->order))
        next -= next % fb_order_length(fetcher->order);
    return next;
}

static int fetch_part(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                      struct fb_batch *batch, uint64_t at, const struct fb_part *part,
                      forebay_error *error)
{
    const struct fb_column *column = &fetcher->collation->columns[part->field];
    const struct fb_field *field = &fetcher->source->fields[part->field];
    struct fb_extent extent = fetcher->source->ops->extent(fetcher->source, part->unit);
    bool whole = part->rows == FB_ALL_ROWS;
    struct load_job job = { .fetcher = fetcher,
                             .state = state,
                             .column = column,
                             .field = field,
                             .unit = part->unit,
                             .unit_rows = extent.rows,
                             .first_row = whole ? 0 : part->first_row,
                             .rows = whole ? extent.rows : part->rows,
                             .columns = extent.columns };
    uint64_t room, next_use;
    int status;

    if (extent.known == FB_EXTENT_BROKEN) /* load() knows why and says so */
        return load_rows(&job, 0, 0, batch->memory, error);
    job.row_in = extent.columns * fb_field_unit_cell(field);
    job.row_out = job.row_in / forebay_dtype_bytes(field->dtype) *
                     forebay_dtype_bytes(column->dtype);
    job.to = fb_collation_item(fetcher->collation, batch->placed, batch->memory, part->field, at,
                                  part->item, &room);
    next_use = next_use_of(fetcher, state, batch, at, part->unit);
    if (field->finished)
        return run_and_finish(&job, batch, at, next_use, room, error);
    if (job.rows * job.row_out > room)
        return fb_fail(error, FOREBAY_BAD_DATA, "%" PRIu64 " rows do not fit in the %" PRIu64
                       " bytes this batch has for them", job.rows, room);
    status = run_job(&job, next_use, error);
    if (!status && job.rows * job.row_out < room)
        pad_item(&job, room, batch->placed[column->data].columns);
    return status;
}

int fb_fetch(const struct fb_fetcher *fetcher, struct fb_worker_state *state, struct fb_batch *batch,
             uint64_t at, forebay_error *error)
{
    unsigned count = fetcher->source->ops->parts(fetcher->source, batch->samples[at], state->parts);

    for (unsigned p = 0; p < count; p++) {
        const struct fb_part *part = &state->parts[p];
        int status;

        if (!fetcher->collation->columns[part->field].wanted)
            continue;
        status = fetch_part(fetcher, state, batch, at, part, error);
        if (status) {
            char place[256] = "";

            fetcher->source->ops->place(fetcher->source, part->unit, place, sizeof(place));
            fb_error_place(error, "%s", place);
            return status;
        }
    }
    return FOREBAY_OK;
}

bool fb_fetch_gathers(const struct fb_fetcher *fetcher)
{
    return fetcher->source->ops->gather && fetcher->collation->fixed;
}

static uint64_t item_bytes(const struct fb_column *column, const struct fb_placed *data)
{
    return data->rows * data->columns * column->cell_in;
}

/* Bytes of a sample that pass through the chunk because they are converted. */
static uint64_t converted_bytes(const struct fb_fetcher *fetcher, const struct fb_batch *batch)
{
    uint64_t bytes = 0;

    for (unsigned f = 0; f < fetcher->source->field_count; f++) {
        const struct fb_column *column = &fetcher->collation->columns[f];

        if (column->wanted && column->dtype != fetcher->source->fields[f].dtype)
            bytes += item_bytes(column, &batch->placed[column->data]);
    }
    return bytes;
}

/* Where each field's samples go: to their places, or one field behind the other to the chunk. */
static void find_places(const struct fb_fetcher *fetcher, const struct fb_worker_state *state,
                        const struct fb_batch *batch, uint64_t from, uint64_t count, char **to)
{
    char *chunk = state->chunk.memory;

    for (unsigned f = 0; f < fetcher->source->field_count; f++) {
        const struct fb_column *column = &fetcher->collation->columns[f];
        uint64_t room;

        to[f] = NULL;
        if (!column->wanted)
            continue;
        to[f] = fb_collation_item(fetcher->collation, batch->placed, batch->memory, f, from, 0,
                                  &room);
        if (column->dtype == fetcher->source->fields[f].dtype)
            continue;
        to[f] = chunk;
        chunk += count * item_bytes(column, &batch->placed[column->data]);
    }
}

static void convert_many(const struct fb_fetcher *fetcher, const struct fb_batch *batch,
                         uint64_t from, uint64_t count, char *const *to)
{
    for (unsigned f = 0; f < fetcher->source->field_count; f++) {
        const struct fb_column *column = &fetcher->collation->columns[f];
        const struct fb_field *field = &fetcher->source->fields[f];
        uint64_t room, bytes;

        if (!column->wanted || column->dtype == field->dtype)
            continue;
        bytes = count * item_bytes(column, &batch->placed[column->data]);
        fb_cast(fb_collation_item(fetcher->collation, batch->placed, batch->memory, f, from, 0,
                                  &room),
                column->dtype, to[f], field->dtype, bytes / forebay_dtype_bytes(field->dtype));
    }
}

int fb_fetch_many(const struct fb_fetcher *fetcher, struct fb_worker_state *state, struct fb_batch *batch,
                  uint64_t from, uint64_t to, forebay_error *error)
{
    /* No parts are asked for meanwhile, and there is a part for each field. */
    char **places = (char **)(void *)state->parts;
    uint64_t converted = converted_bytes(fetcher, batch);
    uint64_t step = converted ? state->chunk.bytes / converted : to - from;

    if (step == 0)
        return fb_fail(error, FOREBAY_OVER_BUDGET, "a sample does not fit in a worker's memory");
    for (; from < to; from += step) {
        uint64_t count = fb_min(step, to - from);
        struct fb_gather gather = { .samples = batch->samples + from,
                                    .count = count,
                                    .to = places,
                                    .scratch = state->scratch,
                                    .reader = state->reader,
                                    .hits = &state->hits,
                                    .misses = &state->misses };
        int status;

        find_places(fetcher, state, batch, from, count, places);
        status = fetcher->source->ops->gather(fetcher->source, &gather, error);
        if (status)
            return status;
        if (converted)
            convert_many(fetcher, batch, from, count, places);
    }
    return FOREBAY_OK;
}

struct fb_extent fb_fetch_extent(const struct fb_fetcher *fetcher, const struct fb_worker_state *state,
                                 const struct fb_part *part)
{
    struct fb_source *source = fetcher->source;
    struct fb_extent extent = source->ops->extent(source, part->unit);

    if (extent.known == FB_EXTENT_UNKNOWN && source->ops->probe) {
        struct fb_load load = { .unit = part->unit,
                                .scratch = state->scratch,
                                .reader = state->reader };

        if (!source->ops->probe(source, part->unit, &load, NULL))
            extent = source->ops->extent(source, part->unit);
    }
    if (extent.known != FB_EXTENT_EXACT)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN, .columns = 1 };
    if (part->rows != FB_ALL_ROWS)
        extent.rows = part->rows;
    return fb_extent_in_batch(&source->fields[part->field], extent);
}
