/* fuzz_config.c -- any text as a configuration; what stands behind the first NUL is a setting. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* A configuration that was read must read the same again from what it says of itself. */
static void use(struct fb_config *config)
{
    forebay_error error = { .place = "" };

    check(config->folder[0] == '\0');
    check(config->batch_size.value >= 1);
    check(config->cpu_nice.value <= 19);
    check(config->prefetch.is_auto || config->prefetch.value >= 1);
    for (size_t i = 0; i < config->source_path.count; i++)
        check(strlen(config->source_path.values[i]) < ((size_t)1 << 20));
    for (size_t i = 0; i < config->source_fields.count; i++)
        check(config->source_fields.keys[i][0] && config->source_fields.values[i]);
    fb_config_place(config, "memory.budget", &error);
    check(error.place[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 2);
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_config config;
    forebay_error error;
    const char *setting;
    int status;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    setting = text + strlen(text) + 1;
    options.config_text = text;
    options.settings = &setting;
    options.setting_count = setting < text + size;
    status = fb_config_read(&config, &options, NULL, &error);
    if (status == FOREBAY_OK) {
        use(&config);
        fb_config_release(&config);
    } else {
        check(error.status == status && error.message[0] != '\0');
    }
    free(text);
    return 0;
}
