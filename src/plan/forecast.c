#include "plan/forecast.h"

#include "base/size.h"
#include "memory/host.h"

#define OWN_BYTES ((uint64_t)64 << 20) /* for the simulation, beside the run's budget */

static int open_source(struct fb_forecast *forecast, const struct fb_config *config,
                       const struct fb_log *log, forebay_error *error)
{
    int status;

    if ((status = fb_ranks_find(&forecast->ranks, config, error)) ||
        (status = fb_prepare_budget(&forecast->budget, config, &forecast->ranks, log, error)) ||
        (status = fb_budget_reserve(forecast->budget, FB_STAGE_OTHER, FB_LOADER_BYTES,
                                    "the loader", error)))
        return status;
    forecast->reserved = FB_LOADER_BYTES;
    return fb_source_open(&forecast->source, config, forecast->budget, log, error);
}

/* This rank's order was for the plan; to look at, the whole one. */
static int whole_order(struct fb_forecast *forecast, const struct fb_order_options *options,
                       const struct fb_log *log, forebay_error *error)
{
    struct fb_order_options whole = *options;

    if (forecast->ranks.world == 1)
        return FOREBAY_OK;
    fb_order_close(forecast->order);
    forecast->order = NULL;
    whole.ranks = (struct fb_ranks){ .world = 1, .local_world = 1, .nodes = 1, .launcher = "none" };
    whole.sticky = FB_STICKY_NONE;
    return fb_order_open(&forecast->order, &whole, forecast->budget, log, error);
}

static void stages_fill(struct fb_forecast *forecast)
{
    const struct fb_plan_needs *needs = &forecast->run.needs;
    const struct fb_plan *plan = &forecast->run.plan;
    struct fb_budget_report now;
    uint64_t workers = fb_max(1, plan->workers), batches = plan->prefetch + FB_HELD_NORMAL, left;

    fb_budget_read(forecast->budget, &now);
    forecast->by_stage[FB_STAGE_INDEX] = now.by_stage[FB_STAGE_INDEX];
    forecast->by_stage[FB_STAGE_CACHE] = plan->cache;
    /* What the source holds already, chunks of packed shards, and what workers will. */
    forecast->by_stage[FB_STAGE_SCRATCH] =
        now.by_stage[FB_STAGE_SCRATCH] + workers * needs->scratch;
    forecast->by_stage[FB_STAGE_WORKERS] = workers * (needs->per_worker - needs->scratch);
    forecast->by_stage[FB_STAGE_OTHER] =
        needs->fixed - now.by_stage[FB_STAGE_INDEX] - now.by_stage[FB_STAGE_SCRATCH];
    left = plan->budget - fb_min(plan->budget, needs->fixed + plan->cache +
                                                   workers * needs->per_worker);
    /* A budget near the floor has room for fewer batches than are wanted. */
    forecast->by_stage[FB_STAGE_SLOTS] = fb_min(batches * needs->slot, left);
}

static void facts_fill(struct fb_forecast *forecast, const struct fb_config *config)
{
    const struct fb_source *source = forecast->source;
    uint64_t batch = fb_max(1, config->batch_size.value);
    uint64_t count = fb_order_count(forecast->order, fb_order_begin(forecast->order, 0));

    forecast->kind = source->ops->kind;
    forecast->samples = source->sample_count;
    forecast->units = source->unit_count;
    forecast->unit_bytes = source->unit_bytes_total;
    forecast->epoch_batches = config->order_drop_last ? count / batch
                                                      : (count + batch - 1) / batch;
    if (config->memory_cache.mode == FB_SIZE_AUTO && source->raw && forecast->run.plan.cache == 0)
        forecast->page_cache_bytes = source->unit_bytes_total;
    stages_fill(forecast);
}

static int draw_curve(struct fb_forecast *forecast, const struct fb_config *config,
                      const struct fb_order_options *order, const struct fb_log *log,
                      forebay_error *error)
{
    struct fb_curve_options options = { .source = forecast->source,
                                        .order_options = order,
                                        .ranks = forecast->ranks,
                                        .planned_bytes = fb_prepare_together(
                                            config, &forecast->ranks, forecast->run.plan.cache),
                                        .log = log };
    int status = whole_order(forecast, order, log, error);

    if (!status)
        status = fb_budget_new(&forecast->own, OWN_BYTES, error);
    options.order = forecast->order;
    options.budget = forecast->own;
    return status ? status : fb_curve_make(&forecast->curve, &options, error);
}

static void parts_close(struct fb_forecast *forecast)
{
    if (forecast->order)
        fb_order_close(forecast->order);
    if (forecast->source)
        fb_source_close(forecast->source);
    if (forecast->own)
        fb_budget_free(forecast->own);
    if (forecast->budget) {
        fb_budget_refund(forecast->budget, FB_STAGE_OTHER, forecast->reserved);
        fb_budget_free(forecast->budget);
    }
    forecast->order = NULL;
    forecast->source = NULL;
    forecast->own = forecast->budget = NULL;
}

int fb_forecast_make(struct fb_forecast *forecast, const struct fb_config *config,
                     const struct fb_log *log, forebay_error *error)
{
    int status;

    *forecast = (struct fb_forecast){ 0 };
    status = open_source(forecast, config, log, error);
    if (!status)
        status = fb_resolve(&forecast->run, &forecast->order, config, forecast->source,
                            &forecast->ranks, forecast->budget, log, error);
    if (!status) {
        facts_fill(forecast, config);
        status = draw_curve(forecast, config, &forecast->run.order, log, error);
    }
    parts_close(forecast);
    return status;
}
