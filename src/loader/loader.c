/* loader.c -- the public API: opens the parts in order, closes them in reverse. Start reading here. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mix.h"
#include "base/size.h"
#include "cache/cache.h"
#include "config/config.h"
#include "device/device.h"
#include "device_stage/upload.h"
#include "loader/loader.h"
#include "monitor/postmortem.h"
#include "monitor/snapshot.h"
#include "order/order.h"
#include "pipeline/pipeline.h"
#include "plan/prepare.h"
#include "source/source.h"

static int find_budget(forebay_loader *loader, struct fb_budget *shared, forebay_error *error)
{
    if (!shared)
        return fb_prepare_budget(&loader->budget, &loader->config, &loader->ranks, &loader->log,
                                 error);
    loader->budget = fb_budget_share(shared);
    return FOREBAY_OK;
}

static int open_cache(forebay_loader *loader, forebay_error *error)
{
    const struct fb_plan *plan = &loader->run.plan;
    const struct fb_source *source = loader->source;
    struct fb_cache_options options = {
        .unit_count = source->unit_count,
        .unit_bytes = fb_source_unit_bytes(source),
        .unit_bytes_median = source->unit_bytes_total / fb_max(1, source->unit_count),
        .unit_bytes_max = source->unit_bytes_max,
        .limit_bytes = plan->cache,
        .policy = fb_policies[loader->run.policy],
        .pins_max = (unsigned)(fb_max(1, plan->workers) * source->parts_max),
        .share = loader->config.memory_share,
        .identity = source->identity,
        .budget = loader->budget,
        .log = &loader->log,
        .job = fb_mix2(fb_cache_job(), fb_order_identity(loader->order)) | 1,
    };
    int status;

    loader->policy = "none";
    if (plan->cache == 0)
        return FOREBAY_OK;
    if (source->ops->keep) {
        if (source->ops->keep(loader->source, plan->cache, loader->run.window) > 0)
            loader->policy = fb_policy_fill.name;
        return FOREBAY_OK;
    }
    /* First come is what is drawn most: a smaller one in its place would be a worse one. */
    options.steady = !options.policy->swaps_equal && loader->config.order_weights;
    status = fb_cache_open(&loader->cache, &options, error);
    if (status == FOREBAY_OVER_BUDGET && loader->config.memory_cache.mode == FB_SIZE_AUTO) {
        fb_say(&loader->log, "no cache: %s", error->message);
        return FOREBAY_OK;
    }
    if (!status)
        loader->policy = options.policy->name;
    return status;
}

/* With several ranks a batch that is one short would make them fall out of step. */
static int resolve_on_error(const forebay_loader *loader)
{
    if (!fb_config_is_set(&loader->config, "on_error") && loader->ranks.world > 1)
        return FB_ON_ERROR_REPLACE;
    return loader->config.on_error;
}

/* All that the pipeline stood on, in reverse. */
static void close_parts(void *owner)
{
    forebay_loader *loader = owner;

    if (loader->cache)
        fb_cache_close(loader->cache);
    if (loader->order)
        fb_order_close(loader->order);
    if (loader->source)
        fb_source_close(loader->source);
    if (loader->device)
        fb_device_close(loader->device);
    if (loader->has_config)
        fb_config_release(&loader->config);
    if (loader->budget) {
        fb_budget_refund(loader->budget, FB_STAGE_OTHER, loader->reserved);
        fb_budget_free(loader->budget);
    }
    pthread_mutex_destroy(&loader->lock);
    pthread_mutex_destroy(&loader->settings);
    free(loader);
}

/* What a worker may say when it comes back has nobody to hear it any more. */
static void be_quiet(void *owner)
{
    atomic_store(&((forebay_loader *)owner)->closed, true);
}

static int open_pipeline(forebay_loader *loader, forebay_error *error)
{
    const struct fb_plan *plan = &loader->run.plan;
    const struct fb_config *config = &loader->config;
    struct fb_pipeline_options options = {
        .source = loader->source,
        .order = loader->order,
        .cache = loader->cache,
        .device = loader->device,
        .device_stage = &fb_device_stage,
        .budget = loader->budget,
        .log = &loader->log,
        .config = config,
        .ranks = loader->ranks,
        .seed = config->order_seed.value,
        .on_error = resolve_on_error(loader),
        .next_use = loader->cache && fb_cache_wants_next_use(loader->cache),
        .workers = plan->workers,
        .prefetch = plan->prefetch,
        .slots_floor = plan->slots_floor,
        .epochs = config->epochs.is_auto ? UINT64_MAX : config->epochs.value,
        .stuck = be_quiet,
        .left = close_parts,
        .owner = loader,
    };

    if (!config->workers.is_auto && plan->workers < config->workers.value)
        fb_say(&loader->log, "%" PRIu64 " workers instead of %" PRIu64
               ": memory.budget has no room for more", plan->workers, config->workers.value);
    return fb_pipeline_open(&loader->pipeline, &options, error);
}

static int start_governor(forebay_loader *loader, forebay_error *error)
{
    bool shared = loader->config.memory_share != FB_SHARE_OFF;
    struct fb_governor_options options = {
        .pipeline = loader->pipeline,
        .cache = loader->cache,
        .source = loader->source,
        .budget = loader->budget,
        .config = &loader->config,
        .log = &loader->log,
        .settings = &loader->settings,
        .name = loader->name,
        .policy = loader->policy,
        .device = loader->device->ops->kind,
        .ranks = loader->ranks,
        .run = &loader->run,
        .cache_least = loader->cache ? fb_cache_index_bytes(loader->source->unit_count, shared) : 0,
        .cache_most = loader->cache ? loader->run.needs.cache_wanted : 0,
        .set = fb_loader_set,
        .data = loader,
    };

    return fb_governor_start(&loader->governor, &options, error);
}

/* Keys that only a device has an effect on are accepted, so that one file serves everywhere. */
static void say_host(const forebay_loader *loader)
{
    static const char *const keys[] = { "device.cache", "device.prefetch", "device.preload" };

    for (size_t i = 0; i < 3 && fb_device_is_host(loader->device); i++)
        if (fb_config_is_set(&loader->config, keys[i])) {
            fb_say(&loader->log, "%s has no effect: batches stay in the host's memory", keys[i]);
            return;
        }
}

static int open_parts(forebay_loader *loader, const forebay_options *options, forebay_error *error)
{
    int status = fb_config_read(&loader->config, options, &loader->log, error);

    if (status)
        return status;
    loader->has_config = true;
    if (loader->config.name)
        snprintf(loader->name, sizeof(loader->name), "%s", loader->config.name);
    if ((status = fb_ranks_find(&loader->ranks, &loader->config, error)) ||
        (status = find_budget(loader, options->budget ? options->budget->budget : NULL, error)) ||
        (status = fb_budget_reserve(loader->budget, FB_STAGE_OTHER, FB_LOADER_BYTES, "the loader",
                                    error)))
        return status;
    loader->reserved = FB_LOADER_BYTES;
    fb_death_sweep(&loader->log);
    if ((status = fb_device_open(&loader->device, loader->config.device_kind, &loader->log,
                                 error)) ||
        (status = fb_prepare_preset(&loader->config, loader->device, &loader->log, error)) ||
        (status = fb_source_open(&loader->source, &loader->config, loader->budget, &loader->log,
                                 error)) ||
        (status = fb_resolve(&loader->run, &loader->order, &loader->config, loader->source,
                             &loader->ranks, loader->budget, &loader->log, error)) ||
        (status = open_cache(loader, error)))
        return status;
    say_host(loader);
    if ((status = open_pipeline(loader, error)) ||
        (status = start_governor(loader, error)))
        return status;
    fb_pipeline_start(loader->pipeline);
    return FOREBAY_OK;
}

/* The caller's log and its data are the caller's again after close. */
static void pass_on(void *data, int level, const char *line)
{
    const forebay_loader *loader = data;

    if (!atomic_load(&loader->closed))
        loader->talk.log(loader->talk.data, level, line);
}

static int pass_progress_on(void *data, const char *what, uint64_t done, uint64_t total)
{
    const forebay_loader *loader = data;

    return loader->talk.progress(loader->talk.data, what, done, total);
}

int forebay_open(forebay_loader **out, const forebay_options *options, forebay_error *error)
{
    forebay_loader *loader = calloc(1, sizeof(*loader));
    forebay_error local;
    int status;

    error = error ? error : &local;
    if (!loader)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a loader");
    loader->pid = getpid();
    loader->talk = (struct fb_log){ options->log, options->progress, options->data };
    loader->log = (struct fb_log){ options->log ? pass_on : NULL,
                                   options->progress ? pass_progress_on : NULL, loader };
    loader->pss_before = fb_host_pss_anon_bytes();
    pthread_mutex_init(&loader->lock, NULL);
    pthread_mutex_init(&loader->settings, NULL);
    status = open_parts(loader, options, error);
    if (status) {
        forebay_close(loader);
        return status;
    }
    *out = loader;
    return FOREBAY_OK;
}

void forebay_close(forebay_loader *loader)
{
    if (!loader || loader->pid != getpid())
        return;
    fb_governor_stop(loader->governor);
    /* A worker that is stuck in the kernel still uses what it borrowed: it closes the rest when it
     * comes back. Then the loader may be gone already when this returns. */
    if (fb_pipeline_close(loader->pipeline) == 0)
        close_parts(loader);
}

/* ---- Budgets that loaders share ---- */

int forebay_budget_new(forebay_budget **out, uint64_t bytes, forebay_error *error)
{
    forebay_budget *budget = calloc(1, sizeof(*budget));
    int status;

    if (!budget)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a budget");
    status = fb_budget_new(&budget->budget, bytes, error);
    if (status) {
        free(budget);
        return status;
    }
    *out = budget;
    return FOREBAY_OK;
}

void forebay_budget_free(forebay_budget *budget)
{
    if (!budget)
        return;
    fb_budget_free(budget->budget);
    free(budget);
}
