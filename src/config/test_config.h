/* test_config.h -- what the tests of config/ share: read a text, and hear what the log says. */
#ifndef FB_CONFIG_TEST_CONFIG_H
#define FB_CONFIG_TEST_CONFIG_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/key.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* What the log said, line by line. */
static char said[4096];

static void hear(void *data, int level, const char *line)
{
    (void)data;
    (void)level;
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static const struct fb_log listener = { .log = hear };

/* Text and one setting; either may be NULL. */
static int read_both(struct fb_config *config, const char *text, const char *setting,
                     forebay_error *error)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;

    said[0] = '\0';
    options.config_text = text;
    options.settings = &setting;
    options.setting_count = setting != NULL;
    return fb_config_read(config, &options, &listener, error);
}

static inline struct fb_config must_read(const char *text, const char *setting)
{
    struct fb_config config = { .places = NULL };
    forebay_error error = { .message = "" };

    if (read_both(&config, text, setting, &error))
        fail_msg("%s", error.message);
    return config;
}
#endif
