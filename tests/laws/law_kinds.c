/* law_kinds.c -- same seed, same batches and the ledger below its limit, for windows and tables,
 * whose samples are slices: whatever the workers, the budget, the cache, and live changes. */
#include "law.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mix.h"

#define SERIES 9
#define ROWS 4001
#define EPOCHS 2
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const char *const KINDS[] = { "windows", "table", "matrix" };
static const char *const WORKERS[] = { "workers=0", "workers=1", "workers=3", "workers=17" };
static const char *const BUDGETS[] = { "memory.budget=24MiB", "memory.budget=200MiB" };
static const char *const CACHES[] = { "memory.cache=off", "memory.cache=1MiB",
                                      "memory.cache=auto" };
static const char *const PREFETCH[] = { "prefetch=1", "prefetch=8" };

static FILE *file_new(const char *name, unsigned number)
{
    char path[600];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s%u%s", law_folder(), name, number,
             strcmp(name, "t_part") ? ".bin" : ".csv");
    file = fopen(path, "wb");
    assert_non_null(file);
    return file;
}

static void write_series(unsigned number)
{
    FILE *file = file_new("series", number);
    struct fb_random random = { fb_mix2(7, number) };

    for (unsigned i = 0; i < (ROWS + 37 * number) * 4; i++) {
        float value = (float)fb_random_unit(&random);

        assert_int_equal(fwrite(&value, sizeof(value), 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
}

static void write_part(unsigned number)
{
    FILE *file = file_new("t_part", number);
    struct fb_random random = { fb_mix2(8, number) };

    fprintf(file, "a,b,c,word\n");
    for (unsigned i = 0; i < 8 * ROWS; i++)
        fprintf(file, "%u,%.6f,%.3e,w%u\n", i, fb_random_unit(&random),
                fb_random_unit(&random) * 1e6, (unsigned)fb_random_below(&random, 50));
    assert_int_equal(fclose(file), 0);
}

static int make_data(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SERIES; i++)
        write_series(i);
    write_part(1);
    write_part(2);
    return 0;
}

static void open_kind(forebay_loader **out, const char *kind, const char *const more[4])
{
    bool windows = strcmp(kind, "windows") == 0;
    char path[700];
    const char *settings[] = { windows ? "source.kind=windows" : "source.kind=table",
                               path,
                               windows ? "source.columns=4" : "source.missing=nan",
                               strcmp(kind, "matrix") ? "batch.collate=stack" : "source.as=matrix",
                               "batch.size=512",
                               "order.group=none",
                               "memory.share=off",
                               more[0],
                               more[1],
                               more[2],
                               more[3] };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    forebay_error error;

    snprintf(path, sizeof(path), "source.path=%s/%s", law_folder(),
             windows ? "series*.bin" : "t.csv");
    options.settings = settings;
    options.setting_count = COUNT(settings);
    law_ok(forebay_open(out, &options, &error));
}

static uint64_t run_kind(const char *kind, const char *const more[4])
{
    forebay_loader *loader;
    uint64_t digest = 0;

    open_kind(&loader, kind, more);
    for (unsigned i = 0; i < EPOCHS; i++)
        digest = law_run_epoch(digest, loader);
    assert_true(law_stat(loader, "memory", "peak_bytes") <=
                law_stat(loader, "memory", "budget_bytes"));
    forebay_close(loader);
    return digest;
}

static void slices_are_the_same_whatever_the_memory(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(KINDS); k++) {
        uint64_t expected = 0;

        for (size_t i = 0; i < COUNT(WORKERS) * COUNT(BUDGETS) * COUNT(CACHES); i++) {
            const char *more[] = { WORKERS[i % COUNT(WORKERS)],
                                   BUDGETS[i / COUNT(WORKERS) % COUNT(BUDGETS)],
                                   CACHES[i / COUNT(WORKERS) / COUNT(BUDGETS)],
                                   PREFETCH[i % COUNT(PREFETCH)] };
            uint64_t digest = run_kind(KINDS[k], more);

            if (i && digest != expected)
                fail_msg("%s: other batches with %s %s %s %s", KINDS[k], more[0], more[1], more[2],
                         more[3]);
            expected = digest;
        }
    }
}

static void a_change_between_any_two_batches_changes_nothing(void **state)
{
    static const char *const more[] = { "workers=2", "memory.budget=64MiB", "memory.cache=auto",
                                        "prefetch=4" };

    (void)state;
    for (size_t k = 0; k < COUNT(KINDS); k++) {
        uint64_t expected = run_kind(KINDS[k], more), digest = 0;
        forebay_loader *loader;
        forebay_batch *batch;
        forebay_error error;

        open_kind(&loader, KINDS[k], more);
        for (unsigned epoch = 0, step = 0; epoch < EPOCHS; epoch++)
            for (; forebay_next(&batch, loader, &error) == FOREBAY_OK; step++) {
                digest = law_digest(digest, batch);
                forebay_batch_release(batch);
                if (step % 5)
                    continue;
                law_ok(forebay_set(loader, "workers", step % 3 ? "5" : "1", NULL, &error));
                law_ok(forebay_set(loader, "prefetch", step % 2 ? "1" : "6", NULL, &error));
                law_ok(forebay_set(loader, "memory.budget", step % 2 ? "40MiB" : "64MiB", NULL,
                                   &error));
            }
        assert_int_equal(digest, expected);
        forebay_close(loader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_the_same_whatever_the_memory),
        cmocka_unit_test(a_change_between_any_two_batches_changes_nothing),
    };
    char cache[700];

    /* What is converted goes where the data is, and with it. */
    snprintf(cache, sizeof(cache), "%s/cache", law_folder());
    mkdir(cache, 0700);
    setenv("XDG_CACHE_HOME", cache, 1);
    return cmocka_run_group_tests(tests, make_data, NULL);
}
