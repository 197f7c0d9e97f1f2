/* thread.h -- threads for work: small stacks, a name in top, no signals of the program they serve.
 */
#ifndef FB_BASE_THREAD_H
#define FB_BASE_THREAD_H
#include <pthread.h>

#include "base/error.h"

/* A stack's size where nothing needs more; a guard page comes on top. */
#define FB_THREAD_STACK_BYTES ((uint64_t)256 * 1024)

/* What a thread's stack takes, guard included: for whoever reserves it. */
uint64_t fb_thread_bytes(uint64_t stack_bytes);

/*
 * Run fn(arg) in a thread of its own. `name` is cut to 15 bytes. `nice` is added to the process's
 * own niceness (0: as it is); that it cannot be had is no failure. All signals but the faults a
 * thread causes itself are blocked in it, so a handler of the program never runs on a small stack
 * and never interrupts a read. *out must be joined or detached.
 */
int fb_thread_start(pthread_t *out, void *(*fn)(void *arg), void *arg, const char *name,
                    uint64_t stack_bytes, int nice, forebay_error *error);
#endif
