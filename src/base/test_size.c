/* Sizes as people write them, arithmetic that does not wrap, and the random draws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mix.h"
#include "base/size.h"

static void sizes_are_read_as_people_write_them(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        { "0", 0 },
        { "4096", 4096 },
        { "640B", 640 },
        { "1kB", 1000 },
        { "1KB", 1000 },
        { "50GB", 50000000000 },
        { "2 TB", 2000000000000 },
        { "12GiB", 12 * FB_GIB },
        { "12gib", 12 * FB_GIB },
        { "1.5 MiB", FB_MIB + FB_MIB / 2 },
        { "0.1GB", 100000000 },
        { "1.999999999999GB", 1999999999 + 1 },
        { "9007199254740993", 9007199254740993 }, /* more than a double holds exactly */
        { "9223372036854775807", INT64_MAX },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 1;

        if (!fb_size_parse(rows[i].text, &bytes) || bytes != rows[i].bytes)
            fail_msg("'%s' was read as %llu", rows[i].text, (unsigned long long)bytes);
    }
}

static void what_is_no_size_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        " ",
        "GiB",
        "-1",
        "+1",
        "1.",
        ".5",
        "1e9",
        "inf",
        "nan",
        "0x10",
        "1GiBs",
        "1 G iB",
        "12 GiB ",
        "1,5",
        "1.2.3",
        "auto",
        "90%",
        "8388608TiB",
        "9223372036854775808",
        "99999999999999999999999999",
        "18446744073709551615.9",
    };
    uint64_t bytes = 77;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (fb_size_parse(texts[i], &bytes))
            fail_msg("'%s' was read as %llu", texts[i], (unsigned long long)bytes);
    assert_int_equal(bytes, 77);
}

static void sizes_are_written_for_people(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        { 0, "0 B" },
        { 640, "640 B" },
        { 1023, "1023 B" },
        { 1024, "1.0 KiB" },
        { FB_MIB - 1, "1.0 MiB" },
        { FB_GIB + FB_GIB / 2, "1.5 GiB" },
        { 99 * FB_MIB + 1000 * FB_KIB, "100 MiB" },
        { 640 * FB_GIB, "640 GiB" },
        { UINT64_MAX, "16.0 EiB" },
    };
    char text[32];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(fb_size_text(rows[i].bytes, text), rows[i].text);
}

static void overflow_is_an_answer(void **state)
{
    uint64_t out;

    (void)state;
    assert_true(fb_mul(UINT32_MAX, UINT32_MAX, &out));
    assert_false(fb_mul(UINT64_MAX, 2, &out));
    assert_false(fb_add(UINT64_MAX, 1, &out));
    assert_true(fb_add(UINT64_MAX, 0, &out));
    assert_int_equal(fb_round_up(0, 4096), 0);
    assert_int_equal(fb_round_up(1, 4096), 4096);
    assert_int_equal(fb_round_up(4096, 4096), 4096);
    assert_true(fb_round_up(UINT64_MAX, 4096) == UINT64_MAX - 4095);
    assert_true(fb_round_up(UINT64_MAX - 4095, 4096) == UINT64_MAX - 4095);
}

static void draws_never_change_between_versions(void **state)
{
    struct fb_random random = { 0 };

    (void)state;
    /* The first numbers of splitmix64 from seed 0, as published. */
    assert_true(fb_random_next(&random) == 0xe220a8397b1dcdafu);
    assert_true(fb_random_next(&random) == 0x6e789e6aa1b965f4u);
    assert_true(fb_random_next(&random) == 0x06c45d188009454fu);
    assert_true(fb_mix2(1, 2) != fb_mix2(2, 1));
}

static void draws_stay_below_and_are_spread_evenly(void **state)
{
    struct fb_random random = { fb_mix2(fb_mix2(1, 2), 3) };
    unsigned counts[10] = { 0 };
    double sum = 0;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint64_t drawn = fb_random_below(&random, 10);
        double unit = fb_random_unit(&random);

        assert_true(drawn < 10 && unit >= 0 && unit < 1);
        counts[drawn]++;
        sum += unit;
    }
    for (int i = 0; i < 10; i++)
        assert_true(counts[i] > 9500 && counts[i] < 10500); /* five sigma */
    assert_true(sum > 49500 && sum < 50500);
    assert_int_equal(fb_random_below(&random, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_as_people_write_them),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(sizes_are_written_for_people),
        cmocka_unit_test(overflow_is_an_answer),
        cmocka_unit_test(draws_never_change_between_versions),
        cmocka_unit_test(draws_stay_below_and_are_spread_evenly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
