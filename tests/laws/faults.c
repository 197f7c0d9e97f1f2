#include "faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>

static atomic_int armed;
static atomic_uint_fast64_t calls, fail_at;
static atomic_bool failed;
static atomic_int_fast64_t mapped;

void faults_begin(enum fault_kind kind, uint64_t at)
{
    atomic_store(&failed, false);
    atomic_store(&calls, 0);
    atomic_store(&fail_at, at);
    atomic_store(&armed, kind);
}

bool faults_end(void)
{
    atomic_store(&armed, FAULT_NONE);
    return atomic_load(&failed);
}

int64_t faults_mapped_bytes(void)
{
    return atomic_load(&mapped);
}

static bool fails(enum fault_kind kind, int error)
{
    if (atomic_load(&armed) != (int)kind)
        return false;
    if (atomic_fetch_add(&calls, 1) + 1 != atomic_load(&fail_at))
        return false;
    atomic_store(&failed, true);
    errno = error;
    return true;
}

/* A wrapped function: its declaration, the real one's, and a body that fails or passes on. */
#define WRAPPED(type, name, parameters, arguments, kind, error, failure) \
    type __real_##name parameters;                                       \
    type __wrap_##name parameters;                                       \
    type __wrap_##name parameters                                        \
    {                                                                    \
        return fails(kind, error) ? failure : __real_##name arguments;   \
    }

WRAPPED(void *, malloc, (size_t bytes), (bytes), FAULT_MEMORY, ENOMEM, NULL)
WRAPPED(void *, calloc, (size_t n, size_t bytes), (n, bytes), FAULT_MEMORY, ENOMEM, NULL)
WRAPPED(void *, realloc, (void *old, size_t bytes), (old, bytes), FAULT_MEMORY, ENOMEM, NULL)
WRAPPED(void *, aligned_alloc, (size_t to, size_t bytes), (to, bytes), FAULT_MEMORY, ENOMEM, NULL)
WRAPPED(int, posix_memalign, (void **out, size_t to, size_t bytes), (out, to, bytes), FAULT_MEMORY,
        ENOMEM, ENOMEM)
WRAPPED(char *, strdup, (const char *text), (text), FAULT_MEMORY, ENOMEM, NULL)
WRAPPED(char *, strndup, (const char *text, size_t n), (text, n), FAULT_MEMORY, ENOMEM, NULL)
WRAPPED(int, memfd_create, (const char *name, unsigned flags), (name, flags), FAULT_MEMORY, ENOMEM,
        -1)
WRAPPED(int, pthread_create,
        (pthread_t *out, const pthread_attr_t *with, void *(*run)(void *), void *data),
        (out, with, run, data), FAULT_MEMORY, EAGAIN, EAGAIN)
WRAPPED(DIR *, opendir, (const char *path), (path), FAULT_OPEN, EIO, NULL)

void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);

void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    void *area;

    if (fails(FAULT_MEMORY, ENOMEM))
        return MAP_FAILED;
    area = __real_mmap64(at, bytes, prot, flags, fd, offset);
    if (area != MAP_FAILED && !(flags & MAP_FIXED))
        atomic_fetch_add(&mapped, (int64_t)bytes);
    return area;
}

int __wrap_munmap(void *at, size_t bytes)
{
    int result = __real_munmap(at, bytes);

    if (result == 0)
        atomic_fetch_sub(&mapped, (int64_t)bytes);
    return result;
}

void *__real_mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...);
void *__wrap_mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...);

void *__wrap_mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...)
{
    void *area;

    if (fails(FAULT_MEMORY, ENOMEM))
        return MAP_FAILED;
    area = __real_mremap(old, old_bytes, bytes, flags);
    if (area != MAP_FAILED)
        atomic_fetch_add(&mapped, (int64_t)bytes - (int64_t)old_bytes);
    return area;
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_openat64(int folder, const char *path, int flags, ...);
int __wrap_openat64(int folder, const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;

    if (fails(FAULT_OPEN, EIO))
        return -1;
    va_start(rest, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(rest, mode_t);
    va_end(rest);
    return __real_open64(path, flags, mode);
}

int __wrap_openat64(int folder, const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;

    if (fails(FAULT_OPEN, EIO))
        return -1;
    va_start(rest, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(rest, mode_t);
    va_end(rest);
    return __real_openat64(folder, path, flags, mode);
}

/* A read that fails once, or that stops a byte early once (never to 0: that would be the end). */
#define READS(name, parameters, arguments, short_bytes)          \
    ssize_t __real_##name parameters;                            \
    ssize_t __wrap_##name parameters;                            \
    ssize_t __wrap_##name parameters                             \
    {                                                            \
        if (fails(FAULT_READ, EIO))                              \
            return -1;                                           \
        if (short_bytes > 1 && fails(FAULT_SHORT, 0))            \
            return read_short(fd, into_of(into), short_bytes - 1, at); \
        return __real_##name arguments;                          \
    }

ssize_t __real_pread64(int fd, void *into, size_t bytes, off_t at);

static ssize_t read_short(int fd, void *into, size_t bytes, off_t at)
{
    return __real_pread64(fd, into, bytes, at);
}

#define into_of(pointer) (pointer)
READS(pread64, (int fd, void *into, size_t bytes, off_t at), (fd, into, bytes, at), bytes)
#undef into_of
#define into_of(vector) ((vector)[0].iov_base)
READS(preadv64, (int fd, const struct iovec *into, int n, off_t at), (fd, into, n, at),
      into[0].iov_len)
READS(preadv64v2, (int fd, const struct iovec *into, int n, off_t at, int flags),
      (fd, into, n, at, flags), into[0].iov_len)
