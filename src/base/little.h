/* little.h -- little-endian numbers of a file, wherever they lie. */
#ifndef FB_BASE_LITTLE_H
#define FB_BASE_LITTLE_H
#include <stdint.h>

static inline uint32_t fb_le16(const uint8_t *at)
{
    return (uint32_t)at[1] << 8 | at[0];
}
static inline uint32_t fb_le32(const uint8_t *at)
{
    return fb_le16(at + 2) << 16 | fb_le16(at);
}
#endif
