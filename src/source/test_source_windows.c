#include "source/test_source.h"

static struct fb_config config;

static int begin(void **state)
{
    (void)state;
    return stand_begin("windows", 64 * FB_MIB);
}

static int end(void **state)
{
    fb_config_release(&config);
    return stand_end(state);
}

static void write_file(const char *name, const void *header, size_t header_bytes, const void *data,
                       size_t bytes)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 1, header_bytes, file), header_bytes);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* [rows, 2] f32, value = 1000 * tag + 2 * row + column. */
static void write_series(const char *name, unsigned tag, unsigned rows, bool npy)
{
    float values[512];
    char header[129];
    int length = snprintf(header, sizeof(header),
                          "\x93NUMPY\x01%c\x76%c{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (%u, 2), }",
                          0, 0, rows);

    memset(header + length, ' ', sizeof(header) - 1 - (size_t)length);
    header[127] = '\n';
    assert_true(rows <= 256);
    for (unsigned i = 0; i < rows * 2; i++)
        values[i] = (float)(1000 * tag + i);
    write_file(name, header, npy ? 128 : 0, values, rows * 8);
}

/* [rows, 3, 2] f32 column after column: element (r, i, j) is 100 * r + 10 * i + j. */
static void write_fortran(const char *name, unsigned rows)
{
    float values[512];
    char header[129];
    int length = snprintf(header, sizeof(header),
                          "\x93NUMPY\x01%c\x76%c{'descr': '<f4', 'fortran_order': True, "
                          "'shape': (%u, 3, 2), }",
                          0, 0, rows);

    memset(header + length, ' ', sizeof(header) - 1 - (size_t)length);
    header[127] = '\n';
    assert_true(rows * 6 <= 512);
    for (unsigned at = 0; at < rows * 6; at++)
        values[at] = (float)(100 * (at % rows) + 10 * (at / rows % 3) + at / rows / 3);
    write_file(name, header, 128, values, rows * 24);
}

static int open_source(const char *yaml)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_log silent = { NULL, NULL, NULL };
    char text[1024];

    fb_source_close(source);
    source = NULL;
    fb_config_release(&config);
    snprintf(text, sizeof(text), yaml, folder, folder);
    options.config_text = text;
    assert_int_equal(fb_config_read(&config, &options, &silent, &error), 0);
    return fb_source_open(&source, &config, budget, &silent, &error);
}

/* Rows of field `f` of a sample, as loaded; returns how many there are. */
static uint64_t load_sample(uint64_t sample, unsigned f, void *to)
{
    struct fb_part parts[4];
    char scratch[1024];
    struct fb_load load = { .to = to, .reader = reader, .scratch = { scratch, sizeof(scratch) } };

    assert_int_equal(source->ops->parts(source, sample, parts), source->field_count);
    load.unit = parts[f].unit;
    load.first_row = parts[f].first_row;
    load.rows = parts[f].rows;
    load.bytes = load.rows * source->fields[f].cell_bytes;
    assert_int_equal(source->ops->load(source, &load, &error), 0);
    return load.rows;
}

static void a_file_in_fortran_order_gives_its_rows(void **state)
{
    float values[24];

    (void)state;
    write_fortran("f.npy", 50);
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 4, stride: 3}"),
                     0);
    assert_int_equal(source->sample_count, 16);
    for (unsigned sample = 0; sample < 16; sample++) {
        assert_int_equal(load_sample(sample, 0, values), 4);
        for (unsigned at = 0; at < 24; at++)
            assert_true(values[at] == (float)(100 * (3 * sample + at / 6) + 10 * (at / 2 % 3) +
                                              at % 2));
    }
}

static void no_window_crosses_a_file(void **state)
{
    float values[8];

    (void)state;
    write_series("a.npy", 1, 10, true); /* 0, 3, 6 */
    write_series("b.npy", 2, 3, true);  /* too short: none, no error */
    write_series("c.npy", 3, 4, true);  /* 0 */
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 4, stride: 3}"),
                     0);
    assert_int_equal(source->sample_count, 4);
    assert_int_equal(source->unit_count, 3);
    assert_string_equal(source->fields[0].name, "window");
    assert_int_equal(source->fields[0].shape[0], 4);
    assert_int_equal(source->fields[0].shape[1], 2);
    assert_true(source->uniform && source->sliced && source->rows_alone);
    for (unsigned sample = 0; sample < 4; sample++) {
        assert_int_equal(load_sample(sample, 0, values), 4);
        for (unsigned i = 0; i < 8; i++)
            assert_true(values[i] ==
                        (sample < 3 ? 1000.0f + (float)(6 * sample + i) : 3000.0f + (float)i));
    }
}

static void the_tail_is_one_shorter_window_if_padded(void **state)
{
    uint64_t first, count;
    float values[8];

    (void)state;
    write_series("a.npy", 1, 10, true); /* 0, 4, 8: the last has 2 rows */
    write_series("b.npy", 2, 3, true);  /* 0, of 3 rows */
    write_series("c.npy", 3, 8, true);  /* 0, 4: nothing is left over */
    write_series("d.npy", 4, 0, true);  /* no rows, no window */
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 4, stride: 4, "
                                 "tail: pad}"),
                     0);
    assert_int_equal(source->sample_count, 6);
    assert_int_equal(load_sample(2, 0, values), 2);
    assert_true(values[0] == 1016.0f);
    assert_int_equal(load_sample(3, 0, values), 3);
    assert_int_equal(load_sample(5, 0, values), 4);
    source->ops->users(source, 1, &first, &count);
    assert_int_equal(first, 3);
    assert_int_equal(count, 1);
}

/* Starts 0, 5, 10, ...: a padded window has at least one row of its file. */
static void no_padded_window_begins_at_or_after_the_end(void **state)
{
    static const struct {
        unsigned rows, windows, last;
    } cases[] = { { 100, 20, 3 }, { 64, 13, 3 }, { 66, 14, 1 }, { 67, 14, 2 }, { 68, 14, 3 },
                  { 65, 13, 3 },  { 1, 1, 1 },   { 4, 1, 3 },   { 5, 1, 3 },   { 6, 2, 1 } };
    float values[6];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_series("a.npy", 1, cases[i].rows, true);
        assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 3, "
                                     "stride: 5, tail: pad}"),
                         0);
        assert_int_equal(source->sample_count, cases[i].windows);
        assert_int_equal(load_sample(cases[i].windows - 1, 0, values), cases[i].last);
        fb_source_close(source);
        source = NULL;
    }
}

static void several_fields_are_cut_alike(void **state)
{
    float values[8];

    (void)state;
    write_series("x_1.npy", 1, 6, true);
    write_series("x_2.npy", 2, 9, true);
    write_series("y_2.npy", 5, 9, true);
    write_series("y_1.npy", 4, 6, true);
    assert_int_equal(open_source("source: {kind: windows, fields: {x: '%s/x_*.npy', "
                                 "y: '%s/y_*.npy'}, window: 4, stride: 1}"),
                     0);
    assert_int_equal(source->field_count, 2);
    assert_int_equal(source->sample_count, 9);
    assert_int_equal(load_sample(3, 0, values), 4);
    assert_true(values[0] == 2000.0f);
    assert_int_equal(load_sample(3, 1, values), 4);
    assert_true(values[0] == 5000.0f);
}

static void fields_of_unequal_length_are_one_broken_sample(void **state)
{
    struct fb_part parts[2];
    struct fb_load load = { .reader = reader };

    (void)state;
    write_series("x_1.npy", 1, 6, true);
    write_series("x_2.npy", 2, 9, true);
    write_series("y_1.npy", 4, 6, true);
    write_series("y_2.npy", 5, 8, true);
    assert_int_equal(open_source("source: {kind: windows, fields: {x: '%s/x_*.npy', "
                                 "y: '%s/y_*.npy'}, window: 4, stride: 1}"),
                     0);
    assert_int_equal(source->sample_count, 3 + 1);
    assert_int_equal(source->broken_count, 1);
    assert_int_equal(source->ops->parts(source, 3, parts), 2);
    assert_int_equal(source->ops->extent(source, parts[1].unit).known, FB_EXTENT_BROKEN);
    load.unit = parts[1].unit;
    assert_int_equal(source->ops->load(source, &load, &error), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "y_2.npy' has 8 rows, but field x"));
}

static void flat_files_are_rows_of_columns(void **state)
{
    float values[8];

    (void)state;
    write_series("a.bin", 1, 10, false);
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.bin, window: 4, stride: 6, "
                                 "columns: 2, dtype: f32}"),
                     0);
    assert_int_equal(source->sample_count, 2);
    assert_int_equal(load_sample(1, 0, values), 4);
    assert_true(values[0] == 1012.0f);
}

static void files_that_are_no_arrays_fail_when_loaded(void **state)
{
    static const struct {
        const char *name, *words;
    } broken[] = { { "a.npy", "no .npy file" },
                   { "b.npy", "behind its header" },
                   { "c.npy", "not those of the first file" } };
    struct fb_load load = { .reader = reader };
    float more[3] = { 0 };

    (void)state;
    write_series("0.npy", 1, 10, true);
    write_file("a.npy", "NUMPY\x93", 6, more, sizeof(more));
    write_series("b.npy", 1, 10, true);
    write_series("c.npy", 1, 10, true);
    for (unsigned i = 1; i < 3; i++) {
        char path[256];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", folder, broken[i].name);
        file = fopen(path, "r+b");
        assert_non_null(file);
        if (i == 1)
            assert_int_equal(ftruncate(fileno(file), 200), 0);
        if (i == 2) { /* (10, 2) of f4 becomes i4 */
            assert_int_equal(fseek(file, 22, SEEK_SET), 0);
            assert_int_equal(fputc('i', file), 'i');
        }
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 10}"), 0);
    assert_int_equal(source->sample_count, 4);
    assert_int_equal(source->broken_count, 3);
    for (unsigned i = 0; i < 3; i++) {
        load.unit = i + 1;
        assert_int_equal(source->ops->load(source, &load, &error), FOREBAY_BAD_DATA);
        if (!strstr(error.message, broken[i].words))
            fail_msg("%s: %s", broken[i].name, error.message);
    }
}

static void a_file_that_shrinks_is_noticed(void **state)
{
    struct fb_load load = { .reader = reader, .rows = 4 };
    float values[8];
    char path[256];

    (void)state;
    write_series("a.npy", 1, 10, true);
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 4}"), 0);
    snprintf(path, sizeof(path), "%s/a.npy", folder);
    load.to = values;
    load.bytes = sizeof(values);
    assert_int_equal(truncate(path, 180), 0);
    assert_int_equal(source->ops->load(source, &load, &error), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "changed since it was indexed"));
}

static void mean_and_std_are_applied_in_f32(void **state)
{
    float values[8];

    (void)state;
    write_series("a.npy", 0, 4, true); /* columns 0 2 4 6 and 1 3 5 7 */
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 4, "
                                 "mean: [1, 2], std: [2, 4]}"),
                     0);
    assert_int_equal(load_sample(0, 0, values), 4);
    for (unsigned row = 0; row < 4; row++) {
        assert_true(values[2 * row] == ((float)(2 * row) - 1) / 2);
        assert_true(values[2 * row + 1] == ((float)(2 * row + 1) - 2) / 4);
    }
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.npy, window: 4, "
                                 "normalise: auto}"),
                     0);
    assert_int_equal(load_sample(0, 0, values), 4);
    assert_true(values[0] == -3.0f / 2.2360679775f); /* mean 3, std sqrt(5) */
    assert_true(values[0] == values[1]);
}

static void numbers_that_are_no_floats_become_f32_when_normalised(void **state)
{
    const int16_t numbers[6] = { -5, 3, 7, 100, -32768, 32767 };
    float values[6];

    (void)state;
    write_file("a.bin", "", 0, numbers, sizeof(numbers));
    assert_int_equal(open_source("source: {kind: windows, path: %s/*.bin, window: 3, columns: 2, "
                                 "dtype: i16, mean: 3, std: 2}"),
                     0);
    assert_int_equal(source->fields[0].dtype, FOREBAY_F32);
    assert_true(source->scratch_bytes > 0);
    assert_int_equal(load_sample(0, 0, values), 3);
    for (unsigned i = 0; i < 6; i++)
        assert_true(values[i] == ((float)numbers[i] - 3) / 2);
}

static void settings_that_cannot_be_are_refused_in_words(void **state)
{
    static const struct {
        const char *yaml, *words;
    } cases[] = {
        { "source: {kind: windows, path: %s/*.npy, mean: [1, 2, 3]}", "one for each of the 2" },
        { "source: {kind: windows, path: %s/*.npy, std: 0}", "no positive number" },
        { "source: {kind: windows, path: %s/*.npy, window: 99}", "lower source.window" },
        { "source: {kind: windows, path: %s/*.nothing}", "" },
    };

    (void)state;
    write_series("a.npy", 0, 64, true);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_not_equal(open_source(cases[i].yaml), 0);
        assert_non_null(strstr(error.message, cases[i].words));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(no_window_crosses_a_file),
        TEST(a_file_in_fortran_order_gives_its_rows),
        TEST(the_tail_is_one_shorter_window_if_padded),
        TEST(no_padded_window_begins_at_or_after_the_end),
        TEST(several_fields_are_cut_alike),
        TEST(fields_of_unequal_length_are_one_broken_sample),
        TEST(flat_files_are_rows_of_columns),
        TEST(files_that_are_no_arrays_fail_when_loaded),
        TEST(a_file_that_shrinks_is_noticed),
        TEST(mean_and_std_are_applied_in_f32),
        TEST(numbers_that_are_no_floats_become_f32_when_normalised),
        TEST(settings_that_cannot_be_are_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
