#include <string.h>

#include "decode/date.h"
#include "decode/number.h"
#include "source/table/table.h"

const char *const fb_cell_names[FB_CELL_COUNT] = { "i64",  "u64",  "f32",      "f64",
                                                   "bool", "date", "datetime", "category" };

bool fb_table_is_missing(const char *at, const char *end)
{
    static const char *const words[] = { "#N/A", "#N/A N/A", "#NA",    "-1.#IND", "-1.#QNAN",
                                         "-NaN", "-nan",     "1.#IND", "1.#QNAN", "<NA>",
                                         "N/A",  "NA",       "NULL",   "NaN",     "None",
                                         "n/a",  "nan",      "null" };
    size_t length = (size_t)(end - at);

    if (length == 0)
        return true;
    if (length > 8 || !strchr("#-1<Nn", *at))
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == length && memcmp(at, words[i], length) == 0)
            return true;
    return false;
}

bool fb_table_bool(const char *at, const char *end, bool *value)
{
    static const char *const words[] = { "true", "false", "True", "False", "TRUE", "FALSE" };
    size_t length = (size_t)(end - at);

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == length && memcmp(at, words[i], length) == 0) {
            *value = i % 2 == 0;
            return true;
        }
    return false;
}

uint8_t fb_table_cell_seen(const struct fb_table *table, const char *at, const char *end)
{
    int64_t integer;
    double real;
    bool truth;
    enum fb_number whole = fb_number_i64(at, end, &integer);

    if (whole == FB_NUMBER_OK)
        return FB_SEEN_I64;
    if (whole == FB_NUMBER_RANGE && !table->matrix) /* a matrix has f32 whatever it is */
        return FB_SEEN_U64;
    if (fb_number_f64(at, end, &real) != FB_NUMBER_NONE)
        return FB_SEEN_F64;
    if (fb_table_bool(at, end, &truth))
        return FB_SEEN_BOOL;
    if (fb_date_days(at, end, &integer) != FB_NUMBER_NONE)
        return FB_SEEN_DATE;
    return fb_date_ns(at, end, &integer) != FB_NUMBER_NONE ? FB_SEEN_TIME : FB_SEEN_WORD;
}

uint8_t fb_table_type_of(uint8_t seen)
{
    bool numbers = seen & (FB_SEEN_I64 | FB_SEEN_U64 | FB_SEEN_F64);
    bool times = seen & (FB_SEEN_DATE | FB_SEEN_TIME), truths = seen & FB_SEEN_BOOL;

    if (seen & FB_SEEN_WORD || numbers + times + truths > 1)
        return FB_CELL_CATEGORY;
    if (truths)
        return seen & FB_SEEN_MISSING ? FB_CELL_CATEGORY : FB_CELL_BOOL;
    if (times)
        return seen & FB_SEEN_TIME ? FB_CELL_TIME : FB_CELL_DATE;
    if (seen & FB_SEEN_F64)
        return FB_CELL_F64;
    if (seen & FB_SEEN_U64)
        return FB_CELL_U64;
    return seen & FB_SEEN_MISSING ? FB_CELL_F64 : FB_CELL_I64;
}
