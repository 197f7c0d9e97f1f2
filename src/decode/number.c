#include "decode/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What is written: (-1)^negative * digits * 10^exponent. */
struct decimal {
    bool negative;
    bool any;   /* there is a digit at all */
    bool exact; /* all digits are in `digits` */
    uint64_t digits;
    unsigned count; /* of significant digits */
    int exponent;
};

#define DIGITS_MAX 19 /* 10^19 - 1 fits in 64 bits */
#define EXPONENT_MAX 100000

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static inline bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

static void trim(const char **at, const char **end)
{
    while (*at < *end && is_space(**at))
        ++*at;
    while (*at < *end && is_space((*end)[-1]))
        --*end;
}

/* Digits behind those that `decimal` already has; `step` is what each does to the exponent: 0
 * before the point, -1 behind it. */
static inline const char *take_digits(struct decimal *decimal, const char *at, const char *end,
                                      int step)
{
    const char *from = at;
    uint64_t digits = decimal->digits;
    unsigned count = decimal->count;

    for (; at < end && is_digit(*at); at++) {
        unsigned digit = (unsigned)(*at - '0');

        if (count < DIGITS_MAX) {
            digits = digits * 10 + digit;
            count += digits != 0;
            decimal->exponent += step;
        } else {
            decimal->exact = false;
            decimal->exponent += 1 + step;
        }
    }
    decimal->digits = digits;
    decimal->count = count;
    decimal->any |= at != from;
    return at;
}

/* NULL if it is malformed. */
static const char *take_exponent(struct decimal *decimal, const char *at, const char *end)
{
    bool negative = false;
    int value = 0;

    if (++at < end && (*at == '-' || *at == '+'))
        negative = *at++ == '-';
    if (at == end || !is_digit(*at))
        return NULL;
    for (; at < end && is_digit(*at); at++)
        if (value < EXPONENT_MAX)
            value = value * 10 + (*at - '0');
    decimal->exponent += negative ? -value : value;
    return at;
}

static inline bool take_decimal(struct decimal *decimal, const char *at, const char *end)
{
    *decimal = (struct decimal){ .exact = true };
    if (at < end && (*at == '-' || *at == '+'))
        decimal->negative = *at++ == '-';
    at = take_digits(decimal, at, end, 0);
    if (at < end && *at == '.')
        at = take_digits(decimal, at + 1, end, -1);
    if (!decimal->any)
        return false;
    if (at < end && (*at == 'e' || *at == 'E'))
        at = take_exponent(decimal, at, end);
    return at == end;
}

/* ---- Slow: whatever the quick ways cannot tell ---- */

static pthread_once_t locale_once = PTHREAD_ONCE_INIT;
static locale_t plain_locale;

static void make_locale(void)
{
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static enum fb_number read_slowly(const char *at, const char *end, double *value)
{
    char text[FB_NUMBER_BYTES + 1];
    size_t length = (size_t)(end - at);
    double read;

    if (length > FB_NUMBER_BYTES)
        return FB_NUMBER_NONE;
    memcpy(text, at, length);
    text[length] = '\0';
    pthread_once(&locale_once, make_locale);
    read = plain_locale ? strtod_l(text, NULL, plain_locale) : strtod(text, NULL);
    if (isinf(read))
        return FB_NUMBER_RANGE;
    *value = read;
    return FB_NUMBER_OK;
}

static bool is_word(const char *at, const char *end, const char *word)
{
    return (size_t)(end - at) == strlen(word) && strncasecmp(at, word, strlen(word)) == 0;
}

static enum fb_number read_word(const char *at, const char *end, double *value)
{
    double sign = 1;

    if (at < end && (*at == '-' || *at == '+'))
        sign = *at++ == '-' ? -1 : 1;
    if (is_word(at, end, "inf") || is_word(at, end, "infinity"))
        *value = sign * (double)INFINITY;
    else if (is_word(at, end, "nan"))
        *value = (double)NAN;
    else
        return FB_NUMBER_NONE;
    return FB_NUMBER_OK;
}

/* ---- Quick ---- */

/* Both factors are exact, so that one operation rounds once (Clinger). */
static inline bool read_exactly(const struct decimal *decimal, double *value)
{
    static const double powers[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };

    if (!decimal->exact || decimal->digits > (uint64_t)1 << 53 || decimal->exponent < -22 ||
        decimal->exponent > 22)
        return false;
    *value = decimal->exponent < 0 ? (double)decimal->digits / powers[-decimal->exponent]
                                   : (double)decimal->digits * powers[decimal->exponent];
    return true;
}

/* The same in 64 bits: 10^27 = 5^27 * 2^27 is exact there. What was rounded to 64 bits may be
 * rounded again to 53 unless it lies just in the middle between two of them, where it is not known
 * on which side the number itself is: one in 2048. */
static bool read_extended(const struct decimal *decimal, double *value)
{
#if LDBL_MANT_DIG == 64
    static const long double powers[] = { 1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                          1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                          1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
                                          1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L };
    long double wide = (long double)decimal->digits;
    uint64_t bits;

    if (!decimal->exact || decimal->exponent < -27 || decimal->exponent > 27)
        return false;
    if (decimal->exponent < 0)
        wide /= powers[-decimal->exponent];
    else
        wide *= powers[decimal->exponent];
    memcpy(&bits, &wide, sizeof(bits));
    if ((bits & 0x7ff) == 0x400)
        return false;
    *value = (double)wide;
    return true;
#else
    (void)decimal;
    (void)value;
    return false;
#endif
}

enum fb_number fb_number_f64(const char *at, const char *end, double *value)
{
    struct decimal decimal;
    double read = 0;

    if (at < end && (is_space(*at) || is_space(end[-1])))
        trim(&at, &end);
    if (!take_decimal(&decimal, at, end))
        return read_word(at, end, value);
    if (decimal.digits != 0 && !read_exactly(&decimal, &read) && !read_extended(&decimal, &read))
        return read_slowly(at, end, value);
    *value = decimal.negative ? -read : read;
    return FB_NUMBER_OK;
}

/* A whole number of at most `limit`, or limit + 1 if it is negative. */
static enum fb_number read_whole(const char *at, const char *end, uint64_t limit, bool *negative,
                                 uint64_t *value)
{
    uint64_t number = 0;
    bool over = false;

    *negative = false;
    if (at < end && (is_space(*at) || is_space(end[-1])))
        trim(&at, &end);
    if (at < end && (*at == '-' || *at == '+'))
        *negative = *at++ == '-';
    if (at == end)
        return FB_NUMBER_NONE;
    limit += *negative && limit < UINT64_MAX;
    for (; at < end; at++) {
        unsigned digit = (unsigned char)(*at - '0');

        if (digit > 9)
            return FB_NUMBER_NONE;
        over = over || number > (limit - digit) / 10;
        number = number * 10 + digit;
    }
    *value = number;
    return over ? FB_NUMBER_RANGE : FB_NUMBER_OK;
}

enum fb_number fb_number_i64(const char *at, const char *end, int64_t *value)
{
    uint64_t number;
    bool negative;
    enum fb_number found = read_whole(at, end, INT64_MAX, &negative, &number);

    if (found == FB_NUMBER_OK)
        *value = (int64_t)(negative ? 0 - number : number);
    return found;
}

enum fb_number fb_number_u64(const char *at, const char *end, uint64_t *value)
{
    uint64_t number;
    bool negative;
    enum fb_number found = read_whole(at, end, UINT64_MAX, &negative, &number);

    if (found == FB_NUMBER_OK && negative && number)
        found = FB_NUMBER_RANGE;
    if (found == FB_NUMBER_OK)
        *value = number;
    return found;
}
