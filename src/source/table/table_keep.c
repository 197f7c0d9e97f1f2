#include "source/table/table_keep.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/source.h"

#define PATIENCE 10000 /* turns of the scheduler: far longer than any copy takes */
#define FILL_WAIT_S 1
#define MARGIN 4 /* blocks beyond the window: where one ends and the next begins */

int fb_table_keep_open(struct fb_table_keep *keep, struct fb_budget *budget, uint64_t block_bytes,
                       uint64_t block_count, forebay_error *error)
{
    if (block_count >= FB_KEEP_FILLING - 1)
        return fb_fail(error, FOREBAY_BAD_DATA, "the table has more than %u blocks",
                       FB_KEEP_FILLING - 2);
    keep->budget = budget;
    keep->block_bytes = block_bytes;
    keep->block_count = block_count;
    keep->where = fb_block_new(budget, FB_STAGE_INDEX, block_count, sizeof(uint32_t),
                               "the table's blocks", error);
    if (!keep->where)
        return fb_failed(error);
    atomic_store(&keep->full, true); /* until there is memory */
    pthread_mutex_init(&keep->lock, NULL);
    pthread_cond_init(&keep->filled, NULL);
    return FOREBAY_OK;
}

static uint64_t bytes_of(const struct fb_table_keep *keep, uint64_t slots)
{
    return slots == 0 ? 0 : fb_map_bytes(slots * keep->block_bytes);
}

/* Have all left who may have seen what was published before this call? */
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

/* Nobody finds the slot's block any more; who found it before may still read it. */
static void empty_slot_locked(struct fb_table_keep *keep, uint64_t slot)
{
    if (keep->slots[slot].block == 0)
        return;
    atomic_store(&keep->where[keep->slots[slot].block - 1], 0);
    atomic_fetch_sub(&keep->ready, 1);
    keep->slots[slot].block = 0;
}

static bool turns_over(const struct fb_table_keep *keep)
{
    return keep->kept >= keep->least;
}

/* ---- Giving back ---- */

static uint64_t release_locked(struct fb_table_keep *keep)
{
    uint64_t from = bytes_of(keep, keep->kept), bytes = bytes_of(keep, keep->held) - from;

    /* Both turns: one that was not waited for long enough before may still be in the other. */
    if (keep->kept >= keep->held || !readers_left(keep) || !readers_left(keep))
        return 0;
    if (bytes)
        madvise(keep->rows + from, bytes, MADV_DONTNEED);
    keep->held = keep->kept;
    fb_budget_refund(keep->budget, FB_STAGE_CACHE, bytes);
    return bytes;
}

/* Keep at most `slots`; more if one behind them is being filled just now. */
static uint64_t shrink_locked(struct fb_table_keep *keep, uint64_t slots)
{
    while (keep->kept > slots && !keep->slots[keep->kept - 1].filling)
        empty_slot_locked(keep, --keep->kept);
    if (keep->kept < keep->slot_count && !turns_over(keep))
        atomic_store(&keep->full, true); /* who was sent away is not let in again */
    return release_locked(keep);
}

static uint64_t give_back(void *data, uint64_t bytes)
{
    struct fb_table_keep *keep = data;
    uint64_t slots = bytes / keep->block_bytes + 1, given;

    if (pthread_mutex_trylock(&keep->lock))
        return 0; /* somebody is at it */
    given = shrink_locked(keep, keep->kept - fb_min(keep->kept, slots));
    pthread_mutex_unlock(&keep->lock);
    return given;
}

/* ---- Room ---- */

static void unmap(struct fb_table_keep *keep, uint64_t slots)
{
    if (keep->rows)
        fb_unmap_reserved(keep->rows, slots * keep->block_bytes);
    keep->rows = NULL;
    fb_block_free(keep->budget, FB_STAGE_INDEX, keep->slots, slots, sizeof(*keep->slots));
    keep->slots = NULL;
}

static void map_slots(struct fb_table_keep *keep, uint64_t slots, uint64_t window)
{
    if (slots == 0 || !fb_budget_try_reserve(keep->budget, FB_STAGE_CACHE, bytes_of(keep, slots)))
        return;
    keep->slots = fb_block_new(keep->budget, FB_STAGE_INDEX, slots, sizeof(*keep->slots),
                               "the table's blocks", NULL);
    keep->rows = keep->slots ? fb_map_reserved(slots * keep->block_bytes, NULL) : NULL;
    if (!keep->rows || fb_budget_on_pressure(keep->budget, give_back, keep, NULL)) {
        unmap(keep, slots);
        fb_budget_refund(keep->budget, FB_STAGE_CACHE, bytes_of(keep, slots));
        return;
    }
    keep->slot_count = keep->kept = keep->held = slots;
    keep->least = window > UINT64_MAX / 2 ? UINT64_MAX : window / keep->block_bytes + MARGIN;
    atomic_store(&keep->full, false);
}

uint64_t fb_table_keep_limit(struct fb_table_keep *keep, uint64_t bytes, uint64_t window)
{
    uint64_t slots = fb_min(bytes / keep->block_bytes, keep->block_count);

    while (slots && bytes_of(keep, slots) > bytes)
        slots--;
    pthread_mutex_lock(&keep->lock);
    if (!keep->rows)
        map_slots(keep, slots, window);
    else
        shrink_locked(keep, slots);
    bytes = bytes_of(keep, keep->held);
    pthread_mutex_unlock(&keep->lock);
    return bytes;
}

void fb_table_keep_close(struct fb_table_keep *keep)
{
    if (!keep->where)
        return;
    if (keep->rows) {
        fb_budget_off_pressure(keep->budget, give_back, keep);
        fb_budget_refund(keep->budget, FB_STAGE_CACHE, bytes_of(keep, keep->held));
        unmap(keep, keep->slot_count);
    }
    pthread_cond_destroy(&keep->filled);
    pthread_mutex_destroy(&keep->lock);
    fb_block_free(keep->budget, FB_STAGE_INDEX, (void *)(uintptr_t)keep->where, keep->block_count,
                  sizeof(uint32_t));
}

/* ---- Filling ---- */

static void wait_filled_locked(struct fb_table_keep *keep, uint64_t block)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FILL_WAIT_S;
    while (atomic_load(&keep->where[block]) == FB_KEEP_FILLING)
        if (pthread_cond_timedwait(&keep->filled, &keep->lock, &until))
            return;
}

/* The slot that comes next, emptied. False: there is none, or readers do not leave it. */
static bool take_slot_locked(struct fb_table_keep *keep, uint64_t block, uint64_t *slot)
{
    bool own = keep->slot_count == keep->block_count;

    *slot = own ? block : keep->next;
    if (*slot >= keep->kept) {
        if (own || !turns_over(keep))
            return false;
        *slot = 0;
    }
    if (keep->slots[*slot].filling)
        return false;
    if (keep->slots[*slot].block) {
        empty_slot_locked(keep, *slot);
        if (!readers_left(keep) || !readers_left(keep)) /* it is free from now on, but not yet */
            return false;
    }
    keep->next = *slot + 1;
    if (!own && !turns_over(keep) && keep->next == keep->kept)
        atomic_store(&keep->full, true);
    return true;
}

char *fb_table_keep_claim(struct fb_table_keep *keep, uint64_t block)
{
    uint64_t slot;
    char *rows = NULL;

    if (atomic_load_explicit(&keep->full, memory_order_relaxed))
        return NULL;
    pthread_mutex_lock(&keep->lock);
    if (atomic_load(&keep->where[block]) == FB_KEEP_FILLING) {
        wait_filled_locked(keep, block);
    } else if (atomic_load(&keep->where[block]) == 0 && take_slot_locked(keep, block, &slot)) {
        keep->slots[slot] = (struct fb_keep_slot){ .block = (uint32_t)block + 1, .filling = true };
        atomic_store(&keep->where[block], FB_KEEP_FILLING);
        rows = keep->rows + slot * keep->block_bytes;
    }
    pthread_mutex_unlock(&keep->lock);
    return rows;
}

void fb_table_keep_filled(struct fb_table_keep *keep, const char *rows, bool good)
{
    uint64_t slot = (uint64_t)(rows - keep->rows) / keep->block_bytes;
    uint32_t block;

    pthread_mutex_lock(&keep->lock);
    block = keep->slots[slot].block - 1;
    keep->slots[slot].filling = false;
    if (good) {
        atomic_store(&keep->where[block], (uint32_t)slot + 1);
        atomic_fetch_add(&keep->ready, 1);
    } else {
        atomic_store(&keep->where[block], 0);
        keep->slots[slot].block = 0;
    }
    pthread_cond_broadcast(&keep->filled);
    pthread_mutex_unlock(&keep->lock);
}
