/* Hit rates against the figures of the simulation the project began with (docs/plan.md). */
#include "plan/curve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"
#include "cache/cache.h"
#include "plan/simulate.h"

#define NEAR 0.01

/* ---- A source of which only the shape matters: sample s uses units first(s) .. + parts ---- */

struct shape {
    struct fb_source base;
    struct fb_field field;
    uint64_t samples_a_unit; /* windows of a file; 1 for sequences */
    uint64_t rows;           /* of a slice; 0: all */
};

static unsigned shape_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    const struct shape *shape = (const struct shape *)source;

    for (uint32_t i = 0; i < source->parts_max; i++)
        parts[i] = (struct fb_part){ .unit = sample / shape->samples_a_unit + i, .item = i,
                                     .rows = shape->rows ? shape->rows : FB_ALL_ROWS };
    return source->parts_max;
}

static struct fb_extent shape_extent(const struct fb_source *source, uint64_t unit)
{
    (void)source;
    (void)unit;
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = 1000, .columns = 1 };
}

static const struct fb_source_ops shape_ops = { .kind = "shape", .parts = shape_parts,
                                                .extent = shape_extent };

static struct shape shape_of(uint64_t units, uint64_t samples_a_unit, unsigned parts)
{
    struct shape shape = { .samples_a_unit = samples_a_unit };

    shape.field = (struct fb_field){ .name = "x", .dtype = FOREBAY_U8, .items = parts, .vary = 1,
                                     .ndim = 1, .cell_bytes = 1 };
    shape.base = (struct fb_source){ .ops = &shape_ops,
                                     .sample_count = (units - parts + 1) * samples_a_unit,
                                     .unit_count = units, .field_count = 1, .parts_max = parts,
                                     .unit_bytes_total = units * 1000,
                                     .shared_units = samples_a_unit > 1 || parts > 1 };
    return shape;
}

static struct fb_curve curve_of(struct shape *shape, struct fb_order_options *order,
                                struct fb_ranks ranks, uint64_t planned)
{
    struct fb_curve_options options = { .source = &shape->base, .order_options = order,
                                        .ranks = ranks, .planned_bytes = planned };
    struct fb_order_options whole = *order;
    struct fb_budget *budget;
    struct fb_order *opened;
    struct fb_curve curve;
    forebay_error error;

    shape->base.fields = &shape->field;
    order->samples = whole.samples = shape->base.sample_count;
    whole.ranks = (struct fb_ranks){ .world = 1, .local_world = 1, .nodes = 1 };
    whole.sticky = FB_STICKY_NONE;
    assert_int_equal(fb_budget_new(&budget, FB_GIB, &error), 0);
    assert_int_equal(fb_order_open(&opened, &whole, budget, NULL, &error), 0);
    options.order = opened;
    options.budget = budget;
    assert_int_equal(fb_curve_make(&curve, &options, &error), 0);
    fb_order_close(opened);
    {
        struct fb_budget_report left;

        fb_budget_read(budget, &left);
        assert_int_equal(left.used, 0);
    }
    fb_budget_free(budget);
    return curve;
}

static const struct fb_ranks alone = { .world = 1, .local_world = 1, .nodes = 1 };

/* c, and the hit rates of lru, fill and next-use there. */
struct figures {
    unsigned tenths;
    double lru, fill, next_use;
};

static void check(const struct fb_curve *curve, const struct figures *figures, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct fb_curve_point *point = &curve->points[figures[i].tenths - 1];
        double lru = point->by[FB_POLICY_LRU].hit_rate, fill = point->by[FB_POLICY_FILL].hit_rate;
        double next = point->by[FB_POLICY_NEXT_USE].hit_rate;

        if (fabs(lru - figures[i].lru) > NEAR || fabs(fill - figures[i].fill) > NEAR ||
            fabs(next - figures[i].next_use) > NEAR)
            fail_msg("c = 0.%u: lru %.3f (%.3f), fill %.3f (%.3f), next-use %.3f (%.3f)",
                     figures[i].tenths, lru, figures[i].lru, fill, figures[i].fill, next,
                     figures[i].next_use);
    }
}
#define CHECK(curve, figures) check(curve, figures, sizeof(figures) / sizeof((figures)[0]))

static const struct figures once_an_epoch[] = {
    { 1, .0052, .1, .1 }, { 2, .0214, .2, .2 }, { 3, .0502, .3, .3 },
    { 5, .1532, .5, .5 }, { 7, .3388, .7, .7 }, { 9, .6699, .9, .9 },
};

static void units_used_once_an_epoch_have_closed_forms(void **state)
{
    struct shape shape = shape_of(100000, 1, 1);
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve = curve_of(&shape, &order, alone, 0);

    (void)state;
    assert_false(curve.simulated);
    CHECK(&curve, once_an_epoch);
    assert_true(curve.points[9].by[FB_POLICY_LRU].hit_rate == 1);
    assert_true(fabs(curve.points[4].by[FB_POLICY_FILL].bytes_read - 50e6) < 1);
    assert_true(fabs(curve.points[4].by[FB_POLICY_LRU].bytes_read - 84.66e6) < 1e5);
}

static void the_simulation_gives_what_the_closed_forms_say(void **state)
{
    static const int policies[] = { FB_POLICY_FILL, FB_POLICY_NEXT_USE, FB_POLICY_LRU };
    struct shape shape = shape_of(20000, 1, 1);
    struct fb_order_options order = { .samples = 20000, .shuffle = true, .ranks = alone };
    struct fb_budget *budget;
    struct fb_order *opened;
    struct fb_trace trace;

    (void)state;
    shape.base.fields = &shape.field;
    assert_int_equal(fb_budget_new(&budget, FB_GIB, NULL), 0);
    assert_int_equal(fb_order_open(&opened, &order, budget, NULL, NULL), 0);
    assert_int_equal(fb_trace_make(&trace, &shape.base, opened, 2, &alone, budget, NULL, NULL), 0);
    assert_int_equal(trace.unit_count, 20000);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned tenths = 1; tenths < 10; tenths += 2) {
            double want = fb_curve_once_an_epoch(fb_policies[policies[i]], tenths / 10.0, true);
            struct fb_simulated found;

            assert_int_equal(
                fb_simulate(&found, &trace, fb_policies[policies[i]],
                            trace.unit_count * tenths / 10, NULL),
                0);
            if (fabs(found.hits - want) > NEAR)
                fail_msg("policy %d, c = 0.%u: %.4f, not %.4f", policies[i], tenths, found.hits,
                         want);
        }
    fb_trace_release(&trace);
    fb_order_close(opened);
    fb_budget_free(budget);
}

static void an_order_that_is_not_shuffled_never_hits_under_lru(void **state)
{
    struct shape shape = shape_of(1000, 1, 1);
    struct fb_order_options order = { .shuffle = false };
    struct fb_curve curve = curve_of(&shape, &order, alone, 0);

    (void)state;
    assert_true(curve.points[8].by[FB_POLICY_LRU].hit_rate == 0);
    assert_true(fabs(curve.points[8].by[FB_POLICY_FILL].hit_rate - 0.9) < 1e-9);
}

static void units_of_many_samples_pay_for_knowing_the_next_use(void **state)
{
    static const struct figures five[] = {
        { 1, .081, .1, .375 }, { 3, .249, .3, .625 }, { 5, .430, .5, .778 },
        { 7, .628, .7, .891 }, { 9, .854, .9, .971 },
    };
    static const struct figures many[] = {
        { 1, .095, .1, .398 }, { 3, .288, .3, .653 }, { 5, .483, .5, .803 },
        { 7, .683, .7, .906 }, { 9, .889, .9, .977 },
    };
    struct shape of_five = shape_of(8000, 5, 1), of_many = shape_of(5000, 21, 1);
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve = curve_of(&of_five, &order, alone, 0);

    (void)state;
    assert_true(curve.simulated);
    CHECK(&curve, five);
    curve = curve_of(&of_many, &order, alone, 0);
    CHECK(&curve, many);
    /* The middle one of them: misses x the file. */
    assert_true(fabs(curve.points[4].by[FB_POLICY_NEXT_USE].bytes_read /
                         (5000. * 21 * 1000 * (1 - .803)) - 1) < .05);
}

static void long_orders_are_thinned_and_say_the_same(void **state)
{
    static const struct figures five[] = { { 3, .249, .3, .625 }, { 7, .628, .7, .891 } };
    struct shape shape = shape_of(200000, 5, 1);
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve = curve_of(&shape, &order, alone, 0);

    (void)state;
    CHECK(&curve, five);
}

static void overlapping_sequences_share_their_scans(void **state)
{
    struct shape shape = shape_of(6000, 1, 8);
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve = curve_of(&shape, &order, alone, 0);
    const struct fb_curve_point *half = &curve.points[4];

    (void)state;
    /* Between the 5 and the 21 windows a file of the figures. */
    assert_true(half->by[FB_POLICY_NEXT_USE].hit_rate > .77);
    assert_true(half->by[FB_POLICY_NEXT_USE].hit_rate < .82);
    assert_true(fabs(half->by[FB_POLICY_FILL].hit_rate - .5) < NEAR);
}

static void write_weights(char path[64], uint64_t count)
{
    FILE *file;
    struct fb_random random = { 7 };

    strcpy(path, "/tmp/forebay-curve-XXXXXX");
    file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < count; i++) {
        double radius = sqrt(-2 * log(1 - fb_random_unit(&random)));

        fprintf(file, "%.17g\n", exp(radius * cos(6.283185307179586 * fb_random_unit(&random))));
    }
    fclose(file);
}

/* Lognormal weights, sigma 1 (caching.md 7). */
static void weighted_draws_hit_what_is_drawn_often(void **state)
{
    static const struct figures drawn[] = {
        { 1, .228, .227, .558 }, { 3, .542, .541, .802 }, { 5, .752, .751, .910 },
    };
    struct shape shape = shape_of(30000, 1, 1);
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve;
    char path[64];

    (void)state;
    write_weights(path, 30000);
    order.weights_file = path;
    curve = curve_of(&shape, &order, alone, 0);
    unlink(path);
    /* The noise of which heavy samples came first: two hundredths. */
    for (unsigned i = 0; i < 3; i++) {
        const struct fb_curve_point *point = &curve.points[drawn[i].tenths - 1];

        assert_true(fabs(point->by[FB_POLICY_LRU].hit_rate - drawn[i].lru) < 0.02);
        assert_true(fabs(point->by[FB_POLICY_FILL].hit_rate - drawn[i].fill) < 0.02);
        assert_true(fabs(point->by[FB_POLICY_NEXT_USE].hit_rate - drawn[i].next_use) < 0.02);
    }
}

/* Epochs that draw a part of the data (caching.md 13). */
static void epochs_of_a_part_are_looked_at_over_several(void **state)
{
    static const struct figures half[] = {
        { 1, .010, .1, .2 }, { 3, .1, .3, .55 }, { 5, .307, .5, .749 }, { 7, .583, .7, .881 },
    };
    static const struct figures tenth[] = {
        { 1, .051, .102, .379 }, { 3, .261, .301, .647 }, { 5, .472, .501, .794 },
        { 7, .682, .701, .911 },
    };
    struct shape shape = shape_of(30000, 1, 1);
    struct fb_order_options order = { .shuffle = true, .draws = 15000 };
    struct fb_curve curve = curve_of(&shape, &order, alone, 0);

    (void)state;
    assert_true(curve.simulated);
    CHECK(&curve, half);
    order.draws = 3000;
    curve = curve_of(&shape, &order, alone, 0);
    CHECK(&curve, tenth);
    order.draws = 30000; /* all of them */
    curve = curve_of(&shape, &order, alone, 0);
    assert_false(curve.simulated);
}

static void draws_without_room_to_look_ahead_are_filled(void **state)
{
    struct shape shape = shape_of(3000, 1, 1);
    struct fb_order_options order = { .shuffle = true, .look_ahead_bytes = 100 };
    struct fb_curve curve;
    char path[64];

    (void)state;
    write_weights(path, 3000);
    order.weights_file = path;
    curve = curve_of(&shape, &order, alone, 0);
    unlink(path);
    for (unsigned i = 0; i < FB_CURVE_POINTS; i++)
        assert_true(curve.points[i].by[FB_POLICY_NEXT_USE].hit_rate ==
                    curve.points[i].by[FB_POLICY_FILL].hit_rate);
}

static void nodes_that_do_not_keep_their_part_hit_less(void **state)
{
    static const struct figures four[] = { { 1, .021, .1, .325 }, { 2, .087, .2, .494 } };
    struct shape shape = shape_of(40000, 1, 1);
    struct fb_ranks ranks = { .rank = 1, .world = 4, .local_world = 1, .node = 1, .nodes = 4 };
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve = curve_of(&shape, &order, ranks, 0);

    (void)state;
    CHECK(&curve, four);
    order.sticky = FB_STICKY_NODE;
    curve = curve_of(&shape, &order, ranks, 0);
    assert_false(curve.simulated);
    assert_true(fabs(curve.used_bytes - 10e6) < 1);
}

static void slices_are_read_alone_unless_their_unit_is_admitted(void **state)
{
    struct shape shape = shape_of(600, 47, 1);
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve;

    (void)state;
    shape.rows = 64;
    shape.base.sliced = true;
    curve = curve_of(&shape, &order, alone, 0);
    /* In data sets: 3.0 without a cache, 2.1 with fill, 16.4 if a miss is the whole file. */
    assert_true(fabs(curve.epoch_bytes / 600e3 - 3.0) < .05);
    assert_true(fabs(curve.points[2].by[FB_POLICY_FILL].bytes_read / 600e3 - 2.1) < .05);
    assert_true(curve.points[2].by[FB_POLICY_LRU].bytes_read / 600e3 > 16);
}

static void a_subset_counts_only_what_it_uses(void **state)
{
    struct shape shape = shape_of(1000, 1, 1);
    struct fb_order_options order = { .shuffle = true };
    struct fb_curve curve;
    char path[64] = "/tmp/forebay-curve-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");

    (void)state;
    assert_non_null(file);
    for (unsigned i = 0; i < 250; i++)
        fprintf(file, "%u\n", 4 * i);
    fclose(file);
    order.subset_file = path;
    curve = curve_of(&shape, &order, alone, fb_cache_index_bytes(1000, true) + 125000);
    unlink(path);
    assert_true(fabs(curve.used_bytes - 250e3) < 1);
    assert_true(curve.has_planned);
    assert_true(fabs(curve.planned.by[FB_POLICY_FILL].hit_rate - .5) < 1e-6);
    assert_true(fabs(curve.planned.by[FB_POLICY_FILL].bytes_read - 125e3) < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_used_once_an_epoch_have_closed_forms),
        cmocka_unit_test(the_simulation_gives_what_the_closed_forms_say),
        cmocka_unit_test(an_order_that_is_not_shuffled_never_hits_under_lru),
        cmocka_unit_test(units_of_many_samples_pay_for_knowing_the_next_use),
        cmocka_unit_test(long_orders_are_thinned_and_say_the_same),
        cmocka_unit_test(overlapping_sequences_share_their_scans),
        cmocka_unit_test(weighted_draws_hit_what_is_drawn_often),
        cmocka_unit_test(epochs_of_a_part_are_looked_at_over_several),
        cmocka_unit_test(draws_without_room_to_look_ahead_are_filled),
        cmocka_unit_test(nodes_that_do_not_keep_their_part_hit_less),
        cmocka_unit_test(slices_are_read_alone_unless_their_unit_is_admitted),
        cmocka_unit_test(a_subset_counts_only_what_it_uses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
