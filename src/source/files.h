/*
 * files.h -- the files a source is made of: listed once, sorted, kept compactly.
 *
 * Patterns are globs (glob.h), plain paths, or lists: `@file.txt` or any plain path that ends in
 * .txt holds a plain path a line. All of them start at the folder of the configuration file, or at
 * the working folder if there is none. Files are sorted by folder, then by name, both naturally
 * (part2 before part10); the same file is kept once. A file costs 32 bytes and its name; a folder's
 * name is kept once. The walk follows symbolic links, but into no folder that it is inside of, and
 * no deeper than FB_FILES_DEPTH.
 *
 * What is listed but no readable regular file (a link to nowhere, a folder called a.npy, a FIFO)
 * is kept with its fault, so that it can be counted and named.
 */
#ifndef FB_SOURCE_FILES_H
#define FB_SOURCE_FILES_H
#include "base/log.h"
#include "config/config.h"
#include "source/tape.h"
#include "source/glob.h"

#define FB_FILES_DEPTH 64

struct fb_file {
    uint64_t name; /* its place in `names` */
    uint64_t bytes;
    int64_t mtime_ns;
    uint32_t folder;
    uint32_t fault; /* errno of what is wrong with it; 0: a regular file */
};

struct fb_files {
    uint64_t count;
    struct fb_file *file;  /* in `list` */
    uint64_t folder_count;
    uint64_t folder_bytes; /* of the longest folder's name */
    uint64_t root;         /* what relative folders are relative to, in `names` */
    struct fb_tape list, folders, names;
};

/* On failure there is nothing to release. `what` is the key of the patterns, for messages. */
int fb_files_list(struct fb_files *files, const char *what, char *const *patterns, size_t count,
                  const char *folder, struct fb_budget *budget, const struct fb_log *log,
                  forebay_error *error);
void fb_files_release(struct fb_files *files);

const char *fb_files_name(const struct fb_files *files, uint64_t number);
const char *fb_files_folder(const struct fb_files *files, uint64_t number);
/* The path as the user would write it, for messages; and one that can be opened wherever the
 * process may have gone since. Both are cut off at `size`. */
void fb_files_place(const struct fb_files *files, uint64_t number, char *text, size_t size);
void fb_files_path(const struct fb_files *files, uint64_t number, char *path, size_t size);
/* Depends on every path, size and time of change. */
uint64_t fb_files_hash(const struct fb_files *files, uint64_t seed);
/* Depends on every size, name and folder, folders taken from the one that all have in common: the
 * same for a copy somewhere else. */
uint64_t fb_files_fingerprint(const struct fb_files *files, uint64_t seed);
#endif
