/*
 * cast.c -- floating point to floating point, rounded once, to nearest even.
 *
 * Each conversion is one small function on bits, without branches that a compiler could not turn
 * into selects; the loops around them exist twice, for any CPU and for AVX2 + F16C. A NaN keeps its
 * sign and the upper bits of its payload and becomes quiet, as the conversion instructions of x86
 * and ARM do, so that every path gives the same bits.
 */
#include "decode/cast.h"

#include <assert.h>
#include <string.h>

#include "config/config.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define HAVE_F16C 1
#endif

#define INLINE static inline __attribute__((always_inline))

/* Numbers that may stand anywhere in memory. */
typedef uint16_t __attribute__((aligned(1), may_alias)) any_u16;
typedef float __attribute__((aligned(1), may_alias)) any_f32;
typedef double __attribute__((aligned(1), may_alias)) any_f64;

INLINE uint32_t f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

INLINE float bits_f32(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Both are computed, one is kept: a branch would keep the loops from being vectorised. */
INLINE uint32_t pick(bool first, uint32_t one, uint32_t two)
{
    uint32_t mask = -(uint32_t)first;

    return (one & mask) | (two & ~mask);
}

INLINE uint16_t f32_to_f16(float value)
{
    uint32_t bits = f32_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    /* Exponent moved from bias 127 to 15, then half of the lowest kept bit less one, plus that bit
     * itself: a tie goes to even, and a carry out of the fraction is the next power of two. */
    uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    /* 0.5f has its lowest bit where f16's subnormals have theirs: the addition rounds. */
    uint32_t small = f32_bits(bits_f32(size) + 0.5f) - f32_bits(0.5f);
    uint32_t nan = 0x7e00 | (size >> 13 & 0x3ff);
    uint32_t result = pick(size < 0x38800000, small, normal); /* below 2^-14 */

    result = pick(size >= 0x47800000, 0x7c00, result); /* from 65536 on */
    result = pick(size > 0x7f800000, nan, result);
    return (uint16_t)(sign | result);
}

INLINE float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;
    uint32_t normal = (size << 13) + (112u << 23);
    uint32_t small = f32_bits((float)(int32_t)size * 0x1p-24f);
    uint32_t special = 0x7f800000 | size << 13 | pick(size > 0x7c00, 0x400000, 0);
    uint32_t result = pick(size < 0x400, small, normal);

    result = pick(size >= 0x7c00, special, result);
    return bits_f32(sign | result);
}

INLINE uint16_t f32_to_bf16(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;

    return (uint16_t)pick((bits & 0x7fffffff) > 0x7f800000, nan, rounded);
}

INLINE float bf16_to_f32(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;

    return bits_f32(bits | pick((bits & 0x7fffffff) > 0x7f800000, 0x400000, 0));
}

/* To f32 by way of fewer bits, rounded "to odd": all that is cut off makes the last bit kept a 1, so
 * that rounding once more, to at least two bits less, gives what rounding once would have given.
 * What f32 cannot hold exactly even so is too small for the type it is on its way to. */
INLINE float f64_to_odd(double value, unsigned cut)
{
    uint64_t bits, low, below = ((uint64_t)1 << cut) - 1;

    memcpy(&bits, &value, sizeof(bits));
    low = bits & below;
    bits = (bits & ~below) | ((low + below) & (below + 1)); /* carries if low is not 0 */
    memcpy(&value, &bits, sizeof(value));
    return (float)value;
}

INLINE float same_f32(float value)
{
    return value;
}

INLINE float f64_to_f32(double value)
{
    return (float)value;
}

/* Every conversion that is more than a copy: name, element type from and to, the steps. */
#define CASTS(X)                                                                \
    X(f32_to_f16, any_f32, any_u16, f32_to_f16(value))                          \
    X(f32_to_bf16, any_f32, any_u16, f32_to_bf16(value))                        \
    X(f32_to_f64, any_f32, any_f64, (double)same_f32(value))                    \
    X(f16_to_f32, any_u16, any_f32, f16_to_f32(value))                          \
    X(f16_to_bf16, any_u16, any_u16, f32_to_bf16(f16_to_f32(value)))            \
    X(f16_to_f64, any_u16, any_f64, (double)f16_to_f32(value))                  \
    X(bf16_to_f32, any_u16, any_f32, bf16_to_f32(value))                        \
    X(bf16_to_f16, any_u16, any_u16, f32_to_f16(bf16_to_f32(value)))            \
    X(bf16_to_f64, any_u16, any_f64, (double)bf16_to_f32(value))                \
    X(f64_to_f32, any_f64, any_f32, f64_to_f32(value))                          \
    X(f64_to_f16, any_f64, any_u16, f32_to_f16(f64_to_odd(value, 29)))              \
    X(f64_to_bf16, any_f64, any_u16, f32_to_bf16(f64_to_odd(value, 43)))

typedef void (*cast_fn)(void *restrict to, const void *restrict from, uint64_t count);

#define CAST_LOOP(suffix, attributes, name, from_type, to_type, expression)                     \
    attributes static void name##suffix(void *restrict to, const void *restrict from,           \
                                        uint64_t count)                                         \
    {                                                                                           \
        for (uint64_t i = 0; i < count; i++) {                                                  \
            __typeof__((from_type)0) value = ((const from_type *)from)[i];                      \
                                                                                                \
            ((to_type *)to)[i] = expression;                                                    \
        }                                                                                       \
    }

#define X(name, from_type, to_type, expression) \
    CAST_LOOP(_any, , name, from_type, to_type, expression)
CASTS(X)
#undef X

#ifdef HAVE_F16C
#define WIDE __attribute__((target("avx2,f16c")))
#define X(name, from_type, to_type, expression) \
    CAST_LOOP(_avx2, WIDE, name, from_type, to_type, expression)
CASTS(X)
#undef X

WIDE static void f32_to_f16_wide(void *restrict to, const void *restrict from, uint64_t count)
{
    uint64_t i = 0;

    for (; i + 8 <= count; i += 8) {
        __m256 values = _mm256_loadu_ps((const float *)from + i);

        _mm_storeu_si128((__m128i *)(void *)((uint16_t *)to + i), _mm256_cvtps_ph(values, 0));
    }
    f32_to_f16_avx2((uint16_t *)to + i, (const float *)from + i, count - i);
}

WIDE static void f16_to_f32_wide(void *restrict to, const void *restrict from, uint64_t count)
{
    uint64_t i = 0;

    for (; i + 8 <= count; i += 8) {
        const void *halves = (const uint16_t *)from + i;

        _mm256_storeu_ps((float *)to + i, _mm256_cvtph_ps(_mm_loadu_si128(halves)));
    }
    f16_to_f32_avx2((float *)to + i, (const uint16_t *)from + i, count - i);
}

/* Asked once: in a virtual machine the question itself takes longer than casting a small array. */
static bool cpu_is_wide(void)
{
    static _Atomic int known; /* 0 not yet, 1 no, 2 yes */
    unsigned a, b, c = 0, d;

    if (!known)
        known = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C
                    ? 2 : 1;
    return known == 2;
}
#endif

/* In the order of the table: [from][to], NULL where there is nothing to convert. */
enum { F16, BF16, F32, F64, FLOATS, NOT_FLOAT = -1 };

static const cast_fn plain[FLOATS][FLOATS] = {
    [F16] = { [BF16] = f16_to_bf16_any, [F32] = f16_to_f32_any, [F64] = f16_to_f64_any },
    [BF16] = { [F16] = bf16_to_f16_any, [F32] = bf16_to_f32_any, [F64] = bf16_to_f64_any },
    [F32] = { [F16] = f32_to_f16_any, [BF16] = f32_to_bf16_any, [F64] = f32_to_f64_any },
    [F64] = { [F16] = f64_to_f16_any, [BF16] = f64_to_bf16_any, [F32] = f64_to_f32_any },
};
#ifdef HAVE_F16C
static const cast_fn wide[FLOATS][FLOATS] = {
    [F16] = { [BF16] = f16_to_bf16_avx2, [F32] = f16_to_f32_wide, [F64] = f16_to_f64_avx2 },
    [BF16] = { [F16] = bf16_to_f16_avx2, [F32] = bf16_to_f32_avx2, [F64] = bf16_to_f64_avx2 },
    [F32] = { [F16] = f32_to_f16_wide, [BF16] = f32_to_bf16_avx2, [F64] = f32_to_f64_avx2 },
    [F64] = { [F16] = f64_to_f16_avx2, [BF16] = f64_to_bf16_avx2, [F32] = f64_to_f32_avx2 },
};
#endif

static int float_number(forebay_dtype dtype)
{
    switch (dtype) {
    case FOREBAY_F16:
        return F16;
    case FOREBAY_BF16:
        return BF16;
    case FOREBAY_F32:
        return F32;
    case FOREBAY_F64:
        return F64;
    default:
        return NOT_FLOAT;
    }
}

forebay_dtype fb_cast_target(int cast, forebay_dtype from)
{
    if (float_number(from) == NOT_FLOAT)
        return from;
    switch (cast) {
    case FB_CAST_F32:
        return FOREBAY_F32;
    case FB_CAST_F16:
        return FOREBAY_F16;
    case FB_CAST_BF16:
        return FOREBAY_BF16;
    default:
        return from;
    }
}

static void cast_by(const cast_fn table[FLOATS][FLOATS], void *to, forebay_dtype to_type,
                    const void *from, forebay_dtype from_type, uint64_t count)
{
    int a = float_number(from_type), b = float_number(to_type);

    if (to_type == from_type) {
        if (count)
            memcpy(to, from, count * forebay_dtype_bytes(from_type));
        return;
    }
    assert(a != NOT_FLOAT && b != NOT_FLOAT); /* fb_cast_target() never asks for such */
    table[a][b](to, from, count);
}

void fb_cast_plain(void *to, forebay_dtype to_type, const void *from, forebay_dtype from_type,
                   uint64_t count)
{
    cast_by(plain, to, to_type, from, from_type, count);
}

void fb_cast(void *to, forebay_dtype to_type, const void *from, forebay_dtype from_type,
             uint64_t count)
{
#ifdef HAVE_F16C
    if (cpu_is_wide()) {
        cast_by(wide, to, to_type, from, from_type, count);
        return;
    }
#endif
    fb_cast_plain(to, to_type, from, from_type, count);
}
