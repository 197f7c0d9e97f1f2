/*
 * tar_writer.h -- headers of plain tar members and of the .npy inside them, into memory.
 *
 * ustar, and pax where a name is longer than 100 bytes or a member larger than 8 GiB. Everything
 * that could differ from one run to the next is fixed: mode 0644, owner 0, time 0.
 *
 * A member's data begins at a multiple of 512 in the file and a .npy header is a multiple of 64
 * long, so the numbers are 64-byte aligned in the shard: by both formats' own rules, without any
 * padding of ours.
 */
#ifndef FB_PACK_TAR_WRITER_H
#define FB_PACK_TAR_WRITER_H
#include "base/error.h"

#define FB_TAR_BLOCK 512
#define FB_TAR_END_BYTES (2 * FB_TAR_BLOCK) /* zeros behind the last member */
#define FB_TAR_NAME_MAX 2048
/* A pax header and its records, and the header itself. */
#define FB_TAR_HEADER_MAX (3 * FB_TAR_BLOCK + FB_TAR_NAME_MAX + 64)

/* Bytes of the headers before a member's data, and what the whole member takes in the file. */
uint64_t fb_tar_header_bytes(const char *name, uint64_t data_bytes);
uint64_t fb_tar_member_bytes(const char *name, uint64_t data_bytes);
/* Write the headers; returns fb_tar_header_bytes(). The name is shorter than FB_TAR_NAME_MAX. */
uint64_t fb_tar_header_put(char to[FB_TAR_HEADER_MAX], const char *name, uint64_t data_bytes);

#define FB_NPY_WRITE_DIMS 9
#define FB_NPY_WRITE_MAX 512
/* Write the header of a .npy of this type and shape, native endian, C order; its bytes, a multiple
 * of 64. 0 if NumPy has no such type (bf16). */
uint64_t fb_npy_header_put(char to[FB_NPY_WRITE_MAX], forebay_dtype dtype, unsigned ndim,
                           const uint64_t *shape);
#endif
