/* law_same_batches.c -- same seed, same batches: whatever the workers, the budget, the cache, the
 * live changes, and where the run was interrupted. */
#include "law.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mix.h"

#define EPOCHS 2

static const char *const WORKERS[] = { "workers=1", "workers=2", "workers=7", "workers=33" };
static const char *const BUDGETS[] = { "memory.budget=16MiB", "memory.budget=48MiB",
                                       "memory.budget=256MiB" };
static const char *const COLLATES[] = { "batch.collate=pad", "batch.collate=ragged" };
static const char *const CACHES[] = { "memory.cache=off", "memory.cache=auto" };
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static uint64_t run_scans(const char *workers, const char *budget, const char *collate,
                          const char *cache)
{
    forebay_loader *loader;
    forebay_error error;
    uint64_t digest = 0;

    law_ok(law_open_scans(&loader, NULL, &error, workers, budget, collate, cache, "batch.size=8",
                          "memory.share=off", NULL));
    for (unsigned i = 0; i < EPOCHS; i++)
        digest = law_run_epoch(digest, loader);
    forebay_close(loader);
    return digest;
}

static void workers_budget_and_cache_change_nothing(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(COLLATES); c++) {
        uint64_t expected = run_scans(WORKERS[0], BUDGETS[2], COLLATES[c], CACHES[0]);

        for (size_t w = 0; w < COUNT(WORKERS); w++)
            for (size_t b = 0; b < COUNT(BUDGETS); b++)
                for (size_t k = 0; k < COUNT(CACHES); k++)
                    if (run_scans(WORKERS[w], BUDGETS[b], COLLATES[c], CACHES[k]) != expected)
                        fail_msg("other batches with %s %s %s %s", WORKERS[w], BUDGETS[b],
                                 COLLATES[c], CACHES[k]);
    }
}

static void every_policy_and_size_of_cache_gives_the_same_batches(void **state)
{
    static const char *const POLICIES[] = { "memory.policy=fill", "memory.policy=lru",
                                            "memory.policy=next-use" };
    static const char *const SIZES[] = { "memory.cache=400KiB", "memory.cache=1MiB",
                                         "memory.cache=4MiB", "memory.cache=32MiB" };
    uint64_t expected = run_scans(WORKERS[0], BUDGETS[2], COLLATES[0], CACHES[0]);

    (void)state;
    for (size_t p = 0; p < COUNT(POLICIES); p++)
        for (size_t s = 0; s < COUNT(SIZES); s++)
            for (int shared = 0; shared < 2; shared++) {
                forebay_loader *loader;
                forebay_error error;
                uint64_t digest = 0;

                law_ok(law_open_scans(&loader, NULL, &error, POLICIES[p], SIZES[s], COLLATES[0],
                                      BUDGETS[2], "workers=2", "batch.size=8",
                                      shared ? "memory.share=job" : "memory.share=off", NULL));
                for (unsigned i = 0; i < EPOCHS; i++)
                    digest = law_run_epoch(digest, loader);
                forebay_close(loader);
                if (digest != expected)
                    fail_msg("other batches with %s %s", POLICIES[p], SIZES[s]);
            }
}

/* A thread that turns every live knob at moments of its own choosing. */
struct meddler {
    forebay_loader *loader;
    struct fb_random random;
    atomic_bool stop;
    atomic_uint changes;
};

static void *meddle(void *data)
{
    static const char *const VALUES[][2] = {
        { "workers", "1" },         { "workers", "7" },
        { "workers", "33" },        { "prefetch", "1" },
        { "prefetch", "9" },        { "memory.budget", "16MiB" },
        { "memory.budget", "64MiB" },
    };
    struct meddler *meddler = data;

    while (!atomic_load(&meddler->stop)) {
        size_t i = fb_random_below(&meddler->random, COUNT(VALUES));
        forebay_set_result result;
        forebay_error error;

        if (forebay_set(meddler->loader, VALUES[i][0], VALUES[i][1], &result, &error))
            fprintf(stderr, "set %s=%s: %s\n", VALUES[i][0], VALUES[i][1], error.message);
        else
            atomic_fetch_add(&meddler->changes, 1);
        for (uint64_t n = fb_random_below(&meddler->random, 200); n > 0; n--)
            sched_yield();
    }
    return NULL;
}

static uint64_t run_meddled(uint64_t seed)
{
    forebay_loader *loader;
    forebay_error error;
    struct meddler meddler = { .random = { fb_mix(seed) } };
    pthread_t thread;
    uint64_t digest = 0;

    law_ok(law_open_scans(&loader, NULL, &error, "workers=2", "memory.budget=64MiB",
                          "batch.collate=pad", "batch.size=8", "memory.share=off", NULL));
    meddler.loader = loader;
    assert_int_equal(pthread_create(&thread, NULL, meddle, &meddler), 0);
    while (!atomic_load(&meddler.changes)) /* a thread that starts late would change nothing */
        sched_yield();
    for (unsigned i = 0; i < EPOCHS; i++)
        digest = law_run_epoch(digest, loader);
    atomic_store(&meddler.stop, true);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&meddler.changes) > 0);
    forebay_close(loader);
    return digest;
}

static void live_changes_at_any_moment_change_nothing(void **state)
{
    uint64_t expected = run_scans("workers=1", BUDGETS[2], "batch.collate=pad", "memory.cache=off");

    (void)state;
    for (unsigned i = 0; i < law_count(10, 100); i++)
        assert_int_equal(run_meddled(i), expected);
}

static void set(forebay_loader *loader, const char *key, const char *value)
{
    forebay_error error;

    law_ok(forebay_set(loader, key, value, NULL, &error));
}

static void a_change_between_any_two_batches_changes_nothing(void **state)
{
    uint64_t expected = run_scans("workers=1", BUDGETS[2], "batch.collate=pad", "memory.cache=off");
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    uint64_t digest = 0;
    int status;

    (void)state;
    law_ok(law_open_scans(&loader, NULL, &error, "workers=3", "batch.collate=pad", "batch.size=8",
                          "memory.budget=64MiB", "memory.share=off", NULL));
    for (unsigned epoch = 0, step = 0; epoch < EPOCHS; epoch++) {
        while ((status = forebay_next(&batch, loader, &error)) == FOREBAY_OK) {
            digest = law_digest(digest, batch);
            forebay_batch_release(batch);
            set(loader, "workers", step % 3 ? "5" : "1");
            set(loader, "prefetch", step % 2 ? "1" : "6");
            step++;
        }
        assert_int_equal(status, FOREBAY_END);
    }
    assert_int_equal(digest, expected);
    forebay_close(loader);
}

/* Digest of the batches from `first` on, after a save behind batch `first` - 1 and a load into a
 * loader of its own. */
static uint64_t digest_resumed(unsigned first, bool resume)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    char text[FOREBAY_STATE_BYTES];
    const char *texts[] = { text };
    uint64_t digest;

    law_ok(law_open_scans(&loader, NULL, &error, "workers=2", "batch.collate=pad", "batch.size=8",
                          "memory.budget=48MiB", "memory.share=off", NULL));
    for (unsigned i = 0; i < first; i++) {
        law_ok(forebay_next(&batch, loader, &error));
        forebay_batch_release(batch);
    }
    if (resume) {
        law_ok(forebay_state_save(loader, text, &error));
        forebay_close(loader);
        law_ok(law_open_scans(&loader, NULL, &error, "workers=5", "batch.collate=pad",
                              "batch.size=8", "memory.budget=64MiB", "memory.share=off", NULL));
        law_ok(forebay_state_load(loader, texts, 1, &error));
    }
    digest = law_run_epoch(0, loader);
    digest = law_run_epoch(digest, loader);
    forebay_close(loader);
    return digest;
}

static void a_resumed_run_goes_on_with_the_same_batches(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 25; first += law_count(8, 1))
        assert_int_equal(digest_resumed(first, true), digest_resumed(first, false));
}

static void another_seed_gives_other_batches(void **state)
{
    uint64_t digests[2];
    forebay_loader *loader;
    forebay_error error;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        law_ok(law_open_scans(&loader, NULL, &error, i ? "order.seed=1" : "order.seed=2",
                              "batch.collate=pad", "batch.size=8", "memory.budget=48MiB",
                              "memory.share=off", NULL));
        digests[i] = law_run_epoch(0, loader);
        forebay_close(loader);
    }
    assert_int_not_equal(digests[0], digests[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_budget_and_cache_change_nothing),
        cmocka_unit_test(every_policy_and_size_of_cache_gives_the_same_batches),
        cmocka_unit_test(live_changes_at_any_moment_change_nothing),
        cmocka_unit_test(a_change_between_any_two_batches_changes_nothing),
        cmocka_unit_test(a_resumed_run_goes_on_with_the_same_batches),
        cmocka_unit_test(another_seed_gives_other_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
