/* policy_fill.c -- fill: the units that came first stay. Where each unit is used once an epoch no
 * policy hits more. Of unequal units, one that saves clearly more time per byte may take the place
 * of another. */
#include "cache/policy.h"

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

static bool worse(const struct fb_candidate *a, const struct fb_candidate *b,
                  const struct fb_cost *cost)
{
    return fb_cost_density(cost, a->bytes) < fb_cost_density(cost, b->bytes);
}

static bool replaces(const struct fb_candidate *newcomer, const struct fb_candidate *victim,
                     const struct fb_cost *cost)
{
    return fb_cost_density(cost, newcomer->bytes) >
           WORTH_A_SWAP * fb_cost_density(cost, victim->bytes);
}

static double once_an_epoch(double share, bool shuffled)
{
    (void)shuffled;
    return share;
}

const struct fb_policy fb_policy_fill = {
    .name = "fill",
    .number = FB_POLICY_FILL,
    .costs = true,
    .worse = worse,
    .replaces = replaces,
    .once_an_epoch = once_an_epoch,
};
