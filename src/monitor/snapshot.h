/*
 * snapshot.h -- everything measured, taken in one go; all that look, look at this.
 * What could not be measured is NAN or FB_UNKNOWN, never 0.
 */
#ifndef FB_MONITOR_SNAPSHOT_H
#define FB_MONITOR_SNAPSHOT_H
#include "cache/cache.h"
#include "memory/host.h"
#include "pipeline/pipeline.h"

struct fb_snapshot {
    uint64_t time_ns;
    char name[64];
    struct fb_budget_report budget;
    struct fb_pipeline_report pipeline;
    struct fb_cache_report cache;
    bool has_cache;
    const char *policy; /* "fill", ...; "none" without a cache */
    struct fb_host_memory host;
    uint64_t peak_pss_bytes; /* Pss_Anon since open, and our part of a shared cache */
    uint64_t floor_bytes;    /* with less than this a run may not end */
    const char *device;      /* "host" */
};

/* One JSON object: all of `forebay run --json`. Returns the length needed, like snprintf. */
size_t fb_snapshot_json(const struct fb_snapshot *now, char *text, size_t size);
#endif
