/*
 * pipeline.h -- the stages joined: take (serial) -> fetch (parallel) -> deliver (in order).
 *
 *   order ─▶ open batch ─▶ items ─▶ workers: cache or load, straight into the slot ─▶ ring ─▶ next
 *
 * A batch is opened by one worker at a time: it asks the order for the samples, the source for
 * their extents, lays the fields out and gets a slot; then every worker takes runs of its samples
 * (about 256 KiB each). Batches leave strictly in order. No source, decoder, device or Python code
 * ever runs under the lock.
 */
#ifndef FB_PIPELINE_PIPELINE_H
#define FB_PIPELINE_PIPELINE_H
#include "cache/cache.h"
#include "device/device.h"
#include "order/order.h"
#include "pipeline/device_stage.h"
#include "source/source.h"

#define FB_WAIT_BUCKETS 64   /* histogram of the caller's waits, powers of sqrt 2 from 1 us */
#define FB_EPOCHS_KEPT 64    /* epochs whose figures are kept, the newest */
#define FB_FAILURES_KEPT 32  /* failed samples that are kept with their reason */

struct fb_pipeline_options {
    struct fb_source *source; /* borrowed, all of these */
    const struct fb_order *order;
    struct fb_cache *cache;   /* NULL: none */
    struct fb_device *device; /* NULL or host: batches stay there */
    const struct fb_device_stage *device_stage; /* of a device other than the host */
    struct fb_budget *budget;
    const struct fb_log *log;
    const struct fb_config *config; /* batch, on_error, max_errors, cpu */
    struct fb_ranks ranks;
    uint64_t seed;
    int on_error;             /* FB_ON_ERROR_*, resolved */
    bool next_use;            /* the cache's policy is next-use */
    uint64_t workers, prefetch;
    uint64_t slots_floor;     /* bytes of slots that are reserved at open and never given back */
    uint64_t epochs;          /* how many will be run, UINT64_MAX if not known */
    /* (optional) Workers did not come back from the kernel: close calls `stuck`; when the last of
     * them came back after all, it calls `left`, and nothing that was borrowed is used any more. */
    void (*stuck)(void *owner);
    void (*left)(void *owner);
    void *owner;
};

struct fb_pipeline;

#define FB_RUN_BYTES ((uint64_t)256 * 1024) /* small samples are taken in runs of about this */

/* What one batch takes in memory, and what a worker does: the formulas of plan and run. */
struct fb_pipeline_needs {
    uint64_t slot;       /* the largest batch with its header; 0 if not known before it comes */
    uint64_t header;     /* the part of it that is no data */
    uint64_t per_worker; /* scratch, reader, stack, libraries */
    uint64_t scratch;    /* the part of it that is decode memory */
    bool fixed;          /* every batch takes `slot` */
    uint64_t certain;    /* a batch of this size will come, header included; 0: not known */
};
int fb_pipeline_measure(struct fb_pipeline_needs *needs, const struct fb_source *source,
                        const struct fb_config *config, bool cached, struct fb_budget *budget,
                        forebay_error *error);

int fb_pipeline_open(struct fb_pipeline **out, const struct fb_pipeline_options *options,
                     forebay_error *error);
/* The workers, who waited till now, begin. Whatever else takes a processor at open comes before:
 * from here on the caller waits for the first batch. */
void fb_pipeline_start(struct fb_pipeline *pipeline);
/* Within a second; a worker stuck in the kernel is abandoned with its slot, and logged. Returns how
 * many: if any, what was borrowed must stay until options.left is called, which may be before this
 * returns. Batches the caller holds stay valid. */
unsigned fb_pipeline_close(struct fb_pipeline *pipeline);

/* Waits at most `timeout_ns` (UINT64_MAX: for ever) and then says FOREBAY_TIMEOUT. */
int fb_pipeline_next(forebay_batch **out, struct fb_pipeline *pipeline, uint64_t timeout_ns,
                     forebay_error *error);
void fb_pipeline_batch_release(forebay_batch *batch);
/* What forebay_batch_use_on and forebay_batch_read do. */
int fb_pipeline_batch_use_on(forebay_batch *batch, void *stream, forebay_error *error);
int fb_pipeline_batch_read(const forebay_batch *batch, const forebay_field *field, void *to,
                           forebay_error *error);

/* Drop what is under way and go on at `at`. The caller's batches stay. */
void fb_pipeline_seek(struct fb_pipeline *pipeline, struct fb_cursor at);
/* Where the caller stands: the stretch and how many local positions were handed out of it. */
void fb_pipeline_tell(struct fb_pipeline *pipeline, struct fb_cursor *at, uint64_t *local);

/* Live setters [any thread]: effective within one batch; return what was reached. */
uint64_t fb_pipeline_set_workers(struct fb_pipeline *pipeline, uint64_t workers);
uint64_t fb_pipeline_set_prefetch(struct fb_pipeline *pipeline, uint64_t prefetch);
uint64_t fb_pipeline_set_cpu_share(struct fb_pipeline *pipeline, uint64_t running);
/* Give free slots beyond the floor back to the budget. Returns the bytes. */
uint64_t fb_pipeline_trim(struct fb_pipeline *pipeline);

/* Give device memory back, the cache's. Returns the bytes. */
uint64_t fb_pipeline_device_trim(struct fb_pipeline *pipeline, uint64_t bytes);

struct fb_epoch_report {
    uint64_t epoch, samples, batches, hits, misses, bytes_read, skipped, replaced;
    double seconds; /* from its first next() to its end, or until now */
};

struct fb_pipeline_report {
    uint64_t samples, batches, bytes; /* delivered, all epochs */
    uint64_t delivered_ns; /* when the last one was, by fb_now_ns(); 0: none yet */
    uint64_t skipped, replaced, failed;
    uint64_t hits, misses, bytes_read; /* uses of units */
    uint64_t workers, prefetch, cpu_share;
    uint64_t in_flight, ready, held, held_bytes;
    uint64_t running; /* workers that fill a batch right now */
    bool starved;     /* the next batch waits for memory */
    /* Where the workers' time went, in all; what is neither reading nor copying is decoding. */
    uint64_t busy_ns, read_ns, copy_ns;
    uint64_t caller;  /* the thread that called next() last; 0: none yet */
    uint64_t abandoned_workers;
    uint64_t epoch, position, epoch_batches; /* where the caller stands */
    uint64_t epoch_samples; /* `position` ends here */
    double seconds;       /* since the end of open */
    double first_batch_s; /* NAN before it */
    double wait_s, wait_p50_ms, wait_p99_ms; /* of the caller in next(); NAN before the first */
    uint64_t epoch_count; /* epochs begun */
    struct fb_epoch_report epochs[FB_EPOCHS_KEPT]; /* the newest min(count, KEPT), oldest first */
    struct fb_upload_report device; /* .kind NULL: the host */
    uint64_t failure_count;
    struct fb_failure {
        uint64_t epoch, sample;
        char reason[192];
    } failures[FB_FAILURES_KEPT];
};
void fb_pipeline_read_report(struct fb_pipeline *pipeline, struct fb_pipeline_report *report);

/* What each worker does right now. READS: waits for the disk or the network. */
enum fb_worker_doing { FB_WORKER_WAITS, FB_WORKER_READS, FB_WORKER_DECODES };
/* Of the first `max` workers; returns how many there are of those. */
unsigned fb_pipeline_read_workers(struct fb_pipeline *pipeline, unsigned char *doing, unsigned max);
/* Say, once each, which reads have been under way for > 10 s. For someone to ask every second. */
void fb_pipeline_check_slow(struct fb_pipeline *pipeline);
#endif
