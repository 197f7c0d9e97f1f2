/*
 * npy_index.h -- what is known of the arrays of one field without reading them.
 *
 * If all files of a field have the same size, the header of the first that can be read speaks for
 * all of them (and load() checks each); else every header is read at open.
 */
#ifndef FB_SOURCE_NPY_INDEX_H
#define FB_SOURCE_NPY_INDEX_H
#include "source/array.h"
#include "source/files.h"

#define FB_NPY_BROKEN UINT64_MAX

struct fb_npy_index {
    struct fb_budget *budget;
    const struct fb_files *files;
    const char *member;    /* of an .npz, or NULL */
    struct fb_npy first;   /* the header that the others are held against */
    uint64_t first_number; /* the file it is of */
    uint64_t *rows;        /* of each file, FB_NPY_BROKEN if it has none; NULL: all as the first */
    /* Over all files: */
    bool uniform;          /* all that are whole have the same number of rows */
    bool turned;           /* some are in Fortran order */
    bool swapped, deflated;
    uint64_t turned_bytes; /* the largest of those */
    uint64_t broken, bytes_max, bytes_total;
};

/* `work` is FB_NPZ_WORK_BYTES if there is a member. On failure there is nothing to release. */
int fb_npy_index_open(struct fb_npy_index *index, const struct fb_files *files, const char *member,
                      void *work, struct fb_budget *budget, const struct fb_log *log,
                      forebay_error *error);
void fb_npy_index_release(struct fb_npy_index *index);

/* Rows of a file (1 for a scalar), or FB_NPY_BROKEN. */
uint64_t fb_npy_index_rows(const struct fb_npy_index *index, uint64_t number);
/* Same type and same shape but for the first dimension? BAD_DATA with both in words if not. */
int fb_npy_index_check(const struct fb_npy_index *index, const struct fb_npy *npy,
                       const char *path, forebay_error *error);
static inline uint64_t fb_npy_rows(const struct fb_npy *npy)
{
    return npy->ndim ? npy->shape[0] : 1;
}
#endif
