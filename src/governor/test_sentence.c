/* The governor says one sentence a second and cause, and leaves no change out. */
#include "governor/sentence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS ((uint64_t)1000000)

static void changes_within_a_second_join_the_next_sentence(void **state)
{
    struct fb_sentences said = { 0 };
    unsigned spoken = 0;
    uint64_t told = 100;

    (void)state;
    for (uint64_t i = 0; i < 30; i++) { /* ten a second, for three seconds */
        struct fb_decision one = { .action = FB_ACT_CACHE, .from = 100 + i, .to = 101 + i,
                                   .reason = "full" };

        fb_sentence_join(&said, &one, (1 + i) * 100 * MS);
        if (one.quiet)
            continue;
        assert_int_equal(one.from, told);
        told = one.to;
        spoken++;
    }
    assert_int_equal(spoken, 3);
}

static void another_cause_speaks_at_once(void **state)
{
    struct fb_sentences said = { 0 };
    struct fb_decision one = { .action = FB_ACT_CACHE, .reason = "full" }, two = one;

    (void)state;
    two.reason = "short of memory";
    fb_sentence_join(&said, &one, MS);
    fb_sentence_join(&said, &two, 2 * MS);
    assert_false(one.quiet || two.quiet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_within_a_second_join_the_next_sentence),
        cmocka_unit_test(another_cause_speaks_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
