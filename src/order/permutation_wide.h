/* permutation_wide.h -- what permutation.c and its form for wide registers share. */
#ifndef FB_ORDER_PERMUTATION_WIDE_H
#define FB_ORDER_PERMUTATION_WIDE_H
#include <stdbool.h>

#include "base/mix.h"
#include "order/permutation.h"

#define FB_PERMUTATION_WIDE 16                      /* values at once */
#define FB_PERMUTATION_STEP 0x9e3779b97f4a7c15u     /* between the rounds' keys */
#define FB_PERMUTATION_MIX_1 0xbf58476d1ce4e5b9u
#define FB_PERMUTATION_MIX_2 0x94d049bb133111ebu

static inline uint64_t fb_high_product(uint64_t x, uint64_t y)
{
    return (uint64_t)(((fb_u128)x * y) >> 64);
}

/* x / b */
static inline uint64_t fb_permutation_divide(const struct fb_permutation *permutation, uint64_t x)
{
    return fb_high_product(x, permutation->reciprocal);
}

bool fb_permutation_has_wide(void);
/* Once through the rounds; what comes out may not be below n. Only if there is such a form. */
void fb_permutation_rounds_wide(const struct fb_permutation *permutation, uint64_t *x);
#endif
