/* How a loader ended, told from what it left behind. */
#include "monitor/postmortem.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"

static char folder[64];

/* The example of the design: 41.2 GiB of 42, of which 30 are cache. */
static struct fb_snapshot example(void)
{
    struct fb_snapshot page = { .limit = 34 * FB_GIB,
                            .used = 33 * FB_GIB,
                            .floor = FB_GIB,
                            .group_limit = 42 * FB_GIB,
                            .group_used = 42187593318u + FB_GIB * 2,
                            .group_kills = 3,
                            .host_total = 100 * FB_GIB,
                            .host_available = 50 * FB_GIB,
                            .host_kills = 3,
                            .batches = 12 };

    page.by_stage[FB_STAGE_CACHE] = 30 * FB_GIB;
    return page;
}

static void each_end_has_its_sentence(void **state)
{
    struct fb_snapshot page = example();
    char text[FB_DEATH_BYTES];

    (void)state;
    fb_death_tell(&page, 4, 4, false, text);
    assert_string_equal(text, "killed by the kernel at 41.3 GiB of cgroup limit 42.0 GiB; cache held "
                              "30.0 GiB; lower memory.budget (34.0 GiB) below 32.0 GiB");
    fb_death_tell(&page, 3, 3, false, text);
    assert_non_null(strstr(text, "no out-of-memory kill"));
    assert_non_null(strstr(text, "after 12 batches"));
    fb_death_tell(&page, 3, 4, false, text); /* another group's */
    assert_non_null(strstr(text, "no out-of-memory kill"));
    fb_death_tell(&page, 4, 4, true, text);
    assert_string_equal(text, "the machine was restarted while it ran");
    fb_death_tell(&page, FB_UNKNOWN, 4, false, text);
    assert_int_equal(strncmp(text, "probably killed by the kernel", 29), 0);
    page.group_used = 10 * FB_GIB;
    fb_death_tell(&page, FB_UNKNOWN, 3, false, text);
    assert_non_null(strstr(text, "no out-of-memory kill"));
}

static void a_host_without_groups_is_told_by_its_own_counter(void **state)
{
    struct fb_snapshot page = example();
    char text[FB_DEATH_BYTES];

    (void)state;
    page.group_limit = page.group_used = page.group_kills = FB_UNKNOWN;
    fb_death_tell(&page, FB_UNKNOWN, 9, false, text); /* there was memory enough: not us */
    assert_non_null(strstr(text, "no out-of-memory kill"));
    page.host_available = FB_GIB;
    fb_death_tell(&page, FB_UNKNOWN, 9, false, text);
    assert_non_null(strstr(text, "out of memory at 99.0 GiB of 100 GiB"));
    assert_non_null(strstr(text, "lower memory.budget"));
}

static void where_others_held_it_all_no_budget_is_advised(void **state)
{
    struct fb_snapshot page = example();
    char text[FB_DEATH_BYTES];

    (void)state;
    page.used = 500 * FB_MIB;
    page.floor = 2 * FB_GIB;
    fb_death_tell(&page, 4, 4, false, text);
    assert_null(strstr(text, "lower memory.budget"));
    assert_non_null(strstr(text, "held by others"));
}

static char said[1024];
static unsigned said_count;

static void keep_line(void *data, int level, const char *line)
{
    (void)data;
    (void)level;
    snprintf(said, sizeof(said), "%s", line);
    said_count++;
}

static void leave_a_dead_page(const char *name, uint64_t age_s)
{
    struct fb_snapshot_file *writer;
    struct fb_snapshot page = example();
    struct timespec now;
    int status;
    pid_t child = fork();

    if (child == 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        fb_snapshot_identify(&page, name);
        page.group_kills = fb_host_group_kills(page.group);
        page.time_ns = ((uint64_t)now.tv_sec - age_s) * 1000000000u;
        if (fb_snapshot_file_open(&writer, &page, NULL))
            _exit(1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool count_one(void *data, const struct fb_snapshot *page, const char *path)
{
    (void)page;
    (void)path;
    ++*(unsigned *)data;
    return true;
}

static void each_death_is_said_once_and_removed_after_a_day(void **state)
{
    const struct fb_log log = { .log = keep_line };
    struct fb_snapshot page;
    unsigned count = 0;
    char command[128];

    (void)state;
    assert_int_equal(chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"), 0);
    snprintf(folder, sizeof(folder), "test_death.XXXXXX");
    assert_non_null(mkdtemp(folder));
    setenv("FOREBAY_RUN_DIR", folder, 1);
    assert_false(fb_death_last(&page, NULL));
    leave_a_dead_page("older", 100);
    leave_a_dead_page("newer", 50);
    assert_true(fb_death_last(&page, NULL));
    assert_string_equal(page.name, "newer");
    assert_non_null(strstr(page.verdict, "killed"));
    said_count = 0;
    fb_death_sweep(&log);
    assert_int_equal(said_count, 2);
    fb_death_sweep(&log);
    assert_int_equal(said_count, 2);
    assert_true(fb_death_last(&page, NULL));
    assert_string_equal(page.name, "newer");

    leave_a_dead_page("yesterday", 90000);
    fb_death_sweep(&log);
    assert_int_equal(said_count, 3);
    fb_snapshot_file_list(count_one, &count, NULL);
    assert_int_equal(count, 2);
    for (unsigned i = 0; i < 40; i++) {
        leave_a_dead_page("many", i);
        fb_death_sweep(&log);
    }
    count = 0;
    fb_snapshot_file_list(count_one, &count, NULL);
    assert_int_equal(count, 32);
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_end_has_its_sentence),
        cmocka_unit_test(a_host_without_groups_is_told_by_its_own_counter),
        cmocka_unit_test(where_others_held_it_all_no_budget_is_advised),
        cmocka_unit_test(each_death_is_said_once_and_removed_after_a_day),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
