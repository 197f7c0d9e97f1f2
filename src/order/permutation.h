/*
 * permutation.h -- a keyed bijection on [0, n), both ways, without a table.
 *
 * A Feistel network of six rounds on pairs (high < a, low < b), a = ceil(sqrt n), b = ceil(n / a):
 * each round adds a keyed hash of one half to the other, modulo its radix. The few values of
 * [0, a * b) that are not below n are walked through again; that happens with a probability below
 * 1 / sqrt n. Fewer rounds show in a chi-square test, six do not; small domains take more.
 */
#ifndef FB_ORDER_PERMUTATION_H
#define FB_ORDER_PERMUTATION_H
#include <stdint.h>

/* A value: copied freely, nothing to release. */
struct fb_permutation {
    uint64_t n, a, b;
    uint64_t reciprocal; /* ceil(2^64 / b): x / b without a division */
    uint64_t rounds, key;
};

/* 1 <= n <= 2^40. */
struct fb_permutation fb_permutation_make(uint64_t n, uint64_t key);
/* The same domain under another key: cheap. */
static inline struct fb_permutation fb_permutation_keyed(struct fb_permutation permutation,
                                                         uint64_t key)
{
    permutation.key = key;
    return permutation;
}

/* x < n in, one below n out; invert(apply(x)) == x. */
uint64_t fb_permutation_apply(const struct fb_permutation *permutation, uint64_t x);
/* The same for many, in place: several times as fast, because each step waits for the one before it
 * and many can wait side by side. */
void fb_permutation_apply_many(const struct fb_permutation *permutation, uint64_t *x,
                               uint64_t count);
uint64_t fb_permutation_invert(const struct fb_permutation *permutation, uint64_t y);
#endif
