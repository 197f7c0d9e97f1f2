/*
 * npy.h -- NumPy's .npy: its header, and its values made plain (C order, native endian).
 *
 *     \x93NUMPY  major minor  length of the dict  {'descr': '<f4', 'fortran_order': False,
 *     'shape': (3, 4), }  spaces to a multiple of 64, newline   then the values
 *
 * The header is parsed strictly and from memory: every byte of it is somebody else's.
 */
#ifndef FB_DECODE_NPY_H
#define FB_DECODE_NPY_H
#include "base/error.h"

#define FB_NPY_DIMS 8
/* NumPy writes 64 to 128 bytes; others pad to a page. A longer one is refused. */
#define FB_NPY_HEADER_MAX 8192
#define FB_NPY_HEADER_USUAL 128

struct fb_npy {
    forebay_dtype dtype;
    bool swapped; /* the values have the other byte order than this machine */
    bool fortran; /* the first index runs fastest; false if both orders are the same */
    unsigned ndim;
    uint64_t shape[FB_NPY_DIMS];
    uint64_t header_bytes; /* the values begin here */
    uint64_t data_bytes;   /* and are that many bytes */
};

/* How long the header is, from its first 12 bytes (or fewer, if the file has no more). */
int fb_npy_header_bytes(const void *bytes, uint64_t have, uint64_t *header_bytes,
                        forebay_error *error);
/* Parse the header that the first `have` bytes begin with. BAD_DATA if it is malformed, or if its
 * values are of a type that has no C equivalent. */
int fb_npy_parse(struct fb_npy *npy, const void *bytes, uint64_t have, forebay_error *error);
/* "f32 (3, 4)", for messages. Returns `text`. */
char *fb_npy_text(const struct fb_npy *npy, char text[256]);

/* Turn the bytes of every number round. */
void fb_npy_swap(void *values, forebay_dtype dtype, uint64_t count);

/*
 * Fortran order to C order, a piece at a time: of the array in the file, the elements
 * [first, first + count), which stand in `piece`, are put at their places in `to`. Only rows
 * [first_row, first_row + rows) are wanted; `to` begins with the first of them. A piece is either
 * part of one column (a run of the first index) or whole columns.
 */
void fb_npy_place(const struct fb_npy *npy, void *to, uint64_t first_row, uint64_t rows,
                  const void *piece, uint64_t first, uint64_t count);
#endif
