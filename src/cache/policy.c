/* policy.c -- the array of policies, and what all of them need to find the worst unit. */
#include "cache/policy.h"

#include <string.h>

#define ENTRY(upper, lower, word) [FB_POLICY_##upper] = &fb_policy_##lower,
const struct fb_policy *const fb_policies[FB_POLICY_COUNT] = { FB_POLICY_MAP(ENTRY) };

const struct fb_policy *fb_policy_named(const char *word)
{
    for (int i = FB_POLICY_AUTO + 1; i < FB_POLICY_COUNT; i++)
        if (!strcmp(fb_policies[i]->name, word))
            return fb_policies[i];
    return NULL;
}

const struct fb_policy *fb_policy_effective(const struct fb_policy *policy, uint64_t number,
                                            bool several_jobs)
{
    bool fits = (uint64_t)policy->number == number && !(policy->one_order && several_jobs);

    return fits ? policy : &fb_policy_fill;
}

bool fb_policy_admits(const struct fb_policy *policy, bool last_epoch, bool several_jobs)
{
    return policy->admits_last || !last_epoch || several_jobs;
}

void fb_worst_add(struct fb_worst *worst, const struct fb_candidate *one,
                  const struct fb_policy *policy, const struct fb_cost *cost)
{
    unsigned at = worst->count, last;

    while (at && policy->worse(one, &worst->list[at - 1], cost))
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
