/*
 * store.h -- files that forebay makes for itself and keeps in the user's cache folder: bounded by
 * $FOREBAY_DISK_CACHE (10 GB), oldest first.
 */
#ifndef FB_SOURCE_STORE_H
#define FB_SOURCE_STORE_H
#include "base/error.h"

#define FB_STORE_SUFFIX ".fbt"
#define FB_STORE_QUICKSTART "quickstart" /* the one folder in it */

/* The bound. BAD_CONFIG if the variable is no size. */
int fb_store_limit(uint64_t *bytes, forebay_error *error);
/* <cache folder>/<kind>-<identity>.fbt */
int fb_store_path(char *path, size_t size, const char *kind, uint64_t identity,
                  forebay_error *error);
/* See to it that `bytes` more fit: remove what was not used for the longest time, and what a run
 * that was killed left half written. `path` itself stays. */
int fb_store_make_room(const char *path, uint64_t bytes, forebay_error *error);
/* It is in use: it becomes the youngest. */
void fb_store_touch(int fd);
#endif
