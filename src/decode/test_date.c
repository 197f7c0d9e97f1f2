#include "decode/date.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void every_day_is_the_c_librarys(void **state)
{
    (void)state;
    for (int64_t day = -719162; day <= 2932896; day += 1) { /* 0001-01-01 to 9999-12-31 */
        time_t seconds = (time_t)(day * 86400);
        char text[32];
        struct tm parts;
        int64_t found = 0;

        gmtime_r(&seconds, &parts);
        snprintf(text, sizeof(text), "%04d-%02d-%02d", parts.tm_year + 1900, parts.tm_mon + 1,
                 parts.tm_mday);
        if (fb_date_days(text, text + strlen(text), &found) != FB_NUMBER_OK || found != day)
            fail_msg("%s is day %lld, not %lld", text, (long long)day, (long long)found);
    }
}

static void times_are_nanoseconds_of_utc(void **state)
{
    static const struct {
        const char *text;
        enum fb_number status;
        int64_t ns;
    } cases[] = {
        { "1970-01-01", FB_NUMBER_OK, 0 },
        { "1970-01-01 00:00", FB_NUMBER_OK, 0 },
        { "1970-01-01T00:00:01", FB_NUMBER_OK, 1000000000 },
        { " 1970-01-01 00:00:00.5Z ", FB_NUMBER_OK, 500000000 },
        { "1969-12-31 23:59:59.999999999", FB_NUMBER_OK, -1 },
        { "1970-01-01 02:00:00+02:00", FB_NUMBER_OK, 0 },
        { "1969-12-31 19:00:00-05", FB_NUMBER_OK, 0 },
        { "1970-01-01T05:30:00+0530", FB_NUMBER_OK, 0 },
        { "2262-04-11 23:47:16.854775807", FB_NUMBER_OK, INT64_MAX },
        { "2262-04-11 23:47:16.854775808", FB_NUMBER_RANGE, 0 },
        { "1677-09-21 00:12:43.145224193", FB_NUMBER_OK, INT64_MIN + 1 },
        { "0001-01-01", FB_NUMBER_RANGE, 0 },
        { "", FB_NUMBER_NONE, 0 },
        { "1970-02-29", FB_NUMBER_NONE, 0 },
        { "1900-02-29", FB_NUMBER_NONE, 0 },
        { "0000-01-01", FB_NUMBER_NONE, 0 },
        { "1970-13-01", FB_NUMBER_NONE, 0 },
        { "1970-1-01", FB_NUMBER_NONE, 0 },
        { "19700101", FB_NUMBER_NONE, 0 },
        { "1970-01-01 24:00", FB_NUMBER_NONE, 0 },
        { "1970-01-01 00:00:60", FB_NUMBER_NONE, 0 },
        { "1970-01-01 00:00:00.", FB_NUMBER_NONE, 0 },
        { "1970-01-01 00:00:00.1234567890", FB_NUMBER_NONE, 0 },
        { "1970-01-01 00:00:00 x", FB_NUMBER_NONE, 0 },
        { "1970-01-01 00", FB_NUMBER_NONE, 0 },
        { "1970-01-01T", FB_NUMBER_NONE, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ns = 0;
        const char *text = cases[i].text;

        if (fb_date_ns(text, text + strlen(text), &ns) != cases[i].status || ns != cases[i].ns)
            fail_msg("'%s' is %lld", text, (long long)ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_day_is_the_c_librarys),
        cmocka_unit_test(times_are_nanoseconds_of_utc),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
