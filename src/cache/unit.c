#include <string.h>

#include "base/mix.h"
#include "base/size.h"
#include "cache/inside.h"
#include "config/config.h"

uint64_t fb_cache_random(struct fb_cache *cache, uint64_t below)
{
    uint64_t drawn = atomic_fetch_add_explicit(&cache->draws, 1, memory_order_relaxed);

    return (uint64_t)(((fb_u128)fb_mix(drawn) * below) >> 64);
}

/* All pages of a unit, if its chain is not to be trusted. */
static void free_all(struct fb_segment *segment, uint32_t owner)
{
    uint64_t reach = fb_pages_reach(segment);

    for (uint64_t page = 0; page < reach; page++)
        if (atomic_load(&segment->owners[page]) == owner)
            fb_page_free(segment, page, owner);
}

/* The caller has the entry in DYING or FILLING: nobody else touches its pages. */
static void free_chain(struct fb_segment *segment, uint64_t unit, uint64_t count)
{
    uint64_t page = atomic_load(&segment->entries[unit].head);
    uint32_t owner = (uint32_t)unit + 1;

    for (; count; count--) {
        /* The link is read while the page is still ours. */
        uint64_t next = segment->geometry.chained && page < segment->geometry.pages
                            ? atomic_load(&segment->links[page])
                            : FB_PAGE_NONE;

        if (page >= segment->geometry.pages || !fb_page_free(segment, page, owner)) {
            free_all(segment, owner);
            return;
        }
        page = next;
    }
}

static bool evict(struct fb_cache *cache, uint64_t unit)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t dying = FB_DYING | cache->member.token, whole = dying | FB_WHOLE;

    if (!fb_entry_move(segment, unit, FB_READY, whole))
        return false;
    if (fb_pin_any(segment, unit)) {
        fb_entry_move(segment, unit, whole, FB_READY);
        return false;
    }
    if (!fb_entry_move(segment, unit, whole, dying))
        return false; /* only if the area is damaged */
    free_chain(segment, unit, fb_pages_for(segment, atomic_load(&segment->entries[unit].bytes)));
    fb_entry_move(segment, unit, dying, FB_FREE);
    fb_member_count(segment, &cache->member, FB_COUNT_ITEMS_OUT, 1);
    fb_member_count(segment, &cache->member, FB_COUNT_EVICTIONS, 1);
    return true;
}

bool fb_unit_evict(struct fb_cache *cache, uint64_t unit)
{
    struct fb_segment *segment = &cache->segment;
    bool gone;

    /* Asked once before, so that a pinned unit is not out of reach for others even for a moment. */
    if (fb_entry_state(segment, unit) != FB_READY || fb_pin_any(segment, unit))
        return false;
    fb_member_begin(segment, &cache->member);
    gone = evict(cache, unit);
    fb_member_end(segment, &cache->member);
    return gone;
}

void fb_unit_drop(struct fb_cache *cache, uint64_t unit)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t dying = FB_DYING | cache->member.token;

    if (!fb_entry_settle(segment, unit, cache->member.token, dying))
        return;
    free_chain(segment, unit, fb_pages_for(segment, atomic_load(&segment->entries[unit].bytes)));
    fb_entry_move(segment, unit, dying, FB_FREE);
}

/* The resident that has this page, if it may go. */
static bool candidate_at(const struct fb_segment *segment, uint64_t page,
                         struct fb_candidate *found)
{
    uint64_t owner = atomic_load_explicit(&segment->owners[page], memory_order_relaxed);
    const struct fb_entry *entry;

    if (!owner || owner > segment->geometry.entries)
        return false;
    entry = &segment->entries[owner - 1];
    if (atomic_load_explicit(&entry->state, memory_order_relaxed) != FB_READY)
        return false;
    *found = (struct fb_candidate){
        .unit = owner - 1,
        .page = page,
        .when = atomic_load_explicit(&entry->when, memory_order_relaxed),
        .bytes = atomic_load_explicit(&entry->bytes, memory_order_relaxed),
    };
    return true;
}

/* Up to 64 random residents, or all where there are no more, beside the worst of those that were
 * looked at before (cache->spares) as they are now. */
static void look_for_worst(struct fb_cache *cache, const struct fb_policy *policy,
                           const struct fb_cost *cost, struct fb_worst *worst)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t pages = fb_min(fb_limit_pages(cache), fb_pages_touched(segment));
    bool all = pages <= FB_POLICY_SAMPLE;
    unsigned found = 0, tries = all ? (unsigned)pages : 2 * FB_POLICY_SAMPLE;
    struct fb_candidate one;

    worst->count = 0;
    for (unsigned i = 0; i < 2 * FB_POLICY_SPARES && !all; i++) {
        uint64_t page = atomic_load_explicit(&cache->spares.pages[i], memory_order_relaxed);

        if (page < pages && candidate_at(segment, page, &one))
            fb_worst_add(worst, &one, policy, cost);
    }
    for (unsigned i = 0; i < tries && found < FB_POLICY_SAMPLE; i++) {
        uint64_t page = all ? i : fb_cache_random(cache, pages);

        if (!candidate_at(segment, page, &one))
            continue;
        fb_worst_add(worst, &one, policy, cost);
        found++;
    }
}

/* Evict one unit that is worth less than the newcomer. */
static bool make_room(struct fb_cache *cache, const struct fb_candidate *newcomer)
{
    struct fb_cost cost = { 0 };
    struct fb_worst worst;
    const struct fb_policy *policy;

    if (cache->options.steady)
        return false;
    /* A member of another job that just joined may have filled with next uses of its own order. */
    if (atomic_load(&cache->policy)->one_order)
        fb_service_look_around(cache);
    policy = atomic_load(&cache->policy);
    if (!policy->swaps_equal && !cache->segment.geometry.chained)
        return false;
    if (policy->costs) {
        pthread_mutex_lock(&cache->lock);
        cost = cache->cost;
        pthread_mutex_unlock(&cache->lock);
    }
    look_for_worst(cache, policy, &cost, &worst);
    for (unsigned i = 0; i < worst.count && i < 4; i++) {
        if (worst.list[i].unit == newcomer->unit ||
            !policy->replaces(newcomer, &worst.list[i], &cost))
            break;
        if (fb_unit_evict(cache, worst.list[i].unit)) {
            fb_spares_keep(&cache->spares, &worst, i + 1);
            return true;
        }
    }
    fb_spares_keep(&cache->spares, &worst, 0);
    return false;
}

/* A page for the unit, below the limit as it is when the page is ours: whoever lowers the limit
 * looks at the owners afterwards, so one of us sees the other. */
static bool take_page(struct fb_cache *cache, const struct fb_candidate *newcomer, uint32_t *page,
                      bool *fresh)
{
    struct fb_segment *segment = &cache->segment;
    uint32_t owner = (uint32_t)newcomer->unit + 1;

    if (!fb_page_take(segment, owner, fb_limit_pages(cache), page, fresh))
        return false;
    if (*page < fb_limit_pages(cache))
        return true;
    fb_page_free(segment, *page, owner);
    return false;
}

/* A free page, a higher limit, or a page of a unit that is worth less. */
static bool get_room(struct fb_cache *cache, const struct fb_candidate *newcomer, uint64_t pages)
{
    return fb_page_any(&cache->segment, fb_limit_pages(cache)) || fb_limit_grow(cache, pages) ||
           make_room(cache, newcomer);
}

/* All pages, or as many as could be had: *taken of them, chained from the entry's head. */
static bool take_pages(struct fb_cache *cache, const struct fb_candidate *newcomer, uint64_t need,
                       uint64_t *taken, bool *fresh)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t attempts = 4 * need + 64;
    uint32_t page, last = 0;

    for (*taken = 0; *taken < need && attempts; attempts--) {
        if (!take_page(cache, newcomer, &page, fresh)) {
            if (!get_room(cache, newcomer, need - *taken))
                return false;
            continue;
        }
        if (*taken == 0)
            atomic_store(&segment->entries[newcomer->unit].head, page);
        else
            atomic_store(&segment->links[last], page);
        last = page;
        ++*taken;
    }
    return *taken == need;
}

/* Pages that there would be if all members gave all they may. */
static uint64_t most_pages(const struct fb_segment *segment)
{
    return fb_segment_pages_in(segment, fb_members_share(segment));
}

bool fb_unit_claim(struct fb_cache *cache, const struct fb_candidate *newcomer, bool *lost,
                   uint32_t *head, bool *fresh)
{
    struct fb_segment *segment = &cache->segment;
    struct fb_entry *entry = &segment->entries[newcomer->unit];
    uint64_t need = fb_pages_for(segment, newcomer->bytes), taken;

    *lost = false;
    if (need > most_pages(segment) || (need > 1 && !segment->geometry.chained))
        return false;
    /* Room is looked for before the claim: who is not admitted keeps nobody waiting. The last room
     * may be gone because somebody else has it for this very unit. */
    if (!get_room(cache, newcomer, need)) {
        *lost = fb_entry_state(segment, newcomer->unit) != FB_FREE;
        return false;
    }
    *lost = !fb_entry_move(segment, newcomer->unit, FB_FREE, FB_FILLING | cache->member.token);
    if (*lost)
        return false;
    atomic_store(&entry->when, newcomer->when);
    atomic_store(&entry->bytes, newcomer->bytes);
    if (take_pages(cache, newcomer, need, &taken, fresh)) {
        *head = atomic_load(&entry->head);
        return true;
    }
    /* What was got goes back: as a shorter unit, in case of death on the way. */
    atomic_store(&entry->bytes, taken * segment->geometry.page_bytes);
    fb_unit_drop(cache, newcomer->unit);
    return false;
}
