/* media.h -- images, tar shards (plain, packed, in order) and speech, for the laws. */
#ifndef MEDIA_H
#define MEDIA_H
#include "law.h"

#define MEDIA_SAMPLES 60

struct media_kind {
    const char *name;
    const char *kind;
    const char *glob;
    const char *settings[4]; /* the last ones may be NULL */
};
extern const struct media_kind media_kinds[];
extern const unsigned media_kind_count;

/* Open with further settings, the last of which is NULL. The data is made at the first call. */
int media_open(forebay_loader **out, const struct media_kind *kind, forebay_error *error, ...)
    __attribute__((sentinel));
#endif
