#include "order/permutation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mix.h"

#define MANY 39 /* wide registers twice, four side by side, and three left over */

static void check_many(const struct fb_permutation *permutation, uint64_t from, uint64_t count)
{
    uint64_t many[MANY];

    for (uint64_t i = 0; i < count; i++)
        many[i] = from + i;
    fb_permutation_apply_many(permutation, many, count);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(many[i], fb_permutation_apply(permutation, from + i));
}

static void check_bijection(uint64_t n, uint64_t key)
{
    struct fb_permutation permutation = fb_permutation_make(n, key);
    unsigned char *seen = calloc(n, 1);

    for (uint64_t x = 0; x < n; x++) {
        uint64_t y = fb_permutation_apply(&permutation, x);

        assert_true(y < n && !seen[y]);
        seen[y] = 1;
        assert_int_equal(fb_permutation_invert(&permutation, y), x);
    }
    for (uint64_t from = 0; from < n; from += MANY)
        check_many(&permutation, from, n - from < MANY ? n - from : MANY);
    free(seen);
}

static void many_at_once_are_the_same_as_one_by_one_in_large_domains(void **state)
{
    (void)state;
    for (unsigned bits = 20; bits <= 40; bits++)
        for (uint64_t less = 0; less < 3; less++) {
            uint64_t n = ((uint64_t)1 << bits) - less * 12345;
            struct fb_permutation permutation = fb_permutation_make(n, fb_mix(n));

            for (uint64_t i = 0; i < 50; i++)
                check_many(&permutation, fb_mix(i) % (n - MANY), MANY);
            check_many(&permutation, n - MANY, MANY);
        }
}

static void every_value_comes_once_and_goes_back(void **state)
{
    static const uint64_t sizes[] = { 997, 1021, 4093, 65521, 65536, 65537, 99999, 131071, 262145 };

    (void)state;
    for (uint64_t n = 1; n <= 700; n++)
        check_bijection(n, fb_mix(n));
    for (int bits = 1; bits <= 16; bits++)
        for (uint64_t n = ((uint64_t)1 << bits) - 1; n <= ((uint64_t)1 << bits) + 1; n++)
            check_bijection(n, 5);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check_bijection(sizes[i], 0);
}

static void large_domains_go_back_at_sampled_values(void **state)
{
    static const uint64_t sizes[] = { (uint64_t)1 << 40,
                                      ((uint64_t)1 << 40) - 1,
                                      ((uint64_t)1 << 32) + 1,
                                      ((uint64_t)1 << 32) - 1,
                                      1000000007,
                                      ((uint64_t)1 << 20) * (((uint64_t)1 << 20) - 1) };

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct fb_permutation permutation = fb_permutation_make(sizes[i], fb_mix(i));
        struct fb_random random = { i };

        for (int k = 0; k < 20000; k++) {
            uint64_t x = k < 100   ? (uint64_t)k
                         : k < 200 ? sizes[i] - (uint64_t)k + 99
                                   : fb_random_below(&random, sizes[i]);
            uint64_t y = fb_permutation_apply(&permutation, x);

            assert_true(y < sizes[i]);
            assert_int_equal(fb_permutation_invert(&permutation, y), x);
            assert_true(fb_permutation_invert(&permutation, x) < sizes[i]);
        }
    }
}

/* The number of a permutation of n values among all n! */
static unsigned permutation_number(const struct fb_permutation *permutation)
{
    unsigned number = 0;

    for (uint64_t i = 0; i < permutation->n; i++) {
        unsigned below = 0;

        for (uint64_t j = i + 1; j < permutation->n; j++)
            below += fb_permutation_apply(permutation, j) < fb_permutation_apply(permutation, i);
        number = number * (unsigned)(permutation->n - i) + below;
    }
    return number;
}

static void of_few_values_every_permutation_is_as_likely(void **state)
{
    unsigned factorial = 1;

    (void)state;
    for (uint64_t n = 2; n <= 6; n++) {
        struct fb_permutation permutation = fb_permutation_make(n, 0);
        unsigned counts[720] = { 0 };
        double chi = 0;

        factorial *= (unsigned)n;
        for (uint64_t key = 0; key < 200 * factorial; key++) {
            permutation = fb_permutation_keyed(permutation, fb_mix2(n, key));
            counts[permutation_number(&permutation)]++;
        }
        for (unsigned i = 0; i < factorial; i++)
            chi += (counts[i] - 200.0) * (counts[i] - 200.0) / 200.0;
        assert_true(fabs(chi - (factorial - 1)) < 4 * sqrt(2.0 * (factorial - 1)));
    }
}

/* T1 of the caching notes: positions by values in a 32 x 32 table; the chi-square's z. */
static double table_z(const struct fb_permutation *permutation)
{
    static unsigned counts[32][32];
    double expected = (double)permutation->n / 1024, chi = 0;

    memset(counts, 0, sizeof(counts));
    for (uint64_t x = 0; x < permutation->n; x++)
        counts[x * 32 / permutation->n]
              [fb_permutation_apply(permutation, x) * 32 / permutation->n]++;
    for (int i = 0; i < 1024; i++)
        chi += (counts[i / 32][i % 32] - expected) * (counts[i / 32][i % 32] - expected) / expected;
    return (chi - 961) / sqrt(2 * 961.0);
}

static void positions_tell_nothing_about_values(void **state)
{
    double sum = 0, worst = 0;

    (void)state;
    for (uint64_t key = 0; key < 60; key++) {
        struct fb_permutation permutation = fb_permutation_make(65536, fb_mix2(1, key));
        double z = table_z(&permutation);

        sum += z;
        worst = fmax(worst, fabs(z));
    }
    assert_true(fabs(sum / 60) < 3 / sqrt(60));
    assert_true(worst < 4.5);
}

/* T2: the step from one value to the next, in 64 bins. */
static void neighbours_are_independent(void **state)
{
    const uint64_t n = 100003;
    double sum = 0;

    (void)state;
    for (uint64_t key = 0; key < 30; key++) {
        struct fb_permutation permutation = fb_permutation_make(n, fb_mix2(2, key));
        unsigned counts[64] = { 0 };
        double chi = 0, expected = (double)(n - 1) / 64;

        for (uint64_t x = 0; x + 1 < n; x++)
            counts[(fb_permutation_apply(&permutation, x + 1) + n -
                    fb_permutation_apply(&permutation, x)) %
                   n * 64 / n]++;
        for (int i = 0; i < 64; i++)
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        sum += (chi - 63) / sqrt(126);
    }
    assert_true(fabs(sum / 30) < 3 / sqrt(30));
}

/* T4: a set stored class by class; the spread of a class's count in a batch of 256, against the
 * hypergeometric distribution. */
static void batches_mix_sorted_classes_like_a_true_shuffle(void **state)
{
    const uint64_t n = 65536, batch = 256, classes = 64;
    const double mean = (double)batch / (double)classes;
    double sum = 0, p = 1.0 / (double)classes, ideal;
    uint64_t batches = 0;

    (void)state;
    ideal = (double)batch * p * (1 - p) * (double)(n - batch) / (double)(n - 1);
    for (uint64_t key = 0; key < 20; key++) {
        struct fb_permutation permutation = fb_permutation_make(n, fb_mix2(3, key));

        for (uint64_t first = 0; first < n; first += batch, batches++) {
            unsigned counts[64] = { 0 };

            for (uint64_t x = first; x < first + batch; x++)
                counts[fb_permutation_apply(&permutation, x) * classes / n]++;
            for (uint64_t c = 0; c < classes; c++)
                sum += (counts[c] - mean) * (counts[c] - mean);
        }
    }
    assert_true(fabs(sum / (double)(batches * classes) / ideal - 1) < 0.01);
}

/* T3: a sample's places in two epochs. */
static void epochs_are_independent(void **state)
{
    const uint64_t n = 65537;
    double sum = 0, middle = (double)(n - 1) / 2;

    (void)state;
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        struct fb_permutation a = fb_permutation_make(n, fb_mix2(fb_mix2(9, 1), epoch));
        struct fb_permutation b = fb_permutation_keyed(a, fb_mix2(fb_mix2(9, 1), epoch + 1));

        for (uint64_t x = 0; x < n; x++)
            sum += ((double)fb_permutation_invert(&a, x) - middle) *
                   ((double)fb_permutation_invert(&b, x) - middle);
    }
    assert_true(fabs(sum / (middle * middle / 3) / sqrt(20.0 * (double)n)) < 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_comes_once_and_goes_back),
        cmocka_unit_test(many_at_once_are_the_same_as_one_by_one_in_large_domains),
        cmocka_unit_test(large_domains_go_back_at_sampled_values),
        cmocka_unit_test(of_few_values_every_permutation_is_as_likely),
        cmocka_unit_test(positions_tell_nothing_about_values),
        cmocka_unit_test(neighbours_are_independent),
        cmocka_unit_test(batches_mix_sorted_classes_like_a_true_shuffle),
        cmocka_unit_test(epochs_are_independent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
