#include "memory/budget.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/size.h"

const char *const fb_stage_names[FB_STAGE_COUNT] = {
#define FB_X(name, text, help) text,
    FB_STAGE_MAP(FB_X)
#undef FB_X
};

int fb_budget_new(struct fb_budget **out, uint64_t limit, forebay_error *error)
{
    struct fb_budget *budget = calloc(1, sizeof(*budget));

    if (!budget)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a budget");
    budget->limit = limit;
    budget->references = 1;
    /* With default attributes these two cannot fail on Linux. */
    pthread_mutex_init(&budget->lock, NULL);
    pthread_cond_init(&budget->idle, NULL);
    *out = budget;
    return FOREBAY_OK;
}

struct fb_budget *fb_budget_share(struct fb_budget *budget)
{
    pthread_mutex_lock(&budget->lock);
    budget->references++;
    pthread_mutex_unlock(&budget->lock);
    return budget;
}

void fb_budget_free(struct fb_budget *budget)
{
    bool last;

    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    last = --budget->references == 0;
    assert(!last || budget->used == 0);
    pthread_mutex_unlock(&budget->lock);
    if (!last)
        return;
    pthread_cond_destroy(&budget->idle);
    pthread_mutex_destroy(&budget->lock);
    free(budget);
}

static bool take_locked(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes)
{
    if (budget->used > budget->limit || bytes > budget->limit - budget->used)
        return false;
    budget->used += bytes;
    budget->by_stage[stage] += bytes;
    if (budget->used > budget->peak)
        budget->peak = budget->used;
    return true;
}

/* Ask the givers, one after the other and without the lock, until `bytes` fit. */
static bool take_from_givers_locked(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes)
{
    for (size_t i = 0; i < FB_GIVERS; i++) {
        fb_give_back_fn fn = budget->givers[i].fn;
        void *data = budget->givers[i].data;
        uint64_t short_by;

        if (!fn || bytes > budget->limit)
            continue;
        short_by = budget->used + bytes - budget->limit;
        budget->givers[i].busy++;
        pthread_mutex_unlock(&budget->lock);
        fn(data, short_by);
        pthread_mutex_lock(&budget->lock);
        if (--budget->givers[i].busy == 0)
            pthread_cond_broadcast(&budget->idle);
        if (take_locked(budget, stage, bytes))
            return true;
    }
    return false;
}

bool fb_budget_try_reserve(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes)
{
    bool taken;

    pthread_mutex_lock(&budget->lock);
    taken = take_locked(budget, stage, bytes);
    /* A cache never takes from a cache: it would only move the hits. */
    if (!taken && stage != FB_STAGE_CACHE)
        taken = take_from_givers_locked(budget, stage, bytes);
    pthread_mutex_unlock(&budget->lock);
    return taken;
}

int fb_budget_reserve(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes,
                      const char *what, forebay_error *error)
{
    struct fb_budget_report now;
    char want[32], limit[32], used[32];

    if (fb_budget_try_reserve(budget, stage, bytes))
        return FOREBAY_OK;
    fb_budget_read(budget, &now);
    return fb_fail(error, FOREBAY_OVER_BUDGET,
                   "%s needs %s (%llu bytes), but the budget is %s and %s of it is in use; raise "
                   "memory.budget by at least %llu bytes",
                   what, fb_size_text(bytes, want), (unsigned long long)bytes,
                   fb_size_text(now.limit, limit), fb_size_text(now.used, used),
                   (unsigned long long)(bytes + now.used > now.limit
                                            ? bytes + now.used - now.limit
                                            : bytes));
}

void fb_budget_refund(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes)
{
    pthread_mutex_lock(&budget->lock);
    assert(bytes <= budget->by_stage[stage]);
    budget->used -= bytes;
    budget->by_stage[stage] -= bytes;
    pthread_mutex_unlock(&budget->lock);
}

void fb_budget_set_limit(struct fb_budget *budget, uint64_t limit)
{
    pthread_mutex_lock(&budget->lock);
    budget->limit = limit;
    pthread_mutex_unlock(&budget->lock);
}

void fb_budget_read(struct fb_budget *budget, struct fb_budget_report *report)
{
    pthread_mutex_lock(&budget->lock);
    report->limit = budget->limit;
    report->used = budget->used;
    report->peak = budget->peak;
    for (size_t i = 0; i < FB_STAGE_COUNT; i++)
        report->by_stage[i] = budget->by_stage[i];
    pthread_mutex_unlock(&budget->lock);
}

int fb_budget_on_pressure(struct fb_budget *budget, fb_give_back_fn fn, void *data,
                          forebay_error *error)
{
    bool found = false;

    pthread_mutex_lock(&budget->lock);
    for (size_t i = 0; i < FB_GIVERS && !found; i++) {
        if (budget->givers[i].fn)
            continue;
        budget->givers[i].fn = fn;
        budget->givers[i].data = data;
        found = true;
    }
    pthread_mutex_unlock(&budget->lock);
    return found ? FOREBAY_OK
                 : fb_fail(error, FOREBAY_BAD_USE, "more than %d caches share one budget",
                           FB_GIVERS);
}

void fb_budget_off_pressure(struct fb_budget *budget, fb_give_back_fn fn, void *data)
{
    pthread_mutex_lock(&budget->lock);
    for (size_t i = 0; i < FB_GIVERS; i++) {
        if (budget->givers[i].fn != fn || budget->givers[i].data != data)
            continue;
        budget->givers[i].fn = NULL;
        while (budget->givers[i].busy)
            pthread_cond_wait(&budget->idle, &budget->lock);
    }
    pthread_mutex_unlock(&budget->lock);
}
