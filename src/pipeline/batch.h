/*
 * batch.h -- one batch: its slot, its samples, what became of them.
 *
 *     free -> opening -> filling -> ready -> held -> free
 *                           '---------'---> free   (cancelled by a seek, or an error was returned)
 *
 * The slot (its memory) is mapped once and used for ever; only a batch that needs more gets a
 * larger one. Whoever opens, fills or seals a batch touches that batch alone; the counters that
 * several workers see are guarded by the pipeline's lock.
 */
#ifndef FB_PIPELINE_BATCH_H
#define FB_PIPELINE_BATCH_H
#include "order/order.h"
#include "pipeline/collate.h"
#include "pipeline/pipeline.h"
#include "pipeline/device_stage.h"

#define FB_BATCH_FAILURES 4 /* failed samples of one batch that are kept with their reason */

struct fb_batch {
    forebay_batch shown; /* first: what the caller holds is a pointer to this */
    struct fb_pipeline *pipeline;
    struct fb_batch *next, *previous; /* in the list of free slots, or of those the caller holds */

    void *memory;
    uint64_t capacity; /* bytes asked for when it was mapped; fb_map_bytes of it are taken */
    struct fb_staging staging;     /* with a device: of that memory */
    struct fb_batch_upload upload; /* with a device: where the batch is on it */

    /* Written by the worker that opens it, then constant while it is filled: */
    struct fb_cursor at;
    uint64_t first;    /* local position of its first sample */
    uint64_t count;    /* samples it was opened with */
    uint64_t run;      /* samples a worker takes at once */
    uint64_t *samples; /* [batch.size] */
    uint32_t *places;  /* [batch.size] with device.cache: what of it is there; else NULL */
    struct fb_placed *placed; /* [outputs] */
    forebay_field *fields;    /* [outputs] */
    uint64_t span; /* bytes of the slot that are its, gaps between fields included */
    uint64_t bytes;

    /* Each written by the worker that has the sample, read when all are done: */
    bool *kept; /* [batch.size]: loaded, or replaced */

    /* Guarded by the pipeline's lock: */
    uint64_t taken, done; /* samples */
    unsigned active;      /* workers inside */
    bool cancelled, ready;
    bool sealed; /* before its turn came, by the one worker that filled all of it */
    uint64_t hits, misses, bytes_read, skipped, replaced;
    uint64_t error_at; /* which sample `error` is of: the first in order wins; UINT64_MAX: none */
    forebay_error error;
    unsigned failure_count;
    struct fb_failure failures[FB_BATCH_FAILURES];
};

/* What a batch takes beside its data. */
uint64_t fb_batch_header_bytes(const struct fb_collation *collation);

/* A batch without memory; its header is reserved in the budget (FB_STAGE_SLOTS). */
int fb_batch_new(struct fb_batch **out, struct fb_pipeline *pipeline,
                 const struct fb_collation *collation, struct fb_budget *budget,
                 forebay_error *error);
void fb_batch_free(struct fb_batch *batch, const struct fb_collation *collation,
                   struct fb_budget *budget);

/* Make it a fresh one for `count` samples from local position `first` on. */
void fb_batch_begin(struct fb_batch *batch, struct fb_cursor at, uint64_t first, uint64_t count);
/* All samples are done: close gaps, write the index, fill what the caller sees. */
void fb_batch_seal(struct fb_batch *batch, const struct fb_collation *collation);
#endif
