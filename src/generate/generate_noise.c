#include "generate/generate_noise.h"

#define UNIT (1.0f / 16777216.0f) /* 2^-24 */
#define METRE (80.0f / 8388608.0f)

/* The upper and the lower half of one draw give 24 bits each. */
static inline int32_t high(uint64_t bits)
{
    return (int32_t)(bits >> 40);
}

static inline int32_t low(uint64_t bits)
{
    return (int32_t)((uint32_t)bits >> 8);
}

void fb_noise_unit(float *out, uint64_t key, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += 2) {
        uint64_t bits = fb_noise_bits(key, (first + i) / 2);

        out[i] = (float)high(bits) * UNIT;
        if (i + 1 < count)
            out[i + 1] = (float)low(bits) * UNIT;
    }
}

void fb_noise_normal(float *out, uint64_t key, uint64_t first, uint64_t count)
{
    const float scale = 1.0f / FB_BELL_SIGMA;

    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)fb_noise_bell(key, first + i) * scale;
}

void fb_noise_points(float *out, uint64_t key, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i + 4 <= count; i += 4) {
        uint64_t a = fb_noise_bits(key, (first + i) / 2);
        uint64_t b = fb_noise_bits(key, (first + i) / 2 + 1);

        out[i] = (float)(high(a) - 8388608) * METRE;
        out[i + 1] = (float)(low(a) - 8388608) * METRE;
        out[i + 2] = (float)(high(b) - 8388608) * METRE;
        out[i + 3] = (float)low(b) * UNIT;
    }
}
