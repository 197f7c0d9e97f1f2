/* lines.h -- a file of numbers, one a line, read in bounded memory; the file is hostile. */
#ifndef FB_ORDER_LINES_H
#define FB_ORDER_LINES_H
#include "base/error.h"
#include "base/log.h"
#include "memory/budget.h"

#define FB_LINE_BYTES 64 /* no number needs more */

struct fb_lines {
    const char *path, *what; /* borrowed: the file, and the setting that named it */
    const struct fb_log *log;
    struct fb_budget *budget;
    int fd;
    uint64_t file_bytes, read_bytes;
    uint64_t line;       /* of the text last given, from 1 */
    uint64_t empty_line; /* the first of a run of empty ones, 0 if there is none */
    char *buffer;
    size_t at, filled;
};

int fb_lines_open(struct fb_lines *lines, const char *path, const char *what,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
void fb_lines_close(struct fb_lines *lines);
/* The next line without spaces around it, or *got = false at the end. Empty lines may only stand at
 * the end of the file: elsewhere the numbers would no longer be those of the lines. */
int fb_lines_next(struct fb_lines *lines, char text[FB_LINE_BYTES], bool *got,
                  forebay_error *error);
/* BAD_DATA at the present line; `expected` says what should have stood there. */
int fb_lines_refuse(const struct fb_lines *lines, const char *text, const char *expected,
                    forebay_error *error);
#endif
