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

struct fb_tar_member {
    char name[FB_TAR_NAME_BYTES];
    uint64_t header; /* where its own header lies; those that give it a long name stand before */
    uint64_t data;   /* where its bytes lie, a multiple of FB_TAR_BLOCK */
    uint64_t bytes;
    bool regular; /* else a folder, a link, a device */
    bool sparse;  /* its bytes are not what they seem */
};

struct fb_tar {
    const struct fb_input *input;
    uint64_t at; /* the next header */
    unsigned char block[FB_TAR_BLOCK];
};

void fb_tar_init(struct fb_tar *tar, const struct fb_input *input);
/* The next member, or *end. After BAD_DATA there is no going on; `tar->at` is where it happened. */
int fb_tar_next(struct fb_tar *tar, struct fb_tar_member *member, bool *end, forebay_error *error);

/* WebDataset's way to see a name: the key is all up to the first dot behind the last slash, the
 * extension all behind it, in lower case. False if it is passed over: no dot, or a name that begins
 * with __...__ (meta data). *key is how many bytes of the name are the key; `extension` has
 * `size` bytes, and what does not fit or is not plain ASCII is passed over, too. */
bool fb_tar_split(const char *name, size_t *key, char *extension, size_t size);
#endif
