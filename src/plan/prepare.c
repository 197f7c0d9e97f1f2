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

int fb_prepare_budget(struct fb_budget **out, const struct fb_config *config,
                      const struct fb_ranks *ranks, const struct fb_log *log,
                      forebay_error *error)
{
    const struct fb_size *size = &config->memory_budget;
    uint64_t here = fb_max(1, ranks->local_world), bytes = size->value / here;
    struct fb_host_memory host;
    char text[32];

    if (size->mode == FB_SIZE_AUTO) {
        fb_host_memory_read(&host, "");
        if (host.left_bytes == FB_UNKNOWN)
            return fb_fail(error, FOREBAY_BAD_CONFIG,
                           "memory.budget: auto cannot tell what this host leaves; name a size");
        bytes = host.left_bytes / 2 / here;
        fb_say(log, "memory.budget: auto is %s: half of what is available%s",
               fb_size_text(bytes, text), here > 1 ? ", divided by the ranks on this node" : "");
    } else if (here > 1) {
        fb_say(log, "memory.budget: this rank's part of %" PRIu64 " is %s", here,
               fb_size_text(bytes, text));
    }
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
 * subset epochs and several nodes; fill is as good as any elsewhere (caching.md). */
int fb_prepare_policy(const struct fb_config *config, const struct fb_source *source,
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

static uint64_t place_of(const void *order, uint64_t sample)
{
    return fb_order_entry_of(order, sample);
}

static uint64_t sample_at(const void *order, uint64_t place)
{
    return fb_order_entry_sample(order, place);
}

/* Is a part of the data another cache's for ever? */
static bool is_parted(const struct fb_config *config, const struct fb_ranks *ranks)
{
    return config->order_sticky != FB_STICKY_NONE && ranks->world > 1 &&
           (ranks->nodes > 1 || config->memory_share == FB_SHARE_OFF);
}

static bool uses_all(const struct fb_source *source, const struct fb_order *order)
{
    for (uint64_t sample = 0; sample < source->sample_count; sample++)
        if (!fb_order_uses(order, sample))
            return false;
    return true;
}

/* A block would keep neighbours that this cache never has a use for. */
static bool has_strangers(const struct fb_config *config, const struct fb_source *source,
                          const struct fb_order *order, const struct fb_ranks *ranks)
{
    if (is_parted(config, ranks))
        return true;
    if (config->order_subset)
        return !fb_blocks_can_choose(source);
    return config->order_weights && !uses_all(source, order);
}

/* Does it matter which single units are kept? Where the policy puts one in the place of another: not
 * if each is used once an epoch. And with weights: those drawn most come first, so fill has them. */
static bool singles_out(const struct fb_config *config, const struct fb_source *source,
                        const struct fb_order *order, const struct fb_ranks *ranks)
{
    int policy = fb_prepare_policy(config, source, ranks);

    if (policy == FB_POLICY_NEXT_USE)
        return source->shared_units || !fb_order_once(order);
    return policy == FB_POLICY_LRU || config->order_weights;
}

/* Units with their waste, 5 % at most, and the index. */
static uint64_t room_for(const struct fb_config *config, uint64_t bytes, uint64_t entries)
{
    return bytes + bytes / 20 +
           fb_cache_index_bytes(entries, config->memory_share != FB_SHARE_OFF);
}

static void measure_blocks(const struct fb_config *config, const struct fb_source *source,
                           const struct fb_order *order, const struct fb_ranks *ranks,
                           struct fb_blocks *blocks)
{
    struct fb_choice subset = { fb_order_entries(order), order, place_of, sample_at };
    struct fb_choice all = { .count = 0 };

    if (fb_blocks_any(source) && !has_strangers(config, source, order, ranks))
        fb_blocks_measure(source, config->order_subset ? subset : all, blocks);
}

/* Of the first `count` units, with an order only those it uses, as far as their sizes are known or
 * can be guessed. False: some cannot. */
static bool take_census(const struct fb_source *source, const struct fb_order *order,
                        uint64_t count, struct fb_census *census)
{
    for (unsigned f = 0; f < source->field_count; f++)
        if (!source->fields[f].together)
            return false;
    for (uint64_t unit = 0; unit < count; unit++) {
        struct fb_extent extent = source->ops->extent(source, unit);
        uint64_t bytes = fb_extent_bytes(&source->fields[unit % source->field_count], extent);

        if (extent.known == FB_EXTENT_BROKEN ||
            (order && !fb_order_uses(order, unit / source->field_count)))
            continue;
        if (bytes > FB_RACK_BYTES_MAX || (!bytes && extent.known == FB_EXTENT_UNKNOWN))
            return false;
        if (bytes)
            fb_census_add(census, bytes);
    }
    return true;
}

/* Are units tiny, and not known to be equal? Equal ones have a page each as it is. */
static bool wants_rack(const struct fb_source *source)
{
    uint64_t mean = source->unit_bytes_total / fb_max(1, source->unit_count);
    bool known = source->unit_count && source->ops->extent(source, 0).known == FB_EXTENT_EXACT;

    return mean < FB_SMALL_BYTES && !(known && fb_source_unit_bytes(source));
}

/* Where all units are as good as each other the smallest have their pages first: loading costs
 * something each and something per byte, so they save most time per byte. A page is then no other's:
 * it has to be known which units are used. */
static void choose_rack(const struct fb_config *config, const struct fb_source *source,
                        const struct fb_order *order, const struct fb_ranks *ranks, uint64_t cache,
                        struct fb_keeping *keeping)
{
    struct fb_census census = { .steps = { { .units = 0 } } };
    bool parted = is_parted(config, ranks);
    bool chosen = parted || config->order_subset;
    /* Which part of a node's is this rank's alone is not known. */
    bool rising = !singles_out(config, source, order, ranks) &&
                  !(parted && config->memory_share == FB_SHARE_OFF) &&
                  (!chosen || fb_blocks_can_choose(source));
    uint64_t covered = fb_cache_units_covered(source->unit_count, cache);

    if (!take_census(source, rising && chosen ? order : NULL, covered, &census))
        return;
    fb_rack_choose(&keeping->rack, &census, rising);
    if (rising && chosen)
        keeping->list = config->order_subset && !parted
                            ? fb_order_list(order)
                            : fb_mix2(fb_order_identity(order), ranks->node);
}

/* Would so many bytes keep more units in this rack than in these blocks? A rack has an index of all
 * units: of those of some hundred bytes blocks keep more. */
static bool keeps_more(const struct fb_config *config, const struct fb_source *source,
                       const struct fb_ranks *ranks, uint64_t cache,
                       const struct fb_keeping *keeping)
{
    uint64_t covered = fb_cache_units_covered(source->unit_count, cache);
    uint64_t index = fb_cache_index_bytes(covered, config->memory_share != FB_SHARE_OFF);
    uint64_t bytes = fb_prepare_together(config, ranks, cache);
    const struct fb_blocks *blocks = &keeping->blocks;
    uint64_t chosen = blocks->choice.count * source->field_count;
    struct fb_rack_map map;
    double part;

    if (!fb_rack_map_make(&keeping->rack, &map) || !map.rack.rising || bytes <= index)
        return false;
    part = (double)bytes / (double)room_for(config, blocks->bytes_total, blocks->count);
    return (double)fb_rack_pages_in(&map, bytes - index, 0) >
           part * (double)(chosen ? chosen : source->unit_count);
}

/* Blocks have the smallest index, so where all fit they are best. In a smaller cache they stay where
 * they are: good enough where one unit is as good as another, if a rack does not hold more of them;
 * else it goes by single units. */
void fb_prepare_keeping(const struct fb_config *config, const struct fb_source *source,
                        const struct fb_order *order, const struct fb_ranks *ranks, uint64_t cache,
                        struct fb_keeping *keeping)
{
    uint64_t together = fb_prepare_together(config, ranks, cache);
    struct fb_blocks *blocks = &keeping->blocks;

    *keeping = (struct fb_keeping){ .list = 0 };
    if (!cache)
        return;
    measure_blocks(config, source, order, ranks, blocks);
    if (blocks->count && room_for(config, blocks->bytes_total, blocks->count) <= together) {
        keeping->list = fb_order_list(order);
        return;
    }
    if (wants_rack(source))
        choose_rack(config, source, order, ranks, cache, keeping);
    if (blocks->count && !singles_out(config, source, order, ranks) &&
        !keeps_more(config, source, ranks, cache, keeping)) {
        keeping->rack.sizes = 0;
        keeping->list = fb_order_list(order);
    } else {
        blocks->count = 0;
    }
}

/* What a cache could hold at most; 0 where it would only be a second copy of the page cache. */
static uint64_t cache_wanted(const struct fb_config *config, const struct fb_source *source)
{
    struct fb_host_memory host;
    uint64_t total = source->unit_bytes_total;
    struct fb_blocks blocks; /* of one unit each where units are not tiny */

    if (config->memory_cache.mode != FB_SIZE_AUTO)
        return 0;
    if (source->raw && total) {
        fb_host_memory_read(&host, "");
        if (host.left_bytes != FB_UNKNOWN && total <= host.left_bytes)
            return 0;
    }
    if (!total)
        return UINT64_MAX / 2;
    fb_blocks_measure(source, (struct fb_choice){ .count = 0 }, &blocks);
    return room_for(config, total, blocks.count) + total / 64; /* rather more than less */
}

/* To know when a weighted draw comes again costs 8 bytes a sample for each epoch: worth it where a
 * cache goes by that, and where it is a small part of the memory. */
static uint64_t look_ahead(const struct fb_config *config, const struct fb_source *source,
                           const struct fb_ranks *ranks, uint64_t left)
{
    bool cached = config->memory_cache.mode != FB_SIZE_OFF && !source->ops->keep &&
                  (config->memory_cache.mode != FB_SIZE_AUTO || cache_wanted(config, source));

    if (!config->order_weights || !cached ||
        fb_prepare_policy(config, source, ranks) != FB_POLICY_NEXT_USE)
        return 0;
    return left / LOOK_AHEAD_SHARE;
}

int fb_prepare_order(struct fb_order_options *options, const struct fb_config *config,
                     const struct fb_source *source, const struct fb_ranks *ranks,
                     struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
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
        .look_ahead_bytes = look_ahead(config, source, ranks, now.limit - fb_min(now.limit, now.used)),
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

int fb_prepare_plan(struct fb_plan *plan, struct fb_plan_needs *needs,
                    const struct fb_config *config, const struct fb_source *source,
                    const struct fb_ranks *ranks, struct fb_budget *budget, forebay_error *error)
{
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
                                     .per_worker = pipeline.per_worker,
                                     .open = source->open_bytes,
                                     .scratch = pipeline.scratch,
                                     .cache_wanted = cache_wanted(config, source),
                                     .ranks = ranks->local_world };
    return fb_plan(plan, needs, config, now.limit, fb_host_cpus(), error);
}
