/* Stalls, kills and names of processes, on machines made of a folder with proc/ and sys/. */
#include "memory/pressure.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static void put(const char *path, const char *text)
{
    char whole[512];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *slash = whole + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        assert_true(!mkdir(whole, 0700) || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"), 0);
    snprintf(root, sizeof(root), "test_pressure.XXXXXX");
    return mkdtemp(root) ? 0 : 1;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    return system(command);
}

static void what_the_machine_does_not_say_is_unknown(void **state)
{
    struct fb_host_pressure pressure;
    char folder[FB_HOST_PATH_BYTES];

    (void)state;
    fb_host_pressure_read(&pressure, root);
    assert_true(isnan(pressure.memory_some) && isnan(pressure.memory_full));
    assert_true(isnan(pressure.cpu_some) && isnan(pressure.io_some));
    assert_false(pressure.own);
    assert_true(pressure.swapped_out == FB_UNKNOWN);
    assert_true(fb_host_kills(root) == FB_UNKNOWN);
    fb_host_group(folder, root);
    assert_string_equal(folder, "");
    assert_true(fb_host_group_kills(folder) == FB_UNKNOWN);
    assert_true(fb_host_group_kills("/nowhere") == FB_UNKNOWN);
}

static void put_host(void)
{
    put("/proc/pressure/memory", "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\n"
                                 "full avg10=3.25 avg60=0.00 avg300=0.00 total=4\n");
    put("/proc/pressure/cpu", "some avg10=40.00 avg60=1.00 avg300=0.00 total=9\n");
    put("/proc/vmstat", "nr_free_pages 1\npswpin 3\npswpout 77\noom_kill 5\n");
}

static void stalls_are_the_machines_where_the_group_has_none(void **state)
{
    struct fb_host_pressure pressure;

    (void)state;
    put_host();
    fb_host_pressure_read(&pressure, root);
    assert_true(pressure.memory_some == 12.5 && pressure.memory_full == 3.25);
    assert_true(pressure.cpu_some == 40 && isnan(pressure.io_some));
    assert_false(pressure.own);
    assert_int_equal(pressure.swapped_out, 77);
    assert_int_equal(fb_host_kills(root), 5);
}

static void kills_are_read_from_both_versions(void **state)
{
    char folder[FB_HOST_PATH_BYTES];

    (void)state;
    put("/proc/self/cgroup", "4:memory:/job\n0::/unified\n");
    put("/proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/unified/unified/memory.pressure", "some avg10=2.00 avg60=1.00\n");
    put("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    fb_host_group(folder, root);
    assert_non_null(strstr(folder, "/memory/job"));
    assert_int_equal(fb_host_group_kills(folder), 3);

    put("/proc/self/cgroup", "0::/unified\n");
    put("/sys/fs/cgroup/unified/unified/memory.events", "low 0\noom 4\noom_kill 2\n");
    fb_host_group(folder, root);
    assert_non_null(strstr(folder, "/unified/unified"));
    assert_int_equal(fb_host_group_kills(folder), 2);
}

static void stalls_are_the_groups_own_in_version_2(void **state)
{
    struct fb_host_pressure pressure;

    (void)state;
    put_host();
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/a/memory.pressure", "some avg10=7.00 avg60=1.00\nfull avg10=6.00 x\n");
    fb_host_pressure_read(&pressure, root);
    assert_true(pressure.own);
    assert_true(pressure.memory_some == 7 && pressure.memory_full == 6);
}

static void a_process_has_one_start_and_a_missing_one_none(void **state)
{
    (void)state;
    assert_true(fb_host_process_start(getpid()) > 0);
    assert_int_equal(fb_host_process_start(getpid()), fb_host_process_start(getpid()));
    assert_int_equal(fb_host_process_start(-5), 0);
    assert_true(fb_host_run_delay_ns(0) == FB_UNKNOWN);
}

static void *wait_for_end(void *data)
{
    (void)!read(*(int *)data, &(char){ 0 }, 1);
    _exit(0);
}

static char state_of(pid_t pid)
{
    char path[64], state = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
    fclose(file);
    return state;
}

/* A process is there until its last thread ends, and not one moment longer, reaped or not. */
static void a_zombie_is_no_process_but_one_without_its_first_thread_is(void **state)
{
    int pipes[2], status;
    siginfo_t ended;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        pthread_t thread;

        close(pipes[1]);
        if (pthread_create(&thread, NULL, wait_for_end, &pipes[0]))
            _exit(1);
        syscall(SYS_exit, 0); /* this thread alone; pthread_exit would call a sanitizer's clean-up */
    }
    close(pipes[0]);
    while (state_of(child) != 'Z')
        continue;
    if (!fb_host_process_start(child))
        fail_msg("the child ended whole: %d", waitpid(child, &status, WNOHANG) == child ? status : -1);
    close(pipes[1]);
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(fb_host_process_start(child), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_the_machine_does_not_say_is_unknown, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(stalls_are_the_machines_where_the_group_has_none, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(kills_are_read_from_both_versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stalls_are_the_groups_own_in_version_2, set_up, tear_down),
        cmocka_unit_test(a_process_has_one_start_and_a_missing_one_none),
        cmocka_unit_test(a_zombie_is_no_process_but_one_without_its_first_thread_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
