/* Images as a source: what is listed, what a unit is, what finish makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jpeglib.h>

#include <cmocka.h>

#include "base/size.h"
#include "source/source.h"

#define FILES 4

static char folder[32];
static const char *const names[FILES] = { "b/1.jpg", "a10/1.jpg", "a10/2.jpg", "a9/1.jpg" };
static const uint32_t widths[FILES] = { 40, 30, 50, 20 }, heights[FILES] = { 20, 30, 10, 40 };

/* What a test stands on. */
struct bench {
    struct fb_config config;
    struct fb_budget *budget;
    struct fb_source *source;
    struct fb_reader *reader;
    struct fb_load load;
};

static void write_jpeg(const char *path, uint32_t width, uint32_t height)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char row[256 * 3], *at = row;
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = width;
    info.image_height = height;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_start_compress(&info, TRUE);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t i = 0; i < width * 3; i++)
            row[i] = (unsigned char)(i + y);
        jpeg_write_scanlines(&info, &at, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    fclose(file);
}

static void file_path(char path[96], const char *name)
{
    snprintf(path, 96, "%s/%s", folder, name);
}

static void bench_open(struct bench *bench, const char *settings[], size_t count)
{
    char path[128];
    const char *all[16] = { "source.kind=images", path };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_reader_options reading = { .direct = false };
    struct fb_log log = { 0 };
    forebay_error error;

    memset(bench, 0, sizeof(*bench));
    snprintf(path, sizeof(path), "source.path=%s", folder);
    for (size_t i = 0; i < count; i++)
        all[2 + i] = settings[i];
    options.settings = all;
    options.setting_count = 2 + count;
    assert_int_equal(fb_config_read(&bench->config, &options, &log, &error), 0);
    assert_int_equal(fb_budget_new(&bench->budget, FB_GIB, NULL), 0);
    if (fb_source_open(&bench->source, &bench->config, bench->budget, &log, &error))
        fail_msg("%s", error.message);
    assert_int_equal(fb_reader_new(&bench->reader, &reading, NULL), 0);
    bench->load.reader = bench->reader;
    bench->load.scratch.bytes = bench->source->scratch_bytes;
    bench->load.scratch.memory = malloc(bench->source->scratch_bytes);
    bench->load.to = malloc(FB_MIB);
}

static void bench_close(struct bench *bench)
{
    struct fb_budget_report now;

    free(bench->load.scratch.memory);
    free(bench->load.to);
    fb_reader_free(bench->reader);
    fb_source_close(bench->source);
    fb_budget_read(bench->budget, &now);
    assert_int_equal(now.used, 0);
    fb_budget_free(bench->budget);
    fb_config_release(&bench->config);
}

static int unit_load(struct bench *bench, uint64_t unit, unsigned field, forebay_error *error)
{
    struct fb_extent extent = bench->source->ops->extent(bench->source, unit);

    bench->load.unit = unit;
    bench->load.rows = extent.rows;
    bench->load.bytes = extent.known == FB_EXTENT_EXACT
                            ? fb_extent_bytes(&bench->source->fields[field], extent) : 0;
    return bench->source->ops->load(bench->source, &bench->load, error);
}

/* a9 (file 0), a10 (1 and 2), b (3): folders naturally, classes by their bytes. */
static void folders_are_classes(void **state)
{
    static const int64_t labels[FILES] = { 1, 0, 0, 2 };
    struct bench bench;

    (void)state;
    bench_open(&bench, NULL, 0);
    assert_int_equal(bench.source->sample_count, FILES);
    for (uint64_t sample = 0; sample < FILES; sample++) {
        struct fb_part parts[2];
        int64_t label;

        assert_int_equal(bench.source->ops->parts(bench.source, sample, parts), 2);
        assert_int_equal(unit_load(&bench, parts[1].unit, parts[1].field, NULL), 0);
        memcpy(&label, bench.load.to, sizeof(label));
        assert_int_equal(label, labels[sample]);
    }
    bench_close(&bench);
}

static void a_size_is_not_known_before_it_was_probed(void **state)
{
    struct bench bench;
    struct fb_extent extent;

    (void)state;
    bench_open(&bench, NULL, 0);
    assert_int_equal(bench.source->fields[0].vary, 2);
    assert_false(bench.source->uniform);
    assert_int_equal(bench.source->ops->extent(bench.source, 0).known, FB_EXTENT_UNKNOWN);
    assert_int_equal(bench.source->ops->probe(bench.source, 0, &bench.load, NULL), 0);
    extent = bench.source->ops->extent(bench.source, 0);
    assert_int_equal(extent.known, FB_EXTENT_EXACT);
    assert_int_equal(extent.rows, 40);
    assert_int_equal(extent.columns, 20);
    assert_int_equal(unit_load(&bench, 0, 0, NULL), 0);
    bench_close(&bench);
}

static void with_a_size_a_unit_is_the_resized_picture(void **state)
{
    const char *settings[] = { "source.size=[8, 12]" };
    struct bench bench;
    struct fb_extent extent;

    (void)state;
    bench_open(&bench, settings, 1);
    extent = bench.source->ops->extent(bench.source, 2);
    assert_false(bench.source->fields[0].finished);
    assert_true(bench.source->uniform);
    assert_int_equal(fb_extent_bytes(&bench.source->fields[0], extent), 8 * 12 * 3);
    assert_int_equal(unit_load(&bench, 2, 0, NULL), 0);
    bench_close(&bench);
}

static void finish_draws_a_box_and_a_side(void **state)
{
    const char *settings[] = { "source.size=16", "source.crop=random", "source.flip=true",
                               "source.mean=0.5", "source.layout=chw" };
    static float one[3 * 16 * 16], two[3 * 16 * 16];
    struct bench bench;
    struct fb_extent extent;
    struct stat status;
    char path[96];
    unsigned differ = 0;

    (void)state;
    bench_open(&bench, settings, 5);
    extent = bench.source->ops->extent(bench.source, 0);
    file_path(path, "a9/1.jpg");
    assert_int_equal(stat(path, &status), 0);
    assert_true(bench.source->fields[0].finished);
    assert_int_equal(fb_extent_bytes(&bench.source->fields[0], extent), status.st_size);
    assert_int_equal(unit_load(&bench, 0, 0, NULL), 0);
    for (uint64_t draw = 0; draw < 8; draw++) {
        struct fb_random random = { fb_mix(draw) };

        for (float *to = one; to; to = to == one ? two : NULL)
            assert_int_equal(bench.source->ops->finish(bench.source, 0, bench.load.to, extent,
                                                       random, to, sizeof(one),
                                                       bench.load.scratch, NULL), 0);
        assert_memory_equal(one, two, sizeof(one));
        random.state++;
        assert_int_equal(bench.source->ops->finish(bench.source, 0, bench.load.to, extent, random,
                                                   two, sizeof(two), bench.load.scratch, NULL), 0);
        differ += memcmp(one, two, sizeof(one)) != 0;
    }
    assert_true(differ >= 7);
    bench_close(&bench);
}

static void a_file_that_changed_is_bad_data_that_says_so(void **state)
{
    const char *settings[] = { "source.size=16", "source.crop=random" };
    struct bench bench;
    forebay_error error;
    char path[96];
    FILE *file;

    (void)state;
    bench_open(&bench, settings, 2);
    file_path(path, "b/1.jpg");
    file = fopen(path, "ab");
    fputc('x', file);
    fclose(file);
    assert_int_equal(unit_load(&bench, 3, 0, &error), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "changed since it was indexed"));
    bench_close(&bench);
    write_jpeg(path, widths[0], heights[0]);
}

static void check_sees_what_a_random_box_may_not(void **state)
{
    const char *settings[] = { "source.size=4", "source.crop=random" };
    struct bench bench;
    struct fb_extent extent;
    forebay_error error;

    (void)state;
    bench_open(&bench, settings, 2);
    extent = bench.source->ops->extent(bench.source, 0);
    assert_int_equal(unit_load(&bench, 0, 0, NULL), 0);
    assert_int_equal(bench.source->ops->check(bench.source, 0, bench.load.to, extent,
                                              bench.load.scratch, NULL), 0);
    extent.rows -= 20;
    assert_int_equal(bench.source->ops->check(bench.source, 0, bench.load.to, extent,
                                              bench.load.scratch, &error), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "a9/1.jpg"));
    bench_close(&bench);
}

static int set_up(void **state)
{
    static const char *const folders[] = { "a9", "a10", "b" };
    char path[96];

    (void)state;
    assert_int_equal(chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"), 0);
    snprintf(folder, sizeof(folder), "test_images.XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 3; i++) {
        file_path(path, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (size_t i = 0; i < FILES; i++) {
        file_path(path, names[i]);
        write_jpeg(path, widths[i], heights[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    static const char *const folders[] = { "a9", "a10", "b", "" };
    char path[96];

    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        file_path(path, names[i]);
        unlink(path);
    }
    for (size_t i = 0; i < 4; i++) {
        file_path(path, folders[i]);
        rmdir(path);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_classes),
        cmocka_unit_test(a_size_is_not_known_before_it_was_probed),
        cmocka_unit_test(with_a_size_a_unit_is_the_resized_picture),
        cmocka_unit_test(finish_draws_a_box_and_a_side),
        cmocka_unit_test(a_file_that_changed_is_bad_data_that_says_so),
        cmocka_unit_test(check_sees_what_a_random_box_may_not),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
