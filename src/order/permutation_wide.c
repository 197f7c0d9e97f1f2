/* permutation_wide.c -- the rounds for sixteen values at once, where the CPU can. */
#include "order/permutation_wide.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDE __attribute__((target("avx2")))
#define VECTORS (FB_PERMUTATION_WIDE / 4)

/* x * y modulo 2^64, from products of 32 bits; y_high is y >> 32. */
WIDE static inline __m256i product(__m256i x, __m256i y, __m256i y_high)
{
    __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), y),
                                     _mm256_mul_epu32(x, y_high));

    return _mm256_add_epi64(_mm256_mul_epu32(x, y), _mm256_slli_epi64(cross, 32));
}

/* The same as round_value in permutation.c. The radix is below 2^32, so that the high half of a
 * product of 128 bits takes two of 64. */
WIDE static inline __m256i round_values(__m256i half, uint64_t key, __m256i radix)
{
    const __m256i first = _mm256_set1_epi64x((long long)FB_PERMUTATION_MIX_1);
    const __m256i second = _mm256_set1_epi64x((long long)FB_PERMUTATION_MIX_2);
    __m256i mixed = _mm256_add_epi64(half, _mm256_set1_epi64x((long long)key));

    mixed = product(mixed, first, _mm256_srli_epi64(first, 32));
    mixed = _mm256_xor_si256(mixed, _mm256_srli_epi64(mixed, 32));
    mixed = product(mixed, second, _mm256_srli_epi64(second, 32));
    mixed = _mm256_xor_si256(mixed, _mm256_srli_epi64(mixed, 29));
    return _mm256_srli_epi64(
        _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), radix),
                         _mm256_srli_epi64(_mm256_mul_epu32(mixed, radix), 32)),
        32);
}

/* Both below the radix: a sum that is, too, wraps to more than itself when it is taken off. */
WIDE static inline __m256i sums(__m256i x, __m256i y, __m256i radix)
{
    __m256i sum = _mm256_add_epi32(x, y);

    return _mm256_min_epu32(sum, _mm256_sub_epi32(sum, radix));
}

WIDE void fb_permutation_rounds_wide(const struct fb_permutation *permutation, uint64_t *x)
{
    const __m256i a = _mm256_set1_epi64x((long long)permutation->a);
    const __m256i b = _mm256_set1_epi64x((long long)permutation->b);
    __m256i high[VECTORS], low[VECTORS];
    uint64_t parts[FB_PERMUTATION_WIDE];

    for (unsigned k = 0; k < FB_PERMUTATION_WIDE; k++)
        parts[k] = fb_permutation_divide(permutation, x[k]);
    for (unsigned k = 0; k < VECTORS; k++) {
        high[k] = _mm256_loadu_si256((const __m256i *)(const void *)(parts + 4 * k));
        low[k] = _mm256_loadu_si256((const __m256i *)(const void *)(x + 4 * k));
        low[k] = _mm256_sub_epi64(low[k], _mm256_mul_epu32(high[k], b));
    }
    for (uint64_t i = 0; i < permutation->rounds; i += 2) {
        uint64_t key = permutation->key + i * FB_PERMUTATION_STEP;

        for (unsigned k = 0; k < VECTORS; k++)
            high[k] = sums(high[k], round_values(low[k], key, a), a);
        for (unsigned k = 0; k < VECTORS; k++)
            low[k] = sums(low[k], round_values(high[k], key + FB_PERMUTATION_STEP, b), b);
    }
    for (unsigned k = 0; k < VECTORS; k++)
        _mm256_storeu_si256((__m256i *)(void *)(x + 4 * k),
                            _mm256_add_epi64(_mm256_mul_epu32(high[k], b), low[k]));
}

bool fb_permutation_has_wide(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
void fb_permutation_rounds_wide(const struct fb_permutation *permutation, uint64_t *x)
{
    (void)permutation;
    (void)x;
}

bool fb_permutation_has_wide(void)
{
    return false;
}
#endif
