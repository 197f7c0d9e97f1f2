/* Pages: what is written is read, torn and hostile ones are not, the dead are told from the
 * living. */
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/thread.h"
#include "monitor/snapshot_file.h"
#include "monitor/verdict.h"

static char folder[64];
static struct fb_snapshot page, seen;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"), 0);
    snprintf(folder, sizeof(folder), "test_page.XXXXXX");
    assert_non_null(mkdtemp(folder));
    setenv("FOREBAY_RUN_DIR", folder, 1);
    memset(&page, 0, sizeof(page));
    fb_snapshot_identify(&page, "train/../x");
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

struct found {
    unsigned count;
    char path[512];
};

static bool remember(void *data, const struct fb_snapshot *one, const char *path)
{
    struct found *found = data;

    seen = *one;
    found->count++;
    snprintf(found->path, sizeof(found->path), "%s", path);
    return true;
}

static struct found look(void)
{
    struct found found = { 0 };

    assert_int_equal(fb_snapshot_file_list(remember, &found, NULL), FOREBAY_OK);
    return found;
}

static void what_is_written_is_read(void **state)
{
    struct fb_snapshot_file *writer, *twin;

    (void)state;
    page.samples = 7;
    assert_int_equal(fb_snapshot_file_open(&writer, &page, NULL), FOREBAY_OK);
    assert_int_equal(look().count, 1);
    assert_int_equal(seen.samples, 7);
    for (page.samples = 8; page.samples < 20; page.samples++) {
        fb_snapshot_file_write(writer, &page);
        assert_int_equal(look().count, 1);
        assert_int_equal(seen.samples, page.samples);
    }
    assert_string_equal(seen.name, "train/../x");
    assert_null(strstr(look().path + strlen(folder) + 1, "/")); /* its file's name is tame */
    assert_int_equal(fb_snapshot_file_open(&twin, &page, NULL), FOREBAY_OK);
    assert_int_equal(look().count, 2);
    fb_snapshot_file_close(twin);
    fb_snapshot_file_close(writer);
    assert_int_equal(look().count, 0);
    assert_int_equal(rmdir(folder), 0); /* nothing is left */
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void the_other_copy_serves_where_one_is_torn(void **state)
{
    struct fb_snapshot_file *writer;
    struct found found;
    int fd;

    (void)state;
    for (unsigned at = 0; at < 2; at++) {
        page.samples = 1;
        assert_int_equal(fb_snapshot_file_open(&writer, &page, NULL), FOREBAY_OK);
        page.samples = 2;
        fb_snapshot_file_write(writer, &page);
        found = look();
        fd = open(found.path, O_RDWR);
        /* The middle of one copy, then of the other. */
        assert_int_equal(pwrite(fd, "torn", 4, 200 + (off_t)at * (off_t)sizeof(page)), 4);
        close(fd);
        assert_int_equal(look().count, 1);
        assert_int_equal(seen.samples, at == 0 ? 1 : 2);
        fb_snapshot_file_close(writer);
    }
}

static void hostile_files_are_no_pages(void **state)
{
    char path[128], bytes[FB_SNAPSHOT_FILE_BYTES];
    FILE *file;

    (void)state;
    memset(bytes, 0, sizeof(bytes));
    memset(&page, 0xff, sizeof(page));
    fb_snapshot_file_format(bytes, &page);
    snprintf(path, sizeof(path), "%s/1-2-a.page", folder);
    file = fopen(path, "w");
    fwrite(bytes, 1, sizeof(bytes), file);
    fclose(file);
    assert_int_equal(look().count, 1); /* all is 255, but it ends where it must */
    assert_true(strlen(seen.name) < sizeof(seen.name));
    assert_true(seen.worker_count <= FB_SNAPSHOT_WORKERS);
    assert_false(fb_snapshot_is_alive(&seen));
    assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(look().count, 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(fb_snapshot_file_read(&seen, path, NULL), FOREBAY_BAD_DATA);
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(fb_snapshot_file_read(&seen, path, NULL), FOREBAY_MISSING);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fb_snapshot_file_read(&seen, path, NULL), FOREBAY_MISSING);
    assert_int_equal(look().count, 0);
}

static void a_killed_writer_leaves_its_page_and_is_dead(void **state)
{
    struct fb_snapshot_file *writer;
    int status, ready[2];
    pid_t child;
    char byte;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        fb_snapshot_identify(&page, "child");
        page.bytes = 4711;
        if (fb_snapshot_file_open(&writer, &page, NULL))
            _exit(1);
        (void)!write(ready[1], "x", 1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(look().count, 1);
    assert_true(fb_snapshot_is_alive(&seen));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_int_equal(look().count, 1);
    assert_false(fb_snapshot_is_alive(&seen));
    assert_int_equal(seen.bytes, 4711);
    snprintf(seen.verdict, sizeof(seen.verdict), "gone");
    fb_snapshot_file_settle(look().path, &seen);
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(look().count, 1);
    assert_int_equal(seen.bytes, 4711);
    close(ready[0]);
    close(ready[1]);
}

static void a_program_that_exits_without_closing_leaves_nothing(void **state)
{
    struct fb_snapshot_file *writer;
    int status;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        fb_snapshot_identify(&page, "child");
        if (fb_snapshot_file_open(&writer, &page, NULL))
            _exit(1);
        exit(0);
    }
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(look().count, 0);
}

static void a_forks_child_cannot_close_it(void **state)
{
    struct fb_snapshot_file *writer;
    pid_t child;

    (void)state;
    assert_int_equal(fb_snapshot_file_open(&writer, &page, NULL), FOREBAY_OK);
    child = fork();
    if (child == 0) {
        fb_snapshot_file_close(writer);
        exit(0);
    }
    waitpid(child, NULL, 0);
    assert_int_equal(look().count, 1);
    assert_true(fb_snapshot_is_alive(&seen));
    fb_snapshot_file_close(writer);
}

static _Atomic bool stop;

static void *write_on(void *data)
{
    struct fb_snapshot_file *writer;
    struct fb_snapshot mine = page;

    (void)data;
    if (fb_snapshot_file_open(&writer, &mine, NULL))
        return NULL;
    while (!atomic_load(&stop)) {
        mine.samples++;
        mine.batches = mine.bytes = mine.samples;
        fb_snapshot_file_write(writer, &mine);
    }
    fb_snapshot_file_close(writer);
    return NULL;
}

static void a_reader_never_sees_half_of_a_write(void **state)
{
    unsigned good = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(fb_thread_start(&thread, write_on, NULL, "writer",
                                     FB_THREAD_STACK_BYTES, 0, NULL), FOREBAY_OK);
    for (unsigned i = 0; i < 2000; i++) {
        if (look().count == 0)
            continue;
        assert_int_equal(seen.samples, seen.batches);
        assert_int_equal(seen.samples, seen.bytes);
        good++;
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_true(good > 0);
}

static uint64_t own_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The best of some rounds, by this thread's own CPU time: others do not count. It is 0.4 us; the
 * bound leaves room for sanitizers and emulators, not for a system call. */
static void an_update_costs_next_to_nothing(void **state)
{
    struct fb_snapshot_file *writer;
    uint64_t best = UINT64_MAX;

    (void)state;
    assert_int_equal(fb_snapshot_file_open(&writer, &page, NULL), FOREBAY_OK);
    for (unsigned round = 0; round < 20; round++) {
        uint64_t begin = own_cpu_ns();

        for (unsigned i = 0; i < 500; i++)
            fb_snapshot_file_write(writer, &page);
        best = fb_min(best, (own_cpu_ns() - begin) / 500);
    }
    fb_snapshot_file_close(writer);
    assert_in_range(best, 1, 20000);
}

static void the_verdict_names_the_stage(void **state)
{
    static const struct {
        double wait, read, decode, copy;
        const char *name;
    } rows[] = {
        { 0.01, 0.9, 0.1, 0.0, "consumer" }, { 0.5, 0.9, 0.1, 0.0, "read" },
        { 0.5, 0.2, 0.7, 0.1, "decode" },    { 0.5, 0.2, 0.2, 0.6, "copy" },
        { (double)NAN, 0.2, 0.2, 0.6, "unknown" },
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        page.wait_share = rows[i].wait;
        page.read_share = rows[i].read;
        page.decode_share = rows[i].decode;
        page.copy_share = rows[i].copy;
        assert_string_equal(fb_verdict_name(fb_verdict(&page)), rows[i].name);
        fb_verdict_tell(&page, text, sizeof(text));
        assert_int_equal(strncmp(text, rows[i].name, strlen(rows[i].name)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_other_copy_serves_where_one_is_torn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_files_are_no_pages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_killed_writer_leaves_its_page_and_is_dead, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_program_that_exits_without_closing_leaves_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_forks_child_cannot_close_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reader_never_sees_half_of_a_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_update_costs_next_to_nothing, set_up, tear_down),
        cmocka_unit_test(the_verdict_names_the_stage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
