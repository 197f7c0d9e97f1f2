/* window_count.h -- how many windows a recording has: one rule for loose files and for shards. */
#ifndef FB_SOURCE_WINDOW_COUNT_H
#define FB_SOURCE_WINDOW_COUNT_H

#include <stdbool.h>
#include <stdint.h>

/* Windows begin at 0, stride, 2 * stride, ...; the last one may be padded if it has a row. */
static inline uint64_t fb_window_count(uint64_t rows, uint64_t window, uint64_t stride, bool pad)
{
    uint64_t over, count;

    if (rows < window)
        return pad && rows > 0;
    over = rows - window;
    count = over / stride + 1;
    /* A stride larger than the window may jump over the rows that are left. */
    return count + (pad && over % stride && stride * count < rows);
}

#endif
