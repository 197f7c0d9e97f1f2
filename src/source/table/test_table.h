/* test_table.h -- what the tests of the table share: a folder, a budget, files, an open source. */
#ifndef FB_SOURCE_TEST_TABLE_H
#define FB_SOURCE_TEST_TABLE_H
#include <math.h>

#include "source/table/vocabulary.h"

#include "source/test_source.h"

static char said[8192];
static struct fb_config config;

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
    if (stand_begin("table", 64 * FB_MIB))
        return 1;
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    unsetenv("FOREBAY_DISK_CACHE");
    return mkdir(cache, 0700);
}

static int end(void **state)
{
    fb_config_release(&config);
    return stand_end(state);
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
