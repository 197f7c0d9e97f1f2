#include "transport/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

#define LOOK_MS 250

static atomic_int watching_pid; /* whose thread runs: a fork has none */

static int pidfd_of(pid_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0U);
#else
    (void)pid;
    errno = ENOSYS;
    return -1;
#endif
}

static void *watch(void *arg)
{
    pid_t parent = (pid_t)(intptr_t)arg;
    struct pollfd wait = { .fd = pidfd_of(parent), .events = POLLIN };

    /* Without a pidfd (fd -1) poll only waits; a parent that died is replaced by another. */
    while (getppid() == parent && poll(&wait, 1, wait.fd < 0 ? LOOK_MS : -1) <= 0)
        ;
    kill(getpid(), SIGKILL);
    return NULL;
}

int fb_watch_parent(forebay_error *error)
{
    pthread_t thread;
    int pid = getpid(), status;

    if (atomic_exchange(&watching_pid, pid) == pid)
        return FOREBAY_OK;
    status = fb_thread_start(&thread, watch, (void *)(intptr_t)getppid(), "forebay-watch",
                             FB_THREAD_STACK_BYTES, 0, error);
    if (!status)
        pthread_detach(thread);
    return status;
}
