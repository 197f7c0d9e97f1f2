#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "pipeline/pipeline.h"

#define PREFETCH_AUTO_MAX 16 /* more batches in flight than this help nobody; see docs/memory.md */
#define PREFETCH_AUTO_BYTES (16 * FB_MIB) /* half of a usual last-level cache */

uint64_t fb_plan_floor(const struct fb_plan_needs *needs)
{
    return needs->fixed +
           fb_max(needs->open, (1 + FB_HELD_NORMAL) * needs->slot + needs->per_worker);
}

static int fail_too_small(const struct fb_plan_needs *needs, const struct fb_config *config,
                          uint64_t budget, forebay_error *error)
{
    uint64_t batch = needs->fixed_layout ? needs->slot : needs->certain;
    char have[32], slot[32], worker[32], fixed[32];
    int status = fb_fail(error, FOREBAY_OVER_BUDGET,
                         "a budget of %s (%" PRIu64 " bytes) cannot hold one batch of %s, one "
                         "worker's %s and %s of index; set memory.budget to at least %" PRIu64
                         " (%" PRIu64 " lets the caller hold %d batches), or lower batch.size",
                         fb_size_text(budget, have), budget, fb_size_text(batch, slot),
                         fb_size_text(needs->per_worker, worker), fb_size_text(needs->fixed, fixed),
                         needs->fixed + batch + needs->per_worker, fb_plan_floor(needs),
                         FB_HELD_NORMAL);

    fb_config_place(config, "memory.budget", error);
    return status;
}

static uint64_t wanted(const struct fb_count *count, uint64_t fallback)
{
    return count->is_auto ? fallback : count->value;
}

/* How many more of `each` fit in `left`, at most `most`; takes them. */
static uint64_t take(uint64_t *left, uint64_t each, uint64_t most)
{
    uint64_t count = each ? fb_min(most, *left / each) : most;

    *left -= count * each;
    return count;
}

/* Batches on their way to a device are in flight, too. */
static uint64_t copied_ahead(const struct fb_config *config)
{
    return config->device_kind && strcmp(config->device_kind, "host")
               ? config->device_prefetch.value
               : 0;
}

/* The knee: enough batches that every worker has something to do, and one that is ready. Workers
 * share a batch that has enough samples and bytes. */
static uint64_t knee(const struct fb_config *config, uint64_t slot, uint64_t workers)
{
    uint64_t share = fb_max(1, fb_min(config->batch_size.value, slot / FB_RUN_BYTES));

    return (workers + share - 1) / share + 1 + copied_ahead(config);
}

/* Small batches may be more than the knee, since a hand-over costs as much as they do. Of large ones
 * each further slot only pushes the others out of the processor's cache, and serves better as our
 * own cache: docs/memory.md. */
static uint64_t prefetch_auto(const struct fb_config *config, uint64_t left, uint64_t slot,
                              uint64_t workers)
{
    uint64_t room = fb_min(left / 4, PREFETCH_AUTO_BYTES);

    return fb_min(fb_max(knee(config, slot, workers), slot ? room / slot : 4), PREFETCH_AUTO_MAX);
}

/* A cache of a size the user named is part of the budget, and comes before what is only nice to
 * have: more workers and more batches in flight than the floor has. */
static int take_named_cache(struct fb_plan *plan, const struct fb_plan_needs *needs,
                            const struct fb_config *config, uint64_t *left, forebay_error *error)
{
    uint64_t ranks = fb_max(1, needs->ranks), share = config->memory_cache.value / ranks;
    char want[32], have[32];
    int status;

    if (config->memory_cache.mode != FB_SIZE_BYTES)
        return FOREBAY_OK;
    if (share <= *left) {
        plan->cache = share;
        *left -= share;
        return FOREBAY_OK;
    }
    status = fb_fail(error, FOREBAY_OVER_BUDGET,
                     "memory.cache of %s%s is part of memory.budget, and beside the batches and one "
                     "worker only %s (%" PRIu64 " bytes) of it are left; raise memory.budget to "
                     "%" PRIu64 " or lower memory.cache", fb_size_text(share, want),
                     ranks > 1 ? " (this rank's part)" : "", fb_size_text(*left, have), *left,
                     (plan->budget + share - *left) * ranks);
    fb_config_place(config, "memory.cache", error);
    return status;
}

int fb_plan(struct fb_plan *out, const struct fb_plan_needs *needs, const struct fb_config *config,
            uint64_t budget, unsigned cpus, forebay_error *error)
{
    uint64_t least = needs->fixed + needs->per_worker +
                     (needs->fixed_layout ? needs->slot : needs->certain);
    uint64_t workers = wanted(&config->workers, cpus), left, slots, batches;
    struct fb_plan plan = { .budget = budget, .floor = fb_plan_floor(needs) };
    int status;

    if (least > budget)
        return fail_too_small(needs, config, budget, error);
    left = budget - needs->fixed - needs->per_worker;
    slots = take(&left, needs->slot, 1 + FB_HELD_NORMAL);
    plan.slots_floor = slots * (needs->slot - needs->slot_header);
    status = take_named_cache(&plan, needs, config, &left, error);
    if (status)
        return status;
    plan.workers = workers ? 1 + take(&left, needs->per_worker, workers - 1) : 0;
    plan.prefetch = wanted(&config->prefetch,
                           prefetch_auto(config, left, needs->slot, plan.workers));
    /* What the caller holds and what is in flight, beyond the floor, comes before the cache. */
    batches = plan.prefetch + FB_HELD_NORMAL;
    if (batches > slots)
        take(&left, needs->slot, batches - slots);
    if (config->memory_cache.mode == FB_SIZE_AUTO)
        plan.cache = fb_min(left, needs->cache_wanted);
    *out = plan;
    return FOREBAY_OK;
}
