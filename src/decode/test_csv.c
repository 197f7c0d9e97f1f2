#include "decode/csv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mix.h"

#define MOST 512

/* Ends found by a scanner, with the text given in one piece or growing by `step`. */
static unsigned ends_of(unsigned (*scan)(struct fb_csv *, uint32_t *, unsigned), const char *text,
                        uint64_t bytes, uint64_t step, char line, uint32_t *ends)
{
    struct fb_csv csv = { .text = text, .delimiter = ',', .line = line };
    unsigned count = 0;

    do {
        unsigned found;

        csv.bytes = csv.bytes + step < bytes ? csv.bytes + step : bytes;
        csv.last = csv.bytes == bytes;
        while ((found = scan(&csv, ends + count, 64)))
            count += found;
    } while (csv.bytes < bytes);
    return count;
}

/* The rule, a byte at a time. */
static unsigned expected_ends(const char *text, uint64_t bytes, char line, uint32_t *ends)
{
    bool quoted = false;
    uint64_t cell = 0;
    unsigned count = 0;

    for (uint64_t i = 0; i < bytes; i++) {
        if (text[i] == '"') {
            if (!quoted)
                quoted = i == cell;
            else if (i + 1 < bytes && text[i + 1] == '"')
                i++;
            else
                quoted = false;
        } else if (!quoted && (text[i] == ',' || text[i] == line)) {
            ends[count++] = (uint32_t)i;
            cell = i + 1;
        }
    }
    return count;
}

static void any_text_is_cut_by_the_rule(void **state)
{
    static const char alphabet[] = "ab\"\",\n\"x\r";
    struct fb_random random = { 7 };

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        char text[300 + FB_CSV_PADDING];
        uint32_t expected[MOST], found[MOST];
        uint64_t bytes = fb_random_below(&random, 300), kinds = 2 + fb_random_below(&random, 8);
        char line = i % 2 ? '\n' : '\r';
        unsigned count;

        memset(text, '"', sizeof(text));
        for (uint64_t k = 0; k < bytes; k++)
            text[k] = alphabet[fb_random_below(&random, kinds)];
        count = expected_ends(text, bytes, line, expected);
        for (unsigned variant = 0; variant < 4; variant++) {
            uint64_t step = variant & 1 ? 1 + fb_random_below(&random, 70) : bytes;
            unsigned got = ends_of(variant & 2 ? fb_csv_scan : fb_csv_scan_plain, text, bytes, step,
                                   line, found);

            if (got != count || memcmp(expected, found, count * sizeof(*found)) != 0)
                fail_msg("'%.*s': %u ends, not %u (variant %u)", (int)bytes, text, got, count,
                         variant);
        }
    }
}

static void quotes_come_off(void **state)
{
    static const struct {
        const char *cell, *text;
    } cases[] = { { "\"\"", "" },           { "\"a\"", "a" },     { "\"a\"\"b\"", "a\"b" },
                  { "\"a,b\n\"", "a,b\n" }, { "\"a\"bc", "abc" }, { "\"a\"b\"c\"", "ab\"c\"" },
                  { "\"open", "open" },     { "\"\"\"\"", "\"" } };
    char to[32];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *cell = cases[i].cell;
        uint64_t bytes = fb_csv_unquote(cell, cell + strlen(cell), to);

        if (bytes != strlen(cases[i].text) || memcmp(to, cases[i].text, bytes) != 0)
            fail_msg("%s became '%.*s'", cell, (int)bytes, to);
    }
}

static void the_first_line_end_outside_of_quotes_tells(void **state)
{
    static const struct {
        const char *text;
        char line;
    } cases[] = { { "a,b\n1,2\n", '\n' },       { "a,b\r\n1,2\r\n", '\n' },
                  { "a,b\r1,2\r", '\r' },       { "\"a\rb\",c\n1,2\n", '\n' },
                  { "\"a\nb\",c\r1,2\r", '\r' }, { "5\" disk,c\r1,2\r", '\r' },
                  { "\"a\"\"\n\",c\r1", '\r' }, { "", '\n' },
                  { "a", '\n' },                { "a\r", '\n' } };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (fb_csv_line_end(cases[i].text, strlen(cases[i].text)) != cases[i].line)
            fail_msg("case %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_text_is_cut_by_the_rule),
        cmocka_unit_test(quotes_come_off),
        cmocka_unit_test(the_first_line_end_outside_of_quotes_tells),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
