/* policy_lru.c -- lru: the unit whose last use is longest ago is evicted. */
#include "cache/policy.h"

#include <math.h>

static bool worse(const struct fb_candidate *a, const struct fb_candidate *b,
                  const struct fb_cost *cost)
{
    (void)cost;
    return a->when < b->when;
}

static bool replaces(const struct fb_candidate *newcomer, const struct fb_candidate *victim,
                     const struct fb_cost *cost)
{
    (void)newcomer;
    (void)victim;
    (void)cost;
    return true;
}

/* A unit used at p of one epoch and q of the next has 1 - p (1 - q) of the others in between.
 * Without shuffling that is all of them, always. */
static double once_an_epoch(double share, bool shuffled)
{
    return shuffled && share > 0 ? share + (1 - share) * log(1 - share) : 0;
}

const struct fb_policy fb_policy_lru = {
    .name = "lru",
    .number = FB_POLICY_LRU,
    .stamp = FB_STAMP_LAST_USE,
    .swaps_equal = true,
    .admits_last = true,
    .worse = worse,
    .replaces = replaces,
    .once_an_epoch = once_an_epoch,
};
