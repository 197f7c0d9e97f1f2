/*
 * prepare.h -- from a configuration to what a run is given: budget, order, policy, plan.
 *
 * The loader opens its parts with these, and `forebay plan` asks the same functions, so that what
 * is foretold is what is done.
 */
#ifndef FB_PLAN_PREPARE_H
#define FB_PLAN_PREPARE_H
#include "device/device.h"
#include "order/order.h"
#include "plan/plan.h"
#include "source/source.h"

/* The loader's own structs, its configuration (a page or two; 1 MiB of text at most is read) and
 * what JSON needs for a moment, the governor (thread, page, log): reserved at open. */
#define FB_LOADER_BYTES ((uint64_t)768 * 1024)
/* What the pipeline and the cache take for themselves beside slots and workers: planned for. */
#define FB_LOADER_FIXED_BYTES ((uint64_t)64 * 1024)

/* preset: gpu-auto: the preset that fits the device's memory, and say which. Else nothing. */
int fb_prepare_preset(struct fb_config *config, struct fb_device *device, const struct fb_log *log,
                      forebay_error *error);

/* memory.budget, this rank's part of it, as a ledger of its own. More than the machine or its control
 * group has is cut down to that, with a warning. */
int fb_prepare_budget(struct fb_budget **out, const struct fb_config *config,
                      const struct fb_ranks *ranks, const struct fb_log *log,
                      forebay_error *error);

/* What this rank's `cache` bytes come to with those of the node's other ranks. */
uint64_t fb_prepare_together(const struct fb_config *config, const struct fb_ranks *ranks,
                             uint64_t cache);

/* What a configuration comes to for this source and these ranks. Made once by fb_resolve; loader,
 * forecast and governor only read it. */
struct fb_run {
    int policy;                    /* FB_POLICY_FILL, _NEXT_USE or _LRU */
    struct fb_order_options order; /* borrows from config and source */
    uint64_t window; /* bytes that samples come from at a time; UINT64_MAX: from everywhere */
    struct fb_plan_needs needs;
    struct fb_plan plan;
};

/* Opens the order, too: its memory is part of the plan. *order is the caller's to close whenever it
 * is set, also after a failure. */
int fb_resolve(struct fb_run *run, struct fb_order **order, const struct fb_config *config,
               const struct fb_source *source, const struct fb_ranks *ranks,
               struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
#endif
