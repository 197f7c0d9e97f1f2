/*
 * number.h -- decimal text to numbers, exactly: the f64 nearest to what is written (ties to even),
 * as Python's float() and strtod give it, whatever the locale.
 *
 * Spaces and tabs around the number are passed over. A number is [+-] digits [. digits]
 * [e[+-]digits] with at least one digit before the e, or inf, infinity or nan in any case. Nothing
 * else (no hex, no underscores).
 */
#ifndef FB_DECODE_NUMBER_H
#define FB_DECODE_NUMBER_H
#include <stdint.h>

#define FB_NUMBER_BYTES 1024 /* a longer text is no number */

enum fb_number {
    FB_NUMBER_OK,
    FB_NUMBER_NONE,  /* it is no number of this kind */
    FB_NUMBER_RANGE, /* it is one, but too large for the type */
};

/* The text is [at, end); *value is written only for OK. Any thread. */
enum fb_number fb_number_f64(const char *at, const char *end, double *value);
enum fb_number fb_number_i64(const char *at, const char *end, int64_t *value);
/* RANGE also for negative numbers. */
enum fb_number fb_number_u64(const char *at, const char *end, uint64_t *value);

/* The same where FB_NUMBER_PADDING bytes from `at` on may be read, whatever they are: short plain
 * numbers take a third of the time. */
#define FB_NUMBER_PADDING 17
enum fb_number fb_number_f64_padded(const char *at, const char *end, double *value);
enum fb_number fb_number_i64_padded(const char *at, const char *end, int64_t *value);
#endif
