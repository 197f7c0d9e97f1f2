/* law_device_units.c -- units in device memory: a series is there once and its windows are gathered
 * there; scans that sequences share; samples of any length. The same batches as on the host. */
#include "device.h"

#include <stdio.h>
#include <string.h>

#define WINDOWS (LAW_FRAMES * 10) /* of 64 rows from each of 256, every 20th */
#define WINDOW_BYTES (64 * 512)
#define FRAME_BYTES (256 * 512)

struct unit_run {
    bool scans;                 /* sequences of scans; else windows */
    const char *device, *cache; /* settings */
    const char *first, *second, *third;
    unsigned epochs; /* 2, or 0 for 3 */
    uint64_t hits, misses, copied, items, cache_bytes;
};

static int unit_open(forebay_loader **out, const struct unit_run *run, forebay_error *error)
{
    const char *epochs = run->epochs == 2 ? "epochs=2" : "epochs=3";

    if (run->scans)
        return law_open_scans(out, NULL, error, run->device, run->cache, "source.sequence=8",
                              epochs, "batch.size=7", "memory.budget=64MiB", "memory.share=off",
                              "workers=2", run->first, run->second, run->third, NULL);
    return law_open_frames(out, NULL, error, "source.kind=windows", "source.window=64",
                           "source.stride=20", epochs, run->device, run->cache, "batch.size=37",
                           "memory.budget=64MiB", "memory.share=off", "workers=2", "prefetch=1",
                           run->first, run->second, run->third, NULL);
}

static uint64_t run_units(struct unit_run *run)
{
    forebay_loader *loader;
    forebay_error error;
    uint64_t digest = 0;

    law_ok(unit_open(&loader, run, &error));
    for (unsigned i = 0; i < (run->epochs ? run->epochs : 3); i++)
        digest = law_run_epoch(digest, loader);
    run->hits = law_stat(loader, "device", "cache_hits");
    run->misses = law_stat(loader, "device", "cache_misses");
    run->copied = law_stat(loader, "device", "bytes_copied");
    run->items = law_stat(loader, "device", "cache_items");
    run->cache_bytes = law_stat(loader, "device", "cache_bytes");
    forebay_close(loader);
    return digest;
}

static const char *const devices[] = { "device.kind=cuda:0", "device.kind=opencl:0" };

/* On every device with and without its cache, what the host gives. */
static void check_same(const struct unit_run *how, struct unit_run seen[2])
{
    struct unit_run run = *how;
    uint64_t expected;

    run.device = "device.kind=host";
    expected = run_units(&run);
    for (unsigned d = 0; d < 2; d++) {
        seen[d] = (struct unit_run){ .device = NULL };
        if (d == 1 && device_is_missing(devices[d]))
            continue;
        run = *how;
        run.device = devices[d];
        assert_int_equal(run_units(&run), expected);
        seen[d] = run;
        run.cache = "device.cache=off";
        assert_int_equal(run_units(&run), expected);
    }
}

static void a_series_is_on_the_device_once_and_windows_are_gathered_there(void **state)
{
    struct unit_run how = { .cache = "device.cache=5000 samples" }, seen[2];

    (void)state;
    check_same(&how, seen);
    for (unsigned d = 0; d < 2 && seen[d].device; d++) {
        assert_int_equal(seen[d].items, LAW_FRAMES);
        assert_int_equal(seen[d].cache_bytes, LAW_FRAMES * FRAME_BYTES); /* no row twice */
        assert_int_equal(seen[d].hits + seen[d].misses, 3 * WINDOWS);
        /* From the second epoch on all, but for what was opened ahead; and in the first one those
         * whose rows other windows brought. */
        assert_true(seen[d].hits >= 2 * WINDOWS - 2 * 37);
        assert_true(seen[d].misses < WINDOWS);
        assert_true(seen[d].copied < seen[d].misses * WINDOW_BYTES + 256 * 1024);
    }
}

static void windows_beyond_the_end_are_padded_as_on_the_host(void **state)
{
    struct unit_run how = { .cache = "device.cache=1GB", .first = "source.tail=pad" }, seen[2];

    (void)state;
    check_same(&how, seen);
    for (unsigned d = 0; d < 2 && seen[d].device; d++)
        assert_true(seen[d].hits > WINDOWS && seen[d].misses >= 3 * LAW_FRAMES);
}

static void preloaded_series_are_hit_from_the_first_window_on(void **state)
{
    struct unit_run how = { .cache = "device.cache=1GB", .first = "device.preload=true" }, seen[2];

    (void)state;
    check_same(&how, seen);
    for (unsigned d = 0; d < 2 && seen[d].device; d++) {
        assert_int_equal(seen[d].hits, 3 * WINDOWS);
        assert_int_equal(seen[d].misses, 0);
    }
}

static void half_of_the_series_is_half_of_the_hits(void **state)
{
    struct unit_run how = { .cache = "device.cache=3MiB", .first = "device.preload=true" }, seen[2];

    (void)state;
    check_same(&how, seen);
    for (unsigned d = 0; d < 2 && seen[d].device; d++) {
        assert_int_equal(seen[d].items, LAW_FRAMES / 2);
        assert_int_equal(seen[d].hits, 3 * WINDOWS / 2);
    }
}

static void a_series_that_does_not_fit_is_kept_as_windows(void **state)
{
    struct unit_run how = { .cache = "device.cache=3 samples", .first = "device.preload=true" },
                    seen[2];

    (void)state;
    check_same(&how, seen);
    assert_int_equal(seen[0].items, 3);
    assert_int_equal(seen[0].hits, 9);
}

static void sequences_share_their_scans_on_the_device(void **state)
{
    static const char *const collates[] = { "batch.collate=pad", "batch.collate=ragged" };

    (void)state;
    for (unsigned c = 0; c < 2; c++) {
        struct unit_run how = { .scans = true, .cache = "device.cache=1GB", .first = collates[c] },
                        seen[2];
        unsigned samples = LAW_SCANS - 7;

        check_same(&how, seen);
        for (unsigned d = 0; d < 2 && seen[d].device; d++) {
            assert_int_equal(seen[d].items, LAW_SCANS);
            assert_int_equal(seen[d].hits + seen[d].misses, 3 * samples);
            assert_true(seen[d].hits > 2 * samples);
            assert_true(seen[d].misses < samples);
        }
    }
}

static void single_scans_of_any_length_are_kept(void **state)
{
    static const char *const collates[] = { "batch.collate=pad", "batch.collate=ragged" };

    (void)state;
    for (unsigned c = 0; c < 2; c++) {
        struct unit_run how = { .scans = true, .cache = "device.cache=100 samples",
                                .first = collates[c], .second = "source.sequence=1",
                                .third = "device.preload=true" }, seen[2];

        check_same(&how, seen);
        for (unsigned d = 0; d < 2 && seen[d].device; d++) {
            assert_int_equal(seen[d].items, 100);
            assert_int_equal(seen[d].hits, 300);
        }
    }
}

static void units_are_kept_as_the_batch_has_them(void **state)
{
    static const char *const dtypes[] = { "batch.dtype=f16", "batch.dtype=bf16" };

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct unit_run how = { .scans = true, .cache = "device.cache=1GB",
                                .first = "batch.collate=pad", .second = dtypes[i] }, seen[2];

        check_same(&how, seen);
        assert_true(seen[0].hits > 0);
    }
}

/* A cache in RAM that could hold everything keeps nothing of what the device keeps. */
static void what_is_on_the_device_is_not_also_kept_in_ram(void **state)
{
    static const char *const caches[] = { "device.cache=off", "device.cache=12 samples",
                                          "device.cache=1GB" };
    static const uint64_t kept[] = { LAW_FRAMES, LAW_FRAMES - 12, 0 };

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        forebay_loader *loader;
        forebay_error error;

        law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", caches[i],
                               "batch.size=4", "memory.budget=64MiB", "memory.cache=32MiB",
                               "memory.share=off", "workers=1", "prefetch=1", "device.prefetch=0",
                               NULL));
        law_run_epoch(0, loader);
        assert_int_equal(law_stat(loader, "cache", "items"), kept[i]);
        law_run_epoch(0, loader);
        assert_int_equal(law_stat(loader, "cache", "items"), kept[i]);
        forebay_close(loader);
        /* Several ranks of a node share what is in RAM: there it is independent. */
        law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", caches[i],
                               "batch.size=4", "memory.budget=128MiB", "memory.cache=32MiB",
                               "memory.share=off", "memory.ranks_here=2", "workers=1", NULL));
        law_run_epoch(0, loader);
        assert_int_equal(law_stat(loader, "cache", "items"), LAW_FRAMES);
        forebay_close(loader);
    }
}

static void no_memory_for_units_still_ends_the_run(void **state)
{
    static const struct unit_run hows[] = {
        { .device = "device.kind=cuda:0", .cache = "device.cache=40 samples", .epochs = 2 },
        { .scans = true, .device = "device.kind=cuda:0", .cache = "device.cache=30 samples",
          .first = "batch.collate=pad", .epochs = 2 },
    };
    struct emulated *emulated = device_control();

    (void)state;
    for (unsigned h = 0; h < 2; h++) {
        struct unit_run run = hows[h];
        uint64_t expected, count;

        device_settle(NULL);
        expected = run_units(&run);
        count = emulated->allocations;
        for (uint64_t n = 1; n <= count + 1; n++) {
            emulated->allocations = 0;
            emulated->fail_first = emulated->fail_last = n;
            assert_int_equal(run_units(&run), expected);
            emulated->allocations = 0;
            emulated->fail_last = UINT64_MAX;
            assert_int_equal(run_units(&run), expected);
        }
        /* Room for units or for batches, not for both; a tenth stays free. */
        emulated->fail_first = emulated->fail_last = 0;
        for (uint64_t kib = 512; kib < 8192; kib += 1500) {
            emulated->memory_bytes = kib * 1024;
            assert_int_equal(run_units(&run), expected);
        }
    }
}

static void units_are_given_back_when_asked(void **state)
{
    struct unit_run run = { .device = "device.kind=host", .cache = "device.cache=1GB" };
    uint64_t expected = run_units(&run), digest = 0;
    forebay_loader *loader;
    forebay_error error;

    (void)state;
    run.device = "device.kind=cuda:0";
    law_ok(unit_open(&loader, &run, &error));
    digest = law_run_epoch(digest, loader);
    digest = law_run_epoch(digest, loader);
    assert_int_equal(law_stat(loader, "device", "cache_items"), LAW_FRAMES);
    device_control()->wait_all();
    while (forebay_device_trim(loader, 1) == 0) /* a batch of the next epoch may count on it */
        law_ok(forebay_set_epoch(loader, 2, &error));
    assert_int_equal(law_stat(loader, "device", "cache_items"), 0);
    assert_int_equal(law_stat(loader, "device", "cache_bytes"), 0);
    assert_int_equal(law_run_epoch(digest, loader), expected);
    forebay_close(loader);
}

int main(void)
{
#define LAW(test) cmocka_unit_test_setup(test, device_settle)
    const struct CMUnitTest tests[] = {
        LAW(a_series_is_on_the_device_once_and_windows_are_gathered_there),
        LAW(windows_beyond_the_end_are_padded_as_on_the_host),
        LAW(preloaded_series_are_hit_from_the_first_window_on),
        LAW(half_of_the_series_is_half_of_the_hits),
        LAW(a_series_that_does_not_fit_is_kept_as_windows),
        LAW(sequences_share_their_scans_on_the_device),
        LAW(single_scans_of_any_length_are_kept),
        LAW(units_are_kept_as_the_batch_has_them),
        LAW(what_is_on_the_device_is_not_also_kept_in_ram),
        LAW(no_memory_for_units_still_ends_the_run),
        LAW(units_are_given_back_when_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
