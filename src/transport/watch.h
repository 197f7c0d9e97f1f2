/*
 * watch.h -- a worker process ends within a second of its parent's death, also of kill -9.
 *
 * A thread of C waits on the parent's pidfd; a kernel without pidfd (before 5.3) is asked for the
 * parent's pid four times a second. PR_SET_PDEATHSIG is not used: it follows the thread that
 * forked, not the process.
 */
#ifndef FB_TRANSPORT_WATCH_H
#define FB_TRANSPORT_WATCH_H
#include <sys/types.h>

#include "forebay.h"

/* End this process (SIGKILL) as soon as its parent is dead. One thread a process: later calls do
 * nothing. Returns at once. */
int fb_watch_parent(forebay_error *error);
#endif
