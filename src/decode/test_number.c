#include "decode/number.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mix.h"

/* What lies behind a padded number may look like more of it. */
static const char *padded(const char *text)
{
    static char room[FB_NUMBER_BYTES + FB_NUMBER_PADDING];

    memset(room, '7', sizeof(room));
    assert_true(strlen(text) < FB_NUMBER_BYTES);
    memcpy(room, text, strlen(text));
    return room;
}

static enum fb_number real(const char *text, double *value)
{
    const char *at = padded(text);
    double quick = *value;
    enum fb_number status = fb_number_f64(text, text + strlen(text), value);

    assert_int_equal(fb_number_f64_padded(at, at + strlen(text), &quick), status);
    assert_true((isnan(quick) && isnan(*value)) || memcmp(&quick, value, sizeof(quick)) == 0);
    return status;
}

static void check_against_strtod(const char *text)
{
    double expected = strtod(text, NULL), found = 0;
    enum fb_number status = real(text, &found);

    if (isinf(expected) && status == FB_NUMBER_RANGE)
        return;
    if (status != FB_NUMBER_OK || memcmp(&found, &expected, sizeof(found)) != 0)
        fail_msg("'%s' is %.17g, not %.17g (status %d)", text, expected, found, (int)status);
}

static void reals_are_those_of_strtod_to_the_last_bit(void **state)
{
    struct fb_random random = { 1 };

    (void)state;
    for (unsigned i = 0; i < 200000; i++) {
        uint64_t bits = fb_random_next(&random);
        char text[64];
        double value;

        memcpy(&value, &bits, sizeof(value));
        if (i % 4)
            value = ldexp((double)(int64_t)bits, (int)(fb_random_next(&random) % 200) - 150);
        if (!isfinite(value))
            continue;
        snprintf(text, sizeof(text), "%.*g", (int)(1 + fb_random_next(&random) % 20), value);
        check_against_strtod(text);
    }
}

static void short_plain_numbers_are_those_of_strtod(void **state)
{
    static const char letters[] = "0123456789.0123456789-+e ";
    struct fb_random random = { 2 };

    (void)state;
    for (unsigned i = 0; i < 200000; i++) {
        unsigned length = (unsigned)(fb_random_next(&random) % 19);
        char text[24] = "";
        double value = 42;

        for (unsigned k = 0; k < length; k++)
            text[k] = letters[fb_random_next(&random) % (i % 2 ? 21 : sizeof(letters) - 1)];
        if (real(text, &value) == FB_NUMBER_OK)
            check_against_strtod(text);
    }
}

static void halfway_cases_and_ends_of_the_range_are_exact(void **state)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "0.0",
        "00012",
        "1",
        "1.5",
        ".5",
        "5.",
        "-.5e1",
        "+7",
        "1e22",
        "1e23",
        "1e-22",
        "9007199254740993",
        "9007199254740992.5",
        "9007199254740993.00000000000000000001",
        "18446744073709551615",
        "18446744073709551616",
        "9999999999999999999",
        "1e308",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "4.9e-324",
        "2e-324",
        "2.4e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "0.1e-400",
        "123456789012345678901234",
        "0.000000000000000000000000000000000000000000001",
        "1.00000000000000011102230246251565404",
        "3.14159265358979323846264338327950288",
        "1e0000000000000000000001",
        "8.5e-5",
        "7e27",
        "1234567890123456789e27",
        "1234567890123456789e-27",
        "5e-27",
        "1e999",
        "-1e999",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check_against_strtod(texts[i]);
}

static void what_is_no_number_is_told_apart(void **state)
{
    static const char *const none[] = { "",      " ",   "-",   ".",   "e5",   "1e",   "1e+",
                                        "1.2.3", "0x1", "1_0", "--1", "1 2",  "abc",  "1,5",
                                        "nanx",  "in",  "1f",  "+",   "1e5.", "\"1\"" };
    double value = 42;

    (void)state;
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        if (real(none[i], &value) != FB_NUMBER_NONE || value != 42)
            fail_msg("'%s' was taken for a number", none[i]);
    assert_int_equal(real(" \t1.25 ", &value), FB_NUMBER_OK);
    assert_true(value == 1.25);
    assert_int_equal(real("-INF", &value), FB_NUMBER_OK);
    assert_true(isinf(value) && value < 0);
    assert_int_equal(real("NaN", &value), FB_NUMBER_OK);
    assert_true(isnan(value));
    assert_int_equal(real("1e400", &value), FB_NUMBER_RANGE);
}

static void integers_know_their_range(void **state)
{
    static const struct {
        const char *text;
        enum fb_number status;
        int64_t value;
    } cases[] = { { "0", FB_NUMBER_OK, 0 },
                  { "-1", FB_NUMBER_OK, -1 },
                  { " +12 ", FB_NUMBER_OK, 12 },
                  { "9223372036854775807", FB_NUMBER_OK, INT64_MAX },
                  { "-9223372036854775808", FB_NUMBER_OK, INT64_MIN },
                  { "9223372036854775808", FB_NUMBER_RANGE, 0 },
                  { "-9223372036854775809", FB_NUMBER_RANGE, 0 },
                  { "99999999999999999999999999", FB_NUMBER_RANGE, 0 },
                  { "-123456789012345", FB_NUMBER_OK, -123456789012345 },
                  { "1234567890123456", FB_NUMBER_OK, 1234567890123456 },
                  { "1.0", FB_NUMBER_NONE, 0 },
                  { "1.", FB_NUMBER_NONE, 0 },
                  { "-", FB_NUMBER_NONE, 0 },
                  { "1e3", FB_NUMBER_NONE, 0 },
                  { "", FB_NUMBER_NONE, 0 },
                  { "99999999999999999999x", FB_NUMBER_NONE, 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = cases[i].text;
        int64_t value = 0;

        const char *at = padded(text);
        int64_t quick = 0;

        if (fb_number_i64(text, text + strlen(text), &value) != cases[i].status ||
            value != cases[i].value)
            fail_msg("'%s' is %" PRId64, text, value);
        if (fb_number_i64_padded(at, at + strlen(text), &quick) != cases[i].status ||
            quick != cases[i].value)
            fail_msg("'%s' is quickly %" PRId64, text, quick);
    }
}

static void whole_numbers_up_to_u64_are_read(void **state)
{
    static const struct {
        const char *text;
        enum fb_number status;
        uint64_t value;
    } cases[] = {
        { "0", FB_NUMBER_OK, 0 },
        { " +9223372036854775808 ", FB_NUMBER_OK, (uint64_t)1 << 63 },
        { "18446744073709551615", FB_NUMBER_OK, UINT64_MAX },
        { "18446744073709551616", FB_NUMBER_RANGE, 0 },
        { "99999999999999999999999", FB_NUMBER_RANGE, 0 },
        { "-0", FB_NUMBER_OK, 0 },
        { "-1", FB_NUMBER_RANGE, 0 },
        { "1.0", FB_NUMBER_NONE, 0 },
        { "", FB_NUMBER_NONE, 0 },
        { "-", FB_NUMBER_NONE, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = cases[i].text;
        uint64_t value = 0;

        if (fb_number_u64(text, text + strlen(text), &value) != cases[i].status ||
            value != cases[i].value)
            fail_msg("'%s'", text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_up_to_u64_are_read),
        cmocka_unit_test(reals_are_those_of_strtod_to_the_last_bit),
        cmocka_unit_test(short_plain_numbers_are_those_of_strtod),
        cmocka_unit_test(halfway_cases_and_ends_of_the_range_are_exact),
        cmocka_unit_test(what_is_no_number_is_told_apart),
        cmocka_unit_test(integers_know_their_range),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
