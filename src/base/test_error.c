/* Errors and the log: what a person gets to read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"

static void a_failure_is_its_status_and_its_sentence(void **state)
{
    forebay_error error = { .place = "old" };

    (void)state;
    assert_int_equal(fb_fail(&error, FOREBAY_IO, "file %d is gone", 7), FOREBAY_IO);
    assert_int_equal(error.status, FOREBAY_IO);
    assert_string_equal(error.message, "file 7 is gone");
    assert_string_equal(error.place, "");
}

static void errno_is_put_into_words(void **state)
{
    forebay_error error;

    (void)state;
    errno = ENOENT;
    assert_int_equal(fb_fail_errno(&error, FOREBAY_MISSING, "cannot open '%s'", "x"),
                     FOREBAY_MISSING);
    assert_string_equal(error.message, "cannot open 'x': No such file or directory");
}

static void nobody_has_to_take_the_message(void **state)
{
    (void)state;
    assert_int_equal(fb_fail(NULL, FOREBAY_IO, "x"), FOREBAY_IO);
    assert_int_equal(fb_fail_errno(NULL, FOREBAY_IO, "x"), FOREBAY_IO);
    fb_error_context(NULL, "x");
    fb_error_place(NULL, "x");
}

static void places_are_put_in_front_and_the_first_place_stays(void **state)
{
    forebay_error error;

    (void)state;
    fb_fail(&error, FOREBAY_BAD_DATA, "checksum is wrong");
    fb_error_context(&error, "member %d", 17);
    fb_error_context(&error, "a.tar");
    assert_string_equal(error.message, "a.tar: member 17: checksum is wrong");
    fb_error_place(&error, "a.tar:%d", 17);
    fb_error_place(&error, "elsewhere");
    assert_string_equal(error.place, "a.tar:17");
}

static void what_is_too_long_is_cut_not_spilled(void **state)
{
    struct {
        forebay_error error;
        char guard[8];
    } box;
    char text[4096];

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    memset(&box, 0x55, sizeof(box));
    fb_fail(&box.error, FOREBAY_IO, "%s", text);
    fb_error_context(&box.error, "%s", text);
    fb_error_place(&box.error, "%s", text);
    errno = EIO;
    fb_fail_errno(&box.error, FOREBAY_IO, "%s", text);
    assert_int_equal(strlen(box.error.message), sizeof(box.error.message) - 1);
    for (size_t i = 0; i < sizeof(box.guard); i++)
        assert_int_equal(box.guard[i], 0x55);
}

static void every_status_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(forebay_status_name(FOREBAY_OK), "OK");
    assert_string_equal(forebay_status_name(FOREBAY_OVER_BUDGET), "OVER_BUDGET");
    assert_string_equal(forebay_status_name(FOREBAY_END), "END");
    assert_string_equal(forebay_status_name(-1000), "?");
}

static void only_the_datas_own_failures_may_be_skipped(void **state)
{
    (void)state;
    assert_true(fb_status_is_data(FOREBAY_BAD_DATA));
    assert_true(fb_status_is_data(FOREBAY_MISSING));
    assert_false(fb_status_is_data(FOREBAY_IO));
    assert_false(fb_status_is_data(FOREBAY_NO_MEMORY));
    assert_false(fb_status_is_data(FOREBAY_OK));
}

static struct {
    int level;
    char line[2048];
    unsigned lines;
} heard;

static void hear(void *data, int level, const char *line)
{
    assert_ptr_equal(data, &heard);
    heard.level = level;
    heard.lines++;
    strncpy(heard.line, line, sizeof(heard.line) - 1);
}

static int stop_at_ten(void *data, const char *what, uint64_t done, uint64_t total)
{
    assert_ptr_equal(data, &heard);
    assert_string_equal(what, "listing files");
    assert_int_equal(total, 100);
    return done >= 10;
}

static void lines_reach_who_was_named_and_nobody_else(void **state)
{
    struct fb_log log = { .log = hear, .data = &heard };

    (void)state;
    fb_say(&log, "%d files", 3);
    assert_string_equal(heard.line, "3 files");
    assert_int_equal(heard.level, 0);
    fb_warn(&log, "slow");
    assert_int_equal(heard.level, 1);
    log.log = NULL;
    fb_say(&log, "nobody");
    fb_say(NULL, "nobody");
    fb_warn(NULL, "nobody");
    assert_int_equal(heard.lines, 2);
}

static void the_caller_can_stop_long_work(void **state)
{
    struct fb_log log = { .progress = stop_at_ten, .data = &heard };
    forebay_error error;

    (void)state;
    assert_int_equal(fb_progress(&log, "listing files", 9, 100, &error), FOREBAY_OK);
    assert_int_equal(fb_progress(&log, "listing files", 10, 100, &error), FOREBAY_STOPPED);
    assert_string_equal(error.message, "stopped while listing files");
    assert_int_equal(fb_progress(NULL, "x", 1, 1, &error), FOREBAY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_its_status_and_its_sentence),
        cmocka_unit_test(errno_is_put_into_words),
        cmocka_unit_test(nobody_has_to_take_the_message),
        cmocka_unit_test(places_are_put_in_front_and_the_first_place_stays),
        cmocka_unit_test(what_is_too_long_is_cut_not_spilled),
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(only_the_datas_own_failures_may_be_skipped),
        cmocka_unit_test(lines_reach_who_was_named_and_nobody_else),
        cmocka_unit_test(the_caller_can_stop_long_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
