/*
 * table_keep.h -- the rows of a table in memory: the first `kept` blocks of it, each read when it
 * is first used.
 *
 * Any number of threads read, between enter and leave. Memory is given back from the end: the
 * limit falls first, and what is behind it is unmapped when those have left who may have seen the
 * old limit. Readers never wait, and who gives back waits a moment only: if a reader is stuck in a
 * read meanwhile, the rest is given back by the next who asks.
 */
#ifndef FB_SOURCE_TABLE_KEEP_H
#define FB_SOURCE_TABLE_KEEP_H
#include <stdatomic.h>

#include "source/table.h"

enum { FB_BLOCK_EMPTY, FB_BLOCK_FILLING, FB_BLOCK_READY };

struct fb_table_keep {
    struct fb_budget *budget;
    uint64_t block_bytes, block_count;
    char *rows;                  /* of block 0; NULL: nothing is kept */
    uint64_t mapped;             /* bytes, as they were asked for */
    _Atomic uint8_t *state;      /* [block_count] */
    atomic_uint_least64_t ready; /* blocks */
    atomic_uint_least64_t kept;  /* blocks below it may be in memory */

    pthread_mutex_t lock;        /* of those who give back */
    uint64_t held;               /* blocks that are reserved: kept, or not yet unmapped */
    atomic_uint turn;
    struct {
        _Alignas(64) atomic_long inside; /* readers that entered in this turn */
    } readers[2];
};

int fb_table_keep_open(struct fb_table_keep *keep, struct fb_budget *budget, uint64_t block_bytes,
                       uint64_t block_count, forebay_error *error);
void fb_table_keep_close(struct fb_table_keep *keep);
/* At most `bytes`. The first call maps; later ones may only lower it. Returns what it is now. */
uint64_t fb_table_keep_limit(struct fb_table_keep *keep, uint64_t bytes);

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

/* Is the block in memory? If not and it may be, `*fill` says that the caller is the one to read it
 * to fb_table_keep_at(), and then to call filled. Between enter and leave. */
static inline bool fb_table_keep_find(struct fb_table_keep *keep, uint64_t block, uint64_t kept,
                                      bool *fill)
{
    uint8_t empty = FB_BLOCK_EMPTY;

    *fill = false;
    if (block >= kept)
        return false;
    if (atomic_load_explicit(&keep->state[block], memory_order_acquire) == FB_BLOCK_READY)
        return true;
    *fill = atomic_compare_exchange_strong(&keep->state[block], &empty, FB_BLOCK_FILLING);
    return false;
}
static inline void fb_table_keep_filled(struct fb_table_keep *keep, uint64_t block, bool good)
{
    atomic_store_explicit(&keep->state[block], good ? FB_BLOCK_READY : FB_BLOCK_EMPTY,
                          memory_order_release);
    if (good)
        atomic_fetch_add(&keep->ready, 1);
}
#endif
