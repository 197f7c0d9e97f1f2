/*
 * entries.h -- the array of entries, one for each unit: the only truth of a cache.
 *
 *     FREE ──▶ FILLING(member) ──▶ READY ──▶ DYING(member) ──▶ FREE
 *                     └──────────────────────────▲   (abandoned, or the member died)
 *
 *                                        ▲      │   (somebody has it pinned)
 *                                        └──────┘
 * Each arrow is one compare-and-swap of one word. FILLING and DYING name the member that is at it
 * by row and generation, so that what a dead member left is found, and what the row's next member
 * does is never taken for it. A page with owner u belongs to entry u, which is then not FREE.
 */
#ifndef FB_CACHE_ENTRIES_H
#define FB_CACHE_ENTRIES_H
#include "cache/segment.h"

enum fb_phase { FB_FREE, FB_FILLING, FB_READY, FB_DYING };
#define FB_PHASE_MASK 3u
#define FB_WAITED 4u /* somebody sleeps until it is no longer FILLING */
/* DYING, but nothing is gone yet: whoever evicts has not looked at the pins so far. If it dies here
 * the unit becomes READY again: somebody may be reading it. */
#define FB_WHOLE 0x800u

static inline enum fb_phase fb_state_phase(uint64_t state)
{
    return (enum fb_phase)(state & FB_PHASE_MASK);
}
/* The member in a state: row and generation, as fb_member_token() makes it. */
static inline uint64_t fb_state_member(uint64_t state)
{
    return state & ~(uint64_t)(FB_PHASE_MASK | FB_WAITED | FB_WHOLE);
}

static inline uint64_t fb_entry_state(const struct fb_segment *segment, uint64_t unit)
{
    return atomic_load(&segment->entries[unit].state);
}
/* From exactly `from` to `to`; wakes those who wait if it leaves FILLING. */
bool fb_entry_move(struct fb_segment *segment, uint64_t unit, uint64_t from, uint64_t to);
/* FILLING by `member`, however many wait for it, to `to`. False if it is not (any more). */
bool fb_entry_settle(struct fb_segment *segment, uint64_t unit, uint64_t member, uint64_t to);
/* Sleep until the state is no longer `state` (FILLING), at most `ns`. */
void fb_entry_wait(struct fb_segment *segment, uint64_t unit, uint64_t state, uint64_t ns);
#endif
