/* law_media.c -- images, tar shards of every form and speech keep the laws that scans and frames
 * keep: same batches, exact resume, the ledger below the budget, and what opens also ends. */
#include <stdio.h>

#include "base/size.h"
#include "media.h"

#define BATCH_BYTES FB_MIB /* more than any here, with its header */
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static uint64_t run(const struct media_kind *kind, const char *workers, const char *budget,
                    const char *cache, const char *policy)
{
    forebay_loader *loader;
    forebay_error error;
    uint64_t digest;

    law_ok(media_open(&loader, kind, &error, workers, budget, cache, policy, "batch.size=7", NULL));
    digest = law_run_epoch(0, loader);
    digest = law_run_epoch(digest, loader);
    assert_true(law_stat(loader, "memory", "peak_bytes") <=
                law_stat(loader, "memory", "budget_bytes"));
    forebay_close(loader);
    return digest;
}

static void workers_budget_and_every_form_of_cache_change_nothing(void **state)
{
    static const char *const ways[][4] = {
        { "workers=0", "memory.budget=64MiB", "memory.cache=off", "memory.policy=auto" },
        { "workers=2", "memory.budget=48MiB", "memory.cache=auto", "memory.policy=auto" },
        { "workers=7", "memory.budget=256MiB", "memory.cache=1MiB", "memory.policy=lru" },
        { "workers=3", "memory.budget=128MiB", "memory.cache=500KiB", "memory.policy=next-use" },
        { "workers=2", "memory.budget=128MiB", "memory.cache=64MiB", "memory.policy=fill" },
    };

    (void)state;
    for (unsigned k = 0; k < media_kind_count; k++) {
        const struct media_kind *kind = &media_kinds[k];
        uint64_t expected = run(kind, "workers=1", "memory.budget=256MiB", "memory.cache=off",
                                "memory.policy=auto");

        for (size_t w = 0; w < COUNT(ways); w++)
            if (run(kind, ways[w][0], ways[w][1], ways[w][2], ways[w][3]) != expected)
                fail_msg("%s: other batches with %s %s %s %s", kind->name, ways[w][0], ways[w][1],
                         ways[w][2], ways[w][3]);
    }
}

static uint64_t digest_from(const struct media_kind *kind, unsigned first, bool resume)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    char text[FOREBAY_STATE_BYTES];
    const char *texts[] = { text };
    uint64_t digest;

    law_ok(media_open(&loader, kind, &error, "workers=2", "batch.size=7", "memory.budget=64MiB",
                      NULL));
    for (unsigned i = 0; i < first; i++) {
        law_ok(forebay_next(&batch, loader, &error));
        forebay_batch_release(batch);
    }
    if (resume) {
        law_ok(forebay_state_save(loader, text, &error));
        forebay_close(loader);
        law_ok(media_open(&loader, kind, &error, "workers=3", "batch.size=7",
                          "memory.budget=96MiB", "memory.cache=off", NULL));
        law_ok(forebay_state_load(loader, texts, 1, &error));
    }
    digest = law_run_epoch(0, loader);
    forebay_close(loader);
    return digest;
}

static void a_resumed_run_goes_on_with_the_same_batches(void **state)
{
    (void)state;
    for (unsigned k = 0; k < media_kind_count; k++)
        for (unsigned first = 1; first < 9; first += law_count(4, 1))
            if (digest_from(&media_kinds[k], first, true) !=
                digest_from(&media_kinds[k], first, false))
                fail_msg("%s: other batches behind batch %u", media_kinds[k].name, first);
}

static int open_on(forebay_loader **out, const struct media_kind *kind, uint64_t bytes,
                   forebay_error *error)
{
    char budget[64];

    snprintf(budget, sizeof(budget), "memory.budget=%llu", (unsigned long long)bytes);
    return media_open(out, kind, error, budget, "batch.size=7", "workers=2", NULL);
}

/* The smallest budget that opens, to 64 KiB. */
static uint64_t smallest_budget(const struct media_kind *kind)
{
    uint64_t low = 0, high = 256 * FB_MIB;
    forebay_loader *loader;
    forebay_error error;

    while (high - low > 64 * FB_KIB) {
        uint64_t middle = low + (high - low) / 2;
        int status = open_on(&loader, kind, middle, &error);

        if (status == FOREBAY_OK) {
            forebay_close(loader);
            high = middle;
        } else {
            if (status != FOREBAY_OVER_BUDGET)
                fail_msg("%s: not OVER_BUDGET: %s", kind->name, error.message);
            low = middle;
        }
    }
    return high;
}

static void what_opens_also_ends_below_its_budget(void **state)
{
    (void)state;
    for (unsigned k = 0; k < media_kind_count; k++) {
        /* Padded batches are laid out when their sizes are known: open cannot count them. */
        uint64_t least = smallest_budget(&media_kinds[k]) + BATCH_BYTES;
        forebay_loader *loader;
        forebay_error error;

        law_ok(open_on(&loader, &media_kinds[k], least, &error));
        law_run_epoch(0, loader);
        law_run_epoch(0, loader);
        assert_true(law_stat(loader, "memory", "peak_bytes") <= least);
        forebay_close(loader);
        printf("%s: %llu KiB are enough\n", media_kinds[k].name,
               (unsigned long long)(least / FB_KIB));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_budget_and_every_form_of_cache_change_nothing),
        cmocka_unit_test(a_resumed_run_goes_on_with_the_same_batches),
        cmocka_unit_test(what_opens_also_ends_below_its_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
