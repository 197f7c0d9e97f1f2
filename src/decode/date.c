#include "decode/date.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SECOND_NS INT64_C(1000000000)
#define DAY_S 86400

static void trim(const char **at, const char **end)
{
    while (*at < *end && (**at == ' ' || **at == '\t'))
        ++*at;
    while (*at < *end && ((*end)[-1] == ' ' || (*end)[-1] == '\t'))
        --*end;
}

/* Exactly `digits` digits, a number from low to high. */
static bool take(const char **at, const char *end, unsigned digits, int low, int high, int *value)
{
    int number = 0;

    if (end - *at < (ptrdiff_t)digits)
        return false;
    for (unsigned i = 0; i < digits; i++) {
        unsigned digit = (unsigned char)((*at)[i] - '0');

        if (digit > 9)
            return false;
        number = number * 10 + (int)digit;
    }
    *at += digits;
    *value = number;
    return number >= low && number <= high;
}

static bool take_char(const char **at, const char *end, const char *choices)
{
    if (*at == end || **at == '\0' || !strchr(choices, **at))
        return false;
    ++*at;
    return true;
}

/* Of the proleptic Gregorian calendar: years are counted from March, so that the leap day is the
 * last of its year; 146097 days are 400 years. */
static int64_t days_of(int year, int month, int day)
{
    int64_t from_march = (month + 9) % 12, y = year - (month <= 2), era = y / 400, of_era = y % 400;
    int64_t of_year = (153 * from_march + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool take_date(const char **at, const char *end, int64_t *days)
{
    static const int lengths[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    int year, month, day, length;

    if (!take(at, end, 4, 1, 9999, &year) || !take_char(at, end, "-") ||
        !take(at, end, 2, 1, 12, &month) || !take_char(at, end, "-"))
        return false;
    length = lengths[month - 1] +
             (month == 2 && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    if (!take(at, end, 2, 1, length, &day))
        return false;
    *days = days_of(year, month, day);
    return true;
}

/* .5 to .123456789 */
static bool take_fraction(const char **at, const char *end, int64_t *ns)
{
    int64_t unit = SECOND_NS;
    const char *from = *at;

    for (; *at < end && (unsigned char)(**at - '0') <= 9; ++*at) {
        unit /= 10;
        *ns += unit * (**at - '0');
    }
    return *at - from >= 1 && *at - from <= 9;
}

/* Z, +02, +0200, +02:00 or nothing. */
static bool take_zone(const char **at, const char *end, int64_t *seconds)
{
    int hours = 0, minutes = 0;
    bool west;

    if (*at == end || take_char(at, end, "Z"))
        return true;
    west = **at == '-';
    if (!take_char(at, end, "+-") || !take(at, end, 2, 0, 23, &hours))
        return false;
    if (*at < end) {
        (void)take_char(at, end, ":");
        if (!take(at, end, 2, 0, 59, &minutes))
            return false;
    }
    *seconds = (west ? -1 : 1) * (hours * 3600 + minutes * 60);
    return true;
}

enum fb_number fb_date_days(const char *at, const char *end, int64_t *days)
{
    int64_t found;

    trim(&at, &end);
    if (!take_date(&at, end, &found) || at != end)
        return FB_NUMBER_NONE;
    *days = found;
    return FB_NUMBER_OK;
}

enum fb_number fb_date_ns(const char *at, const char *end, int64_t *ns)
{
    int64_t days, zone = 0, fraction = 0, seconds, whole;
    int hour = 0, minute = 0, second = 0;

    trim(&at, &end);
    if (!take_date(&at, end, &days))
        return FB_NUMBER_NONE;
    if (at < end) {
        if (!take_char(&at, end, "T ") || !take(&at, end, 2, 0, 23, &hour) ||
            !take_char(&at, end, ":") || !take(&at, end, 2, 0, 59, &minute))
            return FB_NUMBER_NONE;
        if (take_char(&at, end, ":") && !take(&at, end, 2, 0, 59, &second))
            return FB_NUMBER_NONE;
        if (take_char(&at, end, ".") && !take_fraction(&at, end, &fraction))
            return FB_NUMBER_NONE;
        if (!take_zone(&at, end, &zone) || at != end)
            return FB_NUMBER_NONE;
    }
    seconds = days * DAY_S + hour * 3600 + minute * 60 + second - zone;
    if (seconds < 0 && fraction) { /* towards 0, or the earliest second would overflow */
        seconds++;
        fraction -= SECOND_NS;
    }
    if (__builtin_mul_overflow(seconds, SECOND_NS, &whole) ||
        __builtin_add_overflow(whole, fraction, &whole) || whole == INT64_MIN)
        return FB_NUMBER_RANGE; /* INT64_MIN is NumPy's "not a time" */
    *ns = whole;
    return FB_NUMBER_OK;
}
