#include "plan/simulate.h"

#include <string.h>

#include "base/mix.h"
#include "base/size.h"
#include "cache/policy.h"
#include "memory/block.h"

#define TABLE (2 * FB_TRACE_UNITS)
#define RUN 1024 /* samples asked of the order at once */
#define UNKNOWN UINT32_MAX
#define UNITS_LEAST 1024 /* fewer give steps instead of a curve */

/* ---- The trace ---- */

void fb_trace_release(struct fb_trace *trace)
{
    fb_block_free(trace->budget, FB_STAGE_OTHER, trace->units, FB_TRACE_USES, sizeof(uint32_t));
    fb_block_free(trace->budget, FB_STAGE_OTHER, trace->next, FB_TRACE_USES, sizeof(uint32_t));
    fb_block_free(trace->budget, FB_STAGE_OTHER, trace->epoch_ends, FB_TRACE_EPOCHS,
                  sizeof(uint64_t));
    fb_block_free(trace->budget, FB_STAGE_OTHER, trace->keys, TABLE, sizeof(uint64_t));
    fb_block_free(trace->budget, FB_STAGE_OTHER, trace->numbers, TABLE, sizeof(uint32_t));
    *trace = (struct fb_trace){ .budget = trace->budget };
}

static int trace_room(struct fb_trace *trace, forebay_error *error)
{
    trace->units = fb_block_new(trace->budget, FB_STAGE_OTHER, FB_TRACE_USES, sizeof(uint32_t),
                                "the simulation", error);
    trace->next = fb_block_new(trace->budget, FB_STAGE_OTHER, FB_TRACE_USES, sizeof(uint32_t),
                               "the simulation", error);
    trace->epoch_ends = fb_block_new(trace->budget, FB_STAGE_OTHER, FB_TRACE_EPOCHS,
                                     sizeof(uint64_t), "the simulation", error);
    trace->keys = fb_block_new(trace->budget, FB_STAGE_OTHER, TABLE, sizeof(uint64_t),
                               "the simulation", error);
    trace->numbers = fb_block_new(trace->budget, FB_STAGE_OTHER, TABLE, sizeof(uint32_t),
                                  "the simulation", error);
    return trace->units && trace->next && trace->epoch_ends && trace->keys && trace->numbers
               ? FOREBAY_OK
               : error->status;
}

/* The unit's number in the trace; UNKNOWN if there are too many already. */
static uint32_t unit_number(struct fb_trace *trace, uint64_t unit, uint64_t hash)
{
    uint64_t at = hash % TABLE;

    while (trace->keys[at] && trace->keys[at] != unit + 1)
        at = (at + 1) % TABLE;
    if (trace->keys[at])
        return trace->numbers[at];
    if (trace->unit_count == FB_TRACE_UNITS)
        return UNKNOWN;
    trace->keys[at] = unit + 1;
    trace->numbers[at] = (uint32_t)trace->unit_count++;
    return trace->numbers[at];
}

static double slice_bytes(const struct fb_source *source, const struct fb_part *part)
{
    struct fb_extent extent = source->ops->extent(source, part->unit);

    if (extent.known != FB_EXTENT_EXACT)
        return 0;
    if (part->rows != FB_ALL_ROWS)
        extent.rows = part->rows;
    return (double)fb_extent_bytes(&source->fields[part->field], extent);
}

struct walk {
    const struct fb_source *source;
    const struct fb_order *order;
    const struct fb_ranks *ranks;
    const struct fb_log *log;
    struct fb_part *parts;
    uint64_t below;   /* hashes that are followed */
    uint64_t pass;    /* epochs as long as the data together: 1, but where they draw a part */
    uint64_t epochs;
    uint64_t horizon; /* epochs in which the order looks for a next use */
};

/* Is this global position of the node's? Ranks of a node stand side by side. */
static bool is_here(const struct fb_ranks *ranks, uint64_t position)
{
    if (ranks->nodes < 2 || ranks->local_world == 0)
        return true;
    return position % ranks->world / ranks->local_world == ranks->node;
}

/* False when there is no more room. */
static bool trace_sample(struct fb_trace *trace, const struct walk *walk, uint64_t sample)
{
    unsigned count = walk->source->ops->parts(walk->source, sample, walk->parts);

    for (unsigned i = 0; i < count; i++) {
        uint64_t hash = fb_mix(walk->parts[i].unit);
        uint32_t number;

        if (hash > walk->below || walk->source->fields[walk->parts[i].field].indexed)
            continue;
        number = unit_number(trace, walk->parts[i].unit, fb_mix(hash));
        if (number == UNKNOWN || trace->uses == FB_TRACE_USES)
            return false;
        trace->units[trace->uses++] = number;
        trace->slice_bytes += slice_bytes(walk->source, &walk->parts[i]);
    }
    return true;
}

static int trace_epoch(struct fb_trace *trace, const struct walk *walk, uint64_t epoch, bool *full,
                       forebay_error *error)
{
    struct fb_cursor at = fb_order_begin(walk->order, epoch);
    uint64_t count = fb_order_count(walk->order, at), samples[RUN];
    int status = FOREBAY_OK;

    for (uint64_t p = 0; p < count && !*full && !status; p += RUN) {
        uint64_t run = fb_min(RUN, count - p);

        fb_order_samples(walk->order, at, p, run, samples);
        for (uint64_t i = 0; i < run && !*full; i++)
            if (is_here(walk->ranks, p + i))
                *full = !trace_sample(trace, walk, samples[i]);
        status = fb_progress(walk->log, "following the order", epoch * count + p,
                             walk->epochs * count, error);
    }
    trace->epoch_ends[trace->epoch_count++] = trace->uses;
    return status;
}

/* How many units to follow and for how long, so that it stays within FB_TRACE_USES. */
static void walk_size(struct fb_trace *trace, struct walk *walk)
{
    double most = 0.9 * (double)FB_TRACE_USES;
    double uses = (double)(fb_order_length(walk->order) * walk->pass) * walk->source->parts_max /
                  (double)fb_max(1, walk->ranks->nodes); /* of a pass */
    double units = (double)fb_max(1, walk->source->unit_count);
    double share = most / FB_TRACE_PASSES_LEAST / uses;

    if (share < UNITS_LEAST / units)
        share = UNITS_LEAST / units;
    if (share > 0.9 * (double)FB_TRACE_UNITS / units)
        share = 0.9 * (double)FB_TRACE_UNITS / units;
    trace->share = share < 1 ? share : 1;
    walk->below = trace->share < 1 ? (uint64_t)(trace->share * 0x1p64) : UINT64_MAX;
    walk->epochs = (uint64_t)(most / (uses * trace->share));
    walk->epochs = fb_max(FB_TRACE_PASSES_LEAST, fb_min(walk->epochs, FB_TRACE_PASSES));
    walk->epochs *= walk->pass;
}

/* Backwards: the use behind this one of the same unit, if the order would have seen it. */
static void trace_next(struct fb_trace *trace, uint64_t horizon, uint32_t *last)
{
    uint64_t epoch = trace->epoch_count;

    memset(last, 0xff, trace->unit_count * sizeof(*last));
    for (uint64_t i = trace->uses; i-- > 0;) {
        uint64_t seen;

        while (epoch > 1 && i < trace->epoch_ends[epoch - 2])
            epoch--;
        seen = fb_min(epoch + horizon - 2, trace->epoch_count - 1);
        trace->next[i] = last[trace->units[i]];
        if (trace->next[i] != UNKNOWN && trace->next[i] >= trace->epoch_ends[seen])
            trace->next[i] = UNKNOWN;
        last[trace->units[i]] = (uint32_t)i;
    }
}

/* A trace that was cut short is used in thirds instead of epochs. */
static void trace_bounds(struct fb_trace *trace, const struct walk *walk, bool whole)
{
    uint64_t pass = walk->pass, ahead;

    trace->begin = trace->uses / 3;
    trace->end = trace->uses - trace->uses / 3;
    if (!whole)
        return;
    ahead = fb_max(2 * pass, fb_min(walk->horizon, walk->epochs - 4 * pass));
    trace->begin = trace->epoch_ends[fb_max(2 * pass, (walk->epochs - ahead) / 3) - 1];
    trace->end = trace->epoch_ends[walk->epochs - 1 - ahead];
}

static int trace_finish(struct fb_trace *trace, const struct walk *walk, bool full,
                        forebay_error *error)
{
    uint32_t *last = fb_block_new(trace->budget, FB_STAGE_OTHER, fb_max(1, trace->unit_count),
                                  sizeof(*last), "the simulation", error);

    if (!last)
        return error->status;
    trace_next(trace, walk->horizon, last);
    fb_block_free(trace->budget, FB_STAGE_OTHER, last, fb_max(1, trace->unit_count),
                  sizeof(*last));
    trace_bounds(trace, walk, !full);
    trace->slice_bytes /= (double)fb_max(1, trace->uses);
    return FOREBAY_OK;
}

int fb_trace_make(struct fb_trace *trace, const struct fb_source *source,
                  const struct fb_order *order, uint64_t horizon, const struct fb_ranks *ranks,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct walk walk = { .source = source, .order = order, .ranks = ranks, .log = log,
                         .horizon = horizon };
    uint64_t pass = fb_order_entries(order) / fb_order_length(order);
    bool full = false;
    int status;

    *trace = (struct fb_trace){ .budget = budget };
    walk.parts = fb_block_new(budget, FB_STAGE_OTHER, source->parts_max, sizeof(*walk.parts),
                              "a sample's parts", error);
    status = walk.parts ? trace_room(trace, error) : error->status;
    walk.pass = fb_max(1, fb_min(pass, FB_TRACE_EPOCHS / FB_TRACE_PASSES));
    walk_size(trace, &walk);
    for (uint64_t epoch = 0; epoch < walk.epochs && !full && !status; epoch++)
        status = trace_epoch(trace, &walk, epoch, &full, error);
    if (!status)
        status = trace_finish(trace, &walk, full, error);
    fb_block_free(budget, FB_STAGE_OTHER, walk.parts, source->parts_max, sizeof(*walk.parts));
    return status;
}

/* ---- A cache ---- */

struct simulation {
    const struct fb_trace *trace;
    const struct fb_policy *policy;
    uint64_t kept, count; /* room for, residents */
    struct fb_random random;
    uint32_t *residents;
    uint32_t *place; /* of a unit among the residents, + 1; 0: not there */
    uint32_t *when;  /* of a unit: its last or its next use */
    struct fb_spares spares;
};

static void look_at(const struct simulation *simulation, struct fb_worst *worst, uint64_t place)
{
    const struct fb_cost none = { 0 };
    struct fb_candidate one = { .page = place };

    if (place >= simulation->count)
        return;
    one.unit = simulation->residents[place];
    one.when = simulation->when[one.unit];
    fb_worst_add(worst, &one, simulation->policy, &none);
}

/* The worst of a few residents, chosen as the cache does. */
static void look_for_worst(struct simulation *simulation, struct fb_worst *worst)
{
    worst->count = 0;
    for (unsigned i = 0; i < 2 * FB_POLICY_SPARES; i++)
        look_at(simulation, worst, simulation->spares.pages[i]);
    for (unsigned i = 0; i < FB_POLICY_SAMPLE; i++)
        look_at(simulation, worst, fb_random_below(&simulation->random, simulation->count));
}

/* A miss: is the unit kept? */
static bool admit(struct simulation *simulation, uint32_t unit)
{
    const struct fb_cost none = { 0 };
    struct fb_candidate newcomer = { .unit = unit, .when = simulation->when[unit] };
    struct fb_worst worst;
    uint64_t place;

    if (simulation->count < simulation->kept) {
        place = simulation->count++;
    } else {
        bool replaces;

        if (!simulation->policy->swaps_equal || simulation->kept == 0)
            return false;
        look_for_worst(simulation, &worst);
        place = worst.list[0].page;
        replaces = simulation->policy->replaces(&newcomer, &worst.list[0], &none);
        fb_spares_keep(&simulation->spares, &worst, replaces ? 1 : 0);
        if (!replaces)
            return false;
        simulation->place[simulation->residents[place]] = 0;
    }
    simulation->residents[place] = unit;
    simulation->place[unit] = (uint32_t)place + 1;
    return true;
}

static void run(struct simulation *simulation, struct fb_simulated *result)
{
    const struct fb_trace *trace = simulation->trace;
    uint64_t hits = 0, admitted = 0, uses = fb_max(1, trace->end - trace->begin);

    for (uint64_t i = 0; i < trace->end; i++) {
        uint32_t unit = trace->units[i];
        bool hit = simulation->place[unit], counts = i >= trace->begin;

        simulation->when[unit] =
            simulation->policy->stamp == FB_STAMP_LAST_USE ? (uint32_t)i : trace->next[i];
        hits += counts && hit;
        if (hit && simulation->policy->stamp == FB_STAMP_NEXT_USE)
            fb_spares_put_off(&simulation->spares, simulation->place[unit] - 1, trace->next[i]);
        admitted += !hit && admit(simulation, unit) && counts;
    }
    result->hits = (double)hits / (double)uses;
    result->admitted = (double)admitted / (double)uses;
    result->bypassed = 1 - result->hits - result->admitted;
}

int fb_simulate(struct fb_simulated *result, const struct fb_trace *trace,
                const struct fb_policy *policy, uint64_t kept, forebay_error *error)
{
    struct fb_budget *budget = trace->budget;
    uint64_t units = fb_max(1, trace->unit_count), size = sizeof(uint32_t);
    struct simulation simulation = { .trace = trace, .policy = policy,
                                     .kept = fb_min(kept, units), .random = { kept + 1 } };
    const char *what = "the simulation";

    simulation.residents = fb_block_new(budget, FB_STAGE_OTHER, units, size, what, error);
    simulation.place = fb_block_new(budget, FB_STAGE_OTHER, units, size, what, error);
    simulation.when = fb_block_new(budget, FB_STAGE_OTHER, units, size, what, error);
    if (simulation.residents && simulation.place && simulation.when)
        run(&simulation, result);
    fb_block_free(budget, FB_STAGE_OTHER, simulation.residents, units, size);
    fb_block_free(budget, FB_STAGE_OTHER, simulation.place, units, size);
    fb_block_free(budget, FB_STAGE_OTHER, simulation.when, units, size);
    return simulation.residents && simulation.place && simulation.when ? FOREBAY_OK
                                                                       : error->status;
}
