#include "base/clock.h"
#include "base/size.h"
#include "cache/inside.h"

#define STEP_BYTES ((uint64_t)4096)
#define STEP_MAX (64 * FB_MIB)
/* After it has yielded to a batch the cache leaves the budget alone for a while: else both would
 * take the same bytes from each other for ever. */
#define YIELD_NS 1000000000u

uint64_t fb_limit_pages(const struct fb_cache *cache)
{
    return fb_segment_pages_in(&cache->segment, fb_members_given(&cache->segment));
}

static bool reserve(struct fb_cache *cache, uint64_t bytes)
{
    return fb_budget_try_reserve(cache->options.budget, FB_STAGE_CACHE, bytes);
}

static void refund(struct fb_cache *cache, uint64_t bytes)
{
    if (bytes)
        fb_budget_refund(cache->options.budget, FB_STAGE_CACHE, bytes);
}

static void give_locked(struct fb_cache *cache, uint64_t bytes)
{
    cache->given = bytes;
    fb_member_give(&cache->segment, &cache->member, bytes);
}

/* What of the index is in nobody's ledger. */
static uint64_t index_missing(const struct fb_cache *cache)
{
    uint64_t given = fb_members_given(&cache->segment), index = cache->segment.layout.fixed_bytes;

    return given >= index ? 0 : index - given;
}

static uint64_t give_back(void *data, uint64_t bytes);

/* Pages and index of this limit. */
static uint64_t share_of(const struct fb_cache *cache, uint64_t limit)
{
    return (limit - fb_min(limit, cache->local_bytes)) & ~(STEP_BYTES - 1);
}

/* ---- `together`: one member gives for all ---- */

/* Become the giver if there is none. The row of a dead one is taken until it was swept. */
static bool elect(struct fb_cache *cache)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t giver = atomic_load(&segment->header->giver), life;
    unsigned row = (unsigned)(giver >> 3 & 0xff);

    if (giver == (cache->member.token | 1))
        return true;
    life = giver ? atomic_load(&segment->rows[row % segment->geometry.rows].life) : 0;
    if (fb_life_taken(life) && fb_life_generation(life) == (uint32_t)(giver >> 32))
        return false;
    return atomic_compare_exchange_strong(&segment->header->giver, &giver,
                                          cache->member.token | 1);
}

/* Give all of it at once: the others fill, too, and cannot give. */
static void give_all(struct fb_cache *cache, uint64_t limit)
{
    struct fb_budget_report ledger;
    uint64_t more;

    /* What is still in use above a lowered limit must not press on the rest. */
    fb_budget_read(cache->options.budget, &ledger);
    fb_budget_set_limit(cache->options.budget, fb_max(limit, ledger.used));
    pthread_mutex_lock(&cache->lock);
    cache->limit = limit;
    cache->share = share_of(cache, limit);
    more = cache->share - fb_min(cache->share, cache->given);
    if (more && reserve(cache, more))
        give_locked(cache, cache->given + more);
    pthread_mutex_unlock(&cache->lock);
    fb_member_share(&cache->segment, &cache->member, limit);
}

static int check_limit(const struct fb_cache *cache, uint64_t index, forebay_error *error)
{
    uint64_t limit = cache->options.limit_bytes;
    uint64_t page = cache->segment.geometry.page_bytes + cache->segment.layout.table_cost;
    uint64_t need = cache->local_bytes + index + page + STEP_BYTES;

    if (limit >= need)
        return FOREBAY_OK;
    if (cache->options.together)
        return fb_fail(error, FOREBAY_OVER_BUDGET,
                       "a cache of %llu bytes cannot hold one item and its index: give it %llu or "
                       "more",
                       (unsigned long long)limit, (unsigned long long)need);
    return fb_fail(error, FOREBAY_OVER_BUDGET,
                   "a cache of %llu bytes cannot hold one unit and its index: raise memory.cache "
                   "to %llu or more, or set it to off",
                   (unsigned long long)limit, (unsigned long long)need);
}

int fb_limit_open(struct fb_cache *cache, forebay_error *error)
{
    bool together = cache->options.together, giver = together && elect(cache);
    uint64_t index = !together || giver ? index_missing(cache) : 0;
    int status = check_limit(cache, together ? cache->segment.layout.fixed_bytes : index, error);

    if (status)
        return status;
    status = fb_budget_reserve(cache->options.budget, FB_STAGE_CACHE, cache->local_bytes + index,
                               "the index of the cache", error);
    if (status)
        return status;
    status = fb_budget_on_pressure(cache->options.budget, give_back, cache, error);
    if (status) {
        fb_budget_refund(cache->options.budget, FB_STAGE_CACHE,
                         cache->local_bytes + index);
        return status;
    }
    cache->limit = cache->options.limit_bytes;
    if (together) {
        uint64_t none = 0;

        give_locked(cache, index);
        atomic_compare_exchange_strong(&cache->segment.header->wanted, &none, cache->limit);
        if (giver)
            give_all(cache, atomic_load(&cache->segment.header->wanted));
        return FOREBAY_OK;
    }
    cache->share = share_of(cache, cache->limit);
    fb_member_share(&cache->segment, &cache->member, cache->limit);
    give_locked(cache, index);
    return FOREBAY_OK;
}

/* Bytes still missing until the members, who together give `given`, give enough for `more` pages, at
 * most what this one has left of its share. */
static uint64_t wanted_locked(const struct fb_cache *cache, uint64_t given, uint64_t more)
{
    const struct fb_segment *segment = &cache->segment;
    uint64_t room = cache->share > cache->given ? cache->share - cache->given : 0;
    uint64_t pages = fb_min(fb_segment_pages_in(segment, given) + more, segment->geometry.pages);
    uint64_t need = fb_segment_bytes_for(segment, pages);

    if (need <= given)
        return 0;
    return fb_min(room, fb_round_up(need - given, STEP_BYTES));
}

bool fb_limit_grow(struct fb_cache *cache, uint64_t pages)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t given, want, step;
    bool grown = false;

    pthread_mutex_lock(&cache->lock);
    given = fb_members_given(segment); /* once: the others go on giving */
    want = wanted_locked(cache, given, pages);
    /* In large steps, so that not every unit asks the budget. */
    step = fb_min(cache->share - fb_min(cache->share, cache->given),
                  fb_max(want, fb_min(cache->share / 16, STEP_MAX) & ~(STEP_BYTES - 1)));
    if (fb_segment_pages_in(segment, given + want) > fb_segment_pages_in(segment, given) &&
        fb_now_ns() >= cache->grow_not_before_ns) {
        grown = reserve(cache, step);
        if (!grown) {
            step = want;
            grown = reserve(cache, step);
        }
    }
    if (grown)
        give_locked(cache, cache->given + step);
    pthread_mutex_unlock(&cache->lock);
    return grown;
}

/* Take the page for ourselves, evicting the unit that has it. */
static bool hold(struct fb_cache *cache, uint64_t page)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t owner = atomic_load(&segment->owners[page]);

    if (owner && owner <= segment->geometry.entries)
        fb_unit_evict(cache, owner - 1);
    return fb_page_take_at(segment, page, cache->member.hold);
}

/* All these pages are held by us, so nobody can write what is thrown away here. */
static void punch_run(struct fb_cache *cache, uint64_t from, uint64_t to)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t end = fb_page_at(segment, to), touched = to;

    if (from >= to)
        return;
    for (uint64_t at = fb_page_at(segment, from); at < end;) {
        uint64_t next = fb_min((at & ~(STEP_BYTES - 1)) + FB_PUNCH_STEP, end);

        fb_segment_punch(segment, at, next);
        at = next;
    }
    atomic_compare_exchange_strong(&segment->header->touched, &touched, from);
    for (uint64_t page = from; page < to; page++)
        fb_page_free(segment, page, cache->member.hold);
}

uint64_t fb_limit_trim(struct fb_cache *cache, uint64_t from)
{
    uint64_t end = fb_pages_touched(&cache->segment), stuck = 0;

    for (uint64_t page = end; page > from; page--) {
        if (hold(cache, page - 1))
            continue;
        stuck += cache->segment.geometry.page_bytes + cache->segment.layout.table_cost;
        punch_run(cache, page, end);
        end = page - 1;
    }
    punch_run(cache, from, end);
    return stuck;
}

/* `bytes` are no longer given: evict, and refund what nobody still has in use. */
static uint64_t trim_and_refund(struct fb_cache *cache, uint64_t bytes)
{
    uint64_t stuck = fb_limit_trim(cache, fb_limit_pages(cache));
    uint64_t kept = fb_min(bytes, stuck);

    pthread_mutex_lock(&cache->lock);
    cache->owed += kept;
    atomic_store(&cache->indebted, cache->owed > 0);
    pthread_mutex_unlock(&cache->lock);
    refund(cache, bytes - kept);
    return bytes - kept;
}

/* The least this member must give: the part of the index that no other one has in its ledger. */
static uint64_t least_locked(const struct fb_cache *cache)
{
    uint64_t others = fb_members_given(&cache->segment) - cache->given;
    uint64_t index = cache->segment.layout.fixed_bytes;

    return others >= index ? 0 : index - others;
}

static uint64_t shrink_to(struct fb_cache *cache, uint64_t target, bool yielding)
{
    uint64_t taken = 0;

    pthread_mutex_lock(&cache->lock);
    target = fb_max(target, fb_min(least_locked(cache), cache->given));
    if (target < cache->given) {
        taken = cache->given - target;
        give_locked(cache, target);
    }
    if (yielding)
        cache->grow_not_before_ns = fb_now_ns() + YIELD_NS;
    pthread_mutex_unlock(&cache->lock);
    return taken ? trim_and_refund(cache, taken) : 0;
}

/* The budget's question, from any thread that reserves. */
static uint64_t give_back(void *data, uint64_t bytes)
{
    struct fb_cache *cache = data;
    uint64_t given;

    if (!atomic_load(cache->alive))
        return 0;
    pthread_mutex_lock(&cache->lock);
    given = cache->given;
    pthread_mutex_unlock(&cache->lock);
    bytes = fb_round_up(bytes, STEP_BYTES);
    return shrink_to(cache, given > bytes ? given - bytes : 0, true);
}

/* Somebody left: what it gave for is in no ledger any more. Before it is evicted, this member
 * takes over what its own share allows, the index first. */
static void take_over_locked(struct fb_cache *cache)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t given = fb_members_given(segment), room, want;
    uint64_t used = fb_segment_bytes_for(segment, fb_pages_touched(segment));

    if (fb_pages_touched(segment) <= fb_segment_pages_in(segment, given) &&
        given >= segment->layout.fixed_bytes)
        return;
    room = cache->share - fb_min(cache->share, cache->given);
    want = fb_min(room, fb_round_up(used - fb_min(used, given), STEP_BYTES));
    if (fb_now_ns() < cache->grow_not_before_ns || !want || !reserve(cache, want)) {
        want = fb_min(room, index_missing(cache));
        if (!want || !reserve(cache, want))
            return;
    }
    give_locked(cache, cache->given + want);
}

/* Follow the limit as it was last set. Only the giver evicts: between a giver's end and the next
 * one's beginning nothing is given, and nothing shall be lost for that. */
static void follow(struct fb_cache *cache)
{
    uint64_t limit = atomic_load(&cache->segment.header->wanted), share, least;

    pthread_mutex_lock(&cache->lock);
    least = cache->local_bytes + cache->segment.layout.fixed_bytes + STEP_BYTES;
    share = cache->share;
    pthread_mutex_unlock(&cache->lock);
    limit = fb_max(limit, least); /* the index stays, whatever the limit */
    if (share_of(cache, limit) < share) {
        shrink_to(cache, share_of(cache, limit), false);
        give_all(cache, limit);
    } else if (share_of(cache, limit) > share) {
        give_all(cache, limit);
    }
}

void fb_limit_settle(struct fb_cache *cache)
{
    uint64_t mine;

    if (cache->options.together) {
        if (!elect(cache))
            return;
        follow(cache);
    }
    pthread_mutex_lock(&cache->lock);
    mine = cache->owed;
    cache->owed = 0;
    take_over_locked(cache);
    pthread_mutex_unlock(&cache->lock);
    if (mine || fb_pages_touched(&cache->segment) > fb_limit_pages(cache))
        trim_and_refund(cache, mine);
}

uint64_t fb_cache_set_limit(struct fb_cache *cache, uint64_t limit_bytes)
{
    uint64_t share, reached;

    if (!atomic_load(cache->alive))
        return 0;
    if (cache->options.together) {
        atomic_store(&cache->segment.header->wanted, fb_max(limit_bytes, 1));
        fb_limit_settle(cache);
        return fb_limit_together(cache);
    }
    pthread_mutex_lock(&cache->lock);
    share = cache->share = share_of(cache, limit_bytes);
    cache->grow_not_before_ns = 0;
    pthread_mutex_unlock(&cache->lock);
    shrink_to(cache, share, false);
    pthread_mutex_lock(&cache->lock);
    cache->limit = limit_bytes;
    if (cache->given > cache->share) { /* the index stays, whatever the limit */
        cache->share = cache->given;
        cache->limit = cache->given + cache->local_bytes;
    }
    fb_member_share(&cache->segment, &cache->member, cache->limit);
    reached = cache->limit + cache->owed;
    pthread_mutex_unlock(&cache->lock);
    return reached;
}

void fb_cache_clear(struct fb_cache *cache)
{
    if (atomic_load(cache->alive))
        fb_limit_trim(cache, 0);
}

uint64_t fb_limit_together(struct fb_cache *cache)
{
    uint64_t all = fb_members_share(&cache->segment), own;

    if (cache->options.together)
        return atomic_load(&cache->segment.header->wanted);
    pthread_mutex_lock(&cache->lock);
    own = cache->limit;
    pthread_mutex_unlock(&cache->lock);
    /* The others' are known to 4 KiB only. */
    return fb_max(all, own & ~(STEP_BYTES - 1)) + own % STEP_BYTES;
}

uint64_t fb_limit_leave(struct fb_cache *cache)
{
    uint64_t all;

    fb_budget_off_pressure(cache->options.budget, give_back, cache);
    pthread_mutex_lock(&cache->lock);
    all = cache->given + cache->owed;
    cache->share = cache->owed = 0;
    fb_member_share(&cache->segment, &cache->member, 0);
    give_locked(cache, 0);
    pthread_mutex_unlock(&cache->lock);
    /* The others take over what their shares allow and evict the rest within a tick; alone, the
     * memory goes with the mapping. */
    fb_member_leave(&cache->segment, &cache->member);
    return cache->local_bytes + all;
}
