/*
 * generate_noise.h -- numbers from a counter: value i of stream `key`, in any order, in parallel.
 *
 * Each float takes one rounding at most (an integer below 2^24 times a constant), so no compiler
 * may fuse or reorder it into another result.
 */
#ifndef FB_GENERATE_NOISE_H
#define FB_GENERATE_NOISE_H
#include "base/mix.h"

/* The sum of eight 16-bit draws: bell-shaped, mean 0, standard deviation FB_BELL_SIGMA, within
 * 4.9 sigma. */
#define FB_BELL_MEAN 262140
#define FB_BELL_SIGMA 53510

static inline uint64_t fb_noise_bits(uint64_t key, uint64_t i)
{
    return fb_mix(key + i * 0x9e3779b97f4a7c15u);
}

static inline int32_t fb_noise_bell(uint64_t key, uint64_t i)
{
    const uint64_t lanes = 0x0000ffff0000ffffu;
    uint64_t a = fb_noise_bits(key, 2 * i), b = fb_noise_bits(key, 2 * i + 1);
    uint64_t sum = (a & lanes) + ((a >> 16) & lanes) + (b & lanes) + ((b >> 16) & lanes);

    return (int32_t)((uint32_t)sum + (uint32_t)(sum >> 32)) - FB_BELL_MEAN;
}

/* Floats [first, first + count) of the stream; first and count even (but the last count). */
void fb_noise_unit(float *out, uint64_t key, uint64_t first, uint64_t count);   /* [0, 1) */
void fb_noise_normal(float *out, uint64_t key, uint64_t first, uint64_t count); /* sigma 1 */
/* Points of four: x, y, z in [-80, 80), intensity in [0, 1); multiples of four. */
void fb_noise_points(float *out, uint64_t key, uint64_t first, uint64_t count);
#endif
