#include "source/store_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/store.h"

static char root[64];

static void put(const char *name, size_t bytes)
{
    char path[256], *slash;
    FILE *file;

    snprintf(path, sizeof(path), "%s/forebay/%s", root, name);
    for (slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++)
        fputc('x', file);
    fclose(file);
}

static bool is_there(const char *name)
{
    struct stat about;
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    return lstat(path, &about) == 0;
}

static int begin(void **state)
{
    (void)state;
    strcpy(root, "/tmp/forebay-store-XXXXXX");
    return !mkdtemp(root) || setenv("XDG_CACHE_HOME", root, 1);
}

static int end(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static void an_empty_cache_folder_lists_nothing(void **state)
{
    struct fb_stored list[4];
    uint64_t bytes = 1;
    size_t count = 1;

    (void)state;
    assert_int_equal(fb_store_list(list, 4, &count, &bytes, NULL), FOREBAY_OK);
    assert_int_equal(count, 0);
    assert_int_equal(bytes, 0);
}

static void files_and_folders_are_listed_with_all_their_bytes(void **state)
{
    struct fb_stored list[4];
    uint64_t bytes;
    size_t count;

    (void)state;
    put("table-1.fbt", 100);
    put("quickstart/000.bin", 20);
    put("quickstart/deep/001.bin", 3);
    assert_int_equal(fb_store_list(list, 4, &count, &bytes, NULL), FOREBAY_OK);
    assert_int_equal(count, 2);
    assert_int_equal(bytes, 123);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(list[i].bytes, list[i].is_folder ? 23 : 100);
}

static void more_than_there_is_room_for_is_still_counted(void **state)
{
    struct fb_stored list[1];
    uint64_t bytes;
    size_t count;

    (void)state;
    put("a.fbt", 1);
    put("b.fbt", 2);
    assert_int_equal(fb_store_list(list, 1, &count, &bytes, NULL), FOREBAY_OK);
    assert_int_equal(count, 2);
    assert_int_equal(bytes, 3);
}

static void an_entry_is_dropped_whole_and_the_others_stay(void **state)
{
    uint64_t bytes;

    (void)state;
    put("table-1.fbt", 100);
    put("quickstart/000.bin", 20);
    assert_int_equal(fb_store_drop("quickstart", &bytes, NULL), FOREBAY_OK);
    assert_int_equal(bytes, 20);
    assert_false(is_there("forebay/quickstart"));
    assert_true(is_there("forebay/table-1.fbt"));
}

static void a_link_is_removed_and_what_it_points_to_stays(void **state)
{
    char from[128], to[128];
    uint64_t bytes;

    (void)state;
    put("../mine/precious", 5);
    put("x.fbt", 1);
    snprintf(from, sizeof(from), "%s/mine", root);
    snprintf(to, sizeof(to), "%s/forebay/link", root);
    assert_int_equal(symlink(from, to), 0);
    assert_int_equal(fb_store_drop("link", &bytes, NULL), FOREBAY_OK);
    assert_false(is_there("forebay/link"));
    assert_true(is_there("mine/precious"));
}

static void nothing_outside_the_folder_can_be_named(void **state)
{
    static const char *const names[] = { "../mine", "..", ".", "", "/tmp", "no-such" };
    forebay_error error;
    uint64_t bytes;

    (void)state;
    put("../mine/precious", 5);
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(fb_store_drop(names[i], &bytes, &error), FOREBAY_MISSING);
    assert_true(is_there("mine/precious"));
}

static void the_quickstart_counts_against_the_bound(void **state)
{
    char path[256];

    (void)state;
    put("quickstart/000.bin", 600);
    put("old.fbt", 300);
    snprintf(path, sizeof(path), "%s/forebay/new.fbt", root);
    setenv("FOREBAY_DISK_CACHE", "1000", 1);
    assert_int_equal(fb_store_make_room(path, 50, NULL), FOREBAY_OK);
    assert_true(is_there("forebay/old.fbt"));
    assert_int_equal(fb_store_make_room(path, 200, NULL), FOREBAY_OK);
    assert_false(is_there("forebay/old.fbt"));
    assert_true(is_there("forebay/quickstart"));
    unsetenv("FOREBAY_DISK_CACHE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_empty_cache_folder_lists_nothing, begin, end),
        cmocka_unit_test_setup_teardown(files_and_folders_are_listed_with_all_their_bytes, begin,
                                        end),
        cmocka_unit_test_setup_teardown(more_than_there_is_room_for_is_still_counted, begin, end),
        cmocka_unit_test_setup_teardown(an_entry_is_dropped_whole_and_the_others_stay, begin, end),
        cmocka_unit_test_setup_teardown(a_link_is_removed_and_what_it_points_to_stays, begin, end),
        cmocka_unit_test_setup_teardown(nothing_outside_the_folder_can_be_named, begin, end),
        cmocka_unit_test_setup_teardown(the_quickstart_counts_against_the_bound, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
