/*
 * members.h -- the processes of a cache: a row each, with its life, its pins and what it gives.
 *
 * A pin is one word: slot 0 -> (generation, unit + 1). Whoever pins writes the slot and then looks
 * whether the entry is READY; whoever evicts moves the entry to DYING and then looks at all slots.
 * Both are sequentially consistent, so at least one of the two sees the other. Nothing has to be
 * counted, so a death leaves nothing to be miscounted: the sweep clears the dead one's slots.
 *
 * Everything in a row that somebody else may clear carries the row's generation: a sweep that was
 * held up for an hour cannot touch what the row's next member wrote.
 */
#ifndef FB_CACHE_MEMBERS_H
#define FB_CACHE_MEMBERS_H
#include "cache/segment.h"

#define FB_GENERATION_MASK 0x7fffffu

/* One process's place in a segment. */
struct fb_member {
    unsigned row;
    uint32_t generation;
    uint64_t token; /* in entry states: row and generation */
    uint32_t hold;  /* as the owner of a page */
};

/* What this process knows of the others: a pidfd for each living row, opened once. */
struct fb_watch {
    struct {
        uint64_t life; /* the fd is for this word of the row */
        int fd;        /* -1: none */
    } seen[FB_ROWS_MAX];
};

static inline uint64_t fb_member_token(unsigned row, uint32_t generation)
{
    return (uint64_t)row << 3 | (uint64_t)generation << 32;
}

/* Take a free row; false if all are taken. */
bool fb_member_join(struct fb_segment *segment, uint64_t job, struct fb_member *member);
/* Give it back; the member has no pins and no claims any more. */
void fb_member_leave(struct fb_segment *segment, const struct fb_member *member);

/* Rows that may be in use, at most geometry.rows. */
unsigned fb_members_high(const struct fb_segment *segment);
bool fb_life_taken(uint64_t life);
uint32_t fb_life_generation(uint64_t life);
int fb_life_pid(uint64_t life);
/* Members, and jobs among them (members with different `job`). */
unsigned fb_members_count(const struct fb_segment *segment);
bool fb_members_several_jobs(const struct fb_segment *segment);

/* What this member gives and would give, and the sum over all. Bytes, rounded down to 4 KiB. */
void fb_member_give(struct fb_segment *segment, const struct fb_member *member, uint64_t bytes);
void fb_member_share(struct fb_segment *segment, const struct fb_member *member, uint64_t bytes);
uint64_t fb_members_given(const struct fb_segment *segment);
uint64_t fb_members_share(const struct fb_segment *segment);

static inline void fb_member_count(struct fb_segment *segment, const struct fb_member *member,
                                   unsigned what, uint64_t times)
{
    atomic_fetch_add_explicit(&segment->rows[member->row].counts[what], times,
                              memory_order_relaxed);
}
/* Of one row (as long as it exists) or of all, living and dead. */
uint64_t fb_members_total(const struct fb_segment *segment, unsigned what);

/* A unit's state and the counters of items are different words: whoever changes both is on the way
 * between these two, and a sweep that counts items waits until nobody is. */
static inline void fb_member_begin(struct fb_segment *segment, const struct fb_member *member)
{
    atomic_fetch_add(&segment->rows[member->row].counts[FB_COUNT_BEGUN], 1);
}
static inline void fb_member_end(struct fb_segment *segment, const struct fb_member *member)
{
    atomic_fetch_add(&segment->rows[member->row].counts[FB_COUNT_ENDED], 1);
}
/* Is none of the living on the way? *begun: how often anybody was so far. */
bool fb_members_rest(const struct fb_segment *segment, uint64_t *begun);

/* Announce `unit` in a free slot; false if all are in use. `hint` spreads the threads. */
bool fb_pin_set(struct fb_segment *segment, const struct fb_member *member, uint64_t unit,
                uint64_t hint, uint64_t *slot);
void fb_pin_clear(struct fb_segment *segment, const struct fb_member *member, uint64_t slot);
/* Does any member but for slot `except` have it pinned? UINT64_MAX: no exception. */
bool fb_pin_any(const struct fb_segment *segment, uint64_t unit);

void fb_watch_init(struct fb_watch *watch);
void fb_watch_release(struct fb_watch *watch);
/* A pidfd for the row's member, -1 if it is dead, free, or cannot be watched (`dead` says). Not
 * for several threads at once on one watch. */
int fb_watch_row(struct fb_watch *watch, const struct fb_segment *segment, unsigned row,
                 bool *dead);
/* Can a process be watched here at all? */
bool fb_watch_possible(void);
#endif
