/*
 * test_config_memory.c -- every allocation fails once: nothing crashes, nothing is kept.
 *
 * This program's own malloc stands in front of the C library's, so that libyaml's allocations
 * fail, too. A sanitizer brings its own malloc: then this test is skipped (77).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sanitized.h"
#include "config/config.h"

#if FB_SANITIZED || !defined(__GLIBC__)
int main(void)
{
    return 77;
}
#else
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *old);

/* While counting: calls so far, the one that fails (0: none), pieces not given back. */
static bool is_counting;
static long calls, failing, kept;

static bool fails(void)
{
    return is_counting && ++calls == failing;
}

static void *count(void *piece)
{
    kept += is_counting && piece;
    return piece;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : count(__libc_malloc(bytes));
}

void *calloc(size_t number, size_t bytes)
{
    return fails() ? NULL : count(__libc_calloc(number, bytes));
}

void *realloc(void *old, size_t bytes)
{
    if (fails())
        return NULL;
    return old ? __libc_realloc(old, bytes) : count(__libc_malloc(bytes));
}

void free(void *old)
{
    kept -= is_counting && old;
    __libc_free(old);
}

static const char text[] = "name: train\n"
                           "source:\n"
                           "  kind: npy\n"
                           "  path: [\"a/*.npy\", 'b/*.npy', c]\n"
                           "  fields: {blur: \"blur/*.npy\", sharp: s}\n"
                           "memory: {budget: 8GiB, cache: off}\n"
                           "TRAIN: {NUM_WORKERS: 4, PREFETCH_FACTOR: 2}\n"
                           "max_errors: 2.5%\n";

static int read_once(struct fb_config *config, forebay_error *error)
{
    static const char *const settings[] = { "source.fields.voxel=v/*.npy", "batch.size=4",
                                            "batch.fields=[blur, sharp]" };
    forebay_options options = FOREBAY_OPTIONS_INIT;

    options.config_text = text;
    options.settings = settings;
    options.setting_count = 3;
    return fb_config_read(config, &options, NULL, error);
}

static void every_allocation_fails_once_and_nothing_is_kept(void **state)
{
    struct fb_config config;
    forebay_error error;
    int status = FOREBAY_NO_MEMORY;

    (void)state;
    for (failing = 1; status != FOREBAY_OK; failing++) {
        calls = kept = 0;
        is_counting = true;
        status = read_once(&config, &error);
        if (status == FOREBAY_OK)
            fb_config_release(&config);
        is_counting = false;
        assert_int_equal(kept, 0);
        if (status != FOREBAY_OK) {
            assert_int_equal(status, FOREBAY_NO_MEMORY);
            assert_non_null(strstr(error.message, "no memory"));
        }
        assert_true(failing < 10000);
    }
    /* It ended because there was no call left to fail, after a good many. */
    assert_true(calls < failing);
    assert_true(calls > 50);
}

static void a_file_that_cannot_be_held_is_an_error(void **state)
{
    char path[] = "/tmp/forebay-test-XXXXXX";
    forebay_options options = FOREBAY_OPTIONS_INIT;
    int fd = mkstemp(path), status = FOREBAY_NO_MEMORY;
    struct fb_config config;
    forebay_error error;

    (void)state;
    assert_true(fd >= 0);
    options.config_file = path;
    for (failing = 1; status != FOREBAY_OK; failing++) {
        calls = kept = 0;
        is_counting = true;
        status = fb_config_read(&config, &options, NULL, &error);
        if (status == FOREBAY_OK)
            fb_config_release(&config);
        is_counting = false;
        assert_int_equal(kept, 0);
        assert_true(status == FOREBAY_OK || status == FOREBAY_NO_MEMORY);
        assert_true(failing < 10000);
    }
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once_and_nothing_is_kept),
        cmocka_unit_test(a_file_that_cannot_be_held_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
