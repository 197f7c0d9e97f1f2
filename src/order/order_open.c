/* order_open.c -- which of its forms an order takes, and what it must keep for that. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"
#include "order/order_internal.h"

/* Tables of shuffled groups, at most: the epochs that next_use may look at, and one behind. */
#define MOST_EPOCHS 16

typedef unsigned long long llu; /* for messages */

static int refuse(forebay_error *error, const char *key, const char *reason)
{
    int status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s: %s", key, reason);

    fb_error_place(error, "%s", key);
    return status;
}

static int check_combination(const struct fb_order_options *options, forebay_error *error)
{
    if (options->weights_file && options->subset_file)
        return refuse(error, "order.weights",
                      "cannot be used together with order.subset; "
                      "give the other samples the weight 0");
    if (options->weights_file && options->group != FB_GROUP_NONE)
        return refuse(error, "order.weights", "draws single samples; set order.group to none");
    if (options->weights_file && options->sticky != FB_STICKY_NONE)
        return refuse(error, "order.weights", "draws for all ranks; set order.sticky to none");
    if (options->weights_file && !options->shuffle)
        return refuse(error, "order.weights", "always draws at random; set order.shuffle to true");
    if (options->draws > FB_MAX_SAMPLES)
        return refuse(error, "order.draws", "may not be above 2^40");
    if (options->draws && !options->weights_file &&
        (!options->shuffle || options->group != FB_GROUP_NONE ||
         options->sticky != FB_STICKY_NONE || options->bucket_batch))
        return refuse(error, "order.draws",
                      "draws single samples at random; set order.shuffle to true, order.group and "
                      "order.sticky to none, and leave out source.buckets");
    if (options->sticky != FB_STICKY_NONE && options->group != FB_GROUP_NONE && options->shuffle)
        return refuse(error, "order.sticky",
                      "cannot be used together with order.group; "
                      "set one of them to none");
    if (options->bucket_batch && options->weights_file)
        return refuse(error, "source.buckets", "cannot be used together with order.weights");
    if (options->bucket_batch && options->samples > UINT32_MAX)
        return refuse(error, "source.buckets", "can sort no more than 2^32 samples");
    if (options->group == FB_GROUP_BLOCK && (!options->block || !options->window))
        return refuse(error, options->block ? "order.window" : "order.block",
                      "must be at least 1 with order.group: block");
    return FOREBAY_OK;
}

static int check_ranks(const struct fb_ranks *ranks, forebay_error *error)
{
    int status = FOREBAY_OK;

    if (!ranks->world || ranks->world > FB_MAX_SAMPLES || ranks->rank >= ranks->world ||
        !ranks->local_world || !ranks->nodes || ranks->nodes > ranks->world ||
        ranks->node >= ranks->nodes) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "order.rank: rank %llu of %llu, %llu of them on node %llu of %llu, cannot "
                         "be; check order.rank, order.world and memory.ranks_here",
                         (llu)ranks->rank, (llu)ranks->world, (llu)ranks->local_world,
                         (llu)ranks->node, (llu)ranks->nodes);
        fb_error_place(error, "order.rank");
    }
    return status;
}

/* Sticky by node: every rank must come to the same picture of who is where on its own. */
static int check_nodes(const struct fb_ranks *ranks, forebay_error *error)
{
    uint64_t each = ranks->world / ranks->nodes;
    int status;

    if (ranks->nodes * each == ranks->world && ranks->rank / each == ranks->node &&
        ranks->local_world == each)
        return FOREBAY_OK;
    status = fb_fail(error, FOREBAY_BAD_CONFIG,
                     "order.sticky: node needs as many ranks on each node, numbered node by node, "
                     "but rank %llu of %llu is on node %llu of %llu with %llu ranks; use "
                     "order.sticky: rank, or start the job so",
                     (llu)ranks->rank, (llu)ranks->world, (llu)ranks->node, (llu)ranks->nodes,
                     (llu)ranks->local_world);
    fb_error_place(error, "order.sticky");
    return status;
}

static int check_groups(const struct fb_order_options *options, forebay_error *error)
{
    uint64_t before = 0;

    if (!options->group_count || !options->group_ends)
        return refuse(error, "order.group", "sequence needs a source that has sequences (folders)");
    for (uint64_t i = 0; i < options->group_count; i++) {
        if (options->group_ends[i] < before)
            return fb_fail(error, FOREBAY_BAD_USE, "order: group %llu ends before it begins",
                           (llu)i);
        before = options->group_ends[i];
    }
    if (before != options->samples || options->group_count > FB_MAX_SAMPLES)
        return fb_fail(error, FOREBAY_BAD_USE, "order: the groups end at %llu of %llu samples",
                       (llu)before, (llu)options->samples);
    return FOREBAY_OK;
}

static int check(const struct fb_order_options *options, forebay_error *error)
{
    int status = check_combination(options, error);

    if (status)
        return status;
    if (!options->samples || options->samples > FB_MAX_SAMPLES)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "order: the source has %llu samples; 1 to 2^40 can be ordered",
                       (llu)options->samples);
    status = check_ranks(&options->ranks, error);
    if (!status && options->sticky == FB_STICKY_NODE && options->shuffle)
        status = check_nodes(&options->ranks, error);
    if (!status && options->shuffle && options->group == FB_GROUP_SEQUENCE)
        status = check_groups(options, error);
    return status;
}

static enum fb_order_form form_of(const struct fb_order_options *options)
{
    if (options->weights_file)
        return FB_FORM_DRAWS;
    if (!options->shuffle) /* groups, blocks and owners are then in order by themselves */
        return FB_FORM_SEQUENTIAL;
    if (options->sticky != FB_STICKY_NONE)
        return FB_FORM_STICKY;
    if (options->group == FB_GROUP_SEQUENCE)
        return FB_FORM_GROUPS;
    return options->group == FB_GROUP_BLOCK ? FB_FORM_BLOCKS : FB_FORM_SHUFFLED;
}

/* The lowest rank on this node. Exact where nodes have as many ranks each, numbered node by node;
 * only next_use depends on it, and so only the cache's choices. */
static uint64_t first_rank_here(const struct fb_ranks *ranks)
{
    uint64_t here = fb_min(ranks->local_world, ranks->world);

    if (ranks->world % here == 0)
        return ranks->rank / here * here;
    if (ranks->node + 1 == ranks->nodes)
        return ranks->world - here;
    return fb_min(ranks->node * here, ranks->world - here);
}

static int open_groups(struct fb_order *order, const struct fb_order_options *options,
                       forebay_error *error)
{
    const uint64_t *ends = options->group_ends;
    uint64_t epochs = fb_min(3 + (order->ranks.nodes > 1 ? order->ranks.nodes : 0), MOST_EPOCHS);

    order->group_count = options->group_count;
    if (order->subset.count) { /* groups of what the subset leaves; some may be empty */
        order->group_ends = fb_block_new(order->budget, FB_STAGE_INDEX, order->group_count,
                                         sizeof(uint64_t), "order.group: sequence", error);
        if (!order->group_ends)
            return error->status;
        for (uint64_t i = 0; i < order->group_count; i++)
            order->group_ends[i] = fb_subset_below(&order->subset, ends[i]);
        ends = order->group_ends;
    }
    order->horizon = epochs - 1;
    order->stretch = options->stretch;
    if (order->stretch)
        order->hash = fb_mix2(order->hash, order->stretch);
    for (uint64_t i = 0; i < order->group_count; i++)
        order->hash = fb_mix2(order->hash, ends[i]);
    return fb_groups_open(&order->groups, order->group_count, ends, order->seed, epochs,
                          order->budget, error);
}

/* Tables of the draws to come, as many epochs as the memory allowed for them has room for. Without
 * any next uses are not known, and a cache that asks keeps what it has. */
static int open_uses(struct fb_order *order, uint64_t bytes, const struct fb_log *log,
                     forebay_error *error)
{
    uint64_t each = fb_uses_bytes(order->samples, order->length);
    char have[32], need[32];

    order->horizon = 0;
    if (!bytes)
        return FOREBAY_OK;
    /* This epoch and the next one's first batches are in work at once: two tables at least. */
    if (order->length > UINT32_MAX || bytes / each < 2) {
        fb_say(log, "order.weights: when a sample is drawn again would take %s to know, and there "
               "are %s for it: the cache keeps what came first",
               fb_size_text(2 * each, need), fb_size_text(bytes, have));
        return FOREBAY_OK;
    }
    order->horizon = fb_min(bytes / each - 1, FB_DRAWS_HORIZON);
    return fb_uses_open(&order->uses, &order->draws, order->length, order->seed,
                        order->horizon + 1, order->budget, error);
}

/* Epochs of so many of the entries, another random part each time. A sample comes here again after
 * `mean` epochs; four times as many see all but one in fifty of them come. */
static int open_part(struct fb_order *order, uint64_t draws, forebay_error *error)
{
    uint64_t mean = (order->entries / draws + 1) * order->ranks.nodes;
    int status;

    if (draws > order->entries) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "order.draws: %llu of %llu samples cannot be drawn without repeating one; "
                         "draw at most as many, or give order.weights to draw with replacement",
                         (llu)draws, (llu)order->entries);
        fb_error_place(error, "order.draws");
        return status;
    }
    if (draws < order->entries)
        order->horizon = fb_min(4 * mean, FB_PART_HORIZON);
    order->length = draws;
    return FOREBAY_OK;
}

static int open_form(struct fb_order *order, const struct fb_order_options *options,
                     const struct fb_log *log, forebay_error *error)
{
    int status = FOREBAY_OK;

    if (options->subset_file) {
        status = fb_subset_read(&order->subset, options->subset_file, order->samples,
                                order->form == FB_FORM_SEQUENTIAL, order->budget, log, error);
        order->entries = order->length = order->subset.count;
    }
    if (!status && order->form == FB_FORM_DRAWS) {
        status = fb_draws_read(&order->draws, options->weights_file, order->samples, order->budget,
                               log, error);
        order->length = options->draws ? options->draws : order->samples;
        if (!status)
            status = open_uses(order, options->look_ahead_bytes, log, error);
    } else if (!status && options->draws) {
        status = open_part(order, options->draws, error);
    }
    if (status)
        return status;
    order->all = fb_permutation_make(order->entries, 0);
    order->hash = fb_mix2(order->subset.hash, order->draws.hash);
    if (order->form == FB_FORM_BLOCKS)
        fb_block_shuffle_init(&order->blocks, order->entries, options->block, options->window);
    if (order->form == FB_FORM_GROUPS)
        status = open_groups(order, options, error);
    if (!status && options->bucket_batch) {
        order->length_of = options->length;
        order->length_data = options->length_data;
        order->hash = fb_mix2(order->hash, options->bucket_batch);
        status = fb_buckets_open(&order->buckets, options->bucket_batch, order->length,
                                 order->ranks.world, order->seed, order->budget, error);
    }
    return status;
}

/* What a person needs to see why a state does not fit. */
static void describe(struct fb_order *order)
{
    static const char *const forms[] = { "sequential", "shuffled",       "shuffled sequences",
                                         "blocks",     "sticky by rank", "weighted draws" };
    char *text = order->text;
    size_t size = sizeof(order->text);
    int used = snprintf(text, size, "%s",
                        order->form == FB_FORM_STICKY && order->sticky == FB_STICKY_NODE
                            ? "sticky by node"
                            : forms[order->form]);

    if (order->form == FB_FORM_BLOCKS)
        used += snprintf(text + used, size - (size_t)used, " of %llu, windows of %llu",
                         (llu)order->blocks.size, (llu)order->blocks.window);
    if (order->form == FB_FORM_GROUPS)
        used +=
            snprintf(text + used, size - (size_t)used, ", %llu of them", (llu)order->group_count);
    if (order->stretch)
        used += snprintf(text + used, size - (size_t)used, ", mixed by %llu samples",
                         (llu)order->stretch);
    if (order->subset.count)
        used += snprintf(text + used, size - (size_t)used, ", subset");
    if (order->form != FB_FORM_DRAWS && order->length < order->entries)
        used += snprintf(text + used, size - (size_t)used, ", a part each epoch");
    if (order->buckets)
        snprintf(text + used, size - (size_t)used, ", in buckets by length");
}

static int report_ends(const struct fb_order *order, const struct fb_log *log, forebay_error *error)
{
    struct fb_cursor begin = fb_order_begin(order, 0);
    uint64_t uneven = fb_order_uneven(order, begin);
    int status;

    if (!fb_order_count(order, begin)) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "order.ends: drop leaves nothing of %llu samples for %llu ranks; use "
                         "order.ends: pad, or fewer ranks",
                         (llu)order->length, (llu)order->ranks.world);
        fb_error_place(error, "order.ends");
        return status;
    }
    if (uneven)
        fb_say(log, "order: %llu positions on %llu ranks: each epoch %s %llu at its end",
               (llu)order->length, (llu)order->ranks.world,
               order->ends == FB_ENDS_PAD ? "repeats" : "leaves out", (llu)uneven);
    return FOREBAY_OK;
}

int fb_order_open(struct fb_order **out, const struct fb_order_options *options,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    forebay_error unseen;
    struct fb_order *order;
    int status;

    if (!error)
        error = &unseen;
    status = check(options, error);
    if (status)
        return status;
    order = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*order), "the order", error);
    if (!order)
        return error->status;
    *order = (struct fb_order){ .budget = budget,
                                .form = form_of(options),
                                .samples = options->samples,
                                .seed = options->seed,
                                .fingerprint = options->fingerprint,
                                .entries = options->samples,
                                .length = options->samples,
                                .ends = options->ends,
                                .sticky = options->sticky,
                                .ranks = options->ranks,
                                .first_here = first_rank_here(&options->ranks) };
    order->horizon = order->ranks.nodes > 1 ? 2 + order->ranks.nodes : 2;
    status = open_form(order, options, log, error);
    if (!status)
        status = report_ends(order, log, error);
    if (status) {
        fb_order_close(order);
        return status;
    }
    describe(order);
    *out = order;
    return FOREBAY_OK;
}

void fb_order_close(struct fb_order *order)
{
    if (!order)
        return;
    fb_groups_close(order->groups);
    fb_buckets_close(order->buckets);
    fb_block_free(order->budget, FB_STAGE_INDEX, order->group_ends, order->group_count,
                  sizeof(uint64_t));
    fb_subset_release(&order->subset, order->budget);
    fb_uses_close(order->uses);
    fb_draws_release(&order->draws, order->budget);
    fb_block_free(order->budget, FB_STAGE_INDEX, order, 1, sizeof(*order));
}
