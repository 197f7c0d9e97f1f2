#include "pack/tar_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/npy.h"

static void a_plain_member_has_one_block_of_fixed_fields(void **state)
{
    char header[FB_TAR_HEADER_MAX];
    unsigned sum = 0;

    (void)state;
    assert_int_equal(fb_tar_header_put(header, "a/b.points.npy", 1000128), 512);
    assert_string_equal(header, "a/b.points.npy");
    assert_string_equal(header + 100, "0000644");
    assert_string_equal(header + 124, "00003641300"); /* 1000128 in octal */
    assert_string_equal(header + 136, "00000000000"); /* no time */
    assert_memory_equal(header + 257, "ustar\0" "00", 8);
    for (unsigned i = 0; i < 512; i++)
        sum += i >= 148 && i < 156 ? ' ' : (unsigned char)header[i];
    assert_int_equal(strtoul(header + 148, NULL, 8), sum);
}

static void long_names_and_large_members_get_pax_records(void **state)
{
    char header[FB_TAR_HEADER_MAX], name[300];

    (void)state;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(fb_tar_header_bytes(name, 5), 1536);
    assert_int_equal(fb_tar_header_put(header, name, 5), 1536);
    assert_int_equal(header[156], 'x');
    /* "309 path=nnn...\n": the length counts itself. */
    assert_memory_equal(header + 512, "309 path=nnn", 12);
    assert_int_equal(header[512 + 308], '\n');
    assert_int_equal(header[512 + 309], 0);
    assert_int_equal(header[1024 + 156], '0');

    assert_int_equal(fb_tar_header_put(header, "big", (uint64_t)1 << 33), 1536);
    assert_memory_equal(header + 512, "19 size=8589934592\n", 19);
    assert_int_equal(fb_tar_header_put(header, "less", ((uint64_t)1 << 33) - 1), 512);
}

static void lengths_that_change_their_own_digits_are_right(void **state)
{
    char header[FB_TAR_HEADER_MAX], name[FB_TAR_NAME_MAX];

    (void)state;
    for (unsigned length = 101; length < 1100; length++) {
        uint64_t bytes;
        char *end;

        memset(name, 'x', length);
        name[length] = '\0';
        bytes = fb_tar_header_put(header, name, 1);
        assert_int_equal(bytes, fb_tar_header_bytes(name, 1));
        assert_int_equal(header[512 + strtoul(header + 512, &end, 10) - 1], '\n');
        assert_int_equal(strtoul(header + 124, NULL, 8), strtoul(header + 512, NULL, 10));
    }
}

static void members_take_whole_blocks(void **state)
{
    (void)state;
    assert_int_equal(fb_tar_member_bytes("x", 0), 512);
    assert_int_equal(fb_tar_member_bytes("x", 1), 1024);
    assert_int_equal(fb_tar_member_bytes("x", 512), 1024);
    assert_int_equal(fb_tar_member_bytes("x", 513), 1536);
}

static void npy_headers_are_multiples_of_64_and_parse_again(void **state)
{
    static const uint64_t shape[8] = { 3, 1280, UINT32_MAX, 1, 1, 1, 1, 1 };
    char header[FB_NPY_WRITE_MAX];

    (void)state;
    for (unsigned ndim = 0; ndim <= 8; ndim++)
        for (unsigned dtype = FOREBAY_U8; dtype <= FOREBAY_BOOL; dtype++) {
            uint64_t bytes = fb_npy_header_put(header, (forebay_dtype)dtype, ndim, shape);
            struct fb_npy npy;

            if (dtype == FOREBAY_BF16) {
                assert_int_equal(bytes, 0);
                continue;
            }
            assert_true(bytes && bytes % 64 == 0 && bytes <= FB_NPY_WRITE_MAX);
            assert_int_equal(fb_npy_parse(&npy, header, bytes, NULL), FOREBAY_OK);
            assert_int_equal(npy.header_bytes, bytes);
            assert_int_equal(npy.dtype, dtype);
            assert_int_equal(npy.ndim, ndim);
            assert_false(npy.fortran || npy.swapped);
            assert_memory_equal(npy.shape, shape, ndim * sizeof(shape[0]));
        }
}

static void shapes_are_written_as_numpy_does(void **state)
{
    static const uint64_t shape[] = { 3, 4 };
    static const char *const texts[] = { "'shape': (), }", "'shape': (3,), }",
                                         "'shape': (3, 4), }" };
    char header[FB_NPY_WRITE_MAX + 1];

    (void)state;
    for (unsigned ndim = 0; ndim < 3; ndim++) {
        header[fb_npy_header_put(header, FOREBAY_F32, ndim, shape)] = '\0';
        assert_non_null(strstr(header + 10, texts[ndim]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_member_has_one_block_of_fixed_fields),
        cmocka_unit_test(long_names_and_large_members_get_pax_records),
        cmocka_unit_test(lengths_that_change_their_own_digits_are_right),
        cmocka_unit_test(members_take_whole_blocks),
        cmocka_unit_test(npy_headers_are_multiples_of_64_and_parse_again),
        cmocka_unit_test(shapes_are_written_as_numpy_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
