/* extract.h -- a file, or a part of one (a tar member), as what decoders read from. Small reads of
 * its beginning, where headers are, cost one read together. */
#ifndef FB_SOURCE_EXTRACT_H
#define FB_SOURCE_EXTRACT_H
#include "base/read.h"
#include "decode/input.h"
#include "source/glob.h"

#define FB_EXTRACT_HEAD_BYTES 4096

/* It points into itself, so it must not be moved while it is open. */
struct fb_extract {
    struct fb_input input;
    struct fb_input whole; /* what it is a part of: the file, or what somebody else set */
    char path[FB_PATH_BYTES];
    struct fb_reader *reader;
    int fd;
    uint64_t begin; /* in the file */
    uint64_t have;  /* bytes of its beginning that are in head */
    char head[FB_EXTRACT_HEAD_BYTES];
};

/* Open extract->path. It is all of the file until fb_extract_part. */
int fb_extract_open(struct fb_extract *extract, struct fb_reader *reader, forebay_error *error);
/* No file, but `whole`, all of it until fb_extract_part. */
void fb_extract_from(struct fb_extract *extract, struct fb_input whole);
/* Only these bytes, which lie within the file (or whatever else `whole` is). */
void fb_extract_part(struct fb_extract *extract, uint64_t begin, uint64_t bytes);
void fb_extract_close(struct fb_extract *extract);
#endif
