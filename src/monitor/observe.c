/* observe.c -- take a snapshot of a loader and its host. */
#include "monitor/observe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "monitor/snapshot_file.h"

#define RATE_NS ((uint64_t)1000000000) /* the rates are over this long */
#define RATE_BATCHES 2 /* and over so many, or slow batches would show as 0, then as too many */
#define RATE_MOST_NS (5 * RATE_NS)
#define SLOW_NS ((uint64_t)1000000000) /* how often stalls and resident memory are read */

void fb_observer_init(struct fb_observer *observer, const struct fb_observed *what)
{
    struct fb_snapshot *now = &observer->now;

    memset(observer, 0, sizeof(*observer));
    observer->what = *what;
    observer->ranks = what->ranks;
    observer->floor = what->floor;
    observer->peak_pss = FB_UNKNOWN;
    observer->cpus = fb_host_cpus();
    observer->rates.seconds = observer->rates.samples = observer->rates.bytes = NAN;
    observer->rates.wait = observer->rates.read = observer->rates.decode = NAN;
    observer->rates.copy = NAN;
    fb_snapshot_identify(now, what->name);
    now->opened_ns = fb_wall_ns();
    snprintf(now->policy, sizeof(now->policy), "%s", what->policy);
    snprintf(now->device, sizeof(now->device), "%s", what->device);
}

/* The counts from which the next rates are counted. */
static void rates_begin(struct fb_observer *observer, uint64_t now_ns)
{
    const struct fb_pipeline_report *report = &observer->report;

    observer->since_ns = now_ns;
    observer->samples = report->samples;
    observer->batches = report->batches;
    observer->bytes = report->bytes;
    observer->wait_ns = (uint64_t)(report->wait_s * 1e9);
    observer->busy_ns = report->busy_ns;
    observer->read_ns = report->read_ns;
    observer->copy_ns = report->copy_ns;
}

static void rates_count(struct fb_observer *observer, double seconds)
{
    const struct fb_pipeline_report *report = &observer->report;
    double busy = (double)(report->busy_ns - observer->busy_ns);
    double read = (double)(report->read_ns - observer->read_ns);
    double copy = (double)(report->copy_ns - observer->copy_ns);
    uint64_t wait_ns = (uint64_t)(report->wait_s * 1e9);

    wait_ns -= fb_min(wait_ns, observer->wait_ns);
    observer->rates.seconds = seconds;
    observer->rates.samples = (double)(report->samples - observer->samples) / seconds;
    observer->rates.bytes = (double)(report->bytes - observer->bytes) / seconds;
    observer->rates.wait = fmin(1, (double)wait_ns / 1e9 / seconds);
    observer->rates.read = busy > 0 ? fmin(1, read / busy) : (double)NAN;
    observer->rates.copy = busy > 0 ? fmin(1, copy / busy) : (double)NAN;
    observer->rates.decode = busy > 0 ? fmax(0, 1 - (read + copy) / busy) : (double)NAN;
}

/* Since open; or of the last second, once a second, and of slow batches of a few seconds. */
static void rates_take(struct fb_observer *observer, uint64_t now_ns)
{
    const struct fb_pipeline_report *report = &observer->report;
    uint64_t passed = now_ns - observer->since_ns;

    if (!observer->what.recent) {
        if (report->seconds > 0)
            rates_count(observer, report->seconds);
        return;
    }
    if (observer->since_ns &&
        (passed < RATE_NS ||
         (report->batches - observer->batches < RATE_BATCHES && passed < RATE_MOST_NS)))
        return;
    if (observer->since_ns)
        rates_count(observer, (double)passed / 1e9);
    rates_begin(observer, now_ns);
}

static void cache_read(struct fb_observer *observer)
{
    struct fb_source *source = observer->what.source;
    const struct fb_pipeline_report *report = &observer->report;
    double uses = (double)report->hits + (double)report->misses;
    struct fb_kept kept;

    observer->now.has_cache = observer->what.cache != NULL;
    if (observer->what.cache) {
        fb_cache_read_report(observer->what.cache, &observer->cache);
    } else if (source->ops->keep) {
        kept = source->ops->kept(source);
        observer->cache = (struct fb_cache_report){ .items = kept.items,
                                                    .bytes = kept.bytes,
                                                    .limit_bytes = kept.limit_bytes,
                                                    .share_bytes = kept.limit_bytes };
        observer->now.has_cache = true;
    }
    observer->hit_rate = observer->now.has_cache && observer->cache.limit_bytes && uses > 0
                             ? (double)report->hits / uses
                             : (double)NAN;
}

/* On the host there is no device memory to tell of. */
static void device_read(struct fb_upload_report *device)
{
    if (device->kind)
        return;
    device->hidden_s = device->exposed_s = NAN;
    device->prefetch = device->allocated_bytes = device->reserved_bytes = FB_UNKNOWN;
}

/* Our part of the memory there is. Pages of a shared cache that another process read are not in our
 * resident size: those of the cache that are in it are taken out, and our share of all is put in. */
static void process_read(struct fb_observer *observer)
{
    uint64_t shmem = fb_host_shmem_bytes(), share = 0, blocks = 0;

    observer->resident = observer->process = fb_host_resident_bytes();
    if (observer->what.cache)
        share = fb_cache_shared_bytes(observer->what.cache);
    if (!share || shmem == FB_UNKNOWN || observer->resident == FB_UNKNOWN)
        return;
    blocks = share * fb_max(1, observer->cache.members);
    observer->process = observer->resident - fb_min(observer->resident, fb_min(shmem, blocks)) +
                        share;
}

static void host_read(struct fb_observer *observer, uint64_t now_ns)
{
    if (!observer->slow_ns || now_ns - observer->slow_ns >= SLOW_NS) {
        fb_host_groups_find(&observer->groups, "");
        fb_host_pressure_read(&observer->pressure, "");
        observer->host_kills = fb_host_kills("");
        observer->slow_ns = now_ns;
    }
    fb_host_memory_read_in(&observer->host, &observer->groups, "");
    observer->group_kills = fb_host_group_kills(observer->now.group);
}

void fb_observe(struct fb_observer *observer, uint64_t now_ns)
{
    struct fb_snapshot *now = &observer->now;

    fb_pipeline_read_report(observer->what.pipeline, &observer->report);
    fb_budget_read(observer->what.budget, &observer->budget);
    cache_read(observer);
    device_read(&observer->report.device);
    process_read(observer);
    host_read(observer, now_ns);
    rates_take(observer, now_ns);
    now->time_ns = fb_wall_ns();
    now->worker_count = fb_pipeline_read_workers(observer->what.pipeline, now->doing,
                                                 FB_SNAPSHOT_WORKERS);
    memcpy(now->by_stage, observer->budget.by_stage, sizeof(now->by_stage));
#define FB_X(kind, unit, field, from, group, key, metric, title) now->field = observer->from;
    FB_FIGURE_MAP(FB_X)
#undef FB_X
}
