/* fuzz_cache.c -- scribble over a segment between any two calls: errors and misses are fine, a
 * crash, a hang or a byte outside the area is not. The input is a list of steps of 8 bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cache/inside.h"
#include "config/config.h"

#define UNITS 24
#define PINS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct step {
    uint8_t what, unit;
    uint16_t where;
    uint32_t value;
};

struct play {
    struct fb_cache *cache;
    struct fb_cache_pin pins[PINS];
    enum fb_cache_answer answers[PINS];
    char bytes[40000];
};

/* Somewhere in header, rows, pins, entries or one of the tables of pages. */
static void scribble(struct fb_cache *cache, struct step step)
{
    struct fb_layout *layout = &cache->segment.layout;
    uint64_t areas[] = { 0,
                         layout->rows_at,
                         layout->pins_at,
                         layout->entries_at,
                         layout->owners_at,
                         layout->links_at,
                         layout->bits_at,
                         layout->summary_at };
    uint64_t at = areas[step.unit % 8] + step.where % 1024;
    uint64_t value = step.value;

    if (step.unit & 8)
        value |= value << 32;
    memcpy(cache->segment.base + at, &value, step.unit & 16 ? 8 : 4);
}

static void find(struct play *play, struct step step)
{
    unsigned which = step.where % PINS;
    uint64_t bytes = step.value & 1 ? 1 + step.unit * 1500u : step.value % 40000;

    if (play->answers[which] != FB_CACHE_MISS)
        return;
    play->answers[which] =
        fb_cache_find(play->cache, step.unit, bytes, step.value, false, &play->pins[which]);
}

static void copy(struct play *play, struct step step)
{
    struct fb_cache_pin *pin = &play->pins[step.where % PINS];
    uint64_t offset = step.value % 50000, bytes = step.unit * 200u;

    if (play->answers[step.where % PINS] == FB_CACHE_MISS)
        return;
    if (step.value & 1u << 31)
        fb_cache_read(play->cache, pin, offset, play->bytes, fb_min(bytes, sizeof(play->bytes)),
                      NULL);
    else
        fb_cache_write(play->cache, pin, offset, play->bytes, fb_min(bytes, sizeof(play->bytes)),
                       NULL);
}

static void finish(struct play *play, unsigned which, bool publish)
{
    enum fb_cache_answer answer = play->answers[which];

    play->answers[which] = FB_CACHE_MISS;
    if (answer == FB_CACHE_FILL && !publish) {
        fb_cache_abandon(play->cache, &play->pins[which]);
        return;
    }
    if (answer == FB_CACHE_FILL)
        fb_cache_publish(play->cache, &play->pins[which]);
    if (answer != FB_CACHE_MISS)
        fb_cache_done(play->cache, &play->pins[which]);
}

static void take_step(struct play *play, struct step step)
{
    struct fb_cache_report report;

    switch (step.what % 8) {
    case 0:
    case 1:
        scribble(play->cache, step);
        break;
    case 2:
    case 3:
        find(play, step);
        break;
    case 4:
        copy(play, step);
        break;
    case 5:
        finish(play, step.where % PINS, step.value & 1);
        break;
    case 6:
        fb_cache_set_limit(play->cache, step.value % (2 * FB_MIB));
        fb_cache_read_report_together(play->cache, &report);
        break;
    case 7:
        fb_sweep_row(play->cache, step.unit % play->cache->segment.geometry.rows,
                     (uint64_t)step.value << 32 | 1);
        fb_limit_settle(play->cache);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_budget *budget = NULL;
    struct fb_cache_options options = {
        .unit_count = UNITS,
        .unit_bytes_median = 20000,
        .unit_bytes_max = 40000,
        .limit_bytes = FB_MIB,
        .pins_max = PINS,
        .share = FB_SHARE_OFF,
    };
    struct play *play;

    if (size < 1)
        return 0;
    play = calloc(1, sizeof(*play));
    if (!play || fb_budget_new(&budget, 4 * FB_MIB, NULL))
        abort();
    options.unit_bytes = data[0] & 4 ? 8000 : 0;
    options.policy = fb_policies[FB_POLICY_FILL + data[0] % (FB_POLICY_COUNT - 1)];
    options.budget = budget;
    if (fb_cache_open(&play->cache, &options, NULL))
        abort();
    for (size_t at = 1; at + sizeof(struct step) <= size; at += sizeof(struct step)) {
        struct step step;

        memcpy(&step, data + at, sizeof(step));
        take_step(play, step);
    }
    for (unsigned i = 0; i < PINS; i++)
        finish(play, i, false);
    fb_cache_close(play->cache);
    fb_budget_free(budget);
    free(play);
    return 0;
}
