#include "plan/curve.h"

#include <math.h>

#include "base/size.h"
#include "cache/cache.h"
#include "plan/simulate.h"

double fb_curve_once_an_epoch(const struct fb_policy *policy, double share, bool shuffled)
{
    return share >= 1 ? 1 : policy->once_an_epoch(share, shuffled);
}

/* Is every unit used once an epoch, and in an order for which there is a closed form? */
static bool is_closed(const struct fb_curve_options *options)
{
    const struct fb_order_options *order = options->order_options;
    const struct fb_source *source = options->source;

    if (!fb_order_once(options->order) || source->shared_units || source->sliced)
        return false;
    if (options->ranks.nodes > 1 && order->sticky == FB_STICKY_NONE)
        return false;
    return !order->shuffle || order->group == FB_GROUP_NONE;
}

/* The part of all units that comes by on this node, over all epochs. */
static double part_used(const struct fb_curve_options *options)
{
    const struct fb_order_options *order = options->order_options;
    double part = 1;

    if (order->subset_file && !order->weights_file)
        part = (double)fb_order_entries(options->order) / (double)fb_max(1, order->samples);
    if (options->ranks.nodes > 1 && order->sticky != FB_STICKY_NONE)
        part /= (double)options->ranks.nodes;
    return part < 1 ? part : 1;
}

struct making {
    const struct fb_curve_options *options;
    struct fb_curve *curve;
    struct fb_trace trace;
    double units;      /* used */
    double unit_bytes; /* mean; NAN: not known */
    double uses;       /* of units, an epoch, on this node */
    uint64_t horizon;  /* epochs in which next uses are looked for; 0: they are not known */
};

/* The order at hand was made for one rank: what several nodes make of it is known here. One of
 * weighted draws was not asked to look ahead unless the policy is next-use. */
static uint64_t horizon_of(const struct fb_curve_options *options)
{
    const struct fb_order_options *order = options->order_options;

    if (order->weights_file)
        return order->look_ahead_bytes ? fb_order_horizon(options->order) : FB_DRAWS_HORIZON;
    if (!fb_order_once(options->order)) /* epochs draw a part */
        return fb_min(fb_order_horizon(options->order) * options->ranks.nodes, FB_PART_HORIZON);
    return options->ranks.nodes > 1 ? 2 + options->ranks.nodes : 2;
}

static void making_init(struct making *making)
{
    const struct fb_curve_options *options = making->options;
    const struct fb_source *source = options->source;
    double units = (double)fb_max(1, source->unit_count), part = part_used(options);

    making->horizon = horizon_of(options);
    making->units = units * part;
    making->unit_bytes = source->unit_bytes_total ? (double)source->unit_bytes_total / units : NAN;
    making->curve->used_bytes = making->units * making->unit_bytes;
}

/* What an epoch takes without a cache. */
static void making_measure(struct making *making)
{
    const struct fb_curve_options *options = making->options;
    double length = (double)fb_order_length(options->order);
    double parts = options->source->parts_max;

    /* What comes from the index is not read. */
    for (unsigned i = 0; i < options->source->field_count; i++)
        parts -= options->source->fields[i].indexed ? options->source->fields[i].items : 0;
    if (!making->curve->simulated) {
        making->curve->epoch_bytes = making->curve->used_bytes;
        return;
    }
    making->uses = length * parts / (double)fb_max(1, options->ranks.nodes);
    making->curve->epoch_bytes = making->uses * (options->source->sliced
                                                     ? making->trace.slice_bytes
                                                     : making->unit_bytes);
}

static void closed_ask(const struct making *making, struct fb_curve_point *point,
                       const struct fb_policy *policy)
{
    bool shuffle = making->options->order_options->shuffle;
    double hits = fb_curve_once_an_epoch(policy, point->share, shuffle);

    point->by[policy->number].bytes_read = (1 - hits) * making->curve->epoch_bytes;
    point->by[policy->number].hit_rate = point->share < 1 ? hits : 1;
}

static int simulated_ask(const struct making *making, struct fb_curve_point *point,
                         const struct fb_policy *policy, forebay_error *error)
{
    const struct fb_curve_options *options = making->options;
    double slice = options->source->sliced ? making->trace.slice_bytes : making->unit_bytes;
    uint64_t kept = (uint64_t)(point->share * (double)making->trace.unit_count + 0.5);
    /* An order that does not know its next uses: next-use then keeps what it has, as fill. */
    bool blind = policy->stamp == FB_STAMP_NEXT_USE && !making->horizon;
    struct fb_simulated found;
    const struct fb_policy *asked = blind ? &fb_policy_fill : policy;
    int status = fb_simulate(&found, &making->trace, asked, kept, error);

    if (status)
        return status;
    point->by[policy->number].hit_rate = found.hits;
    /* What is admitted is read whole, what is not only as far as it is needed. */
    point->by[policy->number].bytes_read =
        making->uses * (found.admitted * making->unit_bytes + found.bypassed * slice);
    return FOREBAY_OK;
}

static uint64_t index_bytes(const struct making *making)
{
    return fb_cache_index_bytes(making->options->source->unit_count, true);
}

static int point_make(struct making *making, struct fb_curve_point *point, double share,
                      forebay_error *error)
{
    int status = FOREBAY_OK;

    point->share = share;
    if (!isnan(making->curve->used_bytes))
        point->cache_bytes = (uint64_t)(share * making->curve->used_bytes) + index_bytes(making);
    for (int i = FB_POLICY_AUTO + 1; i < FB_POLICY_COUNT && !status; i++) {
        if (making->curve->simulated)
            status = simulated_ask(making, point, fb_policies[i], error);
        else
            closed_ask(making, point, fb_policies[i]);
    }
    return status;
}

/* The share that a cache of so many bytes holds. */
static double planned_share(const struct making *making)
{
    uint64_t index = index_bytes(making);
    uint64_t bytes = making->options->planned_bytes;
    double share = bytes > index ? (double)(bytes - index) / making->curve->used_bytes : 0;

    return share < 1 ? share : 1;
}

static int points_make(struct making *making, forebay_error *error)
{
    struct fb_curve *curve = making->curve;
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < FB_CURVE_POINTS && !status; i++) {
        status = point_make(making, &curve->points[i], (i + 1) / (double)FB_CURVE_POINTS, error);
        if (!status)
            status = fb_progress(making->options->log, "simulating caches", i + 1,
                                 FB_CURVE_POINTS, error);
    }
    curve->has_planned = making->options->planned_bytes && !isnan(curve->used_bytes);
    if (!status && curve->has_planned)
        status = point_make(making, &curve->planned, planned_share(making), error);
    return status;
}

int fb_curve_make(struct fb_curve *curve, const struct fb_curve_options *options,
                  forebay_error *error)
{
    struct making making = { .options = options, .curve = curve };
    int status = FOREBAY_OK;

    *curve = (struct fb_curve){ .simulated = !is_closed(options) };
    making_init(&making);
    if (curve->simulated)
        status = fb_trace_make(&making.trace, options->source, options->order, making.horizon,
                               &options->ranks, options->budget, options->log, error);
    if (!status) {
        making_measure(&making);
        status = points_make(&making, error);
    }
    if (curve->simulated)
        fb_trace_release(&making.trace);
    return status;
}
