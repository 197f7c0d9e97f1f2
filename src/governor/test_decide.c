/* What the governor decides, from tables and from little worlds that answer it. */
#include "governor/test_world.h"

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
    now->anon += 70 * FB_MIB; /* it was reserved before */
    now->shared += 30 * FB_MIB;
}
static void the_trainer_grows(struct fb_view *now)
{
    now->left = 60 * FB_MIB;
    now->anon += 190 * FB_MIB; /* more than we have reserved */
}
static void one_leaves_what_another_takes(struct fb_view *now)
{
    now->left = 120 * FB_MIB;
    now->shared -= 100 * FB_MIB;
}
static void reserved_beside_others(struct fb_view *now)
{
    falls_fast(now);
    now->used += 20 * FB_MIB; /* nothing of it is there yet */
    now->reserved += 20 * FB_MIB;
    now->limit += 20 * FB_MIB;
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
    now->shared += 60 * FB_MIB;
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
    now->shared += 130 * FB_MIB;
    now->left = 120 * FB_MIB;
}

static const struct row rows[] = {
    { "a quiet loader is left alone", no_change, FB_ACT_NONE, 0, "" },
    { "memory comes first from the cache", little_left, FB_ACT_CACHE, 0, "the control group is near its limit" },
    { "a host is called a host", little_left_on_a_host, FB_ACT_CACHE, 0, "the host is short of memory" },
    { "what will be gone soon counts", falls_fast, FB_ACT_CACHE, 0, "memory is being used up quickly" },
    { "our own growth is no alarm", our_own_growth, FB_ACT_NONE, 0, "" },
    { "the trainer's is, in our own process", the_trainer_grows, FB_ACT_CACHE, 0, "memory is being used up quickly" },
    { "what we give back hides nobody", one_leaves_what_another_takes, FB_ACT_CACHE, 0, "memory is being used up quickly" },
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

/* The cache fills up to its limit, 20 MiB a tick. */
static void fill_cache(struct fb_view *world)
{
    uint64_t more = world->cache_limit > world->cache ? world->cache_limit - world->cache : 0;

    more = fb_min(more, 20 * FB_MIB);
    world->cache += more;
    world->used += more;
    world->shared += more;
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
        cmocka_unit_test(a_trainer_without_a_cpu_gets_one),
        cmocka_unit_test(surplus_batches_become_cache),
        cmocka_unit_test(a_decision_can_be_made_again_from_its_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
