#include "governor/look.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"

#define RATE_NS ((uint64_t)1000000000) /* the rates shown are over this long */
#define RATE_BATCHES 2 /* and over so many, or slow batches would show as 0, then as too many */
#define RATE_MOST_NS (5 * RATE_NS)
#define SLOW_NS ((uint64_t)1000000000) /* how often stalls and resident memory are read */

uint64_t fb_wall_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fb_look_begin(struct fb_look *look, const struct fb_governor_options *options)
{
    struct fb_page *page = &look->page;

    memset(look, 0, sizeof(*look));
    fb_page_identify(page, options->name);
    page->opened_ns = fb_wall_ns();
    page->rank = options->ranks.rank;
    page->world = options->ranks.world;
    page->floor = options->floor;
    page->has_cache = options->cache || options->source->ops->keep;
    snprintf(page->policy, sizeof(page->policy), "%s", options->policy);
    page->samples_per_s = page->bytes_per_s = page->wait_share = NAN;
    page->read_share = page->decode_share = page->copy_share = NAN;
    look->cpus = fb_host_cpus();
}

/* The rates of the last second, once a second; of slow batches, of a few seconds. */
static void rates_take(struct fb_look *look, uint64_t now_ns)
{
    const struct fb_pipeline_report *report = &look->report;
    uint64_t wait_ns = (uint64_t)(report->wait_s * 1e9);
    double passed = (double)(now_ns - look->since_ns);
    double busy = (double)(report->busy_ns - look->busy_ns);
    double read = (double)(report->read_ns - look->read_ns);
    double copy = (double)(report->copy_ns - look->copy_ns);
    struct fb_page *page = &look->page;

    if (look->since_ns && (now_ns - look->since_ns < RATE_NS ||
                           (report->batches - look->batches < RATE_BATCHES &&
                            now_ns - look->since_ns < RATE_MOST_NS)))
        return;
    if (look->since_ns) {
        page->samples_per_s = (double)(report->samples - look->samples) / passed * 1e9;
        page->bytes_per_s = (double)(report->bytes - look->bytes) / passed * 1e9;
        page->wait_share = fmin(1, (double)(wait_ns - fb_min(wait_ns, look->wait_ns)) / passed);
        page->read_share = busy > 0 ? fmin(1, read / busy) : NAN;
        page->copy_share = busy > 0 ? fmin(1, copy / busy) : NAN;
        page->decode_share = busy > 0 ? fmax(0, 1 - (read + copy) / busy) : NAN;
    }
    look->since_ns = now_ns;
    look->samples = report->samples;
    look->batches = report->batches;
    look->bytes = report->bytes;
    look->wait_ns = wait_ns;
    look->busy_ns = report->busy_ns;
    look->read_ns = report->read_ns;
    look->copy_ns = report->copy_ns;
}

static void host_put(struct fb_look *look)
{
    struct fb_page *page = &look->page;

    page->host_total = look->host.total_bytes;
    page->host_available = look->host.available_bytes;
    page->swap_used = look->host.swap_used_bytes;
    page->group_limit = look->host.cgroup_limit_bytes;
    page->group_used = look->host.cgroup_used_bytes;
    page->left = look->host.left_bytes;
    page->memory_stalled = look->pressure.memory_some;
    page->cpu_stalled = look->pressure.cpu_some;
    page->io_stalled = look->pressure.io_some;
}

static void memory_put(struct fb_look *look)
{
    struct fb_page *page = &look->page;

    page->limit = look->budget.limit;
    page->used = look->budget.used;
    page->peak = look->budget.peak;
    memcpy(page->by_stage, look->budget.by_stage, sizeof(page->by_stage));
    page->cache_items = look->cache.items;
    page->cache_bytes = look->cache.bytes;
    page->cache_limit = look->cache.limit_bytes;
}

static void pipeline_put(struct fb_look *look)
{
    const struct fb_pipeline_report *report = &look->report;
    struct fb_page *page = &look->page;

    page->samples = report->samples;
    page->batches = report->batches;
    page->bytes = report->bytes;
    page->bytes_read = report->bytes_read;
    page->skipped = report->skipped;
    page->replaced = report->replaced;
    page->failed = report->failed;
    page->hits = report->hits;
    page->misses = report->misses;
    page->workers = report->workers;
    page->prefetch = report->prefetch;
    page->cpu_share = report->cpu_share;
    page->in_flight = report->in_flight;
    page->ready = report->ready;
    page->held = report->held;
    page->held_bytes = report->held_bytes;
    page->epoch = report->epoch;
    page->position = report->position;
    page->epoch_samples = report->epoch_samples;
    page->seconds = report->seconds;
    page->wait_s = report->wait_s;
    page->wait_p50_ms = report->wait_p50_ms;
    page->wait_p99_ms = report->wait_p99_ms;
}

static void cache_read(struct fb_look *look, const struct fb_governor_options *options)
{
    struct fb_kept kept;

    if (options->cache) {
        fb_cache_read_report(options->cache, &look->cache);
    } else if (options->source->ops->keep) {
        kept = options->source->ops->kept(options->source);
        look->cache = (struct fb_cache_report){ .items = kept.items,
                                                .bytes = kept.bytes,
                                                .limit_bytes = kept.limit_bytes,
                                                .share_bytes = kept.limit_bytes };
    }
}

void fb_look_take(struct fb_look *look, const struct fb_governor_options *options,
                  uint64_t now_ns)
{
    struct fb_page *page = &look->page;

    fb_pipeline_read_report(options->pipeline, &look->report);
    fb_budget_read(options->budget, &look->budget);
    cache_read(look, options);
    if (!look->slow_ns || now_ns - look->slow_ns >= SLOW_NS) {
        fb_host_groups_find(&look->groups, "");
        fb_host_pressure_read(&look->pressure, "");
        page->resident = fb_host_resident_bytes();
        page->host_kills = fb_host_kills("");
        look->slow_ns = now_ns;
    }
    fb_host_memory_read_in(&look->host, &look->groups, "");
    page->group_kills = fb_host_group_kills(page->group);
    page->worker_count = fb_pipeline_read_workers(options->pipeline, page->doing,
                                                  FB_PAGE_WORKERS);
    page->time_ns = fb_wall_ns();
    host_put(look);
    memory_put(look);
    pipeline_put(look);
    rates_take(look, now_ns);
}

/* What of the ledger is this process's own memory, how much of such it has (the trainer's, too), and
 * what is in shared caches: in this one by all members, for they are no strangers; of another loader
 * with the same budget what that has reserved. */
static void own_put(struct fb_view *view, const struct fb_look *look,
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

struct fb_view fb_look_view(const struct fb_look *look, const struct fb_governor_options *options,
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
        .slot = options->slot,
        .per_worker = options->per_worker,
        .workers = report->workers,
        .prefetch = report->prefetch,
        .cpu_share = report->cpu_share,
        .cpus = look->cpus,
        .has_cache = look->page.has_cache,
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
