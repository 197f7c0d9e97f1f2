/*
 * policy.h -- which unit stays: pure decisions, no lock, no clock, no memory.
 *
 * A policy is one const struct. The cache, the device cache and the simulation of `forebay plan`
 * take it from one array, fb_policies. To add one, write policy_NAME.c and add its line to
 * config/policies.h.
 *
 * The victim is the worst of FB_POLICY_SAMPLE random residents and of the FB_POLICY_SPARES worst
 * that were seen before: within 0.003 of the exact one, without any list to keep in order.
 */
#ifndef FB_CACHE_POLICY_H
#define FB_CACHE_POLICY_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

#define FB_POLICY_SAMPLE 64
#define FB_POLICY_SPARES 16

struct fb_candidate {
    uint64_t unit;
    uint64_t when; /* what the policy's stamp says; a next use that is not known: UINT64_MAX */
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

/* What the cache writes down when a unit is used. */
enum fb_stamp { FB_STAMP_NONE, FB_STAMP_LAST_USE, FB_STAMP_NEXT_USE };

struct fb_policy {
    const char *name; /* as in memory.policy */
    int number;       /* FB_POLICY_*: its place in the array */
    enum fb_stamp stamp;
    bool swaps_equal; /* a unit may be evicted for another of the same size */
    bool costs;       /* it asks what loading takes; the cache measures it */
    bool one_order;   /* it works for members of one job only; `fill` takes its place for others */
    bool admits_last; /* it admits units in the last epoch too */
    /* Should `a` be evicted rather than `b`? */
    bool (*worse)(const struct fb_candidate *a, const struct fb_candidate *b,
                  const struct fb_cost *cost);
    /* May the newcomer take the victim's place? */
    bool (*replaces)(const struct fb_candidate *newcomer, const struct fb_candidate *victim,
                     const struct fb_cost *cost);
    /* The hit rate if each unit is used once an epoch, for a cache of this share of them (< 1). */
    double (*once_an_epoch)(double share, bool shuffled);
};

/* By FB_POLICY_*; [FB_POLICY_AUTO] is NULL: the caller chooses before it asks. */
extern const struct fb_policy *const fb_policies[FB_POLICY_COUNT];

#define FB_POLICY_EXTERN(upper, lower, word) extern const struct fb_policy fb_policy_##lower;
FB_POLICY_MAP(FB_POLICY_EXTERN)
#undef FB_POLICY_EXTERN

/* The policy of that word, NULL if there is none. */
const struct fb_policy *fb_policy_named(const char *word);
/* What a member really does in a cache that was made for `number`: a member that asked for another
 * policy, or for one order where there are several jobs, keeps what is there as `fill` does. */
const struct fb_policy *fb_policy_effective(const struct fb_policy *policy, uint64_t number,
                                            bool several_jobs);
bool fb_policy_admits(const struct fb_policy *policy, bool last_epoch, bool several_jobs);

/* The worst ones found so far, the worst first; no unit twice. */
struct fb_worst {
    struct fb_candidate list[FB_POLICY_SPARES + 1];
    unsigned count;
};
void fb_worst_add(struct fb_worst *worst, const struct fb_candidate *one,
                  const struct fb_policy *policy, const struct fb_cost *cost);

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
#endif
