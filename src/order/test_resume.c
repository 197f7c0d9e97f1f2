#include "order/test_orders.h"

#define MOST 400
#define TEXT 1024

/* A run of several ranks that all stand at the same cursor. */
struct run {
    struct setting setting;
    struct fb_order *ranks[8];
    uint64_t world;
    struct fb_cursor at;
    uint64_t local;        /* positions behind `at` that all ranks have had */
    unsigned counts[MOST]; /* how often each sample was had in this epoch */
};

static void run_open(struct run *run, uint64_t world)
{
    run->world = world;
    for (uint64_t rank = 0; rank < world; rank++)
        run->ranks[rank] = order_open(&run->setting, rank, world);
}

static void run_close(struct run *run)
{
    for (uint64_t rank = 0; rank < run->world; rank++)
        fb_order_close(run->ranks[rank]);
}

/* All ranks take a batch (a short one at the end); false if there was nothing left. */
static bool run_step(struct run *run, uint64_t batch)
{
    uint64_t count = fb_order_count(run->ranks[0], run->at);
    uint64_t take = fb_min(batch, count - run->local);

    for (uint64_t rank = 0; rank < run->world; rank++)
        for (uint64_t p = 0; p < take; p++)
            run->counts[fb_order_sample(run->ranks[rank], run->at, run->local + p)]++;
    run->local += take;
    return take > 0;
}

/* Save on all ranks and go on with `world` of them. */
static void run_resume(struct run *run, uint64_t world)
{
    char texts[8][TEXT];
    const char *states[8];
    uint64_t repeated = 99;
    struct fb_cursor at;
    forebay_error error = { 0 };

    for (uint64_t rank = 0; rank < run->world; rank++) {
        assert_int_equal(
            fb_order_save(run->ranks[rank], run->at, run->local, texts[rank], TEXT, &error), 0);
        states[rank] = texts[rank];
    }
    uint64_t saved = run->world;
    run_close(run);
    run_open(run, world);
    for (uint64_t rank = 0; rank < world; rank++) {
        if (fb_order_load(run->ranks[rank], states, saved, &at, &repeated, &error))
            fail_msg("%s", error.message);
        assert_int_equal(repeated, 0);
        run->at = at;
    }
    run->local = 0;
}

/* One epoch over several numbers of ranks: nothing lost, nothing twice but what is reported. */
static void check_epoch(struct run *run, struct fb_random *random, uint64_t epoch,
                        const unsigned whole[MOST])
{
    uint64_t over = 0, under = 0, uneven;
    bool pad = run->setting.options.ends == FB_ENDS_PAD;

    assert_int_equal(run->at.epoch, epoch);
    assert_int_equal(run->at.start, 0);
    memset(run->counts, 0, sizeof(run->counts));
    while (run_step(run, 1 + fb_random_below(random, 6)))
        if (fb_random_below(random, 4) == 0 && run->local < fb_order_count(run->ranks[0], run->at))
            run_resume(run, 1 + fb_random_below(random, 8));
    uneven = fb_order_uneven(run->ranks[0], run->at);
    for (uint64_t i = 0; i < MOST; i++) {
        over += run->counts[i] > whole[i] ? run->counts[i] - whole[i] : 0;
        under += run->counts[i] < whole[i] ? whole[i] - run->counts[i] : 0;
    }
    assert_int_equal(over, pad ? uneven : 0);
    assert_int_equal(under, pad ? 0 : uneven);
}

static void count_whole(const struct setting *setting, uint64_t epoch, unsigned whole[MOST])
{
    struct fb_order *one = order_open(setting, 0, 1);

    memset(whole, 0, MOST * sizeof(whole[0]));
    for (uint64_t p = 0; p < fb_order_length(one); p++)
        whole[fb_order_sample(one, fb_order_begin(one, epoch), p)]++;
    fb_order_close(one);
}

static void check_splits(enum form form, int ends, uint64_t seed)
{
    struct fb_random random = { fb_mix2((uint64_t)form * 2 + (uint64_t)ends, seed) };
    struct run run = { 0 };
    unsigned whole[MOST];

    setting_init(&run.setting, form, 30 + fb_random_below(&random, 150));
    run.setting.options.ends = ends;
    run_open(&run, 1 + fb_random_below(&random, 8));
    run.at = fb_order_begin(run.ranks[0], 0);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        count_whole(&run.setting, epoch, whole);
        check_epoch(&run, &random, epoch, whole);
        run_resume(&run, 1 + fb_random_below(&random, 8)); /* from an end to a beginning */
    }
    run_close(&run);
    setting_release(&run.setting);
}

static void another_number_of_ranks_loses_and_repeats_nothing(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++)
        for (uint64_t seed = 0; seed < 25; seed++) {
            check_splits((enum form)form, FB_ENDS_PAD, seed);
            check_splits((enum form)form, FB_ENDS_DROP, seed);
        }
}

static void the_same_ranks_go_on_exactly_where_they_were(void **state)
{
    struct setting setting;
    char text[TEXT];
    const char *states[] = { text };
    forebay_error error;

    (void)state;
    for (int form = 0; form < FORMS; form++) {
        struct fb_order *order;
        struct fb_cursor begin, at;
        uint64_t repeated;

        setting_init(&setting, (enum form)form, 200);
        order = order_open(&setting, 1, 4);
        begin = fb_order_begin(order, 7);
        for (uint64_t local = 0; local < fb_order_count(order, begin); local += 3) {
            assert_int_equal(fb_order_save(order, begin, local, text, TEXT, &error), 0);
            assert_null(strchr(text, '\n'));
            assert_int_equal(fb_order_load(order, states, 1, &at, &repeated, &error), 0);
            assert_int_equal(fb_order_count(order, at), fb_order_count(order, begin) - local);
            for (uint64_t p = 0; p < fb_order_count(order, at); p++)
                assert_int_equal(fb_order_sample(order, at, p),
                                 fb_order_sample(order, begin, local + p));
        }
        fb_order_close(order);
        setting_release(&setting);
    }
}

static void ranks_out_of_step_go_on_from_the_last_and_say_what_is_repeated(void **state)
{
    struct setting setting;
    struct fb_order *order;
    struct fb_cursor at;
    char texts[4][TEXT];
    const char *states[] = { texts[0], texts[1], texts[2], texts[3] };
    uint64_t repeated;
    forebay_error error;

    (void)state;
    setting_init(&setting, SHUFFLED, 102); /* 26 positions each, two of them repeats */
    order = order_open(&setting, 0, 4);
    fb_order_save(order, fb_order_begin(order, 3), 20, texts[0], TEXT, &error);
    fb_order_save(order, fb_order_begin(order, 3), 16, texts[1], TEXT, &error);
    fb_order_save(order, fb_order_begin(order, 3), 26, texts[2], TEXT, &error); /* its end */
    fb_order_save(order, fb_order_begin(order, 4), 2, texts[3], TEXT, &error);
    assert_int_equal(fb_order_load(order, states, 4, &at, &repeated, &error), 0);
    assert_int_equal(at.epoch, 3);
    assert_int_equal(at.start, 64);
    assert_int_equal(repeated, 4 + 10 + 12);
    assert_int_equal(fb_order_load(order, states + 2, 1, &at, &repeated, &error), 0);
    assert_int_equal(at.epoch, 4); /* a finished epoch gives the next one's beginning */
    assert_int_equal(at.start, 0);
    fb_order_close(order);
    setting_release(&setting);
}

static void expect_bad_state(const struct fb_order *order, const char *text, const char *words)
{
    struct fb_cursor at = { 77, 77, 77, 77 };
    const char *states[] = { text };
    uint64_t repeated = 77;
    forebay_error error = { 0 };

    assert_int_equal(fb_order_load(order, states, 1, &at, &repeated, &error), FOREBAY_BAD_STATE);
    assert_int_equal(error.status, FOREBAY_BAD_STATE);
    if (!strstr(error.message, words))
        fail_msg("'%s' is not in '%s'", words, error.message);
    assert_true(at.epoch == 77 && at.start == 77 && repeated == 77);
    assert_int_equal(fb_order_load(order, states, 1, &at, NULL, NULL), FOREBAY_BAD_STATE);
}

/* `text` with the first `old` replaced. */
static void replaced(const char *text, const char *old, const char *by, char out[TEXT * 2])
{
    const char *at = strstr(text, old);

    assert_non_null(at);
    snprintf(out, TEXT * 2, "%.*s%s%s", (int)(at - text), text, by, at + strlen(old));
}

static void states_of_other_orders_are_refused_by_what_differs(void **state)
{
    struct setting setting, other;
    struct fb_order *order, *another;
    char text[TEXT];
    forebay_error error;

    (void)state;
    setting_init(&setting, SHUFFLED, 100);
    order = order_open(&setting, 0, 2);
    fb_order_save(order, fb_order_begin(order, 1), 5, text, TEXT, &error);

    setting.options.seed = 43;
    another = order_open(&setting, 0, 2);
    expect_bad_state(another, text, "order.seed 42, this loader has 43");
    fb_order_close(another);
    setting.options.seed = 42;
    setting.options.samples = 101;
    another = order_open(&setting, 0, 2);
    expect_bad_state(another, text, "100 samples, the source has 101");
    fb_order_close(another);
    setting_init(&other, BLOCKS, 100);
    another = order_open(&other, 0, 2);
    expect_bad_state(another, text, "(shuffled), this loader has: blocks of 7, windows of 4");
    fb_order_close(another);
    setting_release(&other);
    fb_order_close(order);
    setting_release(&setting);
}

static void a_changed_file_is_seen(void **state)
{
    struct setting setting;
    struct fb_order *order;
    char text[TEXT];
    forebay_error error;

    (void)state;
    for (int form = SUBSET; form <= WEIGHTS; form += WEIGHTS - SUBSET) {
        setting_init(&setting, (enum form)form, 4);
        order = order_open(&setting, 0, 1);
        fb_order_save(order, fb_order_begin(order, 1), 1, text, TEXT, &error);
        fb_order_close(order);
        unlink(setting.path);
        write_file(setting.path, form == WEIGHTS ? "1\n1\n1\n9\n" : "0\n2\n",
                   form == WEIGHTS ? 8 : 4);
        order = order_open(&setting, 0, 1);
        expect_bad_state(order, text, "are not those that the state was saved with");
        fb_order_close(order);
        setting_release(&setting);
    }
}

static void a_state_of_other_data_is_refused_and_an_old_one_taken(void **state)
{
    struct setting setting;
    struct fb_order *order, *another;
    char text[TEXT], old[TEXT * 2];
    const char *states[] = { old };
    struct fb_cursor at;
    forebay_error error;

    (void)state;
    setting_init(&setting, SHUFFLED, 100);
    setting.options.fingerprint = 11;
    order = order_open(&setting, 0, 2);
    fb_order_save(order, fb_order_begin(order, 1), 5, text, TEXT, &error);
    setting.options.fingerprint = 12;
    another = order_open(&setting, 0, 2);
    expect_bad_state(another, text, "names or sizes of its files differ");
    assert_false(fb_order_state_is_old(text));

    replaced(text, "\"forebay_state\":2", "\"forebay_state\":1", old);
    assert_true(fb_order_state_is_old(old));
    assert_int_equal(fb_order_load(another, states, 1, &at, NULL, &error), 0);
    assert_true(at.epoch == 1 && at.start == 10);
    assert_false(fb_order_state_is_old("{"));
    fb_order_close(another);
    fb_order_close(order);
    setting_release(&setting);
}

static void damaged_states_are_refused(void **state)
{
    static const char *const edits[][3] = {
        { "\"epoch\":1", "\"epoch\":-1", "\"epoch\"" },
        { "\"epoch\":1", "\"epoch\":9223372036854775807", "more than can be" },
        { "\"epoch\":1", "\"epoch\":\"1\"", "\"epoch\"" },
        { "\"epoch\":1", "\"epoch\":1.5", "\"epoch\"" },
        { "\"epoch\":1", "\"epoch\":1e400", "JSON" },
        { "\"epoch\":1", "\"epoch\":1,\"epoch\":2", "duplicate" },
        { "\"start\":0", "\"start\":101", "more than can be" },
        { "\"start\":0", "\"start\":11", "damaged" },
        { "\"position\":10", "\"position\":11", "damaged" },
        { "\"position\":10", "\"position\":1000", "damaged" },
        { "\"ranks\":2", "\"ranks\":0", "damaged" },
        { "\"world\":2", "\"world\":3", "damaged" },
        { "\"world\":2", "\"world\":0", "damaged" },
        { "\"nodes\":2", "\"nodes\":0", "damaged" },
        { "\"ends\":\"pad\"", "\"ends\":\"pod\"", "pad nor drop" },
        { "\"ends\":\"pad\"", "\"ends\":[]", "pad nor drop" },
        { "\"seed\":\"42\"", "\"seed\":42", "order.seed" },
        { "\"forebay_state\":2", "\"forebay_state\":3", "version 3" },
        { "\"forebay_state\":2", "\"forebay_state\":0", "version 0" },
        { "\"forebay_state\":2", "\"forebay\":2", "not ours" },
        { "\"nodes\":2", "\"nodes\":3", "damaged" },
        { "\"epoch\":1", "\"epoch\":2", "checksum" },
        { "\"position\":10", "\"position\":12", "checksum" },
        { "\"sum\":\"", "\"sum\":\"0", "checksum" },
        { "\"sum\":", "\"some\":", "checksum" },
        { "\"data\":\"0", "\"data\":\"1", "checksum" },
    };
    struct setting setting;
    struct fb_order *order;
    char text[TEXT], bad[TEXT * 2], *large = malloc(100001);
    forebay_error error;

    (void)state;
    setting_init(&setting, STICKY_NODE, 100);
    order = order_open(&setting, 0, 2);
    assert_int_equal(fb_order_save(order, fb_order_begin(order, 1), 5, text, TEXT, &error), 0);
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        replaced(text, edits[i][0], edits[i][1], bad);
        expect_bad_state(order, bad, edits[i][2]);
    }
    for (size_t length = 0; length < strlen(text); length++) {
        snprintf(bad, sizeof(bad), "%.*s", (int)length, text);
        expect_bad_state(order, bad, "JSON");
    }
    expect_bad_state(order, "[1,2]", "JSON object");
    expect_bad_state(order, "null", "JSON object");
    expect_bad_state(order, "\xff\xfe{}", "JSON");
    memset(large, '[', 100000);
    large[100000] = '\0';
    expect_bad_state(order, large, "longer than");
    large[4000] = '\0';
    expect_bad_state(order, large, "JSON");
    free(large);
    fb_order_close(order);
    setting_release(&setting);
}

static void states_of_different_runs_do_not_go_together(void **state)
{
    struct setting setting;
    struct fb_order *two, *four;
    struct fb_cursor at = { 0 };
    char texts[3][TEXT];
    const char *states[] = { texts[0], texts[1] };
    forebay_error error;

    (void)state;
    setting_init(&setting, SHUFFLED, 100);
    two = order_open(&setting, 0, 2);
    four = order_open(&setting, 0, 4);
    fb_order_save(two, fb_order_begin(two, 1), 5, texts[0], TEXT, &error);
    fb_order_save(four, fb_order_begin(four, 1), 5, texts[1], TEXT, &error);
    assert_int_equal(fb_order_load(two, states, 2, &at, NULL, &error), FOREBAY_BAD_STATE);
    assert_non_null(strstr(error.message, "another run"));
    strcpy(texts[1], "{");
    assert_int_equal(fb_order_load(two, states, 2, &at, NULL, &error), FOREBAY_BAD_STATE);
    assert_non_null(strstr(error.message, "state 2 of 2"));
    assert_int_equal(fb_order_load(two, states, 0, &at, NULL, &error), FOREBAY_BAD_USE);
    fb_order_close(two);
    fb_order_close(four);
    setting_release(&setting);
}

static void a_state_that_does_not_fit_its_buffer_is_an_error(void **state)
{
    struct setting setting;
    struct fb_order *order;
    char text[64];
    forebay_error error;

    (void)state;
    setting_init(&setting, SHUFFLED, 100);
    order = order_open(&setting, 0, 1);
    assert_int_equal(fb_order_save(order, fb_order_begin(order, 1), 5, text, sizeof(text), &error),
                     FOREBAY_BAD_USE);
    assert_int_equal(
        fb_order_save(order, fb_order_begin(order, 1), 101, text, sizeof(text), &error),
        FOREBAY_BAD_USE);
    fb_order_close(order);
    setting_release(&setting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_number_of_ranks_loses_and_repeats_nothing),
        cmocka_unit_test(the_same_ranks_go_on_exactly_where_they_were),
        cmocka_unit_test(ranks_out_of_step_go_on_from_the_last_and_say_what_is_repeated),
        cmocka_unit_test(states_of_other_orders_are_refused_by_what_differs),
        cmocka_unit_test(a_changed_file_is_seen),
        cmocka_unit_test(a_state_of_other_data_is_refused_and_an_old_one_taken),
        cmocka_unit_test(damaged_states_are_refused),
        cmocka_unit_test(states_of_different_runs_do_not_go_together),
        cmocka_unit_test(a_state_that_does_not_fit_its_buffer_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
