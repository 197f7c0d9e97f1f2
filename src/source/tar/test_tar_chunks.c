/* Shards read from front to back, by several threads at once. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/size.h"
#include "source/tar/tar_chunks.h"

#define SHARDS 6u
#define SHARD_BYTES (9 * FB_TAR_CHUNK_BYTES + 1234)
#define THREADS 6u
#define PIECE 10000u

static struct fb_budget *budget;
static struct fb_files files;
static struct fb_tar_content contents[SHARDS];
static struct fb_chunks *chunks;
static char folder[64];
static forebay_error error;

static unsigned char byte_at(uint64_t shard, uint64_t at)
{
    return (unsigned char)((shard * 77 + at) * 2654435761u >> 21);
}

static void write_shard(uint64_t shard, const char *mode)
{
    static unsigned char bytes[SHARD_BYTES];
    char path[128];
    gzFile file;

    snprintf(path, sizeof(path), "%s/%u.tar", folder, (unsigned)shard);
    for (uint64_t i = 0; i < SHARD_BYTES; i++)
        bytes[i] = byte_at(shard, i);
    file = gzopen(path, mode);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, SHARD_BYTES), SHARD_BYTES);
    gzclose(file);
}

/* Every other shard is plain. */
static int begin(void **state)
{
    static char pattern[128], *patterns[] = { pattern };

    (void)state;
    strcpy(folder, "/tmp/forebay-chunks-XXXXXX");
    if (!mkdtemp(folder) || fb_budget_new(&budget, 64 * FB_MIB, &error))
        return -1;
    for (unsigned i = 0; i < SHARDS; i++) {
        write_shard(i, i % 2 ? "wbT" : "wb1");
        contents[i] = (struct fb_tar_content){ .bytes = SHARD_BYTES,
                                               .packing = i % 2 ? FB_PACKING_NONE
                                                                : FB_PACKING_GZIP };
    }
    snprintf(pattern, sizeof(pattern), "%s/*.tar", folder);
    files = (struct fb_files){ .list.budget = budget,
                               .folders.budget = budget,
                               .names.budget = budget };
    return fb_files_list(&files, "source.path", patterns, 1, "", budget, NULL, &error);
}

static int end(void **state)
{
    struct fb_budget_report report;
    char command[128];

    (void)state;
    fb_chunks_close(chunks);
    chunks = NULL;
    fb_files_release(&files);
    fb_budget_read(budget, &report);
    fb_budget_free(budget);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) != 0 || report.used != 0;
}

struct run {
    atomic_uint next, wrong;
    unsigned count, stretch;
};

/* Piece `number` of all shards, one behind the other. */
static bool is_right(struct fb_reader *reader, uint64_t number)
{
    uint64_t each = SHARD_BYTES / PIECE + 1, shard = number / each;
    uint64_t offset = number % each * PIECE, bytes = fb_min(PIECE, SHARD_BYTES - offset);
    unsigned char got[PIECE];

    if (fb_chunks_read(chunks, reader, shard, got, bytes, offset, NULL))
        return false;
    for (uint64_t i = 0; i < bytes; i++)
        if (got[i] != byte_at(shard, offset + i))
            return false;
    return true;
}

/* Stretch after stretch, backwards in each. */
static void *work(void *data)
{
    struct run *run = data;
    struct fb_reader_options options = { .direct = false };
    struct fb_reader *reader;
    unsigned at;

    if (fb_reader_new(&reader, &options, NULL))
        return NULL;
    while ((at = atomic_fetch_add(&run->next, 1)) < run->count) {
        unsigned first = at / run->stretch * run->stretch;
        unsigned length = run->stretch < run->count - first ? run->stretch : run->count - first;

        if (!is_right(reader, first + length - 1 - (at - first)))
            atomic_fetch_add(&run->wrong, 1);
    }
    fb_reader_free(reader);
    return NULL;
}

static void run_all(unsigned stretch, unsigned threads)
{
    struct run run = { .count = SHARDS * (SHARD_BYTES / PIECE + 1), .stretch = stretch };
    pthread_t thread[THREADS];

    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &run), 0);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    assert_true(atomic_load(&run.next) >= run.count);
    assert_int_equal(atomic_load(&run.wrong), 0);
}

static void a_window_that_fits_begins_every_shard_once(void **state)
{
    (void)state;
    assert_int_equal(fb_chunks_open(&chunks, &files, contents, 24 * FB_TAR_CHUNK_BYTES, budget, &error),
                     0);
    run_all(150, 1); /* 1.5 MB of 6 MiB */
    assert_int_equal(fb_chunks_begun(chunks), SHARDS);
}

static void any_number_of_threads_reads_the_same(void **state)
{
    static const unsigned stretches[] = { 1, 150, 100000 };

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(
            fb_chunks_open(&chunks, &files, contents, i * 12 * FB_TAR_CHUNK_BYTES, budget, &error), 0);
        run_all(stretches[i], THREADS);
        fb_chunks_close(chunks);
        chunks = NULL;
    }
}

static void a_shard_that_changed_is_an_error_and_the_others_go_on(void **state)
{
    struct fb_reader_options options = { .direct = false };
    struct fb_reader *reader;
    char path[128], byte;

    (void)state;
    assert_int_equal(fb_chunks_open(&chunks, &files, contents, FB_MIB, budget, &error), 0);
    assert_int_equal(fb_reader_new(&reader, &options, &error), 0);
    snprintf(path, sizeof(path), "%s/0.tar", folder);
    assert_int_equal(truncate(path, 5000), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fb_chunks_read(chunks, reader, 0, &byte, 1, 99, &error),
                         FOREBAY_BAD_DATA);
        assert_non_null(strstr(error.message, "changed since it was indexed"));
        assert_true(is_right(reader, SHARD_BYTES / PIECE + 1 + (unsigned)i));
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fb_chunks_read(chunks, reader, 0, &byte, 1, 99, &error), FOREBAY_MISSING);
    fb_reader_free(reader);
}

static void a_peek_takes_only_what_is_in_memory(void **state)
{
    struct fb_reader_options options = { .direct = false };
    struct fb_reader *reader;
    unsigned char byte = 0;

    (void)state;
    assert_int_equal(fb_chunks_open(&chunks, &files, contents, FB_MIB, budget, &error), 0);
    assert_false(fb_chunks_peek(chunks, 2, &byte, 1, 99));
    assert_int_equal(fb_reader_new(&reader, &options, &error), 0);
    assert_int_equal(fb_chunks_read(chunks, reader, 2, &byte, 1, 100, &error), 0);
    assert_true(fb_chunks_peek(chunks, 2, &byte, 1, 99));
    assert_int_equal(byte, byte_at(2, 99));
    assert_false(fb_chunks_peek(chunks, 2, &byte, 1, SHARD_BYTES - 1));
    fb_reader_free(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_window_that_fits_begins_every_shard_once, begin, end),
        cmocka_unit_test_setup_teardown(any_number_of_threads_reads_the_same, begin, end),
        cmocka_unit_test_setup_teardown(a_shard_that_changed_is_an_error_and_the_others_go_on,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_peek_takes_only_what_is_in_memory, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
