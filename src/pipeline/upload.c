#include "pipeline/upload.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"
#include "pipeline/core.h"

struct fb_upload {
    struct fb_device *device;
    const struct fb_device_ops *ops;
    pthread_mutex_t *lock; /* the pipeline's */
    const struct fb_log *log;
    void *stream; /* copies; used by whoever uploads, who is alone */
    void *clock;  /* always idle: an event recorded there is the time it is now */

    atomic_uint_least64_t device_bytes, device_peak;

    /* Guarded by the pipeline's lock: */
    bool uploading, stopped;
    bool starved; /* no device memory for one more; cleared when a buffer comes back */
    bool said_prefetch, said_host, said_pinned;
    uint64_t ahead;
    struct fb_device_buffer spare[FB_BUFFERS_FREE];
    unsigned spare_count;
    struct fb_upload_report figures;
};

/* ---- Open and close ---- */

int fb_upload_open(struct fb_upload **out, struct fb_pipeline *pipeline, struct fb_device *device,
                   uint64_t ahead, forebay_error *error)
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
    upload->ahead = ahead;
    if (device->align > FB_DEVICE_ALIGN)
        status = fb_fail(error, FOREBAY_NO_DEVICE, "%s:%u wants buffers aligned to %" PRIu64
                         " bytes; forebay aligns them to %d", device->ops->kind, device->number,
                         device->align, FB_DEVICE_ALIGN);
    else
        status = device->ops->stream_open(device, &upload->stream, error);
    if (!status)
        status = device->ops->stream_open(device, &upload->clock, error);
    if (status) {
        fb_upload_stop(upload);
        fb_upload_free(upload, pipeline);
        return status;
    }
    *out = upload;
    return FOREBAY_OK;
}

/* Nothing may be under way in it when it is freed. */
static void buffer_free(struct fb_upload *upload, struct fb_device_buffer *buffer)
{
    for (unsigned i = 0; i < buffer->fence_count; i++) {
        upload->ops->event_wait(upload->device, buffer->fences[i], NULL);
        upload->ops->event_free(upload->device, buffer->fences[i]);
    }
    upload->ops->free(upload->device, buffer->memory, buffer->capacity);
    atomic_fetch_sub(&upload->device_bytes, buffer->capacity);
    *buffer = (struct fb_device_buffer){ .memory = NULL };
}

void fb_upload_stop(struct fb_upload *upload)
{
    pthread_mutex_lock(upload->lock);
    upload->stopped = true; /* what comes back from now on is freed at once */
    pthread_mutex_unlock(upload->lock);
    if (upload->stream)
        upload->ops->stream_close(upload->device, upload->stream);
    if (upload->clock)
        upload->ops->stream_close(upload->device, upload->clock);
    upload->stream = upload->clock = NULL;
    while (upload->spare_count > 0)
        buffer_free(upload, &upload->spare[--upload->spare_count]);
}

void fb_upload_free(struct fb_upload *upload, struct fb_pipeline *pipeline)
{
    fb_device_close(upload->device);
    fb_block_free(pipeline->options.budget, FB_STAGE_OTHER, upload, 1, sizeof(*upload));
}

/* ---- Slots ---- */

static void events_free(struct fb_upload *upload, struct fb_batch *batch)
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
    said = upload->said_pinned;
    upload->said_pinned = true;
    pthread_mutex_unlock(upload->lock);
    if (!said)
        fb_warn(upload->log, "device: %s; copies from such memory hold up the worker that starts "
                "them", reason.message);
    return batch->memory ? FOREBAY_OK : FOREBAY_NO_MEMORY;
}

void fb_upload_unmap(struct fb_upload *upload, struct fb_batch *batch)
{
    upload->ops->event_wait(upload->device, batch->staging.copied, NULL);
    events_free(upload, batch);
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
static bool finish_copy(struct fb_upload *upload, struct fb_batch *batch)
{
    if (!upload->ops->event_done(upload->device, batch->staging.copied))
        return false;
    if (batch->staging.copied)
        account(upload, batch);
    events_free(upload, batch);
    return true;
}

static void views_free(struct fb_upload *upload, struct fb_batch *batch)
{
    while (batch->upload.views > 0)
        upload->ops->unview(upload->device, batch->fields[--batch->upload.views].data);
}

void fb_upload_settle(struct fb_upload *upload, struct fb_batch *batch)
{
    upload->ops->event_wait(upload->device, batch->staging.copied, NULL);
    finish_copy(upload, batch);
    views_free(upload, batch);
}

void fb_upload_release(struct fb_upload *upload, struct fb_batch *batch)
{
    views_free(upload, batch);
    if (batch->upload.buffer.memory)
        buffer_free(upload, &batch->upload.buffer);
}

void fb_upload_read_report_locked(const struct fb_upload *upload, struct fb_upload_report *report)
{
    *report = upload->figures;
    report->kind = upload->ops->kind;
    report->prefetch = upload->ahead;
    report->device_bytes = atomic_load(&upload->device_bytes);
    report->device_peak_bytes = atomic_load(&upload->device_peak);
}

/* ---- Device memory ---- */

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

/* A buffer for `bytes`: a spare one, or a new one in place of one that is too small. When there is
 * no room, all that are spare go first. */
static int buffer_get(struct fb_upload *upload, uint64_t bytes, uint64_t generous,
                      struct fb_device_buffer *out, forebay_error *error)
{
    struct fb_device_buffer small;
    int status;

    if (spare_take(upload, bytes, false, out))
        return FOREBAY_OK;
    if (spare_take(upload, bytes, true, &small))
        buffer_free(upload, &small);
    status = buffer_alloc(upload, generous, out, error);
    if (status != FOREBAY_NO_MEMORY)
        return status;
    while (spare_take(upload, bytes, true, &small))
        buffer_free(upload, &small);
    return buffer_alloc(upload, bytes, out, error);
}

/* It is spare, once its fences have fired. Too many: the last must go. */
static void spare_put(struct fb_upload *upload, struct fb_device_buffer *buffer)
{
    bool kept;

    pthread_mutex_lock(upload->lock);
    kept = upload->spare_count < FB_BUFFERS_FREE && !upload->stopped;
    if (kept)
        upload->spare[upload->spare_count++] = *buffer;
    upload->starved = false;
    pthread_mutex_unlock(upload->lock);
    if (!kept)
        buffer_free(upload, buffer);
    *buffer = (struct fb_device_buffer){ .memory = NULL };
}

/* ---- The copy ---- */

/* Show the fields where they will be. */
static int views_make(struct fb_upload *upload, struct fb_batch *batch, forebay_error *error)
{
    for (size_t i = 0; i < batch->shown.field_count; i++) {
        void *view;
        int status = upload->ops->view(upload->device, batch->upload.buffer.memory,
                                       batch->placed[i].offset, batch->placed[i].bytes, &view,
                                       error);

        if (status)
            return status;
        batch->fields[i].data = view;
        batch->upload.views++;
    }
    return FOREBAY_OK;
}

static int copy_start(struct fb_upload *upload, struct fb_batch *batch, forebay_error *error)
{
    const struct fb_device_ops *ops = upload->ops;
    struct fb_device_buffer *buffer = &batch->upload.buffer;
    int status = FOREBAY_OK;

    /* What the caller still does with the buffer comes first. */
    for (unsigned i = 0; i < buffer->fence_count && !status; i++)
        status = ops->stream_wait(upload->device, upload->stream, buffer->fences[i], error);
    for (; buffer->fence_count > 0 && !status; buffer->fence_count--)
        ops->event_free(upload->device, buffer->fences[buffer->fence_count - 1]);
    if (!status)
        status = ops->record(upload->device, upload->stream, &batch->staging.began, error);
    if (!status)
        status = (batch->staging.pinned.memory ? ops->upload : ops->upload_now)(
            upload->device, upload->stream, buffer->memory, 0, batch->memory, batch->span, error);
    if (!status)
        status = ops->record(upload->device, upload->stream, &batch->staging.copied, error);
    return status;
}

/* The failed start of a copy leaves nothing behind: the batch is as it was. */
static void undo(struct fb_upload *upload, struct fb_batch *batch)
{
    views_free(upload, batch);
    if (!batch->staging.copied) /* part of it may be under way */
        upload->ops->record(upload->device, upload->stream, &batch->staging.copied, NULL);
    upload->ops->event_wait(upload->device, batch->staging.copied, NULL);
    events_free(upload, batch);
    spare_put(upload, &batch->upload.buffer);
    for (size_t i = 0; i < batch->shown.field_count; i++)
        batch->fields[i].data = (char *)batch->memory + batch->placed[i].offset;
}

static int start(struct fb_upload *upload, struct fb_batch *batch, forebay_error *error)
{
    int status;

    if (batch->upload.buffer.memory) /* there were too many spare ones to take it */
        spare_put(upload, &batch->upload.buffer);
    status = buffer_get(upload, batch->span, fb_max(batch->span, batch->capacity),
                        &batch->upload.buffer, error);
    if (status)
        return status;
    status = views_make(upload, batch, error);
    if (!status)
        status = copy_start(upload, batch, error);
    if (status) {
        undo(upload, batch);
        return status;
    }
    batch->shown.device_type = upload->ops->dlpack_type;
    batch->shown.device_id = (int)upload->device->number;
    return FOREBAY_OK;
}

/* ---- Which batch, and when ---- */

static bool is_data(const struct fb_batch *batch)
{
    return batch->error_at == UINT64_MAX && batch->shown.samples > 0;
}

bool fb_upload_is_over(const struct fb_pipeline *pipeline, const struct fb_batch *batch)
{
    return !pipeline->upload || !is_data(batch) || batch->upload.state != FB_UPLOAD_NONE;
}

/* The oldest that waits, of those that may go ahead of the caller. */
static struct fb_batch *find_locked(struct fb_pipeline *pipeline, uint64_t ahead)
{
    uint64_t end = fb_min(pipeline->tail, pipeline->head + ahead);

    for (uint64_t place = pipeline->head; place < end; place++) {
        struct fb_batch *batch = *fb_ring_at(pipeline, place);

        if (!batch->ready)
            return NULL;
        if (!fb_upload_is_over(pipeline, batch))
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
    bool *said = now ? &upload->said_host : &upload->said_prefetch;
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
        pipeline->upload->figures.bytes_copied += batch->span;
    } else if (status == FOREBAY_NO_MEMORY) {
        no_room_locked(pipeline, batch, now, error);
    } else {
        batch->error_at = 0;
        batch->error = *error;
    }
}

bool fb_upload_step_locked(struct fb_pipeline *pipeline, bool now)
{
    struct fb_upload *upload = pipeline->upload;
    struct fb_batch *batch;
    forebay_error error;
    int status;

    if (!upload || upload->uploading || (!now && upload->starved))
        return false;
    batch = find_locked(pipeline, now ? 1 : upload->ahead);
    if (!batch)
        return false;
    upload->uploading = true;
    batch->active++;
    pthread_mutex_unlock(&pipeline->lock);
    status = start(upload, batch, &error);
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
        pipeline->starved = false;
        pthread_cond_signal(&pipeline->work);
    }
    pthread_mutex_unlock(&pipeline->lock);
}

int fb_upload_hand_out(struct fb_pipeline *pipeline, struct fb_batch *batch, forebay_error *error)
{
    struct fb_upload *upload = pipeline->upload;
    int status = FOREBAY_OK;

    if (!upload || batch->upload.state != FB_UPLOAD_STARTED)
        return FOREBAY_OK;
    if (!finish_copy(upload, batch)) {
        /* The time it is, for the figures; and the caller's stream waits, not the caller. */
        upload->ops->record(upload->device, upload->clock, &batch->staging.asked, NULL);
        status = upload->ops->stream_wait(upload->device, NULL, batch->staging.copied, error);
        if (!status)
            finish_copy(upload, batch);
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

void fb_upload_take_back(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    struct fb_upload *upload = pipeline->upload;

    if (!upload || batch->upload.state != FB_UPLOAD_STARTED)
        return;
    fences_record(upload, batch);
    views_free(upload, batch);
    if (batch->staging.copied)
        finish_copy(upload, batch); /* else whoever writes the slot next waits for it */
    spare_put(upload, &batch->upload.buffer);
    batch->upload.state = FB_UPLOAD_NONE;
}

/* No fence is needed: the next copy into the buffer is on the same stream. Views and events stay
 * until the header is used again, so that the device is not called under the lock. */
void fb_upload_drop_locked(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    struct fb_upload *upload = pipeline->upload;

    if (!upload)
        return;
    batch->upload.state = FB_UPLOAD_NONE;
    upload->starved = false;
    if (!batch->upload.buffer.memory || upload->spare_count == FB_BUFFERS_FREE || upload->stopped)
        return;
    upload->spare[upload->spare_count++] = batch->upload.buffer;
    batch->upload.buffer = (struct fb_device_buffer){ .memory = NULL };
}

int fb_upload_use_on(struct fb_batch *batch, void *stream, forebay_error *error)
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
                       "a batch may be used on %d streams; order further ones behind one of these",
                       FB_STREAMS);
    status = upload->ops->stream_wait(upload->device, stream, batch->staging.copied, error);
    if (!status)
        state->streams[state->stream_count++] = stream;
    return status;
}

int fb_upload_read(const struct fb_batch *batch, const forebay_field *field, void *to,
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
