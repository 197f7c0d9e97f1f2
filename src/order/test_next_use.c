#include <pthread.h>

#include "order/test_orders.h"

/* By looking at every position: the next one on this node from (epoch, from) on that takes one of
 * [first, first + count). */
static uint64_t by_search(const struct fb_order *all, uint64_t world, uint64_t node, uint64_t nodes,
                          uint64_t first, uint64_t count, uint64_t epoch, uint64_t from,
                          uint64_t horizon)
{
    uint64_t length = fb_order_length(all);

    for (uint64_t e = epoch; e < epoch + horizon; e++)
        for (uint64_t g = e == epoch ? from : 0; g < length; g++) {
            uint64_t sample = fb_order_sample(all, fb_order_begin(all, e), g);

            if (sample - first < count && g % world / (world / nodes) == node)
                return e * length + g;
        }
    return UINT64_MAX;
}

static void next_use_is_the_first_one_on_this_node(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        struct setting setting;
        struct fb_order *all;

        if (form == STICKY_RANK || form == STICKY_NODE || form == SUBSET_STICKY)
            continue; /* their global order differs with the ranks: below */
        if (form == BUCKETS || form == SUBSET_BUCKETS)
            continue; /* only about */
        setting_init(&setting, (enum form)form, 60);
        setting.options.look_ahead_bytes = FB_MIB;
        all = order_open(&setting, 0, 1);
        for (uint64_t world = 1; world <= 4; world++) {
            struct fb_order *order = order_open(&setting, world - 1, world);
            struct fb_ranks ranks = ranks_of(world - 1, world);
            uint64_t length = fb_order_length(order), horizon = ranks.nodes > 1 ? 4 : 2;

            horizon = form == WEIGHTS                       ? FB_DRAWS_HORIZON
                      : form == PART || form == SUBSET_PART ? 8 * ranks.nodes
                                                            : horizon;
            assert_int_equal(fb_order_horizon(order), horizon);
            for (uint64_t first = 0; first < 60; first += 7)
                for (uint64_t count = 1; count <= 6; count += 5)
                    for (uint64_t from = 0; from <= length; from += 9)
                        assert_int_equal(
                            fb_order_next_use(order, first, count, 2, from),
                            by_search(all, world, ranks.node, ranks.nodes, first, count, 2, from,
                                      horizon));
            fb_order_close(order);
        }
        fb_order_close(all);
        setting_release(&setting);
    }
}

static void a_sticky_sample_is_used_again_only_on_its_own_node(void **state)
{
    struct setting setting;
    struct fb_order *here, *there;
    uint64_t known_here = 0, known_there = 0;

    (void)state;
    setting_init(&setting, STICKY_NODE, 80);
    here = order_open(&setting, 0, 4);
    there = order_open(&setting, 3, 4);
    for (uint64_t sample = 0; sample < 80; sample++) {
        uint64_t a = fb_order_next_use(here, sample, 1, 0, 80);
        uint64_t b = fb_order_next_use(there, sample, 1, 0, 80);

        assert_true((a == UINT64_MAX) != (b == UINT64_MAX));
        assert_true(a == UINT64_MAX || a == 80 + fb_order_position(here, 1, sample));
        known_here += a != UINT64_MAX;
        known_there += b != UINT64_MAX;
    }
    assert_int_equal(known_here, 40);
    assert_int_equal(known_there, 40);
    fb_order_close(here);
    fb_order_close(there);
    setting_release(&setting);
}

static void what_is_never_used_or_not_known_is_far_away(void **state)
{
    struct setting setting;
    struct fb_order *order;

    (void)state;
    setting_init(&setting, SUBSET, 60);
    order = order_open(&setting, 0, 1);
    assert_int_equal(fb_order_next_use(order, 1, 2, 0, 0), UINT64_MAX); /* neither is in it */
    assert_int_equal(fb_order_next_use(order, 60, 5, 0, 0), UINT64_MAX);
    assert_int_equal(fb_order_next_use(order, 0, 0, 0, 0), UINT64_MAX);
    assert_int_equal(fb_order_next_use(order, 0, UINT64_MAX, 0, UINT64_MAX), 20);
    fb_order_close(order);
    setting_release(&setting);
}

static void draws_are_looked_at_as_far_as_memory_allows(void **state)
{
    struct setting setting;

    (void)state;
    setting_init(&setting, WEIGHTS, 60);
    for (uint64_t tables = 0; tables < 8; tables++) {
        uint64_t want = tables < 2 ? 0 : fb_min(tables - 1, FB_DRAWS_HORIZON);
        struct fb_order *order;

        setting.options.look_ahead_bytes = tables * (60 + 60 + 2) * 4;
        order = order_open(&setting, 0, 1);
        assert_int_equal(fb_order_horizon(order), want);
        for (uint64_t sample = 0; sample < 60; sample += 7)
            assert_int_equal(fb_order_next_use(order, sample, 1, 0, 5),
                             by_search(order, 1, 0, 1, sample, 1, 0, 5, want));
        fb_order_close(order);
    }
    setting_release(&setting);
}

/* Epochs that want one slot of the ring, from several threads: an answer is right or not known. */
struct asker {
    struct fb_order *order;
    uint64_t known, wrong;
    uint64_t seed;
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    struct fb_random random = { asker->seed };

    for (unsigned i = 0; i < 4000; i++) {
        uint64_t sample = fb_random_below(&random, 60), epoch = fb_random_below(&random, 12);
        uint64_t next = fb_order_next_use(asker->order, sample, 1, epoch, 60), at;

        if (next == UINT64_MAX)
            continue;
        at = next % 60;
        asker->known++;
        asker->wrong += next / 60 <= epoch || next / 60 > epoch + FB_DRAWS_HORIZON ||
                        fb_order_sample(asker->order, fb_order_begin(asker->order, next / 60),
                                        at) != sample;
    }
    return NULL;
}

static void threads_that_ask_at_once_are_never_told_wrong(void **state)
{
    struct setting setting;
    struct asker askers[4];
    pthread_t threads[4];

    (void)state;
    setting_init(&setting, WEIGHTS, 60);
    setting.options.look_ahead_bytes = FB_MIB;
    askers[0].order = order_open(&setting, 0, 1);
    for (unsigned i = 0; i < 4; i++) {
        askers[i] = (struct asker){ .order = askers[0].order, .seed = i };
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(askers[i].wrong, 0);
        assert_true(askers[i].known > 0);
    }
    fb_order_close(askers[0].order);
    setting_release(&setting);
}

static void what_an_order_uses_is_what_its_epochs_have(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        bool seen[100] = { false };
        struct setting setting;
        struct fb_order *order;

        setting_init(&setting, (enum form)form, 100);
        order = order_open(&setting, 0, 1);
        for (uint64_t epoch = 0; epoch < 40; epoch++)
            for (uint64_t p = 0; p < fb_order_length(order); p++)
                seen[fb_order_sample(order, fb_order_begin(order, epoch), p)] = true;
        for (uint64_t i = 0; i < 100; i++)
            assert_int_equal(fb_order_uses(order, i), seen[i]);
        assert_false(fb_order_uses(order, 100));
        assert_int_equal(fb_order_once(order), form < WEIGHTS);
        fb_order_close(order);
        setting_release(&setting);
    }
}

static void a_node_uses_its_own_part_of_a_sticky_order(void **state)
{
    struct setting setting;
    struct fb_order *here, *there;

    (void)state;
    setting_init(&setting, STICKY_NODE, 80);
    here = order_open(&setting, 1, 4);
    there = order_open(&setting, 2, 4);
    for (uint64_t sample = 0; sample < 80; sample++)
        assert_true(fb_order_uses(here, sample) != fb_order_uses(there, sample));
    assert_true(fb_order_once(here));
    fb_order_close(here);
    fb_order_close(there);
    setting.options.sticky = FB_STICKY_NONE;
    here = order_open(&setting, 1, 4);
    assert_false(fb_order_once(here)); /* a sample may be on the other node next time */
    fb_order_close(here);
    setting_release(&setting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_looked_at_as_far_as_memory_allows),
        cmocka_unit_test(threads_that_ask_at_once_are_never_told_wrong),
        cmocka_unit_test(next_use_is_the_first_one_on_this_node),
        cmocka_unit_test(a_sticky_sample_is_used_again_only_on_its_own_node),
        cmocka_unit_test(what_is_never_used_or_not_known_is_far_away),
        cmocka_unit_test(what_an_order_uses_is_what_its_epochs_have),
        cmocka_unit_test(a_node_uses_its_own_part_of_a_sticky_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
