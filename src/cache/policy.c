#include "cache/policy.h"

#include <string.h>

#include "config/config.h"

#define COST_KNOWN 64     /* loads, before their times mean anything */
#define WORTH_A_SWAP 1.25 /* a copy is paid for only by something clearly better */

void fb_cost_add(struct fb_cost *cost, uint64_t bytes, uint64_t ns)
{
    double x = (double)bytes, y = (double)ns;

    cost->count += 1;
    cost->x += x;
    cost->y += y;
    cost->xx += x * x;
    cost->xy += x * y;
}

/* Least squares. A negative part of the cost is noise: it counts as none. */
double fb_cost_density(const struct fb_cost *cost, uint64_t bytes)
{
    double spread = cost->count * cost->xx - cost->x * cost->x, slope, each;

    if (cost->count < COST_KNOWN || spread <= 0 || !bytes)
        return 1;
    slope = (cost->count * cost->xy - cost->x * cost->y) / spread;
    if (slope < 0)
        slope = 0;
    each = (cost->y - slope * cost->x) / cost->count;
    if (each < 0)
        each = 0;
    return each / (double)bytes + slope;
}

bool fb_policy_worse(int policy, const struct fb_candidate *a, const struct fb_candidate *b,
                     const struct fb_cost *cost)
{
    if (policy == FB_POLICY_LRU)
        return a->when < b->when;
    if (policy == FB_POLICY_NEXT_USE)
        return a->when > b->when;
    return fb_cost_density(cost, a->bytes) < fb_cost_density(cost, b->bytes);
}

bool fb_policy_replaces(int policy, const struct fb_candidate *newcomer,
                        const struct fb_candidate *victim, const struct fb_cost *cost)
{
    if (policy == FB_POLICY_LRU)
        return true;
    if (policy == FB_POLICY_NEXT_USE)
        return newcomer->when < victim->when;
    return fb_cost_density(cost, newcomer->bytes) >
           WORTH_A_SWAP * fb_cost_density(cost, victim->bytes);
}

void fb_worst_add(struct fb_worst *worst, const struct fb_candidate *one, int policy,
                  const struct fb_cost *cost)
{
    unsigned at = worst->count, last;

    while (at && fb_policy_worse(policy, one, &worst->list[at - 1], cost))
        at--;
    if (at == FB_POLICY_SPARES + 1)
        return;
    for (unsigned i = 0; i < worst->count; i++)
        if (worst->list[i].unit == one->unit)
            return;
    last = worst->count < FB_POLICY_SPARES + 1 ? worst->count++ : FB_POLICY_SPARES;
    memmove(&worst->list[at + 1], &worst->list[at], (last - at) * sizeof(*one));
    worst->list[at] = *one;
}

void fb_spares_keep(struct fb_spares *spares, const struct fb_worst *worst, unsigned from)
{
    for (unsigned i = 0; i < FB_POLICY_SPARES && from + i < worst->count; i++)
        atomic_store_explicit(&spares->pages[i], worst->list[from + i].page, memory_order_relaxed);
    if (worst->count == FB_POLICY_SPARES + 1)
        atomic_store_explicit(&spares->least_bad, worst->list[FB_POLICY_SPARES].when,
                              memory_order_relaxed);
}

void fb_spares_put_off(struct fb_spares *spares, uint64_t page, uint64_t next_use)
{
    uint64_t at;

    if (next_use <= atomic_load_explicit(&spares->least_bad, memory_order_relaxed))
        return;
    at = atomic_fetch_add_explicit(&spares->put_off, 1, memory_order_relaxed) % FB_POLICY_SPARES;
    atomic_store_explicit(&spares->pages[FB_POLICY_SPARES + at], page, memory_order_relaxed);
}

int fb_policy_effective(int policy, int segment_policy, bool several_jobs)
{
    if (policy != segment_policy || (policy == FB_POLICY_NEXT_USE && several_jobs))
        return FB_POLICY_FILL;
    return policy;
}

bool fb_policy_admits(int policy, bool last_epoch, bool several_jobs)
{
    return policy == FB_POLICY_LRU || !last_epoch || several_jobs;
}
