#include "source/table/test_table.h"

static unsigned field(const char *name)
{
    for (unsigned f = 0; f < source->field_count; f++)
        if (strcmp(source->fields[f].name, name) == 0)
            return f;
    fail_msg("there is no field '%s'", name);
    return 0;
}

/* A cell through parts and load, and through gather: both must say the same. */
static double cell(uint64_t row, const char *name)
{
    unsigned f = field(name);
    struct fb_part *parts = calloc(source->parts_max, sizeof(*parts));
    char **to = calloc(source->field_count, sizeof(*to));
    void *scratch = malloc(source->scratch_bytes);
    union {
        int64_t i64;
        double f64;
        float f32;
        int32_t i32;
        uint64_t u64;
        uint8_t truth;
    } one = { 0 }, two = { 0 };
    uint64_t hits = 0, misses = 0;
    struct fb_load load = { .to = &one, .reader = reader };
    struct fb_gather gather = {
        .samples = &row, .count = 1, .to = to, .reader = reader, .hits = &hits, .misses = &misses
    };
    forebay_dtype dtype = source->fields[f].dtype;

    load.scratch = gather.scratch = (struct fb_scratch){ scratch, source->scratch_bytes };
    assert_int_equal(source->ops->parts(source, row, parts), source->field_count);
    load.unit = parts[f].unit;
    load.first_row = parts[f].first_row;
    load.rows = parts[f].rows;
    load.bytes = load.rows * source->fields[f].cell_bytes;
    assert_int_equal(source->ops->load(source, &load, &error), 0);
    to[f] = (char *)&two;
    assert_int_equal(source->ops->gather(source, &gather, &error), 0);
    assert_memory_equal(&one, &two, sizeof(one));
    assert_int_equal(hits + misses, 1);
    free(parts);
    free(to);
    free(scratch);
    return dtype == FOREBAY_I64   ? (double)one.i64
           : dtype == FOREBAY_U64 ? (double)one.u64
           : dtype == FOREBAY_BOOL ? (double)one.truth
           : dtype == FOREBAY_F64 ? one.f64
           : dtype == FOREBAY_F32 ? (double)one.f32
                                  : (double)one.i32;
}

static forebay_dtype type_of(const char *name)
{
    return source->fields[field(name)].dtype;
}

static void columns_have_the_narrowest_type_that_takes_all(void **state)
{
    (void)state;
    write_text("t.csv", "a,b,word,index\n1,2.5,red,7\n-2,3,green,8\n3,1e3,red,9\n");
    must_open("");
    assert_int_equal(source->sample_count, 3);
    assert_int_equal(type_of("a"), FOREBAY_I64);
    assert_int_equal(type_of("b"), FOREBAY_F64);
    assert_int_equal(type_of("word"), FOREBAY_I32);
    assert_int_equal(type_of("index_"), FOREBAY_I64);
    assert_true(cell(1, "a") == -2 && cell(2, "b") == 1000 && cell(2, "index_") == 9);
    assert_true(cell(0, "word") == 0 && cell(1, "word") == 1 && cell(2, "word") == 0);
}

static void given_types_are_obeyed(void **state)
{
    (void)state;
    write_text("t.csv", "a,b,c\n1,2,10\n3,4.25,20\n");
    must_open("types: {a: f32, b: f64, c: category}");
    assert_int_equal(type_of("a"), FOREBAY_F32);
    assert_int_equal(type_of("c"), FOREBAY_I32);
    assert_true(cell(1, "a") == 3 && cell(1, "b") == 4.25 && cell(1, "c") == 1);
}

static void quotes_line_ends_marks_and_delimiters_are_understood(void **state)
{
    static const char *const texts[] = {
        "a,b\n1,\"x, \"\"y\"\"\nz\"\n2,w\n",
        "a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n2,w",
        "\xef\xbb\xbfx;b\n1;\"x, \"\"y\"\"\nz\"\n2;w\n",
        "a\tb\n\"1\"\t\"x, \"\"y\"\"\nz\"\n \"2\" \tw\n",
        "a|b\n\n1|x\n2|w\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_text("t.csv", texts[i]);
        must_open(i == 3 ? "types: {a: category}" : "");
        assert_int_equal(source->sample_count, 2);
        assert_int_equal(source->field_count, 2);
        assert_true(i == 3 || cell(1, i == 2 ? "x" : "a") == 2);
        assert_true(cell(0, "b") == 0 && cell(1, "b") == 1);
    }
}

static void the_first_line_is_a_header_unless_it_has_a_number(void **state)
{
    (void)state;
    write_text("t.csv", "1,2\n3,4\n");
    must_open("");
    assert_int_equal(source->sample_count, 2);
    assert_true(cell(0, "c0") == 1 && cell(1, "c1") == 4);
    must_open("header: true");
    assert_int_equal(source->sample_count, 1);
    assert_true(cell(0, "2") == 4);
    write_text("t.csv", "x,y\nz,w\n");
    must_open("header: false");
    assert_int_equal(source->sample_count, 2);
    assert_true(cell(1, "c0") == 1);
}

static void lines_may_all_end_in_a_carriage_return(void **state)
{
    char *text = malloc(2000000), *at = text + sprintf(text, "a,b,w\r");

    (void)state;
    write_text("t.csv", "a,b\r1,\"x\ny\"\r2,w\r");
    must_open("");
    assert_int_equal(source->sample_count, 2);
    assert_true(cell(0, "a") == 1 && cell(1, "a") == 2 && cell(1, "b") == 1);
    for (unsigned i = 0; i < 100000; i++) /* more than a chunk */
        at += sprintf(at, "%u,%u.5,w%u\r", i, i, i % 5);
    write_bytes("t.csv", text, (size_t)(at - text));
    must_open("");
    assert_int_equal(source->sample_count, 100000);
    assert_true(cell(99999, "a") == 99999 && cell(77777, "b") == 77777.5 && cell(99, "w") == 4);
    write_text("t.csv", "a,b\n1,x\ry\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "line 2, column 'b': 'x?y' has a carriage return"));
    write_text("t.csv", "a,b\r1,x\ny\r");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "has a line feed"));
    free(text);
}

static void headings_that_are_numbers_are_reported(void **state)
{
    (void)state;
    write_text("t.csv", "country,2019,2020\nFR,1,2\nDE,3,4\n");
    must_open("");
    assert_non_null(strstr(said, "t.csv' line 1 is taken as data"));
    assert_non_null(strstr(said, "2 of its 3 cells are numbers. source.header: true"));
    must_open(""); /* the kept table as well */
    assert_non_null(strstr(said, "line 1 is taken as data"));
    must_open("header: true");
    assert_null(strstr(said, "taken as data"));
    assert_true(source->sample_count == 2 && cell(1, "2020") == 4);
    must_open("header: false");
    assert_null(strstr(said, "taken as data"));
    assert_int_equal(source->sample_count, 3);
}

static void equal_names_are_found_among_any_number(void **state)
{
    char *text = malloc(200000), *at = text;

    (void)state;
    for (unsigned i = 0; i < 6000; i++)
        at += sprintf(at, "n%u,", i == 5999 ? 17 : i);
    at[-1] = '\n';
    for (unsigned i = 0; i < 6000; i++)
        at += sprintf(at, "1,");
    at[-1] = '\n';
    write_bytes("t.csv", text, (size_t)(at - text));
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "columns 18 and 6000 are both called 'n17'; rename"));
    write_text("t.csv", "\"a\nb\",\"a\nb\"\n1,2\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    free(text);
}

static void lines_are_counted_through_a_header_of_several(void **state)
{
    (void)state;
    write_text("t.csv", "\n\n\"a\n\nb\",c\n1,2\n3\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "t.csv' line 7: the row has 1 cells"));
}

/* `rows` rows of a number, a text with line ends in quotes, and a number again. */
static char *long_text(unsigned rows, unsigned odd, size_t *bytes)
{
    char *text = malloc((size_t)rows * 400 + 100);
    char *at = text + sprintf(text, "n,words,m\n");

    for (unsigned i = 0; i < rows; i++) {
        at += sprintf(at, "%u,\"", i);
        for (unsigned k = 0; k < i % 30; k++)
            at += sprintf(at, "%s", k % 3 ? "1,2,3\n" : "x\"\"y ");
        at += sprintf(at, "%u\",%u%s\n", i % 7, 2 * i, i == odd ? ".5" : "");
    }
    *bytes = (size_t)(at - text);
    return text;
}

static void whole_numbers_above_i64_are_u64_or_refused(void **state)
{
    size_t bytes;
    char *text = long_text(20000, UINT32_MAX, &bytes);

    (void)state;
    write_text("t.csv", "a\n1\n18446744073709551615\n9223372036854775808\n");
    must_open("");
    assert_int_equal(type_of("a"), FOREBAY_U64);
    assert_true(cell(1, "a") == 18446744073709551615.0 && cell(0, "a") == 1);
    must_open("types: {a: f64}");
    assert_int_equal(type_of("a"), FOREBAY_F64);
    must_open("as: matrix");
    bytes += (size_t)sprintf(text + bytes, "9,x,9223372036854775808\n"); /* not in the guess */
    write_bytes("t.csv", text, bytes);
    must_open("");
    assert_int_equal(type_of("m"), FOREBAY_U64);
    assert_true(cell(20000, "m") == 9223372036854775808.0 && cell(7, "m") == 14);
    write_text("t.csv", "a\n-1\n9223372036854775808\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "line 2, column 'a': '-1' is a whole number that fits"));
    write_text("t.csv", "a\n1\n18446744073709551616\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "line 3, column 'a'"));
    write_text("t.csv", "a\n9223372036854775808\nNA\n");
    assert_int_equal(open_table("missing: nan"), FOREBAY_BAD_DATA);
    must_open("missing: 7");
    assert_true(cell(1, "a") == 7);
    write_text("t.csv", "a\n0.5\n18446744073709551616\n"); /* reals are rounded anyway */
    must_open("");
    assert_int_equal(type_of("a"), FOREBAY_F64);
    free(text);
}

static void truths_dates_and_times_have_types_of_their_own(void **state)
{
    (void)state;
    write_text("t.csv", "b,d,t,w,n\ntrue,1970-01-02,1970-01-01T00:00:01Z,true,True\n"
                        "False,2000-02-29,1969-12-31,7,\n");
    must_open("missing: nan");
    assert_int_equal(type_of("b"), FOREBAY_BOOL);
    assert_true(cell(0, "b") == 1 && cell(1, "b") == 0);
    assert_int_equal(type_of("d"), FOREBAY_I64);
    assert_true(cell(0, "d") == 1 && cell(1, "d") == 11016);
    assert_true(cell(0, "t") == 1e9 && cell(1, "t") == -86400e9);
    assert_int_equal(type_of("w"), FOREBAY_I32);
    assert_int_equal(type_of("n"), FOREBAY_I32); /* a bool has no missing value, a category has */
    assert_true(cell(0, "n") == 0 && cell(1, "n") == -1);
    assert_non_null(strstr(said, "column 'd' is given as i64, days since 1970-01-01"));
    assert_non_null(strstr(said, "column 't' is given as i64, ns since 1970-01-01 UTC"));
    must_open("missing: 1");
    assert_true(type_of("n") == FOREBAY_BOOL && cell(1, "n") == 1);
    assert_int_equal(open_table("as: matrix, missing: nan"), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "which f32 does not hold"));
    write_text("t.csv", "d\n1970-01-02\nNA\n");
    must_open("missing: nan");
    assert_true(cell(0, "d") == 1 && cell(1, "d") == (double)INT64_MIN);
    must_open("types: {d: datetime}, missing: 0");
    assert_true(cell(0, "d") == 86400e9 && cell(1, "d") == 0);
    must_open("types: {d: category}, missing: nan");
    assert_true(cell(0, "d") == 0 && cell(1, "d") == -1);
    write_text("t.csv", "d,b\n1970-01-02 3:00,1\n2024-02-30,0\n"); /* neither is a date */
    must_open("types: {b: bool}");
    assert_true(type_of("d") == FOREBAY_I32 && cell(0, "b") == 1);
    assert_int_equal(open_table("types: {d: date}"), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "is no date like 2024-02-29"));
    write_text("t.csv", "t\n1500-01-01 00:00\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "is not between the years 1677 and 2262"));
}

static void parts_are_one_table_in_the_order_of_their_numbers(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 11; i++) {
        char name[32], text[64];

        snprintf(name, sizeof(name), "t_part%u.csv", i);
        snprintf(text, sizeof(text), "n,word\n%u,w%u\n", i, i);
        write_text(name, text);
    }
    write_text("t_partx.csv", "other\n");
    must_open("");
    assert_int_equal(source->sample_count, 11);
    for (unsigned i = 0; i < 11; i++)
        assert_true(cell(i, "n") == i + 1 && cell(i, "word") == i);
}

static void missing_values_follow_the_rule(void **state)
{
    (void)state;
    write_text("t.csv", "i,r,w\n1,2.5,x\n,,\nNA,nan,null\n4,5,y\n");
    must_open("missing: nan");
    assert_int_equal(type_of("i"), FOREBAY_F64);
    assert_true(isnan(cell(1, "i")) && isnan(cell(2, "r")));
    assert_true(cell(1, "w") == -1 && cell(2, "w") == -1 && cell(3, "w") == 1);
    must_open("missing: -7");
    assert_int_equal(type_of("i"), FOREBAY_I64);
    assert_true(cell(1, "i") == -7 && cell(2, "r") == -7 && cell(3, "i") == 4);
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "line 3, column 'i'"));
}

static void a_matrix_is_one_field_of_f32(void **state)
{
    float row[3];
    uint64_t sample = 1, count = 0;
    char *to[1] = { (char *)row };
    struct fb_gather gather = {
        .samples = &sample, .count = 1, .to = to, .hits = &count, .misses = &count
    };
    char scratch[64];

    (void)state;
    write_text("t.csv", "a,b,c\n1,2.5,x\n16777217,0.1,y\n");
    must_open("as: matrix");
    assert_int_equal(source->field_count, 1);
    assert_string_equal(source->fields[0].name, "data");
    assert_int_equal(source->fields[0].shape[0], 3);
    gather.reader = reader;
    gather.scratch = (struct fb_scratch){ scratch, sizeof(scratch) };
    assert_int_equal(source->ops->gather(source, &gather, &error), 0);
    assert_true(row[0] == (float)16777217.0 && row[1] == 0.1f && row[2] == 1);
}

static void line_ends_in_quotes_cross_chunks(void **state)
{
    size_t bytes;
    char *text = long_text(20000, UINT32_MAX, &bytes);

    (void)state;
    assert_true(bytes > 1000000);
    write_bytes("t.csv", text, bytes);
    must_open("");
    assert_int_equal(source->sample_count, 20000);
    assert_int_equal(type_of("n"), FOREBAY_I64);
    assert_int_equal(type_of("m"), FOREBAY_I64);
    for (unsigned i = 0; i < 20000; i += 37)
        assert_true(cell(i, "n") == i && cell(i, "m") == 2 * i);
    assert_true(cell(15000, "words") == cell(15000 - 210, "words"));
    free(text);
}

static void a_type_that_turns_out_too_narrow_is_widened(void **state)
{
    size_t bytes;
    char *text = long_text(20000, 19000, &bytes);

    (void)state;
    write_bytes("t.csv", text, bytes);
    must_open("");
    assert_non_null(strstr(said, "column 'm' turned out to be f64"));
    assert_int_equal(type_of("m"), FOREBAY_F64);
    assert_int_equal(type_of("n"), FOREBAY_I64);
    assert_true(cell(19000, "m") == 38000.5 && cell(0, "m") == 0);
    free(text);
}

static void bad_input_is_an_error_with_its_line(void **state)
{
    static const struct {
        const char *text, *more, *words;
    } cases[] = {
        { "a,b\n1,2\n3\n", "", "t.csv' line 3: the row has 1 cells, expected 2" },
        { "a,b\n1,2\n3,4,5\n", "", "line 3: the row has more than the 2 cells" },
        { "a,b\n1,\"2\n3,4\n", "", "line 2: a quote is opened that never closes" },
        { "a,b\n1,2\n\n3,x\n", "types: {b: f64}", "line 4, column 'b': 'x' is no number" },
        { "a\n1\n1e400\n", "types: {a: f64}", "line 3, column 'a': '1e400' is too large for f64" },
        { "a\n99999999999999999999\n", "types: {a: i64}", "is too large for i64" },
        { "a\n1e39\n", "types: {a: f32}", "is too large for f32" },
        { "a\n1e39\n", "as: matrix", "is too large for f32" },
        { "a,a\n1,2\n", "", "columns 1 and 2 are both called 'a'" },
        { "a\n", "", "has no row" },
        { "", "", "is empty" },
        { "a\n1\n", "types: {b: f64}", "has no column 'b'" },
        { "a\n1\n", "types: {a: f16}", "is none of f32, f64, i64, category" },
        { "a\n1\n", "missing: maybe", "neither error, nan nor a number" },
        { "a\n1\n", "delimiter: ab", "is not one character" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text("t.csv", cases[i].text);
        if (!open_table(cases[i].more) || !strstr(error.message, cases[i].words))
            fail_msg("case %zu: %s", i, error.message);
    }
    write_bytes("t.csv", "a,b\n1,x\0y\n", 10);
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "line 2, column 'b'"));
    assert_non_null(strstr(error.message, "NUL byte"));
    write_bytes("t.csv", "a\0,b\n1,2\n", 9);
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
}

static void the_line_of_an_error_is_right_behind_many_chunks(void **state)
{
    char *text = malloc(3000000), *at = text + sprintf(text, "a,b\n");

    (void)state;
    for (unsigned i = 0; i < 200000; i++)
        at += sprintf(at, i == 150000 ? "%u\n" : "%u,1\n", i);
    write_bytes("t.csv", text, (size_t)(at - text));
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "line 150002:"));
    assert_non_null(strstr(error.place, "t.csv:150002"));
    free(text);
}

static void a_line_without_end_is_refused_inside_the_budget(void **state)
{
    size_t bytes = 16 << 20;
    char *text = malloc(bytes);
    struct fb_budget_report report;

    (void)state;
    memset(text, 'x', bytes);
    memcpy(text, "a,b\n1,2\n", 8);
    write_bytes("t.csv", text, bytes);
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "line 3: the line is longer than 2 MiB"));
    fb_budget_read(budget, &report);
    assert_true(report.peak < 32 * FB_MIB);
    free(text);
}

static void parts_that_do_not_fit_together_are_refused(void **state)
{
    char path[128];

    (void)state;
    assert_int_equal(open_table(""), FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "there is neither"));
    write_text("t_part1.csv", "a,b\n1,2\n");
    write_text("t_part2.csv", "a,c\n1,2\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "t_part2.csv' line 1: column 2 is 'c', but 'b'"));
    write_text("t_part2.csv", "a\n1\n");
    assert_int_equal(open_table(""), FOREBAY_BAD_DATA);
    write_text("t_part2.csv", "a,b\n1,2\n");
    write_text("t_part4.csv", "a,b\n1,2\n");
    assert_int_equal(open_table(""), FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "t_part3.csv' is missing"));
    snprintf(path, sizeof(path), "%s/t_part1.csv", folder);
    unlink(path);
    assert_int_equal(open_table(""), FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "t_part1.csv' is missing"));
}

static void what_was_converted_is_used_again_until_the_source_changes(void **state)
{
    (void)state;
    write_text("t.csv", "a\n1\n2\n");
    must_open("");
    assert_non_null(strstr(said, "parsed"));
    must_open("");
    assert_null(strstr(said, "parsed"));
    assert_true(cell(1, "a") == 2);
    must_open("as: matrix");
    assert_non_null(strstr(said, "parsed"));
    write_text("t.csv", "a\n1\n2\n3\n");
    must_open("");
    assert_non_null(strstr(said, "parsed"));
    assert_int_equal(source->sample_count, 3);
}

static void run(const char *format)
{
    char command[256];

    snprintf(command, sizeof(command), format, folder);
    assert_int_equal(system(command), 0);
}

static void a_damaged_file_is_made_again_or_named(void **state)
{
    char *to[1];
    int64_t value;
    uint64_t sample = 1, count = 0;
    struct fb_gather gather = {
        .samples = &sample, .count = 1, .to = to, .hits = &count, .misses = &count
    };

    (void)state;
    write_text("t.csv", "a\n1\n2\n");
    must_open("");
    run("truncate -s -1 %s/cache/forebay/*.fbt");
    must_open("");
    assert_non_null(strstr(said, "parsed"));
    run("printf x | dd of=$(ls %s/cache/forebay/*.fbt) bs=1 seek=4097 conv=notrunc 2>/dev/null");
    must_open(""); /* the header and the tail are whole: only a block is not */
    assert_null(strstr(said, "parsed"));
    assert_true(source->ops->keep(source, 16 * FB_MIB, UINT64_MAX) > 0);
    to[0] = (char *)&value;
    gather.reader = reader;
    assert_int_equal(source->ops->gather(source, &gather, &error), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "checksum of block 0 is wrong"));
}

static void the_disk_cache_is_bounded(void **state)
{
    (void)state;
    write_text("t.csv", "a\n1\n2\n");
    setenv("FOREBAY_DISK_CACHE", "2000", 1);
    assert_int_equal(open_table(""), FOREBAY_IO);
    assert_non_null(strstr(error.message, "FOREBAY_DISK_CACHE"));
    setenv("FOREBAY_DISK_CACHE", "6kB", 1);
    must_open("");
    must_open("as: matrix"); /* there is room for one of them */
    run("test $(ls %s/cache/forebay | wc -l) = 1");
    setenv("FOREBAY_DISK_CACHE", "lots", 1);
    assert_int_equal(open_table("missing: 3"), FOREBAY_BAD_CONFIG);
}

static void a_vocabulary_above_its_share_names_the_column(void **state)
{
    struct fb_budget *small;
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_log log = { NULL, NULL, NULL };
    char *text = malloc(4000000), *at = text + sprintf(text, "id,name\n"), yaml[256];

    (void)state;
    for (unsigned i = 0; i < 150000; i++)
        at += sprintf(at, "%u,name%u\n", i, i);
    write_bytes("t.csv", text, (size_t)(at - text));
    assert_int_equal(fb_budget_new(&small, 24 * FB_MIB, &error), 0);
    snprintf(yaml, sizeof(yaml), "source: {kind: table, path: %s/t.csv}", folder);
    options.config_text = yaml;
    assert_int_equal(fb_config_read(&config, &options, &log, &error), 0);
    assert_int_equal(fb_source_open(&source, &config, small, &log, &error), FOREBAY_OVER_BUDGET);
    assert_non_null(strstr(error.message, "column 'name'"));
    fb_budget_free(small);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(columns_have_the_narrowest_type_that_takes_all),
        TEST(given_types_are_obeyed),
        TEST(quotes_line_ends_marks_and_delimiters_are_understood),
        TEST(the_first_line_is_a_header_unless_it_has_a_number),
        TEST(lines_may_all_end_in_a_carriage_return),
        TEST(headings_that_are_numbers_are_reported),
        TEST(equal_names_are_found_among_any_number),
        TEST(lines_are_counted_through_a_header_of_several),
        TEST(whole_numbers_above_i64_are_u64_or_refused),
        TEST(truths_dates_and_times_have_types_of_their_own),
        TEST(parts_are_one_table_in_the_order_of_their_numbers),
        TEST(missing_values_follow_the_rule),
        TEST(a_matrix_is_one_field_of_f32),
        TEST(line_ends_in_quotes_cross_chunks),
        TEST(a_type_that_turns_out_too_narrow_is_widened),
        TEST(bad_input_is_an_error_with_its_line),
        TEST(the_line_of_an_error_is_right_behind_many_chunks),
        TEST(a_line_without_end_is_refused_inside_the_budget),
        TEST(parts_that_do_not_fit_together_are_refused),
        TEST(what_was_converted_is_used_again_until_the_source_changes),
        TEST(a_damaged_file_is_made_again_or_named),
        TEST(the_disk_cache_is_bounded),
        TEST(a_vocabulary_above_its_share_names_the_column),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
