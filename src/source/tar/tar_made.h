/* tar_made.h -- samples that are made of packed units: windows, rows and sequences, put together
 * again as the index of `forebay pack` says (docs/pack.md, made_of). */
#ifndef FB_SOURCE_TAR_MADE_H
#define FB_SOURCE_TAR_MADE_H
#include <jansson.h>

#include "source/source.h"

enum fb_tar_each { FB_TAR_EACH_UNIT, FB_TAR_EACH_WINDOW, FB_TAR_EACH_ROW, FB_TAR_EACH_SEQUENCE };

struct fb_tar_made {
    enum fb_tar_each each;
    uint64_t length, stride; /* rows of a window, or units of a sequence; between two of them */
    bool pad;                /* windows */
    uint64_t group_count;    /* sequences: folders */
    uint64_t *groups;        /* [group_count]: samples of each */
};

/* What the index says; nonsense is EACH_UNIT, and so is what cannot be put together. */
int fb_tar_made_read(struct fb_tar_made *made, const json_t *index, struct fb_budget *budget,
                     forebay_error *error);
void fb_tar_made_release(struct fb_tar_made *made, struct fb_budget *budget);

/* *source hands out units; make it hand out the samples that `made` speaks of. It is then part of
 * the new one. On failure it is as it was. */
int fb_tar_made_open(struct fb_source **source, const struct fb_tar_made *made,
                     struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
#endif
