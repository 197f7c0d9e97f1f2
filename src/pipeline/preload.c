/* preload.c -- memory.preload: fill the cache before the first batch, in the order of the index, with
 * what the order uses. */
#include "base/size.h"
#include "pipeline/pipeline_internal.h"

/* Room for one sample at a time, laid out like a batch of one. */
static int lay_out(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch,
                   uint64_t sample, forebay_error *error)
{
    const struct fb_source *source = pipeline->options.source;
    struct fb_measure *measures = pipeline->measures;
    unsigned count = source->ops->parts(source, sample, state->parts);
    uint64_t bytes;
    int status;

    for (unsigned f = 0; f < source->field_count; f++)
        measures[f] = (struct fb_measure){ .items = 0 };
    for (unsigned p = 0; p < count; p++)
        fb_measure_add(&measures[state->parts[p].field],
                       fb_fetch_extent(&pipeline->fetcher, state, &state->parts[p]));
    batch->samples[0] = sample;
    batch->count = 1;
    status = fb_collation_place(&pipeline->collation, 1, measures, batch->placed, &bytes, error);
    if (status)
        return status;
    if (!fb_slots_fit(pipeline, batch, bytes, error))
        return fb_fail(error, FOREBAY_OVER_BUDGET, "no memory to preload a sample of %llu bytes",
                       (unsigned long long)bytes);
    count = source->ops->parts(source, sample, state->parts);
    for (unsigned p = 0; p < count; p++)
        fb_collation_note(&pipeline->collation, batch->placed, batch->memory, state->parts[p].field,
                          0, state->parts[p].item,
                          fb_fetch_extent(&pipeline->fetcher, state, &state->parts[p]));
    return FOREBAY_OK;
}

/* Samples until the cache takes no more, or all are in. A broken one is passed over: its turn to
 * be told of comes with its batch. */
static int fill(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch,
                forebay_error *error)
{
    uint64_t samples = pipeline->options.source->sample_count;
    struct fb_cache_report before, after;

    fb_cache_read_report(pipeline->options.cache, &before);
    for (uint64_t sample = 0; sample < samples; sample++) {
        int status = fb_progress(&pipeline->log, "filling the cache", sample, samples, error);

        if (status)
            return status;
        if (!fb_order_uses(pipeline->options.order, sample))
            continue;
        state->misses = 0;
        if (lay_out(pipeline, state, batch, sample, NULL) ||
            fb_fetch(&pipeline->fetcher, state, batch, 0, NULL))
            continue;
        fb_cache_read_report(pipeline->options.cache, &after);
        if (state->misses && after.items <= before.items) /* read, and not kept: it is full */
            break;
        before = after;
    }
    fb_say(&pipeline->log, "preloaded %llu units into the cache", (unsigned long long)before.items);
    return FOREBAY_OK;
}

int fb_pipeline_preload(struct fb_pipeline *pipeline, forebay_error *error)
{
    struct fb_batch *batch = fb_slots_take(pipeline, error);
    struct fb_worker_state state;
    int status;

    if (!batch)
        return error->status;
    fb_batch_begin(batch, fb_order_begin(pipeline->options.order, 0), 0, 1);
    status = fb_worker_state_init(&state, pipeline, error);
    if (!status) {
        state.preloading = true;
        status = fill(pipeline, &state, batch, error);
        fb_worker_state_release(&state, pipeline);
    }
    pthread_mutex_lock(&pipeline->lock);
    fb_slots_give_back_locked(pipeline, batch);
    pthread_mutex_unlock(&pipeline->lock);
    return status;
}
