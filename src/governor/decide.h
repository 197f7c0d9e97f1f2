/*
 * decide.h -- what to change next: one pure function of what is seen and what was done before.
 *
 * No lock, clock or allocation, so that every decision can be tested from a table and made again
 * from a log (replay.h). governor.c looks, asks here and acts. At most one thing is changed at a
 * time, and the next waits until its effect is seen.
 *
 *   1. the ledger over the budget, or the host short of memory: the cache shrinks, then batches in
 *      flight, then workers
 *   2. the trainer waits for a CPU, not for data: fewer workers run at once
 *   3. the trainer waits for data: one more worker, one more batch in flight, one worker less are
 *      tried, each in turns with what there is (trial.h), and stay only if they help
 *   4. memory to spare: to the cache, at half the speed it was taken, and for a minute never more
 *      than the last pressure allowed
 */
#ifndef FB_GOVERNOR_DECIDE_H
#define FB_GOVERNOR_DECIDE_H
#include <stdbool.h>
#include <stdint.h>

/* What is seen: N a number, T a truth, R a real (NAN: unknown). Numbers of the host are FB_UNKNOWN
 * where it does not say. The log writes and reads exactly this list. */
#define FB_VIEW_MAP(X)                                                                   \
    X(N, time_ns)                                                                        \
    X(N, limit) X(N, used)               /* the ledger */                                \
    X(N, reserved)                       /* of it in this process's own memory */        \
    X(N, anon)                           /* of such memory there is, the trainer's, too */ \
    X(N, shared)                         /* is in shared caches, all members' */         \
    X(N, cache) X(N, cache_limit)        /* bytes it holds, and may */                   \
    X(N, cache_least) X(N, cache_most)   /* its index alone; all it could ever use */    \
    X(N, slot) X(N, per_worker)          /* bytes of one batch, of one worker */         \
    X(N, workers) X(N, prefetch) X(N, cpu_share)                                         \
    X(N, cpus)                                                                           \
    X(T, has_cache)                                                                      \
    X(T, cache_fixed) X(T, workers_fixed) X(T, prefetch_fixed) X(T, cpu_fixed)           \
    X(N, running) X(N, ready) X(N, in_flight) X(T, starved)                              \
    X(N, bytes) X(N, batches) X(N, wait_ns) /* delivered so far, and waited for */       \
    X(N, delivered_ns)                   /* when the last one was */                     \
    X(N, delay_ns)                       /* the trainer waited for a CPU, in all */      \
    X(N, room)                           /* the host's memory, or the group's limit */   \
    X(N, left)                           /* what may still be taken of it */             \
    X(N, swapped_out)                    /* pages, in all */                             \
    X(R, stalled)                        /* percent of ten seconds, for want of memory */ \
    X(T, in_group)                       /* room is a control group's limit */           \
    X(T, alarmed)                        /* an alarm asks for memory */

/* What was done before. All zero at first. */
#define FB_PAST_MAP(X)                                                                    \
    X(N, begun)                                                                           \
    X(N, time_ns) X(N, left) X(N, swapped_out)     /* the last view's */                  \
    X(N, reserved) X(N, anon) X(N, shared)                                                \
    X(N, untouched)                                /* of `reserved` not seen in `anon` yet */ \
    X(R, falling)                                  /* bytes/s others take, smoothed */    \
    X(N, settle_ns)                                /* nothing more is done before this */ \
    X(N, action) X(N, target)                      /* the last one, until its effect shows */ \
    X(N, pressure_ns) X(N, pressure_cache)         /* the last one; what it left the cache */ \
    X(N, shrunk)                                   /* the last step down, in bytes */     \
    X(N, warned_ns)                                                                       \
    X(N, window_ns) X(N, window_bytes) X(N, window_batches) X(N, window_wait)             \
    X(N, window_delay) X(N, window_idle) X(N, window_ticks) X(N, window_ready)            \
    X(R, rate)                                     /* bytes/s of the last full window */  \
    X(N, trial) X(N, trial_old) X(N, trial_new)    /* a step that must prove itself: trial.h */ \
    X(N, trial_ns) X(N, trial_leg) X(R, trial_old_rate) X(R, trial_new_rate)              \
    X(N, leg_ns) X(N, leg_bytes) X(N, leg_batches) X(N, leg_delivered_ns) X(R, leg_rate)  \
    X(T, leg_fresh) X(R, pair_1) X(R, pair_2) X(R, pair_3)                               \
    X(R, pair_4) X(R, pair_5) X(R, pair_6)                                                \
    X(N, tried)                                    /* steps not to be tried now, as bits */ \
    X(N, helped)                                   /* steps in a row that did */          \
    X(N, rest_ns) X(N, failures)                   /* no trial before this */             \
    X(N, calm)                                     /* windows in a row without a wait */

#define FB_X_N(name) uint64_t name;
#define FB_X_T(name) bool name;
#define FB_X_R(name) double name;
#define FB_X(kind, name) FB_X_##kind(name)
struct fb_view {
    FB_VIEW_MAP(FB_X)
};
struct fb_past {
    FB_PAST_MAP(FB_X)
};
#undef FB_X
#undef FB_X_N
#undef FB_X_T
#undef FB_X_R

#define FB_ACTION_MAP(X)      \
    X(NONE, "none")           \
    X(CACHE, "cache")         \
    X(PREFETCH, "prefetch")   \
    X(WORKERS, "workers")     \
    X(CPU_SHARE, "cpu.share") \
    X(WARN, "warning")        /* something should be done, but the user has fixed it */

enum fb_action {
#define FB_X(name, text) FB_ACT_##name,
    FB_ACTION_MAP(FB_X)
#undef FB_X
    FB_ACTION_COUNT
};
extern const char *const fb_action_names[FB_ACTION_COUNT];

struct fb_decision {
    enum fb_action action;
    uint64_t from, to;  /* the setting before and after */
    const char *reason; /* in words; never NULL */
    char figures[128];  /* the numbers behind it */
    bool quiet;         /* one turn of a trial: its beginning and its end are told */
};

/* `past` is brought up to date. */
struct fb_decision fb_governor_decide(const struct fb_view *now, struct fb_past *past);
#endif
