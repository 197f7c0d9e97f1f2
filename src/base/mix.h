/* mix.h -- hashing and the random draws that depend on (seed, epoch, sample) and nothing else. */
#ifndef FB_BASE_MIX_H
#define FB_BASE_MIX_H
#include <stdint.h>

/* The finisher of splitmix64: every bit of the result depends on every bit of x. */
static inline uint64_t fb_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t fb_mix2(uint64_t a, uint64_t b)
{
    return fb_mix(fb_mix(a) ^ (b + 0x632be59bd9b4e019u));
}

/* A stream of draws: {fb_mix2(fb_mix2(seed, epoch), sample)} is one sample's own. */
struct fb_random {
    uint64_t state;
};

static inline uint64_t fb_random_next(struct fb_random *random)
{
    uint64_t drawn = fb_mix(random->state);

    random->state += 0x9e3779b97f4a7c15u;
    return drawn;
}

__extension__ typedef unsigned __int128 fb_u128; /* an extension that gcc and clang share */

/* Uniform in [0, below); below > 0. Multiply-high: the bias is < below / 2^64. */
static inline uint64_t fb_random_below(struct fb_random *random, uint64_t below)
{
    return (uint64_t)(((fb_u128)fb_random_next(random) * below) >> 64);
}

/* Uniform in [0, 1). */
static inline double fb_random_unit(struct fb_random *random)
{
    return (double)(fb_random_next(random) >> 11) * 0x1p-53;
}
#endif
