/* Logs: whole lines, bounded, readable again, whatever became of them. */
#include "monitor/recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"), 0);
    snprintf(folder, sizeof(folder), "test_recorder.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/run.log", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

struct seen {
    unsigned count;
    json_int_t first, last;
};

static bool look(void *data, json_t *object)
{
    struct seen *seen = data;

    seen->last = json_integer_value(json_object_get(object, "n"));
    if (!seen->count++)
        seen->first = seen->last;
    return true;
}

static uint64_t size_of(const char *name)
{
    struct stat about;

    return stat(name, &about) ? 0 : (uint64_t)about.st_size;
}

static void what_is_written_is_read_and_bounded(void **state)
{
    struct fb_recorder *recorder;
    struct seen seen = { 0 };
    uint64_t bad = 9;
    char older[140];

    (void)state;
    assert_int_equal(fb_recorder_open(&recorder, path, 4096, NULL, NULL), FOREBAY_OK);
    for (int i = 0; i < 1000; i++)
        fb_recorder_json(recorder, "tick", json_pack("{s:i}", "n", i));
    fb_recorder_close(recorder);
    snprintf(older, sizeof(older), "%s.1", path);
    assert_true(size_of(path) > 0 && size_of(path) + size_of(older) <= 4096);
    assert_int_equal(fb_recorder_read(path, look, &seen, &bad, NULL), FOREBAY_OK);
    assert_int_equal(bad, 0);
    assert_int_equal(seen.last, 999);
    assert_int_equal(seen.last - seen.first + 1, seen.count); /* none is missing in between */
    assert_true(seen.count > 80);
}

static void a_log_goes_on_where_it_was(void **state)
{
    struct fb_recorder *recorder;
    struct seen seen = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fb_recorder_open(&recorder, path, 0, NULL, NULL), FOREBAY_OK);
        fb_recorder_json(recorder, "tick", json_pack("{s:i}", "n", i));
        fb_recorder_close(recorder);
    }
    assert_int_equal(fb_recorder_read(path, look, &seen, NULL, NULL), FOREBAY_OK);
    assert_int_equal(seen.count, 3);
}

static void torn_and_foreign_lines_are_counted_and_passed_over(void **state)
{
    struct seen seen = { 0 };
    FILE *file = fopen(path, "w");
    uint64_t bad;

    (void)state;
    fputs("{\"n\": 1}\nnot json\n[1]\n{\"n\": 2}\n", file);
    for (int i = 0; i < 100000; i++)
        fputc('x', file);
    fputs("\n{\"n\": 3}\n{\"n\": 4", file);
    fclose(file);
    assert_int_equal(fb_recorder_read(path, look, &seen, &bad, NULL), FOREBAY_OK);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.last, 3);
    assert_int_equal(bad, 4);
}

static void a_log_that_cannot_be_is_said(void **state)
{
    struct fb_recorder *recorder;
    forebay_error error;

    (void)state;
    assert_int_equal(fb_recorder_open(&recorder, "/nowhere/x.log", 0, NULL, &error), FOREBAY_IO);
    assert_non_null(strstr(error.message, "/nowhere/x.log"));
    assert_string_equal(error.place, "monitor.log");
    assert_int_equal(fb_recorder_read("/nowhere/x.log", look, NULL, NULL, &error),
                     FOREBAY_MISSING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_and_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_log_goes_on_where_it_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(torn_and_foreign_lines_are_counted_and_passed_over, set_up,
                                        tear_down),
        cmocka_unit_test(a_log_that_cannot_be_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
