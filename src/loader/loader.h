/* loader.h -- what a forebay_loader is made of; only src/loader looks inside. */
#ifndef FB_LOADER_LOADER_H
#define FB_LOADER_LOADER_H
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "config/config.h"
#include "device/device.h"
#include "governor/governor.h"
#include "memory/host.h"
#include "monitor/observe.h"
#include "pipeline/pipeline.h"
#include "plan/prepare.h"

struct forebay_budget {
    struct fb_budget *budget;
};

struct forebay_loader {
    pid_t pid;
    char name[64];
    struct fb_log talk; /* the caller's */
    struct fb_log log;  /* ours: passes on to it until close */
    atomic_bool closed;
    struct fb_config config;
    bool has_config;
    struct fb_ranks ranks;
    struct fb_budget *budget;
    uint64_t reserved; /* FB_STAGE_OTHER */
    struct fb_device *device;
    struct fb_source *source;
    struct fb_order *order;
    struct fb_cache *cache; /* NULL: none */
    const char *policy;
    struct fb_pipeline *pipeline;
    struct fb_governor *governor;
    struct fb_run run; /* what the configuration came to; only read after open */
    uint64_t pss_before; /* Pss_Anon of this process when open began */

    pthread_mutex_t settings; /* one change at a time, the user's or the governor's */
    pthread_mutex_t lock; /* of what follows; taken before any other */
    uint64_t peak_pss, pss_read_ns, pss_cost_ns, pss_used; /* when it was last read */
    struct fb_observer observer; /* of stats(); guarded by lock */
    struct fb_pipeline_report report;
    /* Guarded by settings: */
    uint64_t cache_given_up; /* bytes of its limit, to a budget that was lowered */
    uint64_t auto_prefetch; /* before it was first set by hand; 0: it was not */
};

/* control.c: forebay_set as the control socket calls it. */
int fb_loader_set(void *loader, const char *key, const char *value, forebay_set_result *result,
                  forebay_error *error);
#endif
