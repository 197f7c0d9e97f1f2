/*
 * snapshot.h -- everything measured of one loader, in one struct without pointers. `stats()`, the
 * log, `top`, `run --json` and Prometheus all read this struct; observe.h fills it and
 * snapshot_file.h shows it to other processes. What could not be measured is NAN or FB_UNKNOWN.
 *
 * A figure is one row of the table below. Its columns:
 *   kind      N uint64_t, R double
 *   unit      how a person reads it, see enum fb_unit
 *   field     its name in struct fb_snapshot
 *   from      where it comes from, a member of struct fb_observer
 *   group     the JSON object that holds it, "" for the outermost
 *   key       its JSON key
 *   metric    its Prometheus name after "forebay_", "" if it is not exported
 *   title     its column in the list of `forebay top`, "" if it has none
 */
#ifndef FB_MONITOR_SNAPSHOT_H
#define FB_MONITOR_SNAPSHOT_H
#include <jansson.h>

#include "memory/pressure.h"
#include "pipeline/pipeline.h"

#define FB_FIGURE_MAP(X) FB_FIGURES_MEMORY(X) FB_FIGURES_FLOW(X) FB_FIGURES_STATE(X)             \
    FB_FIGURES_CACHE(X) FB_FIGURES_DEVICE(X) FB_FIGURES_HOST(X)

#define FB_FIGURES_MEMORY(X)                                                                     \
    X(N, BYTES, used, budget.used, "memory", "used_bytes", "memory_used_bytes", "MEMORY")        \
    X(N, BYTES, limit, budget.limit, "memory", "budget_bytes", "memory_budget_bytes", "BUDGET")  \
    X(N, BYTES, peak, budget.peak, "memory", "peak_bytes", "memory_peak_bytes", "")              \
    X(N, BYTES, peak_pss, peak_pss, "memory", "peak_pss_bytes", "", "")                          \
    X(N, BYTES, floor, floor, "memory", "floor_bytes", "", "")                                   \
    X(N, BYTES, held_bytes, report.held_bytes, "memory", "held_bytes", "", "")                   \
    X(N, BYTES, resident, resident, "memory", "resident_bytes", "memory_resident_bytes", "")     \
    X(N, BYTES, process, process, "memory", "process_bytes", "memory_process_bytes", "")

#define FB_FIGURES_FLOW(X)                                                                       \
    X(R, RATE, samples_per_s, rates.samples, "", "samples_per_s", "samples_per_second",          \
      "SAMPLES/S")                                                                               \
    X(R, SHARE, wait_share, rates.wait, "", "wait_share", "wait_share", "WAIT")                  \
    X(N, COUNT, workers, report.workers, "", "workers", "workers", "WORKERS")                    \
    X(R, BYTE_RATE, bytes_per_s, rates.bytes, "", "bytes_per_s", "bytes_per_second", "SPEED")    \
    X(R, SHARE, read_share, rates.read, "", "read_share", "read_share", "")                      \
    X(R, SHARE, decode_share, rates.decode, "", "decode_share", "decode_share", "")              \
    X(R, SHARE, copy_share, rates.copy, "", "copy_share", "copy_share", "")                      \
    X(R, SECONDS, rate_s, rates.seconds, "", "rate_s", "", "") /* the rates are of so long */    \
    X(N, COUNT, samples, report.samples, "", "samples", "samples_total", "")                     \
    X(N, COUNT, batches, report.batches, "", "batches", "batches_total", "")                     \
    X(N, BYTES, bytes, report.bytes, "", "bytes", "bytes_total", "")                             \
    X(N, BYTES, bytes_read, report.bytes_read, "", "bytes_read", "bytes_read_total", "")         \
    X(N, COUNT, skipped, report.skipped, "", "skipped", "skipped_total", "")                     \
    X(N, COUNT, replaced, report.replaced, "", "replaced", "replaced_total", "")                 \
    X(N, COUNT, failed, report.failed, "", "failed", "", "")                                     \
    X(R, SECONDS, seconds, report.seconds, "", "seconds", "", "")                                \
    X(R, SECONDS, first_batch_s, report.first_batch_s, "", "first_batch_s", "", "")              \
    X(R, SECONDS, wait_s, report.wait_s, "", "wait_s", "wait_seconds_total", "")                 \
    X(R, MILLISECONDS, wait_p50_ms, report.wait_p50_ms, "", "wait_p50_ms", "", "")               \
    X(R, MILLISECONDS, wait_p99_ms, report.wait_p99_ms, "", "wait_p99_ms", "", "")

#define FB_FIGURES_STATE(X)                                                                      \
    X(N, COUNT, prefetch, report.prefetch, "", "prefetch", "prefetch", "")                       \
    X(N, COUNT, cpu_share, report.cpu_share, "", "cpu_share", "", "")                            \
    X(N, COUNT, in_flight, report.in_flight, "", "in_flight", "batches_in_flight", "")           \
    X(N, COUNT, ready, report.ready, "", "ready", "batches_ready", "")                           \
    X(N, COUNT, held, report.held, "", "held", "", "")                                           \
    X(N, COUNT, abandoned_workers, report.abandoned_workers, "", "abandoned_workers", "", "")    \
    X(N, COUNT, epoch, report.epoch, "", "epoch", "epoch", "")                                   \
    X(N, COUNT, position, report.position, "", "position", "", "")                               \
    X(N, COUNT, epoch_batches, report.epoch_batches, "", "epoch_batches", "", "")                \
    X(N, COUNT, epoch_samples, report.epoch_samples, "", "epoch_samples", "", "")                \
    X(N, COUNT, alarms, alarms, "", "alarms", "alarms_total", "")                                \
    X(N, COUNT, rank, ranks.rank, "", "rank", "", "")                                            \
    X(N, COUNT, world, ranks.world, "", "world", "", "")

/* Hits and misses count uses of units. */
#define FB_FIGURES_CACHE(X)                                                                      \
    X(N, COUNT, cache_items, cache.items, "cache", "items", "cache_items", "")                   \
    X(N, BYTES, cache_bytes, cache.bytes, "cache", "bytes", "cache_bytes", "CACHE")              \
    X(N, BYTES, cache_limit, cache.limit_bytes, "cache", "limit_bytes", "cache_limit_bytes", "") \
    X(N, COUNT, hits, report.hits, "cache", "hits", "cache_hits_total", "")                      \
    X(N, COUNT, misses, report.misses, "cache", "misses", "cache_misses_total", "")              \
    X(R, SHARE, hit_rate, hit_rate, "cache", "hit_rate", "", "HITS")                             \
    X(N, COUNT, bypasses, cache.bypasses, "cache", "bypasses", "", "")                           \
    X(N, COUNT, evictions, cache.evictions, "cache", "evictions", "cache_evictions_total", "")   \
    X(N, COUNT, cache_waits, cache.waits, "cache", "waits", "", "")

#define FB_FIGURES_DEVICE(X)                                                                     \
    X(N, COUNT, device_hits, report.device.cache_hits, "device", "cache_hits", "", "")           \
    X(N, COUNT, device_misses, report.device.cache_misses, "device", "cache_misses", "", "")     \
    X(N, COUNT, device_items, report.device.cache_items, "device", "cache_items", "", "")        \
    X(N, BYTES, device_cache, report.device.cache_bytes, "device", "cache_bytes", "", "")        \
    X(N, BYTES, device_copied, report.device.bytes_copied, "device", "bytes_copied",             \
      "device_copied_bytes_total", "")                                                           \
    X(R, SECONDS, copy_hidden_s, report.device.hidden_s, "device", "copy_hidden_s", "", "")      \
    X(R, SECONDS, copy_exposed_s, report.device.exposed_s, "device", "copy_exposed_s", "", "")   \
    X(N, COUNT, device_prefetch, report.device.prefetch, "device", "prefetch", "", "")           \
    X(N, COUNT, device_host_batches, report.device.host_batches, "device", "host_batches", "", "") \
    X(N, BYTES, device_bytes, report.device.device_bytes, "device", "bytes", "", "")             \
    X(N, BYTES, device_peak, report.device.device_peak_bytes, "device", "peak_bytes", "", "")    \
    X(N, BYTES, device_allocated, report.device.allocated_bytes, "device", "allocated_bytes",    \
      "device_allocated_bytes", "")                                                              \
    X(N, BYTES, device_reserved, report.device.reserved_bytes, "device", "reserved_bytes",       \
      "device_reserved_bytes", "")

#define FB_FIGURES_HOST(X)                                                                       \
    X(N, BYTES, host_total, host.total_bytes, "host", "total_bytes", "", "")                     \
    X(N, BYTES, host_available, host.available_bytes, "host", "available_bytes", "", "")         \
    X(N, BYTES, swap_used, host.swap_used_bytes, "host", "swap_used_bytes", "", "")              \
    X(N, BYTES, group_limit, host.cgroup_limit_bytes, "host", "cgroup_limit_bytes", "", "")      \
    X(N, BYTES, group_used, host.cgroup_used_bytes, "host", "cgroup_used_bytes", "", "")         \
    X(N, BYTES, left, host.left_bytes, "host", "left_bytes", "", "")                             \
    X(R, PERCENT, memory_stalled, pressure.memory_some, "host", "memory_stalled_percent", "", "") \
    X(R, PERCENT, cpu_stalled, pressure.cpu_some, "host", "cpu_stalled_percent", "", "")         \
    X(R, PERCENT, io_stalled, pressure.io_some, "host", "io_stalled_percent", "", "")            \
    X(N, COUNT, group_kills, group_kills, "host", "cgroup_kills", "", "") /* out of memory */    \
    X(N, COUNT, host_kills, host_kills, "host", "host_kills", "", "")

/* RATE: a second; SHARE: 0 ... 1. */
enum fb_unit {
    FB_UNIT_COUNT, FB_UNIT_BYTES, FB_UNIT_RATE, FB_UNIT_BYTE_RATE, FB_UNIT_SHARE,
    FB_UNIT_PERCENT, FB_UNIT_SECONDS, FB_UNIT_MILLISECONDS
};

#define FB_SNAPSHOT_DECISIONS 16
#define FB_SNAPSHOT_WORKERS 256

struct fb_snapshot_decision {
    uint64_t time_ns;  /* wall clock */
    char text[184];    /* "cache 2 GiB -> 1.5 GiB: the host is short of memory (...)" */
};

/* No pointers and no gaps: written and read as it is. */
struct fb_snapshot {
    /* Whose it is */
    uint64_t pid, start, pid_space, uid;
    char boot[40];
    char name[64];     /* "" if it has none */
    char socket[64];   /* where it listens for `set`; "" if it does not */
    char group[256];   /* the memory control group's folder */
    char policy[16];   /* "fill", ...; "none" without a cache */
    char device[16];   /* "host", ... */
    char verdict[400]; /* how it ended, written by the process that found it dead (postmortem.h) */
    uint64_t opened_ns, time_ns; /* wall clock */
    uint64_t has_cache;
    uint64_t by_stage[FB_STAGE_COUNT];

#define FB_FIELD_N uint64_t
#define FB_FIELD_R double
#define FB_X(kind, unit, field, from, group, key, metric, title) FB_FIELD_##kind field;
    FB_FIGURE_MAP(FB_X)
#undef FB_X
#undef FB_FIELD_N
#undef FB_FIELD_R

    uint64_t worker_count;
    unsigned char doing[FB_SNAPSHOT_WORKERS]; /* enum fb_worker_doing */
    /* The newest decisions; number n is at n % FB_SNAPSHOT_DECISIONS */
    uint64_t decision_count;
    struct fb_snapshot_decision decisions[FB_SNAPSHOT_DECISIONS];
};

/* The table as data. */
struct fb_figure {
    enum fb_unit unit;
    bool is_real;
    unsigned short offset; /* in struct fb_snapshot */
    const char *group, *key, *metric, *title;
};
extern const struct fb_figure fb_figures[];
extern const unsigned fb_figure_count;

/* Its value, NAN if it is unknown. */
double fb_figure_value(const struct fb_figure *figure, const struct fb_snapshot *now);
/* The figure of this JSON key, NULL if there is none. */
const struct fb_figure *fb_figure_find(const char *key);
/* For a person: "1.5 GiB", "12.3%", "n/a". */
const char *fb_figure_text(const struct fb_figure *figure, const struct fb_snapshot *now,
                           char text[32]);
/* The same for any value in its unit. */
const char *fb_figure_number(const struct fb_figure *figure, double value, char text[32]);

/* One JSON object with everything; unknown is null. NULL if there is no memory for it. */
json_t *fb_snapshot_json(const struct fb_snapshot *now);
/* Add what only the loader itself knows: "epochs" and "failures". */
void fb_snapshot_json_lists(json_t *all, const struct fb_pipeline_report *report);
#endif
