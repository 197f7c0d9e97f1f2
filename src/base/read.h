/*
 * read.h -- whole reads of files, one reader per worker.
 *
 * Each read first asks the page cache (preadv2 with RWF_NOWAIT): what is there is copied at once.
 * What is not goes through an io_uring with many chunks under way, or through plain pread where
 * io_uring is forbidden. Nothing is guessed: every read asks.
 */
#ifndef FB_BASE_READ_H
#define FB_BASE_READ_H
#include <stdatomic.h>

#include "base/log.h"

/* What a reader costs in memory, its ring included; reserved by whoever makes one. */
#define FB_READER_BYTES ((uint64_t)64 * 1024)

struct fb_reader;

struct fb_reader_options {
    bool direct;              /* keep no second copy in the kernel's page cache */
    const struct fb_log *log; /* a read that takes > 10 s is said once, with its path */
};

int fb_reader_new(struct fb_reader **out, const struct fb_reader_options *options,
                  forebay_error *error);
void fb_reader_free(struct fb_reader *reader);

/* Read `bytes` at `offset`, all of them or fail. Statuses: BAD_DATA if the file ends early, MISSING
 * if it cannot be opened for good (ENOENT, EACCES, ENOTDIR, ELOOP, a folder), IO for what is wrong
 * at the moment. Retries EIO, ETIMEDOUT, ENOMEM and ESTALE three times with back-off (10, 100,
 * 1000 ms). `path` is for messages. */
int fb_reader_read(struct fb_reader *reader, int fd, const char *path, void *into, uint64_t bytes,
                   uint64_t offset, forebay_error *error);
/* Open for reading: O_CLOEXEC, a regular file (FIFOs and folders are refused, never waited for). */
int fb_reader_open(struct fb_reader *reader, const char *path, int *fd, uint64_t *file_bytes,
                   forebay_error *error);

/* Bytes asked of the kernel so far, in all [any thread]. */
uint64_t fb_reader_bytes(const struct fb_reader *reader);
/* For what is in the middle of a read when the loader closes: what it reads and since when, 0 if
 * nothing is under way [any thread]. */
uint64_t fb_reader_busy_since_ns(const struct fb_reader *reader);

/* The plain form, for indexes and small files: no ring, no reader. */
int fb_read_exactly(int fd, void *into, uint64_t bytes, uint64_t offset, forebay_error *error);
#endif
