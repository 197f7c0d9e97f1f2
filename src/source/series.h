/*
 * series.h -- long arrays, a file each, of which windows are cut: .npy, or flat binary by
 * source.columns and source.dtype (whatever is not called .npy).
 *
 * With several fields (source.fields) the files of one recording are found by what the wildcards
 * of the globs stand for ("x/007.npy" and "y/007.npy"); they must have as many rows. The first good
 * file of a field says what all of it must be: type, and shape of a row.
 */
#ifndef FB_SOURCE_SERIES_H
#define FB_SOURCE_SERIES_H
#include <stdatomic.h>

#include "source/files.h"
#include "source/source.h"

/* Why a file is of no use. load() looks at it again to say so in words. */
enum fb_series_fault {
    FB_SERIES_GOOD,
    FB_SERIES_BROKEN,
    FB_SERIES_OTHER_SHAPE,
    FB_SERIES_OTHER_ROWS
};

/* One file: unit `recording * field_count + field` of the source. */
struct fb_series {
    uint64_t rows;
    uint64_t file;   /* its number in the field's files */
    uint32_t header; /* bytes before the first row */
    uint8_t fault;   /* enum fb_series_fault */
    bool swapped;    /* the other byte order than this machine's */
    bool fortran;    /* column after column: rows are gathered from all of them */
};

/* What the files of one field have in common. */
struct fb_series_field {
    const char *name, *pattern; /* the configuration's; the pattern is NULL for source.path */
    struct fb_files files;
    bool known;          /* by the first good file */
    forebay_dtype dtype; /* in the file */
    unsigned ndim;       /* with the rows */
    uint64_t shape[FB_MAX_DIMS];
    uint64_t row_bytes; /* in the file */
    uint64_t row_numbers;
};

struct fb_series_set {
    struct fb_budget *budget;
    uint64_t count; /* recordings */
    unsigned field_count;
    struct fb_series_field *fields;
    uint64_t flat_columns; /* what a file is that is no .npy */
    forebay_dtype flat_dtype;
    struct fb_series *series; /* [count * field_count] */
    atomic_int *open_files;   /* [count * field_count]: descriptor + 1, 0 if not open */
    atomic_long open_count, open_max;
};

/* On failure there is nothing to release. */
int fb_series_open(struct fb_series_set *set, const struct fb_config *config,
                   struct fb_budget *budget, struct fb_reader *reader, const struct fb_log *log,
                   forebay_error *error);
void fb_series_release(struct fb_series_set *set);

static inline const struct fb_series_field *fb_series_field(const struct fb_series_set *set,
                                                            uint64_t unit)
{
    return &set->fields[unit % set->field_count];
}

/* Rows [first, first + rows) of a unit, as they stand in the file but in this machine's byte
 * order. Any thread. A broken unit, or one that has changed since, is BAD_DATA and says why. */
int fb_series_read(const struct fb_series_set *set, uint64_t unit, uint64_t first, uint64_t rows,
                   void *to, struct fb_reader *reader, forebay_error *error);
void fb_series_place(const struct fb_series_set *set, uint64_t unit, char *text, size_t size);
uint64_t fb_series_hash(const struct fb_series_set *set);
/* Depends on relative names and sizes only: see fingerprint in source.h. */
uint64_t fb_series_fingerprint(const struct fb_series_set *set);
#endif
