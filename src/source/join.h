/*
 * join.h -- files of several fields to samples: those with the same stem belong together.
 *
 * The stem is the file's name without its extension. Where stems do not join (frames/ *_blur.npy
 * beside frames/ *_sharp.npy, or the same names in many folders) what the wildcards of the globs
 * stood for is compared instead.
 */
#ifndef FB_SOURCE_JOIN_H
#define FB_SOURCE_JOIN_H
#include "source/files.h"

struct fb_join {
    const char *name;    /* of the field */
    const char *pattern; /* as the user gave it */
    const struct fb_files *files;
    uint32_t *map; /* out: file of sample s is map[s]; NULL: it is s. `files->count` numbers */
};

/* Samples come in the order of the first field's files. Every field must have exactly the same
 * stems. On failure no map is left. Maps are FB_STAGE_INDEX blocks. */
int fb_join(struct fb_join *fields, size_t count, const char *folder, struct fb_budget *budget,
            forebay_error *error);
void fb_join_release(struct fb_join *fields, size_t count, struct fb_budget *budget);
#endif
