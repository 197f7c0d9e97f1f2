#include "plan/prepare.h"

#include <inttypes.h>

#include "base/mix.h"
#include "base/size.h"
#include "cache/cache.h"
#include "memory/host.h"
#include "pipeline/pipeline.h"

#define LOOK_AHEAD_SHARE 32 /* of what is left of the budget */
/* Constants, because a state resumes under any budget: the order may not depend on it. */
#define BLOCK_ORDER_BYTES ((uint64_t)1 << 30)  /* larger tables are read block by block */
/* Cards sold as 24 GB report a little less than 24 GiB, cards sold as 12 GB at most 12 GiB. */
#define AGGRESSIVE_BYTES ((uint64_t)24 * 1000 * 1000 * 1000)
#define MINIMAL_BYTES ((uint64_t)12 << 30)

int fb_prepare_preset(struct fb_config *config, struct fb_device *device, const struct fb_log *log,
                      forebay_error *error)
{
    struct fb_device_info info;
    const char *name = "gpu-minimal";
    char text[32];

    if (config->preset != FB_PRESET_GPU_AUTO)
        return FOREBAY_OK;
    if (fb_device_is_host(device)) {
        fb_say(log, "preset: gpu-auto takes none: batches stay in the host's memory");
        return FOREBAY_OK;
    }
    device->ops->info(device, &info);
    if (info.total_bytes != UINT64_MAX && info.total_bytes >= AGGRESSIVE_BYTES)
        name = "gpu-aggressive";
    else if (info.total_bytes != UINT64_MAX && info.total_bytes > MINIMAL_BYTES)
        name = "gpu-combined";
    fb_say(log, "preset: gpu-auto takes %s: %s:%u has %s", name, device->ops->kind, device->number,
           info.total_bytes == UINT64_MAX ? "memory, but does not tell how much"
                                          : fb_size_text(info.total_bytes, text));
    return fb_config_apply_preset(config, name, log, error);
}

/* What this machine, or the tightest control group around us, has in all. */
static uint64_t host_limit(const struct fb_host_memory *host)
{
    return fb_min(host->total_bytes, host->cgroup_limit_bytes); /* unknown is the largest number */
}

static uint64_t named_budget(uint64_t bytes, const struct fb_host_memory *host,
                             const struct fb_log *log)
{
    uint64_t most = host_limit(host);
    char want[32], have[32];

    if (bytes <= most)
        return bytes;
    fb_warn(log, "memory.budget: %s is more than the %s that this %s has; %s will be used",
            fb_size_text(bytes, want), fb_size_text(most, have),
            most == host->total_bytes ? "machine" : "control group", have);
    return most;
}

int fb_prepare_budget(struct fb_budget **out, const struct fb_config *config,
                      const struct fb_ranks *ranks, const struct fb_log *log,
                      forebay_error *error)
{
    const struct fb_size *size = &config->memory_budget;
    uint64_t here = fb_max(1, ranks->local_world), bytes;
    struct fb_host_memory host;
    char text[32];

    fb_host_memory_read(&host, "");
    if (size->mode == FB_SIZE_AUTO) {
        if (host.left_bytes == FB_UNKNOWN)
            return fb_fail(error, FOREBAY_BAD_CONFIG,
                           "memory.budget: auto cannot tell what this host leaves; name a size");
        bytes = host.left_bytes / 2 / here;
        fb_say(log, "memory.budget: auto is %s: half of what is available%s",
               fb_size_text(bytes, text), here > 1 ? ", divided by the ranks on this node" : "");
        return fb_budget_new(out, bytes, error);
    }
    bytes = named_budget(size->value, &host, log) / here;
    if (here > 1)
        fb_say(log, "memory.budget: this rank's part of %" PRIu64 " is %s", here,
               fb_size_text(bytes, text));
    return fb_budget_new(out, bytes, error);
}

static bool has_draws(const struct fb_config *config)
{
    return config->order_weights || !config->order_draws.is_auto;
}

/* May samples come in groups though the user did not ask for that? */
static bool may_group(const struct fb_config *config)
{
    return !fb_config_is_set(config, "order.group") && config->order_shuffle &&
           config->order_sticky == FB_STICKY_NONE && !has_draws(config);
}

/* Rows of a large table are read block by block unless the user says otherwise. */
static int resolve_group(const struct fb_config *config, const struct fb_source *source,
                         const struct fb_log *log)
{
    char have[32], most[32];

    if (!may_group(config) || !source->block_samples ||
        source->unit_bytes_total <= BLOCK_ORDER_BYTES)
        return config->order_group;
    fb_say(log, "order.group: block, because the table has %s (more than %s); order.group: none "
           "shuffles all rows and reads each by itself",
           fb_size_text(source->unit_bytes_total, have), fb_size_text(BLOCK_ORDER_BYTES, most));
    return FB_GROUP_BLOCK;
}

/* A source that is read from front to back gets its groups one after the other, mixed as far as its
 * memory goes, unless the user names another order. */
static bool is_in_order(const struct fb_config *config, const struct fb_source *source)
{
    return source->stretch_samples && may_group(config);
}

static void order_by_stretches(struct fb_order_options *options, const struct fb_source *source,
                               const struct fb_log *log)
{
    options->group = FB_GROUP_SEQUENCE;
    options->stretch = source->stretch_samples;
    fb_say(log, "order: whole shards are shuffled, and %" PRIu64 " samples at a time inside of what "
           "they make: shards are read from front to back", options->stretch);
}

static float length_of(const void *source, uint64_t sample)
{
    return ((const struct fb_source *)source)->ops->length(source, sample);
}

static int check_buckets(const struct fb_config *config, const struct fb_source *source,
                         forebay_error *error)
{
    int status;

    if (!config->source_buckets || source->ops->length)
        return FOREBAY_OK;
    status = fb_fail(error, FOREBAY_BAD_CONFIG,
                     "source.buckets: samples of kind %s have no length to go by",
                     source->ops->kind);
    fb_config_place(config, "source.buckets", error);
    return status;
}

/* next-use pays where a unit that cannot be sliced is used by several samples, for weighted draws,
 * subset epochs and several nodes; fill is as good as any elsewhere (docs/cache.md). */
static int resolve_policy(const struct fb_config *config, const struct fb_source *source,
                          const struct fb_ranks *ranks)
{
    if (config->memory_policy != FB_POLICY_AUTO)
        return config->memory_policy;
    if (source->sliced)
        return FB_POLICY_FILL;
    if (source->shared_units || has_draws(config) || config->order_subset || ranks->nodes > 1)
        return FB_POLICY_NEXT_USE;
    return FB_POLICY_FILL;
}

uint64_t fb_prepare_together(const struct fb_config *config, const struct fb_ranks *ranks,
                             uint64_t cache)
{
    return config->memory_share == FB_SHARE_OFF ? cache : cache * fb_max(1, ranks->local_world);
}

/* Units with their waste, 5 % at most, and the index. */
static uint64_t room_for(const struct fb_config *config, uint64_t bytes, uint64_t entries)
{
    return bytes + bytes / 20 +
           fb_cache_index_bytes(entries, config->memory_share != FB_SHARE_OFF);
}

/* What a cache could hold at most; 0 where it would only be a second copy of the page cache. */
static uint64_t cache_wanted(const struct fb_config *config, const struct fb_source *source)
{
    struct fb_host_memory host;
    uint64_t total = source->unit_bytes_total;

    if (config->memory_cache.mode != FB_SIZE_AUTO)
        return 0;
    if (source->raw && total) {
        fb_host_memory_read(&host, "");
        if (host.left_bytes != FB_UNKNOWN && total <= host.left_bytes)
            return 0;
    }
    if (!total)
        return UINT64_MAX / 2;
    return room_for(config, total, source->unit_count) + total / 64; /* rather more than less */
}

/* To know when a weighted draw comes again costs 8 bytes a sample for each epoch: worth it where a
 * cache goes by that, and where it is a small part of the memory. */
static uint64_t look_ahead(const struct fb_config *config, const struct fb_source *source,
                           int policy, uint64_t left)
{
    bool cached = config->memory_cache.mode != FB_SIZE_OFF && !source->ops->keep &&
                  (config->memory_cache.mode != FB_SIZE_AUTO || cache_wanted(config, source));

    if (!config->order_weights || !cached || fb_policies[policy]->stamp != FB_STAMP_NEXT_USE)
        return 0;
    return left / LOOK_AHEAD_SHARE;
}

static int resolve_order(struct fb_run *run, const struct fb_config *config,
                         const struct fb_source *source, const struct fb_ranks *ranks,
                         struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct fb_order_options *options = &run->order;
    uint64_t sample_bytes = fb_max(1, source->unit_bytes_total / fb_max(1, source->sample_count));
    struct fb_budget_report now;
    int status = check_buckets(config, source, error);

    if (status)
        return status;
    if (source->sample_count == 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "the source has no sample");
    fb_budget_read(budget, &now);
    *options = (struct fb_order_options){
        .samples = source->sample_count,
        .seed = config->order_seed.value,
        .shuffle = config->order_shuffle,
        .group = resolve_group(config, source, log),
        .group_count = source->group_count,
        .group_ends = source->group_ends,
        .sticky = config->order_sticky,
        .ends = config->order_ends,
        .subset_file = config->order_subset,
        .weights_file = config->order_weights,
        .draws = config->order_draws.value,
        .look_ahead_bytes = look_ahead(config, source, run->policy,
                                       now.limit - fb_min(now.limit, now.used)),
        .bucket_batch = config->source_buckets ? config->batch_size.value : 0,
        .length = length_of,
        .length_data = source,
        .fingerprint = source->fingerprint,
        .ranks = *ranks,
    };
    options->block = !config->order_block.is_auto ? fb_max(1, config->order_block.value)
                     : source->block_samples      ? source->block_samples
                                                  : fb_max(1, FB_MIB / sample_bytes);
    options->window = config->order_window.is_auto
                          ? fb_max(1, FB_ORDER_WINDOW_BYTES / sample_bytes / options->block)
                          : fb_max(1, config->order_window.value);
    if (is_in_order(config, source))
        order_by_stretches(options, source, log);
    return FOREBAY_OK;
}

/* Where sizes differ the largest samples may meet in one batch, or may not. */
static void warn_of_large_batches(const struct fb_plan_needs *needs, uint64_t budget,
                                  const struct fb_log *log)
{
    uint64_t left = budget - fb_min(budget, needs->fixed + needs->per_worker);
    char most[32], have[32];

    if (!needs->fixed_layout && needs->slot > left)
        fb_warn(log, "a batch may take up to %s, and memory.budget has %s for it: a batch that does "
                "not fit ends the run when it comes; raise memory.budget or lower batch.size",
                fb_size_text(needs->slot, most), fb_size_text(left, have));
}

/* Divide what is left of the budget; everything opened so far (index, order) is in it. */
static int resolve_plan(struct fb_run *run, const struct fb_config *config,
                        const struct fb_source *source, const struct fb_ranks *ranks,
                        struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct fb_plan_needs *needs = &run->needs;
    bool cached = config->memory_cache.mode != FB_SIZE_OFF && !source->ops->keep;
    struct fb_pipeline_needs pipeline;
    struct fb_budget_report now;
    int status = fb_pipeline_measure(&pipeline, source, config, cached, budget, error);

    if (status)
        return status;
    fb_budget_read(budget, &now);
    *needs = (struct fb_plan_needs){ .fixed = now.used + FB_LOADER_FIXED_BYTES,
                                     .slot = pipeline.slot,
                                     .slot_header = pipeline.header,
                                     .fixed_layout = pipeline.fixed,
                                     .certain = pipeline.certain,
                                     .per_worker = pipeline.per_worker,
                                     .open = source->open_bytes,
                                     .scratch = pipeline.scratch,
                                     .cache_wanted = cache_wanted(config, source),
                                     .ranks = ranks->local_world };
    status = fb_plan(&run->plan, needs, config, now.limit, fb_host_cpus(), error);
    if (!status)
        warn_of_large_batches(needs, now.limit, log);
    return status;
}

/* How many bytes samples come from at a time; UINT64_MAX: from everywhere. */
static uint64_t window_bytes(const struct fb_order_options *options, const struct fb_source *source)
{
    uint64_t sample = source->unit_bytes_total / fb_max(1, source->sample_count), bytes;

    if (options->weights_file || (options->shuffle && options->group != FB_GROUP_BLOCK))
        return UINT64_MAX;
    if (!options->shuffle)
        return 0;
    return fb_mul(options->window, options->block, &bytes) && fb_mul(bytes, sample, &bytes)
               ? bytes
               : UINT64_MAX;
}

int fb_resolve(struct fb_run *run, struct fb_order **order, const struct fb_config *config,
               const struct fb_source *source, const struct fb_ranks *ranks,
               struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    int status;

    *run = (struct fb_run){ .policy = resolve_policy(config, source, ranks) };
    status = resolve_order(run, config, source, ranks, budget, log, error);
    if (!status)
        status = fb_order_open(order, &run->order, budget, log, error);
    if (status)
        return status;
    run->window = window_bytes(&run->order, source);
    return resolve_plan(run, config, source, ranks, budget, log, error);
}
