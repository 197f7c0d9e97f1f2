#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "source/source.h"

static struct fb_budget *budget;
static forebay_error error;

static int make_budget(void **state)
{
    (void)state;
    return fb_budget_new(&budget, 1 << 20, &error);
}

static int free_budget(void **state)
{
    struct fb_budget_report report;

    (void)state;
    fb_budget_read(budget, &report);
    fb_budget_free(budget);
    return report.used != 0; /* whatever is not given back is a leak */
}

static uint64_t odd_rows(uint64_t sample)
{
    return sample % 3;
}

static int fail_seven(void *data, uint64_t unit)
{
    (void)data;
    return unit == 7 ? FOREBAY_BAD_DATA : FOREBAY_OK;
}

static void every_sample_is_its_own_number(void **state)
{
    struct fb_memory_source_options options = { .samples = 10, .rows = 4 };
    struct fb_source *source;
    struct fb_part part;
    uint32_t values[4];
    struct fb_load load = { .rows = 4, .to = values, .bytes = sizeof(values) };

    (void)state;
    assert_int_equal(fb_source_memory_open(&source, &options, budget, &error), 0);
    assert_true(source->uniform);
    assert_int_equal(source->unit_bytes_total, 160);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(source->ops->parts(source, i, &part), 1);
        load.unit = part.unit;
        assert_int_equal(source->ops->load(source, &load, &error), 0);
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(values[k], i);
    }
    fb_source_close(source);
}

static void rows_may_differ_and_failures_come_when_asked(void **state)
{
    struct fb_memory_source_options options = { .samples = 9, .rows = 2, .rows_of = odd_rows,
                                                .before_load = fail_seven };
    struct fb_source *source;
    uint32_t values[2];
    struct fb_load load = { .unit = 7, .rows = 1, .to = values, .bytes = 4 };

    (void)state;
    assert_int_equal(fb_source_memory_open(&source, &options, budget, &error), 0);
    assert_false(source->uniform);
    assert_int_equal(source->unit_bytes_total, 9 * 4);
    assert_int_equal(source->ops->extent(source, 5).rows, 2);
    assert_int_equal(source->ops->load(source, &load, &error), FOREBAY_BAD_DATA);
    load.unit = 3; /* has no rows, so one is too many */
    assert_int_equal(source->ops->load(source, &load, &error), FOREBAY_BAD_USE);
    fb_source_close(source);
}

static void a_source_without_a_kind_says_so(void **state)
{
    struct fb_config config = { .source_kind = -1 }; /* not set */
    struct fb_source *source;

    (void)state;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), FOREBAY_BAD_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_its_own_number),
        cmocka_unit_test(rows_may_differ_and_failures_come_when_asked),
        cmocka_unit_test(a_source_without_a_kind_says_so),
    };

    return cmocka_run_group_tests(tests, make_budget, free_budget);
}
