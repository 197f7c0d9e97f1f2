#include "memory/budget.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
    atomic_init(&budget->references, 1);
    /* With default attributes these two cannot fail on Linux. */
    pthread_mutex_init(&budget->lock, NULL);
    pthread_cond_init(&budget->idle, NULL);
    *out = budget;
    return FOREBAY_OK;
}

struct fb_budget *fb_budget_share(struct fb_budget *budget)
{
    atomic_fetch_add(&budget->references, 1);
    return budget;
}

void fb_budget_free(struct fb_budget *budget)
{
    if (!budget || atomic_fetch_sub(&budget->references, 1) > 1)
        return;
    assert(budget->used == 0); /* nobody else is left to look at it */
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

/* What must come back before `bytes` fit; neither sum can be trusted not to wrap. */
static uint64_t short_by_locked(const struct fb_budget *budget, uint64_t bytes)
{
    uint64_t room = budget->limit > budget->used ? budget->limit - budget->used : 0;
    uint64_t over = budget->used > budget->limit ? budget->used - budget->limit : 0;
    uint64_t missing;

    return fb_add(bytes > room ? bytes - room : 0, over, &missing) ? missing : UINT64_MAX;
}

/* Ask giver `i` for what is missing, without the lock. */
static void ask_giver_locked(struct fb_budget *budget, size_t i, uint64_t bytes)
{
    fb_give_back_fn fn = budget->givers[i].fn;
    void *data = budget->givers[i].data;
    uint64_t missing = short_by_locked(budget, bytes);

    if (!fn || !missing)
        return;
    budget->givers[i].busy++;
    pthread_mutex_unlock(&budget->lock);
    fn(data, missing);
    pthread_mutex_lock(&budget->lock);
    if (--budget->givers[i].busy == 0)
        pthread_cond_broadcast(&budget->idle);
}

/* Ask the givers, one after the other, until `bytes` fit. */
static bool take_from_givers_locked(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes)
{
    bool taken = false;

    /* What is larger than the limit will never fit: nobody has to give for that. */
    for (size_t i = 0; i < FB_GIVERS && !taken && bytes <= budget->limit; i++) {
        ask_giver_locked(budget, i, bytes);
        taken = take_locked(budget, stage, bytes);
    }
    return taken;
}

static void report_locked(const struct fb_budget *budget, struct fb_budget_report *report)
{
    report->limit = budget->limit;
    report->used = budget->used;
    report->peak = budget->peak;
    memcpy(report->by_stage, budget->by_stage, sizeof(report->by_stage));
}

/* What is missing, and the report of the same moment, are written if it does not fit. */
static bool reserve(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes,
                    struct fb_budget_report *report, uint64_t *missing)
{
    bool taken;

    pthread_mutex_lock(&budget->lock);
    taken = take_locked(budget, stage, bytes);
    /* A cache never takes from a cache: it would only move the hits. */
    if (!taken && stage != FB_STAGE_CACHE)
        taken = take_from_givers_locked(budget, stage, bytes);
    if (!taken) {
        report_locked(budget, report);
        *missing = short_by_locked(budget, bytes);
    }
    pthread_mutex_unlock(&budget->lock);
    return taken;
}

bool fb_budget_try_reserve(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes)
{
    struct fb_budget_report now;
    uint64_t missing;

    return reserve(budget, stage, bytes, &now, &missing);
}

int fb_budget_reserve(struct fb_budget *budget, enum fb_stage stage, uint64_t bytes,
                      const char *what, forebay_error *error)
{
    struct fb_budget_report now;
    char want[32], limit[32], used[32];
    uint64_t missing;

    if (reserve(budget, stage, bytes, &now, &missing))
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_OVER_BUDGET,
                   "%s needs %s (%llu bytes), but the budget is %s and %s of it is in use; raise "
                   "memory.budget by at least %llu bytes",
                   what, fb_size_text(bytes, want), (unsigned long long)bytes,
                   fb_size_text(now.limit, limit), fb_size_text(now.used, used),
                   (unsigned long long)missing);
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
    /* Nobody may ever reserve again, so nobody else would ask them. */
    for (size_t i = 0; i < FB_GIVERS; i++)
        ask_giver_locked(budget, i, 0);
    pthread_mutex_unlock(&budget->lock);
}

void fb_budget_read(struct fb_budget *budget, struct fb_budget_report *report)
{
    pthread_mutex_lock(&budget->lock);
    report_locked(budget, report);
    pthread_mutex_unlock(&budget->lock);
}

int fb_budget_on_pressure(struct fb_budget *budget, fb_give_back_fn fn, void *data,
                          forebay_error *error)
{
    bool found = false;

    pthread_mutex_lock(&budget->lock);
    for (size_t i = 0; i < FB_GIVERS && !found; i++) {
        /* Also not where off_pressure still waits: it would wait for our calls, too. */
        if (budget->givers[i].fn || budget->givers[i].busy)
            continue;
        budget->givers[i].fn = fn;
        budget->givers[i].data = data;
        found = true;
    }
    pthread_mutex_unlock(&budget->lock);
    return found
               ? FOREBAY_OK
               : fb_fail(error, FOREBAY_BAD_USE, "more than %d caches share one budget", FB_GIVERS);
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
