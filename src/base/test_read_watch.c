/* Opening, and watching a reader from outside. */
#include "base/test_read_fakes.h"

static void what_is_no_file_is_refused_at_once(void **state)
{
    struct fb_reader *reader = reader_new(false);
    forebay_error error = { 0 };
    char path[600];

    (void)state;
    assert_int_equal(read_part(reader, folder, 1, 0, &error), FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "a folder"));
    snprintf(path, sizeof(path), "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_part(reader, path, 1, 0, &error), FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "a FIFO"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_part(reader, path, 1, 0, &error), FOREBAY_MISSING);
    assert_int_equal(symlink(path, path), 0); /* to itself */
    assert_int_equal(read_part(reader, path, 1, 0, &error), FOREBAY_MISSING);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/x", small_path);
    assert_int_equal(read_part(reader, path, 1, 0, &error), FOREBAY_MISSING);
    assert_string_equal(error.place, path);
    fb_reader_free(reader);
}

static void too_many_open_files_names_the_limit(void **state)
{
    struct fb_reader *reader = reader_new(false);
    forebay_error error = { 0 };
    struct rlimit before, none;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){ 0, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(read_part(reader, small_path, 1, 0, &error), FOREBAY_IO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_non_null(strstr(error.message, "ulimit -n"));
    fb_reader_free(reader);
}

static struct fb_reader *watched;

/* What a monitor would see in the middle of a read that takes 11 s. */
static void look_at_slow_read(void)
{
    char path[600];

    assert_false(fb_reader_check_slow(watched, &test_log));
    atomic_fetch_add(&clock_ahead_ns, (uint64_t)11 * 1000000000);
    assert_true(fb_reader_busy_since_ns(watched) > 0);
    assert_true(fb_reader_busy_path(watched, path, sizeof(path)));
    assert_string_equal(path, small_path);
    assert_true(fb_reader_busy_path(watched, path, 4));
    assert_string_equal(path, small_path + strlen(small_path) - 3);
    assert_true(fb_reader_check_slow(watched, &test_log));
    assert_false(fb_reader_check_slow(watched, &test_log));
}

static void a_hanging_read_is_said_once_by_who_asks(void **state)
{
    forebay_error error;
    char path[8];

    (void)state;
    watched = reader_new(false);
    fake.nothing_cached = true;
    fake.in_cold_call = look_at_slow_read;
    assert_int_equal(read_part(watched, small_path, 100, 0, &error), FOREBAY_OK);
    assert_int_equal(said_count, 1);
    assert_non_null(strstr(said, small_path));
    assert_int_equal(fb_reader_busy_since_ns(watched), 0);
    assert_false(fb_reader_busy_path(watched, path, sizeof(path)));
    assert_false(fb_reader_check_slow(watched, &test_log));
    fb_reader_free(watched);
}

static void pass_eleven_seconds(void)
{
    atomic_fetch_add(&clock_ahead_ns, (uint64_t)11 * 1000000000);
}

static void a_slow_read_that_nobody_asked_about_says_so_itself(void **state)
{
    struct fb_reader *reader = reader_new(false);
    forebay_error error;

    (void)state;
    fake.nothing_cached = true;
    fake.in_cold_call = pass_eleven_seconds;
    assert_int_equal(read_part(reader, small_path, 100, 0, &error), FOREBAY_OK);
    assert_int_equal(said_count, 1);
    assert_int_equal(read_part(reader, small_path, 100, 0, &error), FOREBAY_OK);
    assert_int_equal(said_count, 2); /* once for each read */
    fb_reader_free(reader);
}

static atomic_bool asking;

static void *ask_all_the_time(void *data)
{
    struct fb_reader *reader = data;
    char path[600];

    while (atomic_load(&asking)) {
        fb_reader_check_slow(reader, NULL);
        if (fb_reader_busy_path(reader, path, sizeof(path)))
            assert_true(!strcmp(path, small_path) || !strcmp(path, large_path));
        fb_reader_bytes(reader);
    }
    return NULL;
}

static void another_thread_may_ask_at_any_time(void **state)
{
    struct fb_reader *reader = reader_new(false);
    pthread_t thread;

    (void)state;
    fake.nothing_cached = true;
    atomic_store(&asking, true);
    assert_int_equal(pthread_create(&thread, NULL, ask_all_the_time, reader), 0);
    for (int i = 0; i < 20; i++) {
        check_reads_right(reader, LARGE_BYTES, 0);
        check_reads_right(reader, 1000, 0);
    }
    atomic_store(&asking, false);
    pthread_join(thread, NULL);
    fb_reader_free(reader);
}

static void the_plain_form_reads_retries_and_fails_alike(void **state)
{
    forebay_error error = { 0 };
    int fd = open(large_path, O_RDONLY);

    (void)state;
    fb_reader_free(reader_new(false));
    fake.cold_from = 1;
    fake.cold_times = 2;
    fake.cold_errno = EIO;
    assert_int_equal(fb_read_exactly(fd, got, 5000, 17, &error), FOREBAY_OK);
    assert_memory_equal(got, expected + 17, 5000);
    assert_int_equal(fb_read_exactly(fd, got, 18, LARGE_BYTES - 17, &error), FOREBAY_BAD_DATA);
    close(fd);
    assert_int_equal(fb_read_exactly(-1, got, 18, 0, &error), FOREBAY_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_file_is_refused_at_once),
        cmocka_unit_test(too_many_open_files_names_the_limit),
        cmocka_unit_test(a_hanging_read_is_said_once_by_who_asks),
        cmocka_unit_test(a_slow_read_that_nobody_asked_about_says_so_itself),
        cmocka_unit_test(another_thread_may_ask_at_any_time),
        cmocka_unit_test(the_plain_form_reads_retries_and_fails_alike),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
