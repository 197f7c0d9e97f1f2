/*
 * policy.h -- which unit stays: pure decisions, no lock, no clock, no memory.
 *
 *   fill      keeps what came first: for permutation epochs no policy is better (caching.md 1).
 *             Units of unequal size: what saves most time per byte may replace what saves less.
 *   next-use  the one needed last goes; a newcomer needed later still is not admitted
 *   lru       the one used longest ago goes
 *
 * The victim is the worst of FB_POLICY_SAMPLE random residents and of the FB_POLICY_SPARES worst
 * that were seen before: within 0.003 of the exact one, without any list to keep in order.
 */
#ifndef FB_CACHE_POLICY_H
#define FB_CACHE_POLICY_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FB_POLICY_SAMPLE 64
#define FB_POLICY_SPARES 16

struct fb_candidate {
    uint64_t unit;
    uint64_t when; /* lru: last use; next-use: next use, UINT64_MAX: not known */
    uint64_t bytes;
    uint64_t page; /* one of its pages, of a resident */
};

/* What loading a unit costs: about `each` + `per_byte` x bytes nanoseconds, from those seen. */
struct fb_cost {
    double count, x, y, xx, xy; /* sums over (bytes, ns) */
};
void fb_cost_add(struct fb_cost *cost, uint64_t bytes, uint64_t ns);
/* Nanoseconds saved per byte kept; the same for all units while nothing is known. */
double fb_cost_density(const struct fb_cost *cost, uint64_t bytes);

/* Should `a` go rather than `b`? */
bool fb_policy_worse(int policy, const struct fb_candidate *a, const struct fb_candidate *b,
                     const struct fb_cost *cost);
/* May the newcomer take the victim's place? */
bool fb_policy_replaces(int policy, const struct fb_candidate *newcomer,
                        const struct fb_candidate *victim, const struct fb_cost *cost);
/* The worst ones found so far, the worst first; no unit twice. */
struct fb_worst {
    struct fb_candidate list[FB_POLICY_SPARES + 1];
    unsigned count;
};
void fb_worst_add(struct fb_worst *worst, const struct fb_candidate *one, int policy,
                  const struct fb_cost *cost);

/* Pages of the worst units seen when the last one was evicted, then of those that were used since
 * and are needed later than the least bad of them. Hints, any numbers: threads may mix them, and
 * each is looked at again before it is believed. */
struct fb_spares {
    _Atomic uint64_t pages[2 * FB_POLICY_SPARES];
    _Atomic uint64_t least_bad; /* when it is needed */
    _Atomic uint64_t put_off;   /* so far */
};
void fb_spares_keep(struct fb_spares *spares, const struct fb_worst *worst, unsigned from);
/* A resident was used, and is not needed again before `next_use`: perhaps the next victim. */
void fb_spares_put_off(struct fb_spares *spares, uint64_t page, uint64_t next_use);

/* What a cache of this policy really does: next-use needs one order, of one job. */
int fb_policy_effective(int policy, int segment_policy, bool several_jobs);
/* Does it admit at all? In the last epoch of one job alone only lru does. */
bool fb_policy_admits(int policy, bool last_epoch, bool several_jobs);
#endif
