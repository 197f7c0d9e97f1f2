/*
 * tar.h -- the members of a tar archive, one after the other: v7, ustar, GNU and pax.
 *
 * Only headers are read; a member's bytes lie where `data` says. Like Python's tarfile (and so
 * WebDataset) it ends at the first block of zeros, or where the file ends. Every header is hostile:
 * checksums, sizes and names are checked, and a member may not reach behind the archive's end.
 */
#ifndef FB_DECODE_TAR_H
#define FB_DECODE_TAR_H
#include "decode/input.h"

#define FB_TAR_BLOCK 512u
#define FB_TAR_NAME_BYTES 4096u /* with its NUL; longer names are refused */

/* How a member with holes says where they are. */
enum fb_tar_sparse {
    FB_TAR_WHOLE,      /* it has none */
    FB_TAR_HOLES_GNU,     /* in its header, and in blocks behind that */
    FB_TAR_HOLES_PAX,     /* pax 1.0: in text before its data */
    FB_TAR_HOLES_LIST,    /* pax 0.1: in one record of its extended header */
    FB_TAR_HOLES_RECORDS, /* pax 0.0: in two records for each stretch */
    FB_TAR_HOLES_UNKNOWN  /* it does not say how large it is: not read here */
};

struct fb_tar_member {
    char name[FB_TAR_NAME_BYTES];
    uint64_t begin;  /* the first header that is about it */
    uint64_t header; /* its own; those that give it a long name stand before */
    uint64_t data;   /* where its bytes lie, a multiple of FB_TAR_BLOCK */
    uint64_t stored; /* bytes in the archive */
    uint64_t bytes;  /* it has: the same, but for its holes */
    bool regular;    /* else a folder, a link, a device */
    enum fb_tar_sparse sparse;
    uint64_t map, map_bytes; /* where the list, or the header with the records, lies */
};

struct fb_tar {
    const struct fb_input *input;
    uint64_t at; /* the next header */
    unsigned char block[FB_TAR_BLOCK];
};

void fb_tar_init(struct fb_tar *tar, const struct fb_input *input);
/* The next member, or *end. After BAD_DATA there is no going on; `tar->at` is where it happened. */
int fb_tar_next(struct fb_tar *tar, struct fb_tar_member *member, bool *end, forebay_error *error);

/* `bytes` at `offset` of a member with holes, zeros where those are. Its map is read and checked
 * each time: it is kept nowhere. */
int fb_tar_read_sparse(const struct fb_input *archive, const struct fb_tar_member *member,
                       void *into, uint64_t bytes, uint64_t offset, forebay_error *error);
/* A number of a header: octal digits, or binary. */
bool fb_tar_number(const unsigned char *field, unsigned size, uint64_t *value);

/* WebDataset's way to see a name: the key is all up to the first dot behind the last slash, the
 * extension all behind it, in lower case. False if it is passed over: no dot, or a name that begins
 * with __...__ (meta data). *key is how many bytes of the name are the key; `extension` has
 * `size` bytes, and what does not fit or is not plain ASCII is passed over, too. */
bool fb_tar_split(const char *name, size_t *key, char *extension, size_t size);
#endif
