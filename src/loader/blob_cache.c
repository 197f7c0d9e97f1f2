/*
 * blob_cache.c -- forebay_cache: items of any size by number, in one cache of the node.
 *
 * A process's part is a view: a member of the shared cache and a ledger. A view belongs to the
 * process that made it. Whoever finds another process's view (it was forked) makes one of its own
 * and puts it in front; no lock is involved, because a lock may have been held when the fork came.
 * What was inherited is kept behind it, untouched, until close.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mix.h"
#include "base/size.h"
#include "cache/cache.h"
#include "config/config.h"
#include "memory/budget.h"

#define PIECES_MAX ((size_t)1 << 20)
/* Chained pages, so that sizes need not be known: with a sixteenth of what every item would have
 * if all were kept, all half-filled last pages together are at most 1/32 of the limit. */
#define PAGES_PER_ITEM 16
#define PAGE_MIN ((uint64_t)512)
#define PAGE_MAX (2 * FB_MIB)

struct view {
    pid_t pid;
    struct fb_budget *budget;
    struct fb_cache *cache; /* NULL: it could not be shared, nothing is kept */
    struct view *inherited; /* the parent's; nothing of it is used */
};

struct forebay_cache {
    struct fb_cache_options options;
    struct fb_log log;
    _Atomic(struct view *) view;
};

static uint64_t page_bytes(uint64_t limit, uint64_t items)
{
    uint64_t bytes = limit / items / PAGES_PER_ITEM;
    uint64_t step = bytes >= 4 * FB_KIB ? 4 * FB_KIB : 64;

    return fb_min(fb_max(bytes & ~(step - 1), PAGE_MIN), PAGE_MAX);
}

static uint64_t text_hash(const char *text)
{
    uint64_t hash = 0x626c6f62; /* none that a loader's source has */

    for (; *text; text++)
        hash = fb_mix2(hash, (unsigned char)*text);
    return hash;
}

/* ---- views ---- */

static void view_close(struct view *view)
{
    while (view) {
        struct view *inherited = view->inherited;

        if (view->cache)
            fb_cache_close(view->cache);
        /* In a child the ledger's lock may be held for ever; its bytes are the parent's. */
        if (view->budget && view->pid == getpid())
            fb_budget_free(view->budget);
        free(view);
        view = inherited;
    }
}

static int view_open(struct view **out, forebay_cache *cache, forebay_error *error)
{
    struct fb_cache_options options = cache->options;
    struct view *view = calloc(1, sizeof(*view));
    int status;

    if (!view)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a cache");
    view->pid = getpid();
    status = fb_budget_new(&view->budget, options.limit_bytes, error);
    if (status)
        goto fail;
    options.budget = view->budget;
    status = fb_cache_open(&view->cache, &options, error);
    if (status == FOREBAY_OVER_BUDGET)
        goto fail;
    if (status)
        fb_warn(&cache->log, "no shared cache in process %d, nothing is kept: %s", (int)view->pid,
                error->message);
    *out = view;
    return FOREBAY_OK;

fail:
    view_close(view);
    return status;
}

/* This process's view; made with its first call after a fork. */
static int view_of(struct view **out, forebay_cache *cache, forebay_error *error)
{
    struct view *view = atomic_load(&cache->view), *mine;
    forebay_error local;
    int status;

    if (view->pid == getpid()) {
        *out = view;
        return FOREBAY_OK;
    }
    status = view_open(&mine, cache, error ? error : &local);
    if (status)
        return status;
    mine->inherited = view;
    if (atomic_compare_exchange_strong(&cache->view, &view, mine)) {
        *out = mine;
        return FOREBAY_OK;
    }
    mine->inherited = NULL; /* another thread was faster */
    view_close(mine);
    *out = view;
    return FOREBAY_OK;
}

/* ---- open and close ---- */

/* Nothing is known of the order in which the items will be asked for. */
static int find_policy(const struct fb_policy **policy, const char *word, forebay_error *error)
{
    *policy = word ? fb_policy_named(word) : &fb_policy_fill;
    if (!*policy || (*policy)->stamp == FB_STAMP_NEXT_USE)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "the policy is \"fill\" or \"lru\", not \"%s\"",
                       word);
    return FOREBAY_OK;
}

int forebay_cache_open(forebay_cache **out, const forebay_cache_options *options,
                       forebay_error *error)
{
    forebay_error local;
    forebay_cache *cache;
    struct view *view;
    const struct fb_policy *policy;
    int status;

    error = error ? error : &local;
    status = find_policy(&policy, options->policy, error);
    if (status)
        return status;
    if (!options->identity || !options->items)
        return fb_fail(error, FOREBAY_BAD_USE, "a cache needs an identity and a number of items");
    cache = calloc(1, sizeof(*cache));
    if (!cache)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a cache");
    cache->log = (struct fb_log){ .log = options->log, .data = options->data };
    cache->options = (struct fb_cache_options){
        .unit_count = options->items,
        .unit_bytes_median = options->limit_bytes / options->items,
        .unit_bytes_max = options->limit_bytes, /* any of them may be that large */
        .page_bytes = page_bytes(options->limit_bytes, options->items),
        .limit_bytes = options->limit_bytes,
        .policy = policy,
        .share = FB_SHARE_JOB,
        .identity = text_hash(options->identity),
        .log = &cache->log,
        .together = true,
    };
    status = view_open(&view, cache, error);
    if (status) {
        free(cache);
        return status;
    }
    atomic_store(&cache->view, view);
    *out = cache;
    return FOREBAY_OK;
}

void forebay_cache_close(forebay_cache *cache)
{
    if (!cache)
        return;
    view_close(atomic_load(&cache->view));
    free(cache);
}

/* ---- items ---- */

static struct fb_cache_pin pin_of(const forebay_item *item)
{
    return (struct fb_cache_pin){ .unit = item->number,
                                  .bytes = item->bytes,
                                  .entry = item->inside[0],
                                  .page = item->inside[1] };
}

int forebay_cache_find(forebay_cache *cache, uint64_t number, forebay_item *item,
                       forebay_error *error)
{
    struct fb_cache_pin pin;
    struct view *view;
    uint64_t use = 0;
    int status = view_of(&view, cache, error);

    if (status)
        return status;
    *item = (forebay_item){ .number = number };
    if (!view->cache)
        return FOREBAY_MISS;
    status = fb_cache_look(view->cache, number, &use, &pin) == FB_CACHE_HIT ? FOREBAY_OK
                                                                           : FOREBAY_MISS;
    item->use = use;
    if (status)
        return status;
    item->bytes = pin.bytes;
    item->inside[0] = pin.entry;
    item->inside[1] = pin.page;
    item->inside[2] = (uint64_t)view->pid;
    return FOREBAY_OK;
}

/* An item that was found before a fork is the parent's. */
static struct fb_cache *finder(forebay_cache *cache, const forebay_item *item)
{
    struct view *view = atomic_load(&cache->view);

    return item->inside[2] == (uint64_t)getpid() && view->pid == getpid() ? view->cache : NULL;
}

int forebay_cache_read(forebay_cache *cache, const forebay_item *item, uint64_t offset, void *to,
                       uint64_t bytes, forebay_error *error)
{
    struct fb_cache *of = finder(cache, item);
    struct fb_cache_pin pin = pin_of(item);

    if (!of)
        return fb_fail(error, FOREBAY_FORKED, "this item was found by another process");
    return fb_cache_read(of, &pin, offset, to, bytes, error);
}

void forebay_cache_done(forebay_cache *cache, forebay_item *item)
{
    struct fb_cache *of = finder(cache, item);
    struct fb_cache_pin pin = pin_of(item);

    if (of)
        fb_cache_done(of, &pin);
    item->inside[2] = 0; /* once is enough */
}

static int pieces_bytes(const forebay_piece *pieces, size_t count, uint64_t *bytes,
                        forebay_error *error)
{
    *bytes = 0;
    for (size_t i = 0; i < count && count <= PIECES_MAX; i++)
        if (!fb_add(*bytes, pieces[i].bytes, bytes))
            return fb_fail(error, FOREBAY_BAD_USE, "cache: an item of more than 2^64 bytes");
    if (count > PIECES_MAX || !*bytes)
        return fb_fail(error, FOREBAY_BAD_USE, "cache: an item has 1 to %zu pieces, and bytes",
                       PIECES_MAX);
    return FOREBAY_OK;
}

int forebay_cache_put(forebay_cache *cache, uint64_t number, const forebay_piece *pieces,
                      size_t count, uint64_t load_ns, forebay_error *error)
{
    struct fb_cache_pin pin;
    struct view *view;
    uint64_t bytes, at = 0;
    int status = view_of(&view, cache, error);

    if (!status)
        status = pieces_bytes(pieces, count, &bytes, error);
    if (status)
        return status;
    if (!view->cache || fb_cache_offer(view->cache, number, bytes, load_ns, &pin) != FB_CACHE_FILL)
        return FOREBAY_MISS;
    for (size_t i = 0; i < count && !status; at += pieces[i++].bytes)
        status = fb_cache_write(view->cache, &pin, at, pieces[i].data, pieces[i].bytes, error);
    if (status) {
        fb_cache_abandon(view->cache, &pin);
        return status;
    }
    fb_cache_publish(view->cache, &pin);
    fb_cache_done(view->cache, &pin);
    return FOREBAY_OK;
}

/* ---- control ---- */

int forebay_cache_set_limit(forebay_cache *cache, uint64_t limit_bytes, forebay_error *error)
{
    struct view *view;
    int status = view_of(&view, cache, error);

    if (!status && view->cache)
        fb_cache_set_limit(view->cache, limit_bytes);
    return status;
}

int forebay_cache_clear(forebay_cache *cache, forebay_error *error)
{
    struct view *view;
    int status = view_of(&view, cache, error);

    if (!status && view->cache)
        fb_cache_clear(view->cache);
    return status;
}

int forebay_cache_read_stats(forebay_cache *cache, bool lap, forebay_cache_stats *stats,
                             forebay_error *error)
{
    struct fb_cache_report all, since = { 0 };
    struct view *view;
    int status = view_of(&view, cache, error);

    if (status)
        return status;
    *stats = (forebay_cache_stats){ .limit_bytes = cache->options.limit_bytes };
    if (!view->cache)
        return FOREBAY_OK;
    fb_cache_read_report_together(view->cache, &all);
    if (lap)
        fb_cache_read_lap(view->cache, &since);
    *stats = (forebay_cache_stats){
        .items = all.items,
        .bytes = all.bytes,
        .limit_bytes = all.limit_bytes,
        .hits = all.hits,
        .misses = all.misses,
        .evictions = all.evictions,
        .processes = all.members,
        .lap_hits = since.hits,
        .lap_misses = since.misses,
    };
    return FOREBAY_OK;
}
