#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/dtype.h"

static void both_names_of_every_type_read_back_to_it(void **state)
{
    static const struct {
        forebay_dtype dtype;
        size_t bytes;
        const char *name, *numpy;
    } rows[] = {
#define FOREBAY_X(name, bytes, text, numpy, dlpack) { FOREBAY_##name, bytes, text, numpy },
        FOREBAY_DTYPE_MAP(FOREBAY_X)
#undef FOREBAY_X
    };
    forebay_dtype dtype;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(fb_dtype_parse(rows[i].name, &dtype));
        assert_int_equal(dtype, rows[i].dtype);
        assert_true(fb_dtype_parse(rows[i].numpy, &dtype));
        assert_int_equal(dtype, rows[i].dtype);
        assert_int_equal(forebay_dtype_bytes(dtype), rows[i].bytes);
        assert_string_equal(forebay_dtype_name(dtype), rows[i].name);
    }
}

static void numpys_words_mean_what_they_mean_in_numpy(void **state)
{
    forebay_dtype dtype;

    (void)state;
    assert_true(fb_dtype_parse("double", &dtype));
    assert_int_equal(dtype, FOREBAY_F64);
    assert_true(fb_dtype_parse("float", &dtype));
    assert_int_equal(dtype, FOREBAY_F64);
    assert_true(fb_dtype_parse("int", &dtype));
    assert_int_equal(dtype, FOREBAY_I64);
    assert_true(fb_dtype_parse("half", &dtype));
    assert_int_equal(dtype, FOREBAY_F16);
}

static void what_is_no_type_is_refused_and_leaves_the_result_alone(void **state)
{
    forebay_dtype dtype = FOREBAY_I8;

    (void)state;
    assert_false(fb_dtype_parse("", &dtype));
    assert_false(fb_dtype_parse("f3", &dtype));
    assert_false(fb_dtype_parse("f322", &dtype));
    assert_int_equal(dtype, FOREBAY_I8);
    assert_int_equal(forebay_dtype_bytes((forebay_dtype)99), 0);
    assert_string_equal(forebay_dtype_name((forebay_dtype)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_names_of_every_type_read_back_to_it),
        cmocka_unit_test(numpys_words_mean_what_they_mean_in_numpy),
        cmocka_unit_test(what_is_no_type_is_refused_and_leaves_the_result_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
