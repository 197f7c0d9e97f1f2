/* test_orders.h -- orders of every form to try things on. For test_*.c of this folder only. */
#ifndef FB_ORDER_TEST_ORDERS_H
#define FB_ORDER_TEST_ORDERS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mix.h"
#include "base/size.h"
#include "memory/budget.h"
#include "order/order.h"

enum form {
    SEQUENTIAL,
    SHUFFLED,
    SEQUENCES,
    STRETCHES,
    BLOCKS,
    STICKY_RANK,
    STICKY_NODE,
    BUCKETS,
    SUBSET,
    SUBSET_IN_ORDER,
    SUBSET_SEQUENCES,
    SUBSET_STRETCHES,
    SUBSET_STICKY,
    SUBSET_BUCKETS,
    WEIGHTS,
    PART,
    SUBSET_PART,
    FORMS
};

/* What a form needs to be opened with any number of ranks, and files it stands in. */
struct setting {
    struct fb_order_options options;
    uint64_t ends[64];
    char path[64];
    struct fb_budget *budget;
};

static inline void write_file(char path[64], const char *text, size_t length)
{
    int fd;

    strcpy(path, "/tmp/forebay-order-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, length), (ssize_t)length);
    close(fd);
}

/* Groups of uneven sizes, an empty one among them. */
static inline void make_groups(struct setting *setting, uint64_t samples)
{
    struct fb_random random = { samples };
    uint64_t end = 0, count = 1 + samples / 5 > 60 ? 60 : 1 + samples / 5;

    for (uint64_t i = 0; i < count; i++) {
        if (i % 7 != 3)
            end += fb_random_below(&random, samples - end + 1) / 4;
        setting->ends[i] = i + 1 == count ? samples : end;
    }
    setting->options.group_count = count;
    setting->options.group_ends = setting->ends;
}

/* Every third sample, from high to low; or a weight for each, some 0. */
static inline void make_file(struct setting *setting, enum form form, uint64_t samples)
{
    size_t size = samples * 24 + 24, used = 0;
    char *text = malloc(size);

    for (uint64_t i = samples; i-- > 0;) {
        if (form == WEIGHTS)
            used += (size_t)snprintf(text + used, size - used, "%g\n", (double)(i % 5) * 0.5);
        else if (i % 3 == 0)
            used += (size_t)snprintf(text + used, size - used, "%llu\n", (unsigned long long)i);
    }
    if (form == WEIGHTS && samples == 1) /* the only weight must not be 0 */
        used = (size_t)snprintf(text, size, "2\n");
    write_file(setting->path, text, used);
    free(text);
    if (form == WEIGHTS)
        setting->options.weights_file = setting->path;
    else
        setting->options.subset_file = setting->path;
}

/* How long a sample is, for buckets: some are alike. */
static inline float length_of(const void *data, uint64_t sample)
{
    (void)data;
    return (float)(fb_mix(sample) % 50) / 4 - 1;
}

static inline void setting_init(struct setting *setting, enum form form, uint64_t samples)
{
    forebay_error error;

    memset(setting, 0, sizeof(*setting));
    assert_int_equal(fb_budget_new(&setting->budget, 64 * FB_MIB, &error), 0);
    setting->options.samples = samples;
    setting->options.seed = 42;
    setting->options.shuffle = form != SEQUENTIAL && form != SUBSET_IN_ORDER;
    setting->options.ranks = (struct fb_ranks){ .world = 1, .local_world = 1, .nodes = 1 };
    if (form == SEQUENCES || form == SUBSET_SEQUENCES || form == STRETCHES ||
        form == SUBSET_STRETCHES) {
        setting->options.group = FB_GROUP_SEQUENCE;
        setting->options.stretch = form == STRETCHES || form == SUBSET_STRETCHES ? 11 : 0;
        make_groups(setting, samples);
    }
    if (form == BLOCKS) {
        setting->options.group = FB_GROUP_BLOCK;
        setting->options.block = 7;
        setting->options.window = 4;
    }
    if (form == STICKY_RANK || form == SUBSET_STICKY)
        setting->options.sticky = FB_STICKY_RANK;
    if (form == BUCKETS || form == SUBSET_BUCKETS) {
        setting->options.bucket_batch = 3;
        setting->options.length = length_of;
    }
    if (form == STICKY_NODE)
        setting->options.sticky = FB_STICKY_NODE;
    if (form >= SUBSET && form != PART)
        make_file(setting, form, samples);
    if (form == PART)
        setting->options.draws = samples - samples / 3;
    if (form == SUBSET_PART)
        setting->options.draws = (samples + 2) / 3 - (samples > 24 ? 2 : 0);
}

static inline void setting_release(struct setting *setting)
{
    struct fb_budget_report report;

    fb_budget_read(setting->budget, &report);
    assert_int_equal(report.used, 0); /* every order gave back what it took */
    fb_budget_free(setting->budget);
    if (setting->path[0])
        unlink(setting->path);
}

/* Nodes for `world` ranks: two where that is even. */
static inline struct fb_ranks ranks_of(uint64_t rank, uint64_t world)
{
    uint64_t nodes = world % 2 ? 1 : 2, each = world / nodes;

    return (struct fb_ranks){ rank, world, each, rank / each, nodes, "given" };
}

static inline struct fb_order *order_open(const struct setting *setting, uint64_t rank,
                                          uint64_t world)
{
    struct fb_order_options options = setting->options;
    struct fb_order *order = NULL;
    forebay_error error = { 0 };

    options.ranks = ranks_of(rank, world);
    if (fb_order_open(&order, &options, setting->budget, NULL, &error))
        fail_msg("%s", error.message);
    return order;
}
#endif
