/* A cache of this process alone: what it answers, what it keeps, what it costs. */
#include "cache/test_help.h"

static void a_unit_is_filled_once_and_then_found(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 10, 5000, FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report report;

    (void)state;
    fb_cache_read_report(cache, &report);
    assert_true(fb_cache_hit_rate(&report) != fb_cache_hit_rate(&report)); /* NAN: no use yet */
    for (uint64_t unit = 0; unit < 10; unit++)
        assert_int_equal(use(cache, unit, 5000, 0), FB_CACHE_FILL);
    for (uint64_t unit = 0; unit < 10; unit++)
        assert_int_equal(use(cache, unit, 5000, 0), FB_CACHE_HIT);
    assert_int_equal(use(cache, 10, 5000, 0), FB_CACHE_MISS); /* there is no such unit */
    assert_int_equal(use(cache, 3, 4999, 0), FB_CACHE_MISS);  /* not the one that is kept */
    fb_cache_read_report(cache, &report);
    assert_int_equal(report.items, 10);
    assert_int_equal(report.hits, 10);
    assert_int_equal(report.misses, 12);
    assert_true(report.bytes <= report.limit_bytes && report.bytes >= 50000);
    fb_cache_close(cache);
    fb_budget_free(budget); /* asserts that all was refunded */
}

static void parts_of_a_unit_can_be_read_and_nothing_behind_it(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 4, 0, FB_MIB);
    struct fb_cache_pin pin;
    struct fb_cache *cache;
    unsigned char part[5000];

    (void)state;
    options.unit_bytes_median = 20000;
    options.unit_bytes_max = 100000;
    cache = open_of(&options);
    assert_int_equal(fb_cache_find(cache, 2, 90001, 0, true, &pin), FB_CACHE_FILL);
    fill_unit(cache, &pin);
    for (uint64_t at = 0; at + sizeof(part) <= 90001; at += 4321) {
        assert_int_equal(fb_cache_read(cache, &pin, at, part, sizeof(part), NULL), 0);
        assert_int_equal(part[0], byte_of(2, at));
        assert_int_equal(part[4999], byte_of(2, at + 4999));
    }
    assert_int_equal(fb_cache_read(cache, &pin, 90000, part, 2, NULL), FOREBAY_BAD_USE);
    assert_int_equal(fb_cache_read(cache, &pin, UINT64_MAX, part, 2, NULL), FOREBAY_BAD_USE);
    fb_cache_done(cache, &pin);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void an_abandoned_fill_leaves_nothing(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 4, 4096, FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_pin pin, other;

    (void)state;
    assert_int_equal(fb_cache_find(cache, 1, 4096, 0, true, &pin), FB_CACHE_FILL);
    assert_int_equal(fb_cache_find(cache, 1, 4096, 0, false, &other), FB_CACHE_MISS);
    fb_cache_abandon(cache, &pin);
    assert_int_equal(fb_pages_used(&cache->segment), 0);
    assert_int_equal(use(cache, 1, 4096, 0), FB_CACHE_FILL);
    assert_int_equal(use(cache, 1, 4096, 0), FB_CACHE_HIT);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void a_full_cache_keeps_what_came_first_under_fill(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options =
        options_of(budget, FB_POLICY_FILL, 100, 4096, limit_for(100, 4096, 40));
    struct fb_cache *cache = open_of(&options);

    (void)state;
    for (uint64_t unit = 0; unit < 100; unit++)
        assert_int_equal(use(cache, unit, 4096, 0), unit < 40 ? FB_CACHE_FILL : FB_CACHE_MISS);
    for (uint64_t unit = 0; unit < 100; unit++)
        assert_int_equal(use(cache, unit, 4096, 0), unit < 40 ? FB_CACHE_HIT : FB_CACHE_MISS);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void next_use_does_not_admit_what_would_go_before_its_use(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options =
        options_of(budget, FB_POLICY_NEXT_USE, 100, 4096, limit_for(100, 4096, 2));
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report report;

    (void)state;
    assert_int_equal(use(cache, 1, 4096, 10), FB_CACHE_FILL);
    assert_int_equal(use(cache, 2, 4096, 20), FB_CACHE_FILL);
    assert_int_equal(use(cache, 3, 4096, 30), FB_CACHE_MISS);
    assert_int_equal(use(cache, 4, 4096, 15), FB_CACHE_FILL); /* 2 goes */
    assert_int_equal(use(cache, 1, 4096, 99), FB_CACHE_HIT);  /* and is now needed last */
    assert_int_equal(use(cache, 5, 4096, 98), FB_CACHE_FILL);
    assert_int_equal(use(cache, 4, 4096, 97), FB_CACHE_HIT);
    assert_int_equal(use(cache, 1, 4096, UINT64_MAX), FB_CACHE_MISS);
    fb_cache_read_report(cache, &report);
    assert_int_equal(report.evictions, 2);
    assert_int_equal(report.bypasses, 2);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void a_pinned_unit_is_never_evicted(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options =
        options_of(budget, FB_POLICY_LRU, 100, 4096, limit_for(100, 4096, 3));
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_pin pin;

    (void)state;
    assert_int_equal(use(cache, 0, 4096, 0), FB_CACHE_FILL);
    assert_int_equal(fb_cache_find(cache, 0, 4096, 0, true, &pin), FB_CACHE_HIT);
    for (uint64_t unit = 1; unit < 50; unit++)
        use(cache, unit, 4096, 0);
    check_unit(cache, &pin);
    assert_int_equal(use(cache, 0, 4096, 0), FB_CACHE_HIT);
    fb_cache_done(cache, &pin);
    for (uint64_t unit = 50; unit < 60; unit++)
        use(cache, unit, 4096, 0);
    assert_int_equal(use(cache, 0, 4096, 0), FB_CACHE_FILL); /* long gone */
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void the_last_epoch_admits_nothing_but_lru_does(void **state)
{
    static const int policies[] = { FB_POLICY_FILL, FB_POLICY_NEXT_USE, FB_POLICY_LRU };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct fb_budget *budget = budget_of(MUCH);
        struct fb_cache_options options = options_of(budget, policies[i], 9, 4096, FB_MIB);
        struct fb_cache *cache = open_of(&options);

        use(cache, 0, 4096, 1);
        fb_cache_last_epoch(cache, true);
        assert_int_equal(use(cache, 0, 4096, 1), FB_CACHE_HIT);
        assert_int_equal(use(cache, 1, 4096, 1),
                         policies[i] == FB_POLICY_LRU ? FB_CACHE_FILL : FB_CACHE_MISS);
        fb_cache_close(cache);
        fb_budget_free(budget);
    }
}

static void a_steady_cache_keeps_what_it_has(void **state)
{
    static const int policies[] = { FB_POLICY_NEXT_USE, FB_POLICY_LRU };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fb_budget *budget = budget_of(MUCH);
        struct fb_cache_options options = options_of(budget, policies[i], 100, 4096,
                                                     limit_for(100, 4096, 10));
        struct fb_cache *cache;

        options.steady = true;
        cache = open_of(&options);
        for (uint64_t n = 0; n < 300; n++) /* the later ones are needed sooner, and were used last */
            assert_int_equal(use(cache, n % 100, 4096, 1000 - n),
                             n % 100 >= 10 ? FB_CACHE_MISS
                             : n >= 100    ? FB_CACHE_HIT
                                           : FB_CACHE_FILL);
        fb_cache_close(cache);
        fb_budget_free(budget);
    }
}

/* ---- memory ---- */

static void the_ledger_never_holds_more_than_the_limit(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t limit = 3 * FB_MIB + 12345;
    struct fb_cache_options options = options_of(budget, FB_POLICY_LRU, 1000, 0, limit);
    struct fb_cache_report report;
    struct fb_cache *cache;

    (void)state;
    options.unit_bytes_median = 70000;
    options.unit_bytes_max = 300000;
    cache = open_of(&options);
    for (uint64_t i = 0; i < 600; i++) {
        uint64_t unit = i * 7919 % 1000;

        use(cache, unit, 1 + unit * 299, 0);
        fb_cache_read_report(cache, &report);
        assert_true(in_ledger(budget) <= limit && report.bytes <= in_ledger(budget));
    }
    assert_true(report.bytes > limit - 400000); /* and it was used */
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void the_cache_yields_to_others_at_once(void **state)
{
    struct fb_budget *budget = budget_of(4 * FB_MIB);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 1000, 4096, 4 * FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report report;

    (void)state;
    for (uint64_t unit = 0; unit < 1000; unit++)
        use(cache, unit, 4096, 0);
    assert_true(in_ledger(budget) > 3 * FB_MIB);
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_SLOTS, 3 * FB_MIB));
    fb_cache_read_report(cache, &report);
    assert_true(report.bytes <= FB_MIB && in_ledger(budget) <= FB_MIB);
    for (uint64_t unit = 0; unit < 1000; unit++)
        use(cache, unit, 4096, 0);
    assert_true(in_ledger(budget) <= FB_MIB);
    fb_budget_refund(budget, FB_STAGE_SLOTS, 3 * FB_MIB);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void what_is_pinned_stays_in_the_ledger_until_it_is_done(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t limit = limit_for(1000, 4096, 100), small = limit_for(1000, 4096, 10);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 1000, 4096, limit);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_pin pin;

    (void)state;
    for (uint64_t unit = 0; unit < 100; unit++)
        use(cache, unit, 4096, 0);
    assert_int_equal(fb_cache_find(cache, 99, 4096, 0, true, &pin), FB_CACHE_HIT);
    assert_true(fb_cache_set_limit(cache, small) > small);
    assert_true(in_ledger(budget) > small && in_ledger(budget) <= small + 8192);
    check_unit(cache, &pin);
    fb_cache_done(cache, &pin);
    assert_true(in_ledger(budget) <= small);
    assert_int_equal(use(cache, 99, 4096, 0), FB_CACHE_MISS);
    assert_int_equal(use(cache, 5, 4096, 0), FB_CACHE_HIT);
    assert_int_equal(fb_cache_set_limit(cache, limit) & ~4095ull, limit & ~4095ull);
    assert_int_equal(use(cache, 99, 4096, 0), FB_CACHE_FILL);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void a_limit_too_small_for_one_unit_is_an_error_in_words(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 1000, 40960, 50000);
    struct fb_cache *cache;
    forebay_error error = { 0 };

    (void)state;
    assert_int_equal(fb_cache_open(&cache, &options, &error), FOREBAY_OVER_BUDGET);
    assert_non_null(strstr(error.message, "memory.cache"));
    fb_budget_free(budget);
}

/* ---- threads ---- */

enum sizes { EQUAL, CHAINS };

struct crowd {
    struct fb_cache *cache;
    uint64_t units, seed, uses;
    enum sizes sizes;
    _Atomic uint64_t *fills;
    atomic_bool wrong, stop;
};

static uint64_t size_of(enum sizes sizes, uint64_t unit)
{
    return sizes == EQUAL ? 5000 : 1000 + unit * 61 % 20000;
}

static void *use_many(void *data)
{
    struct crowd *crowd = data;
    struct fb_random random = { .state = (uint64_t)(uintptr_t)&random ^ crowd->seed };
    unsigned char bytes[21000];
    struct fb_cache_pin pin;

    for (uint64_t i = 0; i < crowd->uses && !atomic_load(&crowd->stop); i++) {
        uint64_t unit = fb_random_below(&random, crowd->units), size = size_of(crowd->sizes, unit);
        enum fb_cache_answer answer = fb_cache_find(crowd->cache, unit, size, i, true, &pin);

        if (answer == FB_CACHE_MISS)
            continue;
        if (answer == FB_CACHE_FILL) {
            memset(bytes, (int)(unit * 31 + 1), size);
            fb_cache_write(crowd->cache, &pin, 0, bytes, size, NULL);
            atomic_fetch_add(&crowd->fills[unit], 1);
            if (fb_random_below(&random, 16) == 0) {
                fb_cache_abandon(crowd->cache, &pin);
                continue;
            }
            fb_cache_publish(crowd->cache, &pin);
        }
        if (fb_cache_read(crowd->cache, &pin, 0, bytes, size, NULL))
            atomic_store(&crowd->wrong, true);
        for (uint64_t j = 0; j < size; j++)
            if (bytes[j] != (unsigned char)(unit * 31 + 1))
                atomic_store(&crowd->wrong, true);
        fb_cache_done(crowd->cache, &pin);
    }
    return NULL;
}

/* At once, but for what a thread that was stopped in the middle of giving back has in hand. */
static void expect_ledger_within(struct crowd *crowd, struct fb_budget *budget, uint64_t most)
{
    uint64_t deadline = fb_now_ns() + 1000000000u;

    while (in_ledger(budget) > most && fb_now_ns() < deadline)
        fb_limit_settle(crowd->cache);
    if (in_ledger(budget) > most)
        fail_msg("%llu bytes in the ledger, %llu are allowed", (unsigned long long)in_ledger(budget),
                 (unsigned long long)most);
}

static void crowd_run(int policy, enum sizes sizes, unsigned resizes)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, policy, 300, sizes ? 0 : 5000, FB_MIB);
    struct crowd crowd = { .units = 300,
                           .uses = resizes ? UINT64_MAX : 3000,
                           .sizes = sizes,
                           .fills = calloc(300, sizeof(*crowd.fills)) };
    pthread_t threads[4];

    options.unit_bytes_median = 10000;
    options.unit_bytes_max = 21000;
    crowd.cache = open_of(&options);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_many, &crowd), 0);
    for (unsigned i = 0; i < resizes; i++) {
        uint64_t limit = FB_MIB / 8 + (uint64_t)i * 104729 % (2 * FB_MIB);

        fb_cache_set_limit(crowd.cache, limit);
        expect_ledger_within(&crowd, budget, limit + 8 * 21000 + 65536);
    }
    atomic_store(&crowd.stop, resizes > 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_false(atomic_load(&crowd.wrong));
    fb_limit_settle(crowd.cache);
    assert_true(fb_cache_set_limit(crowd.cache, FB_MIB / 8) <= FB_MIB / 8);
    assert_true(in_ledger(budget) <= FB_MIB / 8);
    fb_cache_close(crowd.cache);
    free((void *)(uintptr_t)crowd.fills);
    fb_budget_free(budget);
}

static void many_threads_see_only_whole_units(void **state)
{
    static const int policies[] = { FB_POLICY_FILL, FB_POLICY_NEXT_USE, FB_POLICY_LRU };

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int sizes = EQUAL; sizes <= CHAINS; sizes++)
            crowd_run(policies[i], (enum sizes)sizes, 0);
}

static void the_limit_may_change_at_any_time(void **state)
{
    unsigned resizes = getenv("FOREBAY_SOAK") ? 1000 : 100;

    (void)state;
    crowd_run(FB_POLICY_LRU, EQUAL, resizes);
    crowd_run(FB_POLICY_FILL, CHAINS, resizes);
    crowd_run(FB_POLICY_NEXT_USE, CHAINS, resizes);
}

/* ---- waiting, forking, garbage ---- */

static void *fill_later(void *data)
{
    struct crowd *crowd = data;
    struct fb_cache_pin pin = { .unit = 7, .bytes = 5000 };

    while (!atomic_load(&crowd->stop)) { /* until somebody waits for it */
        struct fb_cache_report report;

        fb_cache_read_report(crowd->cache, &report);
        atomic_store(&crowd->stop, report.waits > 0);
    }
    pin.entry = crowd->seed & UINT32_MAX;
    pin.page = crowd->seed >> 32;
    fill_unit(crowd->cache, &pin);
    fb_cache_done(crowd->cache, &pin);
    return NULL;
}

static void who_waits_gets_what_the_other_has_read(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 9, 5000, FB_MIB);
    struct crowd crowd = { .cache = open_of(&options) };
    struct fb_cache_pin pin, mine;
    pthread_t thread;

    (void)state;
    assert_int_equal(fb_cache_find(crowd.cache, 7, 5000, 0, true, &pin), FB_CACHE_FILL);
    crowd.seed = (pin.entry & UINT32_MAX) | pin.page << 32;
    assert_int_equal(pthread_create(&thread, NULL, fill_later, &crowd), 0);
    assert_int_equal(fb_cache_find(crowd.cache, 7, 5000, 0, true, &mine), FB_CACHE_HIT);
    check_unit(crowd.cache, &mine);
    fb_cache_done(crowd.cache, &mine);
    pthread_join(thread, NULL);
    fb_cache_close(crowd.cache);
    fb_budget_free(budget);
}

static void a_child_finds_nothing_and_breaks_nothing(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 9, 5000, FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_pin pin;
    int status;
    pid_t child;

    (void)state;
    use(cache, 1, 5000, 0);
    child = fork();
    if (child == 0) {
        bool good = fb_cache_find(cache, 1, 5000, 0, true, &pin) == FB_CACHE_MISS &&
                    fb_cache_set_limit(cache, 0) == 0;

        fb_cache_close(cache);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(use(cache, 1, 5000, 0), FB_CACHE_HIT);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void a_damaged_chain_is_an_error_not_a_crash(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 4, 0, FB_MIB);
    struct fb_cache *cache;
    struct fb_cache_pin pin;
    forebay_error error;
    char bytes[30000];

    (void)state;
    options.unit_bytes_median = options.unit_bytes_max = 30000;
    cache = open_of(&options);
    assert_int_equal(fb_cache_find(cache, 1, 30000, 0, true, &pin), FB_CACHE_FILL);
    fill_unit(cache, &pin);
    atomic_store(&cache->segment.links[pin.page], 0xdeadbeef);
    assert_int_equal(fb_cache_read(cache, &pin, 0, bytes, 30000, &error), FOREBAY_BAD_DATA);
    fb_cache_done(cache, &pin);
    assert_true(fb_unit_evict(cache, 1)); /* finds its pages without the chain */
    assert_int_equal(fb_pages_used(&cache->segment), 0);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

/* Printed, never judged: the machine may be busy. */
static void what_a_lookup_costs(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_LRU, 1000, 4096, 8 * FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_pin pin;
    uint64_t began;

    (void)state;
    for (uint64_t unit = 0; unit < 1000; unit++)
        use(cache, unit, 4096, 0);
    began = fb_now_ns();
    for (uint64_t i = 0; i < 1000000; i++) {
        assert_int_equal(fb_cache_find(cache, i % 1000, 4096, 0, true, &pin), FB_CACHE_HIT);
        fb_cache_done(cache, &pin);
    }
    print_message("find + done: %.0f ns\n", (double)(fb_now_ns() - began) / 1e6);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_is_filled_once_and_then_found),
        cmocka_unit_test(parts_of_a_unit_can_be_read_and_nothing_behind_it),
        cmocka_unit_test(an_abandoned_fill_leaves_nothing),
        cmocka_unit_test(a_full_cache_keeps_what_came_first_under_fill),
        cmocka_unit_test(next_use_does_not_admit_what_would_go_before_its_use),
        cmocka_unit_test(a_pinned_unit_is_never_evicted),
        cmocka_unit_test(the_last_epoch_admits_nothing_but_lru_does),
        cmocka_unit_test(a_steady_cache_keeps_what_it_has),
        cmocka_unit_test(the_ledger_never_holds_more_than_the_limit),
        cmocka_unit_test(the_cache_yields_to_others_at_once),
        cmocka_unit_test(what_is_pinned_stays_in_the_ledger_until_it_is_done),
        cmocka_unit_test(a_limit_too_small_for_one_unit_is_an_error_in_words),
        cmocka_unit_test(many_threads_see_only_whole_units),
        cmocka_unit_test(the_limit_may_change_at_any_time),
        cmocka_unit_test(who_waits_gets_what_the_other_has_read),
        cmocka_unit_test(a_child_finds_nothing_and_breaks_nothing),
        cmocka_unit_test(a_damaged_chain_is_an_error_not_a_crash),
        cmocka_unit_test(what_a_lookup_costs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
