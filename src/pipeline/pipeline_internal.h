/*
 * pipeline_internal.h -- what the files of the pipeline (and the device stage) share.
 *
 *   slots.c    memory of batches: mapped once, used for ever, paid from the budget
 *   work.c     what a worker does: open a batch, or fill a run of samples; seal what is complete
 *   workers.c  threads, added and dropped while running
 *   preload.c  the cache filled before the first batch
 *   deliver.c  batches to the caller, in order, and back
 *   figures.c  what is counted
 *
 * One lock guards all that is not constant. It is never held while a source, a decoder, the cache
 * or a mapping is at work. Order: pipeline->lock, then budget->lock.
 *
 * Whenever the lock is free: ring[head .. tail) are the batches in flight, oldest first, all opened
 * before any that is not there; at most one worker is `opening`; slots_mapped <= slots_paid, and
 * slots_paid is what the budget's FB_STAGE_SLOTS holds for us (headers apart).
 */
#ifndef FB_PIPELINE_INTERNAL_H
#define FB_PIPELINE_INTERNAL_H
#include <pthread.h>
#include <sys/types.h>

#include "pipeline/batch.h"
#include "pipeline/fetch.h"

#define FB_WORKERS_MAX 256
#define FB_PREFETCH_MAX 1024

struct fb_worker {
    struct fb_pipeline *pipeline;
    unsigned number;
    pthread_t thread;
    struct fb_worker_state state;

    /* Guarded by the pipeline's lock: */
    enum fb_worker_doing doing;
    bool leaving;   /* done with work, its memory is being released: only to be joined */
    bool abandoned; /* close did not wait for it: it frees itself */
};

/* A walk through the epochs: where the opener is, and where the caller is. */
struct fb_epoch_walk {
    struct fb_cursor at;
    uint64_t first; /* local positions behind it */
    uint64_t count; /* local positions of the stretch, without what drop_last leaves out */
};

struct fb_figures {
    uint64_t samples, batches, bytes, skipped, replaced, failed;
    uint64_t hits, misses, bytes_read;
    uint64_t busy_ns, read_ns, copy_ns; /* of all workers, when a run of samples is done */
    uint64_t first_batch_ns, delivered_ns, wait_ns;
    uint64_t waits_since_ns; /* the caller does, right now; 0: it does not */
    uint64_t waits[FB_WAIT_BUCKETS];
    uint64_t epoch_count;
    struct fb_epoch_report epochs[FB_EPOCHS_KEPT]; /* epoch e at e' % KEPT, e' the e'-th begun */
    uint64_t epoch_begun_ns;
    uint64_t failure_count;
    struct fb_failure failures[FB_FAILURES_KEPT];
};

struct fb_pipeline {
    struct fb_pipeline *next; /* of the process, guarded by fork.c */
    /* Constant after open: */
    struct fb_pipeline_options options;
    struct fb_log log;
    struct fb_collation collation;
    struct fb_fetcher fetcher;
    const struct fb_device_stage *stage; /* set if `upload` is */
    struct fb_upload *upload; /* the stage's own; NULL: batches stay on the host */
    struct fb_measure *measures;       /* [fields] for the opener, who is alone */
    struct fb_measure *fixed_measures; /* [fields] of a full batch, if the layout is fixed */
    uint64_t batch_size;
    bool used_once; /* there is a cache, and a unit is used once an epoch at most */
    bool drop_last;
    uint64_t errors_max;
    int nice;
    pid_t pid;

    pthread_mutex_t lock;
    pthread_cond_t work;  /* there may be something to do for a worker */
    pthread_cond_t ready; /* the caller may find what it waits for */

    /* Guarded by lock: */
    unsigned references; /* the owner, each batch the caller holds, each abandoned worker */
    bool started, stopping;
    uint64_t opened_ns; /* when it was started */
    struct fb_batch *ring[FB_PREFETCH_MAX];
    uint64_t head, tail;
    uint64_t generation; /* raised by a seek: what was opened before it is void */
    bool opening;
    bool starved;        /* no memory for the next batch; cleared when any may have come back */
    uint64_t starved_bytes;
    uint64_t frees, frees_seen; /* how often it was cleared; that when the opener set out */
    struct fb_epoch_walk open, delivered; /* the opener's and the caller's */
    uint64_t epoch_limit;      /* no batch of this epoch or later is opened ahead */

    struct fb_batch *free;
    uint64_t slots_paid, slots_mapped;
    uint64_t held, held_bytes;
    struct fb_batch *held_first;
    uint64_t held_most; /* since prefetch was set: so many slots are kept beside it */

    struct fb_worker *workers[FB_WORKERS_MAX];
    uint64_t worker_target, worker_count; /* wanted; there, and not leaving */
    struct fb_worker_state caller_state; /* with 0 workers the caller works itself, in next */
    bool has_own;
    uint64_t prefetch, cpu_share, running;
    uint64_t abandoned;
    uint64_t missing; /* of those: not back from the kernel yet */
    bool deserted;    /* close returned while some were missing: the last of them calls `left` */
    pid_t caller; /* the thread that called next() last; 0: none yet */
    struct fb_figures figures;
};

static inline struct fb_batch **fb_ring_at(struct fb_pipeline *pipeline, uint64_t place)
{
    return &pipeline->ring[place % FB_PREFETCH_MAX];
}

/* ---- slots.c ---- */
/* A free header, with whatever memory it has. NULL if there is none and no room for one. */
struct fb_batch *fb_slots_take(struct fb_pipeline *pipeline, forebay_error *error);
/* See to it that the batch has `bytes` of memory. False: not now. Only the opener calls these two,
 * without the lock. */
bool fb_slots_fit(struct fb_pipeline *pipeline, struct fb_batch *batch, uint64_t bytes,
                  forebay_error *error);
/* It waits for its next use; after close there is none. */
void fb_slots_give_back_locked(struct fb_pipeline *pipeline, struct fb_batch *batch);
/* Unmap and refund free slots until `paid` is at most `keep` bytes; their headers are freed. */
uint64_t fb_slots_trim_locked(struct fb_pipeline *pipeline, uint64_t keep);
/* A batch that comes back after close, or is dropped by it. */
void fb_slots_destroy_locked(struct fb_pipeline *pipeline, struct fb_batch *batch);

/* ---- work.c ---- */
/* fork.c: the pipelines of the process, and the batches that a fork takes along. */
void fb_fork_add(struct fb_pipeline *pipeline);
void fb_fork_remove(struct fb_pipeline *pipeline);
void fb_held_add_locked(struct fb_pipeline *pipeline, struct fb_batch *batch);
void fb_held_remove_locked(struct fb_pipeline *pipeline, struct fb_batch *batch);

/* Do one piece of work if there is any. The lock is dropped meanwhile. */
bool fb_work_step_locked(struct fb_pipeline *pipeline, struct fb_worker_state *state);
/* Make a batch that was begun, here and now and outside the ring. False: it cannot be had. */
bool fb_work_make(struct fb_pipeline *pipeline, struct fb_worker_state *state, struct fb_batch *batch);
/* Begin a walk at `at`. */
struct fb_epoch_walk fb_epoch_walk_begin(const struct fb_pipeline *pipeline, struct fb_cursor at);
/* Void all that is in flight. */
void fb_work_cancel_locked(struct fb_pipeline *pipeline);

/* ---- preload.c ---- */
/* Fill the cache in the order of the index, before the workers start. */
int fb_pipeline_preload(struct fb_pipeline *pipeline, forebay_error *error);

/* ---- workers.c ---- */
uint64_t fb_pipeline_scratch_bytes(const struct fb_source *source,
                                   const struct fb_collation *collation, bool cached);
uint64_t fb_pipeline_worker_bytes(const struct fb_source *source,
                                  const struct fb_collation *collation, bool cached);
int fb_worker_state_init(struct fb_worker_state *state, struct fb_pipeline *pipeline, forebay_error *error);
void fb_worker_state_release(struct fb_worker_state *state, struct fb_pipeline *pipeline);
/* Start threads until there are `target`; as many as there is memory for. */
int fb_workers_grow(struct fb_pipeline *pipeline, uint64_t target, forebay_error *error);
/* Join those that leave. */
void fb_workers_reap(struct fb_pipeline *pipeline);
/* Wait for all until `deadline_ns`; those that are stuck are abandoned. */
void fb_workers_stop(struct fb_pipeline *pipeline, uint64_t deadline_ns);

/* ---- deliver.c ---- */
void fb_pipeline_unref_locked(struct fb_pipeline *pipeline); /* unlocks; frees with the last */

/* ---- figures.c ---- */
void fb_figures_epoch_begin(struct fb_figures *figures, uint64_t epoch, uint64_t now_ns);
void fb_figures_epoch_end(struct fb_figures *figures, uint64_t now_ns);
/* What became of a batch on its way: hits, misses, failures. */
void fb_figures_batch(struct fb_figures *figures, const struct fb_batch *batch);
/* ... and whether the caller got it. */
void fb_figures_deliver(struct fb_figures *figures, const struct fb_batch *batch, int status);
uint64_t fb_figures_epoch_failures(struct fb_figures *figures);
void fb_figures_wait(struct fb_figures *figures, uint64_t wait_ns);
/* Memory may have come back: the next batch is tried again. */
static inline void fb_memory_freed_locked(struct fb_pipeline *pipeline)
{
    pipeline->starved = false;
    pipeline->frees++;
}
#endif
