#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/read_inside.h"

bool fb_errno_passes(int number)
{
    return number == EIO || number == ETIMEDOUT || number == ENOMEM || number == ESTALE ||
           number == EAGAIN;
}

void fb_back_off(unsigned failures)
{
    static const long waits_ms[FB_READ_RETRIES] = { 10, 100, 1000 };
    struct timespec wait = { waits_ms[failures] / 1000, waits_ms[failures] % 1000 * 1000000 };

    while (nanosleep(&wait, &wait) && errno == EINTR) {
    }
}

static int fail_open(const char *path, forebay_error *error)
{
    int number = errno, status;
    struct rlimit files = { 0, 0 };

    if (number == EMFILE || number == ENFILE) {
        (void)getrlimit(RLIMIT_NOFILE, &files);
        status = fb_fail(error, FOREBAY_IO,
                         "cannot open '%s': too many files are open in %s; raise the limit (ulimit "
                         "-n, now %llu) or lower workers",
                         path, number == EMFILE ? "this process" : "the whole system",
                         (unsigned long long)files.rlim_cur);
    } else {
        bool passes = fb_errno_passes(number) || number == EINTR || number == ENOSPC ||
                      number == EBUSY || number == EDQUOT;

        errno = number;
        status =
            fb_fail_errno(error, passes ? FOREBAY_IO : FOREBAY_MISSING, "cannot open '%s'", path);
    }
    fb_error_place(error, "%s", path);
    return status;
}

static int open_patiently(const char *path)
{
    unsigned failures = 0;
    int fd;

    /* Without O_NONBLOCK the open of a FIFO waits until somebody writes to it. */
    for (;;) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd >= 0)
            return fd;
        if (errno == EINTR)
            continue;
        if (!fb_errno_passes(errno) || failures == FB_READ_RETRIES)
            return -1;
        fb_back_off(failures++);
    }
}

static int check_regular(const struct stat *about, const char *path, forebay_error *error)
{
    if (S_ISREG(about->st_mode))
        return FOREBAY_OK;
    fb_fail(error, FOREBAY_MISSING, "'%s' is %s, expected a regular file", path,
            S_ISDIR(about->st_mode)    ? "a folder"
            : S_ISFIFO(about->st_mode) ? "a FIFO"
                                       : "a device or socket");
    fb_error_place(error, "%s", path);
    return FOREBAY_MISSING;
}

int fb_open_regular(const char *path, int *fd, struct stat *about, forebay_error *error)
{
    int opened = open_patiently(path), status;

    if (opened < 0 || fstat(opened, about))
        status = fail_open(path, error);
    else
        status = check_regular(about, path, error);
    if (!status)
        *fd = opened;
    else if (opened >= 0)
        close(opened);
    return status;
}
