/*
 * sweep.c -- after a death. Everything the dead member was at is found by its row and generation:
 * entries FILLING or DYING, pages held, pins. Each step is one compare-and-swap that may be done
 * twice, by several members, or be cut short by the sweeper's own death: the next sweep goes on.
 */
#include <stdlib.h>

#include "cache/inside.h"

#define ROUND 256 /* units cleared up in one pass over the pages */

/* Units that this sweep has made DYING: nobody else frees them, not even this process's other
 * threads. */
struct haul {
    uint32_t units[ROUND];
    unsigned count;
};

static bool haul_has(const struct haul *haul, uint64_t unit)
{
    for (unsigned i = 0; i < haul->count; i++)
        if (haul->units[i] == unit)
            return true;
    return false;
}

/* Take over what the dead one was filling or evicting; true if there may be more. */
static bool take_over(struct fb_cache *cache, uint64_t dead, struct haul *haul)
{
    struct fb_segment *segment = &cache->segment;

    haul->count = 0;
    for (uint64_t unit = 0; unit < segment->geometry.entries; unit++) {
        uint64_t state = fb_entry_state(segment, unit);

        if (fb_state_phase(state) == FB_FREE || fb_state_phase(state) == FB_READY ||
            fb_state_member(state) != dead)
            continue;
        if (state & FB_WHOLE) { /* it had only begun to evict: somebody may be reading */
            fb_entry_move(segment, unit, state, FB_READY);
            continue;
        }
        if (haul->count == ROUND)
            return true;
        if (fb_entry_move(segment, unit, state, FB_DYING | cache->member.token))
            haul->units[haul->count++] = (uint32_t)unit;
    }
    return false;
}

static void free_pages(struct fb_cache *cache, const struct haul *haul, uint32_t dead_hold)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t reach = fb_pages_reach(segment), dying = FB_DYING | cache->member.token;

    for (uint64_t page = 0; page < reach; page++) {
        uint32_t owner = atomic_load(&segment->owners[page]);

        if (owner == dead_hold)
            fb_page_free(segment, page, owner);
        else if (owner && owner <= segment->geometry.entries &&
                 fb_entry_state(segment, owner - 1) == dying && haul_has(haul, owner - 1))
            fb_page_free(segment, page, owner);
    }
    for (unsigned i = 0; i < haul->count; i++)
        fb_entry_move(segment, haul->units[i], dying, FB_FREE);
}

static void clear_pins(struct fb_segment *segment, unsigned row, uint32_t generation)
{
    uint64_t first = (uint64_t)row * segment->geometry.pins;

    for (uint64_t slot = first; slot < first + segment->geometry.pins; slot++) {
        uint64_t word = atomic_load(&segment->pins[slot]);

        if (word && (word >> 32 & FB_GENERATION_MASK) == generation)
            atomic_compare_exchange_strong(&segment->pins[slot], &word, 0);
    }
}

/* A member that dies between a step and its counter falsifies the sum: count once more. It is to be
 * believed if nobody was between the two when it began, and nobody has begun since. */
static bool recount(struct fb_segment *segment)
{
    uint64_t begun, in, out, items = 0;

    if (!fb_members_rest(segment, &begun))
        return false;
    in = fb_members_total(segment, FB_COUNT_ITEMS_IN);
    out = fb_members_total(segment, FB_COUNT_ITEMS_OUT);
    for (uint64_t unit = 0; unit < segment->geometry.entries; unit++) {
        if (fb_entry_state(segment, unit) == FB_READY)
            items++;
        if (unit % ROUND == 0 && fb_members_total(segment, FB_COUNT_BEGUN) != begun)
            return false;
    }
    if (fb_members_total(segment, FB_COUNT_BEGUN) != begun)
        return false;
    atomic_store(&segment->header->items_lost, in - out - items);
    return true;
}

void fb_sweep_recount(struct fb_cache *cache)
{
    if (atomic_exchange(&cache->recount, false) && !recount(&cache->segment))
        atomic_store(&cache->recount, true);
}

void fb_sweep_row(struct fb_cache *cache, unsigned row, uint64_t life)
{
    struct fb_segment *segment = &cache->segment;
    uint32_t generation = fb_life_generation(life);
    struct haul haul;
    bool more;

    do {
        more = take_over(cache, fb_member_token(row, generation), &haul);
        free_pages(cache, &haul, FB_PAGE_HELD | row << 23 | generation);
    } while (more);
    clear_pins(segment, row, generation);
    fb_pages_mend(segment);
    /* Last: from here on the row may be taken again, and its bytes are no longer given. */
    fb_member_leave(segment, &(struct fb_member){ .row = row, .generation = generation });
    atomic_store(&cache->recount, true);
    fb_sweep_recount(cache);
}

/* Guarded by watch_lock, or before anybody else knows the cache. */
static bool sweep_all_locked(struct fb_cache *cache)
{
    struct fb_segment *segment = &cache->segment;
    unsigned high = fb_members_high(segment);
    uint64_t own = fb_member_token(cache->member.row, cache->member.generation);
    bool found = false, dead;

    for (unsigned row = 0; row < high; row++) {
        uint64_t life = atomic_load(&segment->rows[row].life);

        if (!fb_life_taken(life) || fb_member_token(row, fb_life_generation(life)) == own)
            continue;
        fb_watch_row(&cache->watch, segment, row, &dead);
        if (!dead)
            continue;
        fb_sweep_row(cache, row, life);
        found = true;
    }
    return found;
}

bool fb_sweep_dead(struct fb_cache *cache)
{
    bool found;

    /* Whoever is at it already does it for all. */
    if (!cache->service || pthread_mutex_trylock(&cache->watch_lock))
        return false;
    found = sweep_all_locked(cache);
    pthread_mutex_unlock(&cache->watch_lock);
    return found;
}

/* A fill whose member is no longer in its row: it left in the middle, or the state is garbage. */
void fb_sweep_orphan(struct fb_cache *cache, uint64_t state)
{
    struct fb_segment *segment = &cache->segment;
    unsigned row = (unsigned)(state >> 3 & 0xff);
    uint32_t generation = (uint32_t)(state >> 32);
    uint64_t life;

    if (row >= segment->geometry.rows || pthread_mutex_trylock(&cache->watch_lock))
        return;
    life = atomic_load(&segment->rows[row].life);
    if (!fb_life_taken(life) || fb_life_generation(life) != generation)
        fb_sweep_row(cache, row, (uint64_t)generation << 32);
    pthread_mutex_unlock(&cache->watch_lock);
}
