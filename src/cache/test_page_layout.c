/* Census and limit to layout, as a table; and what the index costs for each equal unit. */
#include "cache/test_help.h"

#include "cache/page_layout.h"

#define MANY ((uint64_t)1 << 40)

static void the_layout_follows_from_census_and_limit(void **state)
{
    static const struct {
        struct fb_unit_census census;
        uint64_t limit;
        struct fb_page_layout layout;
    } rows[] = {
        /* Equal: a page is a unit. */
        { { 1000, 256, 256, 0 }, MANY, { 1000, 256, false } },
        { { 1000, 1000, 1000, 0 }, MANY, { 1000, 1000, false } },
        { { 7, 1 << 20, 1 << 20, 0 }, MANY, { 7, 1 << 20, false } },
        { { 7, 5000, 0, 512 }, MANY, { 7, 5000, false } },
        /* Unequal: a part of the median. */
        { { 1000, 0, 0, 0 }, MANY, { 1000, 64, true } },
        { { 1000, 0, 256, 0 }, MANY, { 1000, 64, true } },
        { { 1000, 0, 1024, 0 }, MANY, { 1000, 128, true } },
        { { 1000, 0, 4096, 0 }, MANY, { 1000, 256, true } },
        { { 1000, 0, 8192, 0 }, MANY, { 1000, 512, true } },
        { { 1000, 0, 1 << 20, 0 }, MANY, { 1000, 65536, true } },
        { { 1000, 0, 1024, 512 }, MANY, { 1000, 512, true } },
        /* The index takes half of the limit at most, and one unit is always covered. */
        { { 1000, 0, 1024, 0 }, 6400, { 100, 128, true } },
        { { 1000, 256, 256, 0 }, 0, { 1, 256, false } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_page_layout layout = fb_page_layout_choose(&rows[i].census, rows[i].limit);

        if (layout.entries != rows[i].layout.entries ||
            layout.page_bytes != rows[i].layout.page_bytes ||
            layout.chained != rows[i].layout.chained)
            fail_msg("row %zu: %llu entries, pages of %llu bytes, chained %d", i,
                     (unsigned long long)layout.entries, (unsigned long long)layout.page_bytes,
                     layout.chained);
    }
}

static uint64_t all_bytes(uint64_t units, uint64_t bytes)
{
    struct fb_cache_options options = options_of(NULL, FB_POLICY_FILL, units, bytes, MANY);
    struct fb_geometry geometry;
    struct fb_layout layout;

    assert_int_equal(fb_geometry_choose(&geometry, &options, false, NULL), 0);
    assert_true(fb_geometry_layout(&geometry, &layout));
    return layout.fixed_bytes + units * (geometry.page_bytes + layout.table_cost);
}

static void an_equal_unit_has_37_bytes_of_index_at_any_size(void **state)
{
    uint64_t few = 1 << 16, many = 1 << 17;

    (void)state;
    for (uint64_t bytes = 256; bytes <= FB_MIB; bytes *= 2)
        for (uint64_t odd = 0; odd < 2; odd++)
            assert_true(all_bytes(many, bytes + odd) - all_bytes(few, bytes + odd) <=
                        (many - few) * (bytes + odd + 37));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_follows_from_census_and_limit),
        cmocka_unit_test(an_equal_unit_has_37_bytes_of_index_at_any_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
