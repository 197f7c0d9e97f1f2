/*
 * store_list.h -- what forebay keeps on disk, for `forebay cache list|drop`: the files of store.h
 * and the quickstart's data, whatever is in the cache folder.
 */
#ifndef FB_SOURCE_STORE_LIST_H
#define FB_SOURCE_STORE_LIST_H
#include "base/error.h"

struct fb_stored {
    char name[256];
    uint64_t bytes;  /* of a folder: of all files in it */
    int64_t used_s;  /* when it was last used or made, seconds since 1970 */
    bool is_folder;
};

/* Everything in the cache folder, at most `most` entries, the oldest first; how many there are in
 * *count (may be more) and in *bytes what all of them take. No folder yet: none. */
int fb_store_list(struct fb_stored *list, size_t most, size_t *count, uint64_t *bytes,
                  forebay_error *error);
/* Remove the entry; links are removed, never followed. MISSING if there is none. */
int fb_store_drop(const char *name, uint64_t *bytes, forebay_error *error);
/* Bytes of the regular files in a folder and the folders in it. */
uint64_t fb_store_folder_bytes(int parent, const char *name);
#endif
