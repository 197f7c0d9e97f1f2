#include "source/table/test_table.h"

/* Sum of a column over all rows through gather, in runs; checks every value. */
static void check_all(uint64_t rows, uint64_t *hits, uint64_t *misses)
{
    uint64_t samples[512];
    int64_t values[512];
    char *to[1] = { (char *)values };
    char scratch[64];
    struct fb_gather gather = { .samples = samples,
                                .to = to,
                                .reader = reader,
                                .hits = hits,
                                .misses = misses,
                                .scratch = { scratch, sizeof(scratch) } };

    *hits = *misses = 0;
    for (uint64_t done = 0; done < rows; done += gather.count) {
        gather.count = fb_min(512, rows - done);
        for (uint64_t i = 0; i < gather.count; i++)
            samples[i] = (done + i) * 7919 % rows;
        assert_int_equal(source->ops->gather(source, &gather, &error), 0);
        for (uint64_t i = 0; i < gather.count; i++)
            assert_int_equal(values[i], samples[i]);
    }
}

static void kept_rows_are_given_back_under_pressure(void **state)
{
    uint64_t rows = 1000003, hits, misses, limit;
    char *text = malloc(16 << 20), *at = text + sprintf(text, "a\n");
    struct fb_budget_report report;

    (void)state;
    for (uint64_t i = 0; i < rows; i++)
        at += sprintf(at, "%llu\n", (unsigned long long)i);
    write_bytes("t.csv", text, (size_t)(at - text));
    free(text);
    must_open("");
    check_all(rows, &hits, &misses);
    assert_int_equal(hits, 0);
    limit = source->ops->keep(source, 32 * FB_MIB, UINT64_MAX);
    assert_true(limit >= 8 * FB_MIB);
    check_all(rows, &hits, &misses);
    assert_int_equal(misses, 8); /* a block each */
    check_all(rows, &hits, &misses);
    assert_int_equal(misses, 0);
    assert_int_equal(source->ops->kept(source).items, 8);

    fb_budget_read(budget, &report);
    assert_true(fb_budget_try_reserve(budget, FB_STAGE_OTHER, report.limit - report.used + FB_MIB));
    assert_true(source->ops->kept(source).items < 8);
    check_all(rows, &hits, &misses);
    assert_true(hits > 0 && misses > 8);
    fb_budget_refund(budget, FB_STAGE_OTHER, report.limit - report.used + FB_MIB);
    assert_int_equal(source->ops->keep(source, 0, UINT64_MAX), 0);
    check_all(rows, &hits, &misses);
    assert_int_equal(hits, 0);
}

/* Every row of each block once, in a window of four blocks that moves on. */
static void check_stream(uint64_t rows, uint64_t *hits, uint64_t *misses)
{
    uint64_t window = 4 * source->block_samples, samples[512];
    int64_t values[512];
    char *to[1] = { (char *)values };
    char scratch[64];
    struct fb_gather gather = { .samples = samples,
                                .to = to,
                                .reader = reader,
                                .hits = hits,
                                .misses = misses,
                                .scratch = { scratch, sizeof(scratch) } };

    *hits = *misses = 0;
    for (uint64_t from = 0; from < rows; from += window) {
        uint64_t count = fb_min(window, rows - from);

        for (uint64_t done = 0; done < count; done += gather.count) {
            gather.count = fb_min(512, count - done);
            for (uint64_t i = 0; i < gather.count; i++)
                samples[i] = from + (done + i) * 7919 % count;
            assert_int_equal(source->ops->gather(source, &gather, &error), 0);
            for (uint64_t i = 0; i < gather.count; i++)
                assert_int_equal(values[i], samples[i]);
        }
    }
}

static void a_window_that_moves_on_reads_each_block_once(void **state)
{
    uint64_t rows = 3000017, hits, misses;
    char *text = malloc(32 << 20), *at = text + sprintf(text, "a\n");

    (void)state;
    for (uint64_t i = 0; i < rows; i++)
        at += sprintf(at, "%llu\n", (unsigned long long)i);
    write_bytes("t.csv", text, (size_t)(at - text));
    free(text);
    must_open("");
    assert_int_equal(source->unit_count, 23);
    assert_true(source->ops->keep(source, 8 * FB_MIB, 4 * FB_MIB) > 0);
    for (unsigned epoch = 0; epoch < 2; epoch++) {
        check_stream(rows, &hits, &misses);
        assert_int_equal(misses, 23);
    }
    source->ops->keep(source, 5 * FB_MIB, 4 * FB_MIB); /* too few: what is there stays */
    check_stream(rows, &hits, &misses);
    assert_true(misses > 1000000 && hits > 0);
}

static void a_vocabulary_gives_each_word_its_number(void **state)
{
    struct fb_vocabulary *words;
    char word[32];
    uint64_t bytes;
    int32_t code;

    (void)state;
    assert_int_equal(fb_vocabulary_new(&words, 16 * FB_MIB, budget, &error), 0);
    assert_int_equal(fb_vocabulary_find(words, "", 0), -1);
    for (int32_t i = 0; i < 50000; i++) {
        int length = snprintf(word, sizeof(word), "%d", i * 17);

        assert_int_equal(fb_vocabulary_add(words, word, (uint64_t)length, &code, &error), 0);
        assert_int_equal(code, i);
    }
    assert_int_equal(fb_vocabulary_find(words, "170", 3), 10);
    assert_int_equal(fb_vocabulary_add(words, "17", 2, &code, &error), 0);
    assert_int_equal(code, 1);
    assert_int_equal(fb_vocabulary_count(words), 50000);
    assert_memory_equal(fb_vocabulary_word(words, 10, &bytes), "170", 3);
    assert_int_equal(bytes, 3);
    fb_vocabulary_free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(kept_rows_are_given_back_under_pressure),
        TEST(a_window_that_moves_on_reads_each_block_once),
        TEST(a_vocabulary_gives_each_word_its_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
