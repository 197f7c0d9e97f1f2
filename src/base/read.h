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

/* What a reader costs in memory, its ring included; reserved by whoever makes one. Measured in a
 * memory cgroup (Linux 6.18): 31-57 KiB with a ring, and 21 KiB for each of the 8 threads, at most,
 * that the kernel adds where a file system cannot read asynchronously. */
#define FB_READER_BYTES ((uint64_t)256 * 1024)

struct fb_reader;

struct fb_reader_options {
    bool direct;              /* keep no second copy in the kernel's page cache */
    const struct fb_log *log; /* a read that takes > 10 s is said once, with its path */
};

/* A reader is used by one thread at a time and must outlive its calls: a thread that is abandoned
 * in the kernel keeps its own. */
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

/* From now on (or no longer) the pages of what is read are dropped from the page cache afterwards,
 * also those that were there before: somebody else keeps a copy. */
void fb_reader_forget(struct fb_reader *reader, bool forget);

/* Bytes asked of the kernel so far, in all [any thread]. */
uint64_t fb_reader_bytes(const struct fb_reader *reader);
/* Time spent in opening and reading so far, from the page cache or not [any thread]. */
uint64_t fb_reader_spent_ns(const struct fb_reader *reader);

/* A hanging read cannot speak for itself, so whoever waits for it asks [any thread]. A reader is
 * busy while it waits for the disk or the network, not while it copies from the page cache.
 * Since when (fb_now_ns), 0 if it is not: */
uint64_t fb_reader_busy_since_ns(const struct fb_reader *reader);
/* With what; false if it is not. A path too long for `text` loses its beginning. */
bool fb_reader_busy_path(struct fb_reader *reader, char *text, size_t size);
/* Say it, once per read, if it has been busy for > 10 s. True if it was said now. Nobody asks:
 * the read says it itself when it ends. */
bool fb_reader_check_slow(struct fb_reader *reader, const struct fb_log *log);

/* The plain form, for indexes and small files: no ring, no reader. */
int fb_read_exactly(int fd, void *into, uint64_t bytes, uint64_t offset, forebay_error *error);
#endif
