/* The table of figures: each is named once, and every one of them reaches the JSON. */
#include "monitor/snapshot.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void no_two_figures_share_a_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < fb_figure_count; i++)
        for (unsigned j = 0; j < i; j++) {
            assert_false(!strcmp(fb_figures[i].group, fb_figures[j].group) &&
                         !strcmp(fb_figures[i].key, fb_figures[j].key));
            assert_false(fb_figures[i].metric[0] &&
                         !strcmp(fb_figures[i].metric, fb_figures[j].metric));
        }
}

static void every_figure_is_in_the_json(void **state)
{
    struct fb_snapshot now = { .used = 5, .wait_share = 0.5, .host_total = UINT64_MAX };
    json_t *all = fb_snapshot_json(&now);
    char text[32];

    (void)state;
    for (unsigned i = 0; i < fb_figure_count; i++) {
        const struct fb_figure *one = &fb_figures[i];
        json_t *group = one->group[0] ? json_object_get(all, one->group) : all;
        json_t *value = json_object_get(group, one->key);

        assert_non_null(value);
        if (json_is_null(value))
            assert_string_equal(fb_figure_text(one, &now, text), "n/a");
        else
            assert_true(json_number_value(value) == fb_figure_value(one, &now));
    }
    assert_int_equal(json_integer_value(json_object_get(json_object_get(all, "memory"),
                                                        "used_bytes")), 5);
    assert_true(json_is_null(json_object_get(json_object_get(all, "host"), "total_bytes")));
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_figures_share_a_name),
        cmocka_unit_test(every_figure_is_in_the_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
