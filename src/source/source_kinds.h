/* source_kinds.h -- the kinds of source there are, one ops struct each. */
#ifndef FB_SOURCE_KINDS_H
#define FB_SOURCE_KINDS_H
#include "source/source.h"

extern const struct fb_source_ops fb_source_audio;
extern const struct fb_source_ops fb_source_bin;
extern const struct fb_source_ops fb_source_images;
extern const struct fb_source_ops fb_source_npy;
extern const struct fb_source_ops fb_source_tar;
extern const struct fb_source_ops fb_source_table;
extern const struct fb_source_ops fb_source_windows;

/* The status behind a NULL that came with `error` filled. */
static inline int fb_failed(const forebay_error *error)
{
    return error ? (int)error->status : FOREBAY_OVER_BUDGET;
}
#endif
