/* law_ceiling.c -- the ledger never exceeds the budget, and every run that opens also ends, on the
 * smallest budget that opens. The kernel's own count is test_ceiling.py's. */
#include "law.h"

#include <stdio.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/block.h"

static int open_frames(forebay_loader **out, uint64_t budget_bytes, forebay_error *error)
{
    char budget[64];

    snprintf(budget, sizeof(budget), "memory.budget=%llu", (unsigned long long)budget_bytes);
    return law_open_frames(out, NULL, error, budget, "batch.size=4", "memory.share=off", NULL);
}

/* The smallest budget, to the page, that opens. */
static uint64_t smallest_budget(void)
{
    uint64_t low = 0, high = 256 * FB_MIB;
    forebay_loader *loader;
    forebay_error error;

    law_ok(open_frames(&loader, high, &error));
    forebay_close(loader);
    while (high - low > 4096) {
        uint64_t middle = low + (high - low) / 2;
        int status = open_frames(&loader, middle, &error);

        if (status == FOREBAY_OK) {
            forebay_close(loader);
            high = middle;
        } else {
            if (status != FOREBAY_OVER_BUDGET)
                fail_msg("not OVER_BUDGET: %s", error.message);
            low = middle;
        }
    }
    return high;
}

/* An epoch with `held` batches in hand; the number of batches. */
static uint64_t run_holding(forebay_loader *loader, size_t held_max)
{
    forebay_batch *held[4] = { NULL }, *batch;
    forebay_error error;
    uint64_t count = 0;
    int status;

    while ((status = forebay_next(&batch, loader, &error)) == FOREBAY_OK) {
        count++;
        if (!held_max) {
            forebay_batch_release(batch);
            continue;
        }
        forebay_batch_release(held[count % held_max]);
        held[count % held_max] = batch;
    }
    if (status != FOREBAY_END)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < 4; i++)
        forebay_batch_release(held[i]);
    return count;
}

static void check_run(uint64_t budget, size_t held)
{
    forebay_loader *loader;
    forebay_error error;

    law_ok(open_frames(&loader, budget, &error));
    for (unsigned epoch = 0; epoch < 2; epoch++)
        assert_int_equal(run_holding(loader, held), LAW_FRAMES / 4);
    assert_int_equal(law_stat(loader, "memory", "budget_bytes"), budget);
    assert_true(law_stat(loader, "memory", "peak_bytes") <= budget);
    assert_true(law_stat(loader, "memory", "peak_bytes") > 0);
    forebay_close(loader);
}

static void the_ledger_stays_below_every_budget(void **state)
{
    (void)state;
    check_run(8 * FB_MIB, 2);
    check_run(16 * FB_MIB, 2);
    check_run(64 * FB_MIB, 4);
}

static void what_opens_also_ends(void **state)
{
    uint64_t least = smallest_budget();
    uint64_t slot = fb_map_bytes(4 * 256 * 512 + 4096); /* a batch with its index field */

    (void)state;
    check_run(least, 0);
    check_run(least + 2 * slot, 2); /* the floor: one batch under way, two in the caller's hands */
}

static void a_lowered_budget_is_reached_and_kept(void **state)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_set_result result;
    forebay_error error;

    (void)state;
    law_ok(open_frames(&loader, 64 * FB_MIB, &error));
    law_ok(forebay_next(&batch, loader, &error));
    law_ok(forebay_set(loader, "memory.budget", "12MiB", &result, &error));
    assert_int_equal(result.held_batches, 1);
    assert_true(result.held_bytes >= batch->bytes);
    forebay_batch_release(batch);
    run_holding(loader, 1);
    assert_int_equal(run_holding(loader, 1), LAW_FRAMES / 4);
    assert_int_equal(law_stat(loader, "memory", "budget_bytes"), 12 * FB_MIB);
    forebay_close(loader);
}

/* Down to the floor with many workers: what they take has to go, too. */
static void a_budget_lowered_to_the_floor_is_reached_while_running(void **state)
{
    forebay_loader *loader;
    forebay_error error;
    uint64_t floor, expected, digest;
    char text[32];

    (void)state;
    law_ok(law_open_frames(&loader, NULL, &error, "memory.budget=64MiB", "batch.size=4",
                           "memory.share=off", "memory.cache=8MiB", "workers=12", "prefetch=8",
                           NULL));
    expected = law_run_epoch(0, loader);
    floor = law_stat(loader, "memory", "floor_bytes");
    snprintf(text, sizeof(text), "%llu", (unsigned long long)floor);
    law_ok(forebay_set(loader, "memory.budget", text, NULL, &error));
    run_holding(loader, 2);
    law_ok(forebay_set_epoch(loader, 0, &error));
    digest = law_run_epoch(0, loader);
    assert_int_equal(digest, expected);
    assert_int_equal(law_stat(loader, "memory", "budget_bytes"), floor);
    /* The last of twelve workers may not have had a processor yet on which to leave. */
    for (int tries = 0; law_stat(loader, "memory", "used_bytes") > floor; tries++) {
        assert_true(tries < 1000);
        usleep(10000);
    }
    forebay_close(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ledger_stays_below_every_budget),
        cmocka_unit_test(what_opens_also_ends),
        cmocka_unit_test(a_lowered_budget_is_reached_and_kept),
        cmocka_unit_test(a_budget_lowered_to_the_floor_is_reached_while_running),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
