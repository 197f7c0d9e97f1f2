#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "decode/npy.h"

static forebay_error error;

/* A header of version 1.0 around `dict`, which may hold any text. */
static int parse_dict(struct fb_npy *npy, const char *dict)
{
    char bytes[1024];
    size_t length = strlen(dict);

    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    bytes[8] = (char)(length & 0xff);
    bytes[9] = (char)(length >> 8);
    memcpy(bytes + 10, dict, length);
    memset(&error, 0, sizeof(error));
    return fb_npy_parse(npy, bytes, 10 + length, &error);
}

static void what_numpy_writes_is_understood(void **state)
{
    static const struct {
        const char *descr;
        forebay_dtype dtype;
        bool swapped;
    } rows[] = {
        { "|b1", FOREBAY_BOOL, false }, { "|u1", FOREBAY_U8, false }, { "|i1", FOREBAY_I8, false },
        { "<u2", FOREBAY_U16, false }, { ">u2", FOREBAY_U16, true }, { "<u4", FOREBAY_U32, false },
        { ">u4", FOREBAY_U32, true }, { "<u8", FOREBAY_U64, false }, { ">u8", FOREBAY_U64, true },
        { "<i2", FOREBAY_I16, false }, { ">i2", FOREBAY_I16, true }, { "=i4", FOREBAY_I32, false },
        { "<i8", FOREBAY_I64, false }, { "<f2", FOREBAY_F16, false }, { ">f2", FOREBAY_F16, true },
        { "<f4", FOREBAY_F32, false }, { ">f8", FOREBAY_F64, true }, { "<c8", FOREBAY_C64, false },
        { ">c16", FOREBAY_C128, true }, { "<c16", FOREBAY_C128, false },
        { ">b1", FOREBAY_BOOL, false }, { "f4", FOREBAY_F32, false }, { "|?", FOREBAY_BOOL, false },
    };
    char dict[128];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_npy npy;

        snprintf(dict, sizeof(dict),
                 "{'descr': '%s', 'fortran_order': False, 'shape': (3, 4), }  \n", rows[i].descr);
        assert_int_equal(parse_dict(&npy, dict), 0);
        assert_int_equal(npy.dtype, rows[i].dtype);
        assert_int_equal(npy.swapped, rows[i].swapped);
        assert_int_equal(npy.data_bytes, 12 * forebay_dtype_bytes(npy.dtype));
        assert_int_equal(npy.header_bytes, 10 + strlen(dict));
    }
}

static void every_shape_has_its_size(void **state)
{
    static const struct {
        const char *shape;
        unsigned ndim;
        uint64_t bytes;
        bool fortran; /* when the header says so: does it make a difference? */
    } rows[] = {
        { "()", 0, 4, false },        { "(0,)", 1, 0, false },     { "(3,)", 1, 12, false },
        { "(3L,)", 1, 12, false },    { "(3, 4)", 2, 48, true },   { "( 3 , 4 , )", 2, 48, true },
        { "(3, 1)", 2, 12, false },   { "(1, 5, 1)", 3, 20, false }, { "(0, 9)", 2, 0, false },
        { "(2, 1, 3)", 3, 24, true }, { "(1, 1, 1, 1, 1, 1, 1, 2)", 8, 8, false },
    };
    char dict[128];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_npy npy;

        snprintf(dict, sizeof(dict), "{\"shape\":%s,'fortran_order':True,'descr':'<f4'}",
                 rows[i].shape);
        assert_int_equal(parse_dict(&npy, dict), 0);
        assert_int_equal(npy.ndim, rows[i].ndim);
        assert_int_equal(npy.data_bytes, rows[i].bytes);
        assert_int_equal(npy.fortran, rows[i].fortran);
    }
}

static void malformed_headers_are_refused_in_words(void **state)
{
#define D "'descr': '<f4', "
#define F "'fortran_order': False, "
#define S "'shape': (3, 4)"
    static const struct {
        const char *dict, *says;
    } rows[] = {
        { "", "no dict" },
        { "{}", "lacks 'descr'" },
        { "{" D F "}", "lacks 'shape'" },
        { "{" D S "}", "lacks 'fortran_order'" },
        { "{" F S "}", "lacks 'descr'" },
        { "{" D D F S "}", "unexpected key 'descr'" },
        { "{" D F S ", 'more': 1}", "unexpected key 'more'" },
        { "{" D F S, "no dict of" },
        { "{" D F S "} x", "goes on behind" },
        { "{" D F S "}{", "goes on behind" },
        { "[" D F S "]", "no dict" },
        { "{" D F "'shape': (3)}", "no tuple" },
        { "{" D F "'shape': [3, 4]}", "no tuple" },
        { "{" D F "'shape': (3 4)}", "no tuple" },
        { "{" D F "'shape': (3,,4)}", "no tuple" },
        { "{" D F "'shape': (,)}", "no tuple" },
        { "{" D F "'shape': (-3,)}", "no tuple" },
        { "{" D F "'shape': (3.5,)}", "no tuple" },
        { "{" D F "'shape': (0x10,)}", "no tuple" },
        { "{" D F "'shape': (3", "no tuple" },
        { "{" D F "'shape': (", "no tuple" },
        { "{" D F "'shape': (9223372036854775808,)}", "no tuple" },
        { "{" D F "'shape': (99999999999999999999999,)}", "no tuple" },
        { "{" D F "'shape': (4611686018427387904, 2)}", "more than any file" },
        { "{" D F "'shape': (4294967296, 4294967296, 0)}", "more than any file" },
        { "{" D F "'shape': (1,1,1,1,1,1,1,1,1)}", "more than 8 dimensions" },
        { "{" D "'fortran_order': 0, " S "}", "neither True nor False" },
        { "{" D "'fortran_order': true, " S "}", "neither True nor False" },
        { "{'descr': '<f4" F S "}", "no dict of" },
        { "{'descr': <f4, " F S "}", "no type" },
        { "{'descr': '<f\\x34', " F S "}", "no type" },
        { "{'descr': '', " F S "}", "no equivalent" },
        { "{'descr': '<f3', " F S "}", "no equivalent" },
        { "{'descr': '<f16', " F S "}", "only bool" },
        { "{'descr': '<<f4', " F S "}", "no equivalent" },
        { "{'descr': '|O', " F S "}", "never read" },
        { "{'descr': '<U5', " F S "}", "strings" },
        { "{'descr': '|S3', " F S "}", "strings" },
        { "{'descr': '<M8[ns]', " F S "}", "dates" },
        { "{'descr': '|V2', " F S "}", "bfloat16" },
        { "{'descr': [('a', '<f4')], " F S "}", "structured" },
        { "{'descr': ('<f4', (2,)), " F S "}", "no type" },
        { "{'descr' '<f4', " F S "}", "no dict of" },
        { "{'a key that is longer than any of ours': 1}", "no dict of" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_npy npy = { .ndim = 77 };

        if (parse_dict(&npy, rows[i].dict) != FOREBAY_BAD_DATA ||
            !strstr(error.message, rows[i].says) || npy.ndim != 77)
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].dict, error.message, rows[i].says);
    }
}

static void the_prefix_is_checked_before_it_is_believed(void **state)
{
    static const struct {
        const char *bytes;
        size_t have;
        const char *says;
    } rows[] = {
        { "", 0, "no .npy file" },
        { "\x93NUMPY\x01\x00", 8, "no .npy file" },
        { "\x92NUMPY\x01\x00\x00\x00", 10, "no .npy file" },
        { "\x93NUMPY\x04\x00\x02\x00{}", 12, "version 4.0" },
        { "\x93NUMPY\x00\x00\x02\x00{}", 12, "version 0.0" },
        { "\x93NUMPY\x01\x01\x02\x00{}", 12, "version 1.1" },
        { "\x93NUMPY\x02\x00\x02\x00", 10, "ends in its header" },
        { "\x93NUMPY\x01\x00\x40\x00{}", 12, "12 of 74" },
        { "\x93NUMPY\x01\x00\xff\xff{}", 12, "65545 bytes long" },
        { "\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14, "4294967307 bytes long" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_npy npy;

        assert_int_equal(fb_npy_parse(&npy, rows[i].bytes, rows[i].have, &error), FOREBAY_BAD_DATA);
        assert_non_null(strstr(error.message, rows[i].says));
    }
}

static void versions_2_and_3_have_a_longer_length(void **state)
{
    static const char dict[] = "{'descr': '<i2', 'fortran_order': False, 'shape': (5,), }\n";
    char bytes[128] = "\x93NUMPY\x02\x00";
    struct fb_npy npy;

    (void)state;
    bytes[8] = (char)(sizeof(dict) - 1);
    memcpy(bytes + 12, dict, sizeof(dict) - 1);
    for (char version = 2; version <= 3; version++) {
        bytes[6] = version;
        assert_int_equal(fb_npy_parse(&npy, bytes, sizeof(bytes), &error), 0);
        assert_int_equal(npy.header_bytes, 12 + sizeof(dict) - 1);
        assert_int_equal(npy.data_bytes, 10);
    }
}

static void every_cut_of_a_good_header_is_refused(void **state)
{
    static const char good[] = "\x93NUMPY\x01\x00\x3b\x00"
                               "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
    struct fb_npy npy;

    (void)state;
    assert_int_equal(fb_npy_parse(&npy, good, sizeof(good) - 1, &error), 0);
    for (size_t have = 0; have < sizeof(good) - 1; have++)
        assert_int_equal(fb_npy_parse(&npy, good, have, &error), FOREBAY_BAD_DATA);
}

static void bytes_are_turned_round_in_every_part(void **state)
{
    uint8_t values[16];
    static const struct {
        forebay_dtype dtype;
        uint64_t count;
        uint8_t first; /* which byte comes first afterwards */
        uint8_t eighth;
    } rows[] = { { FOREBAY_U16, 8, 1, 9 }, { FOREBAY_F32, 4, 3, 11 }, { FOREBAY_I64, 2, 7, 15 },
                 { FOREBAY_C64, 2, 3, 11 }, { FOREBAY_C128, 1, 7, 15 }, { FOREBAY_U8, 16, 0, 8 } };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint8_t k = 0; k < 16; k++)
            values[k] = k;
        fb_npy_swap(values, rows[i].dtype, rows[i].count);
        assert_int_equal(values[0], rows[i].first);
        assert_int_equal(values[8], rows[i].eighth);
    }
}

/* An array of 5 x 3 x 7 whose value is its place in C order, cut at every possible piece. */
static void fortran_order_becomes_c_order_in_any_pieces(void **state)
{
    struct fb_npy npy;
    uint16_t file[105], got[105];
    size_t at = 0;

    (void)state;
    assert_int_equal(
        parse_dict(&npy, "{'descr':'<u2','fortran_order':True,'shape':(5,3,7)}"), 0);
    for (uint16_t k = 0; k < 7; k++)
        for (uint16_t j = 0; j < 3; j++)
            for (uint16_t i = 0; i < 5; i++)
                file[at++] = (uint16_t)(i * 21 + j * 7 + k);
    for (uint64_t rows = 1; rows <= 5; rows++) {
        for (uint64_t step = 1; step <= 105; step = step < 5 ? step + 1 : step + 5) {
            memset(got, 0xff, sizeof(got));
            for (uint64_t first = 0; first < 105;) { /* a run in one column, or whole columns */
                uint64_t count = step < 5 ? (5 - first % 5 < step ? 5 - first % 5 : step) : step;

                count = count < 105 - first ? count : 105 - first;
                fb_npy_place(&npy, got, 5 - rows, rows, file + first, first, count);
                first += count;
            }
            for (uint64_t i = 0; i < rows * 21; i++)
                assert_int_equal(got[i], (5 - rows) * 21 + i);
            for (uint64_t i = rows * 21; i < 105; i++)
                assert_int_equal(got[i], 0xffff);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_writes_is_understood),
        cmocka_unit_test(every_shape_has_its_size),
        cmocka_unit_test(malformed_headers_are_refused_in_words),
        cmocka_unit_test(the_prefix_is_checked_before_it_is_believed),
        cmocka_unit_test(versions_2_and_3_have_a_longer_length),
        cmocka_unit_test(every_cut_of_a_good_header_is_refused),
        cmocka_unit_test(bytes_are_turned_round_in_every_part),
        cmocka_unit_test(fortran_order_becomes_c_order_in_any_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
