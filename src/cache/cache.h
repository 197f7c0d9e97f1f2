/*
 * cache.h -- which units stay in RAM: in memory of this process alone, or in memory that the
 * processes of a job share.
 *
 *     fb_cache_find ──▶ HIT   copy out with fb_cache_read, then fb_cache_done
 *                   ──▶ FILL  you are the one reader: fb_cache_write all bytes, then
 *                             fb_cache_publish (or fb_cache_abandon if the read failed)
 *                   ──▶ MISS  read for yourself; nothing to give back
 *
 *     entry:  free -> filling(member) -> ready -> dying -> free
 *
 * Bounded in bytes exactly: pages, index and waste are inside the limit, and the limit is inside
 * the budget (FB_STAGE_CACHE). Nothing is locked while bytes are copied.
 */
#ifndef FB_CACHE_CACHE_H
#define FB_CACHE_CACHE_H
#include "base/error.h"
#include "base/log.h"
#include "cache/policy.h"
#include "memory/budget.h"

enum fb_cache_answer { FB_CACHE_MISS, FB_CACHE_HIT, FB_CACHE_FILL };

struct fb_cache;

struct fb_cache_options {
    uint64_t unit_count;
    uint64_t unit_bytes; /* of every unit if all are equal, else 0 */
    uint64_t unit_bytes_median, unit_bytes_max;
    uint64_t limit_bytes; /* index and waste included */
    const struct fb_policy *policy; /* of fb_policies (policy.h) */
    bool steady;          /* this member never evicts a unit to admit another one */
    unsigned pins_max;    /* units pinned or being filled at once by this process */
    int share;            /* FB_SHARE_* ; OFF: private memory */
    uint64_t identity;    /* which caches are the same (source, decode options, version) */
    struct fb_budget *budget;
    const struct fb_log *log;
    uint64_t
        job; /* members with another one follow another order; 0: not known, none in particular */
    uint64_t page_bytes; /* where units are unequal; 0: a sixteenth of the median */
    /* limit_bytes is of all members together: one of them has it in its ledger, and when that one
     * leaves or dies another. `budget` is then the cache's own, and sharing is a must: a member that
     * cannot join fails to open, because a private cache each would multiply the memory. */
    bool together;
};

int fb_cache_open(struct fb_cache **out, const struct fb_cache_options *options,
                  forebay_error *error);
void fb_cache_close(struct fb_cache *cache);

/* The deepest cgroup with a memory limit this process is in, as a number; 0: none. Processes of
 * different domains share only with `share: node`; it is part of a shared cache's name already. */
uint64_t fb_cache_memory_domain(void);
/* Which job this process belongs to, by its launcher's variables or its process group; never 0. */
uint64_t fb_cache_job(void);

/* A unit that is pinned (HIT) or being filled (FILL) by one worker. On the worker's stack. */
struct fb_cache_pin {
    uint64_t unit;
    uint64_t bytes;
    uint64_t entry; /* cache.c's own */
    uint64_t page;  /* cache.c's own */
};

/* Ask for `unit` of `bytes`. `next_use` orders eviction under next-use (order.h); fill and lru do
 * not look at it. `wait`: another's fill may be waited for (at most a second, then MISS); only for
 * a worker that holds no unfilled claim of its own. */
enum fb_cache_answer fb_cache_find(struct fb_cache *cache, uint64_t unit, uint64_t bytes,
                                   uint64_t next_use, bool wait, struct fb_cache_pin *pin);
/* For whoever knows a unit's size only after reading it: HIT with pin->bytes set, or MISS; never
 * waits for another's fill. *use: the number of this use among those of all members, from 1. */
enum fb_cache_answer fb_cache_look(struct fb_cache *cache, uint64_t unit, uint64_t *use,
                                   struct fb_cache_pin *pin);
/* What was read after such a miss in `load_ns`: FILL, or MISS if it is not admitted. */
enum fb_cache_answer fb_cache_offer(struct fb_cache *cache, uint64_t unit, uint64_t bytes,
                                    uint64_t load_ns, struct fb_cache_pin *pin);
/* Copy bytes [offset, offset + bytes) of a pinned unit out, or of one being filled in. */
int fb_cache_read(struct fb_cache *cache, const struct fb_cache_pin *pin, uint64_t offset, void *to,
                  uint64_t bytes, forebay_error *error);
int fb_cache_write(struct fb_cache *cache, const struct fb_cache_pin *pin, uint64_t offset,
                   const void *from, uint64_t bytes, forebay_error *error);
void fb_cache_publish(struct fb_cache *cache, struct fb_cache_pin *pin); /* FILL -> HIT: pinned */
void fb_cache_abandon(struct fb_cache *cache, struct fb_cache_pin *pin);
void fb_cache_done(struct fb_cache *cache, struct fb_cache_pin *pin);

/* The last epoch, if known: fill and next-use admit nothing more, unless another job shares the
 * cache. */
void fb_cache_last_epoch(struct fb_cache *cache, bool last);
/* Change this process's share of the limit; evicts down to it. Returns what was reached. */
uint64_t fb_cache_set_limit(struct fb_cache *cache, uint64_t limit_bytes);
/* Evict all that nobody is using right now and give the memory back to the system. */
void fb_cache_clear(struct fb_cache *cache);

struct fb_cache_report {
    uint64_t items, bytes, limit_bytes;
    uint64_t hits, misses, bypasses, evictions, waits; /* of this process, or of all together */
    uint64_t members;                                  /* processes that share it now */
    uint64_t share_bytes;  /* this process's part of the limit: what fb_cache_set_limit sets */
    uint64_t ledger_bytes; /* what of that it has taken by now, in its budget */
};
/* Of this process: items, bytes and limit are the whole cache's, the counts are its own. For an
 * epoch: the difference of two reports. [any thread] */
void fb_cache_read_report(struct fb_cache *cache, struct fb_cache_report *report);
/* The counts of all members, living and dead. */
void fb_cache_read_report_together(struct fb_cache *cache, struct fb_cache_report *report);
/* Hits and misses of all members since the last call by any of them; the rest as above. */
void fb_cache_read_lap(struct fb_cache *cache, struct fb_cache_report *report);
/* NAN before the first use. */
double fb_cache_hit_rate(const struct fb_cache_report *report);
bool fb_cache_is_shared(const struct fb_cache *cache);
/* Does its policy ask when a unit is needed next? */
bool fb_cache_wants_next_use(const struct fb_cache *cache);
/* This member's part, as one of several alike, of the shared memory that there really is. Memory of
 * a private cache is the process's own like any other: 0. */
uint64_t fb_cache_shared_bytes(const struct fb_cache *cache);
/* The name members meet under, "" for a private cache. */
#define FB_CACHE_NAME_BYTES 80
void fb_cache_name(const struct fb_cache *cache, char name[FB_CACHE_NAME_BYTES]);

/* ---- for `forebay cache list|drop` ---- */

#define FB_CACHE_PIDS 16
struct fb_cache_listed {
    char name[FB_CACHE_NAME_BYTES];
    struct fb_cache_report report; /* of all members together */
    int pids[FB_CACHE_PIDS];       /* the first of them */
    unsigned pid_count;
};
/* The shared caches of this user that are alive, at most `most` of them. Returns how many. */
size_t fb_cache_list(struct fb_cache_listed *list, size_t most);
/* Evict everything that nobody is using right now and give the memory back to the system. */
int fb_cache_drop(const char *name, uint64_t *bytes, forebay_error *error);

/* Bytes of index for `units`, all that is fixed among them: the one formula for plan and run. */
uint64_t fb_cache_index_bytes(uint64_t units, bool shared);
/* An index that takes more than half of the limit keeps nothing: then fewer units are covered,
 * those with the smallest numbers. */
uint64_t fb_cache_units_covered(uint64_t units, uint64_t limit);
#endif
