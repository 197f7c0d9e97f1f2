/* fuzz_csv.c -- any bytes as CSV: the two scanners agree, cells lie inside the text, numbers are
 * those of strtod. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/csv.h"
#include "decode/number.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_number(const char *at, const char *end)
{
    char text[FB_NUMBER_BYTES + FB_NUMBER_PADDING] = "";
    double value = 0, quick = 0;
    size_t length = (size_t)(end - at);
    enum fb_number status;

    if (length > FB_NUMBER_BYTES)
        return;
    memcpy(text, at, length);
    status = fb_number_f64(at, end, &value);
    if (fb_number_f64_padded(text, text + length, &quick) != status ||
        (quick != value && !isnan(value)))
        abort();
    if (status != FB_NUMBER_OK)
        return;
    if (!isnan(value) && value != strtod(text, NULL))
        abort();
}

static void check_cells(const char *text, const uint32_t *ends, unsigned count, uint64_t bytes,
                        char *cell)
{
    uint64_t from = 0;

    for (unsigned i = 0; i < count; i++) {
        if (ends[i] < from || ends[i] >= bytes)
            abort();
        if (text[from] == '"' && from < ends[i]) {
            uint64_t length = fb_csv_unquote(text + from, text + ends[i], cell);

            if (length > ends[i] - from)
                abort();
            check_number(cell, cell + length);
        } else {
            check_number(text + from, text + ends[i]);
        }
        from = (uint64_t)ends[i] + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + FB_CSV_PADDING), *cell = malloc(size + 1);
    uint32_t *one = malloc((size + 64) * sizeof(*one)), *two = malloc((size + 64) * sizeof(*two));
    struct fb_csv csv = { .text = text, .bytes = size, .last = true, .delimiter = ',' };
    struct fb_csv other;
    unsigned count = 0, again = 0, found;

    if (text && cell && one && two) {
        memcpy(text, data, size);
        csv.line = fb_csv_line_end(text, size);
        other = csv;
        memset(text + size, ',', FB_CSV_PADDING);
        while ((found = fb_csv_scan(&csv, one + count, 64)))
            count += found;
        while ((found = fb_csv_scan_plain(&other, two + again, 64)))
            again += found;
        if (count != again || memcmp(one, two, count * sizeof(*one)) != 0)
            abort();
        check_cells(text, one, count, size, cell);
    }
    free(text);
    free(cell);
    free(one);
    free(two);
    return 0;
}
