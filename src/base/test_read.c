/* Reading: what the cache has, the ring, plain calls, and each of them failing. */
#include "base/test_read_fakes.h"

static void a_cached_file_takes_one_call(void **state)
{
    struct fb_reader *reader = reader_new(false);

    (void)state;
    check_reads_right(reader, LARGE_BYTES, 0);
    assert_int_equal(fake.warm_calls, 1);
    assert_int_equal(fake.cold_calls + fake.ring_opens, 0);
    assert_int_equal(fb_reader_bytes(reader), LARGE_BYTES);
    fb_reader_free(reader);
}

static void a_cold_file_arrives_whole_through_the_ring(void **state)
{
    struct fb_reader *reader = reader_new(false);

    (void)state;
    if (!make_cold())
        fake.nothing_cached = true;
    check_reads_right(reader, LARGE_BYTES, 0);
    fake.nothing_cached = true;
    check_reads_right(reader, LARGE_BYTES - 777, 333);
    check_reads_right(reader, FB_MIB, 2 * FB_MIB - 1);
    assert_int_equal(fake.ring_opens, 1);
    assert_int_equal(fake.cold_calls, 0);
    fb_reader_free(reader);
}

static void a_single_cold_chunk_needs_no_ring(void **state)
{
    struct fb_reader *reader = reader_new(false);

    (void)state;
    fake.nothing_cached = true;
    check_reads_right(reader, SMALL_BYTES, 4095);
    assert_int_equal(fake.ring_opens, 0);
    assert_int_equal(fake.cold_calls, 1);
    fb_reader_free(reader);
}

static void nothing_to_read_asks_nobody(void **state)
{
    struct fb_reader *reader = reader_new(false);

    (void)state;
    check_reads_right(reader, 0, LARGE_BYTES + 7);
    assert_int_equal(fake.warm_calls + fake.cold_calls, 0);
    fb_reader_free(reader);
}

static void where_a_ring_is_refused_plain_reads_do_it(void **state)
{
    static const int reasons[] = { -EPERM, -ENOSYS, -ENOMEM, -EMFILE };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct fb_reader *reader = reader_new(false);

        fake.nothing_cached = true;
        fake.ring_open_result = reasons[i];
        check_reads_right(reader, LARGE_BYTES, 0);
        check_reads_right(reader, LARGE_BYTES - 1, 1);
        assert_int_equal(fake.ring_opens, 1); /* asked once */
        assert_true(fake.cold_calls >= 2);
        fb_reader_free(reader);
    }
}

static void whatever_ends_a_chunk_the_bytes_are_right(void **state)
{
    static const int results[] = { 1,       4096,    100000,      -EINTR,     -EIO, -ESTALE,
                                   -EAGAIN, -EINVAL, -EOPNOTSUPP, -ECANCELED, 0 };

    (void)state;
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        for (unsigned from = 1; from <= 12; from += 4) {
            struct fb_reader *reader = reader_new(false);

            fake.nothing_cached = true;
            fake.ring_from = from;
            fake.ring_times = 3;
            fake.ring_result = results[i];
            check_reads_right(reader, LARGE_BYTES, 0);
            check_reads_right(reader, LARGE_BYTES - 5, 5);
            assert_int_equal(fake.sleeps, 0);
            fb_reader_free(reader);
        }
    }
}

static void a_ring_whose_reads_are_forbidden_is_given_up(void **state)
{
    struct fb_reader *reader = reader_new(false);
    unsigned turns;

    (void)state;
    fake.nothing_cached = true;
    fake.ring_from = 1;
    fake.ring_times = 1000;
    fake.ring_result = -EINVAL;
    check_reads_right(reader, LARGE_BYTES, 0);
    turns = fake.ring_turns;
    check_reads_right(reader, LARGE_BYTES, 0);
    assert_int_equal(fake.ring_turns, turns);
    fb_reader_free(reader);
}

static void a_ring_that_takes_nothing_is_given_up(void **state)
{
    struct fb_reader *reader = reader_new(false);

    (void)state;
    fake.nothing_cached = true;
    fake.ring_submit_result = -EBADF;
    check_reads_right(reader, LARGE_BYTES, 0);
    check_reads_right(reader, LARGE_BYTES, 0);
    assert_int_equal(fake.ring_turns, 1);
    fb_reader_free(reader);
}

static void a_passing_failure_is_retried_three_times(void **state)
{
    static const int numbers[] = { EIO, ETIMEDOUT, ENOMEM, ESTALE };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct fb_reader *reader = reader_new(false);

        fake.nothing_cached = true;
        fake.cold_from = 1;
        fake.cold_times = 3;
        fake.cold_errno = numbers[i];
        check_reads_right(reader, SMALL_BYTES, 0);
        assert_int_equal(fake.sleeps, 3);
        assert_int_equal(fake.slept_ms, 1110);
        fb_reader_free(reader);
    }
}

static void a_lasting_failure_is_told_with_its_path(void **state)
{
    struct fb_reader *reader = reader_new(false);
    forebay_error error = { 0 };

    (void)state;
    fake.nothing_cached = true;
    fake.cold_from = 1;
    fake.cold_times = 100;
    fake.cold_errno = EIO;
    assert_int_equal(read_part(reader, small_path, SMALL_BYTES, 0, &error), FOREBAY_IO);
    assert_int_equal(fake.cold_calls, 4);
    assert_non_null(strstr(error.message, small_path));
    assert_string_equal(error.place, small_path);
    assert_int_equal(fb_reader_bytes(reader), 0);
    assert_int_equal(fb_reader_busy_since_ns(reader), 0);
    fb_reader_free(reader);
}

static void a_failure_that_will_not_pass_is_not_retried(void **state)
{
    struct fb_reader *reader = reader_new(false);
    forebay_error error = { 0 };

    (void)state;
    fake.nothing_cached = true;
    fake.cold_from = 1;
    fake.cold_times = 100;
    fake.cold_errno = EBADF;
    assert_int_equal(read_part(reader, small_path, SMALL_BYTES, 0, &error), FOREBAY_IO);
    fake.cold_errno = EISDIR;
    assert_int_equal(read_part(reader, small_path, SMALL_BYTES, 0, &error), FOREBAY_MISSING);
    assert_int_equal(fake.sleeps, 0);
    fb_reader_free(reader);
}

static void every_call_may_fail_or_be_short_once(void **state)
{
    static const int numbers[] = { 0, EINTR, EIO, ESTALE };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        for (unsigned from = 1; from <= 4; from++) {
            struct fb_reader *reader = reader_new(false);

            fake.nothing_cached = true;
            fake.ring_open_result = -EPERM;
            fake.cold_from = from;
            fake.cold_times = 1;
            fake.cold_errno = numbers[i];
            check_reads_right(reader, LARGE_BYTES, 0);
            check_reads_right(reader, LARGE_BYTES, 0);
            check_reads_right(reader, LARGE_BYTES, 0);
            fb_reader_free(reader);
        }
    }
}

static void interruptions_are_no_failures(void **state)
{
    struct fb_reader *reader = reader_new(false);

    (void)state;
    fake.nothing_cached = true;
    fake.cold_from = 1;
    fake.cold_times = 50;
    fake.cold_errno = EINTR;
    check_reads_right(reader, SMALL_BYTES, 0);
    assert_int_equal(fake.sleeps, 0);
    fb_reader_free(reader);
}

static void a_file_that_ends_early_is_bad_data(void **state)
{
    forebay_error error = { 0 };

    (void)state;
    for (int cold = 0; cold < 2; cold++) {
        struct fb_reader *reader = reader_new(false);
        char size[32];

        fake.nothing_cached = cold;
        snprintf(size, sizeof(size), "%llu bytes", (unsigned long long)LARGE_BYTES);
        assert_int_equal(read_part(reader, large_path, LARGE_BYTES, 1, &error), FOREBAY_BAD_DATA);
        assert_non_null(strstr(error.message, large_path));
        assert_non_null(strstr(error.message, size)); /* what it has */
        assert_int_equal(read_part(reader, small_path, 1, 1 << 20, &error), FOREBAY_BAD_DATA);
        fb_reader_free(reader);
    }
}

static void a_range_beyond_any_file_is_bad_data(void **state)
{
    struct fb_reader *reader = reader_new(false);
    forebay_error error = { 0 };

    (void)state;
    assert_int_equal(read_part(reader, small_path, UINT64_MAX, 2, &error), FOREBAY_BAD_DATA);
    assert_int_equal(read_part(reader, small_path, 1, INT64_MAX, &error), FOREBAY_BAD_DATA);
    assert_int_equal(fb_read_exactly(0, got, UINT64_MAX, 2, &error), FOREBAY_BAD_DATA);
    assert_int_equal(fake.warm_calls + fake.cold_calls, 0);
    fb_reader_free(reader);
}

static void a_direct_read_leaves_no_second_copy(void **state)
{
    (void)state;
    for (int old_kernel = 0; old_kernel < 2; old_kernel++) {
        struct fb_reader *reader = reader_new(true);

        if (!make_cold()) {
            fb_reader_free(reader);
            print_message("the file system keeps everything cached: not tested here\n");
            skip();
        }
        fake.no_dontcache = old_kernel;
        check_reads_right(reader, FB_MIB / 4, 0); /* plain: finds out whether RWF_DONTCACHE works */
        check_reads_right(reader, LARGE_BYTES, 0);
        assert_true(make_cold());
        check_reads_right(reader, LARGE_BYTES, 0);
        assert_int_equal(fake.dontcache_calls, old_kernel ? 2 : 0); /* by the first read alone */
        assert_int_equal(cached_pages(), 0);
        fb_reader_free(reader);
    }
}

static void a_ring_that_refuses_dontcache_goes_on_without(void **state)
{
    struct fb_reader *reader = reader_new(true);

    (void)state;
    fake.nothing_cached = true;
    fake.ring_from = 1;
    fake.ring_times = 11; /* all chunks of the first round */
    fake.ring_result = -EOPNOTSUPP;
    check_reads_right(reader, LARGE_BYTES, 0);
    assert_int_equal(fake.cold_calls, 0); /* the ring was not given up */
    check_reads_right(reader, LARGE_BYTES, 0);
    assert_int_equal(fake.cold_calls, 0);
    fb_reader_free(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cached_file_takes_one_call),
        cmocka_unit_test(a_cold_file_arrives_whole_through_the_ring),
        cmocka_unit_test(a_single_cold_chunk_needs_no_ring),
        cmocka_unit_test(nothing_to_read_asks_nobody),
        cmocka_unit_test(where_a_ring_is_refused_plain_reads_do_it),
        cmocka_unit_test(whatever_ends_a_chunk_the_bytes_are_right),
        cmocka_unit_test(a_ring_whose_reads_are_forbidden_is_given_up),
        cmocka_unit_test(a_ring_that_takes_nothing_is_given_up),
        cmocka_unit_test(a_passing_failure_is_retried_three_times),
        cmocka_unit_test(a_lasting_failure_is_told_with_its_path),
        cmocka_unit_test(a_failure_that_will_not_pass_is_not_retried),
        cmocka_unit_test(every_call_may_fail_or_be_short_once),
        cmocka_unit_test(interruptions_are_no_failures),
        cmocka_unit_test(a_file_that_ends_early_is_bad_data),
        cmocka_unit_test(a_range_beyond_any_file_is_bad_data),
        cmocka_unit_test(a_direct_read_leaves_no_second_copy),
        cmocka_unit_test(a_ring_that_refuses_dontcache_goes_on_without),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
