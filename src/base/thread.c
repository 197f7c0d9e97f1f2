#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/size.h"

#define GUARD_BYTES ((uint64_t)4096)

/* Handed to the new thread, which frees it. */
struct start {
    void *(*fn)(void *arg);
    void *arg;
    char name[16];
    int nice;
};

uint64_t fb_thread_bytes(uint64_t stack_bytes)
{
    return fb_round_up(stack_bytes, 4096) + GUARD_BYTES;
}

static void *run(void *data)
{
    struct start start = *(struct start *)data;

    free(data);
    (void)pthread_setname_np(pthread_self(), start.name);
    /* On Linux niceness is a thread's own; 0 names the thread that calls. */
    if (start.nice)
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + start.nice);
    return start.fn(start.arg);
}

static void signals_all_but_faults(sigset_t *set)
{
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };

    sigfillset(set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(set, faults[i]);
}

/* A thread starts with its maker's mask, so that is changed for a moment: set by the thread itself
 * there would be a time before. */
static int create_blocked(pthread_t *out, const pthread_attr_t *attributes, struct start *start)
{
    sigset_t blocked, before;
    int number;

    signals_all_but_faults(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    number = pthread_create(out, attributes, run, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

int fb_thread_start(pthread_t *out, void *(*fn)(void *arg), void *arg, const char *name,
                    uint64_t stack_bytes, int nice, forebay_error *error)
{
    struct start *start = malloc(sizeof(*start));
    pthread_attr_t attributes;
    int number;

    if (!start)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to start thread '%s'", name);
    *start = (struct start){ .fn = fn, .arg = arg, .nice = nice };
    snprintf(start->name, sizeof(start->name), "%s", name);
    pthread_attr_init(&attributes);
    (void)pthread_attr_setguardsize(&attributes, GUARD_BYTES);
    number = pthread_attr_setstacksize(&attributes, fb_thread_bytes(stack_bytes));
    if (!number)
        number = create_blocked(out, &attributes, start);
    pthread_attr_destroy(&attributes);
    if (!number)
        return FOREBAY_OK;
    free(start);
    errno = number;
    return fb_fail_errno(error, FOREBAY_NO_MEMORY,
                         "cannot start thread '%s' with a stack of %llu bytes (is ulimit -u or the "
                         "cgroup's pids.max reached?)",
                         name, (unsigned long long)stack_bytes);
}
