/* upload_copy.c -- the copy of one batch to the device. */
#include "device_stage/upload_internal.h"

#include <inttypes.h>

#include "base/size.h"

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

struct fb_assembly fb_upload_assembly(const struct fb_upload *upload, struct fb_batch *batch)
{
    return (struct fb_assembly){ .cache = upload->cache,
                               .collation = upload->collation,
                               .batch = batch,
                               .device = upload->device,
                               .stream = upload->stream };
}

/* Room for what is not cached, as far as there is any; a floor of free memory comes first. */
static void cache_plan(struct fb_upload *upload, struct fb_batch *batch)
{
    struct fb_device_cache *cache = upload->cache;
    forebay_error error;
    bool first = false;

    if (cache->chunk_count && fb_device_cache_is_tight(cache, 0))
        fb_upload_drop_chunk(upload, "the device has less than a tenth of its memory left");
    if (fb_device_cache_plan(cache, batch, &error)) {
        pthread_mutex_lock(upload->lock);
        first = !upload->warned_cache;
        upload->warned_cache = true;
        pthread_mutex_unlock(upload->lock);
    }
    if (first)
        fb_warn(upload->log, "%s; device.cache holds %" PRIu64 " %s", error.message, cache->limit,
                cache->source ? "units" : "samples");
}

static int copy_missing(struct fb_upload *upload, struct fb_batch *batch, forebay_error *error)
{
    struct fb_assembly assembly = fb_upload_assembly(upload, batch);
    int status;

    cache_plan(upload, batch);
    status = fb_assembly_start(&assembly, error);
    batch->upload.copied = assembly.copied;
    return status;
}

static int copy_start(struct fb_upload *upload, struct fb_batch *batch, forebay_error *error)
{
    const struct fb_device_ops *ops = upload->ops;
    struct fb_device_buffer *buffer = &batch->upload.buffer;
    int status = FOREBAY_OK;

    batch->upload.copied = batch->span;
    /* What the caller still does with the buffer comes first. */
    for (unsigned i = 0; i < buffer->fence_count && !status; i++)
        status = ops->stream_wait(upload->device, upload->stream, buffer->fences[i], error);
    for (; buffer->fence_count > 0 && !status; buffer->fence_count--)
        ops->event_free(upload->device, buffer->fences[buffer->fence_count - 1]);
    if (!status)
        status = ops->record(upload->device, upload->stream, &batch->staging.began, error);
    if (!status && upload->cache)
        status = copy_missing(upload, batch, error);
    else if (!status)
        status = (batch->staging.pinned.memory ? ops->upload : ops->upload_now)(
            upload->device, upload->stream, buffer->memory, 0, batch->memory, batch->span, error);
    if (!status)
        status = ops->record(upload->device, upload->stream, &batch->staging.copied, error);
    return status;
}

/* The failed start of a copy leaves nothing behind: the batch is as it was. */
static void undo(struct fb_upload *upload, struct fb_batch *batch)
{
    fb_upload_free_views(upload, batch);
    if (!batch->staging.copied) /* part of it may be under way */
        upload->ops->record(upload->device, upload->stream, &batch->staging.copied, NULL);
    upload->ops->event_wait(upload->device, batch->staging.copied, NULL);
    fb_upload_free_events(upload, batch);
    fb_buffer_put(upload, &batch->upload.buffer);
    for (size_t i = 0; i < batch->shown.field_count; i++)
        batch->fields[i].data = (char *)batch->memory + batch->placed[i].offset;
}

int fb_upload_start(struct fb_upload *upload, struct fb_batch *batch, forebay_error *error)
{
    int status;

    if (batch->upload.buffer.memory) /* there were too many spare ones to take it */
        fb_buffer_put(upload, &batch->upload.buffer);
    status = fb_buffer_get(upload, batch->span, fb_max(batch->span, batch->capacity),
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
