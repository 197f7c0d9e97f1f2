#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/audio/manifest.h"

static char room[2 * FB_MANIFEST_LINE_BYTES];
static forebay_error error;

static int file_of(const char *text, size_t bytes)
{
    int fd = memfd_create("manifest", MFD_CLOEXEC);

    assert_int_equal(write(fd, text, bytes), (ssize_t)bytes);
    return fd;
}

static void keys_are_read_and_others_kept_as_text(void **state)
{
    const char line[] =
        "{\"audio_filepath\": \"a/b.wav\", \"duration\": 2.5, \"offset\": 1, "
        "\"text\": \"gr\\u00fc\\u00df\", \"n\": 7, \"list\": [1, \"x\"], \"no\": null}";
    struct fb_utterance said;
    char text[32];

    (void)state;
    assert_int_equal(fb_utterance_parse(&said, line, strlen(line), &error), 0);
    assert_string_equal(said.path, "a/b.wav");
    assert_true(said.duration == 2.5 && said.offset == 1);
    assert_int_equal(fb_utterance_text(&said, "text", text, sizeof(text)), 6);
    assert_memory_equal(text, "gr\xc3\xbc\xc3\x9f", 6);
    assert_int_equal(fb_utterance_text(&said, "n", text, sizeof(text)), 1);
    assert_int_equal(text[0], '7');
    assert_int_equal(fb_utterance_text(&said, "list", text, sizeof(text)), 7);
    assert_memory_equal(text, "[1,\"x\"]", 7);
    assert_int_equal(fb_utterance_text(&said, "no", text, sizeof(text)), 0);
    assert_int_equal(fb_utterance_text(&said, "missing", text, sizeof(text)), 0);
    fb_utterance_release(&said);
}

static void lines_that_are_wrong_say_what(void **state)
{
    static const struct {
        const char *line, *says;
    } rows[] = {
        { "{", "no JSON" },
        { "[1, 2]", "no 'audio_filepath'" },
        { "{\"audio_filepath\": 3}", "no 'audio_filepath'" },
        { "{\"audio_filepath\": \"\"}", "no 'audio_filepath'" },
        { "{\"audio_filepath\": \"a\\u0000b\"}", "no JSON" },
        { "{\"audio_filepath\": \"a\", \"duration\": \"3\"}", "'duration' is no number" },
        { "{\"audio_filepath\": \"a\", \"duration\": -1}", "'duration' is -1" },
        { "{\"audio_filepath\": \"a\", \"duration\": 1e300}", "'duration' is 1e+300" },
        { "{\"audio_filepath\": \"a\", \"offset\": 1}", "'offset' but no 'duration'" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_utterance said;

        assert_int_equal(fb_utterance_parse(&said, rows[i].line, strlen(rows[i].line), &error),
                         FOREBAY_BAD_DATA);
        if (!strstr(error.message, rows[i].says))
            fail_msg("'%s' does not say '%s'", error.message, rows[i].says);
    }
}

struct told {
    char text[4096];
    uint64_t at;
};

static int note(void *data, const char *line, size_t bytes, uint64_t at, uint64_t number,
                forebay_error *e)
{
    struct told *told = data;
    size_t used = strlen(told->text);

    (void)e;
    snprintf(told->text + used, sizeof(told->text) - used, "%d@%d:%.*s|", (int)number, (int)at,
             bytes > 20 ? 20 : (int)bytes, line);
    return FOREBAY_OK;
}

static void blank_lines_are_counted_but_not_told(void **state)
{
    const char text[] = "one\n\n  \t\r\ntwo\r\n\nthree";
    struct told told = { .text = "" };
    int fd = file_of(text, strlen(text));

    (void)state;
    assert_int_equal(fb_manifest_walk(fd, room, note, &told, &error), 0);
    assert_string_equal(told.text, "1@0:one|4@10:two|6@16:three|");
    close(fd);
}

static void a_line_that_is_too_long_is_told_once_and_empty(void **state)
{
    static const size_t lengths[] = { FB_MANIFEST_LINE_BYTES, FB_MANIFEST_LINE_BYTES + 1,
                                      2 * FB_MANIFEST_LINE_BYTES, 2 * FB_MANIFEST_LINE_BYTES + 1,
                                      9 * FB_MANIFEST_LINE_BYTES + 77 };

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        size_t length = lengths[i];
        char *text = malloc(length + 16), wanted[128];
        struct told told = { .text = "" };
        int fd;

        memset(text, 'x', length + 16);
        memcpy(text, "a\n", 2);
        memcpy(text + 2 + length, "\nb\n", 3);
        fd = file_of(text, length + 5);
        assert_int_equal(fb_manifest_walk(fd, room, note, &told, &error), 0);
        snprintf(wanted, sizeof(wanted), "1@0:a|2@2:%s|3@%d:b|",
                 i == 0 ? "xxxxxxxxxxxxxxxxxxxx" : "", (int)length + 3);
        assert_string_equal(told.text, wanted);
        close(fd);
        free(text);
    }
}

static int stop(void *data, const char *line, size_t bytes, uint64_t at, uint64_t number,
                forebay_error *e)
{
    (void)line;
    (void)bytes;
    (void)at;
    (void)e;
    *(uint64_t *)data = number;
    return number == 2 ? FOREBAY_STOPPED : FOREBAY_OK;
}

static void who_is_told_may_stop(void **state)
{
    uint64_t last = 0;
    int fd = file_of("1\n2\n3\n", 6);

    (void)state;
    assert_int_equal(fb_manifest_walk(fd, room, stop, &last, &error), FOREBAY_STOPPED);
    assert_int_equal(last, 2);
    close(fd);
}

/* The line for which jansson takes the most: as many small things as fit. */
static void the_worst_line_stays_inside_the_allowance(void **state)
{
    static const char *const things[] = { "0,", "[],", "{},", "\"\",", "1.5," };
    char *line = malloc(FB_MANIFEST_LINE_BYTES);

    (void)state;
    for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
        size_t used = (size_t)sprintf(line, "{\"audio_filepath\":\"a\",\"x\":["), step;
        struct fb_utterance said;
        uint64_t before, after;

        for (step = strlen(things[i]); used + step + 4 < FB_MANIFEST_LINE_BYTES; used += step)
            memcpy(line + used, things[i], step);
        memcpy(line + used - 1, "]}", 2);
        before = mallinfo2().uordblks + mallinfo2().hblkhd;
        assert_int_equal(fb_utterance_parse(&said, line, used + 1, &error), 0);
        after = mallinfo2().uordblks + mallinfo2().hblkhd;
        fb_utterance_release(&said);
        print_message("%-4s took %llu bytes\n", things[i], (unsigned long long)(after - before));
        assert_true(after - before < FB_MANIFEST_LIBRARY_BYTES);
    }
    free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_read_and_others_kept_as_text),
        cmocka_unit_test(lines_that_are_wrong_say_what),
        cmocka_unit_test(blank_lines_are_counted_but_not_told),
        cmocka_unit_test(a_line_that_is_too_long_is_told_once_and_empty),
        cmocka_unit_test(who_is_told_may_stop),
        cmocka_unit_test(the_worst_line_stays_inside_the_allowance),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
