/* Ranges of one memfd between real processes, which are killed at any instant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/size.h"
#include "transport/arena.h"
#include "transport/watch.h"

static struct fb_arena *arena_of(uint64_t limit)
{
    struct fb_arena *arena = NULL;
    forebay_error error;

    assert_int_equal(fb_arena_open(&arena, limit, NULL, &error), FOREBAY_OK);
    return arena;
}

static struct fb_arena_stats stats_of(struct fb_arena *arena)
{
    struct fb_arena_stats stats;

    fb_arena_read(arena, &stats);
    return stats;
}

static void ranges_do_not_overlap_and_come_back(void **state)
{
    struct fb_arena *arena = arena_of(FB_MIB);
    struct fb_range ranges[16], more;

    (void)state;
    for (int i = 0; i < 16; i++) {
        assert_true(fb_arena_take(arena, 1000 + 4000 * (uint64_t)i, &ranges[i]));
        memset(ranges[i].data, i, ranges[i].bytes);
    }
    assert_false(fb_arena_take(arena, 1, &more));
    for (int i = 0; i < 16; i++)
        for (uint64_t at = 0; at < ranges[i].bytes; at++)
            assert_int_equal(ranges[i].data[at], i);
    assert_int_equal(stats_of(arena).own_ranges, 16);
    fb_arena_release(arena, &ranges[3]);
    fb_arena_release(arena, &ranges[3]); /* a second time is no one's business */
    assert_true(fb_arena_take(arena, 65536, &more));
    assert_int_equal(more.offset, ranges[3].offset);
    fb_arena_release(arena, &ranges[3]); /* nor is a range that another one has now */
    assert_int_equal(stats_of(arena).own_ranges, 16);
    fb_arena_close(arena);
}

static void the_limit_is_bytes_and_may_change(void **state)
{
    struct fb_arena *arena = arena_of(8 * FB_MIB);
    struct fb_range one, other;
    forebay_error error;

    (void)state;
    assert_true(fb_arena_take(arena, 5 * FB_MIB, &one));
    assert_false(fb_arena_take(arena, 4 * FB_MIB, &other));
    assert_int_equal(stats_of(arena).refused, 1);
    assert_int_equal(fb_arena_set_limit(arena, 9 * FB_MIB, &error), FOREBAY_OK);
    assert_true(fb_arena_take(arena, 4 * FB_MIB, &other));
    assert_int_equal(fb_arena_set_limit(arena, 5 * FB_MIB, &error), FOREBAY_OK);
    fb_arena_release(arena, &one);
    assert_false(fb_arena_take(arena, 5 * FB_MIB, &one));
    fb_arena_release(arena, &other);
    assert_true(fb_arena_take(arena, 5 * FB_MIB, &one));
    fb_arena_close(arena);
}

static void the_budget_knows_it(void **state)
{
    struct fb_budget *budget;
    struct fb_budget_report report;
    struct fb_arena *arena;
    forebay_error error;

    (void)state;
    assert_int_equal(fb_budget_new(&budget, 10 * FB_MIB, &error), FOREBAY_OK);
    assert_int_equal(fb_arena_open(&arena, 11 * FB_MIB, budget, &error), FOREBAY_OVER_BUDGET);
    assert_int_equal(fb_arena_open(&arena, 8 * FB_MIB, budget, &error), FOREBAY_OK);
    assert_int_equal(fb_arena_set_limit(arena, 12 * FB_MIB, &error), FOREBAY_OVER_BUDGET);
    fb_budget_read(budget, &report);
    assert_int_equal(report.used, 8 * FB_MIB);
    fb_arena_close(arena);
    fb_budget_read(budget, &report);
    assert_int_equal(report.used, 0);
    fb_budget_free(budget);
}

static void pages_above_recent_use_go_back_to_the_kernel(void **state)
{
    struct fb_arena *arena = arena_of(64 * FB_MIB);
    struct fb_range range;

    (void)state;
    assert_true(fb_arena_take(arena, 60 * FB_MIB, &range));
    memset(range.data, 1, range.bytes);
    fb_arena_release(arena, &range);
    assert_true(stats_of(arena).resident_bytes >= 60 * FB_MIB); /* warm for the next */
    for (int i = 0; i < 200; i++) {
        assert_true(fb_arena_take(arena, FB_MIB, &range));
        memset(range.data, 1, range.bytes);
        fb_arena_release(arena, &range);
    }
    assert_true(stats_of(arena).resident_bytes < 3 * FB_MIB);
    fb_arena_trim(arena);
    assert_true(stats_of(arena).resident_bytes < FB_MIB);
    fb_arena_close(arena);
}

/* A child that takes, writes and sends over a pipe what the parent adopts. */
struct letter {
    uint64_t offset, bytes, ticket;
};

static void work(struct fb_arena *arena, int pipe_end, unsigned seed)
{
    for (;;) {
        struct fb_range range;
        struct letter letter;

        seed = seed * 1664525 + 1013904223;
        if (!fb_arena_take(arena, 1 + seed % (3 * FB_MIB), &range))
            continue;
        memset(range.data, (int)(range.bytes % 251), range.bytes);
        if (seed % 7 == 0) {
            fb_arena_release(arena, &range);
            continue;
        }
        letter = (struct letter){ range.offset, range.bytes, fb_arena_send(arena, &range) };
        if (write(pipe_end, &letter, sizeof(letter)) != sizeof(letter))
            _exit(0);
    }
}

static pid_t worker_new(struct fb_arena *arena, int pipe_end, unsigned seed)
{
    pid_t pid = fork();

    if (!pid)
        work(arena, pipe_end, seed);
    return pid;
}

static void take_letters(struct fb_arena *arena, int from, int count)
{
    for (int i = 0; i < count; i++) {
        struct letter letter;
        struct fb_range range;
        forebay_error error;

        assert_int_equal(read(from, &letter, sizeof(letter)), sizeof(letter));
        if (fb_arena_adopt(arena, letter.offset, letter.bytes, letter.ticket, &range, &error))
            continue; /* of one that was killed and reclaimed */
        for (uint64_t at = 0; at < range.bytes; at += 997)
            assert_int_equal(range.data[at], range.bytes % 251);
        fb_arena_release(arena, &range);
    }
}

static void kills_at_any_instant_lose_no_memory(void **state)
{
    struct fb_arena *arena = arena_of(16 * FB_MIB);
    pid_t workers[3];
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    for (unsigned i = 0; i < 3; i++)
        workers[i] = worker_new(arena, ends[1], i);
    for (unsigned round = 0; round < 100; round++) {
        unsigned victim = round % 3;

        take_letters(arena, ends[0], 5 + (int)(round % 4));
        kill(workers[victim], SIGKILL);
        waitpid(workers[victim], NULL, 0);
        fb_arena_reclaim(arena, round % 2 ? workers[victim] : 0);
        workers[victim] = worker_new(arena, ends[1], 100 + round);
    }
    for (unsigned i = 0; i < 3; i++) {
        kill(workers[i], SIGKILL);
        waitpid(workers[i], NULL, 0);
    }
    fb_arena_reclaim(arena, 0);
    assert_int_equal(stats_of(arena).used_bytes, 0);
    close(ends[0]);
    close(ends[1]);
    fb_arena_close(arena);
}

static void another_process_attaches_by_descriptor(void **state)
{
    struct fb_arena *arena = arena_of(FB_MIB), *same;
    struct fb_range range, seen;
    forebay_error error;
    int plain = memfd_create("plain", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(fb_arena_attach(&same, fb_arena_fd(arena), &error), FOREBAY_OK);
    assert_true(fb_arena_take(arena, 100, &range));
    strcpy((char *)range.data, "hello");
    assert_int_equal(fb_arena_adopt(same, range.offset, 100, fb_arena_send(arena, &range), &seen,
                                    &error), FOREBAY_OK);
    assert_string_equal((char *)seen.data, "hello");
    assert_int_equal(fb_arena_adopt(same, range.offset, 100, range.word, &seen, &error),
                     FOREBAY_BAD_DATA);
    fb_arena_close(same);
    assert_int_equal(fb_arena_attach(&same, 9999, &error), FOREBAY_IO);
    assert_int_equal(fb_arena_attach(&same, plain, &error), FOREBAY_BAD_DATA);
    assert_int_equal(ftruncate(plain, 1 << 20), 0);
    assert_int_equal(fb_arena_attach(&same, plain, &error), FOREBAY_BAD_DATA);
    close(plain);
    fb_arena_close(arena);
}

/* ---- The watch ---- */

static void take_pidfd_away(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof(rules) / sizeof(rules[0]), rules };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* A child starts a worker and is killed. The worker holds the pipe's end; its hang-up is its end. */
static void check_worker_ends(bool with_pidfd)
{
    int ends[2];
    char byte;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (!child) {
        if (!with_pidfd)
            take_pidfd_away();
        if (!fork()) {
            if (fb_watch_parent(NULL) || fb_watch_parent(NULL) || write(ends[1], "r", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static void a_worker_ends_with_its_parent(void **state)
{
    (void)state;
    check_worker_ends(true);
}

static void a_worker_ends_with_its_parent_where_there_is_no_pidfd(void **state)
{
    (void)state;
    check_worker_ends(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_do_not_overlap_and_come_back),
        cmocka_unit_test(the_limit_is_bytes_and_may_change),
        cmocka_unit_test(the_budget_knows_it),
        cmocka_unit_test(pages_above_recent_use_go_back_to_the_kernel),
        cmocka_unit_test(kills_at_any_instant_lose_no_memory),
        cmocka_unit_test(another_process_attaches_by_descriptor),
        cmocka_unit_test(a_worker_ends_with_its_parent),
        cmocka_unit_test(a_worker_ends_with_its_parent_where_there_is_no_pidfd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
