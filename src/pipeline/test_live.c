/* The pipeline's limits and what is changed while it runs. */
#include <pthread.h>

#include "pipeline/test_bench.h"

/* The same samples are broken in every epoch: a share of the epoch is used up anew by each. */
static void a_share_of_failures_is_counted_in_each_epoch(void **state)
{
    struct bench bench;
    forebay_batch *batch;
    forebay_error error;
    int status;

    (void)state;
    for (int allowed = 5; allowed <= 15; allowed += 10) {
        bench_init(&bench);
        bench.config.on_error = FB_ON_ERROR_SKIP;
        bench.config.max_errors = (struct fb_share){ true, allowed };
        bench.before_load = every_tenth_is_bad;
        assert_int_equal(bench_open(&bench, NULL), 0);
        for (int epoch = 0; epoch < 3; epoch++) {
            while ((status = fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, &error)) == 0)
                fb_pipeline_batch_release(batch);
            assert_int_equal(status, allowed == 5 ? FOREBAY_BAD_DATA : FOREBAY_END);
        }
        bench_close(&bench);
    }
}

static uint64_t one_is_huge(uint64_t sample)
{
    return sample == 20 ? ROWS * 1000 : 1 + sample % 7;
}

static void a_batch_that_never_fits_is_passed_over(void **state)
{
    struct bench bench;
    struct fb_pipeline_report report;
    forebay_batch *batch;
    forebay_error error;
    unsigned failed = 0, came = 0;
    int status;

    (void)state;
    bench_init(&bench);
    bench.config.order_shuffle = false;
    bench.config.batch_collate = FB_COLLATE_PAD;
    bench.rows = ROWS * 1000;
    bench.rows_of = one_is_huge;
    bench.limit = 8 * FB_MIB; /* the batch of sample 20 takes 32 MB */
    assert_int_equal(bench_open(&bench, &error), 0);
    while ((status = fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, &error)) != FOREBAY_END) {
        if (status) {
            assert_int_equal(status, FOREBAY_OVER_BUDGET);
            assert_non_null(strstr(error.message, "batch 2 of epoch 0"));
            assert_int_equal(came, 16); /* in order, at its batch */
            failed++;
            continue;
        }
        came += (unsigned)batch->samples;
        fb_pipeline_batch_release(batch);
    }
    assert_int_equal(failed, 1);
    assert_int_equal(came, SAMPLES - 8);
    fb_pipeline_read_report(bench.pipeline, &report);
    assert_int_equal(report.failed, 1);
    bench_close(&bench);
}

/* Loads wait behind a gate. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int pass_the_gate(void *data, uint64_t unit)
{
    (void)data;
    (void)unit;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return FOREBAY_OK;
}

/* Another thread calls next; when this returns it waits there. */
static pthread_t start_caller(struct bench *bench, void *(*take)(void *pipeline))
{
    struct fb_pipeline_report report;
    pthread_t caller;

    assert_int_equal(pthread_create(&caller, NULL, take, bench->pipeline), 0);
    do /* the lock is free again only when the caller waits */
        fb_pipeline_read_report(bench->pipeline, &report);
    while (report.epoch_count == 0);
    return caller;
}

static void *take_one(void *pipeline)
{
    forebay_batch *batch;
    uint64_t minute = (uint64_t)60 * 1000000000;
    int status = FOREBAY_OK;

    for (int i = 0; i < 5 && !status; i++) {
        status = fb_pipeline_next(&batch, pipeline, minute, NULL);
        if (!status)
            fb_pipeline_batch_release(batch);
    }
    return status ? pipeline : NULL;
}

static void a_waiting_caller_works_itself_when_the_last_worker_is_taken_away(void **state)
{
    struct bench bench;
    pthread_t caller;
    void *failed;

    (void)state;
    bench_init(&bench);
    bench.options.workers = 1;
    bench.before_load = pass_the_gate;
    pthread_mutex_lock(&gate);
    assert_int_equal(bench_open(&bench, NULL), 0);
    caller = start_caller(&bench, take_one);
    assert_int_equal(fb_pipeline_set_workers(bench.pipeline, 0), 0);
    pthread_mutex_unlock(&gate);
    pthread_join(caller, &failed);
    assert_null(failed);
    bench_close(&bench);
}

static uint64_t rows_behind_the_gate(uint64_t sample)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return 1 + sample % 7;
}

/* It opens a batch just then: the caller finds nothing to do, and must be told when that is over. */
static void a_worker_that_leaves_after_opening_a_batch_tells_the_caller(void **state)
{
    struct fb_pipeline_report report;
    struct bench bench;
    pthread_t caller;
    void *failed;

    (void)state;
    bench_init(&bench);
    bench.config.batch_collate = FB_COLLATE_PAD;
    bench.rows_of = rows_behind_the_gate;
    bench.options.workers = 1;
    bench_make(&bench);
    assert_int_equal(fb_pipeline_open(&bench.pipeline, &bench.options, NULL), 0);
    pthread_mutex_lock(&gate);
    fb_pipeline_start(bench.pipeline);
    caller = start_caller(&bench, take_one);
    assert_int_equal(fb_pipeline_set_workers(bench.pipeline, 0), 0);
    for (int i = 0; i < 1000; i++) /* time for it to look, and to wait again */
        fb_pipeline_read_report(bench.pipeline, &report);
    pthread_mutex_unlock(&gate);
    pthread_join(caller, &failed);
    assert_null(failed);
    fb_pipeline_read_report(bench.pipeline, &report);
    assert_true(report.wait_s < 30); /* not to the end of its patience */
    bench_close(&bench);
}

/* Loads of any batch but the first, before that one was handed out. */
static struct fb_pipeline *observed;
static _Atomic unsigned early;

static int note_early(void *data, uint64_t unit)
{
    struct fb_pipeline_report report;

    (void)data;
    fb_pipeline_read_report(observed, &report);
    early += unit >= 8 && report.batches == 0;
    return FOREBAY_OK;
}

static void *take_first(void *pipeline)
{
    forebay_batch *batch;
    int status = fb_pipeline_next(&batch, pipeline, UINT64_MAX, NULL);

    if (!status)
        fb_pipeline_batch_release(batch);
    return status ? pipeline : NULL;
}

static void the_first_batch_goes_before_all_others_when_the_caller_waits_for_it(void **state)
{
    struct fb_pipeline_report report;
    struct bench bench;
    pthread_t caller;
    void *failed;

    (void)state;
    bench_init(&bench);
    bench.config.order_shuffle = false;
    bench.options.workers = 4;
    bench.before_load = note_early;
    bench_make(&bench);
    assert_int_equal(fb_pipeline_open(&bench.pipeline, &bench.options, NULL), 0);
    observed = bench.pipeline;
    caller = start_caller(&bench, take_first);
    fb_pipeline_start(bench.pipeline);
    pthread_join(caller, &failed);
    assert_null(failed);
    assert_int_equal(early, 0);
    do /* and then the others come ahead of the caller, as ever */
        fb_pipeline_read_report(bench.pipeline, &report);
    while (report.ready < bench.options.prefetch);
    bench_close(&bench);
}

static void a_wait_counts_before_it_is_over(void **state)
{
    struct fb_pipeline_report report;
    forebay_batch *batch;
    struct bench bench;
    pthread_t caller;
    void *failed;
    double before;

    (void)state;
    bench_init(&bench);
    bench.options.workers = 1;
    bench.before_load = pass_the_gate;
    pthread_mutex_lock(&gate);
    assert_int_equal(bench_open(&bench, NULL), 0);
    assert_int_equal(fb_pipeline_next(&batch, bench.pipeline, 1000000, NULL), FOREBAY_TIMEOUT);
    fb_pipeline_read_report(bench.pipeline, &report);
    assert_true(report.wait_s >= 0.001);
    before = report.wait_s;
    assert_int_equal(pthread_create(&caller, NULL, take_one, bench.pipeline), 0);
    do
        fb_pipeline_read_report(bench.pipeline, &report);
    while (report.wait_s <= before);
    assert_int_equal(report.batches, 0);
    assert_int_equal(report.delivered_ns, 0);
    pthread_mutex_unlock(&gate);
    pthread_join(caller, &failed);
    assert_null(failed);
    fb_pipeline_read_report(bench.pipeline, &report);
    assert_true(report.delivered_ns > 0);
    bench_close(&bench);
}

static uint64_t slot_bytes(struct bench *bench)
{
    struct fb_budget_report now;

    fb_budget_read(bench->budget, &now);
    return now.by_stage[FB_STAGE_SLOTS];
}

static void a_lowered_prefetch_gives_its_slots_back(void **state)
{
    forebay_batch *batch;
    struct bench bench;
    uint64_t before;

    (void)state;
    bench_init(&bench);
    bench.rows = 20000; /* 640 kB a batch */
    bench.options.prefetch = 10;
    assert_int_equal(bench_open(&bench, NULL), 0);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL), 0);
        fb_pipeline_batch_release(batch);
    }
    before = slot_bytes(&bench);
    assert_int_equal(fb_pipeline_set_prefetch(bench.pipeline, 2), 2);
    for (int i = 0; i < 13; i++)
        if (!fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, NULL))
            fb_pipeline_batch_release(batch);
    assert_true(slot_bytes(&bench) <= 4 * 660000);
    assert_true(slot_bytes(&bench) < before || before <= 4 * 660000);
    bench_close(&bench);
}

static uint64_t the_first_are_large(uint64_t sample)
{
    return sample < 8 ? 2 * ROWS : 10;
}

/* Slots went back, and somebody else has all that is left: what is paid for must do. */
static void a_full_budget_does_not_stop_batches_that_are_paid_for(void **state)
{
    struct bench bench;
    struct fb_budget_report now;
    forebay_batch *batch;
    forebay_error error;
    uint64_t taken = 0;

    (void)state;
    bench_init(&bench);
    bench.config.order_shuffle = false;
    bench.config.batch_collate = FB_COLLATE_PAD;
    bench.rows = 2 * ROWS;
    bench.rows_of = the_first_are_large;
    bench.options.workers = 0;
    bench.options.prefetch = 1;
    bench.options.slots_floor = 16384; /* enough for all but the first */
    assert_int_equal(bench_open(&bench, &error), 0);
    for (int i = 0; i < 13; i++) {
        if (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, &error))
            fail_msg("%s", error.message);
        fb_pipeline_batch_release(batch);
        if (i > 0)
            continue;
        fb_pipeline_trim(bench.pipeline);
        fb_budget_read(bench.budget, &now);
        taken = now.limit - now.used;
        assert_true(fb_budget_try_reserve(bench.budget, FB_STAGE_OTHER, taken));
    }
    fb_budget_refund(bench.budget, FB_STAGE_OTHER, taken);
    bench_close(&bench);
}

/* The budget asks for memory while the next batch is opened: at that moment the caller lets go. */
static uint64_t let_go(void *data, uint64_t bytes)
{
    forebay_batch **held = data;

    (void)bytes;
    if (*held)
        fb_pipeline_batch_release(*held);
    *held = NULL;
    return 0;
}

static void what_comes_back_while_a_batch_is_opened_is_not_overlooked(void **state)
{
    struct bench bench;
    struct fb_budget_report now;
    forebay_batch *held, *batch;
    forebay_error error;
    uint64_t taken;

    (void)state;
    bench_init(&bench);
    bench.options.workers = 0;
    bench.options.prefetch = 1;
    bench.options.slots_floor = FB_MIB; /* nothing more can be given back */
    assert_int_equal(bench_open(&bench, &error), 0);
    assert_int_equal(fb_pipeline_next(&held, bench.pipeline, UINT64_MAX, &error), 0);
    fb_budget_read(bench.budget, &now);
    taken = now.limit - now.used;
    assert_true(fb_budget_try_reserve(bench.budget, FB_STAGE_OTHER, taken));
    assert_int_equal(fb_budget_on_pressure(bench.budget, let_go, &held, &error), 0);
    if (fb_pipeline_next(&batch, bench.pipeline, UINT64_MAX, &error))
        fail_msg("%s", error.message);
    assert_null(held);
    fb_pipeline_batch_release(batch);
    fb_budget_off_pressure(bench.budget, let_go, &held);
    fb_budget_refund(bench.budget, FB_STAGE_OTHER, taken);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_of_failures_is_counted_in_each_epoch),
        cmocka_unit_test(a_batch_that_never_fits_is_passed_over),
        cmocka_unit_test(a_waiting_caller_works_itself_when_the_last_worker_is_taken_away),
        cmocka_unit_test(a_worker_that_leaves_after_opening_a_batch_tells_the_caller),
        cmocka_unit_test(the_first_batch_goes_before_all_others_when_the_caller_waits_for_it),
        cmocka_unit_test(a_wait_counts_before_it_is_over),
        cmocka_unit_test(a_lowered_prefetch_gives_its_slots_back),
        cmocka_unit_test(a_full_budget_does_not_stop_batches_that_are_paid_for),
        cmocka_unit_test(what_comes_back_while_a_batch_is_opened_is_not_overlooked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
