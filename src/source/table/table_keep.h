/*
 * table_keep.h -- blocks of a table in memory, each read when it is first used.
 *
 *     block: absent -> FILLING -> in a slot -> absent     (given back, or turned over)
 *
 * If there is a slot for every block, block b is in slot b, and the table lies in memory as it does
 * in the file. If not, the blocks that come first take the slots and stay; or, if rows come block
 * by block (a `window` that moves on), the slot that was filled the longest ago is turned over, as
 * long as there are slots for the window.
 *
 * Any number of threads read, between enter and leave, without a lock and without waiting. A slot
 * is written to, or its memory given back, only when all have left who may have seen what was in
 * it. Inside, nobody reads files or waits: so who waits for them waits a moment. Slots are given
 * back from the end.
 */
#ifndef FB_SOURCE_TABLE_KEEP_H
#define FB_SOURCE_TABLE_KEEP_H
#include <stdatomic.h>

#include "source/table/table.h"

#define FB_KEEP_FILLING UINT32_MAX

struct fb_keep_slot {
    uint32_t block; /* + 1; 0: it is free */
    bool filling;
};

struct fb_table_keep {
    struct fb_budget *budget;
    uint64_t block_bytes, block_count;
    char *rows;                  /* of slot 0; NULL: nothing is kept */
    uint64_t slot_count;         /* as mapped */
    _Atomic uint32_t *where;     /* [block_count]: slot + 1, FILLING, or 0 */
    atomic_uint_least64_t ready; /* blocks in slots */
    atomic_bool full;            /* no block that is not here will ever be */

    atomic_uint turn;
    struct {
        _Alignas(64) atomic_long inside; /* readers that entered in this turn */
    } readers[2];

    pthread_mutex_t lock;
    pthread_cond_t filled;

    /* Guarded by lock: */
    struct fb_keep_slot *slots; /* [slot_count] */
    uint64_t kept;              /* slots below it are in use */
    uint64_t held;              /* slots that are reserved: kept, or not yet given back */
    uint64_t next;              /* the slot to fill next */
    uint64_t least;             /* slots below which nothing is turned over */
};

int fb_table_keep_open(struct fb_table_keep *keep, struct fb_budget *budget, uint64_t block_bytes,
                       uint64_t block_count, forebay_error *error);
void fb_table_keep_close(struct fb_table_keep *keep);
/* At most `bytes`. The first call maps; later ones may only lower it. Returns what it is now.
 * `window` as in source.h. */
uint64_t fb_table_keep_limit(struct fb_table_keep *keep, uint64_t bytes, uint64_t window);

/* Returns what leave must be given. */
static inline unsigned fb_table_keep_enter(struct fb_table_keep *keep)
{
    for (;;) {
        unsigned turn = atomic_load(&keep->turn) & 1;

        atomic_fetch_add(&keep->readers[turn].inside, 1);
        if ((atomic_load(&keep->turn) & 1) == turn)
            return turn;
        atomic_fetch_sub(&keep->readers[turn].inside, 1); /* it changed between the two */
    }
}
static inline void fb_table_keep_leave(struct fb_table_keep *keep, unsigned turn)
{
    atomic_fetch_sub_explicit(&keep->readers[turn].inside, 1, memory_order_release);
}

/* The rows of a block, between enter and leave; NULL if it is not here. */
static inline const char *fb_table_keep_find(const struct fb_table_keep *keep, uint64_t block)
{
    uint32_t slot = atomic_load(&keep->where[block]);

    return slot == 0 || slot == FB_KEEP_FILLING ? NULL
                                                : keep->rows + (slot - 1) * keep->block_bytes;
}
/* Is the whole table in memory, one block behind the other? Between enter and leave. */
static inline bool fb_table_keep_is_whole(const struct fb_table_keep *keep)
{
    return keep->slot_count == keep->block_count && atomic_load(&keep->ready) == keep->block_count;
}

/* Outside: make a place for a block that is not here. If another thread fills it, that is waited
 * for, at most a second. NULL: there is no place, or it is here now; else the caller fills it and
 * calls fb_table_keep_filled. */
char *fb_table_keep_claim(struct fb_table_keep *keep, uint64_t block);
void fb_table_keep_filled(struct fb_table_keep *keep, const char *rows, bool good);
#endif
