/*
 * observe.h -- take a snapshot of a loader and its host. Both the governor (ten times a second) and
 * stats() have an observer of their own. What is expensive to read is read once a second.
 */
#ifndef FB_MONITOR_OBSERVE_H
#define FB_MONITOR_OBSERVE_H
#include "cache/cache.h"
#include "memory/pressure.h"
#include "monitor/snapshot.h"
#include "order/order.h"
#include "source/source.h"

/* What is observed. All borrowed. */
struct fb_observed {
    struct fb_pipeline *pipeline;
    struct fb_cache *cache;   /* NULL: none */
    struct fb_source *source; /* may keep units itself, in the place of a cache */
    struct fb_budget *budget;
    const char *name, *policy, *device;
    struct fb_ranks ranks;
    uint64_t floor;
    bool recent; /* rates of the last second or so; else since open */
};

struct fb_observer {
    struct fb_observed what;

    /* What the last look read; the table in snapshot.h names these. */
    struct fb_pipeline_report report;
    struct fb_budget_report budget;
    struct fb_cache_report cache;
    struct fb_host_groups groups;
    struct fb_host_memory host;
    struct fb_host_pressure pressure;
    struct fb_ranks ranks;
    struct {
        double seconds, samples, bytes, wait, read, decode, copy;
    } rates;
    double hit_rate;
    uint64_t floor, resident, process, group_kills, host_kills;
    uint64_t peak_pss, alarms; /* put in by the caller; FB_UNKNOWN and 0 at first */
    unsigned cpus;

    /* The counts that the rates are counted from, and when those were read */
    uint64_t since_ns, samples, batches, bytes, wait_ns, busy_ns, read_ns, copy_ns;
    uint64_t slow_ns; /* when what is expensive was read last */

    struct fb_snapshot now; /* the result */
};

void fb_observer_init(struct fb_observer *observer, const struct fb_observed *what);
/* Look at everything: `now` is up to date. */
void fb_observe(struct fb_observer *observer, uint64_t now_ns);
#endif
