/*
 * arena.h -- batches travel between processes in ranges of one memfd that are used again.
 *
 * Any process that has the memfd takes a range, writes a tensor there and sends the range's offset
 * and ticket. The receiver adopts the range and gives it back when the tensor is gone.
 *
 * The memfd begins with a head and one 64-bit word for each grain of 64 KiB:
 *
 *     0               free
 *     owner, ...      taken: the pid of the owner, a ticket, the length of the range in grains
 *
 * There is no lock and no counter beside the words, so kill -9 at any instant leaves only words
 * that name a dead pid; fb_arena_reclaim frees those. A range is claimed word by word, lowest
 * first; if another process was quicker, the claim is undone and the search goes on. The owner
 * gives a range back by a compare and swap of exactly its own word: a range that was sent, or
 * reclaimed, is not its own any more and stays as it is.
 *
 * Ranges are taken from the lowest free grains, so that pages stay warm. The process that opened
 * the arena gives pages back to the kernel that lie above what was in use lately.
 */
#ifndef FB_TRANSPORT_ARENA_H
#define FB_TRANSPORT_ARENA_H
#include <sys/types.h>

#include "forebay.h"
#include "memory/budget.h"

#define FB_ARENA_GRAIN ((uint64_t)64 * 1024)

struct fb_arena;

/* A range in the hands of one process. */
struct fb_range {
    unsigned char *data;
    uint64_t bytes;
    uint64_t offset; /* from the arena's first grain */
    uint64_t word;   /* what stands in its first grain's word while it is ours */
};

struct fb_arena_stats {
    uint64_t limit_bytes;    /* of all ranges together */
    uint64_t used_bytes;     /* by ranges now, whole grains */
    uint64_t own_bytes;      /* of those, by ranges of this process */
    uint64_t own_ranges;
    uint64_t resident_bytes; /* pages the kernel holds for it */
    uint64_t refused;        /* takes that found no room, all processes */
};

/* Make one that holds at most `limit` bytes, reserved in `budget` (may be NULL). */
int fb_arena_open(struct fb_arena **out, uint64_t limit, struct fb_budget *budget,
                  forebay_error *error);
/* The arena of another process, by a descriptor of its memfd, which is duplicated. */
int fb_arena_attach(struct fb_arena **out, int fd, forebay_error *error);
int fb_arena_fd(const struct fb_arena *arena);
struct fb_arena *fb_arena_share(struct fb_arena *arena);
void fb_arena_close(struct fb_arena *arena); /* the last reference unmaps it */

/* False: there is no room; nothing waits. [any thread, any process] */
bool fb_arena_take(struct fb_arena *arena, uint64_t bytes, struct fb_range *range);
/* Let go of it for another process. Returns the ticket that fb_arena_adopt wants. */
uint64_t fb_arena_send(struct fb_arena *arena, const struct fb_range *range);
int fb_arena_adopt(struct fb_arena *arena, uint64_t offset, uint64_t bytes, uint64_t ticket,
                   struct fb_range *range, forebay_error *error);
/* Give it back. Does nothing if it was sent, or in a process that did not take or adopt it. */
void fb_arena_release(struct fb_arena *arena, const struct fb_range *range);

/* Free what process `pid` held or sent and was not adopted; 0: that of every dead process. Returns
 * the bytes. */
uint64_t fb_arena_reclaim(struct fb_arena *arena, pid_t pid);
/* May be lower than what is used: then nothing is granted until enough came back. */
int fb_arena_set_limit(struct fb_arena *arena, uint64_t limit, forebay_error *error);
/* Give the pages of all free grains back to the kernel. */
void fb_arena_trim(struct fb_arena *arena);
void fb_arena_read(struct fb_arena *arena, struct fb_arena_stats *stats);
#endif
