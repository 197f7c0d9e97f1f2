#include "source/test_source.h"

static char pattern[128], *patterns[] = { pattern };

/* `rows` rows of 4 numbers, number k of the file being first + k; and some bytes too many. */
static void make_scan(const char *path, uint32_t first, uint32_t rows, size_t more)
{
    char whole[256], *slash;
    FILE *file;

    snprintf(whole, sizeof(whole), "%s/%s", folder, path);
    slash = strrchr(whole, '/');
    *slash = '\0';
    mkdir(whole, 0755);
    *slash = '/';
    file = fopen(whole, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < rows * 4; i++) {
        float number = (float)(first + i);

        fwrite(&number, sizeof(number), 1, file);
    }
    for (size_t i = 0; i < more; i++)
        fputc(0, file);
    fclose(file);
}

static struct fb_config a_config(const char *glob)
{
    struct fb_config config = { .source_kind = FB_KIND_BIN, .source_dtype = FOREBAY_F32,
                                .source_columns.value = 4, .source_sequence.value = 1,
                                .source_stride.value = 1, .source_path = { 1, patterns },
                                .folder = folder };

    snprintf(pattern, sizeof(pattern), "%s", glob);
    return config;
}

static int begin(void **state)
{
    (void)state;
    return stand_begin("bin", 8 * FB_MIB);
}

static int load(uint64_t unit, uint64_t first, uint64_t rows, float *to)
{
    struct fb_load wanted = { .unit = unit, .first_row = first, .rows = rows, .to = to,
                              .bytes = rows * 16, .reader = reader };

    return source->ops->load(source, &wanted, &error);
}

static void rows_are_read_whole_and_in_part(void **state)
{
    struct fb_config config = a_config("s/*.bin");
    struct fb_part part;
    float points[12];

    (void)state;
    make_scan("s/2.bin", 100, 3, 0);
    make_scan("s/10.bin", 200, 1, 0);
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), 0);
    assert_int_equal(source->sample_count, 2);
    assert_int_equal(source->unit_bytes_max, 48);
    assert_int_equal(source->unit_bytes_total, 64);
    assert_false(source->uniform);
    assert_true(source->rows_alone && source->raw);
    assert_int_equal(source->fields[0].vary, 1);
    assert_int_equal(source->ops->parts(source, 1, &part), 1);
    assert_int_equal(part.unit, 1);
    assert_int_equal(source->ops->extent(source, 0).rows, 3);
    assert_int_equal(load(0, 0, 3, points), 0);
    assert_true(points[0] == 100.0f && points[11] == 111.0f);
    assert_int_equal(load(0, 2, 1, points), 0);
    assert_true(points[0] == 108.0f);
    assert_int_equal(load(0, 2, 2, points), FOREBAY_BAD_USE);
}

static void sequences_stay_in_their_folder(void **state)
{
    struct fb_config config = a_config("*/*.bin");
    struct fb_part parts[3];
    char path[32];

    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        snprintf(path, sizeof(path), "a/%u.bin", i);
        make_scan(path, i, 2, 0);
        snprintf(path, sizeof(path), "c/%u.bin", i);
        make_scan(path, i, 2, 0);
    }
    make_scan("b/0.bin", 0, 2, 0);
    config.source_sequence.value = 3;
    config.source_stride.value = 2;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), 0);
    assert_int_equal(source->unit_count, 15);
    assert_int_equal(source->sample_count, 6); /* a: 0-2, 2-4, 4-6; b: none; c as a */
    assert_int_equal(source->group_count, 2);
    assert_int_equal(source->group_ends[0], 3);
    assert_int_equal(source->group_ends[1], 6);
    assert_true(source->shared_units && source->uniform && source->fields[0].sequence);
    assert_int_equal(source->fields[0].vary, 0);
    assert_int_equal(source->fields[0].shape[0], 2);
    assert_int_equal(source->ops->parts(source, 2, parts), 3);
    assert_int_equal(parts[0].unit, 4);
    assert_int_equal(parts[2].unit, 6);
    assert_int_equal(parts[2].item, 2);
    assert_int_equal(source->ops->parts(source, 3, parts), 3);
    assert_int_equal(parts[0].unit, 8);
}

static void too_short_folders_are_an_error_in_words(void **state)
{
    struct fb_config config = a_config("a/*.bin");

    (void)state;
    make_scan("a/1.bin", 0, 1, 0);
    config.source_sequence.value = 8;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "8 files of a sequence: the longest has 1"));
}

static void broken_files_say_what_is_wrong(void **state)
{
    struct fb_config config = a_config("a/*.bin");
    float points[8];
    char path[128];

    (void)state;
    make_scan("a/1.bin", 0, 2, 0);
    make_scan("a/2.bin", 0, 2, 3);
    make_scan("a/3.bin", 0, 0, 0);
    assert_int_equal(mkdir(strcat(strcpy(path, folder), "/a/4.bin"), 0755), 0);
    assert_int_equal(symlink("none", strcat(strcpy(path, folder), "/a/5.bin")), 0);
    assert_int_equal(mkfifo(strcat(strcpy(path, folder), "/a/6.bin"), 0644), 0);
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), 0);
    assert_int_equal(source->broken_count, 5);
    assert_int_equal(source->ops->extent(source, 0).known, FB_EXTENT_EXACT);
    for (uint64_t i = 1; i < 6; i++)
        assert_int_equal(source->ops->extent(source, i).known, FB_EXTENT_BROKEN);
    assert_int_equal(load(1, 0, 2, points), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "35 bytes are no whole number of rows of 16"));
    assert_int_equal(load(2, 0, 0, points), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "is empty"));
    for (uint64_t i = 3; i < 6; i++)
        assert_int_equal(load(i, 0, 1, points), FOREBAY_MISSING);
}

static void no_rows_are_good_where_lengths_differ(void **state)
{
    struct fb_config config = a_config("a/*.bin");
    float points[4];

    (void)state;
    make_scan("a/1.bin", 0, 0, 0);
    make_scan("a/2.bin", 0, 0, 0);
    config.batch_collate = FB_COLLATE_RAGGED;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), 0);
    assert_int_equal(source->broken_count, 0);
    assert_true(source->uniform);
    assert_int_equal(source->fields[0].vary, 1); /* ragged has offsets, whatever the files are */
    assert_int_equal(load(0, 0, 0, points), 0);
}

static void a_file_that_changed_is_noticed(void **state)
{
    struct fb_config config = a_config("a/*.bin");
    float points[16];
    char path[128];

    (void)state;
    make_scan("a/1.bin", 0, 4, 0);
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), 0);
    make_scan("a/1.bin", 0, 3, 0);
    assert_int_equal(load(0, 0, 4, points), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "64 bytes then, 48 now"));
    remove(strcat(strcpy(path, folder), "/a/1.bin"));
    assert_int_equal(load(0, 0, 4, points), FOREBAY_MISSING);
}

static void bad_settings_are_named(void **state)
{
    struct fb_config config = a_config("a/*.bin");

    (void)state;
    config.source_columns.value = 0;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), FOREBAY_BAD_CONFIG);
    config = a_config("a/*.bin");
    config.source_stride.value = 0;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), FOREBAY_BAD_CONFIG);
    config = a_config("a/*.bin");
    config.source_sequence.value = 1u << 20;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), FOREBAY_BAD_CONFIG);
    config = a_config("a/*.bin");
    config.source_path.count = 0;
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), FOREBAY_BAD_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_are_read_whole_and_in_part, begin, stand_end),
        cmocka_unit_test_setup_teardown(sequences_stay_in_their_folder, begin, stand_end),
        cmocka_unit_test_setup_teardown(too_short_folders_are_an_error_in_words, begin, stand_end),
        cmocka_unit_test_setup_teardown(broken_files_say_what_is_wrong, begin, stand_end),
        cmocka_unit_test_setup_teardown(no_rows_are_good_where_lengths_differ, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_file_that_changed_is_noticed, begin, stand_end),
        cmocka_unit_test_setup_teardown(bad_settings_are_named, begin, stand_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
