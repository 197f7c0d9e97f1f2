/* look.h -- what the governor's thread sees: one look at loader and host, as page and as view. */
#ifndef FB_GOVERNOR_LOOK_H
#define FB_GOVERNOR_LOOK_H
#include <stdatomic.h>

#include "governor/governor.h"
#include "governor/decide.h"
#include "monitor/page.h"

/* What the user has fixed, by key. */
enum fb_fixed { FB_FIXED_CACHE, FB_FIXED_WORKERS, FB_FIXED_PREFETCH, FB_FIXED_CPU, FB_FIXED_COUNT };

struct fb_look {
    struct fb_pipeline_report report;
    struct fb_budget_report budget;
    struct fb_cache_report cache;
    struct fb_host_groups groups;
    struct fb_host_memory host;
    struct fb_host_pressure pressure;
    struct fb_page page;
    unsigned cpus;

    /* Where the rates of the page were counted from */
    uint64_t since_ns, samples, batches, bytes, wait_ns, busy_ns, read_ns, copy_ns;
    uint64_t slow_ns;      /* when what is dear was read last */
};

void fb_look_begin(struct fb_look *look, const struct fb_governor_options *options);
/* Look at everything; `page` is brought up to date. */
void fb_look_take(struct fb_look *look, const struct fb_governor_options *options,
                  uint64_t now_ns);
struct fb_view fb_look_view(const struct fb_look *look, const struct fb_governor_options *options,
                            const atomic_bool fixed[FB_FIXED_COUNT], uint64_t now_ns);
/* Nanoseconds since 1970. */
uint64_t fb_wall_ns(void);
#endif
