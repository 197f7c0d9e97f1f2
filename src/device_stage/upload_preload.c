/* upload_preload.c -- device.preload: fill the device's cache before the first batch, with what
 * this rank is given in the first epoch. */
#include <inttypes.h>

#include "base/size.h"
#include "device_stage/upload_internal.h"

/* One batch made and copied, for what the cache keeps of it. A broken one is passed over: its turn
 * to be told of comes with its batch. NO_MEMORY: the device has no room for more. */
static int preload_batch(struct fb_pipeline *pipeline, struct fb_worker_state *state,
                         struct fb_batch *batch, forebay_error *error)
{
    struct fb_upload *upload = pipeline->upload;
    int status;

    if (!fb_work_make(pipeline, state, batch) || batch->shown.samples == 0)
        return FOREBAY_OK;
    status = fb_upload_start(upload, batch, error);
    if (status)
        return status;
    fb_device_cache_commit(upload->cache, batch);
    pthread_mutex_lock(&pipeline->lock);
    upload->figures.bytes_copied += batch->upload.copied;
    fb_upload_drop_locked(pipeline, batch);
    pthread_mutex_unlock(&pipeline->lock);
    return FOREBAY_OK;
}

static int preload(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch,
                   forebay_error *error)
{
    struct fb_device_cache *cache = pipeline->upload->cache;
    struct fb_epoch_walk walk = fb_epoch_walk_begin(pipeline, fb_order_begin(pipeline->options.order, 0));
    int status = FOREBAY_OK;

    for (; walk.first < walk.count && !status; walk.first += pipeline->batch_size) {
        uint64_t count = fb_min(pipeline->batch_size, walk.count - walk.first);

        status = fb_progress(&pipeline->log, "filling the device's cache", walk.first, walk.count,
                             error);
        if (status)
            return status;
        fb_batch_begin(batch, walk.at, walk.first, count);
        fb_order_samples(pipeline->options.order, walk.at, walk.first, count, batch->samples);
        if (fb_device_cache_wants(cache, batch->samples, count))
            status = preload_batch(pipeline, state, batch, error);
        else if (cache->used >= cache->limit && !cache->source)
            break;
    }
    fb_say(&pipeline->log, "preloaded %" PRIu64 " %s into the device's cache", cache->used,
           cache->source ? "units" : "samples");
    cache->hits = cache->misses = 0;
    return status == FOREBAY_NO_MEMORY ? FOREBAY_OK : status;
}

int fb_upload_preload(struct fb_pipeline *pipeline, forebay_error *error)
{
    struct fb_batch *batch;
    struct fb_worker_state state;
    int status;

    if (!pipeline->upload || !pipeline->upload->cache)
        return FOREBAY_OK;
    batch = fb_slots_take(pipeline, error);
    if (!batch)
        return error->status;
    status = fb_worker_state_init(&state, pipeline, error);
    if (!status) {
        status = preload(pipeline, &state, batch, error);
        fb_worker_state_release(&state, pipeline);
    }
    pthread_mutex_lock(&pipeline->lock);
    fb_slots_give_back_locked(pipeline, batch);
    pthread_mutex_unlock(&pipeline->lock);
    return status;
}
