/* Samples of like length share a batch, and nothing else changes. */
#include "order/test_orders.h"

#define SAMPLES 1000
#define BATCH 5
#define STRETCH 64 /* batches */

static struct fb_order *open_bucketed(struct setting *setting, uint64_t rank, uint64_t world)
{
    setting_init(setting, SHUFFLED, SAMPLES);
    setting->options.bucket_batch = BATCH;
    setting->options.length = length_of;
    return order_open(setting, rank, world);
}

static int by_value(const void *a, const void *b)
{
    const float *one = a, *two = b;

    if (one[0] != two[0])
        return one[0] < two[0] ? -1 : 1;
    return (one[1] > two[1]) - (one[1] < two[1]);
}

/* Shortest and longest of each batch of a stretch, over all ranks, sorted by the shortest. */
static void check_stretch(struct fb_order **orders, uint64_t world, uint64_t epoch, uint64_t first,
                          uint64_t batches)
{
    float ends[STRETCH][2];

    for (uint64_t b = 0; b < batches; b++) {
        ends[b][0] = 1e9f;
        ends[b][1] = -1e9f;
        for (uint64_t i = 0; i < BATCH * world; i++) {
            const struct fb_order *order = orders[i % world];
            float length = length_of(NULL, fb_order_sample(order, fb_order_begin(order, epoch),
                                                           first + b * BATCH + i / world));

            length = length > 0 ? length : 0; /* what is below counts as that */
            ends[b][0] = length < ends[b][0] ? length : ends[b][0];
            ends[b][1] = length > ends[b][1] ? length : ends[b][1];
        }
    }
    qsort(ends, batches, sizeof(ends[0]), by_value);
    for (uint64_t b = 1; b < batches; b++)
        assert_true(ends[b - 1][1] <= ends[b][0]);
}

static void batches_of_a_stretch_do_not_overlap_in_length(void **state)
{
    (void)state;
    for (uint64_t world = 1; world <= 3; world++) {
        struct setting settings[3];
        struct fb_order *orders[3];
        uint64_t each = SAMPLES / world / BATCH; /* whole batches of a rank */

        for (uint64_t rank = 0; rank < world; rank++)
            orders[rank] = open_bucketed(&settings[rank], rank, world);
        for (uint64_t epoch = 0; epoch < 3; epoch++)
            for (uint64_t b = 0; b < each; b += STRETCH)
                check_stretch(orders, world, epoch, b * BATCH,
                              each - b < STRETCH ? each - b : STRETCH);
        for (uint64_t rank = 0; rank < world; rank++) {
            fb_order_close(orders[rank]);
            setting_release(&settings[rank]);
        }
    }
}

static void batches_are_shuffled_anew_each_epoch(void **state)
{
    struct setting setting;
    struct fb_order *order = open_bucketed(&setting, 0, 1);
    unsigned rising = 0, same = 0;

    (void)state;
    for (uint64_t b = 1; b < STRETCH; b++) {
        struct fb_cursor one = fb_order_begin(order, 0), two = fb_order_begin(order, 1);

        rising += length_of(NULL, fb_order_sample(order, one, b * BATCH)) >
                  length_of(NULL, fb_order_sample(order, one, (b - 1) * BATCH));
        same += fb_order_sample(order, one, b * BATCH) == fb_order_sample(order, two, b * BATCH);
    }
    assert_in_range(rising, 15, 48);
    assert_in_range(same, 0, 10);
    fb_order_close(order);
    setting_release(&setting);
}

static void a_state_of_too_many_ranks_is_refused_in_words(void **state)
{
    struct setting many, one;
    struct fb_order *wide, *narrow;
    struct fb_cursor at;
    forebay_error error;
    const char *texts[1];
    char text[FOREBAY_STATE_BYTES];

    (void)state;
    setting_init(&many, SHUFFLED, 100000);
    setting_init(&one, SHUFFLED, 100000);
    many.options.bucket_batch = one.options.bucket_batch = BATCH;
    many.options.length = one.options.length = length_of;
    wide = order_open(&many, 0, 100);
    narrow = order_open(&one, 0, 1);
    assert_int_equal(fb_order_save(wide, fb_order_begin(wide, 0), 7, text, sizeof(text), &error),
                     0);
    texts[0] = text;
    assert_int_equal(fb_order_load(narrow, texts, 1, &at, NULL, &error), FOREBAY_BAD_STATE);
    assert_non_null(strstr(error.message, "100 ranks"));
    fb_order_close(wide);
    fb_order_close(narrow);
    setting_release(&many);
    setting_release(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_of_a_stretch_do_not_overlap_in_length),
        cmocka_unit_test(batches_are_shuffled_anew_each_epoch),
        cmocka_unit_test(a_state_of_too_many_ranks_is_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
