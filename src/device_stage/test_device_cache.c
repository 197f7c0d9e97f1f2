/* The device's cache over several chunks, of which each holds one entry: the host device keeps
 * chunks as address space only, so large ones cost nothing here. */
#include "device_stage/device_cache.h"
#include "pipeline/test_bench.h"

#define ENTRY (40 * FB_MIB) /* more than half a chunk */
#define BATCH 8

static char cuda[] = "cuda:0";

struct cached {
    struct bench bench;
    struct fb_collation collation;
    struct fb_device *device;
    struct fb_device_cache *cache;
    struct fb_batch *batch;
    pthread_mutex_t lock;
};

static void cached_open(struct cached *cached, bool units, uint64_t limit)
{
    struct fb_device_cache_options options = { .policy = &fb_policy_fill,
                                               .samples = SAMPLES,
                                               .entry_bytes = ENTRY,
                                               .limit = limit };

    bench_init(&cached->bench);
    cached->bench.config.device_kind = cuda;
    cached->bench.config.device_cache = (struct fb_size){ FB_SIZE_SAMPLES, limit };
    cached->bench.config.batch_collate = FB_COLLATE_RAGGED;
    bench_make(&cached->bench);
    pthread_mutex_init(&cached->lock, NULL);
    assert_int_equal(fb_collation_open(&cached->collation, cached->bench.source,
                                       &cached->bench.config, cached->bench.budget, NULL), 0);
    assert_int_equal(fb_device_open(&cached->device, "host", NULL, NULL), 0);
    options.device = cached->device;
    options.lock = &cached->lock;
    options.budget = cached->bench.budget;
    options.collation = &cached->collation;
    options.source = units ? cached->bench.source : NULL;
    assert_int_equal(fb_device_cache_open(&cached->cache, &options, NULL), 0);
    assert_int_equal(fb_batch_new(&cached->batch, NULL, &cached->collation, cached->bench.budget,
                                  NULL), 0);
}

static void cached_close(struct cached *cached)
{
    struct fb_budget_report now;

    fb_batch_free(cached->batch, &cached->collation, cached->bench.budget);
    fb_device_cache_close(cached->cache);
    fb_device_close(cached->device);
    fb_collation_close(&cached->collation);
    fb_order_close(cached->bench.order);
    fb_source_close(cached->bench.source);
    fb_budget_read(cached->bench.budget, &now);
    assert_int_equal(now.used, 0);
    fb_budget_free(cached->bench.budget);
    pthread_mutex_destroy(&cached->lock);
}

/* Samples [first, first + BATCH). */
static void batch_find(struct cached *cached, uint64_t first)
{
    fb_batch_begin(cached->batch, (struct fb_cursor){ .epoch = 0 }, 0, BATCH);
    for (uint64_t i = 0; i < BATCH; i++)
        cached->batch->samples[i] = first + i;
    fb_device_cache_find(cached->cache, cached->batch);
}

static uint64_t count_there(const struct cached *cached)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < BATCH; i++)
        count += fb_place_is_there(cached->batch->places[i]);
    return count;
}

static void what_came_first_stays(void **state)
{
    (void)state;
    for (unsigned units = 0; units < 2; units++) {
        struct cached cached;

        cached_open(&cached, units, 5);
        batch_find(&cached, 0);
        assert_int_equal(count_there(&cached), 0);
        assert_true(cached.batch->places[0] == FB_PLACE_WANTED);
        assert_int_equal(fb_device_cache_plan(cached.cache, cached.batch, NULL), 0);
        assert_true(fb_place_is_kept(cached.batch->places[4]));
        assert_false(fb_place_is_kept(cached.batch->places[5]));
        fb_device_cache_commit(cached.cache, cached.batch);
        assert_int_equal(cached.cache->used, 5);
        assert_int_equal(cached.cache->chunk_count, 5);
        assert_int_equal(cached.cache->misses, BATCH);
        batch_find(&cached, 3);
        assert_int_equal(count_there(&cached), 2);
        assert_true(cached.batch->places[2] == FB_PLACE_NONE); /* no room: not wanted either */
        fb_device_cache_commit(cached.cache, cached.batch);
        assert_int_equal(cached.cache->hits, 2);
        cached_close(&cached);
    }
}

static void what_was_planned_and_not_copied_is_not_there(void **state)
{
    (void)state;
    for (unsigned units = 0; units < 2; units++) {
        struct cached cached;

        cached_open(&cached, units, 5);
        batch_find(&cached, 0);
        assert_int_equal(fb_device_cache_plan(cached.cache, cached.batch, NULL), 0);
        fb_device_cache_forget_locked(cached.cache, cached.batch);
        batch_find(&cached, 0);
        assert_int_equal(count_there(&cached), 0);
        cached_close(&cached);
    }
}

static void a_chunk_that_a_batch_counts_on_stays(void **state)
{
    (void)state;
    for (unsigned units = 0; units < 2; units++) {
        struct cached cached;
        void *memory;

        cached_open(&cached, units, 5);
        batch_find(&cached, 0);
        assert_int_equal(fb_device_cache_plan(cached.cache, cached.batch, NULL), 0);
        fb_device_cache_commit(cached.cache, cached.batch);
        batch_find(&cached, 4); /* of which the first is in the last chunk */
        assert_null(fb_device_cache_drop_locked(cached.cache));
        fb_device_cache_forget_locked(cached.cache, cached.batch);
        memory = fb_device_cache_drop_locked(cached.cache);
        assert_non_null(memory);
        cached.device->ops->free(cached.device, memory, ENTRY);
        assert_int_equal(cached.cache->limit, 4); /* and it does not grow again */
        batch_find(&cached, 0);
        assert_int_equal(count_there(&cached), 4);
        assert_int_equal(fb_device_cache_plan(cached.cache, cached.batch, NULL), 0);
        assert_int_equal(cached.cache->chunk_count, 4);
        fb_device_cache_forget_locked(cached.cache, cached.batch);
        cached_close(&cached);
    }
}

/* A plan for a chunk that went meanwhile is made anew. */
static void a_second_try_after_a_chunk_went_plans_again(void **state)
{
    (void)state;
    for (unsigned units = 0; units < 2; units++) {
        struct cached cached;
        void *memory;

        cached_open(&cached, units, 5);
        batch_find(&cached, 0);
        assert_int_equal(fb_device_cache_plan(cached.cache, cached.batch, NULL), 0);
        memory = fb_device_cache_drop_locked(cached.cache);
        assert_non_null(memory);
        cached.device->ops->free(cached.device, memory, ENTRY);
        assert_int_equal(fb_device_cache_plan(cached.cache, cached.batch, NULL), 0);
        assert_true(fb_place_is_kept(cached.batch->places[3]));
        assert_false(fb_place_is_kept(cached.batch->places[4]));
        fb_device_cache_commit(cached.cache, cached.batch);
        assert_int_equal(cached.cache->used, 4);
        cached_close(&cached);
    }
}

static void all_chunks_together_take_the_limit_and_no_more(void **state)
{
    (void)state;
    for (uint64_t entries = 1; entries < 40; entries++)
        for (uint64_t each = 1; each <= entries; each++) {
            struct fb_device_cache cache = { .entry_bytes = 10, .chunk_entries = each,
                                             .most = entries };
            uint64_t sum = 0;

            for (uint64_t c = 0; c * each < entries; c++)
                sum += fb_device_cache_chunk_bytes(&cache, c);
            assert_int_equal(sum, entries * 10);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_came_first_stays),
        cmocka_unit_test(all_chunks_together_take_the_limit_and_no_more),
        cmocka_unit_test(what_was_planned_and_not_copied_is_not_there),
        cmocka_unit_test(a_chunk_that_a_batch_counts_on_stays),
        cmocka_unit_test(a_second_try_after_a_chunk_went_plans_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
