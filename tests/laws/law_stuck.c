/* law_stuck.c -- a read that does not come back: close returns all the same, says so, and nothing
 * happens later when the kernel lets the worker go. preadv2 comes here first (--wrap). */
#include "law.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool stuck;       /* reads wait */
static bool one_only;    /* but only the first of them */
static unsigned waiting; /* how many do */
static unsigned passed;  /* how many went past the one that waits */

ssize_t __real_preadv64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    pthread_mutex_lock(&lock);
    passed += waiting > 0;
    pthread_cond_broadcast(&changed);
    if (stuck && !(one_only && waiting)) {
        waiting++;
        while (stuck)
            pthread_cond_wait(&changed, &lock);
        waiting--;
    }
    pthread_mutex_unlock(&lock);
    return __real_preadv64v2(fd, pieces, count, offset, flags);
}

static void set_stuck(bool now)
{
    pthread_mutex_lock(&lock);
    stuck = now;
    passed = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void await_waiting(unsigned count)
{
    pthread_mutex_lock(&lock);
    while (waiting < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* What was logged, and whether that was after close. */
struct heard {
    unsigned lines, late;
    bool closed;
    char last[512];
};

static void hear(void *data, int level, const char *line)
{
    struct heard *heard = data;

    (void)level;
    pthread_mutex_lock(&lock);
    heard->lines++;
    heard->late += heard->closed;
    snprintf(heard->last, sizeof(heard->last), "%s", line);
    pthread_mutex_unlock(&lock);
}

static void open_kind(forebay_loader **loader, const char *kind, const char *files,
                      forebay_budget *budget, struct heard *heard)
{
    char path[512];
    const char *settings[] = { kind,         path,           "batch.size=8",
                               "workers=3",  "prefetch=4",   "memory.cache=off",
                               "order.window=8", "batch.collate=pad" };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    forebay_error error;

    snprintf(path, sizeof(path), "source.path=%s/%s", law_folder(), files);
    options.settings = settings;
    options.setting_count = sizeof(settings) / sizeof(settings[0]);
    options.budget = budget;
    options.log = hear;
    options.data = heard;
    law_ok(forebay_open(loader, &options, &error));
}

static void open_scans(forebay_loader **loader, forebay_budget *budget, struct heard *heard)
{
    open_kind(loader, "source.kind=bin", "scans/*.bin", budget, heard);
}

/* 12 MiB that cannot be packed, in one packed shard. 16 chunks are kept, and four batches lie on 17,
 * so that there is always one to be read: every worker wants what only one of them unpacks. */
static void open_shard(forebay_loader **loader, forebay_budget *budget, struct heard *heard)
{
    char command[800];

    snprintf(command, sizeof(command),
             "cd '%s' && { test -e all.tar.gz || { mkdir noise && for i in $(seq 96); do "
             "head -c 131072 /dev/urandom >noise/$i.bin; done && tar -C noise -czf all.tar.gz .; }; }",
             law_folder());
    assert_int_equal(system(command), 0);
    open_kind(loader, "source.kind=tar", "all.tar.gz", budget, heard);
}

static void mark_closed(struct heard *heard)
{
    pthread_mutex_lock(&lock);
    heard->closed = true;
    pthread_mutex_unlock(&lock);
}

/* Threads end on their own; there is nothing else to wait for. */
static void await_threads(unsigned count)
{
    while (law_threads() > count)
        usleep(1000);
}

typedef void open_fn(forebay_loader **loader, forebay_budget *budget, struct heard *heard);

/* `readers` of the three workers can be stuck in a read; the others wait for those. */
static void close_with(open_fn *open_it, unsigned readers)
{
    struct heard heard = { .lines = 0 };
    forebay_loader *loader;
    forebay_budget *budget;
    forebay_batch *held;
    forebay_error error;
    uint64_t digest, began, took;
    unsigned threads, before;

    open_it(&loader, NULL, &heard); /* a sanitizer's own thread starts with the first */
    forebay_close(loader);
    threads = law_threads();
    law_ok(forebay_budget_new(&budget, (uint64_t)64 << 20, &error));
    open_it(&loader, budget, &heard);
    before = heard.lines;
    law_ok(forebay_next(&held, loader, &error));
    digest = law_digest(0, held);
    set_stuck(true);
    law_ok(forebay_set_epoch(loader, 7, &error)); /* work for all */
    await_waiting(readers);
    began = fb_now_ns();
    forebay_close(loader);
    took = fb_now_ns() - began;
    mark_closed(&heard);
    assert_true(took < (uint64_t)1000000000 * (FB_SANITIZED ? 3 : 1) + 500000000);
    assert_int_equal(heard.lines - before, 1);
    if (!strstr(heard.last, readers == 3 ? "3 workers are stuck" : "stuck"))
        fail_msg("said: %s", heard.last);
    assert_int_equal(law_digest(0, held), digest); /* what the caller holds stays */
    set_stuck(false);
    await_threads(threads); /* they come back, tidy up and end */
    assert_int_equal(heard.late, 0);
    assert_int_equal(law_digest(0, held), digest);
    forebay_batch_release(held);
    forebay_budget_free(budget); /* a sanitizer sees that the last of them closed all the rest */
}

static void close_returns_while_workers_are_stuck(void **state)
{
    (void)state;
    close_with(open_scans, 3);
}

static void close_returns_while_workers_wait_for_one_that_is_stuck(void **state)
{
    (void)state;
    close_with(open_shard, 1);
}

static uint64_t run_epoch_7(struct heard *heard, void (*meanwhile)(void))
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    uint64_t digest;

    open_shard(&loader, NULL, heard);
    law_ok(forebay_next(&batch, loader, &error));
    forebay_batch_release(batch);
    set_stuck(meanwhile);
    law_ok(forebay_set_epoch(loader, 7, &error));
    if (meanwhile)
        meanwhile();
    digest = law_run_epoch(0, loader);
    forebay_close(loader);
    return digest;
}

/* The one that is stuck stays so until another has read: that would never be, if they waited. */
static void await_others(void)
{
    await_waiting(1);
    pthread_mutex_lock(&lock);
    while (passed == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    set_stuck(false);
}

static void a_packed_shard_is_read_by_others_after_a_second(void **state)
{
    struct heard heard = { .lines = 0 };
    uint64_t expected = run_epoch_7(&heard, NULL);

    (void)state;
    one_only = true;
    assert_int_equal(run_epoch_7(&heard, await_others), expected);
    one_only = false;
}

static void a_timeout_loses_nothing(void **state)
{
    struct heard heard = { .lines = 0 };
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    uint64_t expected, digest = 0;
    int status;

    (void)state;
    law_ok(law_open_scans(&loader, NULL, &error, "batch.size=8", "batch.collate=pad", NULL));
    expected = law_run_epoch(0, loader);
    forebay_close(loader);
    set_stuck(true);
    open_scans(&loader, NULL, &heard);
    await_waiting(3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(forebay_next_within(&batch, loader, 1000000, &error), FOREBAY_TIMEOUT);
    set_stuck(false);
    while ((status = forebay_next(&batch, loader, &error)) == FOREBAY_OK) {
        digest = law_digest(digest, batch);
        forebay_batch_release(batch);
    }
    assert_int_equal(status, FOREBAY_END);
    assert_int_equal(digest, expected);
    forebay_close(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_returns_while_workers_are_stuck),
        cmocka_unit_test(close_returns_while_workers_wait_for_one_that_is_stuck),
        cmocka_unit_test(a_packed_shard_is_read_by_others_after_a_second),
        cmocka_unit_test(a_timeout_loses_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
