/* How a budget is divided: every row is a budget and what it must become. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "plan/plan.h"

#define SLOT (100 * FB_MIB)
#define HEADER FB_MIB
#define WORKER (10 * FB_MIB)
#define FIXED (5 * FB_MIB)
#define FLOOR (FIXED + 3 * SLOT + WORKER)

static const struct fb_plan_needs usual = { .fixed = FIXED,
                                            .slot = SLOT,
                                            .slot_header = HEADER,
                                            .fixed_layout = true,
                                            .per_worker = WORKER,
                                            .cache_wanted = 10 * FB_GIB };

static void config_make(struct fb_config *config, const char *settings[], size_t count)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_log silent = { NULL, NULL, NULL };
    forebay_error error;

    options.settings = settings;
    options.setting_count = count;
    if (fb_config_read(config, &options, &silent, &error))
        fail_msg("%s", error.message);
}

static int plan_with(struct fb_plan *plan, const struct fb_plan_needs *needs, uint64_t budget,
                     const char *workers, const char *prefetch, const char *cache,
                     forebay_error *error)
{
    char texts[3][64];
    const char *settings[] = { "source.kind=bin", "source.path=x", texts[0], texts[1], texts[2] };
    struct fb_config config;
    int status;

    snprintf(texts[0], 64, "workers=%s", workers);
    snprintf(texts[1], 64, "prefetch=%s", prefetch);
    snprintf(texts[2], 64, "memory.cache=%s", cache);
    config_make(&config, settings, 5);
    status = fb_plan(plan, needs, &config, budget, 4, error);
    fb_config_release(&config);
    return status;
}

/* Four processors. Slots of the floor are reserved without their headers. */
static const struct row {
    const char *what;
    uint64_t budget;
    const char *workers, *prefetch, *cache;
    uint64_t slots_floor, got_workers, got_prefetch, got_cache;
} rows[] = {
    { "the floor itself: one worker, one batch under way, two held", FLOOR, "auto", "auto", "auto",
      3 * (SLOT - HEADER), 1, 2, 0 },
    { "below the floor the caller cannot hold two", FLOOR - 1, "auto", "auto", "auto",
      2 * (SLOT - HEADER), 4, 5, SLOT - 1 - 3 * WORKER },
    { "one batch and one worker are the least", FIXED + SLOT + WORKER, "auto", "auto", "off",
      SLOT - HEADER, 1, 2, 0 },
    { "workers come before batches", FLOOR + 3 * WORKER, "auto", "auto", "off",
      3 * (SLOT - HEADER), 4, 5, 0 },
    { "no more workers than fit", FLOOR + WORKER, "8", "auto", "off", 3 * (SLOT - HEADER), 2, 3,
      0 },
    { "no worker: the caller works itself", FLOOR, "0", "1", "off", 3 * (SLOT - HEADER), 0, 1, 0 },
    { "what batches in flight do not need is cache", FLOOR + 3 * WORKER + 4 * SLOT + 7, "auto",
      "auto", "auto", 3 * (SLOT - HEADER), 4, 5, 7 },
    { "no cache larger than the data", FLOOR + 3 * WORKER + 20 * FB_GIB, "auto", "1", "auto",
      3 * (SLOT - HEADER), 4, 1, 10 * FB_GIB },
    { "off means none", FLOOR + 20 * FB_GIB, "auto", "auto", "off", 3 * (SLOT - HEADER), 4, 5, 0 },
    { "a named cache comes before more workers and batches", FLOOR + 300 * FB_MIB, "auto", "auto",
      "300MiB", 3 * (SLOT - HEADER), 1, 2, 300 * FB_MIB },
    { "a named prefetch is taken at its word", FLOOR, "1", "40", "off", 3 * (SLOT - HEADER), 1, 40,
      0 },
};

static void every_budget_is_divided_as_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct fb_plan plan = { 0 };
        forebay_error error;

        if (plan_with(&plan, &usual, row->budget, row->workers, row->prefetch, row->cache, &error))
            fail_msg("%s: %s", row->what, error.message);
        print_message("%s\n", row->what);
        assert_int_equal(plan.budget, row->budget);
        assert_int_equal(plan.floor, FLOOR);
        assert_int_equal(plan.slots_floor, row->slots_floor);
        assert_int_equal(plan.workers, row->got_workers);
        assert_int_equal(plan.prefetch, row->got_prefetch);
        assert_int_equal(plan.cache, row->got_cache);
    }
}

static uint64_t prefetch_of(uint64_t slot, const char *batch_size)
{
    struct fb_plan_needs needs = usual;
    char text[64];
    const char *settings[] = { "source.kind=bin", "source.path=x", "memory.cache=off", text };
    struct fb_config config;
    struct fb_plan plan;

    needs.slot = slot;
    needs.slot_header = 0;
    snprintf(text, sizeof(text), "batch.size=%s", batch_size);
    config_make(&config, settings, 4);
    assert_int_equal(fb_plan(&plan, &needs, &config, 64 * FB_GIB, 4, NULL), 0);
    fb_config_release(&config);
    return plan.prefetch;
}

static void workers_share_a_large_batch_and_small_ones_may_be_many(void **state)
{
    (void)state;
    assert_int_equal(prefetch_of(100 * FB_MIB, "1"), 5);  /* one for each of four, and one */
    assert_int_equal(prefetch_of(100 * FB_MIB, "2"), 3);  /* two at each of two, and one */
    assert_int_equal(prefetch_of(100 * FB_MIB, "16"), 2); /* all at one, and one */
    assert_int_equal(prefetch_of(4 * FB_MIB, "1024"), 4); /* four of them stay in the cache */
    assert_int_equal(prefetch_of(48 * FB_KIB, "512"), 16);
}

/* All that is promised at once must fit, whatever the numbers. */
static void no_division_promises_more_than_the_budget(void **state)
{
    (void)state;
    for (uint64_t budget = FIXED + SLOT + WORKER; budget < FIXED + 40 * SLOT;
         budget += 7 * FB_MIB + 13) {
        struct fb_plan plan;
        forebay_error error;
        uint64_t slots;

        assert_int_equal(plan_with(&plan, &usual, budget, "auto", "auto", "auto", &error), 0);
        slots = plan.slots_floor / (SLOT - HEADER) * SLOT;
        assert_true(FIXED + plan.workers * WORKER + slots + plan.cache <= budget);
        assert_true(plan.workers >= 1);
        assert_true(plan.prefetch >= 1);
    }
}

static void what_cannot_hold_one_batch_is_an_error_with_the_numbers(void **state)
{
    struct fb_plan plan = { .budget = 77 };
    forebay_error error;
    char least[32];

    (void)state;
    assert_int_equal(plan_with(&plan, &usual, FIXED + SLOT + WORKER - 1, "auto", "auto", "off",
                               &error), FOREBAY_OVER_BUDGET);
    snprintf(least, sizeof(least), "%llu", (unsigned long long)(FIXED + SLOT + WORKER));
    assert_non_null(strstr(error.message, least));
    assert_non_null(strstr(error.message, "batch.size"));
    assert_string_equal(error.place, "memory.budget");
    assert_int_equal(plan.budget, 77); /* nothing was written */
}

static void a_cache_that_is_too_large_says_which_budget_would_do(void **state)
{
    struct fb_plan plan;
    forebay_error error;
    char enough[32];

    (void)state;
    assert_int_equal(plan_with(&plan, &usual, FLOOR + 10 * FB_MIB, "auto", "auto", "60MiB", &error),
                     FOREBAY_OVER_BUDGET);
    snprintf(enough, sizeof(enough), "%llu", (unsigned long long)(FLOOR + 60 * FB_MIB));
    assert_non_null(strstr(error.message, enough));
    assert_string_equal(error.place, "--set memory.cache");
    assert_int_equal(plan_with(&plan, &usual, FLOOR + 60 * FB_MIB, "auto", "auto", "60MiB", &error),
                     FOREBAY_OK);
}

static void a_named_cache_is_shared_by_the_ranks(void **state)
{
    struct fb_plan_needs needs = usual;
    struct fb_plan plan;
    forebay_error error;
    char enough[32];

    (void)state;
    needs.ranks = 4;
    assert_int_equal(plan_with(&plan, &needs, FB_GIB, "auto", "auto", "100MiB", &error), 0);
    assert_int_equal(plan.cache, 25 * FB_MIB);
    assert_int_equal(plan_with(&plan, &needs, FLOOR + 10 * FB_MIB, "auto", "auto", "100MiB", &error),
                     FOREBAY_OVER_BUDGET);
    snprintf(enough, sizeof(enough), "%llu", (unsigned long long)(4 * (FLOOR + 25 * FB_MIB)));
    assert_non_null(strstr(error.message, enough)); /* the setting is of all of them, too */
}

/* Sizes that only come with the batches: nothing can be said at open but of the workers. */
static void batches_of_unknown_size_are_no_error_at_open(void **state)
{
    struct fb_plan_needs needs = usual;
    struct fb_plan plan;
    forebay_error error;

    (void)state;
    needs.slot = needs.slot_header = 0;
    needs.fixed_layout = false;
    assert_int_equal(plan_with(&plan, &needs, FIXED + WORKER, "auto", "auto", "auto", &error), 0);
    assert_int_equal(plan.workers, 1);
    assert_int_equal(plan.slots_floor, 0);
    needs = usual;
    needs.fixed_layout = false; /* known at most: the largest may never come */
    assert_int_equal(plan_with(&plan, &needs, FIXED + WORKER, "auto", "auto", "auto", &error), 0);
    assert_int_equal(plan.slots_floor, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_budget_is_divided_as_the_table_says),
        cmocka_unit_test(workers_share_a_large_batch_and_small_ones_may_be_many),
        cmocka_unit_test(no_division_promises_more_than_the_budget),
        cmocka_unit_test(what_cannot_hold_one_batch_is_an_error_with_the_numbers),
        cmocka_unit_test(a_cache_that_is_too_large_says_which_budget_would_do),
        cmocka_unit_test(a_named_cache_is_shared_by_the_ranks),
        cmocka_unit_test(batches_of_unknown_size_are_no_error_at_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
