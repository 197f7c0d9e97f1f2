/* upload_memory.c -- pinned slots, device buffers, what is given back if there is no room. */
#include "device_stage/upload_internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/size.h"
#include "memory/block.h"

/* ---- Slots ---- */

void fb_upload_free_events(struct fb_upload *upload, struct fb_batch *batch)
{
    upload->ops->event_free(upload->device, batch->staging.began);
    upload->ops->event_free(upload->device, batch->staging.asked);
    upload->ops->event_free(upload->device, batch->staging.copied);
    batch->staging.began = batch->staging.asked = batch->staging.copied = NULL;
}

int fb_upload_map(struct fb_upload *upload, struct fb_batch *batch, uint64_t bytes,
                  forebay_error *error)
{
    forebay_error reason;
    bool said;
    int status = upload->ops->host_alloc(upload->device, bytes, &batch->staging.pinned, &reason);

    if (!status) {
        batch->memory = batch->staging.pinned.memory;
        return FOREBAY_OK;
    }
    batch->memory = fb_map_reserved(bytes, error);
    pthread_mutex_lock(upload->lock);
    said = upload->warned_pinned;
    upload->warned_pinned = true;
    pthread_mutex_unlock(upload->lock);
    if (!said)
        fb_warn(upload->log, "device: %s; copies from such memory hold up the worker that starts "
                "them", reason.message);
    return batch->memory ? FOREBAY_OK : FOREBAY_NO_MEMORY;
}

void fb_upload_unmap(struct fb_upload *upload, struct fb_batch *batch)
{
    upload->ops->event_wait(upload->device, batch->staging.copied, NULL);
    fb_upload_free_events(upload, batch);
    if (batch->staging.pinned.memory)
        upload->ops->host_free(upload->device, &batch->staging.pinned);
    else
        fb_unmap_reserved(batch->memory, batch->capacity);
    batch->staging = (struct fb_staging){ .copied = NULL };
}

/* ---- Figures ---- */

/* The copy is over: what of its time did the caller wait for? */
static void account(struct fb_upload *upload, const struct fb_batch *batch)
{
    const struct fb_staging *staging = &batch->staging;
    double all = upload->ops->event_seconds(upload->device, staging->began, staging->copied);
    double exposed = 0;

    if (staging->asked)
        exposed = upload->ops->event_seconds(upload->device, staging->asked, staging->copied);
    if (!isfinite(all) || !isfinite(exposed))
        return;
    all = fmax(all, 0);
    exposed = fmin(fmax(exposed, 0), all);
    pthread_mutex_lock(upload->lock);
    upload->figures.exposed_s += exposed;
    upload->figures.hidden_s += all - exposed;
    pthread_mutex_unlock(upload->lock);
}

/* If the copy is over, be done with its events; the slot is free to be written. */
bool fb_upload_finish(struct fb_upload *upload, struct fb_batch *batch)
{
    if (!upload->ops->event_done(upload->device, batch->staging.copied))
        return false;
    if (batch->staging.copied)
        account(upload, batch);
    fb_upload_free_events(upload, batch);
    return true;
}

void fb_upload_free_views(struct fb_upload *upload, struct fb_batch *batch)
{
    while (batch->upload.views > 0)
        upload->ops->unview(upload->device, batch->fields[--batch->upload.views].data);
}

void fb_upload_settle(struct fb_upload *upload, struct fb_batch *batch)
{
    upload->ops->event_wait(upload->device, batch->staging.copied, NULL);
    fb_upload_finish(upload, batch);
    fb_upload_free_views(upload, batch);
}

void fb_upload_release(struct fb_upload *upload, struct fb_batch *batch)
{
    fb_upload_free_views(upload, batch);
    if (batch->upload.buffer.memory)
        fb_buffer_free(upload, &batch->upload.buffer);
}

void fb_upload_read_report_locked(const struct fb_upload *upload, struct fb_upload_report *report)
{
    *report = upload->figures;
    report->kind = upload->ops->kind;
    report->prefetch = upload->ahead;
    report->device_bytes = report->reserved_bytes = atomic_load(&upload->device_bytes);
    report->allocated_bytes = report->device_bytes;
    for (unsigned i = 0; i < upload->spare_count; i++) /* a free one may have gone meanwhile */
        report->allocated_bytes -= fb_min(report->allocated_bytes, upload->spare[i].capacity);
    if (upload->cache) {
        report->cache_hits = upload->cache->hits;
        report->cache_misses = upload->cache->misses;
        report->cache_items = upload->cache->used;
        report->cache_bytes = 0;
        for (uint64_t i = 0; i < upload->cache->chunk_count; i++)
            report->cache_bytes += fb_device_cache_chunk_bytes(upload->cache, i);
        report->reserved_bytes += report->cache_bytes;
        report->allocated_bytes += upload->cache->used * upload->cache->entry_bytes;
    }
    report->device_peak_bytes = atomic_load(&upload->device_peak);
}

/* ---- Device memory ---- */

/* Nothing may be under way in it when it is freed. */
void fb_buffer_free(struct fb_upload *upload, struct fb_device_buffer *buffer)
{
    for (unsigned i = 0; i < buffer->fence_count; i++) {
        upload->ops->event_wait(upload->device, buffer->fences[i], NULL);
        upload->ops->event_free(upload->device, buffer->fences[i]);
    }
    upload->ops->free(upload->device, buffer->memory, buffer->capacity);
    atomic_fetch_sub(&upload->device_bytes, buffer->capacity);
    *buffer = (struct fb_device_buffer){ .memory = NULL };
}

/* The smallest spare buffer that is large enough; else, with `any`, one that is not. */
static bool spare_take(struct fb_upload *upload, uint64_t bytes, bool any,
                       struct fb_device_buffer *out)
{
    unsigned best = FB_BUFFERS_FREE;
    bool found;

    pthread_mutex_lock(upload->lock);
    for (unsigned i = 0; i < upload->spare_count; i++)
        if ((any || upload->spare[i].capacity >= bytes) &&
            (best == FB_BUFFERS_FREE || upload->spare[i].capacity < upload->spare[best].capacity))
            best = i;
    found = best < FB_BUFFERS_FREE;
    if (found) {
        *out = upload->spare[best];
        upload->spare[best] = upload->spare[--upload->spare_count];
    }
    pthread_mutex_unlock(upload->lock);
    return found;
}

static int buffer_alloc(struct fb_upload *upload, uint64_t bytes, struct fb_device_buffer *out,
                        forebay_error *error)
{
    struct fb_device_buffer made = { .capacity = bytes };
    int status = upload->ops->alloc(upload->device, bytes, &made.memory, error);

    if (status)
        return status;
    *out = made;
    bytes += atomic_fetch_add(&upload->device_bytes, bytes);
    if (bytes > atomic_load(&upload->device_peak)) /* one uploads at a time */
        atomic_store(&upload->device_peak, bytes);
    return FOREBAY_OK;
}

/* The cache gives its last chunk back, when all that is on the stream is done with it. The one who
 * uploads calls this. */
bool fb_upload_drop_chunk(struct fb_upload *upload, const char *why)
{
    struct fb_device_cache *cache = upload->cache;
    void *memory = NULL, *event = NULL;
    bool first = false;
    uint64_t left = 0;

    pthread_mutex_lock(upload->lock);
    if (cache)
        memory = fb_device_cache_drop_locked(cache);
    if (memory) {
        first = !upload->warned_cache;
        upload->warned_cache = true;
        left = cache->limit;
    }
    pthread_mutex_unlock(upload->lock);
    if (!memory)
        return false;
    upload->ops->record(upload->device, upload->stream, &event, NULL);
    upload->ops->event_wait(upload->device, event, NULL);
    upload->ops->event_free(upload->device, event);
    upload->ops->free(upload->device, memory,
                      fb_device_cache_chunk_bytes(cache, cache->chunk_count));
    if (first)
        fb_warn(upload->log, "%s; device.cache holds %" PRIu64 " %s now", why, left,
                cache->source ? "units" : "samples");
    return true;
}

/* A buffer for `bytes`: a spare one, or a new one in place of one that is too small. When there is
 * no room, all that are spare go first, and then what is cached. */
int fb_buffer_get(struct fb_upload *upload, uint64_t bytes, uint64_t generous,
                      struct fb_device_buffer *out, forebay_error *error)
{
    struct fb_device_buffer small;
    int status;

    if (spare_take(upload, bytes, false, out))
        return FOREBAY_OK;
    if (spare_take(upload, bytes, true, &small))
        fb_buffer_free(upload, &small);
    status = buffer_alloc(upload, generous, out, error);
    if (status != FOREBAY_NO_MEMORY)
        return status;
    while (spare_take(upload, bytes, true, &small))
        fb_buffer_free(upload, &small);
    do
        status = buffer_alloc(upload, bytes, out, error);
    while (status == FOREBAY_NO_MEMORY && fb_upload_drop_chunk(upload, error->message));
    return status;
}

/* It is spare, once its fences have fired. Too many: the last must go. */
void fb_buffer_put(struct fb_upload *upload, struct fb_device_buffer *buffer)
{
    bool kept;

    pthread_mutex_lock(upload->lock);
    kept = upload->spare_count < FB_BUFFERS_FREE && !upload->stopped;
    if (kept)
        upload->spare[upload->spare_count++] = *buffer;
    upload->starved = false;
    pthread_mutex_unlock(upload->lock);
    if (!kept)
        fb_buffer_free(upload, buffer);
    *buffer = (struct fb_device_buffer){ .memory = NULL };
}
