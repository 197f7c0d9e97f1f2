/* order_subset.c -- a file of sample numbers: only these are used. */
#include <stdio.h>

#include "base/size.h"
#include "memory/block.h"
#include "order/order_internal.h"
#include "order/lines.h"

#define WHAT "order.subset"

static bool parse_sample(const char *text, uint64_t samples, uint64_t *sample)
{
    uint64_t number = 0;

    for (; *text; text++) {
        if (*text < '0' || *text > '9' || number >= FB_MAX_SAMPLES)
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
    }
    *sample = number;
    return number < samples;
}

void fb_sort_by_bits(uint64_t *items, uint64_t count, const uint64_t *values, int bit)
{
    uint64_t low = 0, high = count, mask;

    if (count < 2 || bit < 0)
        return;
    mask = (uint64_t)1 << bit;
    while (low < high) {
        uint64_t item = items[low];

        if (!((values ? values[item] : item) & mask)) {
            low++;
            continue;
        }
        high--;
        items[low] = items[high];
        items[high] = item;
    }
    fb_sort_by_bits(items, low, values, bit - 1);
    fb_sort_by_bits(items + low, count - low, values, bit - 1);
}

static uint64_t ranked(const struct fb_subset *subset, uint64_t i)
{
    return subset->list[subset->by_value ? subset->by_value[i] : i];
}

/* Read all lines; into the list if there is one, else only count them. */
static int read_lines(struct fb_subset *subset, struct fb_lines *lines, uint64_t samples,
                      uint64_t *count, forebay_error *error)
{
    char text[FB_LINE_BYTES];
    uint64_t sample = 0, room = subset->list ? subset->count : samples;
    bool got;
    int status;

    for (*count = 0;; ++*count) {
        status = fb_lines_next(lines, text, &got, error);
        if (status || !got)
            return status;
        if (!parse_sample(text, samples, &sample)) {
            status = fb_lines_refuse(lines, text, "the number of a sample", error);
            fb_error_context(error, "the source has samples 0 to %llu",
                             (unsigned long long)(samples - 1));
            return status;
        }
        if (*count == room)
            return fb_lines_refuse(lines, text,
                                   subset->list ? "the end: the file grew while it was read"
                                                : "the end: there are more lines than samples",
                                   error);
        if (subset->list)
            subset->list[*count] = sample;
    }
}

static int read_file(struct fb_subset *subset, const char *path, uint64_t samples, uint64_t *count,
                     struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct fb_lines lines;
    int status = fb_lines_open(&lines, path, WHAT, budget, log, error);

    if (status)
        return status;
    status = read_lines(subset, &lines, samples, count, error);
    fb_lines_close(&lines);
    return status;
}

/* Only for the message: the line where `twice` stands for the second time. */
static int refuse_twice(const char *path, uint64_t twice, struct fb_budget *budget,
                        forebay_error *error)
{
    struct fb_lines lines;
    char text[FB_LINE_BYTES], expected[96];
    uint64_t sample = 0, first = 0;
    bool got = true;
    int status = fb_lines_open(&lines, path, WHAT, budget, NULL, error);

    if (status)
        return status;
    while (!(status = fb_lines_next(&lines, text, &got, error)) && got) {
        if (!parse_sample(text, FB_MAX_SAMPLES, &sample) || sample != twice)
            continue;
        if (first)
            break;
        first = lines.line;
    }
    if (!status) {
        snprintf(expected, sizeof(expected), "each sample once: it stands in line %llu, too",
                 (unsigned long long)first);
        status = fb_lines_refuse(&lines, text, expected, error);
    }
    fb_lines_close(&lines);
    return status;
}

static bool is_ascending(const struct fb_subset *subset, uint64_t *twice)
{
    *twice = FB_NOWHERE;
    for (uint64_t i = 1; i < subset->count; i++) {
        if (ranked(subset, i - 1) == ranked(subset, i))
            *twice = ranked(subset, i);
        if (ranked(subset, i - 1) >= ranked(subset, i))
            return false;
    }
    return true;
}

/* Make it searchable: sort the list, or, if its order counts, places in it. */
static int sort_list(struct fb_subset *subset, bool keep_order, struct fb_budget *budget,
                     forebay_error *error)
{
    if (!keep_order) {
        fb_sort_by_bits(subset->list, subset->count, NULL, 40);
        return FOREBAY_OK;
    }
    subset->by_value =
        fb_block_new(budget, FB_STAGE_INDEX, subset->count, sizeof(uint64_t), WHAT, error);
    if (!subset->by_value)
        return error->status;
    for (uint64_t i = 0; i < subset->count; i++)
        subset->by_value[i] = i;
    fb_sort_by_bits(subset->by_value, subset->count, subset->list, 40);
    return FOREBAY_OK;
}

int fb_subset_read(struct fb_subset *subset, const char *path, uint64_t samples, bool keep_order,
                   struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    uint64_t count, twice;
    int status = read_file(subset, path, samples, &count, budget, log, error);

    if (status)
        return status;
    if (!count) {
        status = fb_fail(error, FOREBAY_BAD_DATA, WHAT ": '%s' names no sample", path);
        fb_error_place(error, "%s", path);
        return status;
    }
    /* Read twice rather than grown: the list is exactly as large as it must be. */
    subset->list = fb_block_new(budget, FB_STAGE_INDEX, count, sizeof(uint64_t), WHAT, error);
    if (!subset->list)
        return error->status;
    subset->count = count;
    status = read_file(subset, path, samples, &count, budget, log, error);
    if (!status && count < subset->count)
        status = fb_fail(error, FOREBAY_BAD_DATA, WHAT ": '%s' shrank while it was read", path);
    if (!status && !is_ascending(subset, &twice))
        status = sort_list(subset, keep_order, budget, error);
    if (!status && !is_ascending(subset, &twice))
        status = refuse_twice(path, twice, budget, error);
    for (uint64_t i = 0; !status && i < subset->count; i++)
        subset->hash = fb_mix2(subset->hash, subset->list[i]);
    return status;
}

void fb_subset_release(struct fb_subset *subset, struct fb_budget *budget)
{
    fb_block_free(budget, FB_STAGE_INDEX, subset->list, subset->count, sizeof(uint64_t));
    fb_block_free(budget, FB_STAGE_INDEX, subset->by_value, subset->count, sizeof(uint64_t));
    *subset = (struct fb_subset){ 0 };
}

uint64_t fb_subset_below(const struct fb_subset *subset, uint64_t sample)
{
    uint64_t low = 0, high = subset->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (ranked(subset, middle) < sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t fb_subset_find(const struct fb_subset *subset, uint64_t sample)
{
    uint64_t i = fb_subset_below(subset, sample);

    if (i == subset->count || ranked(subset, i) != sample)
        return FB_NOWHERE;
    return subset->by_value ? subset->by_value[i] : i;
}
