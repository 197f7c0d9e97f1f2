/*
 * forecast.h -- `forebay plan`: everything a run would be given, without running it.
 */
#ifndef FB_PLAN_FORECAST_H
#define FB_PLAN_FORECAST_H
#include "plan/curve.h"
#include "plan/prepare.h"

struct fb_forecast {
    struct fb_ranks ranks;
    struct fb_run run;                  /* as the loader has it */
    uint64_t by_stage[FB_STAGE_COUNT];  /* the most that each will take */
    uint64_t page_cache_bytes;          /* raw data left to the page cache instead; 0: none */
    uint64_t samples, units, unit_bytes, epoch_batches;
    const char *kind;
    struct fb_curve curve;

    /* What it was made from, until release: */
    struct fb_budget *budget, *own; /* the run's, the simulation's */
    uint64_t reserved;
    struct fb_source *source;
    struct fb_order *order;
};

/* Opens the source and the order as a run would, and closes them again. */
int fb_forecast_make(struct fb_forecast *forecast, const struct fb_config *config,
                     const struct fb_log *log, forebay_error *error);
#endif
