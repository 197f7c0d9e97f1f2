#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mix.h"
#include "config/config.h"
#include "decode/cast.h"

/* What a binary format is, for the slow and exact way round. */
struct format {
    forebay_dtype dtype;
    int fraction; /* bits */
    int lowest;   /* exponent of the smallest normal number */
    double most;  /* finite */
};
static const struct format f16 = { FOREBAY_F16, 10, -14, 65504.0 };
static const struct format bf16 = { FOREBAY_BF16, 7, -126, 0x1.fep127 };

static uint16_t bits_of(const struct format *format, double exact)
{
    double size = fabs(exact);
    uint16_t sign = signbit(exact) ? 0x8000 : 0;
    int exponent;

    if (isinf(exact) || size > format->most)
        return (uint16_t)(sign | (format == &f16 ? 0x7c00 : 0x7f80));
    if (size < ldexp(1, format->lowest))
        return (uint16_t)(sign | (uint16_t)ldexp(size, format->fraction - format->lowest));
    frexp(size, &exponent);
    exponent--;
    return (uint16_t)(sign | (exponent - format->lowest + 1) << format->fraction |
                      (int)ldexp(size - ldexp(1, exponent), format->fraction - exponent));
}

/* Rounded once: to a whole number of the format's steps at that size. */
static uint16_t reference(const struct format *format, double value)
{
    double size = fabs(value), rounded;
    int exponent;

    if (isinf(value))
        return bits_of(format, value);
    frexp(size, &exponent);
    exponent = (exponent - 1 < format->lowest ? format->lowest : exponent - 1) - format->fraction;
    rounded = ldexp(nearbyint(ldexp(size, -exponent)), exponent);
    return bits_of(format, copysign(rounded, value));
}

static double value_of(const struct format *format, uint16_t bits)
{
    int top = bits >> format->fraction & ((1 << (15 - format->fraction)) - 1);
    double fraction = bits & ((1 << format->fraction) - 1);
    double size = top ? ldexp(1 + ldexp(fraction, -format->fraction), top - 1 + format->lowest)
                      : ldexp(fraction, format->lowest - format->fraction);

    if (top == (1 << (15 - format->fraction)) - 1)
        size = fraction != 0 ? (double)NAN : (double)INFINITY;
    return bits & 0x8000 ? -size : size;
}

/* One number through both paths, in a row of nine so that the wide loops have their turn. */
static uint64_t cast_one(forebay_dtype to, forebay_dtype from, const void *value)
{
    unsigned char in[9 * 8 + 1], wide[9 * 8 + 1], plain[9 * 8 + 1];
    size_t from_bytes = forebay_dtype_bytes(from), to_bytes = forebay_dtype_bytes(to);
    uint64_t result = 0;

    for (size_t i = 0; i < 9; i++) /* one byte off: nothing need be aligned */
        memcpy(in + 1 + i * from_bytes, value, from_bytes);
    fb_cast(wide + 1, to, in + 1, from, 9);
    fb_cast_plain(plain + 1, to, in + 1, from, 9);
    assert_memory_equal(wide + 1, plain + 1, 9 * to_bytes);
    assert_memory_equal(wide + 1, wide + 1 + 8 * to_bytes, to_bytes);
    memcpy(&result, wide + 1, to_bytes);
    return result;
}

static bool is_nan16(const struct format *format, uint64_t bits)
{
    return (bits & 0x7fff) > (format == &f16 ? 0x7c00u : 0x7f80u);
}

static void check_f64(const struct format *format, double value)
{
    uint64_t got = cast_one(format->dtype, FOREBAY_F64, &value);

    if (isnan(value))
        assert_true(is_nan16(format, got));
    else if (got != reference(format, value))
        fail_msg("%a becomes 0x%04llx instead of 0x%04x", value, (unsigned long long)got,
                 reference(format, value));
}

static void check_f32(const struct format *format, float value)
{
    uint64_t got = cast_one(format->dtype, FOREBAY_F32, &value);

    if (isnan(value))
        assert_true(is_nan16(format, got));
    else if (got != reference(format, (double)value))
        fail_msg("%a becomes 0x%04llx instead of 0x%04x", (double)value, (unsigned long long)got,
                 reference(format, (double)value));
}

static void check_all_up(const struct format *format)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t bits = (uint16_t)i;
        double want = value_of(format, bits), wide;
        float got;
        uint64_t raw = cast_one(FOREBAY_F32, format->dtype, &bits);

        memcpy(&got, &raw, sizeof(got));
        raw = cast_one(FOREBAY_F64, format->dtype, &bits);
        memcpy(&wide, &raw, sizeof(wide));
        if (isnan(want)) {
            assert_true(isnan(got) && isnan(wide));
            continue;
        }
        assert_true((double)got == want && !signbit(got) == !signbit(want));
        assert_true(wide == want && !signbit(wide) == !signbit(want));
        assert_int_equal(cast_one(format->dtype, FOREBAY_F32, &got), bits);
        assert_int_equal(cast_one(format->dtype, FOREBAY_F64, &wide), bits);
    }
}

static void every_f16_and_bf16_goes_up_exactly_and_back(void **state)
{
    (void)state;
    check_all_up(&f16);
    check_all_up(&bf16);
}

/* The middle between each number and the next, and its nearest neighbours in f32 and f64. */
static void check_middles(const struct format *format)
{
    for (uint32_t i = 0; i < 0x7f80; i++) {
        double low = value_of(format, (uint16_t)i), high = value_of(format, (uint16_t)(i + 1));
        double middle = isinf(high) ? low + (low - value_of(format, (uint16_t)(i - 1))) / 2
                                    : low + (high - low) / 2;

        if (isnan(low) || isinf(low))
            break;
        check_f64(format, middle);
        check_f64(format, -nextafter(middle, 0));
        check_f64(format, nextafter(middle, INFINITY));
        check_f32(format, (float)middle);
        check_f32(format, nextafterf((float)middle, 0));
        check_f32(format, -nextafterf((float)middle, INFINITY));
    }
}

static void ties_go_to_even_and_their_neighbours_do_not(void **state)
{
    (void)state;
    check_middles(&f16);
    check_middles(&bf16);
}

static void random_bits_are_rounded_once(void **state)
{
    struct fb_random random = { 7 };

    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = fb_random_next(&random);
        uint32_t low = (uint32_t)bits;
        double wide;
        float narrow;

        if (i % 2) /* in f16's own range */
            bits = (bits & 0x800fffffffffffff) | (uint64_t)(1023 - 30 + bits % 48) << 52;
        memcpy(&wide, &bits, sizeof(wide));
        memcpy(&narrow, &low, sizeof(narrow));
        check_f64(&f16, wide);
        check_f64(&bf16, wide);
        check_f32(&f16, narrow);
        check_f32(&bf16, narrow);
    }
}

static void the_table_of_ieee_boundaries_holds(void **state)
{
    static const struct {
        double from;
        uint16_t half, brain;
    } rows[] = {
        { 0.0, 0x0000, 0x0000 },           { -0.0, 0x8000, 0x8000 },
        { 1.0, 0x3c00, 0x3f80 },           { 65504.0, 0x7bff, 0x4780 },
        { 65519.999, 0x7bff, 0x4780 },     { 65520.0, 0x7c00, 0x4780 },
        { -65520.0, 0xfc00, 0xc780 },      { 0x1p-24, 0x0001, 0x3380 },
        { 0x1p-25, 0x0000, 0x3300 },       { 0x1.0000000000001p-25, 0x0001, 0x3300 },
        { 0x1p-14, 0x0400, 0x3880 },       { 0x1.ff8p-15, 0x03ff, 0x3880 },
        { 0x1.ffcp-15, 0x0400, 0x3880 },   { 0x1.fep127, 0x7c00, 0x7f7f },
        { 0x1.ffp127, 0x7c00, 0x7f80 },    { 0x1p-133, 0x0000, 0x0001 },
        { 0x1p-134, 0x0000, 0x0000 },      { 0x1.0000000000001p-134, 0x0000, 0x0001 },
        { 1e300, 0x7c00, 0x7f80 },         { -1e300, 0xfc00, 0xff80 },
        /* through f32 first this would be rounded twice, to 0x3c00 */
        { 1.0 + 0x1p-11 + 0x1p-40, 0x3c01, 0x3f80 },
        { 1.0 + 0x1p-8 + 0x1p-40, 0x3c04, 0x3f81 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(cast_one(FOREBAY_F16, FOREBAY_F64, &rows[i].from), rows[i].half);
        assert_int_equal(cast_one(FOREBAY_BF16, FOREBAY_F64, &rows[i].from), rows[i].brain);
    }
}

static void a_nan_stays_a_quiet_nan_with_its_sign(void **state)
{
    static const uint32_t nans[] = { 0x7f800001, 0xff800001, 0x7fc00000, 0xffffffff, 0x7fbfffff };

    (void)state;
    for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]); i++) {
        uint64_t half = cast_one(FOREBAY_F16, FOREBAY_F32, &nans[i]);
        uint64_t brain = cast_one(FOREBAY_BF16, FOREBAY_F32, &nans[i]);
        uint64_t wide = (uint64_t)(nans[i] | 0x7ff00000) << 32 | 1;

        assert_int_equal(half & 0xfe00, (nans[i] >> 16 & 0x8000) | 0x7e00);
        assert_int_equal(brain & 0xffc0, (nans[i] >> 16 & 0x8000) | 0x7fc0);
        assert_true(is_nan16(&f16, cast_one(FOREBAY_F16, FOREBAY_F64, &wide)));
        assert_true(is_nan16(&bf16, cast_one(FOREBAY_BF16, FOREBAY_F64, &wide)));
    }
    for (uint32_t bits = 0x7c01; bits < 0x8000; bits++) { /* both paths, compared in cast_one */
        uint16_t half = (uint16_t)bits;

        assert_true(cast_one(FOREBAY_F32, FOREBAY_F16, &half) & 0x400000);
    }
}

static void only_floating_point_is_cast(void **state)
{
    static const uint16_t numbers[3] = { 1, 2, 65535 };
    uint16_t copy[3];

    (void)state;
    assert_int_equal(fb_cast_target(FB_CAST_F16, FOREBAY_F64), FOREBAY_F16);
    assert_int_equal(fb_cast_target(FB_CAST_BF16, FOREBAY_F16), FOREBAY_BF16);
    assert_int_equal(fb_cast_target(FB_CAST_F32, FOREBAY_I32), FOREBAY_I32);
    assert_int_equal(fb_cast_target(FB_CAST_F32, FOREBAY_BOOL), FOREBAY_BOOL);
    assert_int_equal(fb_cast_target(FB_CAST_F32, FOREBAY_C64), FOREBAY_C64);
    assert_int_equal(fb_cast_target(FB_CAST_KEEP, FOREBAY_F64), FOREBAY_F64);
    fb_cast(copy, FOREBAY_U16, numbers, FOREBAY_U16, 3);
    assert_memory_equal(copy, numbers, sizeof(copy));
    fb_cast(NULL, FOREBAY_U16, NULL, FOREBAY_U16, 0);
}

static void f64_to_f32_is_what_c_says(void **state)
{
    static const double values[] = { 0.1, 1e-40, 3.5e38, 1 + 0x1p-24, 1 + 0x1.8p-23, -0.0 };

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        float want = (float)values[i], got;
        uint64_t bits = cast_one(FOREBAY_F32, FOREBAY_F64, &values[i]);

        memcpy(&got, &bits, sizeof(got));
        assert_memory_equal(&got, &want, sizeof(got));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_and_bf16_goes_up_exactly_and_back),
        cmocka_unit_test(ties_go_to_even_and_their_neighbours_do_not),
        cmocka_unit_test(random_bits_are_rounded_once),
        cmocka_unit_test(the_table_of_ieee_boundaries_holds),
        cmocka_unit_test(a_nan_stays_a_quiet_nan_with_its_sign),
        cmocka_unit_test(only_floating_point_is_cast),
        cmocka_unit_test(f64_to_f32_is_what_c_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
