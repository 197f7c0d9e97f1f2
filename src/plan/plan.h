/*
 * plan.h -- memory before anything runs. The run uses the same formulas: the loader asks
 * fb_plan() what to give to whom, `forebay plan` prints the same answer.
 */
#ifndef FB_PLAN_PLAN_H
#define FB_PLAN_PLAN_H
#include "base/error.h"
#include "config/config.h"

#define FB_HELD_NORMAL 2 /* batches a caller holds: the one in use and the one before */

/* What the parts say they need; all in bytes. */
struct fb_plan_needs {
    uint64_t fixed;      /* index, order, the loader itself: already reserved when asked */
    uint64_t slot;       /* of the largest batch, header included; 0 if not known before it comes */
    uint64_t slot_header; /* the part of it that is no data */
    bool fixed_layout;   /* every batch takes `slot`: what does not fit is an error now */
    uint64_t certain;    /* a batch of this size will come, whatever the layout; 0: not known */
    uint64_t per_worker; /* scratch, reader, stack, libraries' allowance */
    uint64_t open;       /* beside `fixed`, until the source is open */
    uint64_t scratch;    /* the part of it that is decode memory */
    uint64_t cache_wanted; /* decoded bytes of all units, or 0: no cache is worth it */
    uint64_t ranks;        /* that share memory.budget and memory.cache on this node; 0: one */
};

struct fb_plan {
    uint64_t budget;
    uint64_t floor;   /* with less than this a run may not end: see fb_plan_floor */
    uint64_t workers; /* threads */
    uint64_t prefetch; /* batches in flight */
    uint64_t slots_floor; /* reserved at open for batches, for good: 1 to 3 slots, headers apart */
    uint64_t cache;   /* bytes, 0 for none */
};

/* fixed + (1 + FB_HELD_NORMAL) x slot + one worker, or fixed + open if that is more. */
uint64_t fb_plan_floor(const struct fb_plan_needs *needs);
/* Divide `budget`. Fails with OVER_BUDGET, the numbers and the setting to change, if not even one
 * batch and one worker fit. */
int fb_plan(struct fb_plan *plan, const struct fb_plan_needs *needs, const struct fb_config *config,
            uint64_t budget, unsigned cpus, forebay_error *error);
#endif
