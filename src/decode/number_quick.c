/* number_quick.c -- short plain numbers, sixteen characters at a time; others go to number.c. */
#include "decode/number.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>

#define QUICK __attribute__((target("sse4.1")))
#define TEXT_MOST 16  /* characters behind the sign */
#define DIGITS_MOST 15 /* always exact in a double */

/* What is written: (-1)^negative * digits / 10^behind. */
struct plain {
    bool negative;
    uint64_t digits;
    unsigned behind;
};

/* Sixteen digits, a byte each, the first one first. */
QUICK static inline uint64_t add_up(__m128i digits)
{
    const __m128i tens = _mm_set1_epi16(1 << 8 | 10), hundreds = _mm_set1_epi32(1 << 16 | 100);
    const __m128i myriads = _mm_set1_epi32(1 << 16 | 10000);
    __m128i fours = _mm_madd_epi16(_mm_maddubs_epi16(digits, tens), hundreds);
    __m128i eights = _mm_madd_epi16(_mm_packus_epi32(fours, fours), myriads);
    uint64_t both = (uint64_t)_mm_cvtsi128_si64(eights);

    return (both & UINT32_MAX) * 100000000u + (both >> 32);
}

/* [+-] digits [. digits] and nothing else, of no more characters than are looked at. */
QUICK static inline bool read_plain(const char *at, const char *end, struct plain *plain)
{
    const __m128i places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i values, digit, before;
    unsigned length, others, point, count;

    plain->negative = *at == '-';
    at += plain->negative || *at == '+';
    if ((uint64_t)(end - at) - 1 >= TEXT_MOST) /* and if the sign was already behind the end */
        return false;
    length = (unsigned)(end - at);
    values = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(const void *)at), _mm_set1_epi8('0'));
    digit = _mm_cmpeq_epi8(_mm_min_epu8(values, _mm_set1_epi8(9)), values);
    others = ~(unsigned)_mm_movemask_epi8(digit) & ((1u << length) - 1);
    point = others ? (unsigned)__builtin_ctz(others) : length;
    count = length - (others != 0);
    if (others && ((others & (others - 1)) || at[point] != '.'))
        return false;
    if (count - 1 >= DIGITS_MOST)
        return false;
    /* Without the point, then moved to the end with zeros before them: such places are negative. */
    before = _mm_cmpgt_epi8(_mm_set1_epi8((char)point), places);
    values = _mm_blendv_epi8(_mm_srli_si128(values, 1), values, before);
    values = _mm_shuffle_epi8(values, _mm_add_epi8(places, _mm_set1_epi8((char)(count - 16))));
    plain->digits = add_up(values);
    plain->behind = count - point;
    return true;
}

QUICK static bool quick_f64(const char *at, const char *end, double *value)
{
    static const double powers[] = { 1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
    struct plain plain;
    double read;

    if (!read_plain(at, end, &plain))
        return false;
    /* Both are exact, so that one operation rounds once. */
    read = (double)(int64_t)plain.digits / powers[plain.behind];
    *value = plain.negative ? -read : read;
    return true;
}

QUICK static bool quick_i64(const char *at, const char *end, int64_t *value)
{
    struct plain plain;

    if (!read_plain(at, end, &plain) || plain.behind || end[-1] == '.')
        return false;
    *value = plain.negative ? -(int64_t)plain.digits : (int64_t)plain.digits;
    return true;
}

enum fb_number fb_number_f64_padded(const char *at, const char *end, double *value)
{
    if (__builtin_cpu_supports("sse4.1") && quick_f64(at, end, value))
        return FB_NUMBER_OK;
    return fb_number_f64(at, end, value);
}

enum fb_number fb_number_i64_padded(const char *at, const char *end, int64_t *value)
{
    if (__builtin_cpu_supports("sse4.1") && quick_i64(at, end, value))
        return FB_NUMBER_OK;
    return fb_number_i64(at, end, value);
}
#else
enum fb_number fb_number_f64_padded(const char *at, const char *end, double *value)
{
    return fb_number_f64(at, end, value);
}

enum fb_number fb_number_i64_padded(const char *at, const char *end, int64_t *value)
{
    return fb_number_i64(at, end, value);
}
#endif
