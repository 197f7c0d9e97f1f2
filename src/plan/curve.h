/*
 * curve.h -- hit rate and bytes read in an epoch for each cache size and policy, for a given order.
 *
 * Where every unit is used once an epoch there are closed forms (docs/plan.md): fill and next-use
 * hit as often as their share c of the data, lru c + (1 - c) ln(1 - c), and nothing can beat c.
 * Everything else (units that several samples use, weights, groups, several nodes) is simulated on
 * the real order.
 */
#ifndef FB_PLAN_CURVE_H
#define FB_PLAN_CURVE_H
#include "cache/policy.h"
#include "order/order.h"
#include "source/source.h"

#define FB_CURVE_POINTS 10  /* 0.1, 0.2, ... 1.0 of the data */
struct fb_curve_point {
    double share;          /* of the decoded bytes that the node's epochs use */
    uint64_t cache_bytes;  /* what memory.cache is for that, index included; 0: not known */
    struct {
        double hit_rate;
        double bytes_read; /* of decoded units, an epoch; NAN: sizes are not known */
    } by[FB_POLICY_COUNT];
};

struct fb_curve {
    bool simulated;
    double used_bytes;  /* of the units that this node uses; NAN: not known */
    double epoch_bytes; /* read in an epoch without any cache; NAN: not known */
    struct fb_curve_point points[FB_CURVE_POINTS];
    bool has_planned;
    struct fb_curve_point planned; /* of the cache that was asked about */
};

struct fb_curve_options {
    const struct fb_source *source;
    const struct fb_order *order; /* the whole one: opened for rank 0 of 1 */
    const struct fb_order_options *order_options;
    struct fb_ranks ranks;
    uint64_t planned_bytes; /* a cache to ask about; 0: none */
    struct fb_budget *budget; /* for the simulation: about 20 MiB */
    const struct fb_log *log;
};

int fb_curve_make(struct fb_curve *curve, const struct fb_curve_options *options,
                  forebay_error *error);

/* The closed form for orders that use every unit once an epoch. */
double fb_curve_once_an_epoch(const struct fb_policy *policy, double share, bool shuffled);
#endif
