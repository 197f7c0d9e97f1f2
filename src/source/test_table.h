/* test_table.h -- what the tests of the table share: a folder, a budget, files, an open source. */
#ifndef FB_SOURCE_TEST_TABLE_H
#define FB_SOURCE_TEST_TABLE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"
#include "source/source.h"
#include "source/vocabulary.h"

static struct fb_budget *budget;
static forebay_error error;
static char folder[64], said[8192];
static struct fb_config config;
static struct fb_source *source;
static struct fb_reader *reader;

static void hear(void *data, int level, const char *line)
{
    (void)data;
    (void)level;
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static int begin(void **state)
{
    char cache[128];

    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/forebay-table-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    unsetenv("FOREBAY_DISK_CACHE");
    mkdir(cache, 0700);
    return fb_budget_new(&budget, 64 * FB_MIB, &error) || fb_reader_new(&reader, NULL, &error);
}

static int end(void **state)
{
    struct fb_budget_report report;
    char command[128];

    (void)state;
    fb_source_close(source);
    source = NULL;
    fb_config_release(&config);
    fb_reader_free(reader);
    fb_budget_read(budget, &report);
    fb_budget_free(budget);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) != 0 || report.used != 0; /* whatever is not given back is a leak */
}

static void write_bytes(const char *name, const char *text, size_t bytes)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

/* source.path is t.csv; `more` are other settings of the source. */
static int open_table(const char *more)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_log log = { hear, NULL, NULL };
    char text[1024];

    fb_source_close(source);
    source = NULL;
    fb_config_release(&config);
    said[0] = '\0';
    snprintf(text, sizeof(text), "source: {kind: table, path: %s/t.csv%s%s}", folder,
             *more ? ", " : "", more);
    options.config_text = text;
    assert_int_equal(fb_config_read(&config, &options, &log, &error), 0);
    return fb_source_open(&source, &config, budget, &log, &error);
}

static void must_open(const char *more)
{
    if (open_table(more))
        fail_msg("%s", error.message);
}
#endif
