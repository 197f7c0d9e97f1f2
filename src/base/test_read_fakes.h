/*
 * test_read_fakes.h -- preadv2, nanosleep, the clock and two calls of liburing, defined by the
 * test: the linker takes these before the libraries' own, so that failures come when a test wants
 * them.
 */
#ifndef FB_BASE_TEST_READ_FAKES_H
#define FB_BASE_TEST_READ_FAKES_H
#include "base/read.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"

#define SMALL_BYTES 10000
#define LARGE_BYTES (5 * FB_MIB + 12345) /* eleven chunks */

static struct {
    bool nothing_cached; /* RWF_NOWAIT finds nothing */
    unsigned warm_calls, cold_calls, dontcache_calls, ring_opens, ring_turns, ring_ends, sleeps;
    long slept_ms;

    unsigned cold_from, cold_times; /* cold calls that fail or are cut: the n-th and so many */
    int cold_errno;                 /* 0: cut to 1 byte */
    unsigned ring_from, ring_times;
    int ring_result; /* > 0: the most bytes a chunk gets; else what it ends with */
    int ring_open_result, ring_submit_result;
    bool no_dontcache;
    void (*in_cold_call)(void);
} fake;
static _Atomic uint64_t clock_ahead_ns;

static char small_path[512], large_path[512], folder[256];
static char *expected, *got;
static char said[1024];
static unsigned said_count;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);

    now->tv_sec += (time_t)(atomic_load(&clock_ahead_ns) / 1000000000);
    return result;
}

int nanosleep(const struct timespec *wait, struct timespec *left)
{
    (void)left;
    fake.sleeps++;
    fake.slept_ms += wait->tv_sec * 1000 + wait->tv_nsec / 1000000;
    return 0;
}

static inline bool hit(unsigned number, unsigned from, unsigned times)
{
    return from && number >= from && number < from + times;
}

ssize_t preadv2(int fd, const struct iovec *piece, int count, off_t offset, int flags)
{
    struct iovec cut = *piece;

    if (flags & ~RWF_NOWAIT && fake.no_dontcache) {
        fake.dontcache_calls++;
        errno = EOPNOTSUPP;
        return -1;
    }
    if (flags & RWF_NOWAIT) {
        fake.warm_calls++;
        if (fake.nothing_cached) {
            errno = EAGAIN;
            return -1;
        }
    } else {
        fake.cold_calls++;
        if (fake.in_cold_call)
            fake.in_cold_call();
        if (hit(fake.cold_calls, fake.cold_from, fake.cold_times)) {
            cut.iov_len = 1;
            errno = fake.cold_errno;
            if (errno)
                return -1;
        }
    }
    return syscall(SYS_preadv2, fd, &cut, count, offset, 0L, flags);
}

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    struct io_uring_params params = { .flags = flags };

    fake.ring_opens++;
    return fake.ring_open_result ? fake.ring_open_result
                                 : io_uring_queue_init_params(entries, ring, &params);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned count)
{
    struct io_uring_cqe *entry;
    unsigned head;
    int sent;

    fake.ring_turns++;
    if (fake.ring_submit_result)
        return fake.ring_submit_result;
    sent = io_uring_submit(ring);
    if (sent < 0 || io_uring_wait_cqe_nr(ring, &entry, count))
        return sent < 0 ? sent : -EINTR;
    io_uring_for_each_cqe(ring, head, entry)
    {
        if (!hit(++fake.ring_ends, fake.ring_from, fake.ring_times) || entry->res <= 0)
            continue;
        if (fake.ring_result <= 0 || entry->res > fake.ring_result)
            entry->res = fake.ring_result;
    }
    return sent;
}

static inline void keep_line(void *data, int level, const char *line)
{
    (void)data;
    assert_int_equal(level, 1);
    snprintf(said, sizeof(said), "%s", line);
    said_count++;
}
static const struct fb_log test_log = { .log = keep_line };

/* A ring delivers what is cached in one go, so that the n-th end is the same in every run. */
static inline void make_warm(void)
{
    int fd = open(large_path, O_RDONLY);

    assert_int_equal(pread(fd, got, LARGE_BYTES, 0), LARGE_BYTES);
    close(fd);
}

static inline struct fb_reader *reader_new(bool direct)
{
    struct fb_reader_options options = { .direct = direct, .log = &test_log };
    struct fb_reader *reader;

    memset(&fake, 0, sizeof(fake));
    atomic_store(&clock_ahead_ns, 0);
    said_count = 0;
    make_warm();
    memset(got, 0xee, LARGE_BYTES);
    assert_int_equal(fb_reader_new(&reader, &options, NULL), FOREBAY_OK);
    return reader;
}

static inline int read_part(struct fb_reader *reader, const char *path, uint64_t bytes,
                            uint64_t offset, forebay_error *error)
{
    uint64_t size;
    int fd, status = fb_reader_open(reader, path, &fd, &size, error);

    if (status)
        return status;
    status = fb_reader_read(reader, fd, path, got, bytes, offset, error);
    close(fd);
    return status;
}

static inline void check_reads_right(struct fb_reader *reader, uint64_t bytes, uint64_t offset)
{
    forebay_error error = { 0 };
    int status = read_part(reader, large_path, bytes, offset, &error);

    if (status)
        fail_msg("%s", error.message);
    assert_memory_equal(got, expected + offset, bytes);
}

/* Asked of mincore: a read with RWF_NOWAIT would start a read-ahead. */
static inline size_t cached_pages(void)
{
    static unsigned char pages[LARGE_BYTES / 4096 + 1];
    int fd = open(large_path, O_RDONLY);
    void *area = mmap(NULL, LARGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    size_t count = 0;

    assert_ptr_not_equal(area, MAP_FAILED);
    assert_int_equal(mincore(area, LARGE_BYTES, pages), 0);
    for (size_t i = 0; i < sizeof(pages); i++)
        count += pages[i] & 1;
    munmap(area, LARGE_BYTES);
    close(fd);
    return count;
}

/* Take the large file out of the page cache; false where that cannot be done (tmpfs). */
static inline bool make_cold(void)
{
    int fd = open(large_path, O_RDONLY);

    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return cached_pages() == 0;
}

static inline void file_write(const char *path, uint64_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

    assert_int_equal(write(fd, expected, bytes), bytes);
    assert_int_equal(fsync(fd), 0); /* dirty pages cannot be dropped */
    close(fd);
}

static inline int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s/test_read.XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(small_path, sizeof(small_path), "%s/small", folder);
    snprintf(large_path, sizeof(large_path), "%s/large", folder);
    expected = malloc(LARGE_BYTES);
    got = malloc(LARGE_BYTES);
    for (uint64_t i = 0; i < LARGE_BYTES; i++)
        expected[i] = (char)(i * 7 + i / 251);
    file_write(small_path, SMALL_BYTES);
    file_write(large_path, LARGE_BYTES);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    unlink(small_path);
    unlink(large_path);
    rmdir(folder);
    free(expected);
    free(got);
    return 0;
}
#endif
