/* law_device_cache.c -- samples that stay on the device: not copied again, the same batches, given
 * back when memory is short, on each rank what is its own. */
#include "device.h"

struct cached_run {
    const char *device, *cache;
    uint64_t hits, misses, copied;
};

static uint64_t run_cached(struct cached_run *run)
{
    forebay_loader *loader;
    forebay_error error;
    uint64_t digest = 0;

    law_ok(law_open_frames(&loader, NULL, &error, run->device, run->cache, "batch.size=5",
                           "memory.budget=64MiB", "memory.share=off", "workers=2", "epochs=3",
                           "prefetch=2", NULL));
    for (unsigned i = 0; i < 3; i++)
        digest = law_run_epoch(digest, loader);
    run->hits = law_stat(loader, "device", "cache_hits");
    run->misses = law_stat(loader, "device", "cache_misses");
    run->copied = law_stat(loader, "device", "bytes_copied");
    forebay_close(loader);
    return digest;
}

static void what_is_cached_on_the_device_is_not_copied_again(void **state)
{
    static const char *const devices[] = { "device.kind=cuda:0", "device.kind=opencl:0" };
    struct cached_run run = { .device = "device.kind=host", .cache = "device.cache=off" };
    uint64_t expected = run_cached(&run), frame = 256 * 512;

    (void)state;
    assert_int_equal(run.copied, 0);
    for (unsigned d = 0; d < 2; d++) {
        run.device = devices[d];
        if (d == 1 && device_is_missing(devices[d]))
            continue;
        run.cache = "device.cache=10 samples";
        assert_int_equal(run_cached(&run), expected);
        assert_int_equal(run.hits + run.misses, 3 * LAW_FRAMES);
        /* Batches opened ahead of the first ones' copies may miss what those keep. */
        assert_in_range(run.hits, 10, 20);
        assert_true(run.copied < run.misses * frame + 64 * 1024);
        run.cache = "device.cache=1GB";
        assert_int_equal(run_cached(&run), expected);
        assert_in_range(run.hits, 2 * LAW_FRAMES - 30, 2 * LAW_FRAMES);
        assert_true(run.copied < run.misses * frame + 64 * 1024);
    }
}

static void no_memory_for_the_cache_still_ends_the_run(void **state)
{
    struct cached_run run = { .device = "device.kind=cuda:0", .cache = "device.cache=40 samples" };
    struct emulated *emulated = device_control();
    uint64_t expected = run_cached(&run), count = emulated->allocations;

    (void)state;
    for (uint64_t n = 1; n <= count + 1; n++) {
        emulated->allocations = 0;
        emulated->fail_first = emulated->fail_last = n;
        assert_int_equal(run_cached(&run), expected);
        emulated->allocations = 0;
        emulated->fail_last = UINT64_MAX;
        assert_int_equal(run_cached(&run), expected);
    }
    /* Room for the cache or for batches, not for both: a tenth stays free, too. */
    emulated->fail_first = emulated->fail_last = 0;
    for (uint64_t frames = 6; frames < 60; frames += 9) {
        emulated->memory_bytes = frames * 256 * 512;
        assert_int_equal(run_cached(&run), expected);
    }
}

static void the_cache_gives_memory_back_when_asked(void **state)
{
    struct cached_run host = { .device = "device.kind=host", .cache = "device.cache=off" };
    uint64_t expected = run_cached(&host), digest = 0;
    forebay_loader *loader;
    forebay_error error;

    (void)state;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "device.cache=40 samples",
                           "batch.size=5", "memory.budget=64MiB", "workers=2", "prefetch=1", NULL));
    digest = law_run_epoch(digest, loader);
    digest = law_run_epoch(digest, loader);
    assert_int_equal(law_stat(loader, "device", "cache_items"), 40);
    device_control()->wait_all();
    while (forebay_device_trim(loader, 1) == 0) /* a batch of the next epoch may count on it */
        law_ok(forebay_set_epoch(loader, 2, &error));
    assert_int_equal(law_stat(loader, "device", "cache_items"), 0);
    assert_int_equal(law_stat(loader, "device", "cache_bytes"), 0);
    assert_int_equal(law_run_epoch(digest, loader), expected);
    assert_int_equal(forebay_device_trim(loader, 1), 0);
    forebay_close(loader);
}

static void preloaded_samples_are_hit_from_the_first_batch_on(void **state)
{
    struct cached_run host = { .device = "device.kind=host", .cache = "device.cache=off" };
    uint64_t expected = run_cached(&host), digest = 0;
    forebay_loader *loader;
    forebay_error error;

    (void)state;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "device.cache=48 samples",
                           "device.preload=true", "batch.size=5", "memory.budget=64MiB",
                           "workers=2", "epochs=3", NULL));
    assert_int_equal(law_stat(loader, "device", "cache_items"), 48);
    for (unsigned i = 0; i < 3; i++)
        digest = law_run_epoch(digest, loader);
    assert_int_equal(digest, expected);
    assert_int_equal(law_stat(loader, "device", "cache_hits"), 3 * LAW_FRAMES);
    assert_int_equal(law_stat(loader, "device", "cache_misses"), 0);
    assert_true(law_stat(loader, "device", "bytes_copied") < 49 * 256 * 512);
    forebay_close(loader);
}

/* Four ranks, a device each, 6 samples of 48 cached on each: with sticky: rank half of a rank's 12
 * samples, without it an eighth. */
static double ranks_hit_rate(const char *sticky)
{
    static const char *const ranks[] = { "order.rank=0", "order.rank=1", "order.rank=2",
                                         "order.rank=3" };
    static const char *const devices[] = { "device.kind=cuda:0", "device.kind=cuda:1",
                                           "device.kind=cuda:2", "device.kind=cuda:3" };
    uint64_t hits = 0, uses = 0;

    for (unsigned r = 0; r < 4; r++) {
        forebay_loader *loader;
        forebay_error error;

        law_ok(law_open_frames(&loader, NULL, &error, ranks[r], "order.world=4", devices[r], sticky,
                               "device.cache=6 samples", "batch.size=3", "memory.budget=64MiB",
                               "memory.ranks_here=1", "memory.share=off", "prefetch=1", "epochs=31",
                               NULL));
        for (unsigned i = 0; i < 31; i++)
            law_run_epoch(0, loader);
        hits += law_stat(loader, "device", "cache_hits");
        uses += 30 * LAW_FRAMES / 4; /* in the first epoch there is nothing to hit */
        forebay_close(loader);
    }
    return (double)hits / (double)uses;
}

static void sticky_ranks_hit_all_that_is_cached(void **state)
{
    double sticky = ranks_hit_rate("order.sticky=rank");
    double loose = ranks_hit_rate("order.sticky=none");

    (void)state;
    assert_true(sticky == 0.5);
    assert_true(loose > 0.125 - 0.04 && loose < 0.125 + 0.04);
}

int main(void)
{
#define LAW(test) cmocka_unit_test_setup(test, device_settle)
    const struct CMUnitTest tests[] = {
        LAW(what_is_cached_on_the_device_is_not_copied_again),
        LAW(no_memory_for_the_cache_still_ends_the_run),
        LAW(the_cache_gives_memory_back_when_asked),
        LAW(preloaded_samples_are_hit_from_the_first_batch_on),
        LAW(sticky_ranks_hit_all_that_is_cached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
