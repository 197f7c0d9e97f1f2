/* The folders for run-time files and for what is kept: ours, closed, and never a symlink. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "memory/host.h"

static char base[256];

static char *in_base(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", base, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(base, sizeof(base), "/tmp/test_folder.XXXXXX");
    assert_non_null(mkdtemp(base));
    unsetenv("FOREBAY_RUN_DIR");
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    return 0;
}

static int tear_down(void **state)
{
    char command[512];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", base);
    return system(command);
}

static void check_private(const char *path)
{
    struct stat about;

    assert_int_equal(lstat(path, &about), 0);
    assert_true(S_ISDIR(about.st_mode));
    assert_int_equal(about.st_mode & 0777, 0700);
    assert_int_equal(about.st_uid, geteuid());
}

static void the_run_folder_that_is_named_is_made_and_closed(void **state)
{
    char path[FB_HOST_PATH_BYTES];

    (void)state;
    setenv("FOREBAY_RUN_DIR", in_base("deep/run//"), 1);
    setenv("XDG_RUNTIME_DIR", base, 1);
    assert_int_equal(fb_host_run_folder(path, NULL), FOREBAY_OK);
    assert_string_equal(path, in_base("deep/run"));
    check_private(path);
    assert_int_equal(fb_host_run_folder(path, NULL), FOREBAY_OK); /* again */
}

static void without_a_name_the_session_has_one_and_else_tmp(void **state)
{
    char path[FB_HOST_PATH_BYTES], expected[64];

    (void)state;
    setenv("XDG_RUNTIME_DIR", base, 1);
    assert_int_equal(fb_host_run_folder(path, NULL), FOREBAY_OK);
    assert_string_equal(path, in_base("forebay"));
    check_private(path);
    snprintf(expected, sizeof(expected), "/tmp/forebay-%u", (unsigned)geteuid());
    setenv("XDG_RUNTIME_DIR", in_base("not/there"), 1);
    if (fb_host_run_folder(path, NULL) == FOREBAY_OK) /* somebody may have taken the name */
        assert_string_equal(path, expected);
}

static void a_symlink_in_its_place_is_refused(void **state)
{
    char path[FB_HOST_PATH_BYTES] = "untouched", link_path[512];
    forebay_error error;

    (void)state;
    assert_int_equal(mkdir(in_base("real"), 0700), 0);
    snprintf(link_path, sizeof(link_path), "%s", in_base("link"));
    assert_int_equal(symlink(in_base("real"), link_path), 0);
    setenv("FOREBAY_RUN_DIR", link_path, 1);
    assert_int_equal(fb_host_run_folder(path, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "symlink"));
    assert_string_equal(path, "untouched");
    setenv("FOREBAY_RUN_DIR", in_base("link/"), 1);
    assert_int_equal(fb_host_run_folder(path, &error), FOREBAY_BAD_CONFIG);
}

static void a_folder_others_can_write_to_is_refused(void **state)
{
    char path[FB_HOST_PATH_BYTES];
    forebay_error error;

    (void)state;
    setenv("FOREBAY_RUN_DIR", in_base("open"), 1);
    assert_int_equal(mkdir(in_base("open"), 0700), 0);
    assert_int_equal(chmod(in_base("open"), 0777), 0);
    assert_int_equal(fb_host_run_folder(path, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "FOREBAY_RUN_DIR"));
    assert_int_equal(chmod(in_base("open"), 0755), 0);
    assert_int_equal(fb_host_run_folder(path, &error), FOREBAY_OK);
    setenv("FOREBAY_RUN_DIR", "/dev/null", 1);
    assert_int_equal(fb_host_run_folder(path, &error), FOREBAY_BAD_CONFIG);
}

static void a_folder_of_another_user_is_refused(void **state)
{
    char path[FB_HOST_PATH_BYTES];
    forebay_error error;

    (void)state;
    if (geteuid() != 0) {
        setenv("FOREBAY_RUN_DIR", "/usr", 1); /* root's */
    } else {
        assert_int_equal(mkdir(in_base("theirs"), 0700), 0);
        assert_int_equal(chown(in_base("theirs"), 12345, 12345), 0);
        setenv("FOREBAY_RUN_DIR", in_base("theirs"), 1);
    }
    assert_int_equal(fb_host_run_folder(path, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "another user"));
}

static void a_name_that_is_too_long_is_refused(void **state)
{
    char path[FB_HOST_PATH_BYTES], name[FB_HOST_PATH_BYTES + 10];
    forebay_error error;

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    setenv("FOREBAY_RUN_DIR", name, 1);
    assert_int_equal(fb_host_run_folder(path, &error), FOREBAY_BAD_CONFIG);
}

static void the_cache_folder_is_where_xdg_says(void **state)
{
    char path[FB_HOST_PATH_BYTES], tiny[8];

    (void)state;
    setenv("HOME", in_base("home"), 1);
    assert_true(fb_host_cache_folder(path, sizeof(path)));
    assert_string_equal(path, in_base("home/.cache/forebay"));
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored, the standard says */
    assert_true(fb_host_cache_folder(path, sizeof(path)));
    assert_string_equal(path, in_base("home/.cache/forebay"));
    setenv("XDG_CACHE_HOME", in_base("xdg"), 1);
    assert_true(fb_host_cache_folder(path, sizeof(path)));
    assert_string_equal(path, in_base("xdg/forebay"));
    check_private(path);
    assert_false(fb_host_cache_folder(tiny, sizeof(tiny)));
}

static void a_cache_folder_that_cannot_be_is_passed_over(void **state)
{
    char path[FB_HOST_PATH_BYTES];

    (void)state;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    setenv("HOME", base, 1);
    assert_true(fb_host_cache_folder(path, sizeof(path)));
    assert_string_equal(path, in_base(".cache/forebay"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(the_run_folder_that_is_named_is_made_and_closed),
        TEST(without_a_name_the_session_has_one_and_else_tmp),
        TEST(a_symlink_in_its_place_is_refused),
        TEST(a_folder_others_can_write_to_is_refused),
        TEST(a_folder_of_another_user_is_refused),
        TEST(a_name_that_is_too_long_is_refused),
        TEST(the_cache_folder_is_where_xdg_says),
        TEST(a_cache_folder_that_cannot_be_is_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
