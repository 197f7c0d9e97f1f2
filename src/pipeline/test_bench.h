/* test_bench.h -- a pipeline over a source in memory, for its tests. */
#ifndef FB_PIPELINE_TEST_BENCH_H
#define FB_PIPELINE_TEST_BENCH_H
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "cache/cache.h"
#include "pipeline/pipeline.h"

#define SAMPLES 103
#define ROWS 1000

/* Everything a pipeline stands on. */
struct bench {
    struct fb_config config;
    struct fb_log log;
    struct fb_budget *budget;
    struct fb_source *source;
    struct fb_order *order;
    struct fb_pipeline *pipeline;
    struct fb_pipeline_options options;
    uint64_t rows;
    bool finished;
    struct fb_cache *cache;
    uint64_t (*rows_of)(uint64_t sample);
    int (*before_load)(void *data, uint64_t unit);
    uint64_t limit;
    bool always_ragged;
};

static inline void bench_init(struct bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->config.batch_size = (struct fb_count){ .value = 8 };
    bench->config.order_shuffle = true;
    bench->config.max_errors = (struct fb_share){ true, 100 };
    bench->config.cpu_share.is_auto = true;
    bench->options.workers = 2;
    bench->options.prefetch = 3;
    bench->options.epochs = UINT64_MAX;
    bench->rows = ROWS;
    bench->limit = 64 * FB_MIB;
}

static inline void bench_make(struct bench *bench)
{
    struct fb_memory_source_options memory = { .samples = SAMPLES,
                                               .rows = bench->rows,
                                               .rows_of = bench->rows_of,
                                               .finished = bench->finished,
                                               .before_load = bench->before_load };
    struct fb_order_options order = { .samples = SAMPLES,
                                      .seed = 7,
                                      .shuffle = bench->config.order_shuffle,
                                      .ranks = { .world = 1, .local_world = 1, .nodes = 1 } };

    assert_int_equal(fb_budget_new(&bench->budget, bench->limit, NULL), 0);
    assert_int_equal(fb_source_memory_open(&bench->source, &memory, bench->budget, NULL), 0);
    assert_int_equal(fb_order_open(&bench->order, &order, bench->budget, &bench->log, NULL), 0);
    bench->source->fields[0].always_ragged = bench->always_ragged;
    bench->options.source = bench->source;
    bench->options.order = bench->order;
    bench->options.budget = bench->budget;
    bench->options.log = &bench->log;
    bench->options.config = &bench->config;
    bench->options.ranks = order.ranks;
    bench->options.seed = 7;
    bench->options.on_error = bench->config.on_error;
}

static inline int bench_open(struct bench *bench, forebay_error *error)
{
    int status;

    bench_make(bench);
    status = fb_pipeline_open(&bench->pipeline, &bench->options, error);
    if (!status)
        fb_pipeline_start(bench->pipeline);
    return status;
}

static inline void bench_close(struct bench *bench)
{
    struct fb_budget_report now;

    assert_int_equal(fb_pipeline_close(bench->pipeline), 0);
    if (bench->cache)
        fb_cache_close(bench->cache);
    fb_order_close(bench->order);
    fb_source_close(bench->source);
    fb_budget_read(bench->budget, &now);
    assert_true(now.peak <= bench->limit);
    assert_int_equal(now.used, 0);
    fb_budget_free(bench->budget);
}

static inline int every_tenth_is_bad(void *data, uint64_t unit)
{
    (void)data;
    return unit % 10 == 3 ? FOREBAY_BAD_DATA : FOREBAY_OK;
}
#endif
