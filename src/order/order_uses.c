/*
 * order_uses.c -- where an epoch of weighted draws takes each sample.
 *
 * A draw cannot be turned round: to know when a sample comes next, all draws of an epoch must be
 * made. So each epoch in the horizon has a table: the positions, sorted by sample, and where those
 * of each sample begin; 4 bytes a sample and 4 a position. Tables are made at their first question
 * and live in a fixed ring, epoch e in slot e % slots.
 *
 * Readers take no lock: a slot's version is odd while it is written, and a reader whose version
 * changed on the way throws its answer away (never reading outside the table). One thread makes a
 * table; whoever asks meanwhile is told that it is not known, which costs a cache less than a wait.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/size.h"
#include "memory/block.h"
#include "order/order_internal.h"

#define WHAT "next uses of weighted draws"

struct uses_table {
    _Atomic uint64_t version; /* 0: empty; odd: being written */
    _Atomic uint64_t epoch;
    _Atomic uint32_t *starts;    /* starts[s] .. starts[s + 1]: the places of sample s */
    _Atomic uint32_t *positions; /* by sample, ascending */
};

struct fb_uses {
    struct fb_budget *budget;
    const struct fb_draws *draws;
    uint64_t seed, length, slot_count;
    _Atomic uint32_t *memory; /* of all tables */

    pthread_mutex_t lock; /* to write a slot */
    struct uses_table *slots;
};

/* While it is sorted there is one more start than samples and their end. */
static uint64_t table_items(uint64_t samples, uint64_t length)
{
    return samples + 2 + length;
}

uint64_t fb_uses_bytes(uint64_t samples, uint64_t length)
{
    return table_items(samples, length) * sizeof(uint32_t);
}

int fb_uses_open(struct fb_uses **out, const struct fb_draws *draws, uint64_t length, uint64_t seed,
                 uint64_t epochs, struct fb_budget *budget, forebay_error *error)
{
    uint64_t items = table_items(draws->count, length);
    struct fb_uses *uses = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*uses), WHAT, error);

    if (!uses)
        return error->status;
    *uses = (struct fb_uses){ .budget = budget,
                              .draws = draws,
                              .seed = seed,
                              .length = length,
                              .slot_count = epochs };
    pthread_mutex_init(&uses->lock, NULL);
    uses->slots =
        fb_block_new(budget, FB_STAGE_INDEX, epochs, sizeof(*uses->slots), WHAT, error);
    if (uses->slots)
        uses->memory = fb_block_new(budget, FB_STAGE_INDEX, epochs * items,
                                    sizeof(*uses->memory), WHAT, error);
    if (!uses->memory) {
        fb_uses_close(uses);
        return error->status;
    }
    for (uint64_t i = 0; i < epochs; i++) {
        uses->slots[i].starts = uses->memory + i * items;
        uses->slots[i].positions = uses->slots[i].starts + draws->count + 2;
    }
    *out = uses;
    return FOREBAY_OK;
}

void fb_uses_close(struct fb_uses *uses)
{
    struct fb_budget *budget;

    if (!uses)
        return;
    budget = uses->budget;
    fb_block_free(budget, FB_STAGE_INDEX, uses->memory,
                  uses->slot_count * table_items(uses->draws->count, uses->length),
                  sizeof(*uses->memory));
    fb_block_free(budget, FB_STAGE_INDEX, uses->slots, uses->slot_count, sizeof(*uses->slots));
    pthread_mutex_destroy(&uses->lock);
    fb_block_free(budget, FB_STAGE_INDEX, uses, 1, sizeof(*uses));
}

static uint32_t get(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/* Released one by one: who sees a new number also sees that the version is odd. */
static void put(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* A counting sort. The counts stand two places on, so that after the sums each sample's start is
 * one place on, and after it was moved along by its own positions in its own place. */
static void table_sort(const struct fb_uses *uses, struct uses_table *slot, uint64_t epoch)
{
    uint64_t key = fb_order_key(uses->seed, FB_KEY_DRAWS, epoch), samples = uses->draws->count;

    for (uint64_t i = 0; i < samples + 2; i++)
        put(&slot->starts[i], 0);
    for (uint64_t p = 0; p < uses->length; p++) {
        _Atomic uint32_t *count = &slot->starts[fb_draws_at(uses->draws, key, p) + 2];

        put(count, get(count) + 1);
    }
    for (uint64_t i = 1; i < samples + 2; i++)
        put(&slot->starts[i], get(&slot->starts[i]) + get(&slot->starts[i - 1]));
    for (uint64_t p = 0; p < uses->length; p++) {
        _Atomic uint32_t *start = &slot->starts[fb_draws_at(uses->draws, key, p) + 1];
        uint32_t at = get(start);

        put(&slot->positions[at], (uint32_t)p);
        put(start, at + 1);
    }
}

static void table_write_locked(struct fb_uses *uses, struct uses_table *slot, uint64_t epoch)
{
    uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);

    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    atomic_store_explicit(&slot->epoch, epoch, memory_order_release);
    table_sort(uses, slot, epoch);
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}

/* The first of this sample's positions that is not below `from` and is wanted. */
static uint64_t first_of(const struct fb_uses *uses, const struct uses_table *slot,
                         const struct fb_uses_query *query, uint64_t sample)
{
    uint64_t end = fb_min(get(&slot->starts[sample + 1]), uses->length);
    uint64_t low = fb_min(get(&slot->starts[sample]), end), high = end;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (get(&slot->positions[middle]) < query->from)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < end; low++) {
        uint64_t position = get(&slot->positions[low]);

        if (query->wanted(query->data, position))
            return position;
    }
    return FB_NOWHERE;
}

static uint64_t answer(const struct fb_uses *uses, const struct uses_table *slot,
                       const struct fb_uses_query *query)
{
    uint64_t best = FB_NOWHERE;

    for (uint64_t sample = query->first; sample < query->end; sample++)
        best = fb_min(best, first_of(uses, slot, query, sample));
    return best;
}

uint64_t fb_uses_next(struct fb_uses *uses, const struct fb_uses_query *query)
{
    struct uses_table *slot = &uses->slots[query->epoch % uses->slot_count];
    uint64_t version = atomic_load_explicit(&slot->version, memory_order_acquire), found;

    if (version && version % 2 == 0 &&
        atomic_load_explicit(&slot->epoch, memory_order_acquire) == query->epoch) {
        found = answer(uses, slot, query);
        /* The table was loaded with acquire, so this is not read before it. */
        if (atomic_load_explicit(&slot->version, memory_order_relaxed) == version)
            return found;
    }
    if (pthread_mutex_trylock(&uses->lock))
        return FB_NOWHERE;
    version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    if (!version || atomic_load_explicit(&slot->epoch, memory_order_relaxed) != query->epoch)
        table_write_locked(uses, slot, query->epoch);
    found = answer(uses, slot, query);
    pthread_mutex_unlock(&uses->lock);
    return found;
}
