/* What the governor decides, from tables and from little worlds that answer it. */
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
static struct fb_view quiet(void)
{
    return (struct fb_view){ .time_ns = 1000 * SECOND,
                             .limit = 256 * FB_MIB,
                             .used = 230 * FB_MIB,
                             .own = 120 * FB_MIB,
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

static struct fb_past after(const struct fb_view *view)
{
    struct fb_past past = { 0 };

    (void)fb_governor_decide(view, &past);
    return past;
}

/* One look behind a quiet one: what differs, and what must come of it. */
struct row {
    const char *name;
    void (*change)(struct fb_view *now);
    enum fb_action action;
    uint64_t to; /* 0: whatever */
    const char *reason;
};

static void no_change(struct fb_view *now)
{
    (void)now;
}
static void little_left(struct fb_view *now)
{
    now->left = 40 * FB_MIB;
}
static void little_left_on_a_host(struct fb_view *now)
{
    little_left(now);
    now->in_group = false;
}
static void falls_fast(struct fb_view *now)
{
    now->left = 150 * FB_MIB; /* 100 MiB in a tick: at half a second none is left */
}
static void our_own_growth(struct fb_view *now)
{
    now->left = 150 * FB_MIB;
    now->own += 100 * FB_MIB; /* it was reserved before */
}
static void reserved_beside_others(struct fb_view *now)
{
    falls_fast(now);
    now->used += 20 * FB_MIB; /* nothing of it is there yet */
    now->cache += 20 * FB_MIB;
}
static void cache_is_fixed(struct fb_view *now)
{
    little_left(now);
    now->cache_fixed = true;
}
static void cache_is_empty(struct fb_view *now)
{
    little_left(now);
    now->cache = now->cache_least;
}
static void one_batch_left(struct fb_view *now)
{
    cache_is_empty(now);
    now->prefetch = 1;
}
static void one_worker_left(struct fb_view *now)
{
    one_batch_left(now);
    now->workers = 1;
}
static void all_is_fixed(struct fb_view *now)
{
    cache_is_fixed(now);
    now->prefetch_fixed = now->workers_fixed = true;
}
static void budget_was_lowered(struct fb_view *now)
{
    now->limit = 200 * FB_MIB;
}
static void host_swaps(struct fb_view *now)
{
    now->swapped_out = 10000;
}
static void tasks_stall(struct fb_view *now)
{
    our_own_growth(now); /* so that only the stalls speak */
    now->own += 60 * FB_MIB;
    now->stalled = 25;
    now->left = 90 * FB_MIB;
}
static void stalls_without_shortage(struct fb_view *now)
{
    now->stalled = 25;
}
static void nothing_is_known(struct fb_view *now)
{
    now->left = now->room = FB_UNKNOWN;
}
static void an_alarm(struct fb_view *now)
{
    now->alarmed = true;
}
static void memory_to_spare(struct fb_view *now)
{
    now->limit = FB_GIB;
    now->cache_most = FB_GIB;
}
static void memory_to_spare_but_fixed(struct fb_view *now)
{
    memory_to_spare(now);
    now->cache_fixed = true;
}
static void budget_but_no_host(struct fb_view *now)
{
    memory_to_spare(now);
    now->used += 130 * FB_MIB;
    now->own += 130 * FB_MIB;
    now->left = 120 * FB_MIB;
}

static const struct row rows[] = {
    { "a quiet loader is left alone", no_change, FB_ACT_NONE, 0, "" },
    { "memory comes first from the cache", little_left, FB_ACT_CACHE, 0, "the control group is near its limit" },
    { "a host is called a host", little_left_on_a_host, FB_ACT_CACHE, 0, "the host is short of memory" },
    { "what will be gone soon counts", falls_fast, FB_ACT_CACHE, 0, "memory is being used up quickly" },
    { "our own growth is no alarm", our_own_growth, FB_ACT_NONE, 0, "" },
    { "what is reserved hides nobody", reserved_beside_others, FB_ACT_CACHE, 0, "memory is being used up quickly" },
    { "what the user fixed is passed over", cache_is_fixed, FB_ACT_PREFETCH, 4, "the control group is near its limit" },
    { "then from batches in flight", cache_is_empty, FB_ACT_PREFETCH, 4, "the control group is near its limit" },
    { "then from workers", one_batch_left, FB_ACT_WORKERS, 3, "the control group is near its limit" },
    { "with nothing left to give it is silent", one_worker_left, FB_ACT_NONE, 0, "" },
    { "where the user fixed all it warns", all_is_fixed, FB_ACT_WARN, 0, "the control group is near its limit" },
    { "a lowered budget is met", budget_was_lowered, FB_ACT_CACHE, 120 * FB_MIB, "the budget was lowered below what is in use" },
    { "swapping is pressure", host_swaps, FB_ACT_CACHE, 0, "the host is swapping" },
    { "stalls with little left are pressure", tasks_stall, FB_ACT_CACHE, 0, "tasks stand still for want of memory" },
    { "stalls with much left are somebody else's", stalls_without_shortage, FB_ACT_NONE, 0, "" },
    { "an alarm takes a quarter of the cache", an_alarm, FB_ACT_CACHE, 150 * FB_MIB * 3 / 4, "an alarm asks for memory" },
    { "what is not known moves nothing", nothing_is_known, FB_ACT_NONE, 0, "" },
    { "memory to spare goes to the cache", memory_to_spare, FB_ACT_CACHE, 0, "the cache is full and there is memory to spare" },
    { "but not to one the user fixed", memory_to_spare_but_fixed, FB_ACT_NONE, 0, "" },
    { "the host has a say in growing", budget_but_no_host, FB_ACT_NONE, 0, "" },
};

static void each_view_has_its_decision(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_view now = quiet();
        struct fb_past past;
        struct fb_decision decision;

        now.swapped_out = 1000;
        past = after(&now);
        now.time_ns += TICK;
        rows[i].change(&now);
        decision = fb_governor_decide(&now, &past);
        if (decision.action != rows[i].action || strcmp(decision.reason, rows[i].reason) ||
            (rows[i].to && decision.to != rows[i].to))
            fail_msg("%s: %s to %llu, '%s'", rows[i].name, fb_action_names[decision.action],
                     (unsigned long long)decision.to, decision.reason);
        if (decision.action != FB_ACT_NONE && decision.action != FB_ACT_WARN)
            assert_true(decision.figures[0] && decision.from != decision.to);
    }
}

/* A world in which the settings do what they should. */
static void obey(struct fb_view *world, const struct fb_decision *decision)
{
    uint64_t cut;

    switch (decision->action) {
    case FB_ACT_CACHE:
        world->cache_limit = decision->to;
        cut = world->cache > decision->to ? world->cache - decision->to : 0;
        world->cache -= cut;
        world->used -= cut;
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

/* The cache fills up to its limit, 20 MiB a tick. */
static void fill_cache(struct fb_view *world)
{
    uint64_t more = world->cache_limit > world->cache ? world->cache_limit - world->cache : 0;

    more = fb_min(more, 20 * FB_MIB);
    world->cache += more;
    world->used += more;
    world->left -= fb_min(more, world->left);
}

static void a_neighbour_at_100_mib_per_second_never_meets_the_limit(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };
    uint64_t neighbour = 0, least = world.left, lowest = world.cache_limit;
    unsigned back = 0;

    (void)state;
    world.cache_most = world.limit;
    for (unsigned tick = 0; tick < 1200; tick++) {
        struct fb_decision decision;

        if (tick >= 10 && neighbour < 307 * FB_MIB && tick < 300) { /* 60 %, then it stays */
            neighbour += 10 * FB_MIB;
            world.left -= fb_min(world.left, 10 * FB_MIB);
        }
        if (tick == 300) {
            world.left += neighbour;
            lowest = world.cache_limit;
        }
        fill_cache(&world);
        decision = fb_governor_decide(&world, &past);
        obey(&world, &decision);
        least = fb_min(least, world.left);
        if (tick > 300 && world.cache_limit > lowest && !back)
            back = tick;
        world.time_ns += TICK;
    }
    assert_true(least > 16 * FB_MIB);
    assert_true(lowest < 110 * FB_MIB);
    assert_true(back >= 600); /* a minute after the last pressure, not before */
    assert_true(world.cache_limit > 140 * FB_MIB);
}

/* Throughput grows with workers up to `knee`; the trainer takes all there is. */
static void tick_reading(struct fb_view *world, uint64_t knee)
{
    double rate = 100e6 * (double)fb_min(world->workers, knee) / 10;

    world->time_ns += TICK;
    world->delivered_ns = world->time_ns;
    world->bytes += (uint64_t)rate;
    world->batches += 2;
    world->wait_ns += TICK / 2;
    world->running = world->workers;
}

static void workers_grow_to_the_knee_and_not_beyond(void **state)
{
    (void)state;
    for (uint64_t knee = 1; knee <= 16; knee *= 2) {
        struct fb_view world = quiet();
        struct fb_past past = { 0 };
        uint64_t most = 0;

        world.limit = 4 * FB_GIB;
        world.room = 64 * FB_GIB;
        world.left = 32 * FB_GIB;
        world.workers = 2;
        world.prefetch_fixed = true;
        for (unsigned tick = 0; tick < 100; tick++) { /* ten seconds */
            struct fb_decision decision = fb_governor_decide(&world, &past);

            obey(&world, &decision);
            most = fb_max(most, world.workers);
            tick_reading(&world, knee);
        }
        if (past.trial) /* one that is under way shows nothing yet */
            world.workers = past.trial_old;
        assert_true((double)world.workers >= 0.5 * (double)knee);
        assert_true(world.workers <= fb_max(2, knee) + knee / 4);
        assert_true(most <= 2 * fb_max(2, knee));
    }
}

static void a_trial_that_does_not_help_is_taken_back_and_rests(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };
    unsigned ups = 0, downs = 0, less = 0, back = 0;

    (void)state;
    world.limit = 4 * FB_GIB;
    world.left = world.room = 64 * FB_GIB;
    world.prefetch_fixed = true;
    for (unsigned tick = 0; tick < 600; tick++) {
        struct fb_decision decision = fb_governor_decide(&world, &past);

        ups += strstr(decision.reason, "trying more") != NULL;
        downs += strstr(decision.reason, "taking it away again") != NULL;
        less += strstr(decision.reason, "trying fewer") != NULL;
        back += strstr(decision.reason, "putting them back") != NULL;
        obey(&world, &decision);
        tick_reading(&world, 4);
    }
    assert_int_equal(world.workers, 4);
    assert_int_equal(ups, downs);
    assert_int_equal(less, ups); /* each is followed by one the other way, which is slower */
    assert_int_equal(back, less);
    assert_in_range(ups, 2, 4); /* at 0, 10 and 30 seconds, and perhaps begun at 60 */
}

/* Each worker beyond `knee` costs a tenth. */
static void tick_crowding(struct fb_view *world, uint64_t knee)
{
    double over = world->workers > knee ? (double)(world->workers - knee) : 0;
    uint64_t bytes = world->bytes;

    tick_reading(world, knee);
    world->bytes = bytes + (uint64_t)((double)(world->bytes - bytes) * (1 - over / 10));
}

static void workers_that_stand_in_each_others_way_go(void **state)
{
    static const struct {
        uint64_t begin, knee, end;
    } crowds[] = { { 2, 1, 1 }, { 2, 2, 2 }, { 4, 2, 2 }, { 4, 4, 4 }, { 1, 1, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(crowds) / sizeof(crowds[0]); i++) {
        struct fb_view world = quiet();
        struct fb_past past = { 0 };

        world.limit = 4 * FB_GIB;
        world.left = world.room = 64 * FB_GIB;
        world.workers = crowds[i].begin;
        world.prefetch_fixed = true;
        for (unsigned tick = 0; tick < 100; tick++) { /* ten seconds */
            struct fb_decision decision = fb_governor_decide(&world, &past);

            obey(&world, &decision);
            tick_crowding(&world, crowds[i].knee);
        }
        if (world.workers != crowds[i].end)
            fail_msg("%llu workers where %llu are best", (unsigned long long)world.workers,
                     (unsigned long long)crowds[i].end);
    }
}

/* A machine that others use: what is delivered in a tick is anything between a third and all, for
 * tenths of a second or for whole seconds. */
static void a_machine_with_moods_is_not_believed_at_once(void **state)
{
    unsigned wrong = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct fb_view world = quiet();
        struct fb_past past = { 0 };
        uint64_t random = seed * 0x9e3779b97f4a7c15u;
        double mood = 1;

        world.limit = 4 * FB_GIB;
        world.left = world.room = 64 * FB_GIB;
        world.workers = 4;
        world.prefetch_fixed = true;
        for (unsigned tick = 0; tick < 100; tick++) {
            struct fb_decision decision = fb_governor_decide(&world, &past);
            uint64_t bytes = world.bytes;

            obey(&world, &decision);
            tick_crowding(&world, 4);
            random = random * 6364136223846793005u + 1442695040888963407u;
            if ((random >> 33) % 3 == 0)
                mood = 1.0 / 3 + (double)((random >> 40) % 1000) / 1500;
            world.bytes = bytes + (uint64_t)((double)(world.bytes - bytes) * mood);
        }
        if (past.trial)
            world.workers = past.trial_old;
        wrong += world.workers < 3 || world.workers > 5; /* more than a quarter from the best */
    }
    assert_in_range(wrong, 0, 10);
}

static void what_the_user_sets_during_a_trial_stays(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };

    (void)state;
    world.limit = 4 * FB_GIB;
    world.left = world.room = 64 * FB_GIB;
    world.prefetch_fixed = true;
    while (!past.trial) {
        struct fb_decision decision = fb_governor_decide(&world, &past);

        obey(&world, &decision);
        tick_reading(&world, 8);
    }
    world.workers = 7;
    world.workers_fixed = true;
    for (unsigned tick = 0; tick < 100; tick++) {
        assert_int_equal(fb_governor_decide(&world, &past).action, FB_ACT_NONE);
        tick_reading(&world, 8);
    }
    assert_int_equal(past.trial, FB_ACT_NONE);
}

static void a_trainer_that_pauses_ends_a_trial_without_a_verdict(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };
    struct fb_decision decision;
    uint64_t failures;

    (void)state;
    world.limit = 4 * FB_GIB;
    world.left = world.room = 64 * FB_GIB;
    world.prefetch_fixed = true;
    while (!past.trial) {
        decision = fb_governor_decide(&world, &past);
        obey(&world, &decision);
        tick_reading(&world, 8);
    }
    assert_int_equal(world.workers, 5);
    failures = past.tried;
    for (unsigned tick = 0; tick < 60; tick++) { /* it saves its state, say */
        decision = fb_governor_decide(&world, &past);
        obey(&world, &decision);
        world.time_ns += TICK;
    }
    assert_int_equal(world.workers, 4);
    assert_int_equal(past.trial, FB_ACT_NONE);
    assert_int_equal(past.tried, failures); /* it may be tried again at once */
}

static void no_worker_is_tried_away_that_was_a_gain_or_is_fixed(void **state)
{
    (void)state;
    for (int fixed = 0; fixed < 2; fixed++) {
        struct fb_view world = quiet();
        struct fb_past past = { 0 };
        unsigned less = 0;

        world.limit = 4 * FB_GIB;
        world.left = world.room = 64 * FB_GIB;
        world.workers = 2;
        world.workers_fixed = fixed;
        for (unsigned tick = 0; tick < 60; tick++) {
            struct fb_decision decision = fb_governor_decide(&world, &past);

            less += strstr(decision.reason, "trying fewer") != NULL;
            obey(&world, &decision);
            tick_reading(&world, 3);
        }
        assert_int_equal(less, 0);
        assert_int_equal(past.trial ? past.trial_old : world.workers, fixed ? 2 : 3);
    }
}

static void idle_workers_ask_for_batches_not_for_more_workers(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };
    struct fb_decision decision = { .action = FB_ACT_NONE };

    (void)state;
    world.limit = 4 * FB_GIB;
    world.left = world.room = 64 * FB_GIB;
    for (unsigned tick = 0; tick < 20 && !decision.action; tick++) {
        decision = fb_governor_decide(&world, &past);
        tick_reading(&world, 4);
        world.running = 1;
    }
    assert_int_equal(decision.action, FB_ACT_PREFETCH);
    assert_int_equal(decision.to, 7);
}

static void a_trainer_without_a_cpu_gets_one(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };

    (void)state;
    world.delay_ns = 0;
    for (unsigned tick = 0; tick < 30; tick++) {
        struct fb_decision decision = fb_governor_decide(&world, &past);

        if (decision.action)
            assert_int_equal(decision.action, FB_ACT_CPU_SHARE);
        obey(&world, &decision);
        world.time_ns += TICK;
        world.batches += 2;
        world.bytes += 1000;
        world.delay_ns += TICK / 2;
    }
    assert_true(world.cpu_share < 4);
}

static void surplus_batches_become_cache(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };

    (void)state;
    world.prefetch = 16;
    world.ready = 12;
    world.in_flight = 4;
    world.cache_most = 10 * FB_GIB;
    for (unsigned tick = 0; tick < 100; tick++) {
        struct fb_decision decision = fb_governor_decide(&world, &past);

        obey(&world, &decision);
        world.time_ns += TICK;
        world.batches += 2;
        world.bytes += 1000;
    }
    assert_true(world.prefetch < 16 && world.prefetch >= 5);
}

static void a_decision_can_be_made_again_from_its_line(void **state)
{
    struct fb_view world = quiet();
    struct fb_past past = { 0 };
    char line[FB_REPLAY_LINE_BYTES], *to;
    unsigned written = 0;

    (void)state;
    world.stalled = NAN;
    for (unsigned tick = 0; tick < 40; tick++) {
        struct fb_past before = past;
        struct fb_decision decision = fb_governor_decide(&world, &past), again;

        if (decision.action) {
            assert_true(fb_replay_write(&world, &before, &decision, line));
            assert_int_equal(fb_replay_line(line, strlen(line), &again), FB_REPLAY_SAME);
            assert_string_equal(again.figures, decision.figures);
            to = strstr(line, "\"action\":\"");
            assert_non_null(to);
            to[strlen("\"action\":\"")] = 'X';
            assert_int_equal(fb_replay_line(line, strlen(line), NULL), FB_REPLAY_DIFFERS);
            written++;
        }
        obey(&world, &decision);
        world.time_ns += TICK;
        world.left -= fb_min(world.left, 10 * FB_MIB);
    }
    assert_true(written > 3);
    assert_int_equal(fb_replay_line("{\"kind\":\"snapshot\"}", 19, NULL), FB_REPLAY_OTHER);
    assert_int_equal(fb_replay_line("{", 1, NULL), FB_REPLAY_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_view_has_its_decision),
        cmocka_unit_test(a_neighbour_at_100_mib_per_second_never_meets_the_limit),
        cmocka_unit_test(workers_grow_to_the_knee_and_not_beyond),
        cmocka_unit_test(a_trial_that_does_not_help_is_taken_back_and_rests),
        cmocka_unit_test(workers_that_stand_in_each_others_way_go),
        cmocka_unit_test(a_machine_with_moods_is_not_believed_at_once),
        cmocka_unit_test(what_the_user_sets_during_a_trial_stays),
        cmocka_unit_test(a_trainer_that_pauses_ends_a_trial_without_a_verdict),
        cmocka_unit_test(no_worker_is_tried_away_that_was_a_gain_or_is_fixed),
        cmocka_unit_test(idle_workers_ask_for_batches_not_for_more_workers),
        cmocka_unit_test(a_trainer_without_a_cpu_gets_one),
        cmocka_unit_test(surplus_batches_become_cache),
        cmocka_unit_test(a_decision_can_be_made_again_from_its_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
