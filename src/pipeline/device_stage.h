/*
 * device_stage.h -- what the pipeline asks of a device stage, which copies batches that are ready to
 * the device ahead of the caller. The pipeline calls it through one struct of functions only; the
 * stage itself is in src/device_stage, and the loader joins the two.
 *
 *     ready ──step──▶ copying ──hand_out──▶ the caller's ──take_back──▶ buffer free, after fences
 *       '──▶ on the host                                              (the device has no room now)
 *
 * Copies run on a stream of our own, in the order of the batches. No thread waits for a copy: the
 * caller's stream does (an event), and so does the next copy into a buffer the caller gave back (a
 * fence: an event recorded on the caller's stream at release). Buffers are reused, as slots are;
 * there are never more than batches copied ahead and held together.
 *
 * One worker (or the caller) uploads at a time; pipeline->lock is dropped around every call of the
 * device, except where a pinned slot is unmapped, as any slot is.
 */
#ifndef FB_PIPELINE_DEVICE_STAGE_H
#define FB_PIPELINE_DEVICE_STAGE_H
#include "device/device.h"

#define FB_STREAMS 4          /* of the caller, that one batch may be used on */
#define FB_BUFFERS_FREE 64    /* device buffers kept for the next batches, at most */
#define FB_PLACE_NONE UINT32_MAX         /* batch->places[i]: the device's cache does not have it */
#define FB_PLACE_WANTED (UINT32_MAX - 1) /* it does not have it, and will keep it when it comes */
#define FB_DEVICE_ALIGN 1024  /* of a field in a batch: enough for a view on every device known */

/* Device memory of one batch. */
struct fb_device_buffer {
    void *memory; /* NULL: none */
    uint64_t capacity;
    void *fences[FB_STREAMS]; /* events: what the caller did with it is done */
    unsigned fence_count;
};

enum fb_uploaded {
    FB_UPLOAD_NONE,
    FB_UPLOAD_STARTED, /* the fields are on the device, when `copied` fires */
    FB_UPLOAD_HOST,    /* the device had no room: handed out as it is */
};

/* What a batch has of it. */
struct fb_batch_upload {
    enum fb_uploaded state;
    struct fb_device_buffer buffer;
    unsigned views;            /* fields that have one */
    void *streams[FB_STREAMS]; /* the caller works with it on these */
    unsigned stream_count;
    uint64_t copied; /* bytes that crossed the bus */
    uint64_t chunks[4]; /* of the device's cache that it counts on: a bit each */
};

/* What belongs to a slot that the device copies from, and goes where its memory goes. */
struct fb_staging {
    struct fb_pinned pinned;      /* .memory NULL: pageable, for want of pinned memory */
    void *began, *asked, *copied; /* events: the copy began, the caller asked for it, it is done */
};

struct fb_pipeline;
struct fb_batch;
struct fb_upload;

struct fb_upload_report {
    const char *kind;
    uint64_t prefetch; /* batches copied ahead: lowered when the device has no room */
    uint64_t device_bytes, device_peak_bytes; /* allocated by us */
    uint64_t bytes_copied;
    uint64_t cache_hits, cache_misses, cache_items; /* samples */
    uint64_t cache_bytes; /* of device memory, beside device_bytes */
    uint64_t allocated_bytes, reserved_bytes; /* of both: in use now; held in all */
    uint64_t host_batches; /* handed out in host memory for want of room */
    double hidden_s, exposed_s; /* of the copies' time: beside the caller's work, or waited for */
};

/* `_locked`: the caller holds pipeline->lock, and the stage may drop it meanwhile. */
struct fb_device_stage {
    /* Shares the device. `ahead`: device.prefetch. */
    int (*open)(struct fb_upload **out, struct fb_pipeline *pipeline, struct fb_device *device,
                uint64_t ahead, forebay_error *error);
    /* No more copies: all is freed but what the caller holds. */
    void (*stop)(struct fb_upload *upload);
    void (*free)(struct fb_upload *upload, struct fb_pipeline *pipeline);
    /* device.preload: fill the cache, before the workers start. */
    int (*preload)(struct fb_pipeline *pipeline, forebay_error *error);
    /* Give device memory of the cache back. Returns the bytes. */
    uint64_t (*trim)(struct fb_pipeline *pipeline, uint64_t bytes);

    /* Which of the batch's samples are in device memory; they need not be loaded. */
    void (*find)(struct fb_pipeline *pipeline, struct fb_batch *batch);
    /* Start the copy of the oldest batch that waits for one; `now`: of the head, whatever the
     * prefetch. False: there is nothing to do. */
    bool (*step_locked)(struct fb_pipeline *pipeline, bool now);
    /* May this batch, which is ready, be handed out? */
    bool (*is_over)(const struct fb_pipeline *pipeline, const struct fb_batch *batch);
    /* Between the ring and the caller, and when the caller gives the batch back. */
    int (*hand_out)(struct fb_pipeline *pipeline, struct fb_batch *batch, forebay_error *error);
    void (*take_back)(struct fb_pipeline *pipeline, struct fb_batch *batch);
    /* The batch goes back unused: its buffer is spare. */
    void (*drop_locked)(struct fb_pipeline *pipeline, struct fb_batch *batch);
    /* The header goes for good. */
    void (*release)(struct fb_upload *upload, struct fb_batch *batch);

    /* A slot that the device copies from; mapped and paid for as others. */
    int (*map)(struct fb_upload *upload, struct fb_batch *batch, uint64_t bytes,
               forebay_error *error);
    void (*unmap)(struct fb_upload *upload, struct fb_batch *batch);
    /* Wait until nothing reads the batch's slot any more, so that it can be filled anew. */
    void (*settle)(struct fb_upload *upload, struct fb_batch *batch);

    /* The caller works with the batch on `stream`. */
    int (*use_on)(struct fb_batch *batch, void *stream, forebay_error *error);
    int (*read)(const struct fb_batch *batch, const forebay_field *field, void *to,
                forebay_error *error);
    void (*read_report_locked)(const struct fb_upload *upload, struct fb_upload_report *report);
};
#endif
