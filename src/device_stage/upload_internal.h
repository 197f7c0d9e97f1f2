/*
 * upload_internal.h -- what the files of the device stage share.
 *
 *   upload.c         which batch and when; to the caller and back
 *   upload_copy.c    the copy of one batch
 *   upload_cache.c   the device's cache: what its entries are, and how large
 *   upload_preload.c the cache filled before the first batch
 *   upload_memory.c  pinned slots, device buffers, what is given back when there is no room
 */
#ifndef FB_DEVICE_STAGE_UPLOAD_INTERNAL_H
#define FB_DEVICE_STAGE_UPLOAD_INTERNAL_H
#include "device_stage/assemble.h"
#include "device_stage/upload.h"
#include "pipeline/pipeline_internal.h"

struct fb_upload {
    struct fb_device *device;
    const struct fb_device_ops *ops;
    pthread_mutex_t *lock; /* the pipeline's */
    const struct fb_log *log;
    void *stream; /* copies; used by whoever uploads, who is alone */
    void *clock;  /* always idle: an event recorded there is the time it is now */
    struct fb_device_cache *cache; /* NULL: none */
    const struct fb_collation *collation;

    atomic_uint_least64_t device_bytes, device_peak;

    /* Guarded by the pipeline's lock: */
    bool uploading, stopped;
    bool starved; /* no device memory for one more; cleared when a buffer comes back */
    bool warned_prefetch, warned_host, warned_pinned, warned_cache;
    uint64_t ahead;
    struct fb_device_buffer spare[FB_BUFFERS_FREE];
    unsigned spare_count;
    struct fb_upload_report figures;
};

/* ---- upload.c ---- */
void fb_upload_drop_locked(struct fb_pipeline *pipeline, struct fb_batch *batch);

/* ---- upload_preload.c ---- */
int fb_upload_preload(struct fb_pipeline *pipeline, forebay_error *error);

/* ---- upload_memory.c ---- */
/* See the functions of the same names in pipeline/device_stage.h. */
int fb_upload_map(struct fb_upload *upload, struct fb_batch *batch, uint64_t bytes,
                  forebay_error *error);
void fb_upload_unmap(struct fb_upload *upload, struct fb_batch *batch);
void fb_upload_settle(struct fb_upload *upload, struct fb_batch *batch);
void fb_upload_release(struct fb_upload *upload, struct fb_batch *batch);
void fb_upload_read_report_locked(const struct fb_upload *upload, struct fb_upload_report *report);
/* A buffer of at least `bytes`, `generous` if that can be had; NO_MEMORY after all that is spare or
 * cached was given back. Called by the one who uploads. */
int fb_buffer_get(struct fb_upload *upload, uint64_t bytes, uint64_t generous,
                  struct fb_device_buffer *out, forebay_error *error);
/* It is spare, once its fences have fired. */
void fb_buffer_put(struct fb_upload *upload, struct fb_device_buffer *buffer);
void fb_buffer_free(struct fb_upload *upload, struct fb_device_buffer *buffer);
/* The cache gives its last chunk back; false if it cannot. `why` is said the first time. Called by
 * the one who uploads. */
bool fb_upload_drop_chunk(struct fb_upload *upload, const char *why);
void fb_upload_free_views(struct fb_upload *upload, struct fb_batch *batch);
void fb_upload_free_events(struct fb_upload *upload, struct fb_batch *batch);
/* If the copy is over, be done with its events; the slot is free to be written. */
bool fb_upload_finish(struct fb_upload *upload, struct fb_batch *batch);

/* ---- upload_cache.c ---- */
/* device.cache: samples or units, whichever serves this source; BAD_CONFIG if it can have none. */
int fb_upload_cache_open(struct fb_upload *upload, struct fb_pipeline *pipeline,
                         forebay_error *error);

/* ---- upload_copy.c ---- */
/* Get a buffer and start the copy. On failure the batch is as it was. */
int fb_upload_start(struct fb_upload *upload, struct fb_batch *batch, forebay_error *error);
struct fb_assembly fb_upload_assembly(const struct fb_upload *upload, struct fb_batch *batch);
#endif
