#include "source/table_keep.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/source_kinds.h"

#define PATIENCE 1000 /* turns of the scheduler: longer than any copy, shorter than a stuck read */
#define PAGE ((uint64_t)4096)

int fb_table_keep_open(struct fb_table_keep *keep, struct fb_budget *budget, uint64_t block_bytes,
                       uint64_t block_count, forebay_error *error)
{
    keep->budget = budget;
    keep->block_bytes = block_bytes;
    keep->block_count = block_count;
    keep->state = fb_block_new(budget, FB_STAGE_INDEX, block_count, 1, "the table's blocks", error);
    if (!keep->state)
        return fb_failed(error);
    pthread_mutex_init(&keep->lock, NULL);
    return FOREBAY_OK;
}

static uint64_t bytes_of(const struct fb_table_keep *keep, uint64_t blocks)
{
    return blocks == 0 ? 0 : fb_map_bytes(blocks * keep->block_bytes);
}

/* The readers that may have seen the limit before it fell have left. */
static bool readers_left(struct fb_table_keep *keep)
{
    unsigned old = atomic_fetch_add(&keep->turn, 1) & 1;

    for (unsigned i = 0; i < PATIENCE; i++) {
        if (atomic_load(&keep->readers[old].inside) == 0)
            return true;
        sched_yield();
    }
    return false;
}

/* Unmap what is held beyond `kept`; returns how many bytes that were. */
static uint64_t release_locked(struct fb_table_keep *keep)
{
    uint64_t kept = atomic_load(&keep->kept), from, bytes;

    /* Both turns: one that did not wait long enough before may still be in the other. */
    if (kept >= keep->held || !readers_left(keep) || !readers_left(keep))
        return 0;
    for (uint64_t i = kept; i < keep->held; i++)
        if (atomic_exchange(&keep->state[i], FB_BLOCK_EMPTY) == FB_BLOCK_READY)
            atomic_fetch_sub(&keep->ready, 1);
    from = fb_min(bytes_of(keep, kept), fb_map_bytes(keep->mapped));
    bytes = bytes_of(keep, keep->held) - from;
    if (bytes)
        madvise(keep->rows + from, bytes, MADV_DONTNEED);
    keep->held = kept;
    fb_budget_refund(keep->budget, FB_STAGE_CACHE, bytes);
    return bytes;
}

static uint64_t give_back(void *data, uint64_t bytes)
{
    struct fb_table_keep *keep = data;
    uint64_t kept, blocks = bytes / keep->block_bytes + 1, given;

    if (pthread_mutex_trylock(&keep->lock))
        return 0; /* somebody is at it */
    kept = atomic_load(&keep->kept);
    atomic_store(&keep->kept, kept - fb_min(kept, blocks));
    given = release_locked(keep);
    pthread_mutex_unlock(&keep->lock);
    return given;
}

/* As many blocks as there is memory for. */
static void map_blocks(struct fb_table_keep *keep, uint64_t blocks)
{
    uint64_t bytes = bytes_of(keep, blocks);

    if (blocks == 0 || !fb_budget_try_reserve(keep->budget, FB_STAGE_CACHE, bytes))
        return;
    keep->rows = fb_map_reserved(blocks * keep->block_bytes, NULL);
    if (keep->rows && fb_budget_on_pressure(keep->budget, give_back, keep, NULL)) {
        fb_unmap_reserved(keep->rows, blocks * keep->block_bytes);
        keep->rows = NULL;
    }
    if (!keep->rows) {
        fb_budget_refund(keep->budget, FB_STAGE_CACHE, bytes);
        return;
    }
    keep->mapped = blocks * keep->block_bytes;
    keep->held = blocks;
    atomic_store(&keep->kept, blocks);
}

uint64_t fb_table_keep_limit(struct fb_table_keep *keep, uint64_t bytes)
{
    uint64_t blocks = fb_min(bytes / keep->block_bytes, keep->block_count);

    while (blocks && bytes_of(keep, blocks) > bytes)
        blocks--;
    pthread_mutex_lock(&keep->lock);
    if (!keep->rows) {
        map_blocks(keep, blocks);
    } else if (blocks < atomic_load(&keep->kept)) {
        atomic_store(&keep->kept, blocks);
        release_locked(keep);
    }
    bytes = bytes_of(keep, keep->held);
    pthread_mutex_unlock(&keep->lock);
    return bytes;
}

void fb_table_keep_close(struct fb_table_keep *keep)
{
    if (!keep->state)
        return;
    if (keep->rows) {
        fb_budget_off_pressure(keep->budget, give_back, keep);
        fb_unmap_reserved(keep->rows, keep->mapped);
        fb_budget_refund(keep->budget, FB_STAGE_CACHE, bytes_of(keep, keep->held));
    }
    pthread_mutex_destroy(&keep->lock);
    fb_block_free(keep->budget, FB_STAGE_INDEX, (void *)(uintptr_t)keep->state, keep->block_count, 1);
}
