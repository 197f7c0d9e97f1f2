/*
 * checksum.h -- the sum by which a consumer proves that it had every page of what was delivered.
 *
 * Of an array of n bytes: bytes 0, 4096, 8192, ... and byte n - 1, added up; of a set: the sum of
 * its arrays' sums modulo 2^64. So neither the order of samples nor the batches they came in
 * matter, and `forebay run` can be held against what `forebay generate` wrote.
 */
#ifndef FB_CHECKSUM_H
#define FB_CHECKSUM_H
#include <stdint.h>

#define FB_CHECKSUM_STEP 4096

/* The part of an array's sum that lies in bytes [offset, offset + bytes) of `total`: arrays that
 * are made piece by piece give the same sum as whole ones. */
static inline uint64_t fb_checksum_piece(const void *piece, uint64_t offset, uint64_t bytes,
                                         uint64_t total)
{
    const unsigned char *data = piece;
    uint64_t at = (FB_CHECKSUM_STEP - offset % FB_CHECKSUM_STEP) % FB_CHECKSUM_STEP, sum = 0;

    for (; at < bytes; at += FB_CHECKSUM_STEP)
        sum += data[at];
    if (bytes && offset + bytes == total)
        sum += data[bytes - 1];
    return sum;
}

static inline uint64_t fb_checksum(const void *array, uint64_t bytes)
{
    return fb_checksum_piece(array, 0, bytes, bytes);
}
#endif
