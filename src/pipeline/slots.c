#include "base/size.h"
#include "memory/block.h"
#include "pipeline/pipeline_internal.h"

/* Batches of unequal size get a little more than they need, so that most later ones fit, too. */
static uint64_t generous(const struct fb_pipeline *pipeline, uint64_t bytes)
{
    uint64_t step = 4096;

    if (pipeline->collation.fixed)
        return bytes;
    while (step < bytes / 16)
        step *= 2;
    return fb_round_up(bytes, step);
}

static void unmap_locked(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    if (!batch->memory)
        return;
    if (pipeline->upload)
        pipeline->stage->unmap(pipeline->upload, batch);
    else
        fb_unmap_reserved(batch->memory, batch->capacity);
    pipeline->slots_mapped -= fb_map_bytes(batch->capacity);
    batch->memory = NULL;
    batch->capacity = 0;
}

struct fb_batch *fb_slots_take(struct fb_pipeline *pipeline, forebay_error *error)
{
    struct fb_batch *batch;

    pthread_mutex_lock(&pipeline->lock);
    batch = pipeline->free;
    if (batch)
        pipeline->free = batch->next;
    pthread_mutex_unlock(&pipeline->lock);
    if (!batch && fb_batch_new(&batch, pipeline, &pipeline->collation, pipeline->options.budget,
                               error))
        return NULL;
    return batch;
}

/* The smallest free slot that is large enough lends its memory to `batch`. */
static bool swap_with_free_locked(struct fb_pipeline *pipeline, struct fb_batch *batch,
                                  uint64_t bytes)
{
    struct fb_batch *best = NULL;
    void *memory = batch->memory;
    uint64_t capacity = batch->capacity;
    struct fb_staging staging = batch->staging;

    for (struct fb_batch *other = pipeline->free; other; other = other->next)
        if (other->capacity >= bytes && (!best || other->capacity < best->capacity))
            best = other;
    if (!best)
        return false;
    batch->memory = best->memory;
    batch->capacity = best->capacity;
    batch->staging = best->staging;
    best->memory = memory;
    best->capacity = capacity;
    best->staging = staging;
    return true;
}

/* Find `mapped` bytes that are paid for and not in use: reserve what is missing, else take them
 * from free slots. The budget may ask a cache to yield, so the lock is not held meanwhile. */
static bool pay(struct fb_pipeline *pipeline, uint64_t mapped)
{
    struct fb_budget *budget = pipeline->options.budget;
    uint64_t spare, missing;

    pthread_mutex_lock(&pipeline->lock);
    spare = pipeline->slots_paid - pipeline->slots_mapped;
    pthread_mutex_unlock(&pipeline->lock);
    missing = mapped > spare ? mapped - spare : 0;
    if (missing && !fb_budget_try_reserve(budget, FB_STAGE_SLOTS, missing))
        missing = 0;

    pthread_mutex_lock(&pipeline->lock);
    pipeline->slots_paid += missing;
    for (struct fb_batch *other = pipeline->free;
         other && pipeline->slots_paid - pipeline->slots_mapped < mapped; other = other->next)
        unmap_locked(pipeline, other);
    spare = pipeline->slots_paid - pipeline->slots_mapped;
    if (spare >= mapped)
        pipeline->slots_mapped += mapped;
    pthread_mutex_unlock(&pipeline->lock);
    return spare >= mapped;
}

static void *map(struct fb_pipeline *pipeline, struct fb_batch *batch, uint64_t bytes,
                 forebay_error *error)
{
    if (pipeline->upload)
        return pipeline->stage->map(pipeline->upload, batch, bytes, error) ? NULL : batch->memory;
    return fb_map_reserved(bytes, error);
}

static bool fit(struct fb_pipeline *pipeline, struct fb_batch *batch, uint64_t bytes,
                forebay_error *error)
{
    uint64_t capacity = generous(pipeline, bytes);
    bool fits;

    if (batch->memory && batch->capacity >= bytes)
        return true;
    pthread_mutex_lock(&pipeline->lock);
    fits = swap_with_free_locked(pipeline, batch, bytes);
    if (!fits)
        unmap_locked(pipeline, batch);
    pthread_mutex_unlock(&pipeline->lock);
    if (fits)
        return true;
    if (!pay(pipeline, fb_map_bytes(capacity))) {
        capacity = bytes; /* without the generosity, then */
        if (!pay(pipeline, fb_map_bytes(capacity)))
            return false;
    }
    batch->memory = map(pipeline, batch, capacity, error);
    batch->capacity = capacity;
    if (batch->memory)
        return true;
    pthread_mutex_lock(&pipeline->lock);
    pipeline->slots_mapped -= fb_map_bytes(capacity);
    batch->capacity = 0;
    pthread_mutex_unlock(&pipeline->lock);
    return false;
}

bool fb_slots_fit(struct fb_pipeline *pipeline, struct fb_batch *batch, uint64_t bytes,
                  forebay_error *error)
{
    bool fits = fit(pipeline, batch, bytes, error);

    if (pipeline->upload) /* a copy from it may still be under way, if its batch was dropped */
        pipeline->stage->settle(pipeline->upload, batch);
    return fits;
}

/* More slots than can ever be in use at once: prefetch was lowered. */
static bool is_surplus_locked(const struct fb_pipeline *pipeline)
{
    uint64_t count = pipeline->tail - pipeline->head + pipeline->held;

    for (const struct fb_batch *free = pipeline->free; free; free = free->next)
        count += free->memory != NULL;
    return count > pipeline->prefetch + pipeline->held_most;
}

void fb_slots_give_back_locked(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    struct fb_budget_report now;

    if (pipeline->upload)
        pipeline->stage->drop_locked(pipeline, batch);
    if (pipeline->stopping) { /* from a worker that close left behind, too */
        fb_slots_destroy_locked(pipeline, batch);
        return;
    }
    batch->next = pipeline->free;
    pipeline->free = batch;
    fb_memory_freed_locked(pipeline);
    fb_budget_read(pipeline->options.budget, &now);
    if (now.used > now.limit) /* the limit was lowered: what is free goes first */
        fb_slots_trim_locked(pipeline, pipeline->slots_paid -
                                           fb_min(pipeline->slots_paid, now.used - now.limit));
    else if (batch->memory && is_surplus_locked(pipeline)) /* this one is the first of the free ones */
        fb_slots_trim_locked(pipeline, pipeline->slots_mapped - fb_map_bytes(batch->capacity));
}

uint64_t fb_slots_trim_locked(struct fb_pipeline *pipeline, uint64_t keep)
{
    uint64_t given = 0, spare;

    keep = fb_max(keep, pipeline->options.slots_floor);
    for (struct fb_batch **link = &pipeline->free; *link;) {
        struct fb_batch *batch = *link;

        if (pipeline->slots_mapped > keep)
            unmap_locked(pipeline, batch);
        /* A header alone is of no use, and with large batches it is not small either. But the last one
         * stays: in a budget that is full there would be no room for another. */
        if (batch->memory || (link == &pipeline->free && !batch->next)) {
            link = &batch->next;
        } else {
            *link = batch->next;
            if (pipeline->upload)
                pipeline->stage->release(pipeline->upload, batch);
            fb_batch_free(batch, &pipeline->collation, pipeline->options.budget);
        }
    }
    spare = pipeline->slots_paid - fb_max(keep, pipeline->slots_mapped);
    if (pipeline->slots_paid > keep && spare > 0) {
        given = spare;
        pipeline->slots_paid -= given;
        fb_budget_refund(pipeline->options.budget, FB_STAGE_SLOTS, given);
    }
    return given;
}

void fb_slots_destroy_locked(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    uint64_t mapped = batch->memory ? fb_map_bytes(batch->capacity) : 0;

    unmap_locked(pipeline, batch);
    if (pipeline->upload)
        pipeline->stage->release(pipeline->upload, batch);
    pipeline->slots_paid -= mapped;
    fb_budget_refund(pipeline->options.budget, FB_STAGE_SLOTS, mapped);
    fb_batch_free(batch, &pipeline->collation, pipeline->options.budget);
}
