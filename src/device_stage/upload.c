/* upload.c -- which batch is copied to the device and when; to the caller and back. */
#include "device_stage/upload_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"

/* ---- Open and close ---- */

static void upload_stop(struct fb_upload *upload)
{
    pthread_mutex_lock(upload->lock);
    upload->stopped = true; /* what comes back from now on is freed at once */
    pthread_mutex_unlock(upload->lock);
    if (upload->stream)
        upload->ops->stream_close(upload->device, upload->stream);
    if (upload->clock)
        upload->ops->stream_close(upload->device, upload->clock);
    upload->stream = upload->clock = NULL;
    if (upload->cache)
        fb_device_cache_close(upload->cache);
    upload->cache = NULL;
    while (upload->spare_count > 0)
        fb_buffer_free(upload, &upload->spare[--upload->spare_count]);
}

static void upload_free(struct fb_upload *upload, struct fb_pipeline *pipeline)
{
    fb_device_close(upload->device);
    fb_block_free(pipeline->options.budget, FB_STAGE_OTHER, upload, 1, sizeof(*upload));
}

static int upload_open(struct fb_upload **out, struct fb_pipeline *pipeline,
                       struct fb_device *device, uint64_t ahead, forebay_error *error)
{
    struct fb_upload *upload = fb_block_new(pipeline->options.budget, FB_STAGE_OTHER, 1,
                                            sizeof(*upload), "the device stage", error);
    int status;

    if (!upload)
        return error->status;
    upload->device = fb_device_share(device);
    upload->ops = device->ops;
    upload->lock = &pipeline->lock;
    upload->log = &pipeline->log;
    upload->collation = &pipeline->collation;
    upload->ahead = ahead;
    if (device->align > FB_DEVICE_ALIGN)
        status = fb_fail(error, FOREBAY_NO_DEVICE, "%s:%u wants buffers aligned to %" PRIu64
                         " bytes; forebay aligns them to %d", device->ops->kind, device->number,
                         device->align, FB_DEVICE_ALIGN);
    else
        status = device->ops->stream_open(device, &upload->stream, error);
    if (!status)
        status = device->ops->stream_open(device, &upload->clock, error);
    if (!status && pipeline->collation.tail)
        status = fb_upload_cache_open(upload, pipeline, error);
    if (status) {
        upload_stop(upload);
        upload_free(upload, pipeline);
        return status;
    }
    *out = upload;
    return FOREBAY_OK;
}

/* ---- Which batch, and when ---- */

static void upload_find(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    if (pipeline->upload->cache)
        fb_device_cache_find(pipeline->upload->cache, batch);
}

static uint64_t upload_trim(struct fb_pipeline *pipeline, uint64_t bytes)
{
    struct fb_upload *upload = pipeline->upload;
    uint64_t given = 0;

    pthread_mutex_lock(&pipeline->lock);
    while (upload->uploading) /* one at a time */
        pthread_cond_wait(&pipeline->ready, &pipeline->lock);
    upload->uploading = true;
    pthread_mutex_unlock(&pipeline->lock);
    while (given < bytes && fb_upload_drop_chunk(upload, "device memory was asked back"))
        given += fb_device_cache_chunk_bytes(upload->cache, upload->cache->chunk_count);
    pthread_mutex_lock(&pipeline->lock);
    upload->uploading = false;
    pthread_cond_broadcast(&pipeline->ready);
    pthread_cond_signal(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    return given;
}

static bool is_data(const struct fb_batch *batch)
{
    return batch->error_at == UINT64_MAX && batch->shown.samples > 0;
}

static bool upload_is_over(const struct fb_pipeline *pipeline, const struct fb_batch *batch)
{
    (void)pipeline;
    return !is_data(batch) || batch->upload.state != FB_UPLOAD_NONE;
}

/* The oldest that waits, of those that may go ahead of the caller. */
static struct fb_batch *find_locked(struct fb_pipeline *pipeline, uint64_t ahead)
{
    uint64_t end = fb_min(pipeline->tail, pipeline->head + ahead);

    for (uint64_t place = pipeline->head; place < end; place++) {
        struct fb_batch *batch = *fb_ring_at(pipeline, place);

        if (!batch->ready)
            return NULL;
        if (!upload_is_over(pipeline, batch))
            return batch;
    }
    return NULL;
}

/* How many are on the device and not yet with the caller. */
static uint64_t count_locked(struct fb_pipeline *pipeline)
{
    uint64_t count = 0;

    for (uint64_t place = pipeline->head; place < pipeline->tail; place++)
        count += (*fb_ring_at(pipeline, place))->upload.state == FB_UPLOAD_STARTED;
    return count;
}

/* No room on the device never ends a run: fewer go ahead; if not even the one the caller waits for
 * can be had, it is handed out in host memory. */
static void no_room_locked(struct fb_pipeline *pipeline, struct fb_batch *batch, bool now,
                           const forebay_error *error)
{
    struct fb_upload *upload = pipeline->upload;
    uint64_t ahead = fb_max(1, count_locked(pipeline));
    bool *said = now ? &upload->warned_host : &upload->warned_prefetch;
    bool first = !*said;

    *said = true;
    if (now) {
        batch->upload.state = FB_UPLOAD_HOST;
        upload->figures.host_batches++;
    } else {
        upload->starved = true;
        upload->ahead = fb_min(upload->ahead, ahead);
    }
    if (!first)
        return;
    pthread_mutex_unlock(&pipeline->lock);
    if (now)
        fb_warn(upload->log, "%s; batches the device has no room for are handed out in host memory",
                error->message);
    else
        fb_warn(upload->log, "%s; device.prefetch is %" PRIu64 " now", error->message, ahead);
    pthread_mutex_lock(&pipeline->lock);
}

static void start_done_locked(struct fb_pipeline *pipeline, struct fb_batch *batch, bool now,
                              int status, const forebay_error *error)
{
    if (!status) {
        batch->upload.state = FB_UPLOAD_STARTED;
        pipeline->upload->figures.bytes_copied += batch->upload.copied;
    } else if (status == FOREBAY_NO_MEMORY) {
        no_room_locked(pipeline, batch, now, error);
    } else {
        batch->error_at = 0;
        batch->error = *error;
    }
}

static bool upload_step_locked(struct fb_pipeline *pipeline, bool now)
{
    struct fb_upload *upload = pipeline->upload;
    struct fb_batch *batch;
    forebay_error error;
    int status;

    if (upload->uploading || (!now && upload->starved))
        return false;
    batch = find_locked(pipeline, now ? 1 : upload->ahead);
    if (!batch)
        return false;
    upload->uploading = true;
    batch->active++;
    pthread_mutex_unlock(&pipeline->lock);
    status = fb_upload_start(upload, batch, &error);
    if (status == FOREBAY_NO_MEMORY && now && upload->cache) {
        struct fb_assembly assembly = fb_upload_assembly(upload, batch);

        if (fb_assembly_bring_back(&assembly, &error))
            status = FOREBAY_NO_DEVICE;
    }
    if (!status && upload->cache)
        fb_device_cache_commit(upload->cache, batch);
    pthread_mutex_lock(&pipeline->lock);
    start_done_locked(pipeline, batch, now, status, &error);
    upload->uploading = false;
    if (--batch->active == 0 && batch->cancelled)
        fb_slots_give_back_locked(pipeline, batch);
    pthread_cond_broadcast(&pipeline->ready);
    pthread_cond_signal(&pipeline->work);
    return true;
}

/* ---- To the caller and back ---- */

/* The slot is free as soon as the copy is over: a header that waits for use takes it. */
static void lend_slot(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    struct fb_batch *other;

    pthread_mutex_lock(&pipeline->lock);
    other = pipeline->free;
    while (other && other->memory)
        other = other->next;
    if (other) {
        other->memory = batch->memory;
        other->capacity = batch->capacity;
        other->staging = batch->staging;
        batch->memory = NULL;
        batch->capacity = 0;
        batch->staging = (struct fb_staging){ .copied = NULL };
        fb_memory_freed_locked(pipeline);
        pthread_cond_signal(&pipeline->work);
    }
    pthread_mutex_unlock(&pipeline->lock);
}

static int upload_hand_out(struct fb_pipeline *pipeline, struct fb_batch *batch,
                           forebay_error *error)
{
    struct fb_upload *upload = pipeline->upload;
    int status = FOREBAY_OK;

    if (batch->upload.state != FB_UPLOAD_STARTED)
        return FOREBAY_OK;
    if (!fb_upload_finish(upload, batch)) {
        /* The time it is, for the figures; and the caller's stream waits, not the caller. */
        upload->ops->record(upload->device, upload->clock, &batch->staging.asked, NULL);
        status = upload->ops->stream_wait(upload->device, NULL, batch->staging.copied, error);
        if (!status)
            fb_upload_finish(upload, batch);
    }
    if (!batch->staging.copied)
        lend_slot(pipeline, batch);
    return status;
}

/* Fences: what the caller has started with the batch is done when they fire. */
static void fences_record(struct fb_upload *upload, struct fb_batch *batch)
{
    struct fb_batch_upload *state = &batch->upload;
    struct fb_device_buffer *buffer = &state->buffer;
    unsigned count = state->stream_count ? state->stream_count : 1;

    for (unsigned i = 0; i < count; i++) {
        void *stream = state->stream_count ? state->streams[i] : NULL, *event = NULL;

        /* A driver that is shutting down does nothing any more with the memory. */
        upload->ops->record(upload->device, stream, &event, NULL);
        if (event)
            buffer->fences[buffer->fence_count++] = event;
    }
}

static void upload_take_back(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    struct fb_upload *upload = pipeline->upload;

    if (batch->upload.state != FB_UPLOAD_STARTED)
        return;
    fences_record(upload, batch);
    fb_upload_free_views(upload, batch);
    if (batch->staging.copied)
        fb_upload_finish(upload, batch); /* else whoever writes the slot next waits for it */
    fb_buffer_put(upload, &batch->upload.buffer);
    batch->upload.state = FB_UPLOAD_NONE;
}

/* No fence is needed: the next copy into the buffer is on the same stream. Views and events stay
 * until the header is used again, so that the device is not called under the lock. */
void fb_upload_drop_locked(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    struct fb_upload *upload = pipeline->upload;

    batch->upload.state = FB_UPLOAD_NONE;
    upload->starved = false;
    if (upload->cache && !upload->stopped)
        fb_device_cache_forget_locked(upload->cache, batch);
    if (!batch->upload.buffer.memory || upload->spare_count == FB_BUFFERS_FREE || upload->stopped)
        return;
    upload->spare[upload->spare_count++] = batch->upload.buffer;
    batch->upload.buffer = (struct fb_device_buffer){ .memory = NULL };
}

static int upload_use_on(struct fb_batch *batch, void *stream, forebay_error *error)
{
    struct fb_batch_upload *state = &batch->upload;
    struct fb_upload *upload = batch->pipeline->upload;
    int status;

    if (state->state != FB_UPLOAD_STARTED)
        return FOREBAY_OK; /* in host memory: there is nothing to wait for */
    for (unsigned i = 0; i < state->stream_count; i++)
        if (state->streams[i] == stream)
            return FOREBAY_OK;
    if (state->stream_count == FB_STREAMS)
        return fb_fail(error, FOREBAY_BAD_USE,
                       "a batch may be used on %d streams; order further ones after one of these",
                       FB_STREAMS);
    status = upload->ops->stream_wait(upload->device, stream, batch->staging.copied, error);
    if (!status)
        state->streams[state->stream_count++] = stream;
    return status;
}

static int upload_read(const struct fb_batch *batch, const forebay_field *field, void *to,
                       forebay_error *error)
{
    const struct fb_upload *upload = batch->pipeline->upload;
    int status;

    if (batch->upload.state != FB_UPLOAD_STARTED) {
        if (field->bytes)
            memcpy(to, field->data, field->bytes);
        return FOREBAY_OK;
    }
    status = upload->ops->event_wait(upload->device, batch->staging.copied, error);
    if (!status)
        status = upload->ops->download(upload->device, NULL, to, field->data, 0, field->bytes,
                                       error);
    return status;
}

const struct fb_device_stage fb_device_stage = {
    .open = upload_open,
    .stop = upload_stop,
    .free = upload_free,
    .preload = fb_upload_preload,
    .trim = upload_trim,
    .find = upload_find,
    .step_locked = upload_step_locked,
    .is_over = upload_is_over,
    .hand_out = upload_hand_out,
    .take_back = upload_take_back,
    .drop_locked = fb_upload_drop_locked,
    .release = fb_upload_release,
    .map = fb_upload_map,
    .unmap = fb_upload_unmap,
    .settle = fb_upload_settle,
    .use_on = upload_use_on,
    .read = upload_read,
    .read_report_locked = fb_upload_read_report_locked,
};
