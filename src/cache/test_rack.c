/* Pages of several sizes: which there are, where they lie, what units waste in them. */
#include "cache/test_help.h"

#include <math.h>

#define UNITS 4000

typedef uint64_t sizes_fn(uint64_t unit);

static uint64_t even(uint64_t unit)
{
    return 128 + fb_mix(unit) % 1800;
}

static uint64_t few(uint64_t unit)
{
    return unit % 3 ? 700 : 90;
}

static uint64_t tiny(uint64_t unit)
{
    return 1 + fb_mix(unit) % 120;
}

static uint64_t lognormal(uint64_t unit, double median, double sigma)
{
    double u = (double)(fb_mix(unit) % 1000000 + 1) / 1000001.0;
    double v = (double)(fb_mix(unit + UNITS) % 1000000) / 1000000.0;
    double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);

    return fb_min((uint64_t)(1 + median * exp(sigma * normal)), FB_RACK_BYTES_MAX);
}

static uint64_t skewed(uint64_t unit)
{
    return lognormal(unit, 1000, 0.9);
}

/* As texts are: most have some hundred bytes, one a quarter of a megabyte. */
static uint64_t texts(uint64_t unit)
{
    return unit == 77 ? 250000 : lognormal(unit, 400, 1.4);
}

static const struct kind {
    const char *name;
    sizes_fn *size_of;
} kinds[] = {
    { "128 to 1928 bytes", even },
    { "90 or 700 bytes", few },
    { "1 to 120 bytes", tiny },
    { "lognormal about 1000 bytes, sigma 0.9", skewed },
    { "lognormal about 400 bytes, sigma 1.4", texts },
};

static void rack_of(struct fb_rack *rack, uint64_t units, sizes_fn *size_of, bool rising)
{
    struct fb_census census = { .steps = { { .units = 0 } } };

    for (uint64_t unit = 0; unit < units; unit++)
        fb_census_add(&census, size_of(unit));
    fb_rack_choose(rack, &census, rising);
}

static void rack_for(struct fb_rack *rack, uint64_t units, sizes_fn *size_of)
{
    rack_of(rack, units, size_of, false);
}

static void units_of_all_kinds_waste_little(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
        sizes_fn *size_of = kinds[kind].size_of;
        uint64_t bytes = 0, taken = 0, homeless = 0;
        struct fb_rack rack;

        rack_for(&rack, UNITS, size_of);
        assert_in_range(rack.sizes, 1, FB_RACK_SIZES);
        for (uint64_t unit = 0; unit < UNITS; unit++) {
            uint32_t size = fb_rack_size_for(&rack, size_of(unit));

            if (size == rack.sizes) {
                homeless++;
                continue;
            }
            assert_true(size == 0 || rack.bytes[size - 1] < size_of(unit));
            bytes += size_of(unit);
            taken += rack.bytes[size];
        }
        assert_true(taken <= bytes + bytes / 20);
        assert_true(homeless <= UNITS / 1024);
    }
}

static void a_size_for_each_where_there_are_few(void **state)
{
    struct fb_rack rack;

    (void)state;
    rack_for(&rack, UNITS, few);
    assert_int_equal(rack.sizes, 2);
    assert_int_equal(rack.bytes[0], 90);
    assert_int_equal(rack.bytes[1], 700);
    rack_for(&rack, 1, few);
    assert_int_equal(rack.sizes, 1);
    rack_for(&rack, 0, few);
    assert_int_equal(rack.sizes, 0);
}

static uint64_t largest(uint64_t unit)
{
    return FB_RACK_BYTES_MAX - unit;
}

static void sizes_to_the_limit_are_counted(void **state)
{
    struct fb_rack rack;

    (void)state;
    rack_for(&rack, 64, largest);
    assert_int_equal(rack.bytes[rack.sizes - 1], FB_RACK_BYTES_MAX);
}

/* Any number of pages from the front has its part of every size, and is numbered without gaps. */
static void every_size_has_its_part_of_any_limit(void **state)
{
    struct fb_rack rack;
    struct fb_rack_map map;

    (void)state;
    rack_for(&rack, UNITS, skewed);
    assert_true(fb_rack_map_make(&rack, &map));
    for (uint32_t size = 0; size < rack.sizes; size++) {
        uint64_t each = fb_rack_below(&map, size, FB_RACK_PAGES), n = 0;

        assert_true(each >= 1);
        for (uint64_t page = 0; page < 3 * FB_RACK_PAGES; page++) {
            double part = (double)page * (double)each / FB_RACK_PAGES;

            assert_int_equal(fb_rack_below(&map, size, page), n);
            assert_true(fabs((double)n - part) <= 2);
            if (rack.size_of[page % FB_RACK_PAGES] != size)
                continue;
            assert_int_equal(fb_rack_page(&map, size, n), page);
            n++;
        }
        assert_int_equal(n, 3 * each);
    }
}

/* As many pages as units, the smallest first; numbers, sizes and places agree. */
static void rising_pages_are_sorted(void **state)
{
    struct fb_rack rack;
    struct fb_rack_map map;
    uint64_t counts[FB_RACK_SIZES] = { 0 }, at = 0;

    (void)state;
    rack_of(&rack, UNITS, texts, true);
    assert_true(fb_rack_map_make(&rack, &map));
    assert_int_equal(rack.sizes, FB_RACK_SIZES);
    assert_int_equal(rack.ends[rack.sizes - 1], UNITS);
    for (uint64_t page = 0; page < UNITS; page++) {
        uint32_t size = fb_rack_size_at(&map, page);

        assert_true(page == 0 || size >= fb_rack_size_at(&map, page - 1));
        assert_int_equal(fb_rack_at(&map, page), at);
        assert_int_equal(fb_rack_below(&map, size, page), counts[size]);
        assert_int_equal(fb_rack_page(&map, size, counts[size]), page);
        assert_int_equal(fb_rack_next(&map, size, page), page);
        assert_int_equal(fb_rack_next(&map, size, 0), page - counts[size]);
        counts[size]++;
        at += rack.bytes[size];
        assert_int_equal(fb_rack_pages_in(&map, at + 5 * (page + 1), 5), page + 1);
        assert_int_equal(fb_rack_pages_in(&map, at + 5 * (page + 1) - 1, 5), page);
    }
    assert_int_equal(fb_rack_at(&map, UNITS), at);
    assert_int_equal(fb_rack_pages_in(&map, UINT64_MAX, 5), UNITS);
    for (uint32_t size = 0; size < rack.sizes; size++) {
        assert_int_equal(fb_rack_below(&map, size, UINT64_MAX), counts[size]);
        assert_int_equal(fb_rack_next(&map, size, rack.ends[size]), UINT64_MAX);
    }
}

static void garbage_is_no_rack(void **state)
{
    struct fb_rack good, rack;
    struct fb_rack_map map;

    (void)state;
    rack_for(&good, UNITS, even);
    assert_true(fb_rack_map_make(&good, &map));
    rack = good;
    rack.sizes = FB_RACK_SIZES + 1;
    assert_false(fb_rack_map_make(&rack, &map));
    rack.sizes = 0;
    assert_false(fb_rack_map_make(&rack, &map));
    rack = good;
    rack.size_of[FB_RACK_PAGES - 1] = (uint8_t)rack.sizes;
    assert_false(fb_rack_map_make(&rack, &map));
    rack = good;
    rack.bytes[3] = 0;
    assert_false(fb_rack_map_make(&rack, &map));
    rack.bytes[3] = FB_RACK_BYTES_MAX + 1;
    assert_false(fb_rack_map_make(&rack, &map));
    rack = good;
    rack.bytes[3] = rack.bytes[2];
    assert_false(fb_rack_map_make(&rack, &map));
    rack = good;
    for (unsigned place = 0; place < FB_RACK_PAGES; place++)
        rack.size_of[place] = 0; /* the others have no page */
    assert_false(fb_rack_map_make(&rack, &map));
    rack_of(&good, UNITS, even, true);
    assert_true(fb_rack_map_make(&good, &map));
    rack = good;
    rack.ends[3] = rack.ends[2];
    assert_false(fb_rack_map_make(&rack, &map));
    rack = good;
    rack.rising = 2;
    assert_false(fb_rack_map_make(&rack, &map));
}

static struct fb_cache *open_rack_of(struct fb_budget *budget, struct fb_rack *rack,
                                     sizes_fn *size_of, int policy, bool rising, uint64_t limit)
{
    struct fb_cache_options options = options_of(budget, policy, UNITS, 0, limit);

    rack_of(rack, UNITS, size_of, rising);
    options.unit_bytes_median = 1000;
    options.unit_bytes_max = FB_RACK_BYTES_MAX;
    options.rack = rack;
    return open_of(&options);
}

static struct fb_cache *open_rack(struct fb_budget *budget, struct fb_rack *rack, sizes_fn *size_of,
                                  int policy, uint64_t limit)
{
    return open_rack_of(budget, rack, size_of, policy, policy == FB_POLICY_FILL, limit);
}

static void pages_and_bytes_of(int policy)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_rack rack;
    struct fb_cache *cache = open_rack(budget, &rack, even, policy, FB_MIB);
    const struct fb_segment *segment = &cache->segment;

    for (uint64_t pages = 1; pages < 3 * FB_RACK_PAGES; pages++) {
        uint64_t bytes = fb_segment_bytes_for(segment, pages);

        assert_int_equal(fb_segment_pages_in(segment, bytes), pages);
        assert_int_equal(fb_segment_pages_in(segment, bytes - 1), pages - 1);
        assert_int_equal(fb_page_at(segment, pages),
                         fb_page_at(segment, pages - 1) + fb_page_bytes(segment, pages - 1));
    }
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void pages_and_bytes_agree(void **state)
{
    (void)state;
    pages_and_bytes_of(FB_POLICY_LRU);
    pages_and_bytes_of(FB_POLICY_FILL);
}

/* What the units that are kept take beside their bytes and the index. */
static double waste_of(struct fb_cache *cache, sizes_fn *size_of)
{
    struct fb_cache_report report;
    uint64_t bytes = 0, index;

    fb_cache_read_report(cache, &report);
    for (uint64_t unit = 0; unit < UNITS; unit++)
        if (fb_entry_state(&cache->segment, unit) == FB_READY)
            bytes += size_of(unit);
    index = cache->local_bytes + cache->segment.layout.fixed_bytes +
            report.items * cache->segment.layout.table_cost;
    return (double)(report.bytes - index) / (double)bytes - 1;
}

/* A cache for a part of them: full, within its limit, whole, and what was put in last is there. */
static void churn(const struct kind *kind, int policy)
{
    struct fb_budget *budget = budget_of(MUCH);
    sizes_fn *size_of = kind->size_of;
    uint64_t limit = 400 * 1024;
    struct fb_random random = { .state = 7 };
    struct fb_cache_report report;
    struct fb_rack rack;
    struct fb_cache *cache = open_rack(budget, &rack, size_of, policy, limit);

    for (uint64_t i = 0; i < 6 * UNITS; i++) {
        uint64_t unit = fb_random_below(&random, UNITS);

        use(cache, unit, size_of(unit), 6 * UNITS - i);
        assert_true(in_ledger(budget) <= limit);
    }
    audit(cache, 1);
    fb_cache_read_report(cache, &report);
    assert_true(report.evictions > UNITS / 4);
    assert_true(report.bytes <= limit);
    assert_true(cache->segment.layout.table_cost + sizeof(struct fb_entry) <= 48);
    assert_true(waste_of(cache, size_of) <= 0.05);
    printf("%s, %u sizes: waste %.1f %%\n", kind->name, rack.sizes,
           100 * waste_of(cache, size_of));
    /* Nothing of the limit lies idle: a page and the steps in which memory is had. */
    assert_true(report.bytes + report.bytes / 50 + 8192 >= limit);
    fb_cache_close(cache);
    assert_int_equal(in_ledger(budget), 0);
    fb_budget_free(budget);
}

static void what_makes_room_wastes_little_too(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
        churn(&kinds[kind], FB_POLICY_LRU);
        churn(&kinds[kind], FB_POLICY_NEXT_USE);
    }
}

static uint64_t sorted[UNITS];

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Units of this size and below, as many as fit in `bytes` if nothing is wasted. */
static uint64_t smallest_in(sizes_fn *size_of, uint64_t bytes)
{
    uint64_t count = 0;

    for (uint64_t unit = 0; unit < UNITS; unit++)
        sorted[unit] = size_of(unit) + 5;
    qsort(sorted, UNITS, sizeof(*sorted), by_size);
    while (count < UNITS && bytes >= sorted[count])
        bytes -= sorted[count++];
    return count;
}

static uint64_t fill_twice(struct fb_cache *cache, sizes_fn *size_of)
{
    struct fb_cache_report report;

    for (uint64_t i = 0; i < 2 * UNITS; i++)
        use(cache, i * 7 % UNITS, size_of(i * 7 % UNITS), 0);
    audit(cache, 1);
    fb_cache_read_report(cache, &report);
    return report.items;
}

/* Under fill a cache for a part keeps the smallest, also after its limit was raised or lowered. */
static void fill_keeps_the_smallest(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
        struct fb_budget *budget = budget_of(MUCH);
        sizes_fn *size_of = kinds[kind].size_of;
        struct fb_rack rack;
        struct fb_cache *cache = open_rack(budget, &rack, size_of, FB_POLICY_FILL, 300 << 10);
        static const uint64_t limits[] = { 300 << 10, 900 << 10, 250 << 10, 600 << 10 };

        for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
            uint64_t fixed = cache->local_bytes + cache->segment.layout.fixed_bytes;
            uint64_t room = limits[i] - fixed, kept;

            assert_true(fb_cache_set_limit(cache, limits[i]) <= limits[i]);
            kept = fill_twice(cache, size_of);
            assert_true(in_ledger(budget) <= limits[i]);
            /* As many as if 5 % were wasted, beside the steps in which memory is had. */
            assert_true(kept <= smallest_in(size_of, room));
            assert_true(kept >= smallest_in(size_of, (room - 8192) / 105 * 100));
            assert_true(waste_of(cache, size_of) <= 0.05);
            printf("%s, fill, %u sizes: %.0f %% of the units, waste %.1f %%\n", kinds[kind].name,
                   rack.sizes, 100.0 * (double)kept / UNITS, 100 * waste_of(cache, size_of));
        }
        fb_cache_close(cache);
        assert_int_equal(in_ledger(budget), 0);
        fb_budget_free(budget);
    }
}

/* What preload asks before it reads. */
static void room_is_known_before_anything_is_read(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_rack rack;
    struct fb_cache *cache = open_rack(budget, &rack, even, FB_POLICY_FILL, 600 << 10);
    uint64_t kept = 0;

    (void)state;
    for (uint64_t unit = 0; unit < UNITS; unit++) {
        bool room = fb_cache_has_room(cache, even(unit));

        assert_int_equal(use(cache, unit, even(unit), 0), room ? FB_CACHE_FILL : FB_CACHE_MISS);
        kept += room;
    }
    assert_in_range(kept, UNITS / 10, UNITS / 2);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

/* The limit does not rise for a unit whose page it never reaches. */
static void what_is_too_large_reserves_nothing(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_rack rack;
    struct fb_cache *cache = open_rack(budget, &rack, even, FB_POLICY_FILL, 600 << 10);
    uint64_t before = in_ledger(budget);

    (void)state;
    assert_int_equal(use(cache, 0, rack.bytes[rack.sizes - 1], 0), FB_CACHE_MISS);
    assert_int_equal(in_ledger(budget), before);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void all_are_kept(sizes_fn *size_of, bool rising)
{
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t bytes = 0, giants = 0, refused[3] = { 0 };
    struct fb_rack rack;
    struct fb_cache *cache;

    for (uint64_t unit = 0; unit < UNITS; unit++)
        bytes += size_of(unit);
    cache = open_rack_of(budget, &rack, size_of, FB_POLICY_FILL, rising,
                         bytes + bytes / (rising ? 20 : 6) + fb_cache_index_bytes(UNITS, false));
    for (uint64_t unit = 0; unit < UNITS; unit++)
        giants += fb_rack_size_for(&rack, size_of(unit)) == rack.sizes;
    for (size_t epoch = 0; epoch < 3; epoch++)
        for (uint64_t unit = 0; unit < UNITS; unit++)
            refused[epoch] += use(cache, unit, size_of(unit), 0) == FB_CACHE_MISS;
    /* Mixed, a search looks at some pages only; the next one goes on where it ended. */
    assert_true(refused[0] <= giants + (rising ? 0 : UNITS / 100));
    assert_int_equal(refused[2], giants);
    assert_true(!rising || !giants);
    audit(cache, 1);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

/* Whatever the sizes: no page of a size is wanted while there is room for all. */
static void all_are_kept_where_there_is_room_for_all(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
        all_are_kept(kinds[kind].size_of, false);
        all_are_kept(kinds[kind].size_of, true);
    }
}

/* Somebody scribbled over the numbers that a process copies when it attaches. */
static void a_damaged_rack_is_not_attached(void **state)
{
    struct fb_geometry geometry;
    struct fb_segment made, other;
    struct fb_cache_options options = options_of(NULL, FB_POLICY_LRU, UNITS, 0, FB_MIB);
    struct fb_rack rack;

    (void)state;
    rack_for(&rack, UNITS, even);
    options.rack = &rack;
    assert_int_equal(fb_geometry_choose(&geometry, &options, true, NULL), 0);
    assert_int_equal(fb_segment_shared_new(&made, &geometry, NULL), 0);
    assert_int_equal(fb_segment_shared_attach(&other, dup(made.fd), NULL), 0);
    assert_int_equal(fb_page_at(&other, 700), fb_page_at(&made, 700));
    fb_segment_release(&other, false);
    made.header->geometry.rack.size_of[5] = 200;
    assert_int_equal(fb_segment_shared_attach(&other, made.fd, NULL), FOREBAY_BAD_DATA);
    made.header->geometry.rack = rack;
    made.header->geometry.rack.bytes[0] += 4096; /* more than the file has */
    assert_int_equal(fb_segment_shared_attach(&other, made.fd, NULL), FOREBAY_BAD_DATA);
    made.header->geometry.rack = rack;
    made.header->geometry.chained = 1;
    assert_int_equal(fb_segment_shared_attach(&other, made.fd, NULL), FOREBAY_BAD_DATA);
    fb_segment_release(&made, false);
}

static void what_fits_no_page_is_not_kept(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_rack rack;
    struct fb_cache *cache = open_rack(budget, &rack, few, FB_POLICY_LRU, FB_MIB);

    (void)state;
    assert_int_equal(use(cache, 1, 701, 0), FB_CACHE_MISS);
    assert_false(fb_cache_has_room(cache, 701));
    assert_true(fb_cache_has_room(cache, 700));
    assert_int_equal(use(cache, 1, 700, 0), FB_CACHE_FILL);
    assert_int_equal(use(cache, 1, 700, 0), FB_CACHE_HIT);
    audit(cache, 1);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_of_all_kinds_waste_little),
        cmocka_unit_test(a_size_for_each_where_there_are_few),
        cmocka_unit_test(sizes_to_the_limit_are_counted),
        cmocka_unit_test(every_size_has_its_part_of_any_limit),
        cmocka_unit_test(rising_pages_are_sorted),
        cmocka_unit_test(garbage_is_no_rack),
        cmocka_unit_test(pages_and_bytes_agree),
        cmocka_unit_test(what_makes_room_wastes_little_too),
        cmocka_unit_test(fill_keeps_the_smallest),
        cmocka_unit_test(room_is_known_before_anything_is_read),
        cmocka_unit_test(what_is_too_large_reserves_nothing),
        cmocka_unit_test(all_are_kept_where_there_is_room_for_all),
        cmocka_unit_test(a_damaged_rack_is_not_attached),
        cmocka_unit_test(what_fits_no_page_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
