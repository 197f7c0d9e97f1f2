/* test_world.h -- a quiet loader, and a world in which the settings do what they should. */
#ifndef FB_GOVERNOR_TEST_WORLD_H
#define FB_GOVERNOR_TEST_WORLD_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "governor/replay.h"
#include "memory/host.h"

#define TICK ((uint64_t)100000000)
#define SECOND (10 * TICK)

/* A quiet loader in a group of 512 MiB: half of it is our budget. */
static inline struct fb_view quiet(void)
{
    return (struct fb_view){ .time_ns = 1000 * SECOND,
                             .limit = 256 * FB_MIB,
                             .used = 230 * FB_MIB,
                             .reserved = 80 * FB_MIB,
                             .anon = 120 * FB_MIB,
                             .shared = 150 * FB_MIB,
                             .cache = 150 * FB_MIB,
                             .cache_limit = 150 * FB_MIB,
                             .cache_least = FB_MIB,
                             .cache_most = 150 * FB_MIB,
                             .slot = 8 * FB_MIB,
                             .per_worker = 4 * FB_MIB,
                             .workers = 4,
                             .prefetch = 6,
                             .cpu_share = UINT64_MAX,
                             .cpus = 4,
                             .has_cache = true,
                             .running = 4,
                             .ready = 1,
                             .in_flight = 1,
                             .room = 512 * FB_MIB,
                             .left = 250 * FB_MIB,
                             .swapped_out = FB_UNKNOWN,
                             .delay_ns = FB_UNKNOWN,
                             .stalled = NAN,
                             .in_group = true };
}

static inline void obey(struct fb_view *world, const struct fb_decision *decision)
{
    uint64_t cut;

    switch (decision->action) {
    case FB_ACT_CACHE:
        world->cache_limit = decision->to;
        cut = world->cache > decision->to ? world->cache - decision->to : 0;
        world->cache -= cut;
        world->used -= cut;
        world->shared -= cut;
        world->left += cut;
        break;
    case FB_ACT_PREFETCH:
        world->prefetch = decision->to;
        break;
    case FB_ACT_WORKERS:
        world->workers = decision->to;
        break;
    case FB_ACT_CPU_SHARE:
        world->cpu_share = decision->to;
        break;
    default:
        break;
    }
}
#endif
