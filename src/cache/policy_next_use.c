/* policy_next_use.c -- next-use: the unit that is needed last is evicted. A newcomer that is needed
 * later still is not admitted. */
#include "cache/policy.h"

static bool worse(const struct fb_candidate *a, const struct fb_candidate *b,
                  const struct fb_cost *cost)
{
    (void)cost;
    return a->when > b->when;
}

static bool replaces(const struct fb_candidate *newcomer, const struct fb_candidate *victim,
                     const struct fb_cost *cost)
{
    (void)cost;
    return newcomer->when < victim->when;
}

static double once_an_epoch(double share, bool shuffled)
{
    (void)shuffled;
    return share;
}

const struct fb_policy fb_policy_next_use = {
    .name = "next-use",
    .number = FB_POLICY_NEXT_USE,
    .stamp = FB_STAMP_NEXT_USE,
    .swaps_equal = true,
    .one_order = true,
    .worse = worse,
    .replaces = replaces,
    .once_an_epoch = once_an_epoch,
};
