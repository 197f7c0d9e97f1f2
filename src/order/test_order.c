#include "order/test_orders.h"

#include <pthread.h>

#include "base/sanitized.h"

#define COUNTS_ALLOCATIONS (!FB_SANITIZED)
#if COUNTS_ALLOCATIONS
/* Before libc's own, so that every allocation of this process is seen. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
static _Atomic uint64_t allocations;

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *block, size_t bytes)
{
    allocations++;
    return __libc_realloc(block, bytes);
}
#else
static uint64_t allocations;
#endif

#define MOST 400 /* samples in these tests, at most */

/* How often each sample comes, over all ranks; returns all positions that there are. */
static uint64_t gather(const struct setting *setting, uint64_t world, uint64_t epoch,
                       unsigned counts[MOST], uint64_t *uneven)
{
    uint64_t all = 0, each = UINT64_MAX, run[MOST];

    memset(counts, 0, MOST * sizeof(counts[0]));
    for (uint64_t rank = 0; rank < world; rank++) {
        struct fb_order *order = order_open(setting, rank, world);
        struct fb_cursor at = fb_order_begin(order, epoch);
        uint64_t count = fb_order_count(order, at);

        assert_true(each == UINT64_MAX || each == count); /* all ranks have as many */
        each = count;
        fb_order_samples(order, at, 0, count, run);
        for (uint64_t p = 0; p < count; p++) {
            assert_int_equal(run[p], fb_order_sample(order, at, p));
            assert_true(run[p] < setting->options.samples);
            counts[run[p]]++;
        }
        all += count;
        *uneven = fb_order_uneven(order, at);
        fb_order_close(order);
    }
    return all;
}

/* What an epoch has, from the order of a single rank. */
static uint64_t expect(const struct setting *setting, uint64_t epoch, unsigned counts[MOST])
{
    uint64_t uneven, all = gather(setting, 1, epoch, counts, &uneven);

    assert_int_equal(uneven, 0);
    return all;
}

static void check_union(const struct setting *setting, uint64_t world)
{
    unsigned whole[MOST], got[MOST];
    uint64_t uneven, over = 0, under = 0;

    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        uint64_t length = expect(setting, epoch, whole);
        uint64_t all = gather(setting, world, epoch, got, &uneven);

        over = under = 0;
        for (uint64_t i = 0; i < MOST; i++) {
            over += got[i] > whole[i] ? got[i] - whole[i] : 0;
            under += got[i] < whole[i] ? whole[i] - got[i] : 0;
        }
        assert_int_equal(all % world, 0);
        if (setting->options.ends == FB_ENDS_PAD) {
            assert_int_equal(under, 0);
            assert_int_equal(over, uneven);
            assert_int_equal(all, length + uneven);
        } else {
            assert_int_equal(over, 0);
            assert_int_equal(under, uneven);
            assert_int_equal(all, length - uneven);
        }
        assert_true(uneven < world);
    }
}

static void all_ranks_together_have_exactly_the_order(void **state)
{
    static const uint64_t sizes[] = { 1, 2, 3, 7, 29, 64, 365 };
    static const uint64_t worlds[] = { 1, 2, 3, 4, 7, 8, 16 };
    struct setting setting;

    (void)state;
    for (int form = 0; form < FORMS; form++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            setting_init(&setting, (enum form)form, sizes[s]);
            for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
                setting.options.ends = FB_ENDS_PAD;
                check_union(&setting, worlds[w]);
                setting.options.ends = FB_ENDS_DROP;
                if (worlds[w] <= sizes[s] / 3)
                    check_union(&setting, worlds[w]);
            }
            setting_release(&setting);
        }
}

static void without_weights_each_sample_comes_once(void **state)
{
    struct setting setting;
    unsigned counts[MOST];

    (void)state;
    for (int form = 0; form < WEIGHTS; form++) {
        bool third = form >= SUBSET && form <= SUBSET_BUCKETS;

        setting_init(&setting, (enum form)form, 365);
        assert_int_equal(expect(&setting, 5, counts), third ? 122 : 365);
        for (uint64_t i = 0; i < 365; i++)
            assert_int_equal(counts[i], third ? i % 3 == 0 : 1);
        setting_release(&setting);
    }
}

static void the_global_order_does_not_depend_on_the_number_of_ranks(void **state)
{
    struct setting setting;

    (void)state;
    for (int form = 0; form < FORMS; form++) {
        struct fb_order *one;

        if (form == STICKY_RANK || form == STICKY_NODE || form == SUBSET_STICKY ||
            form == BUCKETS || form == SUBSET_BUCKETS)
            continue; /* these must, that is what they are for */
        setting_init(&setting, (enum form)form, 101);
        one = order_open(&setting, 0, 1);
        for (uint64_t rank = 0; rank < 6; rank++) {
            struct fb_order *part = order_open(&setting, rank, 6);
            struct fb_cursor at = fb_order_begin(part, 3);

            for (uint64_t p = 0; p < fb_order_count(part, at); p++)
                assert_int_equal(fb_order_sample(part, at, p),
                                 fb_order_sample(one, fb_order_begin(one, 3),
                                                 (p * 6 + rank) % fb_order_length(one)));
            fb_order_close(part);
        }
        fb_order_close(one);
        setting_release(&setting);
    }
}

static void positions_are_the_inverse_of_samples(void **state)
{
    struct setting setting;

    (void)state;
    for (int form = 0; form < WEIGHTS; form++)
        for (uint64_t world = 1; world <= 6; world++) {
            setting_init(&setting, (enum form)form, 333);
            for (uint64_t rank = 0; rank < world; rank++) {
                struct fb_order *order = order_open(&setting, rank, world);
                struct fb_cursor at = fb_order_begin(order, 9);
                uint64_t length = fb_order_length(order);

                for (uint64_t p = 0; p * world + rank < length; p++)
                    assert_int_equal(fb_order_position(order, 9, fb_order_sample(order, at, p)),
                                     p * world + rank);
                if (form >= SUBSET)
                    assert_int_equal(fb_order_position(order, 9, 1), UINT64_MAX);
                assert_int_equal(fb_order_position(order, 9, 333), UINT64_MAX);
                fb_order_close(order);
            }
            setting_release(&setting);
        }
}

static void a_part_has_other_samples_in_each_epoch(void **state)
{
    unsigned counts[MOST], times[MOST] = { 0 }, missing = 0;
    struct setting setting;

    (void)state;
    for (int form = PART; form <= SUBSET_PART; form++) {
        uint64_t each = form == PART ? 244 : 120;

        setting_init(&setting, (enum form)form, 365);
        for (uint64_t epoch = 0; epoch < 60; epoch++) {
            assert_int_equal(expect(&setting, epoch, counts), each);
            for (uint64_t i = 0; i < 365; i++) {
                assert_true(counts[i] <= (form == PART || i % 3 == 0));
                times[i] += form == PART ? counts[i] : 0;
                missing += form == SUBSET_PART && i % 3 == 0 && !counts[i];
            }
        }
        setting_release(&setting);
    }
    for (uint64_t i = 0; i < 365; i++) /* 40 of 60 in the mean, 3.7 around it */
        assert_true(times[i] > 20 && times[i] < 58);
    assert_int_equal(missing, 60 * 2);
}

static void epochs_differ_and_seeds_differ(void **state)
{
    struct setting setting;

    (void)state;
    for (int form = 0; form < FORMS; form++) {
        uint64_t same_epoch = 0, same_seed = 0;
        struct fb_order *a, *b;

        if (form == SEQUENTIAL || form == SUBSET_IN_ORDER)
            continue;
        setting_init(&setting, (enum form)form, 365);
        a = order_open(&setting, 0, 1);
        setting.options.seed++;
        b = order_open(&setting, 0, 1);
        for (uint64_t p = 0; p < fb_order_length(a); p++) {
            uint64_t sample = fb_order_sample(a, fb_order_begin(a, 0), p);

            same_epoch += sample == fb_order_sample(a, fb_order_begin(a, 1), p);
            same_seed += sample == fb_order_sample(b, fb_order_begin(b, 0), p);
        }
        assert_true(same_epoch < 30 && same_seed < 30);
        fb_order_close(a);
        fb_order_close(b);
        setting_release(&setting);
    }
}

static void sequences_stay_whole_and_in_order(void **state)
{
    struct setting setting;
    struct fb_order *order;
    uint64_t jumps = 0, groups = 0;

    (void)state;
    setting_init(&setting, SEQUENCES, 365);
    order = order_open(&setting, 0, 1);
    for (uint64_t i = 0; i < setting.options.group_count; i++)
        groups += setting.ends[i] > (i ? setting.ends[i - 1] : 0);
    for (uint64_t p = 1; p < 365; p++)
        jumps += fb_order_sample(order, fb_order_begin(order, 2), p) !=
                 fb_order_sample(order, fb_order_begin(order, 2), p - 1) + 1;
    assert_true(groups > 10);
    assert_true(jumps < groups && jumps > groups / 2);
    fb_order_close(order);
    setting_release(&setting);
}

static void a_window_has_only_samples_of_its_blocks(void **state)
{
    struct setting setting;
    struct fb_order *order;
    unsigned open_blocks = 0;
    unsigned left[53];

    (void)state;
    setting_init(&setting, BLOCKS, 365); /* 53 blocks of 7, the last has 1; windows of 4 */
    order = order_open(&setting, 0, 1);
    for (int b = 0; b < 53; b++)
        left[b] = b == 52 ? 1 : 7;
    for (uint64_t p = 0; p < 365; p++) {
        uint64_t block = fb_order_sample(order, fb_order_begin(order, 4), p) / 7;
        unsigned full = block == 52 ? 1 : 7;

        open_blocks += left[block] == full;
        assert_true(left[block]-- > 0);
        assert_true(open_blocks <= 4);
        open_blocks -= left[block] == 0;
    }
    fb_order_close(order);
    setting_release(&setting);
}

/* Each sample on the rank (each = 1) or node it was on in the first epoch. */
static void check_sticky(enum form form, uint64_t world)
{
    struct setting setting;
    uint64_t owner[200], moved = 0, changed = 0;

    setting_init(&setting, form, 200);
    setting.options.ends = FB_ENDS_DROP; /* repeats at the end may be anywhere */
    memset(owner, 0xff, sizeof(owner));
    for (uint64_t epoch = 0; epoch < 6; epoch++)
        for (uint64_t rank = 0; rank < world; rank++) {
            struct fb_order *order = order_open(&setting, rank, world);
            struct fb_cursor at = fb_order_begin(order, epoch);
            uint64_t place = form == STICKY_NODE ? rank / (world / 2) : rank;

            for (uint64_t p = 0; p < fb_order_count(order, at); p++) {
                uint64_t sample = fb_order_sample(order, at, p);

                moved += owner[sample] != UINT64_MAX && owner[sample] != place;
                owner[sample] = place;
                changed += sample != fb_order_sample(order, fb_order_begin(order, epoch + 1), p);
            }
            fb_order_close(order);
        }
    assert_int_equal(moved, 0);
    assert_true(changed > 1000); /* of 1,200: a new order each epoch all the same */
    setting_release(&setting);
}

static void sticky_samples_stay_where_they_are(void **state)
{
    (void)state;
    check_sticky(STICKY_RANK, 4);
    check_sticky(STICKY_RANK, 7);
    check_sticky(STICKY_NODE, 4);
    check_sticky(STICKY_NODE, 6);
}

static void the_largest_order_needs_no_memory_to_speak_of(void **state)
{
    struct setting setting;
    struct fb_budget_report report;
    struct fb_order *order;

    (void)state;
    for (int form = SHUFFLED; form <= STICKY_NODE; form++) {
        if (form == SEQUENCES)
            continue;
        setting_init(&setting, (enum form)form, FB_MAX_SAMPLES);
        setting.options.block = 1000;
        order = order_open(&setting, 5, 6);
        fb_budget_read(setting.budget, &report);
        assert_true(report.used < 4096);
        for (uint64_t p = 0; p < 183251937962; p += 999999937) {
            uint64_t sample = fb_order_sample(order, fb_order_begin(order, 1), p);

            assert_true(sample < FB_MAX_SAMPLES);
            assert_int_equal(fb_order_position(order, 1, sample), p * 6 + 5);
        }
        fb_order_close(order);
        setting_release(&setting);
    }
}

static void a_lookup_allocates_nothing(void **state)
{
    struct setting setting;

    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip(); /* the sanitizer has the allocator */
    for (int form = 0; form < FORMS; form++) {
        struct fb_order *order;
        uint64_t before, run[50];

        setting_init(&setting, (enum form)form, 365);
        order = order_open(&setting, 0, 2);
        before = allocations;
        for (uint64_t epoch = 0; epoch < 9; epoch++) {
            fb_order_samples(order, fb_order_begin(order, epoch), 3, 50, run);
            fb_order_position(order, epoch, run[0]);
            fb_order_next_use(order, run[1], 3, epoch, 7);
        }
        assert_int_equal(allocations, before);
        fb_order_close(order);
        assert_true(before > 0);
        setting_release(&setting);
    }
}

struct crowd {
    const struct fb_order *order;
    uint64_t (*expected)[365];
    uint64_t number, wrong;
};

static void *look_around(void *data)
{
    struct crowd *one = data;
    struct fb_random random = { one->number };

    for (int i = 0; i < 3000; i++) {
        /* Mostly epochs that are close, sometimes one that wants a slot in use. */
        uint64_t epoch = fb_random_below(&random, 50) ? fb_random_below(&random, 2)
                                                      : fb_random_below(&random, 8);
        uint64_t p = fb_random_below(&random, 365);
        uint64_t sample = fb_order_sample(one->order, fb_order_begin(one->order, epoch), p);

        one->wrong += sample != one->expected[epoch][p];
        one->wrong += fb_order_position(one->order, epoch, sample) != p;
    }
    return NULL;
}

static void many_threads_may_look_up_many_epochs_at_once(void **state)
{
    static uint64_t expected[8][365];
    struct setting setting;
    struct fb_order *order;
    struct crowd crowd[6];
    pthread_t threads[6];

    (void)state;
    setting_init(&setting, SEQUENCES, 365);
    order = order_open(&setting, 0, 1);
    for (uint64_t epoch = 0; epoch < 8; epoch++)
        fb_order_samples(order, fb_order_begin(order, epoch), 0, 365, expected[epoch]);
    for (uint64_t i = 0; i < 6; i++) {
        crowd[i] = (struct crowd){ order, expected, i, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, look_around, &crowd[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(crowd[i].wrong, 0);
    }
    fb_order_close(order);
    setting_release(&setting);
}

static void keep_line(void *data, int level, const char *line)
{
    (void)level;
    snprintf(data, 256, "%s", line);
}

static void uneven_ends_are_said(void **state)
{
    struct setting setting;
    struct fb_order *order;
    char said[256] = "";
    struct fb_log log = { .log = keep_line, .data = said };
    forebay_error error;

    (void)state;
    setting_init(&setting, SHUFFLED, 101);
    setting.options.ranks = ranks_of(1, 4);
    assert_int_equal(fb_order_open(&order, &setting.options, setting.budget, &log, &error), 0);
    assert_string_equal(said, "order: 101 positions on 4 ranks: each epoch repeats 3 at its end");
    assert_int_equal(fb_order_uneven(order, fb_order_begin(order, 0)), 3);
    fb_order_close(order);
    setting_release(&setting);
}

static void expect_refusal(const struct setting *setting, const char *place, const char *words)
{
    struct fb_order *order = NULL;
    struct fb_budget_report report;
    forebay_error error = { 0 };

    assert_true(fb_order_open(&order, &setting->options, setting->budget, NULL, &error) < 0);
    assert_null(order);
    assert_string_equal(error.place, place);
    if (!strstr(error.message, words))
        fail_msg("'%s' is not in '%s'", words, error.message);
    fb_budget_read(setting->budget, &report);
    assert_int_equal(report.used, 0);
    assert_true(fb_order_open(&order, &setting->options, setting->budget, NULL, NULL) < 0);
}

static void what_cannot_be_is_refused_in_words(void **state)
{
    struct setting setting;

    (void)state;
    setting_init(&setting, SHUFFLED, 3);
    setting.options.ends = FB_ENDS_DROP;
    setting.options.ranks = ranks_of(0, 4);
    expect_refusal(&setting, "order.ends", "3 samples for 4 ranks");
    setting.options.ranks.rank = 4;
    expect_refusal(&setting, "order.rank", "rank 4 of 4");
    setting.options.ranks = ranks_of(0, 1);
    setting.options.samples = 0;
    expect_refusal(&setting, "", "0 samples");
    setting.options.samples = FB_MAX_SAMPLES + 1;
    expect_refusal(&setting, "", "2^40");
    setting.options.samples = 3;
    setting.options.draws = 4;
    expect_refusal(&setting, "order.draws", "order.weights");
    setting.options.draws = 2;
    setting.options.shuffle = false;
    expect_refusal(&setting, "order.draws", "order.shuffle");
    setting.options.shuffle = true;
    setting.options.sticky = FB_STICKY_RANK;
    expect_refusal(&setting, "order.draws", "order.sticky");
    setting.options.sticky = FB_STICKY_NONE;
    setting.options.draws = 0;
    setting.options.group = FB_GROUP_BLOCK;
    setting.options.block = 1;
    expect_refusal(&setting, "order.window", "at least 1");
    setting.options.window = 1;
    setting.options.sticky = FB_STICKY_RANK;
    expect_refusal(&setting, "order.sticky", "order.group");
    setting.options.sticky = FB_STICKY_NONE;
    setting.options.group = FB_GROUP_SEQUENCE;
    expect_refusal(&setting, "order.group", "folders");
    setting.options.group = FB_GROUP_NONE;
    setting.options.sticky = FB_STICKY_NODE;
    setting.options.ranks = (struct fb_ranks){ 1, 4, 2, 1, 2, "given" };
    expect_refusal(&setting, "order.sticky", "numbered node by node");
    setting.options.sticky = FB_STICKY_NONE;
    setting.options.subset_file = setting.options.weights_file = "x";
    expect_refusal(&setting, "order.weights", "weight 0");
    setting_release(&setting);
}

static void groups_that_do_not_add_up_are_refused(void **state)
{
    struct setting setting;

    (void)state;
    setting_init(&setting, SEQUENCES, 100);
    setting.ends[0] = 100;
    expect_refusal(&setting, "", "group 1 ends before it begins");
    setting.options.group_count = 1;
    setting.ends[0] = 99;
    expect_refusal(&setting, "", "99 of 100");
    setting_release(&setting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_together_have_exactly_the_order),
        cmocka_unit_test(without_weights_each_sample_comes_once),
        cmocka_unit_test(the_global_order_does_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(positions_are_the_inverse_of_samples),
        cmocka_unit_test(a_part_has_other_samples_in_each_epoch),
        cmocka_unit_test(epochs_differ_and_seeds_differ),
        cmocka_unit_test(sequences_stay_whole_and_in_order),
        cmocka_unit_test(a_window_has_only_samples_of_its_blocks),
        cmocka_unit_test(sticky_samples_stay_where_they_are),
        cmocka_unit_test(the_largest_order_needs_no_memory_to_speak_of),
        cmocka_unit_test(a_lookup_allocates_nothing),
        cmocka_unit_test(many_threads_may_look_up_many_epochs_at_once),
        cmocka_unit_test(uneven_ends_are_said),
        cmocka_unit_test(what_cannot_be_is_refused_in_words),
        cmocka_unit_test(groups_that_do_not_add_up_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
