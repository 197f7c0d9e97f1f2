/* Which unit stays: the hit rates are those of the theory, for each policy. */
#include "cache/test_help.h"

/* ---- hit rates ---- */

struct trace {
    uint64_t length, units;
    uint32_t *unit;
    uint64_t *next; /* position of the unit's next use, UINT64_MAX: none */
};

/* `epochs` permutations of units x uses samples; a sample uses one unit. */
static struct trace trace_new(uint64_t units, uint64_t uses, uint64_t epochs)
{
    uint64_t samples = units * uses;
    struct trace trace = { .length = samples * epochs,
                           .units = units,
                           .unit = calloc(samples * epochs, sizeof(uint32_t)),
                           .next = calloc(samples * epochs, sizeof(uint64_t)) };
    uint64_t *last = malloc(units * sizeof(*last));
    struct fb_random random = { .state = 7 };

    for (uint64_t epoch = 0; epoch < epochs; epoch++) {
        uint32_t *unit = trace.unit + epoch * samples;

        for (uint64_t i = 0; i < samples; i++)
            unit[i] = (uint32_t)(i / uses);
        for (uint64_t i = samples - 1; i > 0; i--) {
            uint64_t j = fb_random_below(&random, i + 1);
            uint32_t swap = unit[i];

            unit[i] = unit[j];
            unit[j] = swap;
        }
    }
    for (uint64_t i = 0; i < units; i++)
        last[i] = UINT64_MAX;
    for (uint64_t i = trace.length; i-- > 0;) {
        trace.next[i] = last[trace.unit[i]];
        last[trace.unit[i]] = i;
    }
    free(last);
    return trace;
}

static void trace_free(struct trace *trace)
{
    free(trace->unit);
    free(trace->next);
}

/* Nothing is copied: only what is kept matters. */
static double hit_rate(const struct trace *trace, int policy, double share, uint64_t from,
                       uint64_t to)
{
    uint64_t held = (uint64_t)((double)trace->units * share + 0.5);
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options =
        options_of(budget, policy, trace->units, 4096, limit_for(trace->units, 4096, held));
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report before = { 0 }, after = { 0 };
    struct fb_cache_pin pin;

    for (uint64_t i = 0; i < to; i++) {
        enum fb_cache_answer answer;

        if (i == from)
            fb_cache_read_report(cache, &before);
        answer = fb_cache_find(cache, trace->unit[i], 4096, trace->next[i], false, &pin);
        if (answer == FB_CACHE_FILL)
            fb_cache_publish(cache, &pin);
        if (answer != FB_CACHE_MISS)
            fb_cache_done(cache, &pin);
    }
    fb_cache_read_report(cache, &after);
    assert_int_equal(after.items, held);
    fb_cache_close(cache);
    fb_budget_free(budget);
    after.hits -= before.hits;
    after.misses -= before.misses;
    return fb_cache_hit_rate(&after);
}

static void expect_rate(const char *what, double share, double want, double got)
{
    if (got < want - 0.006 || got > want + 0.006) /* 0.01 is promised */
        fail_msg("%s at c = %.1f: %.4f, expected %.4f", what, share, got, want);
}

static void hit_rates_of_permutation_epochs_are_those_of_the_theory(void **state)
{
    static const struct {
        double share, lru;
    } rows[] = { { 0.1, 0.0052 }, { 0.2, 0.0214 }, { 0.3, 0.0502 },
                 { 0.5, 0.1532 }, { 0.7, 0.3388 }, { 0.9, 0.6699 } };
    uint64_t units = 3000, epochs = 8;
    struct trace trace = trace_new(units, 1, epochs);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double share = rows[i].share;
        uint64_t from = 2 * units, to = (epochs - 2) * units;

        expect_rate("fill", share, share, hit_rate(&trace, FB_POLICY_FILL, share, from, to));
        expect_rate("next-use", share, share,
                    hit_rate(&trace, FB_POLICY_NEXT_USE, share, from, to));
        expect_rate("lru", share, rows[i].lru, hit_rate(&trace, FB_POLICY_LRU, share, from, to));
    }
    trace_free(&trace);
}

/* 21 windows of each file, a file that cannot be sliced. */
static void hit_rates_of_overlapping_sequences_are_those_of_the_theory(void **state)
{
    static const struct {
        double share, next_use, lru;
    } rows[] = { { 0.1, 0.398, 0.095 },
                 { 0.3, 0.653, 0.288 },
                 { 0.5, 0.803, 0.483 },
                 { 0.7, 0.906, 0.683 },
                 { 0.9, 0.977, 0.889 } };
    uint64_t units = 4000, uses = 21, epochs = 4, samples = units * uses;
    struct trace trace = trace_new(units, uses, epochs);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double share = rows[i].share;
        uint64_t from = samples, to = (epochs - 1) * samples;

        expect_rate("fill", share, share, hit_rate(&trace, FB_POLICY_FILL, share, from, to));
        expect_rate("next-use", share, rows[i].next_use,
                    hit_rate(&trace, FB_POLICY_NEXT_USE, share, from, to));
        expect_rate("lru", share, rows[i].lru, hit_rate(&trace, FB_POLICY_LRU, share, from, to));
    }
    trace_free(&trace);
}

/* ---- sizes under fill ---- */

static void small_units_replace_large_ones_where_each_load_costs_alike(void **state)
{
    struct fb_cost alike = { 0 }, by_size = { 0 };
    struct fb_candidate small = { .bytes = 1000 }, large = { .bytes = 9000 };

    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        fb_cost_add(&alike, i * 100, 5000000);
        fb_cost_add(&by_size, i * 100, i * 100 * 7);
    }
    assert_true(fb_policy_fill.replaces(&small, &large, &alike));
    assert_false(fb_policy_fill.replaces(&large, &small, &alike));
    assert_true(fb_policy_fill.worse(&large, &small, &alike));
    assert_false(fb_policy_fill.replaces(&small, &large, &by_size));
    assert_false(fb_policy_fill.replaces(&small, &large, &(struct fb_cost){ 0 }));
}

static void several_jobs_make_next_use_a_fill(void **state)
{
    (void)state;
    assert_ptr_equal(fb_policy_effective(&fb_policy_next_use, FB_POLICY_NEXT_USE, true),
                     &fb_policy_fill);
    assert_ptr_equal(fb_policy_effective(&fb_policy_next_use, FB_POLICY_NEXT_USE, false),
                     &fb_policy_next_use);
    assert_ptr_equal(fb_policy_effective(&fb_policy_lru, FB_POLICY_FILL, false), &fb_policy_fill);
    assert_true(fb_policy_admits(&fb_policy_fill, true, true));
    assert_false(fb_policy_admits(&fb_policy_next_use, true, false));
}

static void every_policy_is_in_the_array_under_its_word(void **state)
{
    (void)state;
    assert_null(fb_policies[FB_POLICY_AUTO]);
    assert_null(fb_policy_named("mru"));
    for (int i = FB_POLICY_AUTO + 1; i < FB_POLICY_COUNT; i++) {
        assert_int_equal(fb_policies[i]->number, i);
        assert_string_equal(fb_policies[i]->name, fb_config_word("memory.policy", i));
        assert_ptr_equal(fb_policy_named(fb_policies[i]->name), fb_policies[i]);
        assert_true(fb_policies[i]->worse && fb_policies[i]->replaces);
        assert_true(fb_policies[i]->once_an_epoch(0.5, false) <= 0.5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_is_in_the_array_under_its_word),
        cmocka_unit_test(hit_rates_of_permutation_epochs_are_those_of_the_theory),
        cmocka_unit_test(hit_rates_of_overlapping_sequences_are_those_of_the_theory),
        cmocka_unit_test(small_units_replace_large_ones_where_each_load_costs_alike),
        cmocka_unit_test(several_jobs_make_next_use_a_fill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
