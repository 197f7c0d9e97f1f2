/* The ledger: what fits, what does not, who gives back, and all of it from many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mix.h"
#include "memory/budget.h"

#define LIMIT 1000

static struct fb_budget *budget_new(uint64_t limit)
{
    struct fb_budget *budget;

    assert_int_equal(fb_budget_new(&budget, limit, NULL), FOREBAY_OK);
    return budget;
}

static struct fb_budget_report report_of(struct fb_budget *budget)
{
    struct fb_budget_report report;

    fb_budget_read(budget, &report);
    return report;
}

static void bytes_are_granted_up_to_the_limit_and_not_one_more(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);

    (void)state;
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 999));
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_INDEX, 1));
    assert_false(fb_budget_try_reserve(budget, FB_STAGE_INDEX, 1));
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_INDEX, 0));
    assert_int_equal(report_of(budget).used, LIMIT);
    assert_int_equal(report_of(budget).by_stage[FB_STAGE_SLOTS], 999);
    assert_int_equal(report_of(budget).by_stage[FB_STAGE_INDEX], 1);
    fb_budget_refund(budget, FB_STAGE_SLOTS, 999);
    fb_budget_refund(budget, FB_STAGE_INDEX, 1);
    assert_int_equal(report_of(budget).used, 0);
    assert_int_equal(report_of(budget).peak, LIMIT);
    fb_budget_free(budget);
}

static void sums_near_the_end_of_numbers_do_not_wrap(void **state)
{
    static const uint64_t limits[] = { 0, 1, LIMIT, INT64_MAX, UINT64_MAX };

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        struct fb_budget *budget = budget_new(limits[i]);
        forebay_error error;

        assert_true(fb_budget_try_reserve(budget, FB_STAGE_OTHER, limits[i]));
        assert_false(fb_budget_try_reserve(budget, FB_STAGE_OTHER, UINT64_MAX));
        assert_int_equal(fb_budget_reserve(budget, FB_STAGE_OTHER, UINT64_MAX, "it", &error),
                         FOREBAY_OVER_BUDGET);
        assert_non_null(strstr(error.message, "at least 18446744073709551615 bytes"));
        assert_true(report_of(budget).used == limits[i]);
        fb_budget_refund(budget, FB_STAGE_OTHER, limits[i]);
        fb_budget_free(budget);
    }
}

static void a_refusal_names_the_numbers_and_the_setting(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    forebay_error error;

    (void)state;
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_CACHE, 300));
    assert_int_equal(fb_budget_reserve(budget, FB_STAGE_SLOTS, 750, "a batch", &error),
                     FOREBAY_OVER_BUDGET);
    assert_string_equal(error.message,
                        "a batch needs 750 B (750 bytes), but the budget is 1000 B and 300 B of it "
                        "is in use; raise memory.budget by at least 50 bytes");
    fb_budget_refund(budget, FB_STAGE_CACHE, 300);
    fb_budget_free(budget);
}

static void a_lowered_limit_lets_nobody_in_until_used_fits(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    forebay_error error;

    (void)state;
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 800));
    fb_budget_set_limit(budget, 500);
    assert_int_equal(report_of(budget).used, 800);
    assert_false(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 0));
    assert_int_equal(fb_budget_reserve(budget, FB_STAGE_SLOTS, 1, "x", &error),
                     FOREBAY_OVER_BUDGET);
    assert_non_null(strstr(error.message, "at least 301 bytes"));
    fb_budget_refund(budget, FB_STAGE_SLOTS, 400);
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 100));
    assert_false(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 1));
    assert_int_equal(report_of(budget).peak, 800);
    fb_budget_refund(budget, FB_STAGE_SLOTS, 500);
    fb_budget_free(budget);
}

static void a_shared_budget_lives_as_long_as_its_last_user(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT), *second = fb_budget_share(budget);

    (void)state;
    fb_budget_free(budget);
    assert_true(fb_budget_try_reserve(second, FB_STAGE_OTHER, 1));
    fb_budget_refund(second, FB_STAGE_OTHER, 1);
    fb_budget_free(second);
    fb_budget_free(NULL);
}

/* A cache that gives back what it is asked for, `at_once` at most. */
struct giver {
    struct fb_budget *budget;
    atomic_uint_fast64_t held;
    uint64_t at_once;
    atomic_uint calls;
    uint64_t last_asked;
};

static uint64_t give(void *data, uint64_t bytes)
{
    struct giver *giver = data;
    uint64_t most = bytes < giver->at_once ? bytes : giver->at_once;
    uint64_t held = atomic_load(&giver->held), given;

    atomic_fetch_add(&giver->calls, 1);
    giver->last_asked = bytes;
    do
        given = held < most ? held : most;
    while (!atomic_compare_exchange_weak(&giver->held, &held, held - given));
    fb_budget_refund(giver->budget, FB_STAGE_CACHE, given);
    return given;
}

static void giver_fill(struct giver *giver, uint64_t bytes)
{
    assert_true(fb_budget_try_reserve(giver->budget, FB_STAGE_CACHE, bytes));
    atomic_fetch_add(&giver->held, bytes);
}

static void givers_are_asked_in_order_until_it_fits(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    struct giver first = { .budget = budget, .at_once = 100 };
    struct giver second = { .budget = budget, .at_once = 1000 };
    struct giver third = { .budget = budget, .at_once = 1000 };

    (void)state;
    assert_int_equal(fb_budget_on_pressure(budget, give, &first, NULL), FOREBAY_OK);
    assert_int_equal(fb_budget_on_pressure(budget, give, &second, NULL), FOREBAY_OK);
    assert_int_equal(fb_budget_on_pressure(budget, give, &third, NULL), FOREBAY_OK);
    giver_fill(&first, 400);
    giver_fill(&second, 400);
    giver_fill(&third, 200);
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 300));
    assert_int_equal(first.last_asked, 300);
    assert_int_equal(second.last_asked, 200); /* what the first did not give */
    assert_int_equal(third.calls, 0);
    assert_int_equal(report_of(budget).used, LIMIT);
    assert_int_equal(report_of(budget).peak, LIMIT);
    fb_budget_off_pressure(budget, give, &first);
    fb_budget_off_pressure(budget, give, &second);
    fb_budget_off_pressure(budget, give, &third);
    fb_budget_refund(budget, FB_STAGE_SLOTS, 300);
    fb_budget_refund(budget, FB_STAGE_CACHE, first.held + second.held + third.held);
    fb_budget_free(budget);
}

static void nobody_gives_for_a_cache_or_for_what_can_never_fit(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    struct giver giver = { .budget = budget, .at_once = 1000 };

    (void)state;
    assert_int_equal(fb_budget_on_pressure(budget, give, &giver, NULL), FOREBAY_OK);
    giver_fill(&giver, 1000);
    assert_false(fb_budget_try_reserve(budget, FB_STAGE_CACHE, 10));
    assert_false(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 1001));
    assert_int_equal(giver.calls, 0);
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 1000));
    assert_int_equal(giver.held, 0);
    fb_budget_off_pressure(budget, give, &giver);
    fb_budget_refund(budget, FB_STAGE_SLOTS, 1000);
    fb_budget_free(budget);
}

static void a_lowered_limit_makes_the_givers_give_at_once(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    struct giver giver = { .budget = budget, .at_once = 1000 };

    (void)state;
    assert_int_equal(fb_budget_on_pressure(budget, give, &giver, NULL), FOREBAY_OK);
    giver_fill(&giver, 700);
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 300));
    fb_budget_set_limit(budget, 600);
    assert_int_equal(report_of(budget).used, 600);
    assert_int_equal(giver.held, 300);
    fb_budget_set_limit(budget, 2000); /* raised: nobody is asked */
    assert_int_equal(giver.calls, 1);
    fb_budget_off_pressure(budget, give, &giver);
    fb_budget_refund(budget, FB_STAGE_SLOTS, 300);
    fb_budget_refund(budget, FB_STAGE_CACHE, 300);
    fb_budget_free(budget);
}

static void there_is_room_for_so_many_givers_and_again_after_one_left(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    struct giver givers[FB_GIVERS + 1] = { 0 };
    forebay_error error;

    (void)state;
    for (int i = 0; i < FB_GIVERS; i++)
        assert_int_equal(fb_budget_on_pressure(budget, give, &givers[i], &error), FOREBAY_OK);
    assert_int_equal(fb_budget_on_pressure(budget, give, &givers[FB_GIVERS], &error),
                     FOREBAY_BAD_USE);
    fb_budget_off_pressure(budget, give, &givers[3]);
    assert_int_equal(fb_budget_on_pressure(budget, give, &givers[FB_GIVERS], &error), FOREBAY_OK);
    fb_budget_free(budget);
}

/* A giver that is in the middle of giving until it is let go. */
struct slow_giver {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool entered, may_leave, left;
};

static uint64_t give_slowly(void *data, uint64_t bytes)
{
    struct slow_giver *giver = data;

    (void)bytes;
    pthread_mutex_lock(&giver->lock);
    giver->entered = true;
    pthread_cond_broadcast(&giver->changed);
    while (!giver->may_leave)
        pthread_cond_wait(&giver->changed, &giver->lock);
    giver->left = true;
    pthread_mutex_unlock(&giver->lock);
    return 0;
}

static void *ask_for_too_much(void *data)
{
    assert_false(fb_budget_try_reserve(data, FB_STAGE_SLOTS, 500));
    return NULL;
}

static void *let_go(void *data)
{
    struct slow_giver *giver = data;

    pthread_mutex_lock(&giver->lock);
    giver->may_leave = true;
    pthread_cond_broadcast(&giver->changed);
    pthread_mutex_unlock(&giver->lock);
    return NULL;
}

static void who_leaves_waits_for_the_call_under_way(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    struct slow_giver slow = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0 };
    pthread_t asker, other;

    (void)state;
    assert_int_equal(fb_budget_on_pressure(budget, give_slowly, &slow, NULL), FOREBAY_OK);
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 600));
    pthread_create(&asker, NULL, ask_for_too_much, budget);
    pthread_mutex_lock(&slow.lock);
    while (!slow.entered)
        pthread_cond_wait(&slow.changed, &slow.lock);
    pthread_mutex_unlock(&slow.lock);
    /* While one gives, the budget goes on working for the others. */
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_OTHER, 1));
    fb_budget_refund(budget, FB_STAGE_OTHER, 1);
    pthread_create(&other, NULL, let_go, &slow);
    fb_budget_off_pressure(budget, give_slowly, &slow);
    pthread_mutex_lock(&slow.lock);
    assert_true(slow.left);
    pthread_mutex_unlock(&slow.lock);
    pthread_join(asker, NULL);
    pthread_join(other, NULL);
    fb_budget_refund(budget, FB_STAGE_SLOTS, 600);
    fb_budget_free(budget);
}

struct hammer {
    struct fb_budget *budget;
    uint64_t seed;
};

/* Reserves and refunds at random, comes and goes as a giver, moves the limit. */
static void *hammer_run(void *data)
{
    struct hammer *hammer = data;
    struct fb_random random = { hammer->seed };
    struct giver giver = { .budget = hammer->budget, .at_once = 50 };

    for (int i = 0; i < 2000; i++) {
        enum fb_stage stage = i % 2 ? FB_STAGE_SLOTS : FB_STAGE_SCRATCH;
        uint64_t bytes = fb_random_below(&random, 400);

        if (i % 20 == 0) {
            assert_int_equal(fb_budget_on_pressure(hammer->budget, give, &giver, NULL), 0);
            if (fb_budget_try_reserve(hammer->budget, FB_STAGE_CACHE, 100))
                atomic_fetch_add(&giver.held, 100);
        }
        if (fb_budget_try_reserve(hammer->budget, stage, bytes))
            fb_budget_refund(hammer->budget, stage, bytes);
        if (i % 50 == 0)
            fb_budget_set_limit(hammer->budget, 500 + fb_random_below(&random, 500));
        if (i % 20 == 19) {
            fb_budget_off_pressure(hammer->budget, give, &giver);
            fb_budget_refund(hammer->budget, FB_STAGE_CACHE, atomic_exchange(&giver.held, 0));
        }
    }
    fb_budget_free(hammer->budget);
    return NULL;
}

static void many_threads_end_where_they_began(void **state)
{
    struct fb_budget *budget = budget_new(LIMIT);
    struct hammer hammers[4];
    pthread_t threads[4];

    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        hammers[i] = (struct hammer){ fb_budget_share(budget), i };
        pthread_create(&threads[i], NULL, hammer_run, &hammers[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(report_of(budget).used, 0);
    assert_true(report_of(budget).peak <= LIMIT);
    fb_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_granted_up_to_the_limit_and_not_one_more),
        cmocka_unit_test(sums_near_the_end_of_numbers_do_not_wrap),
        cmocka_unit_test(a_refusal_names_the_numbers_and_the_setting),
        cmocka_unit_test(a_lowered_limit_lets_nobody_in_until_used_fits),
        cmocka_unit_test(a_shared_budget_lives_as_long_as_its_last_user),
        cmocka_unit_test(givers_are_asked_in_order_until_it_fits),
        cmocka_unit_test(nobody_gives_for_a_cache_or_for_what_can_never_fit),
        cmocka_unit_test(a_lowered_limit_makes_the_givers_give_at_once),
        cmocka_unit_test(there_is_room_for_so_many_givers_and_again_after_one_left),
        cmocka_unit_test(who_leaves_waits_for_the_call_under_way),
        cmocka_unit_test(many_threads_end_where_they_began),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
