/* Threads: name, niceness, stack, and no signals of the program they serve. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/sanitized.h"
#include "base/thread.h"

/* The thread sanitizer takes its own part of every stack. */
#define SANITIZER_BYTES ((size_t)(FB_SANITIZED_THREAD ? 2 << 20 : 0))

struct seen {
    char name[16];
    int nice;
    size_t stack, guard;
    sigset_t blocked;
};

static void *look_around(void *data)
{
    struct seen *seen = data;
    pthread_attr_t attributes;

    pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
    seen->nice = getpriority(PRIO_PROCESS, 0);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &seen->stack);
    pthread_attr_getguardsize(&attributes, &seen->guard);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_BLOCK, NULL, &seen->blocked);
    return seen;
}

static void thread_look(struct seen *seen, const char *name, int nice)
{
    pthread_t thread;
    void *result;

    assert_int_equal(
        fb_thread_start(&thread, look_around, seen, name, FB_THREAD_STACK_BYTES, nice, NULL),
        FOREBAY_OK);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, seen);
}

static void a_thread_has_its_name_and_a_small_stack(void **state)
{
    struct seen seen;

    (void)state;
    thread_look(&seen, "fb worker 1", 0);
    assert_string_equal(seen.name, "fb worker 1");
    assert_true(seen.stack >= FB_THREAD_STACK_BYTES);
    assert_true(seen.stack <= fb_thread_bytes(FB_THREAD_STACK_BYTES) + SANITIZER_BYTES);
    assert_true(seen.guard >= 4096);
    thread_look(&seen, "a name of more than 15 bytes", 0);
    assert_string_equal(seen.name, "a name of more ");
}

static void niceness_is_added_to_the_programs_own(void **state)
{
    struct seen seen;
    int own = getpriority(PRIO_PROCESS, 0);

    (void)state;
    thread_look(&seen, "plain", 0);
    assert_int_equal(seen.nice, own);
    thread_look(&seen, "nice", 3);
    assert_int_equal(seen.nice, own + 3 > 19 ? 19 : own + 3);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
}

static void signals_stay_with_the_program(void **state)
{
    struct seen seen;
    sigset_t before, after;

    (void)state;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    thread_look(&seen, "quiet", 0);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_true(sigismember(&seen.blocked, SIGINT) == 1);
    assert_true(sigismember(&seen.blocked, SIGCHLD) == 1);
    assert_true(sigismember(&seen.blocked, SIGPROF) == 1);
    assert_true(sigismember(&seen.blocked, SIGSEGV) == 0);
    assert_true(sigismember(&seen.blocked, SIGBUS) == 0);
    for (int number = 1; number < 32; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
}

static void a_stack_that_cannot_be_is_told(void **state)
{
    forebay_error error;
    pthread_t thread;

    (void)state;
    assert_int_equal(
        fb_thread_start(&thread, look_around, NULL, "huge", (uint64_t)1 << 60, 0, &error),
        FOREBAY_NO_MEMORY);
    assert_non_null(strstr(error.message, "huge"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_its_name_and_a_small_stack),
        cmocka_unit_test(niceness_is_added_to_the_programs_own),
        cmocka_unit_test(signals_stay_with_the_program),
        cmocka_unit_test(a_stack_that_cannot_be_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
