#include "source/test_source.h"

#include <zlib.h>

static char pattern[3][128], *patterns[] = { pattern[0], pattern[1], pattern[2] };
static char *names[3];

static void make_folder(char *path)
{
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0755);
    }
}

/* A .npy whose bytes are given. */
static void write_npy(const char *path, const char *descr, bool fortran, const char *shape,
                      const void *values, size_t bytes)
{
    char whole[256], header[128] = "\x93NUMPY\x01\x00\x76";
    FILE *file;
    int length;

    snprintf(whole, sizeof(whole), "%s/%s", folder, path);
    make_folder(whole);
    file = fopen(whole, "w");
    assert_non_null(file);
    length = snprintf(header + 10, sizeof(header) - 10,
                      "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr,
                      fortran ? "True" : "False", shape);
    memset(header + 10 + length, ' ', sizeof(header) - 10 - (size_t)length);
    header[127] = '\n';
    fwrite(header, 128, 1, file);
    if (bytes)
        fwrite(values, 1, bytes, file);
    fclose(file);
}

/* `rows` x 2 numbers of i32: first, first + 1, ... */
static void make_array(const char *path, int32_t first, uint32_t rows)
{
    int32_t values[64];
    char shape[32];

    for (uint32_t i = 0; i < rows * 2; i++)
        values[i] = first + (int32_t)i;
    snprintf(shape, sizeof(shape), "(%u, 2)", rows);
    write_npy(path, "<i4", false, shape, values, rows * 8);
}

static int begin(void **state)
{
    (void)state;
    return stand_begin("npy", 8 * FB_MIB);
}

static int open_path(const char *glob, int collate)
{
    struct fb_config config = { .source_kind = FB_KIND_NPY, .source_path = { 1, patterns },
                                .batch_collate = collate, .folder = folder };

    fb_source_close(source);
    source = NULL;
    snprintf(pattern[0], sizeof(pattern[0]), "%s", glob);
    return fb_source_open(&source, &config, budget, NULL, &error);
}

static int open_fields(const char *first, const char *second)
{
    static char left[] = "left", right[] = "right";
    struct fb_config config = { .source_kind = FB_KIND_NPY,
                                .source_fields = { 2, names, patterns }, .folder = folder };

    names[0] = left;
    names[1] = right;
    snprintf(pattern[0], sizeof(pattern[0]), "%s", first);
    snprintf(pattern[1], sizeof(pattern[1]), "%s", second);
    fb_source_close(source);
    source = NULL;
    return fb_source_open(&source, &config, budget, NULL, &error);
}

static int load_rows(uint64_t unit, uint64_t first, uint64_t rows, uint64_t bytes, void *to)
{
    void *scratch = malloc(source->scratch_bytes + 1);
    struct fb_load wanted = { .unit = unit, .first_row = first, .rows = rows, .to = to,
                              .bytes = bytes, .scratch = { scratch, source->scratch_bytes },
                              .reader = reader };
    int status = source->ops->load(source, &wanted, &error);

    free(scratch);
    return status;
}

static int load(uint64_t unit, void *to)
{
    struct fb_extent extent = source->ops->extent(source, unit);
    const struct fb_field *field = &source->fields[unit % source->field_count];

    return load_rows(unit, 0, extent.rows, fb_extent_bytes(field, extent), to);
}

static void arrays_of_one_shape_are_uniform(void **state)
{
    int32_t values[6];

    (void)state;
    make_array("a/2.npy", 20, 3);
    make_array("a/10.npy", 100, 3);
    assert_int_equal(open_path("a/*.npy", FB_COLLATE_STACK), 0);
    assert_int_equal(source->sample_count, 2);
    assert_true(source->uniform && source->raw && source->rows_alone);
    assert_int_equal(source->fields[0].vary, 0);
    assert_int_equal(source->fields[0].shape[0], 3);
    assert_string_equal(source->fields[0].name, "data");
    assert_int_equal(source->fields[0].cell_bytes, 8);
    assert_int_equal(source->unit_bytes_total, 48);
    assert_int_equal(load(1, values), 0);
    assert_int_equal(values[0], 100);
    assert_int_equal(values[5], 105);
    assert_int_equal(load_rows(1, 1, 1, 8, values), 0);
    assert_int_equal(values[0], 102);
    assert_int_equal(load_rows(1, 3, 1, 8, values), FOREBAY_BAD_USE);
    assert_int_equal(open_path("a/*.npy", FB_COLLATE_PAD), 0);
    assert_int_equal(source->fields[0].vary, 1); /* pad has lengths, whatever the files are */
}

static void the_first_dimension_may_differ(void **state)
{
    int32_t values[8];
    char path[32];

    (void)state;
    for (uint32_t i = 0; i < 300; i++) { /* so many that threads help to read the headers */
        snprintf(path, sizeof(path), "a/%u.npy", i);
        make_array(path, (int32_t)(i * 10), i % 5);
    }
    assert_int_equal(open_path("a/*.npy", FB_COLLATE_RAGGED), 0);
    assert_false(source->uniform);
    assert_int_equal(source->unit_bytes_max, 32);
    assert_int_equal(source->unit_bytes_total, 300 * 2 * 8);
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(source->ops->extent(source, i).rows, i % 5);
        assert_int_equal(load(i, values), 0);
        if (i % 5)
            assert_int_equal(values[0], i * 10);
    }
}

static void every_order_and_endianness_gives_the_same_values(void **state)
{
    static const uint16_t c[] = { 1, 2, 3, 4, 5, 6 }, f[] = { 1, 4, 2, 5, 3, 6 };
    uint16_t big_c[6], big_f[6], got[6];

    (void)state;
    for (int i = 0; i < 6; i++) {
        big_c[i] = (uint16_t)(c[i] << 8);
        big_f[i] = (uint16_t)(f[i] << 8);
    }
    /* All of one size: only the first header is read at open, and that says C order. */
    write_npy("a/1.npy", "<u2", false, "(2, 3)", c, 12);
    write_npy("a/2.npy", ">u2", false, "(2, 3)", big_c, 12);
    write_npy("a/3.npy", "<u2", true, "(2, 3)", f, 12);
    write_npy("a/4.npy", ">u2", true, "(2, 3)", big_f, 12);
    assert_int_equal(open_path("a/*.npy", FB_COLLATE_STACK), 0);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(load(i, got), 0);
        assert_memory_equal(got, c, 12);
        assert_int_equal(load_rows(i, 1, 1, 6, got), 0);
        assert_memory_equal(got, c + 3, 6);
    }
    assert_int_equal(open_path("a/[34].npy", FB_COLLATE_STACK), 0);
    assert_int_equal(source->scratch_bytes, 12);
    assert_false(source->rows_alone || source->raw);
    assert_int_equal(load(0, got), 0);
    assert_memory_equal(got, c, 12);
}

static void a_large_fortran_array_goes_through_little_scratch(void **state)
{
    enum { ROWS = 700, COLUMNS = 900 }; /* a column is less than the smallest piece, all is more */
    double *values = malloc(ROWS * COLUMNS * sizeof(double));
    double *got = malloc(ROWS * COLUMNS * sizeof(double));

    (void)state;
    for (size_t c = 0; c < COLUMNS; c++)
        for (size_t r = 0; r < ROWS; r++)
            values[c * ROWS + r] = (double)(r * COLUMNS + c);
    write_npy("a/1.npy", "<f8", true, "(700, 900)", values, ROWS * COLUMNS * sizeof(double));
    assert_int_equal(open_path("a/1.npy", FB_COLLATE_STACK), 0);
    assert_true(source->scratch_bytes < ROWS * COLUMNS * sizeof(double));
    assert_int_equal(load(0, got), 0);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        assert_true(got[i] == (double)i);
    source->scratch_bytes = 0; /* as if nobody had known */
    memset(got, 0, ROWS * COLUMNS * sizeof(double));
    assert_int_equal(load(0, got), 0);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        assert_true(got[i] == (double)i);
    free(values);
    free(got);
}

static void scalars_and_empty_arrays_are_arrays_too(void **state)
{
    static const float number = 2.5f;
    float got = 0;

    (void)state;
    write_npy("s/1.npy", "<f4", false, "()", &number, 4);
    write_npy("e/1.npy", "<f4", false, "(0, 7)", NULL, 0);
    write_npy("z/1.npy", "<f4", false, "(7, 0)", NULL, 0);
    assert_int_equal(open_path("s/*.npy", FB_COLLATE_PAD), 0);
    assert_int_equal(source->fields[0].ndim, 0);
    assert_int_equal(source->fields[0].vary, 0);
    assert_int_equal(source->ops->extent(source, 0).rows, 1);
    assert_int_equal(load(0, &got), 0);
    assert_true(got == 2.5f);
    assert_int_equal(open_path("e/*.npy", FB_COLLATE_STACK), 0);
    assert_int_equal(source->ops->extent(source, 0).rows, 0);
    assert_int_equal(load(0, &got), 0);
    assert_int_equal(open_path("z/*.npy", FB_COLLATE_STACK), 0);
    assert_int_equal(source->ops->extent(source, 0).rows, 7);
    assert_int_equal(load(0, &got), 0);
}

static void fields_are_joined_by_stem(void **state)
{
    struct fb_part parts[2];
    int32_t values[4];
    char place[128];

    (void)state;
    for (int i = 0; i < 12; i++) {
        char path[32];

        snprintf(path, sizeof(path), "left/%d.npy", i);
        make_array(path, i, 1);
        snprintf(path, sizeof(path), "right/%c/%d.npy", i % 2 ? 'a' : 'b', i); /* another order */
        make_array(path, 100 + i, 2);
    }
    assert_int_equal(open_fields("left/*.npy", "right/*/*.npy"), 0);
    assert_int_equal(source->sample_count, 12);
    assert_int_equal(source->unit_count, 24);
    for (uint64_t i = 0; i < 12; i++) {
        assert_int_equal(source->ops->parts(source, i, parts), 2);
        assert_int_equal(load(parts[0].unit, values), 0);
        assert_int_equal(values[0], i);
        assert_int_equal(load(parts[1].unit, values), 0);
        assert_int_equal(values[0], 100 + i);
    }
    source->ops->place(source, 3, place, sizeof(place));
    assert_non_null(strstr(place, "/right/a/1.npy"));
}

static void fields_are_joined_by_what_the_star_stood_for(void **state)
{
    int32_t values[2];

    (void)state;
    make_array("a/1_left.npy", 1, 1);
    make_array("a/2_left.npy", 2, 1);
    make_array("a/1_right.npy", 11, 1);
    make_array("a/2_right.npy", 12, 1);
    make_array("b/1_left.npy", 3, 1);
    make_array("b/1_right.npy", 13, 1);
    assert_int_equal(open_fields("*/*_left.npy", "*/*_right.npy"), 0);
    assert_int_equal(source->sample_count, 3);
    assert_int_equal(load(5, values), 0);
    assert_int_equal(values[0], 13);
}

static void fields_that_do_not_join_say_why(void **state)
{
    (void)state;
    make_array("left/1.npy", 1, 1);
    make_array("left/2.npy", 1, 1);
    make_array("left/3.npy", 1, 1);
    make_array("right/2.npy", 1, 1);
    make_array("right/4.npy", 1, 1);
    make_array("right/5/2.npy", 1, 1);
    assert_int_equal(open_fields("left/*.npy", "right/*.npy"), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "'left' has 3 files, 2 of them without a partner: "
                                          "'1', '3'"));
    assert_non_null(strstr(error.message, "'right' has 2 files, 1 without a partner: '4'"));
    assert_string_equal(error.place, "source.fields");
    assert_int_equal(open_fields("left/*.npy", "right/**/*.npy"), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "two files with the stem '2'"));
    assert_int_equal(open_fields("left/*.npy", "none/*.npy"), FOREBAY_MISSING);
    assert_string_equal(error.place, "source.fields.right");
}

static void broken_arrays_say_what_is_wrong(void **state)
{
    static const int32_t values[8];
    int32_t got[8];
    char path[128];
    FILE *file;

    (void)state;
    make_array("a/1.npy", 1, 3);
    write_npy("a/2.npy", "<i4", false, "(3, 2)", values, 20);
    write_npy("a/3.npy", "<i8", false, "(3, 1)", values, 24);
    write_npy("a/4.npy", "<i4", false, "(2, 4)", values, 32);
    write_npy("a/5.npy", "|O", false, "(3, 2)", values, 24);
    file = fopen(strcat(strcpy(path, folder), "/a/6.npy"), "w");
    fputs("hello", file);
    fclose(file);
    assert_int_equal(symlink("none", strcat(strcpy(path, folder), "/a/7.npy")), 0);
    assert_int_equal(mkdir(strcat(strcpy(path, folder), "/a/8.npy"), 0755), 0);
    fclose(fopen(strcat(strcpy(path, folder), "/a/9.npy"), "w"));
    write_npy("a/10.npy", "<i4", false, "(3, 2)", values, 28);
    assert_int_equal(open_path("a/*.npy", FB_COLLATE_STACK), 0);
    assert_int_equal(source->sample_count, 10);
    assert_int_equal(source->broken_count, 9);
    assert_int_equal(source->ops->extent(source, 0).known, FB_EXTENT_EXACT);
    for (uint64_t i = 1; i < 10; i++) {
        static const char *const says[] = {
            "makes 152 bytes, but there are 148", "is i64 (3, 1) where", "is i32 (2, 4) where",
            "never read", "no .npy file", "", "", "no .npy file", "makes 152 bytes",
        };

        assert_int_equal(source->ops->extent(source, i).known, FB_EXTENT_BROKEN);
        assert_int_equal(load_rows(i, 0, 3, 24, got),
                         i == 6 || i == 7 ? FOREBAY_MISSING : FOREBAY_BAD_DATA);
        assert_non_null(strstr(error.message, says[i - 1]));
        assert_non_null(strstr(error.message, folder));
    }
}

static void a_wrong_assumption_is_noticed_at_load(void **state)
{
    static const int32_t values[6];
    int32_t got[6];

    (void)state;
    make_array("a/1.npy", 1, 3);
    write_npy("a/2.npy", "<i4", false, "(2, 3)", values, 24);
    write_npy("a/3.npy", "<f4", false, "(3, 2)", values, 24);
    assert_int_equal(open_path("a/*.npy", FB_COLLATE_STACK), 0);
    assert_int_equal(source->broken_count, 0); /* equal sizes: nobody has looked yet */
    assert_int_equal(load(0, got), 0);
    assert_int_equal(load(1, got), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "is i32 (2, 3) where"));
    assert_int_equal(load(2, got), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "is f32 (3, 2) where"));
    make_array("a/1.npy", 1, 2);
    assert_int_equal(load_rows(0, 0, 3, 24, got), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "152 bytes then, 144 now"));
}

static void nothing_readable_is_an_error_at_open(void **state)
{
    char path[128];

    (void)state;
    write_npy("a/1.npy", "|O", false, "(3,)", "x", 1);
    write_npy("a/2.npy", "|O", false, "(3,)", "x", 1);
    assert_int_equal(open_path("a/*.npy", FB_COLLATE_STACK), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "none of 2 files can be read"));
    assert_non_null(strstr(error.message, "1.npy"));
    fclose(fopen(strcat(strcpy(path, folder), "/a/1.npz"), "w"));
    assert_int_equal(open_path("a/*.npz", FB_COLLATE_STACK), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "no .npz file"));
}

/* What is in a file. */
static size_t read_back(const char *path, unsigned char *bytes, size_t size)
{
    char whole[512];
    FILE *file;
    size_t got;

    snprintf(whole, sizeof(whole), "%s/%s", folder, path);
    file = fopen(whole, "r");
    assert_non_null(file);
    got = fread(bytes, 1, size, file);
    fclose(file);
    return got;
}

static size_t put(unsigned char *to, size_t at, const char *form, ...)
{
    va_list values;

    va_start(values, form);
    for (; *form; form++) { /* a digit: a number of so many bytes; anything else is itself */
        unsigned long value = *form >= '1' && *form <= '8' ? va_arg(values, unsigned long)
                                                           : (unsigned char)*form;

        for (int i = 0; i < (*form >= '1' && *form <= '8' ? *form - '0' : 1); i++)
            to[at++] = (unsigned char)(value >> 8 * i);
    }
    va_end(values);
    return at;
}

static size_t pack(unsigned char *from, size_t bytes, unsigned char *to, bool deflated)
{
    z_stream stream = { .next_in = from, .avail_in = (uInt)bytes, .next_out = to,
                        .avail_out = 4096 };

    if (!deflated) {
        memcpy(to, from, bytes);
        return bytes;
    }
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return stream.total_out;
}

/* An .npz of the arrays left.npy and index.npy that lie in folder `from`. */
static void make_npz(const char *path, const char *from, bool deflated)
{
    static const char *const members[] = { "left.npy", "index.npy" };
    unsigned char zip[8192], entries[512], array[2048];
    size_t size = 0, listed = 0;
    char whole[256];
    FILE *file;

    for (int i = 0; i < 2; i++) {
        size_t at = size, length = strlen(members[i]), bytes, packed;
        unsigned long crc, method = deflated ? 8 : 0;

        snprintf(whole, sizeof(whole), "%s/%s", from, members[i]);
        bytes = read_back(whole, array, sizeof(array));
        crc = crc32(0, array, (uInt)bytes);
        size = put(zip, size, "PK\x03\x04" "2224444" "22", 20ul, 0ul, method, 0ul, crc, 0ul, 0ul,
                   length, 0ul);
        memcpy(zip + size, members[i], length);
        size += length;
        packed = pack(array, bytes, zip + size, deflated);
        size += packed;
        listed = put(entries, listed, "PK\x01\x02" "22224444" "22222" "44", 20ul, 20ul, 0ul, method,
                     0ul, crc, packed, bytes, length, 0ul, 0ul, 0ul, 0ul, 0ul, at);
        memcpy(entries + listed, members[i], length);
        listed += length;
    }
    memcpy(zip + size, entries, listed);
    size = put(zip, size + listed, "PK\x05\x06" "2222" "44" "2", 0ul, 0ul, 2ul, 2ul, listed, size,
               0ul);
    snprintf(whole, sizeof(whole), "%s/%s", folder, path);
    make_folder(whole);
    file = fopen(whole, "w");
    assert_non_null(file);
    fwrite(zip, 1, size, file);
    fclose(file);
}

static void members_of_an_npz_are_fields(void **state)
{
    int32_t values[8];
    char path[32], place[128];

    (void)state;
    for (int deflated = 0; deflated < 2; deflated++) {
        for (int i = 0; i < 4; i++) {
            make_array("parts/left.npy", i, (uint32_t)(i + 1) % 4); /* 1, 2, 3, 0 rows */
            make_array("parts/index.npy", 100 + i, 2);
            snprintf(path, sizeof(path), "z%d/%d.npz", deflated, i);
            make_npz(path, "parts", deflated);
        }
        snprintf(path, sizeof(path), "z%d/*.npz", deflated);
        assert_int_equal(open_path(path, FB_COLLATE_RAGGED), 0);
        assert_int_equal(source->sample_count, 4);
        assert_int_equal(source->field_count, 2);
        assert_string_equal(source->fields[0].name, "left");
        assert_string_equal(source->fields[1].name, "index_");
        assert_int_equal(source->rows_alone, !deflated);
        assert_true(source->library_bytes > 0);
        for (uint64_t i = 0; i < 4; i++) {
            assert_int_equal(source->ops->extent(source, 2 * i).rows, (i + 1) % 4);
            assert_int_equal(load(2 * i, values), 0);
            assert_true(i == 3 || values[0] == (int32_t)i);
            assert_int_equal(load(2 * i + 1, values), 0);
            assert_int_equal(values[3], 103 + i);
        }
        source->ops->place(source, 3, place, sizeof(place));
        assert_non_null(strstr(place, "/1.npz: index"));
    }
}

static void a_damaged_member_is_noticed(void **state)
{
    unsigned char bytes[4096];
    int32_t values[4];
    char whole[256];
    size_t size;
    FILE *file;

    (void)state;
    make_array("parts/left.npy", 1, 2);
    make_array("parts/index.npy", 1, 2);
    make_npz("z/1.npz", "parts", false);
    make_npz("z/2.npz", "parts", false);
    assert_int_equal(open_path("z/*.npz", FB_COLLATE_STACK), 0);
    size = read_back("z/2.npz", bytes, sizeof(bytes));
    bytes[30 + 8 + 128 + 5] ^= 1; /* in the values of the first member */
    snprintf(whole, sizeof(whole), "%s/z/2.npz", folder);
    file = fopen(whole, "w");
    fwrite(bytes, 1, size, file);
    fclose(file);
    assert_int_equal(load(0, values), 0);
    assert_int_equal(load(2, values), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "checksum of member 'left'"));
    assert_int_equal(load(3, values), 0);
}

static void every_reservation_may_fail_once(void **state)
{
    int failures = 0;

    (void)state;
    for (int i = 0; i < 6; i++) {
        char path[32];

        snprintf(path, sizeof(path), "left/%d.npy", i);
        make_array(path, i, 1);
        snprintf(path, sizeof(path), "right/%c/%d.npy", i % 2 ? 'a' : 'b', i);
        make_array(path, i, (uint32_t)i);
    }
    for (uint64_t limit = 0; limit < 128 * 1024; limit += 64) {
        struct fb_budget_report report;
        int status;

        fb_budget_set_limit(budget, limit);
        status = open_fields("left/*.npy", "right/*/*.npy");
        assert_true(status == 0 || status == FOREBAY_OVER_BUDGET);
        failures += status != 0;
        fb_source_close(source);
        source = NULL;
        fb_budget_read(budget, &report);
        assert_int_equal(report.used, 0);
    }
    assert_in_range(failures, 10, 1000); /* and some of them went well */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(arrays_of_one_shape_are_uniform, begin, stand_end),
        cmocka_unit_test_setup_teardown(the_first_dimension_may_differ, begin, stand_end),
        cmocka_unit_test_setup_teardown(every_order_and_endianness_gives_the_same_values, begin,
                                        stand_end),
        cmocka_unit_test_setup_teardown(a_large_fortran_array_goes_through_little_scratch, begin,
                                        stand_end),
        cmocka_unit_test_setup_teardown(scalars_and_empty_arrays_are_arrays_too, begin, stand_end),
        cmocka_unit_test_setup_teardown(fields_are_joined_by_stem, begin, stand_end),
        cmocka_unit_test_setup_teardown(fields_are_joined_by_what_the_star_stood_for, begin, stand_end),
        cmocka_unit_test_setup_teardown(fields_that_do_not_join_say_why, begin, stand_end),
        cmocka_unit_test_setup_teardown(broken_arrays_say_what_is_wrong, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_wrong_assumption_is_noticed_at_load, begin, stand_end),
        cmocka_unit_test_setup_teardown(nothing_readable_is_an_error_at_open, begin, stand_end),
        cmocka_unit_test_setup_teardown(members_of_an_npz_are_fields, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_damaged_member_is_noticed, begin, stand_end),
        cmocka_unit_test_setup_teardown(every_reservation_may_fail_once, begin, stand_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
