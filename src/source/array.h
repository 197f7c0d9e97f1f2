/* array.h -- one array in a file: a .npy, or a member of an .npz; opened, checked, read. */
#ifndef FB_SOURCE_ARRAY_H
#define FB_SOURCE_ARRAY_H
#include "base/read.h"
#include "decode/npy.h"
#include "decode/npz.h"

/* More scratch than this makes turning Fortran order no faster. */
#define FB_ARRAY_TURN_BYTES ((uint64_t)4 << 20)

/* Valid from open to close; it points into itself, so it must not be moved. */
struct fb_array {
    struct fb_npy npy;
    uint64_t file_bytes;
    bool deflated;

    struct fb_reader *reader; /* NULL: plain reads, for the index */
    const char *path;         /* borrowed */
    int fd;
    struct fb_npz_file zip;
    struct fb_npz_member member;
    struct fb_npz_stream *stream; /* NULL: a .npy */
    uint64_t at;                  /* how far the values were read */
    unsigned char buffer[FB_NPY_HEADER_MAX]; /* the header, later pieces if there is no scratch */
};

/* Open `path`, or its member if `member` is not NULL, and parse the header. `usual` is how long
 * the header mostly is. `work` is FB_NPZ_WORK_BYTES for a member. Messages name the path. */
int fb_array_open(struct fb_array *array, const char *path, const char *member,
                  struct fb_reader *reader, uint64_t usual, void *work, forebay_error *error);
/* Values of `rows` rows to `to`, in C order and native endian. `piece` (may be NULL) is room for
 * turning Fortran order. Once per open. */
int fb_array_read(struct fb_array *array, uint64_t first_row, uint64_t rows, void *to,
                  void *piece, uint64_t piece_bytes, forebay_error *error);
void fb_array_close(struct fb_array *array);

/* The arrays of an .npz, for the first look at it. */
int fb_array_members(const char *path, struct fb_npz_member *members, unsigned most,
                     unsigned *count, void *work, forebay_error *error);
#endif
