/* generate_maker.h -- what the kinds of generate.h share: a maker per thread, ops per kind. */
#ifndef FB_GENERATE_MAKER_H
#define FB_GENERATE_MAKER_H
#include <stdatomic.h>

#include "generate/generate.h"
#include "base/new_file.h"

#define FB_PIECE_BYTES ((uint64_t)256 * 1024) /* written at once; stays in the second-level cache */

/* The whole set; shared by the threads, constant but for the atomics. */
struct fb_generate_job {
    const struct fb_generate_options *options;
    const struct fb_log *log;
    const struct fb_generator_ops *ops;
    uint64_t files, bytes; /* options with the defaults put in */
    _Atomic uint64_t next; /* the number nobody has taken yet */
    _Atomic uint64_t done_bytes;
    _Atomic bool stop; /* one maker failed; its error is the set's */
};

struct fb_maker {
    struct fb_generate_job *job;
    bool reports; /* the calling thread's: shows progress */
    unsigned char *piece; /* FB_PIECE_BYTES */
    struct fb_generate_result made;
    int status;
    forebay_error error;
};

struct fb_generator_ops {
    bool checksum_of_data;
    /* (optional) Folders that must be there before the first file. One thread. */
    int (*prepare)(struct fb_maker *maker, forebay_error *error);
    /* Sample `number`: all of its files. Several threads at once. */
    int (*make)(struct fb_maker *maker, uint64_t number, forebay_error *error);
    /* (optional) What lists the files: labels, a manifest. One thread, after the last file. */
    int (*finish)(struct fb_maker *maker, forebay_error *error);
};
extern const struct fb_generator_ops fb_generate_lidar, fb_generate_frames, fb_generate_windows,
    fb_generate_images, fb_generate_audio, fb_generate_table;

/* The random stream of part `part` of sample `number`. */
uint64_t fb_maker_key(const struct fb_maker *maker, uint64_t number, uint64_t part);
/* Show progress after `bytes` more; fails if the user or another thread wants to stop. */
int fb_maker_step(struct fb_maker *maker, uint64_t bytes, forebay_error *error);

/* One file at a time: open, put any number of times, then commit (counts it) or give up. */
int fb_maker_open(struct fb_maker *maker, struct fb_new_file *file, const char *name,
                  forebay_error *error);
int fb_maker_put(struct fb_maker *maker, struct fb_new_file *file, const void *data, uint64_t bytes,
                 forebay_error *error);
int fb_maker_commit(struct fb_maker *maker, struct fb_new_file *file, forebay_error *error);
/* All three, and the checksum of the file's bytes if the kind has no checksum of data. */
int fb_maker_file(struct fb_maker *maker, const char *name, const void *data, uint64_t bytes,
                  forebay_error *error);
#endif
