#include "order/permutation.h"

#include <assert.h>
#include <math.h>

#include "base/size.h"
#include "order/permutation_wide.h"

/* In small domains six rounds do not reach all n! permutations evenly (counted for n = 5, 6, 7),
 * and two odd radices only half of them. Nobody shuffles enough so small sets for the cost to
 * matter. */
#define FEW 256
#define MOST ((uint64_t)1 << 40) /* more, and the reciprocal would not be exact; a, b < 2^32, too */

/* A number below `radix` from a half and its round's key. Two multiplications mix enough: only the
 * high bits are used. */
static inline uint64_t round_value(uint64_t half, uint64_t key, uint64_t radix)
{
    uint64_t mixed = (half + key) * FB_PERMUTATION_MIX_1;

    mixed = (mixed ^ (mixed >> 32)) * FB_PERMUTATION_MIX_2;
    return fb_high_product(mixed ^ (mixed >> 29), radix);
}

static inline uint64_t plus(uint64_t x, uint64_t y, uint64_t radix)
{
    uint64_t sum = x + y;

    return sum >= radix ? sum - radix : sum;
}

static inline uint64_t minus(uint64_t x, uint64_t y, uint64_t radix)
{
    return x >= y ? x - y : x + radix - y;
}

struct fb_permutation fb_permutation_make(uint64_t n, uint64_t key)
{
    struct fb_permutation made = { .n = n, .rounds = 6, .key = key };

    assert(n >= 1 && n <= MOST);
    made.a = (uint64_t)sqrt((double)n);
    while (made.a * made.a < n)
        made.a++;
    if (n <= FEW) {
        made.rounds = 24;
        made.a += made.a & 1;
    }
    /* At least 2, so that the reciprocal fits in 64 bits; the walk leaves out what is too much. */
    made.b = fb_max(2, (n + made.a - 1) / made.a);
    made.reciprocal = UINT64_MAX / made.b + 1;
    return made;
}

uint64_t fb_permutation_apply(const struct fb_permutation *permutation, uint64_t x)
{
    const uint64_t a = permutation->a, b = permutation->b, key = permutation->key;

    assert(x < permutation->n);
    do {
        uint64_t high = fb_permutation_divide(permutation, x), low = x - high * b;

        for (uint64_t i = 0; i < permutation->rounds; i += 2) {
            high = plus(high, round_value(low, key + i * FB_PERMUTATION_STEP, a), a);
            low = plus(low, round_value(high, key + (i + 1) * FB_PERMUTATION_STEP, b), b);
        }
        x = high * b + low;
    } while (x >= permutation->n);
    return x;
}

/* Four values side by side, once through the rounds; what is not below n then walks on alone. */
static inline void apply_four(const struct fb_permutation *permutation, uint64_t x[4])
{
    const uint64_t a = permutation->a, b = permutation->b, key = permutation->key;
    uint64_t high[4], low[4];

    for (unsigned k = 0; k < 4; k++) {
        high[k] = fb_permutation_divide(permutation, x[k]);
        low[k] = x[k] - high[k] * b;
    }
    for (uint64_t i = 0; i < permutation->rounds; i += 2) {
        for (unsigned k = 0; k < 4; k++)
            high[k] = plus(high[k], round_value(low[k], key + i * FB_PERMUTATION_STEP, a), a);
        for (unsigned k = 0; k < 4; k++)
            low[k] = plus(low[k], round_value(high[k], key + (i + 1) * FB_PERMUTATION_STEP, b), b);
    }
    for (unsigned k = 0; k < 4; k++)
        x[k] = high[k] * b + low[k];
}

/* One value through the rounds until it is below n; it was at least once. */
static uint64_t walk_on(const struct fb_permutation *permutation, uint64_t x)
{
    while (x >= permutation->n) {
        uint64_t four[4] = { x, 0, 0, 0 };

        apply_four(permutation, four);
        x = four[0];
    }
    return x;
}

void fb_permutation_apply_many(const struct fb_permutation *permutation, uint64_t *x,
                               uint64_t count)
{
    uint64_t wide = fb_permutation_has_wide() ? count - count % FB_PERMUTATION_WIDE : 0, i = 0;

    for (; i < wide; i += FB_PERMUTATION_WIDE) {
        fb_permutation_rounds_wide(permutation, x + i);
        for (unsigned k = 0; k < FB_PERMUTATION_WIDE; k++)
            x[i + k] = walk_on(permutation, x[i + k]);
    }
    for (; i + 4 <= count; i += 4) {
        apply_four(permutation, x + i);
        for (unsigned k = 0; k < 4; k++)
            x[i + k] = walk_on(permutation, x[i + k]);
    }
    for (; i < count; i++)
        x[i] = fb_permutation_apply(permutation, x[i]);
}

uint64_t fb_permutation_invert(const struct fb_permutation *permutation, uint64_t y)
{
    const uint64_t a = permutation->a, b = permutation->b, key = permutation->key;

    assert(y < permutation->n);
    do {
        uint64_t high = fb_permutation_divide(permutation, y), low = y - high * b;

        for (uint64_t i = permutation->rounds; i > 0; i -= 2) {
            low = minus(low, round_value(high, key + (i - 1) * FB_PERMUTATION_STEP, b), b);
            high = minus(high, round_value(low, key + (i - 2) * FB_PERMUTATION_STEP, a), a);
        }
        y = high * b + low;
    } while (y >= permutation->n);
    return y;
}
