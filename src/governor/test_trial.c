/* What is tried where the trainer waits for data, and what stays. */
#include "governor/test_world.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_grow_to_the_knee_and_not_beyond),
        cmocka_unit_test(a_trial_that_does_not_help_is_taken_back_and_rests),
        cmocka_unit_test(workers_that_stand_in_each_others_way_go),
        cmocka_unit_test(a_machine_with_moods_is_not_believed_at_once),
        cmocka_unit_test(what_the_user_sets_during_a_trial_stays),
        cmocka_unit_test(a_trainer_that_pauses_ends_a_trial_without_a_verdict),
        cmocka_unit_test(no_worker_is_tried_away_that_was_a_gain_or_is_fixed),
        cmocka_unit_test(idle_workers_ask_for_batches_not_for_more_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
