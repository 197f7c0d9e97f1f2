/* search.h -- the one search in stretches that lie behind each other. */
#ifndef FB_BASE_SEARCH_H
#define FB_BASE_SEARCH_H
#include <stdint.h>

/* Of `count` stretches with these ends, rising: the one that has `value`, the first that ends behind
 * it; the last one if none does, 0 if there are none. With starts, give those from the second on. */
static inline uint64_t fb_range_of(const uint64_t *ends, uint64_t count, uint64_t value)
{
    uint64_t low = 0, high = count ? count - 1 : 0;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (ends[middle] > value)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
#endif
