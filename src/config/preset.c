/*
 * preset.c -- names for several keys at once. What the user set, with whatever value and in
 * whatever order, wins over a preset.
 */
#include <stdio.h>
#include <string.h>

#include "config/key.h"

#define KEYS_MAX 5

/* In the order of preset's choices from gpu-basic on. */
static const struct preset {
    const char *name;
    struct {
        const char *key, *text;
    } values[KEYS_MAX];
} table[] = {
    { "gpu-basic", { { "device.kind", "auto" }, { "device.cache", "5000 samples" },
                     { "device.prefetch", "0" }, { "workers", "1" } } },
    { "gpu-prefetch", { { "device.kind", "auto" }, { "device.cache", "off" },
                        { "device.prefetch", "2" }, { "workers", "1" } } },
    { "gpu-combined", { { "device.kind", "auto" }, { "device.cache", "3000 samples" },
                        { "device.prefetch", "2" }, { "workers", "1" } } },
    { "gpu-aggressive", { { "device.kind", "auto" }, { "device.cache", "10000 samples" },
                          { "device.prefetch", "3" }, { "workers", "0" } } },
    { "gpu-minimal", { { "device.kind", "auto" }, { "device.cache", "2000 samples" },
                       { "device.prefetch", "1" }, { "workers", "0" }, { "batch.size", "512" } } },
    /* The rest is chosen when the device is known. */
    { "gpu-auto", { { "device.kind", "auto" } } },
};

static int value_apply(const struct fb_apply *apply, const struct fb_key *key, const char *text)
{
    struct fb_node node;

    fb_node_init_text(&node, text);
    return fb_apply_row(apply, key, &node);
}

static int table_apply(const struct preset *preset, struct fb_config *config,
                       const struct fb_log *log, forebay_error *error)
{
    struct fb_config_arena *arena = &config->places->arena;
    struct fb_origin *origin = fb_config_arena_take(arena, sizeof(*origin));
    struct fb_apply apply = { config, origin, log, error };
    char text[256] = "", name[64];
    int status = FOREBAY_OK;

    snprintf(name, sizeof(name), "preset %s", preset->name);
    if (origin)
        *origin = (struct fb_origin){ fb_config_arena_copy(arena, name, strlen(name)), true };
    if (!origin || !origin->name)
        return fb_config_no_memory(error);
    for (size_t i = 0; i < KEYS_MAX && preset->values[i].key && !status; i++) {
        const struct fb_key *key = fb_key_find(preset->values[i].key);
        bool own = fb_apply_place(&apply, key)->origin != NULL;
        size_t used = strlen(text);

        if (!own)
            status = value_apply(&apply, key, preset->values[i].text);
        snprintf(text + used, sizeof(text) - used, "%s%s: %s%s", used ? ", " : "", key->name,
                 preset->values[i].text, own ? " (not taken: you set it)" : "");
    }
    if (!status)
        fb_say(log, "%s is %s", name, text);
    return status;
}

int fb_config_apply_preset(struct fb_config *config, const char *name, const struct fb_log *log,
                           forebay_error *error)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (!strcmp(table[i].name, name))
            return table_apply(&table[i], config, log, error);
    return fb_fail(error, FOREBAY_BAD_CONFIG, "preset: there is none named '%s'",
                   fb_show(name).text);
}
