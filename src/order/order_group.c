/*
 * order_group.c -- whole groups are shuffled, the order inside each is kept.
 *
 * To find the group at a position one must know how many entries the groups before it have
 * together, and that differs from epoch to epoch. So each epoch in use has a table: the sum before
 * every eighth of its shuffled groups (a byte a group; the rest is added up in the lookup). Tables
 * are made at an epoch's first lookup and live in a fixed ring, epoch e in slot e % slots.
 *
 * Readers take no lock: a slot's version is odd while it is written, and a reader whose version
 * changed on the way throws its answer away (which may be nonsense then, but never reads outside
 * the table). It then answers under the lock, where nobody writes but itself: so two epochs that
 * want one slot are slow, never wrong, and nobody waits for ever.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/search.h"
#include "base/size.h"
#include "memory/block.h"
#include "order/order_internal.h"

#define STEP 8 /* groups between two sums */

struct epoch_table {
    _Atomic uint64_t version; /* 0: empty; odd: being written */
    _Atomic uint64_t epoch;
    _Atomic uint64_t *sums; /* sums[i]: entries in the groups at places [0, i * STEP) */
};

struct fb_groups {
    struct fb_budget *budget;
    uint64_t count, seed, sum_count, slot_count;
    const uint64_t *ends;
    struct fb_permutation all;
    _Atomic uint64_t *sums; /* of all slots */

    pthread_mutex_t lock; /* to write a slot */
    struct epoch_table *slots;
};

static uint64_t group_start(const struct fb_groups *groups, uint64_t group)
{
    return group ? groups->ends[group - 1] : 0;
}

static uint64_t group_size(const struct fb_groups *groups, uint64_t group)
{
    return groups->ends[group] - group_start(groups, group);
}

/* The group that has `entry`: the first that ends behind it. */
static uint64_t group_of(const struct fb_groups *groups, uint64_t entry)
{
    return fb_range_of(groups->ends, groups->count, entry);
}

int fb_groups_open(struct fb_groups **out, uint64_t count, const uint64_t *ends, uint64_t seed,
                   uint64_t epochs, struct fb_budget *budget, forebay_error *error)
{
    struct fb_groups *groups =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*groups), "order.group: sequence", error);

    if (!groups)
        return error->status;
    *groups = (struct fb_groups){ .budget = budget,
                                  .count = count,
                                  .seed = seed,
                                  .sum_count = (count + STEP - 1) / STEP,
                                  .slot_count = epochs,
                                  .ends = ends,
                                  .all = fb_permutation_make(count, 0) };
    pthread_mutex_init(&groups->lock, NULL);
    groups->slots = fb_block_new(budget, FB_STAGE_INDEX, epochs, sizeof(*groups->slots),
                                 "order.group: sequence", error);
    if (groups->slots)
        groups->sums = fb_block_new(budget, FB_STAGE_INDEX, epochs * groups->sum_count,
                                    sizeof(*groups->sums), "order.group: sequence", error);
    if (!groups->sums) {
        fb_groups_close(groups);
        return error->status;
    }
    for (uint64_t i = 0; i < epochs; i++)
        groups->slots[i].sums = groups->sums + i * groups->sum_count;
    *out = groups;
    return FOREBAY_OK;
}

void fb_groups_close(struct fb_groups *groups)
{
    struct fb_budget *budget;

    if (!groups)
        return;
    budget = groups->budget;
    fb_block_free(budget, FB_STAGE_INDEX, groups->sums, groups->slot_count * groups->sum_count,
                  sizeof(*groups->sums));
    fb_block_free(budget, FB_STAGE_INDEX, groups->slots, groups->slot_count,
                  sizeof(*groups->slots));
    pthread_mutex_destroy(&groups->lock);
    fb_block_free(budget, FB_STAGE_INDEX, groups, 1, sizeof(*groups));
}

/* One lookup: in which epoch, by which permutation, what for. */
struct lookup {
    uint64_t epoch;
    struct fb_permutation order; /* place -> group */
    bool inverse;
    uint64_t x;
};

static void slot_write_locked(struct fb_groups *groups, struct epoch_table *slot,
                              const struct lookup *lookup)
{
    uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed), sum = 0;

    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    /* Released one by one: who sees a new number also sees that the version is odd. */
    atomic_store_explicit(&slot->epoch, lookup->epoch, memory_order_release);
    for (uint64_t k = 0; k < groups->count; k++) {
        if (k % STEP == 0)
            atomic_store_explicit(&slot->sums[k / STEP], sum, memory_order_release);
        sum += group_size(groups, fb_permutation_apply(&lookup->order, k));
    }
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}

static uint64_t sum_before(const struct epoch_table *slot, uint64_t i)
{
    return atomic_load_explicit(&slot->sums[i], memory_order_acquire);
}

static uint64_t entry_at(const struct fb_groups *groups, const struct epoch_table *slot,
                         const struct lookup *lookup)
{
    uint64_t low = 0, high = groups->sum_count - 1, place, end, before, group = 0;

    while (low < high) { /* the last sum that is not above the position */
        uint64_t middle = low + (high - low + 1) / 2;

        if (sum_before(slot, middle) <= lookup->x)
            low = middle;
        else
            high = middle - 1;
    }
    before = sum_before(slot, low);
    end = fb_min((low + 1) * STEP, groups->count);
    for (place = low * STEP; place < end; place++) {
        group = fb_permutation_apply(&lookup->order, place);
        if (lookup->x - before < group_size(groups, group))
            break;
        before += group_size(groups, group);
    }
    return group_start(groups, group) + lookup->x - before;
}

static uint64_t position_of(const struct fb_groups *groups, const struct epoch_table *slot,
                            const struct lookup *lookup)
{
    uint64_t group = group_of(groups, lookup->x);
    uint64_t place = fb_permutation_invert(&lookup->order, group);
    uint64_t before = sum_before(slot, place / STEP);

    for (uint64_t k = place / STEP * STEP; k < place; k++)
        before += group_size(groups, fb_permutation_apply(&lookup->order, k));
    return before + lookup->x - group_start(groups, group);
}

static uint64_t answer(const struct fb_groups *groups, const struct epoch_table *slot,
                       const struct lookup *lookup)
{
    return lookup->inverse ? position_of(groups, slot, lookup) : entry_at(groups, slot, lookup);
}

static uint64_t look_up(struct fb_groups *groups, uint64_t epoch, bool inverse, uint64_t x)
{
    struct epoch_table *slot = &groups->slots[epoch % groups->slot_count];
    struct lookup lookup = {
        epoch, fb_permutation_keyed(groups->all, fb_order_key(groups->seed, FB_KEY_GROUPS, epoch)),
        inverse, x
    };
    uint64_t version = atomic_load_explicit(&slot->version, memory_order_acquire), found;

    if (version && version % 2 == 0 &&
        atomic_load_explicit(&slot->epoch, memory_order_acquire) == epoch) {
        found = answer(groups, slot, &lookup);
        /* The sums were loaded with acquire, so this is not read before them. */
        if (atomic_load_explicit(&slot->version, memory_order_relaxed) == version)
            return found;
    }
    pthread_mutex_lock(&groups->lock);
    version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    if (!version || atomic_load_explicit(&slot->epoch, memory_order_relaxed) != epoch)
        slot_write_locked(groups, slot, &lookup);
    found = answer(groups, slot, &lookup);
    pthread_mutex_unlock(&groups->lock);
    return found;
}

uint64_t fb_groups_entry(struct fb_groups *groups, uint64_t epoch, uint64_t position)
{
    return look_up(groups, epoch, false, position);
}

uint64_t fb_groups_position(struct fb_groups *groups, uint64_t epoch, uint64_t entry)
{
    return look_up(groups, epoch, true, entry);
}
