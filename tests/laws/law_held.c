/* law_held.c -- the caller may hold batches as long as it likes: nothing deadlocks, nothing that
 * is held is overwritten, and a batch outlives its loader. */
#include "law.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX LAW_FRAMES

/* Frames of 128 KiB in batches of 4: half a MiB each. The budget holds some, not all. */
static forebay_loader *open_tight(const char *budget)
{
    forebay_loader *loader;
    forebay_error error;

    law_ok(law_open_frames(&loader, NULL, &error, budget, "batch.size=4", "workers=2", "prefetch=2",
                           "memory.cache=off", NULL));
    return loader;
}

struct held {
    forebay_batch *batches[HELD_MAX];
    uint64_t digests[HELD_MAX];
    size_t count;
};

/* Take batches without giving one back until forebay_next has something else to say. */
static int hold_all(struct held *held, forebay_loader *loader, forebay_error *error)
{
    forebay_batch *batch;
    int status = FOREBAY_END;

    while (held->count < HELD_MAX && (status = forebay_next(&batch, loader, error)) == FOREBAY_OK) {
        held->batches[held->count] = batch;
        held->digests[held->count++] = law_digest(0, batch);
    }
    return status;
}

static void check_unchanged(const struct held *held)
{
    for (size_t i = 0; i < held->count; i++)
        assert_int_equal(law_digest(0, held->batches[i]), held->digests[i]);
}

static void release_all(struct held *held)
{
    for (size_t i = 0; i < held->count; i++)
        forebay_batch_release(held->batches[i]);
    held->count = 0;
}

static void holding_everything_is_an_error_that_names_the_number(void **state)
{
    forebay_loader *loader = open_tight("memory.budget=6MiB");
    struct held held = { .count = 0 };
    forebay_error error;
    char number[32];

    (void)state;
    assert_int_equal(hold_all(&held, loader, &error), FOREBAY_HELD);
    assert_true(held.count >= 2);
    snprintf(number, sizeof(number), "%zu", held.count);
    if (!strstr(error.message, number))
        fail_msg("no %s in: %s", number, error.message);
    check_unchanged(&held);
    release_all(&held);
    forebay_close(loader);
}

static void after_held_one_release_lets_it_go_on_and_nothing_is_lost(void **state)
{
    forebay_loader *loader = open_tight("memory.budget=6MiB");
    uint64_t expected_batches = forebay_epoch_batches(loader);
    struct held held = { .count = 0 };
    bool seen[LAW_FRAMES] = { false };
    size_t first = 0, samples = 0;
    forebay_error error;
    int status;

    (void)state;
    /* The oldest is given back only when there is no other way. */
    while ((status = hold_all(&held, loader, &error)) == FOREBAY_HELD) {
        assert_true(first < held.count);
        assert_int_equal(law_digest(0, held.batches[first]), held.digests[first]);
        for (size_t i = 0; i < held.batches[first]->samples; i++) {
            int64_t sample = ((const int64_t *)held.batches[first]->fields[0].data)[i];

            assert_true(sample >= 0 && sample < LAW_FRAMES && !seen[sample]);
            seen[sample] = true;
            samples++;
        }
        forebay_batch_release(held.batches[first++]);
    }
    assert_int_equal(status, FOREBAY_END);
    assert_int_equal(held.count, expected_batches);
    for (; first < held.count; first++) {
        samples += held.batches[first]->samples;
        assert_int_equal(law_digest(0, held.batches[first]), held.digests[first]);
        forebay_batch_release(held.batches[first]);
    }
    assert_int_equal(samples, LAW_FRAMES);
    forebay_close(loader);
}

static void held_batches_stay_valid_after_close(void **state)
{
    forebay_loader *loader = open_tight("memory.budget=6MiB");
    struct held held = { .count = 0 };
    forebay_error error;

    (void)state;
    hold_all(&held, loader, &error);
    forebay_close(loader);
    check_unchanged(&held);
    for (size_t i = held.count; i > 0; i--) /* in the other direction, for once */
        forebay_batch_release(held.batches[i - 1]);
}

static void *release_elsewhere(void *data)
{
    release_all(data);
    return NULL;
}

static void any_thread_may_release_also_after_close(void **state)
{
    forebay_loader *loader = open_tight("memory.budget=64MiB");
    struct held held = { .count = 0 };
    forebay_error error;
    pthread_t thread;

    (void)state;
    assert_int_equal(hold_all(&held, loader, &error), FOREBAY_END);
    forebay_close(loader);
    check_unchanged(&held);
    assert_int_equal(pthread_create(&thread, NULL, release_elsewhere, &held), 0);
    pthread_join(thread, NULL);
}

static void a_whole_epoch_fits_in_the_hands_if_the_budget_has_room(void **state)
{
    forebay_loader *loader = open_tight("memory.budget=64MiB");
    struct held held = { .count = 0 };
    forebay_error error;

    (void)state;
    assert_int_equal(hold_all(&held, loader, &error), FOREBAY_END);
    assert_int_equal(held.count, LAW_FRAMES / 4);
    check_unchanged(&held);
    release_all(&held);
    assert_int_equal(hold_all(&held, loader, &error), FOREBAY_END); /* the next epoch */
    check_unchanged(&held);
    release_all(&held);
    forebay_close(loader);
}

static void a_released_null_is_nothing(void **state)
{
    (void)state;
    forebay_batch_release(NULL);
    forebay_close(NULL);
    forebay_budget_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holding_everything_is_an_error_that_names_the_number),
        cmocka_unit_test(after_held_one_release_lets_it_go_on_and_nothing_is_lost),
        cmocka_unit_test(held_batches_stay_valid_after_close),
        cmocka_unit_test(any_thread_may_release_also_after_close),
        cmocka_unit_test(a_whole_epoch_fits_in_the_hands_if_the_budget_has_room),
        cmocka_unit_test(a_released_null_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
