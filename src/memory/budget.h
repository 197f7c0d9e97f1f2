/*
 * budget.h -- one ceiling for every byte forebay holds: the ledger.
 *
 * Bytes are reserved before they are allocated and refunded after they are freed, so
 * used <= limit always; only after the limit was lowered may `used` be above it, and then it
 * falls until it fits. Nobody ever waits here: what must be had is reserved at open (or the open
 * fails, in words), what is nice to have is tried for, and whoever does not get it does without
 * or waits for something of its own. So no two users of one budget can wait for each other.
 *
 * When a reservation does not fit, the budget first asks those who can give back at once (the
 * caches; see fb_budget_on_pressure), in the order they registered.
 */
#ifndef FB_MEMORY_BUDGET_H
#define FB_MEMORY_BUDGET_H
#include <pthread.h>
#include <stdatomic.h>

#include "forebay.h"

/* What the bytes are for, in the order plan and top show them. */
#define FB_STAGE_MAP(X)                                            \
    X(INDEX, "index", "where each unit lies, and the order")       \
    X(CACHE, "cache", "units kept for the next epoch")             \
    X(SLOTS, "slots", "batches in flight and held by the caller")  \
    X(SCRATCH, "scratch", "decoding; chunks of packed shards")     \
    X(WORKERS, "workers", "stacks, read rings, libraries' memory") \
    X(OTHER, "other", "the loader itself")

enum fb_stage {
#define FB_X(name, text, help) FB_STAGE_##name,
    FB_STAGE_MAP(FB_X)
#undef FB_X
    FB_STAGE_COUNT
};
extern const char *const fb_stage_names[FB_STAGE_COUNT];

/* Give back about `bytes` if that can be done at once, without waiting for anybody; called without
 * the budget's lock, from any thread that reserves. Returns what was refunded. */
typedef uint64_t (*fb_give_back_fn)(void *data, uint64_t bytes);
#define FB_GIVERS 16 /* caches attached to one budget, at most */

struct fb_budget {
    atomic_uint references; /* not under the lock: the last to leave destroys that */
    pthread_mutex_t lock; /* a leaf: no other lock is taken while it is held */

    /* Guarded by lock: */
    uint64_t limit;
    uint64_t used; /* reserved and not yet refunded */
    uint64_t peak; /* highest `used` so far */
    uint64_t by_stage[FB_STAGE_COUNT];
    struct {
        fb_give_back_fn fn;
        void *data;
        unsigned busy; /* calls under way; off_pressure waits for them */
    } givers[FB_GIVERS];
    pthread_cond_t idle; /* a giver's `busy` fell to 0 */
};

struct fb_budget_report {
    uint64_t limit, used, peak;
    uint64_t by_stage[FB_STAGE_COUNT];
};

/* A budget with one reference; _free drops one. */
int fb_budget_new(struct fb_budget **out, uint64_t limit, forebay_error *error);
struct fb_budget *fb_budget_share(struct fb_budget *budget);
void fb_budget_free(struct fb_budget *budget);

/* Reserve or fail with OVER_BUDGET, naming `what`, the numbers and memory.budget. */
int fb_budget_reserve(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes,
                      const char *what, forebay_error *error);
/* The same as a question: false if they do not fit, even after the givers gave. */
bool fb_budget_try_reserve(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes);
void fb_budget_refund(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes);
/* May be below what is used: then the givers are asked for the difference at once, and nothing is
 * granted until enough has come back. */
void fb_budget_set_limit(struct fb_budget *budget, uint64_t limit);
void fb_budget_read(struct fb_budget *budget, struct fb_budget_report *report);

/* Register or forget someone who can give back. off waits until no call to it is under way, so it
 * is not called from the giver itself. Whoever reserves or sets a limit holds no lock that a giver
 * takes. */
int fb_budget_on_pressure(struct fb_budget *budget, fb_give_back_fn fn, void *data,
                          forebay_error *error);
void fb_budget_off_pressure(struct fb_budget *budget, fb_give_back_fn fn, void *data);
#endif
