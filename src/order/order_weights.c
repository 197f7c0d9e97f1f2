/*
 * order_weights.c -- draws with replacement by weight, each a function of (seed, epoch, position).
 *
 * An alias table: of n columns of height 1 one is drawn evenly, then either its own sample (below
 * `keep`) or its alias. So a draw is O(1) whatever the weights, and a sample of weight 0 is never
 * drawn. Made in place, with no memory but the table's own.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/block.h"
#include "order/order_internal.h"
#include "order/lines.h"

#define WHAT "order.weights"

static bool parse_weight(const char *text, locale_t plain, double *weight)
{
    char *end;

    *weight = strtod_l(text, &end, plain);
    return end != text && !*end && isfinite(*weight) && *weight >= 0;
}

static int read_weights(struct fb_draws *draws, struct fb_lines *lines, locale_t plain,
                        forebay_error *error)
{
    char text[FB_LINE_BYTES], expected[96];
    uint64_t bits;
    bool got;
    int status;

    for (uint64_t i = 0;; i++) {
        status = fb_lines_next(lines, text, &got, error);
        if (status || (!got && i == draws->count))
            return status;
        if (!got || i == draws->count) {
            snprintf(expected, sizeof(expected),
                     "%llu lines, a weight for each sample of the source",
                     (unsigned long long)draws->count);
            return fb_lines_refuse(lines, got ? text : "the end of the file", expected, error);
        }
        if (!parse_weight(text, plain, &draws->keep[i]))
            return fb_lines_refuse(lines, text, "a weight: a number, finite and not negative",
                                   error);
        memcpy(&bits, &draws->keep[i], sizeof(bits));
        draws->hash = fb_mix2(draws->hash, bits);
    }
}

static int read_file(struct fb_draws *draws, const char *path, struct fb_budget *budget,
                     const struct fb_log *log, forebay_error *error)
{
    struct fb_lines lines;
    locale_t plain; /* the caller's locale may write 0,5 */
    int status = fb_lines_open(&lines, path, WHAT, budget, log, error);

    if (status)
        return status;
    plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (plain) {
        status = read_weights(draws, &lines, plain, error);
        freelocale(plain);
    } else {
        status = fb_fail_errno(error, FOREBAY_NO_MEMORY, WHAT ": cannot make a locale");
    }
    fb_lines_close(&lines);
    return status;
}

/* Heights in units of one column. A long double: the sum of finite weights must stay finite. */
static bool scale(struct fb_draws *draws)
{
    long double total = 0;

    for (uint64_t i = 0; i < draws->count; i++)
        total += draws->keep[i];
    if (!(total > 0))
        return false;
    for (uint64_t i = 0; i < draws->count; i++)
        draws->keep[i] = (double)(draws->keep[i] * (long double)draws->count / total);
    return true;
}

static uint64_t next_where(const struct fb_draws *draws, uint64_t i, bool large)
{
    while (i < draws->count && (draws->keep[i] >= 1) != large)
        i++;
    return i;
}

/* Each column below 1 is filled up from one above; what falls below 1 by that is filled next if
 * the scan for low columns has passed it already, else when the scan comes there. */
static void make_aliases(struct fb_draws *draws)
{
    uint64_t low = next_where(draws, 0, false), high = next_where(draws, 0, true);
    uint64_t column = low, last = high < draws->count ? high : 0;

    while (column < draws->count && high < draws->count) {
        last = high;
        draws->alias[column] = (uint32_t)high;
        draws->keep[high] -= 1 - draws->keep[column];
        column = FB_NOWHERE;
        if (draws->keep[high] < 1) {
            if (high < low)
                column = high;
            high = next_where(draws, high + 1, true);
        }
        if (column == FB_NOWHERE)
            column = low = next_where(draws, low + 1, false);
    }
    /* Rounding may leave columns a hair below 1, and ones of weight 0 must still find a sample. */
    for (; column < draws->count; column = low = next_where(draws, low + 1, false))
        draws->alias[column] = (uint32_t)last;
}

int fb_draws_read(struct fb_draws *draws, const char *path, uint64_t samples,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    int status;

    if (samples > UINT32_MAX)
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       WHAT ": the source has %llu samples, weights can be had for %llu at most",
                       (unsigned long long)samples, (unsigned long long)UINT32_MAX);
    draws->count = samples;
    draws->keep = fb_block_new(budget, FB_STAGE_INDEX, samples, sizeof(double), WHAT, error);
    if (draws->keep)
        draws->alias = fb_block_new(budget, FB_STAGE_INDEX, samples, sizeof(uint32_t), WHAT, error);
    if (!draws->alias)
        return error->status;
    status = read_file(draws, path, budget, log, error);
    if (status)
        return status;
    if (!scale(draws)) {
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         WHAT ": '%s' lines 1 to %llu: all weights are 0, nothing can be drawn",
                         path, (unsigned long long)samples);
        fb_error_place(error, "%s:1", path);
        return status;
    }
    make_aliases(draws);
    return FOREBAY_OK;
}

void fb_draws_release(struct fb_draws *draws, struct fb_budget *budget)
{
    fb_block_free(budget, FB_STAGE_INDEX, draws->keep, draws->count, sizeof(double));
    fb_block_free(budget, FB_STAGE_INDEX, draws->alias, draws->count, sizeof(uint32_t));
    *draws = (struct fb_draws){ 0 };
}

uint64_t fb_draws_at(const struct fb_draws *draws, uint64_t key, uint64_t position)
{
    struct fb_random random = { fb_mix2(key, position) };
    uint64_t column = fb_random_below(&random, draws->count);

    return fb_random_unit(&random) < draws->keep[column] ? column : draws->alias[column];
}
