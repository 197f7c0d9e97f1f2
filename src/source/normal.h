/*
 * normal.h -- (x - mean) / std of each column, in f32, as NumPy computes it.
 *
 * Given in the configuration (one number for all columns, or one each), or computed from all rows
 * once, at open: in f64, file by file, so that the result is the same in every run.
 */
#ifndef FB_SOURCE_NORMAL_H
#define FB_SOURCE_NORMAL_H
#include "source/series.h"

struct fb_normal {
    struct fb_budget *budget;
    uint64_t columns;  /* 0: nothing is normalised */
    float *mean, *std; /* [columns], of one block */
};

bool fb_normal_is_wanted(const struct fb_config *config);
/* For field `field` of the set. */
int fb_normal_open(struct fb_normal *normal, const struct fb_config *config,
                   const struct fb_series_set *set, unsigned field, struct fb_reader *reader,
                   const struct fb_log *log, forebay_error *error);
void fb_normal_release(struct fb_normal *normal);

/* Can numbers of this type be normalised? */
bool fb_normal_takes(forebay_dtype dtype);
/* `rows` rows of `dtype` at `from` to f32 at `to`; they may be the same if dtype is f32. */
void fb_normal_apply(const struct fb_normal *normal, float *to, const void *from,
                     forebay_dtype dtype, uint64_t rows);
#endif
