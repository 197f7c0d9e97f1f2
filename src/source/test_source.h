/* test_source.h -- what the tests of sources stand on: a folder, a budget, a reader, a source; and
 * that nothing of it is left. */
#ifndef FB_SOURCE_TEST_SOURCE_H
#define FB_SOURCE_TEST_SOURCE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"
#include "source/source.h"

static struct fb_budget *budget;
static struct fb_reader *reader;
static struct fb_source *source;
static forebay_error error;
static char folder[64];

/* A folder of this test's own, and a budget of so many bytes. */
static inline int stand_begin(const char *name, uint64_t bytes)
{
    snprintf(folder, sizeof(folder), "/tmp/forebay-%s-XXXXXX", name);
    source = NULL;
    return !mkdtemp(folder) || fb_budget_new(&budget, bytes, &error) ||
           fb_reader_new(&reader, NULL, &error);
}

/* Whatever was not given back is a leak. */
static inline int stand_end(void **state)
{
    struct fb_budget_report report;
    char command[128];

    (void)state;
    fb_source_close(source);
    source = NULL;
    fb_reader_free(reader);
    fb_budget_read(budget, &report);
    fb_budget_free(budget);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) != 0 || report.used != 0;
}

static inline void write_bytes(const char *name, const void *bytes, size_t count)
{
    char whole[256];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s/%s", folder, name);
    file = fopen(whole, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* With every budget up to `most` it opens, or says that the budget is too small; and gives all back. */
static inline void open_on_small_budgets(const struct fb_config *config, uint64_t most)
{
    for (uint64_t bytes = 4096; bytes < most; bytes += bytes / 3) {
        struct fb_budget_report report;
        struct fb_source *opened = NULL;
        struct fb_budget *small;

        assert_int_equal(fb_budget_new(&small, bytes, &error), 0);
        if (fb_source_open(&opened, config, small, NULL, &error))
            assert_int_equal(error.status, FOREBAY_OVER_BUDGET);
        else
            fb_source_close(opened);
        fb_budget_read(small, &report);
        assert_int_equal(report.used, 0);
        assert_true(report.peak <= bytes);
        fb_budget_free(small);
    }
}
#endif
