/* inside.h -- one process's cache object, for the files of this folder. */
#ifndef FB_CACHE_INSIDE_H
#define FB_CACHE_INSIDE_H
#include "cache/cache.h"
#include "cache/entries.h"
#include "cache/members.h"
#include "cache/pages.h"
#include "cache/policy.h"

struct fb_service;

/*
 * Bytes in the ledger: local_bytes + given + owed + what a shrinking thread still has in hand.
 * Order of locks: watch_lock, then lock, then the budget's. Neither is held while bytes are
 * copied or memory is given back to the system.
 */
struct fb_cache {
    struct fb_segment segment;
    struct fb_member member;
    struct fb_cache_options options; /* log points to `log` */
    struct fb_log log;
    uint64_t local_bytes; /* this struct, the service's thread */
    void *alive_page;     /* wiped in a forked child: then *alive is 0 */
    _Atomic uint32_t *alive;
    struct fb_service *service;        /* NULL: private */
    uint64_t counts_before[FB_COUNTS]; /* the row's, when this member took it */
    _Atomic(const struct fb_policy *) policy; /* the effective one */
    atomic_bool several_jobs, last_epoch;
    _Atomic uint64_t draws; /* random numbers drawn */
    struct fb_spares spares;
    atomic_bool indebted;   /* owed > 0 */
    atomic_bool recount;    /* items are to be counted again after a death */

    pthread_mutex_t lock;
    /* Guarded by lock: */
    uint64_t limit; /* as it was asked for: share + local_bytes, not rounded */
    uint64_t share; /* of pages and index: what this process may give */
    uint64_t given; /* what it gives now, in its ledger */
    uint64_t owed;  /* no longer given, but still in use by pinned units: not yet refunded */
    uint64_t grow_not_before_ns;
    struct fb_cost cost;

    pthread_mutex_t watch_lock; /* guards watch; one sweep at a time in this process */
    struct fb_watch watch;
};

/* ---- cache.c ---- */
/* All of a report but the limit. */
void fb_report_read(const struct fb_segment *segment, struct fb_cache_report *report);

/* ---- unit.c: a unit's pages ---- */
/* Evict it if it is READY and nobody has it pinned. */
bool fb_unit_evict(struct fb_cache *cache, uint64_t unit);
/* FREE -> FILLING by this member, with pages for `bytes`. False: not admitted, nothing is held. */
bool fb_unit_claim(struct fb_cache *cache, const struct fb_candidate *newcomer, bool *lost,
                   uint32_t *head, bool *fresh);
/* FILLING by this member -> FREE, its pages freed. */
void fb_unit_drop(struct fb_cache *cache, uint64_t unit);
uint64_t fb_cache_random(struct fb_cache *cache, uint64_t below);

/* ---- limit.c: what this process gives ---- */
uint64_t fb_limit_pages(const struct fb_cache *cache);
/* Reserve the index and register with the budget. */
int fb_limit_open(struct fb_cache *cache, forebay_error *error);
/* What all members would give at most, as the user said it. */
uint64_t fb_limit_together(struct fb_cache *cache);
/* Give nothing any more and leave. Returns what is to be refunded once the memory is unmapped. */
uint64_t fb_limit_leave(struct fb_cache *cache);
/* Reserve room for `pages` more; false if share or budget do not allow even one. */
bool fb_limit_grow(struct fb_cache *cache, uint64_t pages);
/* Evict what lies in pages `from` and up, give its memory back. Returns bytes that could not go. */
uint64_t fb_limit_trim(struct fb_cache *cache, uint64_t from);
/* Try again for what is owed; take over the index if nobody has it in a ledger. */
void fb_limit_settle(struct fb_cache *cache);

/* ---- sweep.c: after a death ---- */
/* Look for dead members and clear up behind them. True if there were any. */
bool fb_sweep_dead(struct fb_cache *cache);
void fb_sweep_orphan(struct fb_cache *cache, uint64_t state);
void fb_sweep_row(struct fb_cache *cache, unsigned row, uint64_t life);
/* Count items again if that is still to be done: a sweep could not while others were at it. */
void fb_sweep_recount(struct fb_cache *cache);

/* ---- service.c: the thread of a shared cache ---- */
int fb_service_open(struct fb_cache *cache, forebay_error *error); /* finds or makes the segment */
int fb_service_start(struct fb_cache *cache, forebay_error *error);
void fb_service_close(struct fb_cache *cache, bool forked);
void fb_service_look_around(struct fb_cache *cache); /* policy and jobs as they are now */

#define FB_SERVICE_BYTES ((uint64_t)128 * 1024) /* its stack and itself */
#endif
