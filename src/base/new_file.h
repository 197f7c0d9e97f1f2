/*
 * new_file.h -- one file that is whole or absent: written under a temporary name, renamed at
 * the end; or, if it is there and may not be overwritten, compared piece by piece instead.
 */
#ifndef FB_NEW_FILE_H
#define FB_NEW_FILE_H
#include <limits.h>

#include "base/error.h"

struct fb_new_file {
    int fd;
    bool comparing; /* fd is the file that is there */
    uint64_t bytes; /* so far */
    char path[PATH_MAX];
    char temporary[PATH_MAX];
};

/* Begin `folder`/`name`. On failure there is nothing to undo. */
int fb_new_file_open(struct fb_new_file *file, const char *folder, const char *name, bool force,
                     forebay_error *error);
int fb_new_file_put(struct fb_new_file *file, const void *data, uint64_t bytes,
                    forebay_error *error);
/* Put it in its place; *kept says that it was there. On failure it is given up. */
int fb_new_file_commit(struct fb_new_file *file, bool *kept, forebay_error *error);
/* Leave no trace of it. Also after a failed put; not after commit. */
void fb_new_file_give_up(struct fb_new_file *file);

/* Write a small file at once: whole on the disk under its name (fsync, rename), or the one that was
 * there stays. */
int fb_file_write(const char *path, const char *text, forebay_error *error);

/* Make a folder and its parents. */
int fb_folder_make(const char *path, forebay_error *error);
#endif
