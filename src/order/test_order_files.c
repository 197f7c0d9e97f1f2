#include "order/test_orders.h"

#include <math.h>
#include <sys/stat.h>

/* Open with `text` as the subset (or the weights) of `samples` samples. */
static int open_with(const char *text, size_t length, bool weights, uint64_t samples,
                     struct fb_order **order, struct setting *setting, forebay_error *error)
{
    setting_init(setting, SHUFFLED, samples);
    write_file(setting->path, text, length);
    if (weights)
        setting->options.weights_file = setting->path;
    else
        setting->options.subset_file = setting->path;
    return fb_order_open(order, &setting->options, setting->budget, NULL, error);
}

struct bad_file {
    const char *text;
    bool weights;
    int line; /* 0: the file as a whole */
    const char *words;
};

static const struct bad_file bad_files[] = {
    { "1\n2\n10\n", false, 3, "'10', expected the number of a sample" },
    { "1\n-2\n", false, 2, "'-2'" },
    { "1\n2.5\n", false, 2, "'2.5'" },
    { "1\n2 3\n", false, 2, "'2 3'" },
    { "99999999999999999999999999999999999\n", false, 1, "0 to 9" },
    { "3\n1\n3\n", false, 3, "'3', expected each sample once: it stands in line 1, too" },
    { "1\n2\n2\n", false, 3, "line 2, too" },
    { "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n0\n", false, 11, "more lines than samples" },
    { "1\n\n2\n", false, 2, "empty" },
    { "", false, 0, "names no sample" },
    { "\n\n", false, 0, "names no sample" },
    { "1\n                                                                              2\n", false,
      2, "63 characters" },
    { "1\n1\n1\n1\n1\n1\n1\n1\n1\n", true, 9, "expected 10 lines" },
    { "1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n", true, 11, "expected 10 lines" },
    { "1\n-0.5\n", true, 2, "'-0.5', expected a weight" },
    { "1\n1\nnan\n", true, 3, "'nan'" },
    { "inf\n", true, 1, "'inf'" },
    { "1e999\n", true, 1, "finite" },
    { "1\n0,5\n", true, 2, "'0,5'" },
    { "0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n", true, 1, "all weights are 0" },
};

static void bad_files_are_refused_with_their_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++) {
        const struct bad_file *bad = &bad_files[i];
        struct setting setting;
        struct fb_order *order = NULL;
        forebay_error error = { 0 };
        char place[96];
        int status =
            open_with(bad->text, strlen(bad->text), bad->weights, 10, &order, &setting, &error);

        assert_int_equal(status, FOREBAY_BAD_DATA);
        assert_null(order);
        if (!strstr(error.message, bad->words))
            fail_msg("'%s' is not in '%s'", bad->words, error.message);
        snprintf(place, sizeof(place), bad->line ? "%s:%d" : "%s", setting.path, bad->line);
        assert_string_equal(error.place, place);
        setting_release(&setting);
    }
}

static void a_zero_byte_and_endless_lines_are_refused(void **state)
{
    struct setting setting;
    struct fb_order *order = NULL;
    forebay_error error = { 0 };
    char *endless = malloc(300000);

    (void)state;
    assert_int_equal(open_with("1\n2\0003\n", 6, false, 10, &order, &setting, &error),
                     FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "zero byte"));
    setting_release(&setting);
    memset(endless, '1', 300000);
    assert_int_equal(open_with(endless, 300000, false, 10, &order, &setting, &error),
                     FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "63 characters"));
    setting_release(&setting);
    free(endless);
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    struct setting setting;
    struct fb_order *order = NULL;
    forebay_error error = { 0 };
    char path[64] = "/tmp/forebay-order-XXXXXX";

    (void)state;
    setting_init(&setting, SHUFFLED, 10);
    setting.options.subset_file = "/nowhere/subset.txt";
    assert_int_equal(fb_order_open(&order, &setting.options, setting.budget, NULL, &error),
                     FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "No such file"));
    setting.options.subset_file = "/tmp";
    assert_int_equal(fb_order_open(&order, &setting.options, setting.budget, NULL, &error),
                     FOREBAY_MISSING);
    assert_non_null(mkdtemp(path));
    strcat(path, "/fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    setting.options.subset_file = path;
    assert_int_equal(fb_order_open(&order, &setting.options, setting.budget, NULL, &error),
                     FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "not a regular file"));
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    setting_release(&setting);
}

static void a_subset_is_read_however_its_lines_end(void **state)
{
    static const char text[] = "7\r\n 1\t\r\n9\n\n \n";
    struct setting setting;
    struct fb_order *order;
    forebay_error error;

    (void)state;
    setting_init(&setting, SUBSET_IN_ORDER, 10);
    unlink(setting.path);
    write_file(setting.path, text, sizeof(text) - 1);
    assert_int_equal(fb_order_open(&order, &setting.options, setting.budget, NULL, &error), 0);
    assert_int_equal(fb_order_length(order), 3);
    /* Not shuffled: as in the file. */
    assert_int_equal(fb_order_sample(order, fb_order_begin(order, 0), 0), 7);
    assert_int_equal(fb_order_sample(order, fb_order_begin(order, 0), 1), 1);
    assert_int_equal(fb_order_sample(order, fb_order_begin(order, 8), 2), 9);
    assert_int_equal(fb_order_position(order, 0, 1), 1);
    for (uint64_t entry = 0; entry < 3; entry++)
        assert_int_equal(fb_order_entry_of(order, fb_order_entry_sample(order, entry)), entry);
    assert_int_equal(fb_order_entry_sample(order, 0), 7);
    assert_true(fb_order_entry_of(order, 8) == UINT64_MAX);
    fb_order_close(order);
    setting_release(&setting);
}

static void a_shuffled_subset_does_not_depend_on_the_order_of_its_lines(void **state)
{
    struct setting a, b;
    struct fb_order *first, *second;
    forebay_error error;

    (void)state;
    assert_int_equal(open_with("5\n1\n8\n2\n", 8, false, 10, &first, &a, &error), 0);
    assert_int_equal(open_with("1\n2\n5\n8", 7, false, 10, &second, &b, &error), 0);
    for (uint64_t p = 0; p < 4; p++)
        assert_int_equal(fb_order_sample(first, fb_order_begin(first, 1), p),
                         fb_order_sample(second, fb_order_begin(second, 1), p));
    assert_true(fb_order_list(first) == fb_order_list(second) && fb_order_list(first));
    assert_int_equal(fb_order_entry_sample(first, 1), 2);
    fb_order_close(second);
    setting_release(&b);
    assert_int_equal(open_with("1\n2\n5\n7", 7, false, 10, &second, &b, &error), 0);
    assert_true(fb_order_list(first) != fb_order_list(second));
    fb_order_close(first);
    fb_order_close(second);
    setting_release(&a);
    setting_release(&b);
}

/* A file of all numbers of [0, samples) in a scattered order. */
static char *scattered(uint64_t samples, size_t *length)
{
    char *text = malloc(samples * 9);

    *length = 0;
    for (uint64_t i = 0; i < samples; i++)
        *length +=
            (size_t)sprintf(text + *length, "%llu\n", (unsigned long long)(i * 7919 % samples));
    return text;
}

static void lists_are_in_the_budget_and_must_fit_it(void **state)
{
    const uint64_t samples = 100000;
    struct setting setting;
    struct fb_budget_report report;
    struct fb_order *order = NULL;
    forebay_error error = { 0 };
    size_t length;
    char *text = scattered(samples, &length);

    (void)state;
    assert_int_equal(open_with(text, length, false, samples, &order, &setting, &error), 0);
    fb_budget_read(setting.budget, &report);
    assert_true(report.used >= 8 * samples && report.used < 8 * samples + 8192);
    for (uint64_t p = 0; p < samples; p += 97)
        assert_int_equal(
            fb_order_position(order, 0, fb_order_sample(order, fb_order_begin(order, 0), p)), p);
    fb_order_close(order);
    order = NULL;
    fb_budget_set_limit(setting.budget, 8 * samples);
    assert_int_equal(fb_order_open(&order, &setting.options, setting.budget, NULL, &error),
                     FOREBAY_OVER_BUDGET);
    assert_non_null(strstr(error.message, "order.subset needs"));
    assert_null(order);
    setting_release(&setting);
    free(text);
}

static void weights_keep_twelve_bytes_a_sample(void **state)
{
    const uint64_t samples = 50000;
    struct setting setting;
    struct fb_budget_report report;
    struct fb_order *order;
    forebay_error error;
    size_t length;
    char *text = scattered(samples, &length);

    (void)state;
    assert_int_equal(open_with(text, length, true, samples, &order, &setting, &error), 0);
    fb_budget_read(setting.budget, &report);
    assert_true(report.used >= 12 * samples && report.used < 12 * samples + 8192);
    fb_order_close(order);
    setting_release(&setting);
    free(text);
}

/* Draw many times: each sample as often as its weight says, a weight of 0 never. */
static void check_draws(const char *text, const double *weights, uint64_t samples)
{
    struct setting setting;
    struct fb_order *order;
    forebay_error error;
    uint64_t counts[16] = { 0 }, draws = 400000;
    double total = 0, chi = 0, free_cells = -1;

    setting_init(&setting, SHUFFLED, samples);
    write_file(setting.path, text, strlen(text));
    setting.options.weights_file = setting.path;
    setting.options.draws = draws;
    assert_int_equal(fb_order_open(&order, &setting.options, setting.budget, NULL, &error), 0);
    assert_int_equal(fb_order_length(order), draws);
    for (uint64_t p = 0; p < draws; p++)
        counts[fb_order_sample(order, fb_order_begin(order, 3), p)]++;
    for (uint64_t i = 0; i < samples; i++)
        total += weights[i];
    for (uint64_t i = 0; i < samples; i++) {
        double expected = weights[i] / total * (double)draws;

        if (weights[i] == 0)
            assert_int_equal(counts[i], 0);
        if (expected < 1)
            continue;
        chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
        free_cells++;
    }
    assert_true(free_cells < 1 || fabs(chi - free_cells) < 4 * sqrt(2 * free_cells));
    fb_order_close(order);
    setting_release(&setting);
}

static void draws_follow_their_weights(void **state)
{
    (void)state;
    check_draws("1\n2\n3\n4\n", (double[]){ 1, 2, 3, 4 }, 4);
    check_draws("0\n0\n7\n0\n", (double[]){ 0, 0, 7, 0 }, 4);
    check_draws("5e-310\n", (double[]){ 5e-310 }, 1);
    check_draws("0.1\n0.1\n0.1\n", (double[]){ 0.1, 0.1, 0.1 }, 3);
    check_draws("100\n0.5\n0\n20\n1\n1\n0\n9\n3\n1\n",
                (double[]){ 100, .5, 0, 20, 1, 1, 0, 9, 3, 1 }, 10);
    check_draws("0\n1e-30\n1\n1e-30\n3\n0\n", (double[]){ 0, 1e-30, 1, 1e-30, 3, 0 }, 6);
    check_draws("1e308\n1e308\n1e308\n", (double[]){ 1e307, 1e307, 1e307 }, 3);
}

static void the_first_draw_of_a_sample_is_its_position(void **state)
{
    struct setting setting;
    struct fb_order *order;
    uint64_t p = 0, found = 0;

    (void)state;
    setting_init(&setting, WEIGHTS, 60);
    order = order_open(&setting, 0, 1);
    for (uint64_t sample = 0; sample < 60; sample++) {
        uint64_t position = fb_order_position(order, 2, sample);

        for (p = 0; p < 60; p++)
            if (fb_order_sample(order, fb_order_begin(order, 2), p) == sample)
                break;
        assert_int_equal(position, p < 60 ? p : UINT64_MAX);
        found += p < 60;
    }
    assert_true(found > 20 && found < 48); /* twelve have the weight 0 */
    fb_order_close(order);
    setting_release(&setting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files_are_refused_with_their_line),
        cmocka_unit_test(a_zero_byte_and_endless_lines_are_refused),
        cmocka_unit_test(what_is_no_file_is_refused_at_once),
        cmocka_unit_test(a_subset_is_read_however_its_lines_end),
        cmocka_unit_test(a_shuffled_subset_does_not_depend_on_the_order_of_its_lines),
        cmocka_unit_test(lists_are_in_the_budget_and_must_fit_it),
        cmocka_unit_test(weights_keep_twelve_bytes_a_sample),
        cmocka_unit_test(draws_follow_their_weights),
        cmocka_unit_test(the_first_draw_of_a_sample_is_its_position),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
