/*
 * npz.h -- NumPy's .npz: a zip of .npy members, stored or deflated.
 *
 * Only the central directory at the end of the file is believed, and only after every offset and
 * size in it was checked against the file; zip64 and data descriptors are understood, encryption
 * and other methods are refused in words. Nothing is inflated beyond what the caller asks for, so
 * that a bomb is an error of a few bytes.
 */
#ifndef FB_DECODE_NPZ_H
#define FB_DECODE_NPZ_H
#include "base/error.h"

#define FB_NPZ_MEMBERS 256        /* arrays in one file, at most */
#define FB_NPZ_NAME_BYTES 64      /* of a member, without .npy, with the NUL */
#define FB_NPZ_WORK_BYTES 69632   /* what the functions here need to work in: the longest tail of a
                                     zip (a comment may be 64 KiB), in whole pages */
#define FB_NPZ_LIBRARY_BYTES 49152 /* what inflate allocates for itself: 7 KiB and a 32 KiB window,
                                      with malloc's own share */

/* Where the bytes come from: `bytes` of them, of which read() gives any part or fails. */
struct fb_npz_file {
    int (*read)(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error);
    void *data;
    uint64_t bytes;
};

struct fb_npz_member {
    char name[FB_NPZ_NAME_BYTES]; /* without .npy */
    uint64_t header;              /* where its local header lies */
    uint64_t packed_bytes;        /* in the file */
    uint64_t bytes;               /* as a .npy */
    uint32_t crc;
    bool deflated;
};

/* The members that are arrays (*.npy), in the order of the directory; others are passed over.
 * `work` is FB_NPZ_WORK_BYTES long. Fails if there are more than `most`. */
int fb_npz_list(const struct fb_npz_file *file, void *work, struct fb_npz_member *members,
                unsigned most, unsigned *count, forebay_error *error);
/* One member by its name; BAD_DATA if there is none. */
int fb_npz_find(const struct fb_npz_file *file, void *work, const char *name,
                struct fb_npz_member *member, forebay_error *error);

/* The bytes of a member in order, as if it were a file of its own. */
struct fb_npz_stream;

/* Begin to read `member`. Everything the stream needs lies in `work` (FB_NPZ_WORK_BYTES, 16-byte
 * aligned), which belongs to it until fb_npz_stream_close. `file` must outlive it. */
int fb_npz_stream_open(struct fb_npz_stream **out, const struct fb_npz_file *file,
                       const struct fb_npz_member *member, void *work, forebay_error *error);
/* The next `bytes` of them. */
int fb_npz_stream_read(struct fb_npz_stream *stream, void *into, uint64_t bytes,
                       forebay_error *error);
/* Pass over some; of a stored member they are not even read (and its checksum is then not known).
 */
int fb_npz_stream_skip(struct fb_npz_stream *stream, uint64_t bytes, forebay_error *error);
/* Everything was read: is this the end, and is the checksum right? */
int fb_npz_stream_finish(struct fb_npz_stream *stream, forebay_error *error);
void fb_npz_stream_close(struct fb_npz_stream *stream); /* NULL does nothing */
#endif
