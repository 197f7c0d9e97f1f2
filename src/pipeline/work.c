#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "pipeline/pipeline_internal.h"
#include "pipeline/replacement.h"

struct fb_epoch_walk fb_epoch_walk_begin(const struct fb_pipeline *pipeline, struct fb_cursor at)
{
    struct fb_epoch_walk walk = { .at = at };

    walk.count = fb_order_count(pipeline->options.order, at);
    if (pipeline->drop_last)
        walk.count -= walk.count % pipeline->batch_size;
    return walk;
}

/* ---- Opening a batch: its samples, their extents, its layout, its slot ---- */

/* A batch that cannot be had is delivered in order, as its error. */
static void spoil(struct fb_batch *batch, const forebay_error *error)
{
    batch->error_at = 0;
    batch->error = *error;
    batch->taken = batch->done = batch->count;
    batch->ready = true;
}

static void keep_failure(struct fb_failure *failures, unsigned *count, uint64_t epoch,
                         uint64_t sample, const forebay_error *error)
{
    struct fb_failure *failure;

    if (*count == FB_BATCH_FAILURES)
        return;
    failure = &failures[(*count)++];
    *failure = (struct fb_failure){ .epoch = epoch, .sample = sample };
    memcpy(failure->reason, error->message, sizeof(failure->reason) - 1);
}

static void replace_broken(struct fb_pipeline *pipeline, struct fb_worker_state *state,
                           struct fb_batch *batch)
{
    const struct fb_fetcher *fetcher = &pipeline->fetcher;

    for (uint64_t at = 0; at < batch->count; at++) {
        uint64_t sample = batch->samples[at];
        forebay_error error;

        if (!fb_sample_is_broken(fetcher, state, sample, &error))
            continue;
        batch->samples[at] = fb_replacement_for_broken(fetcher, state, batch->at.epoch, sample);
        if (batch->samples[at] == sample)
            continue;
        keep_failure(batch->failures, &batch->failure_count, batch->at.epoch, sample, &error);
        batch->replaced++;
    }
}

/* Walk over all items of the batch: measure them, or note their lengths in the slot. */
static void for_items(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch,
                      bool note)
{
    const struct fb_source *source = pipeline->options.source;

    for (uint64_t at = 0; at < batch->count; at++) {
        unsigned count = source->ops->parts(source, batch->samples[at], state->parts);

        for (unsigned p = 0; p < count; p++) {
            const struct fb_part *part = &state->parts[p];
            struct fb_extent extent;

            if (!pipeline->collation.columns[part->field].wanted)
                continue;
            extent = fb_fetch_extent(&pipeline->fetcher, state, part);
            if (note)
                fb_collation_note(&pipeline->collation, batch->placed, batch->memory, part->field,
                                  at, part->item, extent);
            else if (extent.known == FB_EXTENT_EXACT)
                fb_measure_add(&pipeline->measures[part->field], extent);
        }
    }
}

/* False: there is no memory for it now; then *error says why it can never be had, or is OK. */
static bool prepare(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch,
                    uint64_t *bytes, forebay_error *error)
{
    const struct fb_measure *measures = pipeline->fixed_measures;

    fb_order_samples(pipeline->options.order, batch->at, batch->first, batch->count,
                     batch->samples);
    if (!pipeline->collation.fixed) {
        memset(pipeline->measures, 0,
               pipeline->collation.field_count * sizeof(*pipeline->measures));
        if (pipeline->options.on_error == FB_ON_ERROR_REPLACE)
            replace_broken(pipeline, state, batch);
        for_items(pipeline, state, batch, false);
        measures = pipeline->measures;
    }
    if (fb_collation_place(&pipeline->collation, batch->count, measures, batch->placed, bytes,
                           error))
        return false;
    if (!fb_slots_fit(pipeline, batch, *bytes, error))
        return false;
    batch->span = *bytes;
    if (pipeline->upload)
        pipeline->stage->find(pipeline, batch);
    if (!pipeline->collation.fixed)
        for_items(pipeline, state, batch, true);
    batch->run = fb_max(1, FB_RUN_BYTES / fb_max(1, *bytes / batch->count));
    return true;
}

/* The very first batch goes before all else. Whoever opened the second one now would fault its slot
 * in, and the caller, woken on a busy processor, would wait for the end of a time slice. */
static bool first_is_awaited_locked(const struct fb_pipeline *pipeline)
{
    return pipeline->figures.waits_since_ns && !pipeline->figures.first_batch_ns &&
           pipeline->head < pipeline->tail;
}

static bool may_open_locked(const struct fb_pipeline *pipeline)
{
    uint64_t epoch = pipeline->open.at.epoch + (pipeline->open.first >= pipeline->open.count);

    return !pipeline->opening && !pipeline->starved && !pipeline->stopping &&
           !first_is_awaited_locked(pipeline) &&
           pipeline->tail - pipeline->head < pipeline->prefetch && epoch < pipeline->epoch_limit;
}

/* The opener's walk goes into the next epoch, and over stretches that have no batch left. */
static void walk_on_locked(struct fb_pipeline *pipeline)
{
    struct fb_epoch_walk *open = &pipeline->open;

    while (open->first >= open->count)
        *open = fb_epoch_walk_begin(pipeline, fb_order_begin(pipeline->options.order,
                                                       open->at.epoch + 1));
}

/* The batch is there, or void, or waits for memory. */
static void open_done_locked(struct fb_pipeline *pipeline, struct fb_batch *batch, bool prepared,
                             uint64_t bytes, uint64_t generation, const forebay_error *error)
{
    bool held_up = !prepared && error->status == FOREBAY_OK;
    /* Somebody gave back what the opener had missed by a moment: then it is not starved. */
    bool freed = pipeline->frees != pipeline->frees_seen;
    bool one_run = prepared && batch->run >= batch->count;

    pipeline->opening = false;
    if (generation != pipeline->generation || pipeline->stopping || held_up) {
        if (batch)
            fb_slots_give_back_locked(pipeline, batch);
        if (generation == pipeline->generation && held_up && !freed) {
            pipeline->starved = true;
            pipeline->starved_bytes = bytes;
        }
    } else {
        if (!prepared)
            spoil(batch, error);
        *fb_ring_at(pipeline, pipeline->tail++) = batch;
        pipeline->open.first += batch->count;
    }
    /* Whoever opened it goes on to fill it: all are called only if there is work for all, and the
     * caller only if there is something for it to see. */
    if (one_run)
        pthread_cond_signal(&pipeline->work);
    else
        pthread_cond_broadcast(&pipeline->work);
    if (!prepared)
        pthread_cond_broadcast(&pipeline->ready);
}

static void open_batch_locked(struct fb_pipeline *pipeline, struct fb_worker_state *state)
{
    uint64_t generation = pipeline->generation;
    uint64_t bytes = fb_batch_header_bytes(&pipeline->collation);
    forebay_error error = { .status = FOREBAY_OK };
    struct fb_batch *batch;
    struct fb_epoch_walk walk;
    bool prepared = false;

    walk_on_locked(pipeline);
    walk = pipeline->open;
    pipeline->opening = true;
    pipeline->frees_seen = pipeline->frees;
    pthread_mutex_unlock(&pipeline->lock);

    if (pipeline->used_once) /* what comes in the last epoch need not be kept */
        fb_cache_last_epoch(pipeline->options.cache,
                            walk.at.epoch + 1 == pipeline->options.epochs);

    batch = fb_slots_take(pipeline, NULL);
    if (batch) {
        fb_batch_begin(batch, walk.at, walk.first,
                       fb_min(pipeline->batch_size, walk.count - walk.first));
        prepared = prepare(pipeline, state, batch, &bytes, &error);
    }
    pthread_mutex_lock(&pipeline->lock);
    open_done_locked(pipeline, batch, prepared, bytes, generation, &error);
}

/* A small batch that needs nothing but what a free slot has is one worker's from the start, who
 * finds out its samples while others open the next. NULL: it is to be opened. */
static struct fb_batch *claim_batch_locked(struct fb_pipeline *pipeline)
{
    struct fb_batch *batch = pipeline->free;
    struct fb_epoch_walk *open = &pipeline->open;

    /* What the slot was used for last tells that it is large enough, and that one run fills it. */
    if (pipeline->upload || !pipeline->collation.fixed || !batch || !batch->memory ||
        batch->count != pipeline->batch_size || batch->run < batch->count)
        return NULL;
    walk_on_locked(pipeline);
    pipeline->free = batch->next;
    fb_batch_begin(batch, open->at, open->first,
                   fb_min(pipeline->batch_size, open->count - open->first));
    *fb_ring_at(pipeline, pipeline->tail++) = batch;
    open->first += batch->count;
    return batch;
}

/* ---- Filling a batch: runs of its samples, by many workers ---- */

/* What one worker found out about its run, delivered to the batch under the lock. */
struct outcome {
    uint64_t skipped, replaced;
    uint64_t error_at;
    forebay_error error;
    unsigned failure_count;
    struct fb_failure failures[FB_BATCH_FAILURES];
};

static void note_failure(struct outcome *outcome, const struct fb_batch *batch, uint64_t sample,
                         const forebay_error *error)
{
    keep_failure(outcome->failures, &outcome->failure_count, batch->at.epoch, sample, error);
}

static void fill_sample(const struct fb_pipeline *pipeline, struct fb_worker_state *state,
                        struct fb_batch *batch, uint64_t at, struct outcome *outcome)
{
    const struct fb_fetcher *fetcher = &pipeline->fetcher;
    uint64_t sample = batch->samples[at];
    forebay_error error, second;
    int status;

    state->device_keeps = batch->places && batch->places[at] == FB_PLACE_WANTED &&
                     fetcher->ranks.local_world <= 1;
    status = fb_fetch(fetcher, state, batch, at, &error);
    state->device_keeps = false;

    if (!status)
        return;
    if (fb_status_is_data(status) && fetcher->on_error == FB_ON_ERROR_SKIP) {
        note_failure(outcome, batch, sample, &error);
        batch->kept[at] = false;
        outcome->skipped++;
        return;
    }
    if (fb_status_is_data(status) && fetcher->on_error == FB_ON_ERROR_REPLACE) {
        note_failure(outcome, batch, sample, &error);
        status = fb_replacement_fetch(fetcher, state, batch, at, &second);
        if (!status) {
            outcome->replaced++;
            return;
        }
        if (!fb_status_is_data(status))
            error = second;
    }
    if (outcome->error_at == UINT64_MAX) { /* runs go upwards: the first is the lowest */
        outcome->error_at = at;
        outcome->error = error;
    }
}

/* Many at once where the source can; if that fails, one by one, to find out which it was. */
static void fill_missing(const struct fb_pipeline *pipeline, struct fb_worker_state *state,
                         struct fb_batch *batch, uint64_t from, uint64_t to,
                         struct outcome *outcome)
{
    const struct fb_fetcher *fetcher = &pipeline->fetcher;

    if (fb_fetch_gathers(fetcher)) {
        forebay_error error;

        if (!fb_fetch_many(fetcher, state, batch, from, to, &error))
            return;
        state->hits = state->misses = 0;
    }
    for (uint64_t at = from; at < to; at++)
        fill_sample(pipeline, state, batch, at, outcome);
}

/* What the device's cache has need not be loaded. */
static void fill_samples(const struct fb_pipeline *pipeline, struct fb_worker_state *state,
                         struct fb_batch *batch, uint64_t from, uint64_t to,
                         struct outcome *outcome)
{
    while (from < to) {
        uint64_t end = from;

        while (end < to && (!batch->places || batch->places[end] >= FB_PLACE_WANTED))
            end++;
        if (end > from)
            fill_missing(pipeline, state, batch, from, end, outcome);
        from = end + (end < to);
    }
}

static void tell_locked(struct fb_batch *batch, const struct outcome *outcome)
{
    batch->skipped += outcome->skipped;
    batch->replaced += outcome->replaced;
    if (outcome->error_at < batch->error_at) {
        batch->error_at = outcome->error_at;
        batch->error = outcome->error;
    }
    for (unsigned i = 0; i < outcome->failure_count; i++)
        if (batch->failure_count < FB_BATCH_FAILURES)
            batch->failures[batch->failure_count++] = outcome->failures[i];
}

static void seal(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch)
{
    if (batch->error_at != UINT64_MAX)
        return;
    if (batch->replaced)
        fb_replacement_commit(&pipeline->fetcher, state, batch);
    fb_batch_seal(batch, &pipeline->collation);
}

bool fb_work_make(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch)
{
    struct outcome outcome = { .error_at = UINT64_MAX };
    forebay_error error;
    uint64_t bytes;

    if (!prepare(pipeline, state, batch, &bytes, &error))
        return false;
    fill_samples(pipeline, state, batch, 0, batch->count, &outcome);
    tell_locked(batch, &outcome); /* nobody else knows of it */
    seal(pipeline, state, batch);
    return batch->error_at == UINT64_MAX;
}

/* Samples that were claimed unseen: which they are, and where they go. */
static bool prepare_claimed(struct fb_pipeline *pipeline, struct fb_worker_state *state,
                            struct fb_batch *batch, struct outcome *outcome)
{
    uint64_t bytes;

    if (pipeline->used_once) /* what comes in the last epoch need not be kept */
        fb_cache_last_epoch(pipeline->options.cache,
                            batch->at.epoch + 1 == pipeline->options.epochs);
    if (prepare(pipeline, state, batch, &bytes, &outcome->error))
        return true;
    outcome->error_at = 0;
    return false;
}

/* The next run of the batch or, `claimed`, all of it, of which not even the samples are known. */
static void fill_run_locked(struct fb_pipeline *pipeline, struct fb_worker_state *state,
                            struct fb_batch *batch, bool claimed)
{
    uint64_t from = batch->taken, to = claimed ? batch->count
                                               : fb_min(batch->count, from + batch->run);
    uint64_t bytes_before, read_before, began = fb_now_ns();
    struct outcome outcome;

    batch->taken = to;
    batch->active++;
    pipeline->running++;
    pthread_mutex_unlock(&pipeline->lock);

    outcome.skipped = outcome.replaced = 0;
    outcome.failure_count = 0;
    outcome.error_at = UINT64_MAX;
    state->hits = state->misses = state->copy_ns = 0;
    bytes_before = fb_reader_bytes(state->reader);
    read_before = fb_reader_spent_ns(state->reader);
    if (!claimed || prepare_claimed(pipeline, state, batch, &outcome))
        fill_samples(pipeline, state, batch, from, to, &outcome);
    if (to - from == batch->count) { /* nobody else is at it */
        tell_locked(batch, &outcome);
        seal(pipeline, state, batch);
        batch->sealed = true;
    }

    pthread_mutex_lock(&pipeline->lock);
    if (!batch->sealed)
        tell_locked(batch, &outcome);
    batch->hits += state->hits;
    batch->misses += state->misses;
    batch->bytes_read += fb_reader_bytes(state->reader) - bytes_before;
    pipeline->figures.busy_ns += fb_now_ns() - began;
    pipeline->figures.read_ns += fb_reader_spent_ns(state->reader) - read_before;
    pipeline->figures.copy_ns += state->copy_ns;
    batch->done += to - from;
    if (batch->done == batch->count && !batch->cancelled) {
        if (!batch->sealed) {
            pthread_mutex_unlock(&pipeline->lock);
            seal(pipeline, state, batch);
            pthread_mutex_lock(&pipeline->lock);
        }
        batch->ready = true;
        if (!batch->cancelled && *fb_ring_at(pipeline, pipeline->head) == batch)
            pthread_cond_broadcast(&pipeline->ready);
    }
    pipeline->running--;
    if (--batch->active == 0 && batch->cancelled) {
        fb_slots_give_back_locked(pipeline, batch);
        pthread_cond_broadcast(&pipeline->work);
    } else if (pipeline->cpu_share < pipeline->worker_count) {
        pthread_cond_signal(&pipeline->work); /* a worker may have waited for its turn */
    }
}

void fb_work_cancel_locked(struct fb_pipeline *pipeline)
{
    pipeline->generation++;
    for (; pipeline->head < pipeline->tail; pipeline->head++) {
        struct fb_batch *batch = *fb_ring_at(pipeline, pipeline->head);

        batch->cancelled = true;
        if (batch->active == 0) /* else its last worker gives it back */
            fb_slots_give_back_locked(pipeline, batch);
    }
}

bool fb_work_step_locked(struct fb_pipeline *pipeline, struct fb_worker_state *state)
{
    struct fb_batch *claimed;

    /* What is ready first: it takes a moment only. */
    if (pipeline->upload && pipeline->stage->step_locked(pipeline, false))
        return true;
    if (!pipeline->started || pipeline->running >= pipeline->cpu_share)
        return false;
    for (uint64_t place = pipeline->head; place < pipeline->tail; place++) {
        struct fb_batch *batch = *fb_ring_at(pipeline, place);

        if (batch->taken < batch->count) {
            fill_run_locked(pipeline, state, batch, false);
            return true;
        }
    }
    if (!may_open_locked(pipeline))
        return false;
    claimed = claim_batch_locked(pipeline);
    if (claimed)
        fill_run_locked(pipeline, state, claimed, true);
    else
        open_batch_locked(pipeline, state);
    return true;
}
