/* clock.h -- monotonic time, and the time of day. */
#ifndef FB_BASE_CLOCK_H
#define FB_BASE_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline uint64_t fb_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nanoseconds since 1970. */
static inline uint64_t fb_wall_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#endif
