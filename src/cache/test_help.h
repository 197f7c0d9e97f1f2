/* test_help.h -- what the tests of the cache have in common. */
#ifndef FB_CACHE_TEST_HELP_H
#define FB_CACHE_TEST_HELP_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mix.h"
#include "base/size.h"
#include "cache/inside.h"
#include "config/config.h"

#define MUCH ((uint64_t)1 << 40)

static inline struct fb_budget *budget_of(uint64_t bytes)
{
    struct fb_budget *budget;

    assert_int_equal(fb_budget_new(&budget, bytes, NULL), 0);
    return budget;
}

static inline struct fb_cache_options options_of(struct fb_budget *budget, int policy,
                                                 uint64_t units, uint64_t unit_bytes,
                                                 uint64_t limit)
{
    return (struct fb_cache_options){
        .unit_count = units,
        .unit_bytes = unit_bytes,
        .unit_bytes_median = unit_bytes,
        .unit_bytes_max = unit_bytes,
        .limit_bytes = limit,
        .policy = fb_policies[policy],
        .pins_max = 64,
        .share = FB_SHARE_OFF,
        .budget = budget,
    };
}

static inline struct fb_cache *open_of(const struct fb_cache_options *options)
{
    struct fb_cache *cache;
    forebay_error error = { 0 };

    if (fb_cache_open(&cache, options, &error))
        fail_msg("%s", error.message);
    return cache;
}

/* Of a shared cache that nobody else has. */
static inline uint64_t fresh_identity(void)
{
    static uint64_t count;

    return fb_mix2(fb_now_ns(), (uint64_t)getpid() + (++count << 32));
}

/* The limit with which exactly `held` equal units are kept. */
static inline uint64_t limit_for(uint64_t units, uint64_t unit_bytes, uint64_t held)
{
    struct fb_cache_options options = options_of(NULL, FB_POLICY_FILL, units, unit_bytes, MUCH);
    struct fb_geometry geometry;
    struct fb_layout layout;

    assert_int_equal(fb_geometry_choose(&geometry, &options, false, NULL), 0);
    assert_true(fb_geometry_layout(&geometry, &layout));
    return fb_round_up(sizeof(struct fb_cache), 4096) + 4096 + layout.fixed_bytes +
           fb_round_up(held * (unit_bytes + layout.table_cost) + (unit_bytes % 4096 ? 4095 : 0), 4096);
}

static inline unsigned char byte_of(uint64_t unit, uint64_t at)
{
    return (unsigned char)(unit * 31 + at * 7 + at / 251);
}

static inline void fill_unit(struct fb_cache *cache, struct fb_cache_pin *pin)
{
    unsigned char *bytes = malloc(pin->bytes);

    for (uint64_t i = 0; i < pin->bytes; i++)
        bytes[i] = byte_of(pin->unit, i);
    assert_int_equal(fb_cache_write(cache, pin, 0, bytes, pin->bytes, NULL), 0);
    free(bytes);
    fb_cache_publish(cache, pin);
}

static inline void check_unit(struct fb_cache *cache, const struct fb_cache_pin *pin)
{
    unsigned char *bytes = malloc(pin->bytes);

    assert_int_equal(fb_cache_read(cache, pin, 0, bytes, pin->bytes, NULL), 0);
    for (uint64_t i = 0; i < pin->bytes; i++)
        assert_int_equal(bytes[i], byte_of(pin->unit, i));
    free(bytes);
}

/* Use a unit as a worker does; the answer. */
static inline enum fb_cache_answer use(struct fb_cache *cache, uint64_t unit, uint64_t bytes,
                                       uint64_t next_use)
{
    struct fb_cache_pin pin;
    enum fb_cache_answer answer = fb_cache_find(cache, unit, bytes, next_use, true, &pin);

    if (answer == FB_CACHE_FILL)
        fill_unit(cache, &pin);
    if (answer != FB_CACHE_MISS) {
        check_unit(cache, &pin);
        fb_cache_done(cache, &pin);
    }
    return answer;
}

static inline uint64_t in_ledger(struct fb_budget *budget)
{
    struct fb_budget_report report;

    fb_budget_read(budget, &report);
    return report.by_stage[FB_STAGE_CACHE];
}

/* How many items the report has, at the latest when a sweep has counted them again. */
static inline uint64_t items_soon(struct fb_cache *cache, uint64_t items)
{
    uint64_t deadline = fb_now_ns() + 5000000000u;
    struct fb_cache_report report;

    do
        fb_cache_read_report(cache, &report);
    while (report.items != items && fb_now_ns() < deadline && !sched_yield());
    return report.items;
}

/* Every page has one owner, every owner has all its pages, nobody is at anything, the counters
 * agree, and `members` live. */
static inline void audit(struct fb_cache *cache, unsigned members)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t items = 0, pages = 0, owned = 0, settled = fb_now_ns() + 5000000000u;
    struct fb_cache_report report;

    /* The service may be evicting down to a lowered limit. */
    while (fb_pages_touched(segment) > fb_limit_pages(cache) && fb_now_ns() < settled)
        sched_yield();
    fb_cache_read_report(cache, &report);
    assert_int_equal(report.members, members);
    for (uint64_t unit = 0; unit < segment->geometry.entries; unit++) {
        struct fb_entry *entry = &segment->entries[unit];
        uint64_t count, page = atomic_load(&entry->head);

        if (fb_entry_state(segment, unit) == FB_FREE)
            continue;
        assert_int_equal(fb_entry_state(segment, unit), FB_READY);
        items++;
        count = fb_pages_for(segment, atomic_load(&entry->bytes));
        pages += count;
        for (; count; count--) {
            assert_true(page < segment->geometry.pages);
            assert_int_equal(atomic_load(&segment->owners[page]), unit + 1);
            page = segment->geometry.chained ? atomic_load(&segment->links[page]) : 0;
        }
    }
    for (uint64_t page = 0; page < segment->geometry.pages; page++) {
        uint64_t deadline = fb_now_ns() + 5000000000u;

        /* The service may be giving memory back at this moment. */
        while (atomic_load(&segment->owners[page]) >= FB_PAGE_HELD && fb_now_ns() < deadline)
            sched_yield();
        owned += atomic_load(&segment->owners[page]) != 0;
    }
    assert_int_equal(owned, pages);
    assert_int_equal(items_soon(cache, items), items);
    for (uint64_t slot = 0; slot < (uint64_t)segment->geometry.rows * segment->geometry.pins;
         slot++)
        assert_int_equal(atomic_load(&segment->pins[slot]), 0);
}
#endif
