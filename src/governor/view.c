/* view.c -- what the governor decides by, made from an observer's last look. */
#include "governor/view.h"

#include "base/size.h"

/* What of the ledger is this process's own memory, how much of such it has (the trainer's, too), and
 * what is in shared caches: in this one by all members, for they are parts of the same job; of another loader
 * with the same budget what that has reserved. */
static void own_put(struct fb_view *view, const struct fb_observer *look,
                    const struct fb_governor_options *options)
{
    uint64_t caches = look->budget.by_stage[FB_STAGE_CACHE];

    view->reserved = look->budget.used;
    if (options->cache && fb_cache_is_shared(options->cache)) {
        view->reserved -= caches;
        view->shared = fb_cache_shared_bytes(options->cache) * look->cache.members + caches -
                       fb_min(caches, look->cache.ledger_bytes);
    }
    view->anon = fb_host_anon_bytes();
    if (view->anon == FB_UNKNOWN)
        view->anon = view->reserved;
}

struct fb_view fb_view_make(const struct fb_observer *look, const struct fb_governor_options *options,
                            const atomic_bool fixed[FB_FIXED_COUNT], uint64_t now_ns)
{
    const struct fb_pipeline_report *report = &look->report;
    bool in_group = look->host.cgroup_limit_bytes != FB_UNKNOWN &&
                    look->host.left_bytes != look->host.available_bytes;
    struct fb_view view = {
        .time_ns = now_ns,
        .limit = look->budget.limit,
        .used = look->budget.used,
        .cache = look->cache.bytes / fb_max(1, look->cache.members),
        .cache_limit = look->cache.share_bytes,
        .cache_least = options->cache_least,
        .cache_most = fb_max(options->cache_most, look->cache.share_bytes),
        .slot = options->run->needs.slot,
        .per_worker = options->run->needs.per_worker,
        .workers = report->workers,
        .prefetch = report->prefetch,
        .cpu_share = report->cpu_share,
        .cpus = look->cpus,
        .has_cache = look->now.has_cache,
        .cache_fixed = atomic_load(&fixed[FB_FIXED_CACHE]),
        .workers_fixed = atomic_load(&fixed[FB_FIXED_WORKERS]),
        .prefetch_fixed = atomic_load(&fixed[FB_FIXED_PREFETCH]),
        .cpu_fixed = atomic_load(&fixed[FB_FIXED_CPU]),
        .running = report->running,
        .ready = report->ready,
        .in_flight = report->in_flight,
        .starved = report->starved,
        .bytes = report->bytes,
        .batches = report->batches,
        .wait_ns = (uint64_t)(report->wait_s * 1e9),
        .delivered_ns = report->delivered_ns,
        .delay_ns = fb_host_run_delay_ns(report->caller),
        .room = in_group ? look->host.cgroup_limit_bytes : look->host.total_bytes,
        .left = look->host.left_bytes,
        .swapped_out = look->pressure.swapped_out,
        .stalled = look->pressure.memory_some,
        .in_group = in_group,
    };

    own_put(&view, look, options);
    return view;
}
