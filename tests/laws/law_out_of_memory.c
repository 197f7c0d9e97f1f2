/* law_out_of_memory.c -- every allocation of ours fails once, every read fails once: no crash, no
 * leak, no hang; and whatever is delivered all the same is right. */
#include "law.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"
#include "media.h"

#define RUN_SECONDS 30      /* a run that takes longer hangs */
#define POINTS_MAX 100000   /* more points of failure than any run has */

/* Leaks are the sanitizer's to find, where there is one. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

struct outcome {
    int opened;       /* status of open */
    unsigned errors;  /* of next */
    uint64_t digest;  /* of all batches that came */
    uint64_t samples;
};

static void check_words(const forebay_error *error)
{
    assert_true(error->status < 0);
    assert_true(strlen(error->message) > 8);
}

static const struct media_kind *media; /* what is opened; NULL: scans */

static int open_it(forebay_loader **loader, const char *cache, forebay_error *error)
{
    if (media)
        return media_open(loader, media, error, "batch.size=16", "workers=2",
                          "memory.budget=64MiB", cache, NULL);
    return law_open_scans(loader, NULL, error, "batch.size=16", "batch.collate=pad", "workers=2",
                          "memory.budget=32MiB", "memory.share=off", cache, NULL);
}

/* A complete use: open, one epoch, a live change, close. Errors are taken as they come. */
static struct outcome use_once(bool cached)
{
    struct outcome outcome = { .opened = FOREBAY_OK };
    forebay_error error = { .message = "" };
    forebay_loader *loader = NULL;
    forebay_batch *batch;
    int status;

    outcome.opened = open_it(&loader, cached ? "memory.cache=4MiB" : "memory.cache=off", &error);
    if (outcome.opened) {
        check_words(&error);
        assert_null(loader);
        return outcome;
    }
    while ((status = forebay_next(&batch, loader, &error)) != FOREBAY_END) {
        if (status == FOREBAY_OK) {
            outcome.digest = law_digest(outcome.digest, batch);
            outcome.samples += batch->samples;
            forebay_batch_release(batch);
            (void)forebay_set(loader, "workers", outcome.samples % 32 ? "1" : "3", NULL, NULL);
        } else {
            check_words(&error);
            if (++outcome.errors > LAW_SCANS)
                break; /* it cannot go on, and says so each time */
        }
    }
    forebay_close(loader);
    return outcome;
}

/* One run with one fault. False when the run had no such call any more. */
static bool run_with_fault(enum fault_kind kind, uint64_t at, bool cached, uint64_t expected)
{
    struct outcome outcome;
    bool happened;

    alarm(RUN_SECONDS);
    faults_begin(kind, at);
    outcome = use_once(cached);
    happened = faults_end();
    alarm(0);
    if (outcome.opened == FOREBAY_OK && !outcome.errors)
        assert_int_equal(outcome.digest, expected);
    if (!happened) {
        assert_int_equal(outcome.opened, FOREBAY_OK);
        assert_int_equal(outcome.errors, 0);
    }
    return happened;
}

static unsigned threads_of_ours; /* without any loader */

/* What one loader leaves behind may be there for a while yet: the kernel lists a thread for a moment
 * after it was joined, and a worker that a busy disk held up for close's whole second comes back. */
static bool leaves_nothing(unsigned fds, int64_t mapped)
{
    return law_threads_become(threads_of_ours) && law_fds() == fds &&
           faults_mapped_bytes() == mapped;
}

/* Every point of failure in turn; all of them under soak, else about `points` spread over them. */
static void fail_each_once(enum fault_kind kind, bool cached, unsigned points)
{
    unsigned fds = law_fds();
    int64_t mapped = faults_mapped_bytes();
    uint64_t expected = use_once(cached).digest;
    uint64_t at = 1, step = 1, tried = 0;

    while (at < POINTS_MAX && run_with_fault(kind, at, cached, expected)) {
        if (!leaves_nothing(fds, mapped))
            fail_msg("call %llu failed: %u descriptors, %u threads, %lld bytes mapped are left",
                     (unsigned long long)at, law_fds() - fds, law_threads() - threads_of_ours,
                     (long long)(faults_mapped_bytes() - mapped));
        if (__lsan_do_recoverable_leak_check && tried % 8 == 0)
            assert_int_equal(__lsan_do_recoverable_leak_check(), 0);
        /* The first ones, in open, one by one; then ever wider steps. */
        if (++tried >= law_count(points, POINTS_MAX) / 2)
            step = 1 + at / law_count(points, POINTS_MAX) * 4;
        at += step;
    }
    assert_true(tried > 0);
    assert_true(at < POINTS_MAX);
    printf("%llu points of failure, the last at call %llu\n", (unsigned long long)tried,
           (unsigned long long)at);
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    fail_each_once(FAULT_MEMORY, false, FB_SANITIZED ? 80 : 200);
}

static void every_allocation_fails_once_with_a_cache(void **state)
{
    (void)state;
    fail_each_once(FAULT_MEMORY, true, FB_SANITIZED ? 80 : 200);
}

static void every_read_fails_once(void **state)
{
    (void)state;
    fail_each_once(FAULT_READ, false, FB_SANITIZED ? 30 : 60);
}

static void every_read_is_short_once(void **state)
{
    (void)state;
    fail_each_once(FAULT_SHORT, true, FB_SANITIZED ? 30 : 60);
}

static void every_open_fails_once(void **state)
{
    (void)state;
    fail_each_once(FAULT_OPEN, false, FB_SANITIZED ? 30 : 60);
}

/* Images, tar shards of every form and speech: fewer points each, as there are many kinds. */
static void every_call_fails_once_of_every_other_kind(void **state)
{
    (void)state;
    for (unsigned k = 0; k < media_kind_count; k++) {
        media = &media_kinds[k];
        use_once(false); /* the data is made */
        setenv("XDG_CACHE_HOME", "/proc/nowhere", 1); /* no index is kept: every run scans */
        printf("%s: ", media->name);
        fflush(stdout);
        fail_each_once(FAULT_MEMORY, true, FB_SANITIZED ? 24 : 60);
        fail_each_once(FAULT_READ, false, FB_SANITIZED ? 4 : 16);
        fail_each_once(FAULT_SHORT, false, FB_SANITIZED ? 4 : 16);
        fail_each_once(FAULT_OPEN, false, FB_SANITIZED ? 4 : 16);
    }
    media = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(every_allocation_fails_once_with_a_cache),
        cmocka_unit_test(every_read_fails_once),
        cmocka_unit_test(every_read_is_short_once),
        cmocka_unit_test(every_open_fails_once),
        cmocka_unit_test(every_call_fails_once_of_every_other_kind),
    };

    threads_of_ours = law_threads_alone();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
