#include "cache/cache.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/size.h"
#include "cache/inside.h"
#include "config/config.h"
#include "memory/block.h"

#define WAIT_NS 1000000000u       /* for another's fill, at most (the deadlock law of design.md) */
#define SLICE_NS 50000000u        /* and how often it is asked whether the other still lives */
#define FRESH ((uint64_t)1 << 63) /* in pin->entry: the pages were never written */
#define OS_PAGE 4096

/* ---- open and close ---- */

static int alive_open(struct fb_cache *cache, forebay_error *error)
{
    void *page = mmap(NULL, OS_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return fb_fail_errno(error, FOREBAY_NO_MEMORY, "cache: no memory");
    cache->alive_page = page;
    cache->alive = page;
    if (madvise(page, OS_PAGE, MADV_WIPEONFORK))
        return fb_fail_errno(error, FOREBAY_NO_MEMORY, "cache: this kernel cannot wipe on fork");
    atomic_store(cache->alive, 1);
    return FOREBAY_OK;
}

static int private_open(struct fb_cache *cache, forebay_error *error)
{
    struct fb_geometry geometry;
    int status = fb_geometry_choose(&geometry, &cache->options, false, error);

    if (!status)
        status = fb_segment_private_new(&cache->segment, &geometry, &cache->options, error);
    if (!status)
        fb_member_join(&cache->segment, cache->options.job, &cache->member);
    return status;
}

/* A cache that cannot be shared is still a cache: this process's own, as large as its share. */
static int segment_open(struct fb_cache *cache, forebay_error *error)
{
    forebay_error why;

    if (cache->options.share == FB_SHARE_OFF)
        return private_open(cache, error);
    if (!fb_service_open(cache, &why)) {
        cache->local_bytes += FB_SERVICE_BYTES;
        return FOREBAY_OK;
    }
    if (cache->options.together) {
        if (error)
            *error = why;
        return why.status;
    }
    fb_warn(cache->options.log, "cache: not shared with other processes: %s", why.message);
    return private_open(cache, error);
}

static void cache_free(struct fb_cache *cache)
{
    bool forked = cache->alive && !atomic_load(cache->alive);

    fb_segment_release(&cache->segment, forked);
    if (cache->alive_page)
        munmap(cache->alive_page, OS_PAGE);
    if (!forked) {
        pthread_mutex_destroy(&cache->lock);
        pthread_mutex_destroy(&cache->watch_lock);
    }
    free(cache);
}

int fb_cache_open(struct fb_cache **out, const struct fb_cache_options *options,
                  forebay_error *error)
{
    struct fb_cache *cache = calloc(1, sizeof(*cache));
    int status;

    if (!cache)
        return fb_fail(error, FOREBAY_NO_MEMORY, "cache: no memory");
    cache->options = *options;
    cache->log = options->log ? *options->log : (struct fb_log){ 0 };
    cache->options.log = &cache->log;
    cache->segment.fd = -1;
    cache->local_bytes = fb_round_up(sizeof(*cache), OS_PAGE) + OS_PAGE;
    pthread_mutex_init(&cache->lock, NULL);
    pthread_mutex_init(&cache->watch_lock, NULL);
    fb_watch_init(&cache->watch);
    status = alive_open(cache, error);
    if (!status)
        status = segment_open(cache, error);
    if (status)
        goto fail;
    fb_service_look_around(cache);
    for (unsigned i = 0; i < FB_COUNTS; i++)
        cache->counts_before[i] = atomic_load(&cache->segment.rows[cache->member.row].counts[i]);
    atomic_store(&cache->draws, (uint64_t)cache->member.token << 20);
    status = fb_limit_open(cache, error);
    if (status)
        goto fail_joined;
    if (cache->service && (status = fb_service_start(cache, error)) != 0) {
        fb_cache_close(cache);
        return status;
    }
    *out = cache;
    return FOREBAY_OK;

fail_joined:
    fb_member_leave(&cache->segment, &cache->member);
fail:
    fb_service_close(cache, false);
    cache_free(cache);
    return status;
}

void fb_cache_close(struct fb_cache *cache)
{
    struct fb_budget *budget;
    uint64_t bytes;

    if (!cache)
        return;
    if (!atomic_load(cache->alive)) { /* a child: nothing here is its own but the descriptors */
        fb_service_close(cache, true);
        cache_free(cache);
        return;
    }
    budget = cache->options.budget;
    fb_service_close(cache, false);
    bytes = fb_limit_leave(cache);
    cache_free(cache);
    fb_budget_refund(budget, FB_STAGE_CACHE, bytes);
}

/* ---- find ---- */

static void count(struct fb_cache *cache, unsigned what)
{
    fb_member_count(&cache->segment, &cache->member, what, 1);
}

static enum fb_cache_answer miss(struct fb_cache *cache)
{
    count(cache, FB_COUNT_MISSES);
    return FB_CACHE_MISS;
}

static const struct fb_policy *policy_now(struct fb_cache *cache)
{
    return atomic_load_explicit(&cache->policy, memory_order_relaxed);
}

/* When it was or will be used, as the policy wants to know it. */
static uint64_t stamp(const struct fb_policy *policy, uint64_t next_use)
{
    return policy->stamp == FB_STAMP_NEXT_USE ? next_use : fb_now_ns();
}

/* Different threads have different stacks: a cheap way to keep them out of each other's slot. */
static uint64_t slot_hint(const struct fb_cache_pin *pin)
{
    return (uint64_t)(uintptr_t)pin >> 14;
}

/* Announce, then look: see members.h. `bytes` 0: of any size. */
static bool pin_ready(struct fb_cache *cache, uint64_t unit, uint64_t bytes, uint64_t next_use,
                      struct fb_cache_pin *pin)
{
    struct fb_segment *segment = &cache->segment;
    struct fb_entry *entry = &segment->entries[unit];
    uint64_t slot, head, has;
    const struct fb_policy *policy = policy_now(cache);

    if (!fb_pin_set(segment, &cache->member, unit, slot_hint(pin), &slot))
        return false;
    head = atomic_load(&entry->state) == FB_READY ? atomic_load(&entry->head) : FB_PAGE_NONE;
    has = atomic_load(&entry->bytes);
    if (head >= segment->geometry.pages || (bytes && has != bytes)) {
        fb_pin_clear(segment, &cache->member, slot);
        return false;
    }
    if (policy->stamp != FB_STAMP_NONE)
        atomic_store_explicit(&entry->when, stamp(policy, next_use), memory_order_relaxed);
    if (policy->stamp == FB_STAMP_NEXT_USE)
        fb_spares_put_off(&cache->spares, head, next_use);
    *pin = (struct fb_cache_pin){ .unit = unit, .bytes = has, .entry = slot, .page = head };
    return true;
}

/* Be the one reader, if the policy admits the unit. *lost: somebody else is it. */
static bool become_reader(struct fb_cache *cache, const struct fb_candidate *newcomer,
                          struct fb_cache_pin *pin, bool *lost)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t slot;
    uint32_t head;
    bool fresh;

    *lost = false;
    if (!fb_policy_admits(policy_now(cache), atomic_load(&cache->last_epoch),
                          atomic_load(&cache->several_jobs)) ||
        !fb_pin_set(segment, &cache->member, newcomer->unit, slot_hint(pin), &slot))
        return false;
    if (!fb_unit_claim(cache, newcomer, lost, &head, &fresh)) {
        fb_pin_clear(segment, &cache->member, slot);
        return false;
    }
    *pin = (struct fb_cache_pin){ .unit = newcomer->unit,
                                  .bytes = newcomer->bytes,
                                  .entry = slot | (fresh ? FRESH : 0),
                                  .page = head };
    return true;
}

/* Another fills it. True: look again; false: it takes too long. */
static bool wait_for_fill(struct fb_cache *cache, uint64_t unit, uint64_t state, uint64_t *deadline)
{
    uint64_t now = fb_now_ns();

    if (!*deadline) {
        *deadline = now + WAIT_NS;
        count(cache, FB_COUNT_WAITS);
    }
    if (now >= *deadline)
        return false;
    fb_entry_wait(&cache->segment, unit, state, fb_min(*deadline - now, SLICE_NS));
    if (fb_entry_state(&cache->segment, unit) == (state | FB_WAITED)) {
        fb_sweep_dead(cache);
        fb_sweep_orphan(cache, state);
    }
    return true;
}

/* Who waited for a fill whose filler died also waits until its pages are swept, a millisecond. */
static void pause_for(int turn)
{
    if (turn <= 10)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

enum fb_cache_answer fb_cache_find(struct fb_cache *cache, uint64_t unit, uint64_t bytes,
                                   uint64_t next_use, bool wait, struct fb_cache_pin *pin)
{
    struct fb_candidate newcomer = { .unit = unit, .bytes = bytes };
    uint64_t deadline = 0;
    bool lost;

    if (!atomic_load_explicit(cache->alive, memory_order_relaxed))
        return FB_CACHE_MISS;
    /* Each turn answers, waits, or sees that somebody else moved; many in a row are not normal. */
    for (int turn = 0; turn < 1000 && unit < cache->segment.geometry.entries && bytes; turn++) {
        uint64_t state = fb_entry_state(&cache->segment, unit);

        switch (fb_state_phase(state)) {
        case FB_READY:
            if (pin_ready(cache, unit, bytes, next_use, pin)) {
                count(cache, FB_COUNT_HITS);
                return FB_CACHE_HIT;
            }
            if (fb_entry_state(&cache->segment, unit) == FB_READY)
                return miss(cache); /* no free pin, or it is not what was asked for */
            break;
        case FB_FREE:
            newcomer.when = stamp(policy_now(cache), next_use);
            if (become_reader(cache, &newcomer, pin, &lost)) {
                count(cache, FB_COUNT_MISSES);
                return FB_CACHE_FILL;
            }
            if (!lost) {
                count(cache, FB_COUNT_BYPASSES);
                return miss(cache);
            }
            break;
        case FB_FILLING:
            if (!wait || !wait_for_fill(cache, unit, state, &deadline))
                return miss(cache);
            break;
        case FB_DYING: /* going, or a pin was found and it comes back at once */
            if (turn > 10 && !deadline)
                return miss(cache);
            pause_for(turn);
            break;
        }
    }
    return miss(cache);
}

enum fb_cache_answer fb_cache_look(struct fb_cache *cache, uint64_t unit, uint64_t *use,
                                   struct fb_cache_pin *pin)
{
    *use = 0;
    if (!atomic_load_explicit(cache->alive, memory_order_relaxed))
        return FB_CACHE_MISS;
    *use = atomic_fetch_add_explicit(&cache->segment.header->uses, 1, memory_order_relaxed) + 1;
    for (int turn = 0; turn <= 10 && unit < cache->segment.geometry.entries; turn++) {
        enum fb_phase phase = fb_state_phase(fb_entry_state(&cache->segment, unit));

        if (phase == FB_READY && pin_ready(cache, unit, 0, 0, pin)) {
            count(cache, FB_COUNT_HITS);
            return FB_CACHE_HIT;
        }
        if (phase != FB_DYING) /* absent, being filled, or READY without a free pin */
            break;
        pause_for(turn);
    }
    return miss(cache);
}

enum fb_cache_answer fb_cache_offer(struct fb_cache *cache, uint64_t unit, uint64_t bytes,
                                    uint64_t load_ns, struct fb_cache_pin *pin)
{
    uint64_t now = fb_now_ns(), began = now - fb_min(now, load_ns);
    bool costs = policy_now(cache)->costs, lost;
    /* The time of a load counts from `began`; lru wants to know the last use. */
    struct fb_candidate newcomer = { .unit = unit, .bytes = bytes, .when = costs ? began : now };

    if (!atomic_load_explicit(cache->alive, memory_order_relaxed) || !bytes ||
        unit >= cache->segment.geometry.entries ||
        fb_entry_state(&cache->segment, unit) != FB_FREE)
        return FB_CACHE_MISS;
    if (become_reader(cache, &newcomer, pin, &lost))
        return FB_CACHE_FILL;
    if (!lost)
        count(cache, FB_COUNT_BYPASSES);
    return FB_CACHE_MISS;
}

/* ---- bytes ---- */

/* Find the page of byte `offset` by its links. Everything read is checked: the area may hold
 * anything. */
static bool page_of(const struct fb_segment *segment, const struct fb_cache_pin *pin,
                    uint64_t index, uint64_t *page)
{
    uint64_t at = pin->page;

    for (; index && at < segment->geometry.pages; index--)
        at = segment->geometry.chained ? atomic_load(&segment->links[at]) : FB_PAGE_NONE;
    *page = at;
    return at < segment->geometry.pages &&
           atomic_load(&segment->owners[at]) == (uint32_t)pin->unit + 1;
}

static int check_range(struct fb_cache *cache, const struct fb_cache_pin *pin, uint64_t offset,
                       uint64_t bytes, forebay_error *error)
{
    uint64_t end;

    if (!atomic_load_explicit(cache->alive, memory_order_relaxed))
        return fb_fail(error, FOREBAY_FORKED, "cache: it belongs to the process that opened it");
    if (!fb_add(offset, bytes, &end) || end > pin->bytes)
        return fb_fail(error, FOREBAY_BAD_USE, "cache: bytes %llu + %llu of a unit of %llu",
                       (unsigned long long)offset, (unsigned long long)bytes,
                       (unsigned long long)pin->bytes);
    return FOREBAY_OK;
}

/* Bytes from `within` page `page` on, up to `most`, that lie in one piece; *last is its last page.
 * Pages are taken from the lowest free one up, so that most units are a few pieces. */
static uint64_t piece(const struct fb_segment *segment, const struct fb_cache_pin *pin,
                      uint64_t page, uint64_t within, uint64_t most, uint64_t *last)
{
    uint64_t page_bytes = segment->geometry.page_bytes, bytes = page_bytes - within, next;
    struct fb_cache_pin here = *pin;

    for (*last = here.page = page; bytes < most; *last = here.page = next, bytes += page_bytes)
        if (!page_of(segment, &here, 1, &next) || next != here.page + 1)
            break;
    return fb_min(bytes, most);
}

/* One loop for both ways: `to` or `from` is NULL. */
static int move_bytes(struct fb_cache *cache, const struct fb_cache_pin *pin, uint64_t offset,
                      char *to, const char *from, uint64_t bytes, forebay_error *error)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t page_bytes = segment->geometry.page_bytes;
    struct fb_cache_pin here = *pin;
    uint64_t skip = offset / page_bytes, within = offset % page_bytes;
    int status = check_range(cache, pin, offset, bytes, error);

    if (status)
        return status;
    while (bytes) {
        uint64_t part, page, last, at;

        if (!page_of(segment, &here, skip, &page))
            return fb_fail(error, FOREBAY_BAD_DATA,
                           "cache: the pages of unit %llu are damaged; another process wrote into "
                           "the shared memory",
                           (unsigned long long)pin->unit);
        at = fb_page_at(segment, page) + within;
        part = piece(segment, pin, page, within, bytes, &last);
        if (to)
            fb_segment_get(segment, at, to, part);
        else
            fb_segment_put(segment, at, from, part, (pin->entry & FRESH) != 0);
        here.page = last;
        skip = 1;
        within = 0;
        bytes -= part;
        to = to ? to + part : NULL;
        from = from ? from + part : NULL;
    }
    return FOREBAY_OK;
}

int fb_cache_read(struct fb_cache *cache, const struct fb_cache_pin *pin, uint64_t offset, void *to,
                  uint64_t bytes, forebay_error *error)
{
    return move_bytes(cache, pin, offset, to, NULL, bytes, error);
}

int fb_cache_write(struct fb_cache *cache, const struct fb_cache_pin *pin, uint64_t offset,
                   const void *from, uint64_t bytes, forebay_error *error)
{
    return move_bytes(cache, pin, offset, NULL, from, bytes, error);
}

/* ---- the end of a use ---- */

static void learn_cost(struct fb_cache *cache, const struct fb_cache_pin *pin)
{
    const struct fb_entry *entry = &cache->segment.entries[pin->unit];
    uint64_t began = atomic_load(&entry->when), now = fb_now_ns();

    if (!cache->segment.geometry.chained || cache->options.steady ||
        !policy_now(cache)->costs || began > now)
        return;
    pthread_mutex_lock(&cache->lock);
    fb_cost_add(&cache->cost, pin->bytes, now - began);
    pthread_mutex_unlock(&cache->lock);
}

void fb_cache_publish(struct fb_cache *cache, struct fb_cache_pin *pin)
{
    struct fb_segment *segment = &cache->segment;

    if (!atomic_load_explicit(cache->alive, memory_order_relaxed))
        return;
    learn_cost(cache, pin);
    fb_member_begin(segment, &cache->member);
    if (fb_entry_settle(segment, pin->unit, cache->member.token, FB_READY))
        fb_member_count(segment, &cache->member, FB_COUNT_ITEMS_IN, 1);
    fb_member_end(segment, &cache->member);
}

void fb_cache_abandon(struct fb_cache *cache, struct fb_cache_pin *pin)
{
    if (!atomic_load_explicit(cache->alive, memory_order_relaxed))
        return;
    fb_unit_drop(cache, pin->unit);
    fb_cache_done(cache, pin);
}

void fb_cache_done(struct fb_cache *cache, struct fb_cache_pin *pin)
{
    if (!atomic_load_explicit(cache->alive, memory_order_relaxed))
        return;
    fb_pin_clear(&cache->segment, &cache->member, pin->entry & ~FRESH);
    /* It may have been the one that kept memory above a lowered limit. */
    if (atomic_load_explicit(&cache->indebted, memory_order_relaxed))
        fb_limit_settle(cache);
}

void fb_cache_last_epoch(struct fb_cache *cache, bool last)
{
    atomic_store(&cache->last_epoch, last);
}

/* ---- what is measured ---- */

uint64_t fb_cache_index_bytes(uint64_t units, bool shared)
{
    struct fb_geometry geometry = { .entries = fb_max(fb_min(units, FB_UNITS_MAX), 1),
                                    .page_bytes = OS_PAGE,
                                    .rows = shared ? FB_ROWS_MAX : 1,
                                    .pins = 64 };
    struct fb_layout layout;

    geometry.pages = geometry.entries;
    fb_geometry_layout(&geometry, &layout);
    return fb_round_up(sizeof(struct fb_cache), OS_PAGE) + OS_PAGE + (shared ? FB_SERVICE_BYTES : 0) +
           layout.fixed_bytes + geometry.pages * layout.table_cost;
}

void fb_report_read(const struct fb_segment *segment, struct fb_cache_report *report)
{
    uint64_t counts[FB_COUNTS];

    for (unsigned i = 0; i < FB_COUNTS; i++)
        counts[i] = fb_members_total(segment, i);
    report->items = counts[FB_COUNT_ITEMS_IN] - counts[FB_COUNT_ITEMS_OUT] -
                    atomic_load(&segment->header->items_lost);
    report->bytes = segment->layout.fixed_bytes + fb_pages_used(segment);
    report->members = fb_members_count(segment);
    report->hits = counts[FB_COUNT_HITS];
    report->misses = counts[FB_COUNT_MISSES];
    report->bypasses = counts[FB_COUNT_BYPASSES];
    report->evictions = counts[FB_COUNT_EVICTIONS];
    report->waits = counts[FB_COUNT_WAITS];
}

void fb_cache_read_report_together(struct fb_cache *cache, struct fb_cache_report *report)
{
    *report = (struct fb_cache_report){ 0 };
    if (!atomic_load(cache->alive))
        return;
    fb_report_read(&cache->segment, report);
    report->bytes += cache->local_bytes;
    report->limit_bytes = fb_limit_together(cache);
    pthread_mutex_lock(&cache->lock);
    report->share_bytes = cache->limit;
    report->ledger_bytes = cache->given + cache->owed + cache->local_bytes;
    pthread_mutex_unlock(&cache->lock);
}

/* What this member did since it has the row. */
static uint64_t own_count(const struct fb_cache *cache, unsigned what)
{
    return atomic_load(&cache->segment.rows[cache->member.row].counts[what]) -
           cache->counts_before[what];
}

void fb_cache_read_report(struct fb_cache *cache, struct fb_cache_report *report)
{
    fb_cache_read_report_together(cache, report);
    if (!atomic_load(cache->alive))
        return;
    report->hits = own_count(cache, FB_COUNT_HITS);
    report->misses = own_count(cache, FB_COUNT_MISSES);
    report->bypasses = own_count(cache, FB_COUNT_BYPASSES);
    report->evictions = own_count(cache, FB_COUNT_EVICTIONS);
    report->waits = own_count(cache, FB_COUNT_WAITS);
}

void fb_cache_read_lap(struct fb_cache *cache, struct fb_cache_report *report)
{
    struct fb_header *header = cache->segment.header;

    fb_cache_read_report_together(cache, report);
    if (!atomic_load(cache->alive))
        return;
    report->hits -= fb_min(report->hits, atomic_exchange(&header->lap_hits, report->hits));
    report->misses -= fb_min(report->misses, atomic_exchange(&header->lap_misses, report->misses));
}

double fb_cache_hit_rate(const struct fb_cache_report *report)
{
    uint64_t uses = report->hits + report->misses;

    return uses ? (double)report->hits / (double)uses : NAN;
}

uint64_t fb_cache_shared_bytes(const struct fb_cache *cache)
{
    struct stat status;

    if (!fb_cache_is_shared(cache) || fstat(cache->segment.fd, &status))
        return 0;
    return (uint64_t)status.st_blocks * 512 / fb_max(1, fb_members_count(&cache->segment));
}

bool fb_cache_wants_next_use(const struct fb_cache *cache)
{
    return cache->options.policy->stamp == FB_STAMP_NEXT_USE;
}

bool fb_cache_is_shared(const struct fb_cache *cache)
{
    return cache->service != NULL;
}
