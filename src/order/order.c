/* order.c -- lookups: from a position to its sample and back, cut by rank. */
#include "order/order.h"

#include <assert.h>

#include "base/size.h"
#include "order/order_internal.h"

/* One epoch's order, made on the stack for one lookup or a run of them. */
struct view {
    const struct fb_order *order;
    uint64_t epoch;
    struct fb_permutation shuffled;
    struct fb_block_shuffle_epoch blocks;
    struct fb_slices slices;
    uint64_t draws_key;
    uint64_t world;
};

struct fb_cursor fb_order_begin(const struct fb_order *order, uint64_t epoch)
{
    return (struct fb_cursor){ .epoch = epoch,
                               .world = order->ranks.world,
                               .nodes = order->ranks.nodes };
}

uint64_t fb_order_length(const struct fb_order *order)
{
    return order->length;
}

uint64_t fb_order_entries(const struct fb_order *order)
{
    return order->entries;
}

uint64_t fb_order_identity(const struct fb_order *order)
{
    uint64_t form = fb_mix2((uint64_t)order->form, (uint64_t)order->sticky);

    return fb_mix2(fb_mix2(form, order->seed), fb_mix2(order->length, order->hash));
}

uint64_t fb_order_share(const struct fb_order *order, int ends, uint64_t start, uint64_t world)
{
    uint64_t left = order->length - fb_min(start, order->length);

    return left / world + (ends == FB_ENDS_PAD && left % world ? 1 : 0);
}

uint64_t fb_order_count(const struct fb_order *order, struct fb_cursor at)
{
    return fb_order_share(order, order->ends, at.start, order->ranks.world);
}

uint64_t fb_order_uneven(const struct fb_order *order, struct fb_cursor at)
{
    uint64_t left = order->length - fb_min(at.start, order->length);
    uint64_t given = fb_order_count(order, at) * order->ranks.world;

    return given > left ? given - left : left - given;
}

uint64_t fb_order_slices(const struct fb_order *order, uint64_t world, uint64_t nodes)
{
    uint64_t slices = order->sticky == FB_STICKY_NODE ? nodes : world;

    return slices && world && world <= FB_MAX_SAMPLES && world % slices == 0 ? slices : 0;
}

static void view_init(struct view *view, const struct fb_order *order, struct fb_cursor at)
{
    uint64_t slices;

    view->order = order;
    view->epoch = at.epoch;
    view->world = at.world;
    switch (order->form) {
    case FB_FORM_SHUFFLED:
        view->shuffled =
            fb_permutation_keyed(order->all, fb_order_key(order->seed, FB_KEY_SAMPLES, at.epoch));
        break;
    case FB_FORM_BLOCKS:
        fb_block_shuffle_begin(&view->blocks, &order->blocks, order->seed, at.epoch);
        break;
    case FB_FORM_STICKY:
        slices = fb_order_slices(order, at.world, at.nodes);
        assert(slices); /* a cursor comes from fb_order_begin or fb_order_load */
        fb_slices_begin(&view->slices, &order->all, at.world, slices, order->seed, at.epoch);
        break;
    case FB_FORM_DRAWS:
        view->draws_key = fb_order_key(order->seed, FB_KEY_DRAWS, at.epoch);
        break;
    case FB_FORM_SEQUENTIAL:
    case FB_FORM_GROUPS:
        break;
    }
}

/* Groups are in order; positions are mixed with those of the same stretch. */
static struct fb_permutation stretch_mix(const struct view *view, uint64_t position,
                                         uint64_t *first)
{
    const struct fb_order *order = view->order;
    uint64_t stretch = position / order->stretch;
    uint64_t key = fb_order_key(order->seed, FB_KEY_STRETCHES, view->epoch);

    *first = stretch * order->stretch;
    return fb_permutation_make(fb_min(order->stretch, order->length - *first),
                               fb_mix2(key, stretch));
}

static uint64_t groups_entry(const struct view *view, uint64_t position)
{
    if (view->order->stretch > 1) {
        uint64_t first;
        struct fb_permutation mix = stretch_mix(view, position, &first);

        position = first + fb_permutation_apply(&mix, position - first);
    }
    return fb_groups_entry(view->order->groups, view->epoch, position);
}

static uint64_t groups_position(const struct view *view, uint64_t entry)
{
    uint64_t first, position = fb_groups_position(view->order->groups, view->epoch, entry);
    struct fb_permutation mix;

    if (view->order->stretch <= 1)
        return position;
    mix = stretch_mix(view, position, &first);
    return first + fb_permutation_invert(&mix, position - first);
}

static uint64_t plain_entry_at(const struct view *view, uint64_t position)
{
    switch (view->order->form) {
    case FB_FORM_SEQUENTIAL:
        return position;
    case FB_FORM_SHUFFLED:
        return fb_permutation_apply(&view->shuffled, position);
    case FB_FORM_GROUPS:
        return groups_entry(view, position);
    case FB_FORM_BLOCKS:
        return fb_block_shuffle_entry(&view->blocks, position);
    case FB_FORM_STICKY:
        return fb_slices_entry(&view->slices, position);
    case FB_FORM_DRAWS:
        return fb_draws_at(&view->order->draws, view->draws_key, position);
    }
    return FB_NOWHERE;
}

static uint64_t bucket_entry(const void *data, uint64_t position)
{
    return plain_entry_at(data, position);
}

static float bucket_length(const void *data, uint64_t entry)
{
    const struct fb_order *order = ((const struct view *)data)->order;

    return order->length_of(order->length_data, fb_order_entry_sample(order, entry));
}

static struct fb_bucket_view bucket_view(const struct view *view)
{
    return (struct fb_bucket_view){ view, bucket_entry, bucket_length, view->epoch, view->world };
}

static uint64_t entry_at(const struct view *view, uint64_t position)
{
    struct fb_bucket_view buckets;

    if (!view->order->buckets)
        return plain_entry_at(view, position);
    buckets = bucket_view(view);
    return fb_buckets_entry(view->order->buckets, &buckets, position);
}

static uint64_t draw_position(const struct view *view, uint64_t sample)
{
    for (uint64_t position = 0; position < view->order->length; position++)
        if (entry_at(view, position) == sample)
            return position;
    return FB_NOWHERE;
}

static uint64_t position_of(const struct view *view, uint64_t sample)
{
    const struct fb_order *order = view->order;
    uint64_t entry = fb_order_entry_of(order, sample);
    uint64_t position;

    if (entry == FB_NOWHERE)
        return FB_NOWHERE;
    switch (order->form) {
    case FB_FORM_SEQUENTIAL:
        return entry;
    case FB_FORM_SHUFFLED:
        position = fb_permutation_invert(&view->shuffled, entry);
        return position < order->length ? position : FB_NOWHERE;
    case FB_FORM_GROUPS:
        return groups_position(view, entry);
    case FB_FORM_BLOCKS:
        return fb_block_shuffle_position(&view->blocks, entry);
    case FB_FORM_STICKY:
        return fb_slices_position(&view->slices, entry);
    case FB_FORM_DRAWS:
        return draw_position(view, entry);
    }
    return FB_NOWHERE;
}

static uint64_t global_position(const struct fb_order *order, uint64_t start, uint64_t p)
{
    uint64_t position = start + p * order->ranks.world + order->ranks.rank;

    if (position >= order->length) /* padded; more than once if there are fewer than ranks */
        position = (position - order->length) % order->length;
    return position;
}

static uint64_t view_sample(const struct view *view, uint64_t start, uint64_t p)
{
    const struct fb_order *order = view->order;
    uint64_t entry = entry_at(view, global_position(order, start, p));

    return fb_order_entry_sample(order, entry);
}

uint64_t fb_order_sample(const struct fb_order *order, struct fb_cursor at, uint64_t p)
{
    struct view view;

    assert(p < fb_order_count(order, at));
    view_init(&view, order, at);
    return view_sample(&view, at.start, p);
}

static void shuffled_samples(const struct view *view, uint64_t start, uint64_t p, uint64_t count,
                             uint64_t *samples)
{
    const struct fb_order *order = view->order;

    for (uint64_t i = 0; i < count; i++)
        samples[i] = global_position(order, start, p + i);
    fb_permutation_apply_many(&view->shuffled, samples, count);
    for (uint64_t i = 0; order->subset.count && i < count; i++)
        samples[i] = order->subset.list[samples[i]];
}

void fb_order_samples(const struct fb_order *order, struct fb_cursor at, uint64_t p, uint64_t count,
                      uint64_t *samples)
{
    struct view view;

    assert(count <= fb_order_count(order, at) && p <= fb_order_count(order, at) - count);
    view_init(&view, order, at);
    if (order->form == FB_FORM_SHUFFLED && !order->buckets) {
        shuffled_samples(&view, at.start, p, count, samples);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        samples[i] = view_sample(&view, at.start, p + i);
}

uint64_t fb_order_position(const struct fb_order *order, uint64_t epoch, uint64_t sample)
{
    struct fb_bucket_view buckets;
    struct view view;
    uint64_t position;

    if (sample >= order->samples)
        return FB_NOWHERE;
    view_init(&view, order, fb_order_begin(order, epoch));
    position = position_of(&view, sample);
    if (!order->buckets || position == FB_NOWHERE)
        return position;
    buckets = bucket_view(&view);
    return fb_buckets_position(order->buckets, &buckets, position,
                               plain_entry_at(&view, position));
}

static bool is_here(const struct fb_order *order, uint64_t position)
{
    return position % order->ranks.world - order->first_here < order->ranks.local_world;
}

bool fb_order_once(const struct fb_order *order)
{
    return order->form != FB_FORM_DRAWS && order->length == order->entries &&
           (order->ranks.nodes == 1 || order->form == FB_FORM_STICKY);
}

uint64_t fb_order_entry_of(const struct fb_order *order, uint64_t sample)
{
    return order->subset.count ? fb_subset_find(&order->subset, sample) : sample;
}

uint64_t fb_order_entry_sample(const struct fb_order *order, uint64_t entry)
{
    return order->subset.count ? order->subset.list[entry] : entry;
}

uint64_t fb_order_list(const struct fb_order *order)
{
    return order->subset.count ? order->subset.hash | 1 : 0;
}

uint64_t fb_order_any(const struct fb_order *order, struct fb_random *random)
{
    if (order->form == FB_FORM_DRAWS)
        return fb_draws_at(&order->draws, fb_random_next(random), 0);
    return fb_order_entry_sample(order, fb_random_below(random, order->entries));
}

bool fb_order_uses(const struct fb_order *order, uint64_t sample)
{
    if (sample >= order->samples)
        return false;
    if (order->form == FB_FORM_DRAWS)
        return order->draws.keep[sample] > 0;
    if (fb_order_entry_of(order, sample) == FB_NOWHERE)
        return false;
    return order->form != FB_FORM_STICKY || is_here(order, fb_order_position(order, 0, sample));
}

/* The first position of [first, end) in one epoch that is here and not below `from`. */
static uint64_t soonest(const struct view *view, uint64_t first, uint64_t end, uint64_t from)
{
    uint64_t best = FB_NOWHERE;

    for (uint64_t sample = first; sample < end; sample++) {
        uint64_t position = position_of(view, sample);

        if (position >= from && position < best && is_here(view->order, position))
            best = position;
    }
    return best;
}

static bool is_wanted(const void *order, uint64_t position)
{
    return is_here(order, position);
}

static uint64_t soonest_draw(const struct fb_order *order, uint64_t epoch, uint64_t first,
                             uint64_t end, uint64_t from)
{
    struct fb_uses_query query = { epoch, first, end, from, is_wanted, order };

    return fb_uses_next(order->uses, &query);
}

uint64_t fb_order_horizon(const struct fb_order *order)
{
    return order->horizon;
}

uint64_t fb_order_next_use(const struct fb_order *order, uint64_t first, uint64_t count,
                           uint64_t epoch, uint64_t from)
{
    uint64_t end = first + fb_min(count, order->samples - fb_min(first, order->samples));

    for (uint64_t i = 0; i < order->horizon; i++, from = 0) {
        struct view view;
        uint64_t best, begin;

        if (from >= order->length)
            continue;
        if (order->uses) {
            best = soonest_draw(order, epoch + i, first, end, from);
        } else {
            view_init(&view, order, fb_order_begin(order, epoch + i));
            best = soonest(&view, first, end, from);
        }
        if (best == FB_NOWHERE)
            continue;
        return fb_mul(epoch + i, order->length, &begin) && fb_add(begin, best, &begin) ? begin
                                                                                       : FB_NOWHERE;
    }
    return FB_NOWHERE;
}
