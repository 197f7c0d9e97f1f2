/* walk.h -- finding the files that patterns and lists name. Only files.c uses it. */
#ifndef FB_SOURCE_WALK_H
#define FB_SOURCE_WALK_H
#include <sys/stat.h>

#include "source/files.h"

#define FB_WALK_RECENT 512 /* folders that are remembered, so that each is kept once */

struct fb_walk {
    struct fb_files *files;
    const struct fb_log *log;
    uint64_t told_ns;                 /* when progress was last told */
    uint32_t recent[FB_WALK_RECENT];  /* number of a folder + 1, by the hash of its name */
    unsigned depth;                   /* folders that the walk is inside of */
    struct {
        dev_t device;
        ino_t inode;
    } above[FB_FILES_DEPTH];
    bool plain;                       /* the pattern is a plain path: what is not there is kept */
    char path[FB_PATH_BYTES];         /* where the walk is, with a slash at the end */
    char pattern[FB_PATH_BYTES];      /* the first one, for fb_walk_explain */
};

void fb_walk_init(struct fb_walk *walk, struct fb_files *files, const struct fb_log *log);
/* Add what a glob without braces or a plain path names. */
int fb_walk_pattern(struct fb_walk *walk, const char *pattern, forebay_error *error);
/* Add every line of a text file. */
int fb_walk_list(struct fb_walk *walk, const char *path, const char *folder, forebay_error *error);
/* Nothing was found: fail, and say what is there instead. */
int fb_walk_explain(struct fb_walk *walk, forebay_error *error);
#endif
