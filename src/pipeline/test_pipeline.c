/* The pipeline over a source in memory: order, memory, errors, live changes. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/test_bench.h"

static const forebay_field *field(const forebay_batch *batch, const char *name)
{
    for (size_t i = 0; i < batch->field_count; i++)
        if (!strcmp(batch->fields[i].name, name))
            return &batch->fields[i];
    return NULL;
}

/* Every number of sample s is s: checks the batch and counts what came. */
static void check_stacked(const forebay_batch *batch, unsigned *seen)
{
    const int64_t *index = field(batch, "index")->data;
    const uint32_t *data = field(batch, "data")->data;
    int64_t rows = field(batch, "data")->shape[1];

    for (size_t i = 0; i < batch->samples; i++) {
        seen[index[i]]++;
        for (int64_t r = 0; r < rows; r++)
            assert_int_equal(data[(int64_t)i * rows + r], index[i]);
    }
}

static uint64_t digest(uint64_t hash, const forebay_batch *batch)
{
    for (size_t f = 0; f < batch->field_count; f++) {
        const unsigned char *bytes = batch->fields[f].data;

        for (size_t i = 0; i < batch->fields[f].bytes; i += 1)
            hash = hash * 0x100000001b3u + bytes[i];
        for (unsigned d = 0; d < batch->fields[f].ndim; d++)
            hash = fb_mix2(hash, (uint64_t)batch->fields[f].shape[d]);
    }
    return hash;
}

static void every_sample_comes_once_an_epoch(void **state)
{
    struct bench bench;

    (void)state;
    bench_init(&bench);
    assert_int_equal(bench_open(&bench, NULL), 0);
    for (int epoch = 0; epoch < 3; epoch++) {
        unsigned seen[SAMPLES] = { 0 };
        forebay_batch *batch;
        unsigned batches = 0;

        while (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_OK) {
            assert_int_equal(batch->epoch, epoch);
            assert_int_equal(batch->number, batches);
            check_stacked(batch, seen);
            fb_pipeline_batch_release(batch);
            batches++;
        }
        assert_int_equal(batches, (SAMPLES + 7) / 8);
        for (unsigned s = 0; s < SAMPLES; s++)
            assert_int_equal(seen[s], 1);
    }
    bench_close(&bench);
}

static uint64_t uneven_rows(uint64_t sample)
{
    return 1 + sample * 37 % ROWS;
}

static uint64_t run_digest(uint64_t workers, uint64_t prefetch, int collate, bool changes)
{
    struct bench bench;
    forebay_batch *batch;
    uint64_t hash = 1, steps = 0;

    bench_init(&bench);
    bench.config.batch_collate = collate;
    bench.rows_of = collate == FB_COLLATE_STACK ? NULL : uneven_rows;
    bench.options.workers = workers;
    bench.options.prefetch = prefetch;
    assert_int_equal(bench_open(&bench, NULL), 0);
    for (int epoch = 0; epoch < 2; epoch++)
        while (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_OK) {
            hash = digest(hash, batch);
            fb_pipeline_batch_release(batch);
            if (changes) {
                fb_pipeline_set_workers(bench.pipeline, 1 + steps % 5);
                fb_pipeline_set_prefetch(bench.pipeline, 1 + steps % 4);
            }
            steps++;
        }
    bench_close(&bench);
    return hash;
}

static void batches_are_the_same_whatever_the_workers(void **state)
{
    (void)state;
    for (int collate = 0; collate < 3; collate++) {
        uint64_t one = run_digest(1, 1, collate, false);

        assert_int_equal(one, run_digest(0, 1, collate, false));
        assert_int_equal(one, run_digest(2, 3, collate, false));
        assert_int_equal(one, run_digest(7, 16, collate, false));
        assert_int_equal(one, run_digest(33, 5, collate, false));
        assert_int_equal(one, run_digest(2, 3, collate, true));
    }
}

static void cache_open(struct bench *bench)
{
    struct fb_cache_options options = { .unit_count = SAMPLES, .unit_bytes_max = ROWS * 4,
                                        .unit_bytes_median = ROWS * 2, .limit_bytes = FB_MIB,
                                        .policy = &fb_policy_fill, .pins_max = 8,
                                        .share = FB_SHARE_OFF, .identity = 1,
                                        .budget = bench->budget, .log = &bench->log };

    assert_int_equal(fb_cache_open(&bench->cache, &options, NULL), 0);
    bench->options.cache = bench->cache;
}

/* Two epochs of units of uneven size that finish() makes two numbers of. */
static uint64_t run_finished(uint64_t workers, bool cached)
{
    uint32_t draws[2][SAMPLES];
    struct fb_pipeline_report report;
    struct bench bench;
    forebay_batch *batch;
    uint64_t hash = 1;

    bench_init(&bench);
    bench.finished = true;
    bench.rows_of = uneven_rows;
    bench.options.workers = workers;
    bench_make(&bench);
    if (cached)
        cache_open(&bench);
    assert_int_equal(fb_pipeline_open(&bench.pipeline, &bench.options, NULL), 0);
    fb_pipeline_start(bench.pipeline);
    for (int epoch = 0; epoch < 2; epoch++)
        while (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_OK) {
            const int64_t *index = field(batch, "index")->data;
            const uint32_t *data = field(batch, "data")->data;

            assert_int_equal(field(batch, "data")->shape[1], 2);
            for (size_t i = 0; i < batch->samples; i++) {
                assert_int_equal(data[2 * i], index[i]);
                draws[epoch][index[i]] = data[2 * i + 1];
            }
            hash = digest(hash, batch);
            fb_pipeline_batch_release(batch);
        }
    assert_memory_not_equal(draws[0], draws[1], sizeof(draws[0]));
    fb_pipeline_read_report(bench.pipeline, &report);
    assert_int_equal(report.hits, cached ? SAMPLES : 0);
    bench_close(&bench);
    return hash;
}

static void what_finish_makes_is_the_same_from_the_cache_or_not(void **state)
{
    uint64_t one = run_finished(1, false);

    (void)state;
    assert_int_equal(one, run_finished(0, false));
    assert_int_equal(one, run_finished(3, false));
    assert_int_equal(one, run_finished(1, true));
    assert_int_equal(one, run_finished(3, true));
}

static void padded_batches_have_zeros_behind_and_lengths(void **state)
{
    struct bench bench;
    forebay_batch *batch;

    (void)state;
    bench_init(&bench);
    bench.config.batch_collate = FB_COLLATE_PAD;
    bench.rows_of = uneven_rows;
    assert_int_equal(bench_open(&bench, NULL), 0);
    while (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_OK) {
        const int64_t *index = field(batch, "index")->data;
        const int64_t *length = field(batch, "data_length")->data;
        const uint32_t *data = field(batch, "data")->data;
        int64_t rows = field(batch, "data")->shape[1], longest = 0;

        for (size_t i = 0; i < batch->samples; i++) {
            assert_int_equal(length[i], uneven_rows((uint64_t)index[i]));
            longest = length[i] > longest ? length[i] : longest;
            for (int64_t r = 0; r < rows; r++)
                assert_int_equal(data[(int64_t)i * rows + r], r < length[i] ? index[i] : 0);
        }
        assert_int_equal(rows, longest);
        fb_pipeline_batch_release(batch);
    }
    bench_close(&bench);
}

static void check_ragged(const forebay_batch *batch)
{
    const int64_t *index = field(batch, "index")->data;
    const int64_t *offsets = field(batch, "data_offsets")->data;
    const uint32_t *data = field(batch, "data")->data;

    assert_int_equal(field(batch, "data_offsets")->shape[0], batch->samples + 1);
    assert_int_equal(offsets[0], 0);
    for (size_t i = 0; i < batch->samples; i++) {
        assert_int_equal(offsets[i + 1] - offsets[i], uneven_rows((uint64_t)index[i]));
        for (int64_t r = offsets[i]; r < offsets[i + 1]; r++)
            assert_int_equal(data[r], index[i]);
    }
    assert_int_equal(field(batch, "data")->shape[0], offsets[batch->samples]);
}

static void ragged_batches_lie_one_behind_the_other(void **state)
{
    struct bench bench;
    forebay_batch *batch;

    (void)state;
    bench_init(&bench);
    bench.config.batch_collate = FB_COLLATE_RAGGED;
    bench.rows_of = uneven_rows;
    assert_int_equal(bench_open(&bench, NULL), 0);
    while (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_OK) {
        check_ragged(batch);
        fb_pipeline_batch_release(batch);
    }
    bench_close(&bench);
}

static void text_lies_one_behind_the_other_under_every_collate(void **state)
{
    (void)state;
    for (int collate = FB_COLLATE_STACK; collate <= FB_COLLATE_RAGGED; collate++) {
        for (int rule = FB_ON_ERROR_FAIL; rule <= FB_ON_ERROR_REPLACE; rule++) {
            struct bench bench;
            forebay_batch *batch;
            uint64_t came = 0;
            int status;

            bench_init(&bench);
            bench.config.batch_collate = collate;
            bench.config.on_error = rule;
            bench.before_load = rule == FB_ON_ERROR_FAIL ? NULL : every_tenth_is_bad;
            bench.rows_of = uneven_rows;
            bench.always_ragged = true;
            assert_int_equal(bench_open(&bench, NULL), 0);
            while ((status = fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL)) !=
                   FOREBAY_END) {
                if (status)
                    continue;
                assert_int_equal(batch->field_count, 3);
                check_ragged(batch);
                came += batch->samples;
                fb_pipeline_batch_release(batch);
            }
            assert_true(came > 0);
            bench_close(&bench);
        }
    }
}

static void skipped_samples_leave_their_batch_short(void **state)
{
    (void)state;
    for (int collate = FB_COLLATE_STACK; collate <= FB_COLLATE_RAGGED; collate++) {
        struct bench bench;
        struct fb_pipeline_report report;
        forebay_batch *batch;
        uint64_t came = 0;

        bench_init(&bench);
        bench.config.on_error = FB_ON_ERROR_SKIP;
        bench.config.batch_collate = collate;
        bench.before_load = every_tenth_is_bad;
        bench.rows_of = collate == FB_COLLATE_STACK ? NULL : uneven_rows;
        assert_int_equal(bench_open(&bench, NULL), 0);
        while (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_OK) {
            unsigned seen[SAMPLES] = { 0 };

            if (collate == FB_COLLATE_STACK)
                check_stacked(batch, seen);
            if (collate == FB_COLLATE_RAGGED)
                check_ragged(batch);
            for (size_t i = 0; i < batch->samples; i++)
                assert_int_not_equal(((const int64_t *)batch->fields[0].data)[i] % 10, 3);
            came += batch->samples;
            fb_pipeline_batch_release(batch);
        }
        fb_pipeline_read_report(bench.pipeline, &report);
        assert_int_equal(report.skipped, 10);
        assert_int_equal(report.failure_count, 10);
        assert_int_equal(came, SAMPLES - 10);
        bench_close(&bench);
    }
}

static void replaced_samples_are_marked_by_their_own_index(void **state)
{
    (void)state;
    for (int collate = FB_COLLATE_STACK; collate <= FB_COLLATE_RAGGED; collate++) {
        struct bench bench;
        struct fb_pipeline_report report;
        forebay_batch *batch;
        uint64_t came = 0;
        int status;

        bench_init(&bench);
        bench.config.on_error = FB_ON_ERROR_REPLACE;
        bench.config.batch_collate = collate;
        bench.before_load = every_tenth_is_bad;
        bench.rows_of = collate == FB_COLLATE_STACK ? NULL : uneven_rows;
        assert_int_equal(bench_open(&bench, NULL), 0);
        /* A short one that fails may find nobody who fits in its room: then its batch fails. */
        while ((status = fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL)) !=
               FOREBAY_END) {
            unsigned seen[SAMPLES] = { 0 };

            if (status)
                continue;
            if (collate == FB_COLLATE_STACK)
                check_stacked(batch, seen);
            if (collate == FB_COLLATE_RAGGED)
                check_ragged(batch);
            for (size_t i = 0; i < batch->samples; i++)
                assert_int_not_equal(((const int64_t *)batch->fields[0].data)[i] % 10, 3);
            came += batch->samples;
            fb_pipeline_batch_release(batch);
        }
        fb_pipeline_read_report(bench.pipeline, &report);
        assert_true(report.replaced > 0);
        if (collate == FB_COLLATE_STACK) {
            assert_int_equal(came, SAMPLES);
            assert_int_equal(report.replaced, 10);
        }
        bench_close(&bench);
    }
}

static void an_error_comes_at_its_batch_and_the_loader_goes_on(void **state)
{
    struct bench bench;
    forebay_batch *batch;
    forebay_error error;
    unsigned good = 0, bad = 0;
    int status;

    (void)state;
    bench_init(&bench);
    bench.config.order_shuffle = false;
    bench.before_load = every_tenth_is_bad;
    assert_int_equal(bench_open(&bench, NULL), 0);
    for (unsigned at = 0; (status = fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, &error)) !=
                          FOREBAY_END; at++) {
        bool has_bad = false;

        for (unsigned s = at * 8; s < at * 8 + 8 && s < SAMPLES; s++)
            has_bad |= s % 10 == 3;
        assert_int_equal(status, has_bad ? FOREBAY_BAD_DATA : FOREBAY_OK);
        good += status == FOREBAY_OK;
        bad += status != FOREBAY_OK;
        if (status == FOREBAY_OK)
            fb_pipeline_batch_release(batch);
        else
            assert_non_null(strstr(error.message, "fails as asked"));
    }
    assert_int_equal(good + bad, 13);
    assert_true(bad > 0);
    bench_close(&bench);
}

static void too_many_failures_fail_the_run(void **state)
{
    struct bench bench;
    forebay_batch *batch;
    forebay_error error;
    int status;

    (void)state;
    bench_init(&bench);
    bench.config.on_error = FB_ON_ERROR_SKIP;
    bench.config.max_errors = (struct fb_share){ false, 3 };
    bench.before_load = every_tenth_is_bad;
    assert_int_equal(bench_open(&bench, NULL), 0);
    while ((status = fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, &error)) == FOREBAY_OK)
        fb_pipeline_batch_release(batch);
    assert_int_equal(status, FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "max_errors"));
    bench_close(&bench);
}

static void a_caller_that_holds_all_is_told_how_many(void **state)
{
    struct bench bench;
    forebay_batch *held[64];
    forebay_error error;
    unsigned count = 0;
    int status;

    (void)state;
    bench_init(&bench);
    bench.rows = 100000; /* 3.2 MB a batch */
    bench.limit = 16 * FB_MIB;
    assert_int_equal(bench_open(&bench, NULL), 0);
    while ((status = fb_pipeline_next(&held[count], bench.pipeline, UINT64_MAX, &error)) ==
           FOREBAY_OK)
        count++;
    assert_int_equal(status, FOREBAY_HELD);
    assert_in_range(count, 2, 6);
    assert_non_null(strstr(error.message, "held"));
    fb_pipeline_batch_release(held[--count]);
    assert_int_equal(fb_pipeline_next(&held[count], bench.pipeline, UINT64_MAX, &error), 0);
    count++;
    assert_int_equal(fb_pipeline_close(bench.pipeline), 0);
    for (unsigned i = 0; i < count; i++) { /* still there, and readable */
        const int64_t *index = held[i]->fields[0].data;

        assert_int_equal(*(const uint32_t *)held[i]->fields[1].data, index[0]);
        fb_pipeline_batch_release(held[i]);
    }
    fb_order_close(bench.order);
    fb_source_close(bench.source);
    fb_budget_free(bench.budget); /* asserts that nothing is left in the ledger */
}

static void a_seek_goes_to_any_epoch_and_back(void **state)
{
    struct bench bench;
    forebay_batch *batch;
    uint64_t first[3], again;

    (void)state;
    bench_init(&bench);
    assert_int_equal(bench_open(&bench, NULL), 0);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        fb_pipeline_seek(bench.pipeline, fb_order_begin(bench.order, epoch));
        assert_int_equal(fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL), 0);
        assert_int_equal(batch->epoch, epoch);
        first[epoch] = digest(1, batch);
        fb_pipeline_batch_release(batch);
    }
    for (uint64_t epoch = 3; epoch-- > 0;) {
        fb_pipeline_seek(bench.pipeline, fb_order_begin(bench.order, epoch));
        assert_int_equal(fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL), 0);
        again = digest(1, batch);
        assert_int_equal(again, first[epoch]);
        fb_pipeline_batch_release(batch);
    }
    bench_close(&bench);
}

static void a_child_is_told_that_the_loader_is_its_parents(void **state)
{
    struct bench bench;
    forebay_batch *batch;
    int status;
    pid_t child;

    (void)state;
    bench_init(&bench);
    assert_int_equal(bench_open(&bench, NULL), 0);
    assert_int_equal(fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL), 0);
    child = fork();
    if (child == 0) {
        forebay_batch *other;
        bool told = fb_pipeline_next(&other, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_FORKED;
        bool same = *(const uint32_t *)batch->fields[1].data ==
                    (uint32_t) * (const int64_t *)batch->fields[0].data;

        fb_pipeline_batch_release(batch); /* does nothing here */
        fb_pipeline_close(bench.pipeline);
        _exit(told && same ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fb_pipeline_batch_release(batch);
    while (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL) == FOREBAY_OK)
        fb_pipeline_batch_release(batch);
    bench_close(&bench);
}

static void a_batch_that_never_fits_is_an_error_with_the_numbers(void **state)
{
    struct bench bench;
    forebay_error error;

    (void)state;
    bench_init(&bench);
    bench.rows = 10000000;
    bench.limit = 8 * FB_MIB;
    assert_int_equal(bench_open(&bench, &error), FOREBAY_OVER_BUDGET);
    assert_non_null(strstr(error.message, "memory.budget"));
    fb_order_close(bench.order);
    fb_source_close(bench.source);
    fb_budget_free(bench.budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_comes_once_an_epoch),
        cmocka_unit_test(batches_are_the_same_whatever_the_workers),
        cmocka_unit_test(what_finish_makes_is_the_same_from_the_cache_or_not),
        cmocka_unit_test(padded_batches_have_zeros_behind_and_lengths),
        cmocka_unit_test(ragged_batches_lie_one_behind_the_other),
        cmocka_unit_test(text_lies_one_behind_the_other_under_every_collate),
        cmocka_unit_test(skipped_samples_leave_their_batch_short),
        cmocka_unit_test(replaced_samples_are_marked_by_their_own_index),
        cmocka_unit_test(an_error_comes_at_its_batch_and_the_loader_goes_on),
        cmocka_unit_test(too_many_failures_fail_the_run),
        cmocka_unit_test(a_caller_that_holds_all_is_told_how_many),
        cmocka_unit_test(a_seek_goes_to_any_epoch_and_back),
        cmocka_unit_test(a_child_is_told_that_the_loader_is_its_parents),
        cmocka_unit_test(a_batch_that_never_fits_is_an_error_with_the_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
