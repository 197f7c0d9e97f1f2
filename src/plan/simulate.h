/*
 * simulate.h -- what a cache would do on a real order: uses of units, one after the other, and how
 * many of them hit for a policy and a number of units kept.
 *
 * A long order is thinned by unit, not by time: units whose hash is below a bound are followed
 * through all their uses, and the cache is made smaller by the same share. A unit's reuse does not
 * depend on which others are followed, so hit rates stay what they are; only the noise grows.
 */
#ifndef FB_PLAN_SIMULATE_H
#define FB_PLAN_SIMULATE_H
#include "base/error.h"
#include "base/log.h"
#include "cache/policy.h"
#include "memory/budget.h"
#include "order/order.h"
#include "source/source.h"

#define FB_TRACE_USES ((uint64_t)1 << 19)  /* followed, at most: a second or two in all */
#define FB_TRACE_UNITS ((uint64_t)1 << 17) /* followed, at most */
/* Times that the data come by: in an epoch each, or in several that each draw a part of them. */
#define FB_TRACE_PASSES 24                 /* of short orders */
#define FB_TRACE_PASSES_LEAST 6            /* two to fill, two that count, two to look ahead */
#define FB_TRACE_EPOCHS ((uint64_t)4096)   /* followed, at most */

struct fb_trace {
    struct fb_budget *budget;
    uint64_t uses;         /* followed */
    uint64_t unit_count;   /* different ones among them */
    uint64_t begin, end;   /* the uses that count: the cache is filled before, next uses known */
    uint32_t *units;       /* of each use, numbered as they came */
    uint32_t *next;        /* which use of the same unit comes next; UINT32_MAX: not known */
    double share;          /* of all units that are followed */
    double slice_bytes;    /* mean of what a use takes of its unit */
    uint64_t epoch_count;
    uint64_t *epoch_ends;  /* uses until then */

    uint64_t *keys;        /* unit + 1 by hash, while it is made */
    uint32_t *numbers;     /* of those */
};

/* The uses on this node (`ranks` says which) of a global order, made for one rank; next uses are
 * known `horizon` epochs ahead, the present one among them. */
int fb_trace_make(struct fb_trace *trace, const struct fb_source *source,
                  const struct fb_order *order, uint64_t horizon, const struct fb_ranks *ranks,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
/* Safe however far make came; a zeroed one too. */
void fb_trace_release(struct fb_trace *trace);

struct fb_simulated {
    double hits;     /* share of the uses */
    double admitted; /* misses that were kept */
    double bypassed; /* misses that were not */
};
/* A cache of `kept` units of the trace under this policy. Evicts the worst of 64 random residents,
 * as the real one does. */
int fb_simulate(struct fb_simulated *result, const struct fb_trace *trace,
                const struct fb_policy *policy, uint64_t kept, forebay_error *error);
#endif
