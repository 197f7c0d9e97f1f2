/* law_shared_budget.c -- two loaders under one ceiling: together they stay below it, neither
 * starves the other, and each delivers what it would deliver alone. */
#include "law.h"

#define BUDGET_BYTES ((uint64_t)32 << 20)

static uint64_t digest_alone(bool scans)
{
    forebay_loader *loader;
    forebay_error error;
    uint64_t digest;

    if (scans)
        law_ok(law_open_scans(&loader, NULL, &error, "batch.size=8", "batch.collate=pad",
                              "memory.budget=64MiB", "memory.share=off", NULL));
    else
        law_ok(law_open_frames(&loader, NULL, &error, "batch.size=4", "memory.budget=64MiB",
                               "memory.share=off", NULL));
    digest = law_run_epoch(0, loader);
    digest = law_run_epoch(digest, loader);
    forebay_close(loader);
    return digest;
}

/* Both loaders opened, the budget already given away by us: they keep it alive. */
static void open_both(forebay_loader *loaders[2])
{
    forebay_budget *budget;
    forebay_error error;

    law_ok(forebay_budget_new(&budget, BUDGET_BYTES, &error));
    law_ok(law_open_scans(&loaders[0], budget, &error, "batch.size=8", "batch.collate=pad",
                          "workers=2", "memory.share=off", "memory.cache=8MiB", NULL));
    law_ok(law_open_frames(&loaders[1], budget, &error, "batch.size=4", "workers=2",
                           "memory.share=off", "memory.cache=8MiB", NULL));
    forebay_budget_free(budget);
}

/* One step; true at the end of an epoch. */
static bool step(forebay_loader *loader, uint64_t *digest)
{
    forebay_batch *batch;
    forebay_error error;
    int status = forebay_next(&batch, loader, &error);

    if (status == FOREBAY_END)
        return true;
    if (status != FOREBAY_OK)
        fail_msg("%s", error.message);
    *digest = law_digest(*digest, batch);
    forebay_batch_release(batch);
    return false;
}

static void two_loaders_share_one_ceiling_and_change_nothing(void **state)
{
    uint64_t expected[2] = { digest_alone(true), digest_alone(false) };
    uint64_t digests[2] = { 0, 0 };
    unsigned epochs[2] = { 0, 0 };
    forebay_loader *loaders[2];

    (void)state;
    open_both(loaders);
    for (unsigned turn = 0; epochs[0] < 2 || epochs[1] < 2; turn++) {
        unsigned who = turn % 3 == 0; /* unevenly: the scans have more batches */

        if (epochs[who] < 2 && step(loaders[who], &digests[who]))
            epochs[who]++;
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(digests[i], expected[i]);
        assert_int_equal(law_stat(loaders[i], "memory", "budget_bytes"), BUDGET_BYTES);
        assert_true(law_stat(loaders[i], "memory", "peak_bytes") <= BUDGET_BYTES);
    }
    forebay_close(loaders[0]);
    forebay_close(loaders[1]);
}

static void one_that_closes_gives_its_bytes_to_the_other(void **state)
{
    uint64_t digests[2] = { 0, 0 }, expected = digest_alone(false);
    forebay_loader *loaders[2];

    (void)state;
    open_both(loaders);
    for (unsigned i = 0; i < 3; i++)
        assert_false(step(loaders[0], &digests[0]));
    forebay_close(loaders[0]);
    for (unsigned epochs = 0; epochs < 2;)
        epochs += step(loaders[1], &digests[1]);
    assert_int_equal(digests[1], expected);
    forebay_close(loaders[1]);
}

static void a_loader_that_does_not_fit_beside_the_other_says_so(void **state)
{
    forebay_loader *loader = NULL;
    forebay_budget *budget;
    forebay_error error = { .message = "" };

    (void)state;
    law_ok(forebay_budget_new(&budget, 64 << 10, &error));
    assert_int_equal(law_open_frames(&loader, budget, &error, "batch.size=4", "workers=1",
                                     "memory.cache=off", NULL),
                     FOREBAY_OVER_BUDGET);
    assert_null(loader);
    assert_true(error.message[0] != '\0');
    forebay_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_loaders_share_one_ceiling_and_change_nothing),
        cmocka_unit_test(one_that_closes_gives_its_bytes_to_the_other),
        cmocka_unit_test(a_loader_that_does_not_fit_beside_the_other_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
