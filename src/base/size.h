/* size.h -- arithmetic on sizes that come from files: overflow is an answer, not an accident;
 * and the one way sizes are read and written for people. */
#ifndef FB_BASE_SIZE_H
#define FB_BASE_SIZE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FB_KIB ((uint64_t)1024)
#define FB_MIB (1024 * FB_KIB)
#define FB_GIB (1024 * FB_MIB)

/* *out = a * b or a + b; false if that does not fit (then *out is undefined). */
static inline bool fb_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool fb_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
/* Up to the next multiple of `step`, a power of two. Saturates at the highest multiple. */
static inline uint64_t fb_round_up(uint64_t bytes, uint64_t step)
{
    return bytes > UINT64_MAX - step ? UINT64_MAX & ~(step - 1) : (bytes + step - 1) & ~(step - 1);
}
static inline uint64_t fb_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t fb_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* "12GiB", "50GB", "1.5 MiB", "4096" (bytes). B, kB/KB, MB, GB, TB are powers of 1000, KiB ...
 * TiB of 1024. False if it is no size or does not fit in 63 bits. */
bool fb_size_parse(const char *text, uint64_t *bytes);
/* "1.5 GiB", "640 B": for people. Returns `text`. */
char *fb_size_text(uint64_t bytes, char text[32]);
#endif
