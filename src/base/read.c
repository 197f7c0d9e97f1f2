#include "base/read.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/read_inside.h"
#include "base/size.h"

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x00000080 /* Linux 6.14; older ones answer EOPNOTSUPP */
#endif

#define RING_ENTRIES 32 /* chunks under way at once: 16 MiB */
/* On the one disk tried, 128 KiB to 1 MiB were alike; the middle is a guess for others. */
#define CHUNK_BYTES (512 * FB_KIB)
#define PIECE_BYTES FB_GIB         /* one call of the kernel moves 2 GiB - 4 KiB at most */
#define BEHIND_BYTES (32 * FB_MIB) /* of a second copy, where pages must be dropped by hand */
#define SLOW_NS (10 * (uint64_t)1000000000)
/* Threads the kernel may start for one ring where a file system cannot read asynchronously
 * (network, FUSE); each takes 21 KiB, counted in FB_READER_BYTES. */
#define KERNEL_WORKERS 8
/* In an entry's data beside the number of its chunk: it was queued with RWF_DONTCACHE. */
#define ASKED_UNCACHED ((uint64_t)RING_ENTRIES)

/* What one call of fb_reader_read reads; path is NULL if it is not known. */
struct target {
    int fd;
    const char *path;
    uint64_t end; /* one behind the last byte */
};

/* What is still to be read of it: `bytes` at `offset`. */
struct span {
    char *into;
    uint64_t bytes, offset;
};

struct fb_reader {
    bool direct;
    bool uncached; /* direct, and the kernel has not yet refused RWF_DONTCACHE */
    bool forget;   /* drop the pages behind every read */
    struct fb_log log;
    enum { RING_UNTRIED, RING_OPEN, RING_REFUSED } ring_state;
    struct io_uring ring;
    struct span chunks[RING_ENTRIES];
    uint32_t under_way; /* chunks that are in the ring, a bit each */
    _Atomic uint64_t bytes, spent_ns;

    _Atomic uint64_t busy_since_ns; /* written under lock, by the reader's thread only */
    pthread_mutex_t lock;

    /* Guarded by lock: */
    bool slow_said;
    char path[512];
};
_Static_assert(sizeof(struct fb_reader) <= 4096, "FB_READER_BYTES counts one page for it");

static void span_advance(struct span *span, uint64_t bytes)
{
    span->into += bytes;
    span->bytes -= bytes;
    span->offset += bytes;
}

/* ---- Who waits for what, and how long ---- */

/* The end of a path tells more than its beginning. */
static void path_copy(char *to, size_t size, const char *path)
{
    size_t length = strlen(path);

    if (!size)
        return;
    if (length >= size)
        path += length - (size - 1);
    memcpy(to, path, strlen(path) + 1);
}

static void spend(struct fb_reader *reader, uint64_t began_ns)
{
    atomic_store_explicit(&reader->spent_ns,
                          fb_reader_spent_ns(reader) + fb_now_ns() - began_ns,
                          memory_order_relaxed);
}

static void busy_begin(struct fb_reader *reader, const char *path)
{
    pthread_mutex_lock(&reader->lock);
    path_copy(reader->path, sizeof(reader->path), path);
    reader->slow_said = false;
    atomic_store(&reader->busy_since_ns, fb_now_ns());
    pthread_mutex_unlock(&reader->lock);
}

bool fb_reader_check_slow(struct fb_reader *reader, const struct fb_log *log)
{
    char path[sizeof(reader->path)];
    uint64_t since, now = 0;
    bool say;

    pthread_mutex_lock(&reader->lock);
    since = atomic_load(&reader->busy_since_ns);
    if (since)
        now = fb_now_ns();
    say = since && !reader->slow_said && now - since > SLOW_NS;
    if (say) {
        reader->slow_said = true;
        path_copy(path, sizeof(path), reader->path);
    }
    pthread_mutex_unlock(&reader->lock);
    if (say)
        fb_warn(log, "a read of '%s' takes long: %llu s so far; is its disk or server in trouble?",
                path, (unsigned long long)((now - since) / 1000000000));
    return say;
}

static void busy_end(struct fb_reader *reader)
{
    fb_reader_check_slow(reader, &reader->log);
    pthread_mutex_lock(&reader->lock);
    atomic_store(&reader->busy_since_ns, 0);
    pthread_mutex_unlock(&reader->lock);
}

uint64_t fb_reader_busy_since_ns(const struct fb_reader *reader)
{
    return atomic_load(&reader->busy_since_ns);
}

bool fb_reader_busy_path(struct fb_reader *reader, char *text, size_t size)
{
    bool busy;

    pthread_mutex_lock(&reader->lock);
    busy = atomic_load(&reader->busy_since_ns) != 0;
    if (busy)
        path_copy(text, size, reader->path);
    pthread_mutex_unlock(&reader->lock);
    return busy;
}

/* ---- Failures ---- */

static int fail_read(const struct target *target, const struct span *left, forebay_error *error)
{
    int status = errno == EISDIR ? FOREBAY_MISSING : FOREBAY_IO;

    fb_fail_errno(error, status, "cannot read %s%s%s at byte %llu", target->path ? "'" : "",
                  target->path ? target->path : "the file", target->path ? "'" : "",
                  (unsigned long long)left->offset);
    if (target->path)
        fb_error_place(error, "%s", target->path);
    return status;
}

static int fail_early_end(const struct target *target, forebay_error *error)
{
    struct stat now;
    unsigned long long size = fstat(target->fd, &now) ? 0 : (unsigned long long)now.st_size;

    fb_fail(error, FOREBAY_BAD_DATA,
            "%s%s%s ends early: it has %llu bytes, at least %llu were expected; was it cut off, or "
            "is it still being written?",
            target->path ? "'" : "", target->path ? target->path : "the file",
            target->path ? "'" : "", size, (unsigned long long)target->end);
    if (target->path)
        fb_error_place(error, "%s", target->path);
    return FOREBAY_BAD_DATA;
}

static int target_init(struct target *target, int fd, const char *path, const struct span *span,
                       forebay_error *error)
{
    *target = (struct target){ .fd = fd, .path = path };
    if (fb_add(span->offset, span->bytes, &target->end) && target->end <= INT64_MAX)
        return FOREBAY_OK;
    fb_fail(error, FOREBAY_BAD_DATA, "%s: %llu bytes at byte %llu are beyond the end of any file",
            path ? path : "the file", (unsigned long long)span->bytes,
            (unsigned long long)span->offset);
    if (path)
        fb_error_place(error, "%s", path);
    return FOREBAY_BAD_DATA;
}

/* ---- Plain reads ---- */

/* One call of the kernel; what came is taken off `left`. */
static ssize_t read_some(int fd, struct span *left, int flags)
{
    struct iovec piece = { left->into, fb_min(left->bytes, PIECE_BYTES) };
    ssize_t got;

    do
        got = preadv2(fd, &piece, 1, (off_t)left->offset, flags);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        span_advance(left, (uint64_t)got);
    return got;
}

static int cold_flags(const struct fb_reader *reader)
{
    return reader && reader->uncached ? RWF_DONTCACHE : 0;
}

/* What the page cache has, up to the first gap. Never waits for a disk; but it does start the
 * read-ahead of what is missing, so it must say, too, that nothing is to stay. */
static void read_cached(const struct fb_reader *reader, int fd, struct span *left)
{
    int flags = RWF_NOWAIT | cold_flags(reader);
    uint64_t asked;

    do
        asked = fb_min(left->bytes, PIECE_BYTES);
    while (asked && read_some(fd, left, flags) == (ssize_t)asked);
}

/* `reader` may be NULL. */
static int read_plain(struct fb_reader *reader, const struct target *target, struct span *left,
                      forebay_error *error)
{
    unsigned failures = 0;

    while (left->bytes) {
        ssize_t got = read_some(target->fd, left, cold_flags(reader));

        if (got > 0)
            continue;
        if (got == 0)
            return fail_early_end(target, error);
        if (errno == EOPNOTSUPP && cold_flags(reader)) {
            reader->uncached = false;
            continue;
        }
        if (!fb_errno_passes(errno) || failures == FB_READ_RETRIES)
            return fail_read(target, left, error);
        fb_back_off(failures++);
    }
    return FOREBAY_OK;
}

int fb_read_exactly(int fd, void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    struct span left = { into, bytes, offset };
    struct target target;
    int status = target_init(&target, fd, NULL, &left, error);

    return status ? status : read_plain(NULL, &target, &left, error);
}

/* ---- The ring ---- */

static bool ring_open(struct fb_reader *reader)
{
    unsigned workers[2] = { KERNEL_WORKERS, 1 };

    if (reader->ring_state != RING_UNTRIED)
        return reader->ring_state == RING_OPEN;
    reader->ring_state = RING_REFUSED;
    /* Forbidden (EPERM, ENOSYS), over the memlock limit (ENOMEM), out of descriptors: whatever
     * the reason, plain reads do the work. */
    if (io_uring_queue_init(RING_ENTRIES, &reader->ring, 0))
        return false;
    io_uring_ring_dontfork(&reader->ring);
    /* Before Linux 5.15 there is no such limit to set; then the kernel's own holds. */
    io_uring_register_iowq_max_workers(&reader->ring, workers);
    reader->ring_state = RING_OPEN;
    return true;
}

static void ring_refuse(struct fb_reader *reader)
{
    io_uring_queue_exit(&reader->ring);
    reader->ring_state = RING_REFUSED;
}

/* Chunks end where a multiple of CHUNK_BYTES does, so that no two touch one page. */
static struct span chunk_cut(struct span *left)
{
    struct span chunk = *left;

    chunk.bytes = fb_min(left->bytes, CHUNK_BYTES - left->offset % CHUNK_BYTES);
    span_advance(left, chunk.bytes);
    return chunk;
}

/* Queue every chunk that is unfinished or can be cut from `left`. */
static void ring_fill(struct fb_reader *reader, int fd, struct span *left)
{
    uint64_t uncached = cold_flags(reader) ? ASKED_UNCACHED : 0;

    for (unsigned i = 0; i < RING_ENTRIES; i++) {
        struct span *chunk = &reader->chunks[i];
        struct io_uring_sqe *entry;

        if (reader->under_way & (1u << i) || (!chunk->bytes && !left->bytes))
            continue;
        entry = io_uring_get_sqe(&reader->ring);
        if (!entry)
            return;
        if (!chunk->bytes)
            *chunk = chunk_cut(left);
        io_uring_prep_read(entry, fd, chunk->into, (unsigned)chunk->bytes, chunk->offset);
        entry->rw_flags = cold_flags(reader);
        io_uring_sqe_set_data64(entry, i | uncached);
        reader->under_way |= 1u << i;
    }
}

/* 0 if the chunk is done or may be queued again, else why the ring cannot go on with it. */
static int chunk_end(struct fb_reader *reader, struct span *chunk, int result, bool asked_uncached)
{
    if (result > 0) {
        span_advance(chunk, (uint64_t)result);
        return 0;
    }
    if (result == -EOPNOTSUPP && asked_uncached) {
        reader->uncached = false;
        return 0;
    }
    if (result == -EINTR)
        return 0;
    return result ? -result : ENODATA;
}

/* Take what has ended off the ring. Returns how many; *failed gets the newest reason, if any. */
static unsigned ring_reap(struct fb_reader *reader, int *failed)
{
    struct io_uring_cqe *entry;
    unsigned head, count = 0;

    io_uring_for_each_cqe(&reader->ring, head, entry)
    {
        uint64_t data = io_uring_cqe_get_data64(entry);
        unsigned i = (unsigned)(data & (RING_ENTRIES - 1));
        int why = chunk_end(reader, &reader->chunks[i], entry->res, data & ASKED_UNCACHED);

        reader->under_way &= ~(1u << i);
        if (why)
            *failed = why;
        count++;
    }
    io_uring_cq_advance(&reader->ring, count);
    return count;
}

/* Submit, wait for one end at least, reap. False when nothing is in the kernel's hands any more
 * and it takes nothing: then the caller's memory is its own again. */
static bool ring_turn(struct fb_reader *reader, int *failed)
{
    static const struct timespec pause = { 0, 1000000 };
    int result = io_uring_submit_and_wait(&reader->ring, 1);
    unsigned ended = ring_reap(reader, failed), in_kernel;

    if (result >= 0 || result == -EINTR)
        return true;
    *failed = -result;
    in_kernel = (unsigned)__builtin_popcount(reader->under_way) - io_uring_sq_ready(&reader->ring);
    if (in_kernel && !ended)
        nanosleep(&pause, NULL); /* cannot wait for it in the kernel, must not leave before it */
    return in_kernel > 0;
}

/*
 * Read `left` with many chunks under way. The ring only makes it faster: what it cannot deliver is
 * left in reader->chunks and `left`, and the plain read that follows finds out why and retries.
 * Returns only when no chunk is under way, since the kernel writes to the caller's memory.
 */
static void read_by_ring(struct fb_reader *reader, int fd, struct span *left)
{
    int failed = 0;
    bool alive = true;

    while (alive) {
        if (!failed)
            ring_fill(reader, fd, left);
        if (!reader->under_way)
            break;
        alive = ring_turn(reader, &failed);
    }
    reader->under_way = 0;
    /* Old kernels and seccomp refuse the operation itself; unsent entries must not be sent later.
     */
    if (!alive || failed == EINVAL || failed == EOPNOTSUPP || failed == EPERM || failed == EACCES)
        ring_refuse(reader);
}

/* ---- Cold reads ---- */

/* fb_reader_open has opened without blocking, and a ring would take that at its word where the
 * file system cannot read asynchronously: EAGAIN for ever. */
static void nonblock_clear(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && flags & O_NONBLOCK)
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

static int read_window(struct fb_reader *reader, const struct target *target, struct span *left,
                       forebay_error *error)
{
    int status = FOREBAY_OK;

    /* A single chunk gains nothing from a ring. */
    if (left->bytes > CHUNK_BYTES && ring_open(reader)) {
        memset(reader->chunks, 0, sizeof(reader->chunks));
        read_by_ring(reader, target->fd, left);
        for (unsigned i = 0; i < RING_ENTRIES && !status; i++)
            status = read_plain(reader, target, &reader->chunks[i], error);
    }
    return status ? status : read_plain(reader, target, left, error);
}

static bool drops_behind(const struct fb_reader *reader)
{
    return reader->direct && !reader->uncached;
}

/* Whole pages: those that two reads share, too. */
static void drop_pages(int fd, uint64_t offset, uint64_t bytes)
{
    uint64_t first = offset & ~(uint64_t)4095;
    uint64_t end = fb_min(fb_round_up(offset + bytes, 4096), INT64_MAX);

    (void)posix_fadvise(fd, (off_t)first, (off_t)(end - first), POSIX_FADV_DONTNEED);
}

static int read_cold(struct fb_reader *reader, const struct target *target, struct span *left,
                     forebay_error *error)
{
    int status = FOREBAY_OK;

    busy_begin(reader, target->path);
    nonblock_clear(target->fd);
    while (left->bytes && !status) {
        uint64_t offset = left->offset;
        struct span window = *left;

        if (drops_behind(reader))
            window.bytes = fb_min(window.bytes, BEHIND_BYTES);
        span_advance(left, window.bytes);
        status = read_window(reader, target, &window, error);
        if (drops_behind(reader))
            drop_pages(target->fd, offset, left->offset - offset);
    }
    busy_end(reader);
    return status;
}

int fb_reader_read(struct fb_reader *reader, int fd, const char *path, void *into, uint64_t bytes,
                   uint64_t offset, forebay_error *error)
{
    struct span left = { into, bytes, offset };
    uint64_t began = fb_now_ns();
    struct target target;
    int status = target_init(&target, fd, path, &left, error);

    if (status)
        return status;
    read_cached(reader, fd, &left);
    if (drops_behind(reader) && left.bytes < bytes)
        drop_pages(fd, offset, bytes - left.bytes);
    if (left.bytes)
        status = read_cold(reader, &target, &left, error);
    if (reader->forget)
        drop_pages(fd, offset, bytes);
    if (!status) /* this thread alone writes it: no locked instruction needed */
        atomic_store_explicit(&reader->bytes, fb_reader_bytes(reader) + bytes,
                              memory_order_relaxed);
    spend(reader, began);
    return status;
}

/* ---- Open and close ---- */

int fb_reader_open(struct fb_reader *reader, const char *path, int *fd, uint64_t *file_bytes,
                   forebay_error *error)
{
    struct stat about;
    uint64_t began = fb_now_ns();
    int status, opened;

    busy_begin(reader, path);
    status = fb_open_regular(path, &opened, &about, error);
    busy_end(reader);
    spend(reader, began);
    if (status)
        return status;
    *fd = opened;
    *file_bytes = (uint64_t)about.st_size;
    return FOREBAY_OK;
}

void fb_reader_forget(struct fb_reader *reader, bool forget)
{
    reader->forget = forget;
}

uint64_t fb_reader_bytes(const struct fb_reader *reader)
{
    return atomic_load_explicit(&reader->bytes, memory_order_relaxed);
}

uint64_t fb_reader_spent_ns(const struct fb_reader *reader)
{
    return atomic_load_explicit(&reader->spent_ns, memory_order_relaxed);
}

int fb_reader_new(struct fb_reader **out, const struct fb_reader_options *options,
                  forebay_error *error)
{
    struct fb_reader *reader = calloc(1, sizeof(*reader));

    if (!reader)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a reader");
    reader->direct = reader->uncached = options && options->direct;
    if (options && options->log)
        reader->log = *options->log;
    pthread_mutex_init(&reader->lock, NULL);
    *out = reader;
    return FOREBAY_OK;
}

void fb_reader_free(struct fb_reader *reader)
{
    if (!reader)
        return;
    if (reader->ring_state == RING_OPEN)
        io_uring_queue_exit(&reader->ring);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}
