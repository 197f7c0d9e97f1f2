/* law_open_close.c -- opening and closing leaves nothing: no memory, no descriptor, no thread,
 * wherever in the run the close comes. */
#include "law.h"

#include "base/clock.h"

#define SECOND_NS 1000000000u
#define GROWTH_BYTES ((uint64_t)2 << 20) /* the allocator's own coming and going */

/* Open, take `batches` of them (giving back all but the last), close; then release the last. */
static void open_take_close(unsigned batches)
{
    forebay_loader *loader;
    forebay_batch *batch, *last = NULL;
    forebay_error error;
    uint64_t began;

    law_ok(law_open_scans(&loader, NULL, &error, "batch.size=8", "batch.collate=pad", "workers=3",
                          "memory.budget=32MiB", "memory.share=off", NULL));
    for (unsigned i = 0; i < batches; i++) {
        law_ok(forebay_next(&batch, loader, &error));
        forebay_batch_release(last);
        last = batch;
    }
    began = fb_now_ns();
    forebay_close(loader);
    assert_true(fb_now_ns() - began < SECOND_NS * (FB_SANITIZED ? 10u : 1u));
    forebay_batch_release(last);
}

static void nothing_grows_over_many_opens(void **state)
{
    unsigned count = law_count(1000, 10000) / (FB_SANITIZED ? 10 : 1);
    unsigned fds, threads = law_threads_alone();
    uint64_t rss;

    (void)state;
    for (unsigned i = 0; i < 50; i++)
        open_take_close(i % 5);
    fds = law_fds();
    rss = law_rss_bytes();
    for (unsigned i = 0; i < count; i++)
        open_take_close(i % 5);
    assert_int_equal(law_fds(), fds);
    assert_true(law_threads_become(threads));
    /* A sanitizer keeps freed memory for a while; it finds leaks its own way. */
    if (!FB_SANITIZED && law_rss_bytes() > rss + GROWTH_BYTES)
        fail_msg("%u opens: resident memory went from %llu to %llu bytes", count,
                 (unsigned long long)rss, (unsigned long long)law_rss_bytes());
}

static void an_open_that_fails_leaves_nothing(void **state)
{
    forebay_loader *loader = NULL;
    forebay_error error;
    unsigned fds, threads = law_threads_alone();

    (void)state;
    open_take_close(1);
    fds = law_fds();
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(law_open_scans(&loader, NULL, &error, "memory.budget=4KiB", NULL),
                         FOREBAY_OVER_BUDGET);
        assert_int_equal(law_open_scans(&loader, NULL, &error, "bach.size=8", NULL),
                         FOREBAY_BAD_CONFIG);
        assert_int_equal(law_open_scans(&loader, NULL, &error, "source.path=/nowhere/*.bin", NULL),
                         FOREBAY_MISSING);
        assert_null(loader);
    }
    assert_int_equal(law_fds(), fds);
    assert_true(law_threads_become(threads));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_grows_over_many_opens),
        cmocka_unit_test(an_open_that_fails_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
