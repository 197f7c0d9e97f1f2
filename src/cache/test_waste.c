/* What a cache takes beside the bytes it keeps. */
#include "cache/test_help.h"

/* What a hundred thousand units more add to the index, each; with `tables` also those of their
 * pages, if each has one. */
static double index_of(uint64_t unit_bytes, uint64_t median, bool shared, bool tables)
{
    struct fb_cache_options options = { .policy = &fb_policy_fill,
                                        .unit_count = 100000,
                                        .unit_bytes = unit_bytes,
                                        .unit_bytes_median = median,
                                        .unit_bytes_max = 2 * median,
                                        .limit_bytes = (uint64_t)1 << 40,
                                        .pins_max = 16 };
    struct fb_geometry geometry;
    struct fb_layout few, many;

    assert_int_equal(fb_geometry_choose(&geometry, &options, shared, NULL), 0);
    assert_true(fb_geometry_layout(&geometry, &few));
    options.unit_count *= 2;
    assert_int_equal(fb_geometry_choose(&geometry, &options, shared, NULL), 0);
    assert_true(fb_geometry_layout(&geometry, &many));
    return (double)(many.fixed_bytes - few.fixed_bytes) / 100000 +
           (tables ? (double)many.table_cost : 0);
}

static void the_index_takes_at_most_48_bytes_a_unit(void **state)
{
    (void)state;
    for (uint64_t bytes = 8; bytes < FB_GIB; bytes *= 3)
        for (int shared = 0; shared < 2; shared++) {
            assert_true(index_of(bytes, bytes, shared, true) <= 48);
            /* The tables of a chain's pages are part of the waste: see units_of_every_size. */
            assert_true(index_of(0, bytes, shared, false) <= 48);
        }
    for (uint64_t units = 1000; units < 100000000; units *= 10)
        assert_true(fb_cache_index_bytes(units, true) - fb_cache_index_bytes(1, true) <= 48 * units);
}

/* Sizes from 1/13 to 25/13 of the mean; what they take beside their bytes. */
static double waste_of(uint64_t mean)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options =
        options_of(budget, FB_POLICY_FILL, 200, 0, 400 * mean + 16 * FB_MIB);
    struct fb_cache *cache;
    struct fb_cache_pin pin;
    uint64_t bytes = 0, taken;

    options.unit_bytes_median = mean;
    options.unit_bytes_max = 2 * mean;
    cache = open_of(&options);
    for (uint64_t unit = 0; unit < 200; unit++) {
        uint64_t size = mean / 13 + unit * mean * 24 / 13 / 199;

        assert_int_equal(fb_cache_find(cache, unit, size, 0, false, &pin), FB_CACHE_FILL);
        fb_cache_publish(cache, &pin);
        fb_cache_done(cache, &pin);
        bytes += size;
    }
    taken = fb_pages_used(&cache->segment);
    fb_cache_close(cache);
    fb_budget_free(budget);
    return (double)taken / (double)bytes - 1;
}

static void units_of_every_size_waste_little(void **state)
{
    (void)state;
    for (uint64_t mean = 8192; mean <= 2 * FB_MIB; mean = mean * 5 / 4)
        if (waste_of(mean) > 0.05)
            fail_msg("units of about %llu bytes waste %.1f %%", (unsigned long long)mean,
                     100 * waste_of(mean));
    /* Smaller ones cost more: `forebay pack` makes shards of them. */
    assert_true(waste_of(4096) < 0.075);
    assert_true(waste_of(1024) < 0.15);
    assert_true(waste_of(256) < 0.32);
}

static void unequal_units_waste_little(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_FILL, 400, 0, 64 * FB_MIB);
    struct fb_cache *cache;
    uint64_t bytes = 0, index;

    (void)state;
    options.unit_bytes_median = 130000;
    options.unit_bytes_max = 260000;
    cache = open_of(&options);
    for (uint64_t unit = 0; unit < 200; unit++) {
        assert_int_equal(use(cache, unit, 10000 + unit * 1200, 0), FB_CACHE_FILL);
        bytes += 10000 + unit * 1200;
    }
    index = cache->segment.layout.fixed_bytes;
    assert_true(fb_pages_used(&cache->segment) <=
                bytes + bytes / 20);
    assert_true(index < 64 * 1024);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_takes_at_most_48_bytes_a_unit),
        cmocka_unit_test(unequal_units_waste_little),
        cmocka_unit_test(units_of_every_size_waste_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
