/*
 * foreign.c -- keys of the loaders people come from, read as ours; each is said in the log.
 *
 * They may stand at the top or in the sections those files have (DATA:, TRAIN:, data: {train:}).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/key.h"

enum how {
    SAME,    /* the value as it is */
    WORKERS, /* 0 is "in the caller's thread", there and here */
    FACTOR,  /* batches for each worker */
    GIB,     /* a number of GiB */
    SAMPLES, /* a number of samples */
    SWITCH,  /* false is off */
    NOTHING, /* `ours` is a sentence: why there is nothing to set */
};

static const struct foreign {
    const char *name, *ours;
    enum how how;
} table[] = {
    { "num_workers", "workers", WORKERS },
    { "prefetch_factor", "prefetch", FACTOR },
    { "batch_size", "batch.size", SAME },
    { "shuffle", "order.shuffle", SAME },
    { "seed", "order.seed", SAME },
    { "drop_last", "order.drop_last", SAME },
    { "cache_size_gb", "memory.cache", GIB },
    { "use_ram_cache", "memory.cache", SWITCH },
    { "gpu_cache_size", "device.cache", SAMPLES },
    { "persistent_workers", "workers always stay between epochs", NOTHING },
    { "pin_memory", "memory is pinned where forebay itself copies to a device", NOTHING },
};

static const char *const sections[] = { "data", "train", "dataloader" };

/* What prefetch_factor must be. Not of the table: it is a key of others. */
static const struct fb_key factor_key = {
    .type = COUNT, .flags = FROM(1), .name = "prefetch_factor", .choices = ""
};
static const struct fb_key switch_key = { .type = BOOL, .name = "USE_RAM_CACHE", .choices = "" };

#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

const char *fb_foreign_name(size_t i, const char **foreign)
{
    *foreign = i < TABLE_COUNT ? table[i].name : NULL;
    return i < TABLE_COUNT && table[i].how != NOTHING ? table[i].ours : NULL;
}

bool fb_foreign_is_section(const char *name)
{
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        if (strcasecmp(name, sections[i]) == 0)
            return true;
    }
    return false;
}

/* Set `key` from a text that stands for what `entry` says, and say so. */
static int apply_as(const struct fb_apply *apply, const struct fb_key *key,
                    const struct fb_node *entry, const char *text)
{
    struct fb_node node;
    int status;

    fb_node_init_text(&node, text);
    node.mark = entry->mark;
    status = fb_apply_row(apply, key, &node);
    if (status)
        return status;
    fb_apply_place(apply, key)->is_foreign = true;
    fb_say(apply->log, "read %s: %s as %s: %s", fb_show(entry->key).text, fb_show(entry->text).text,
           key->name, node.kind == FB_NODE_NULL ? key->fallback : fb_show(text).text);
    return FOREBAY_OK;
}

static int fail_number(const struct fb_apply *apply, const struct fb_node *entry, const char *what)
{
    return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, entry->mark,
                          "%s: expected %s; found `%s`", fb_show(entry->key).text, what,
                          fb_show(entry->text).text);
}

/* "50.0" and a unit, as one of our texts. */
static int apply_unit(const struct fb_apply *apply, const struct fb_key *key,
                      const struct fb_node *entry, const char *digits, const char *unit,
                      const char *what)
{
    size_t length = strlen(entry->text);
    char text[64];

    if (length == 0 || length > 30 || strspn(entry->text, digits) != length)
        return fail_number(apply, entry, what);
    snprintf(text, sizeof(text), "%.30s%s", entry->text, unit);
    return apply_as(apply, key, entry, text);
}

static int apply_cache_size(const struct fb_apply *apply, const struct fb_key *key,
                            const struct fb_node *entry)
{
    if (apply->config->places->uncached == apply->origin) {
        fb_say(apply->log, "%s is not used: USE_RAM_CACHE is false", fb_show(entry->key).text);
        return FOREBAY_OK;
    }
    return apply_unit(apply, key, entry, "0123456789.", "GiB", "a number of GiB, e.g. 50");
}

static int apply_switch(const struct fb_apply *apply, const struct fb_key *key,
                        const struct fb_node *entry)
{
    struct fb_place *place = fb_apply_place(apply, key);
    bool is_on;
    int status = fb_value_read(&is_on, &switch_key, entry, NULL, apply->origin, apply->error);

    if (status)
        return status;
    if (is_on) {
        fb_say(apply->log, "%s: %s is as it is anyway: memory.cache says how much",
               fb_show(entry->key).text, fb_show(entry->text).text);
        return FOREBAY_OK;
    }
    /* Off is off, also with a CACHE_SIZE_GB beside it; a memory.cache of ours is another matter. */
    if (place->origin == apply->origin && place->is_foreign)
        place->origin = NULL;
    status = apply_as(apply, key, entry, "off");
    if (!status)
        apply->config->places->uncached = apply->origin;
    return status;
}

static int apply_factor(const struct fb_apply *apply, const struct fb_key *key,
                        const struct fb_node *entry)
{
    struct fb_config_places *places = apply->config->places;
    struct fb_count factor;
    int status = fb_value_read(&factor, &factor_key, entry, NULL, apply->origin, apply->error);

    if (!status)
        status = fb_apply_claim(apply, key, entry);
    if (status)
        return status;
    places->factor_key = fb_config_arena_copy(&places->arena, entry->key, strlen(entry->key));
    places->factor = factor.value;
    return places->factor_key ? FOREBAY_OK : fb_config_no_memory(apply->error);
}

static int apply_foreign(const struct fb_apply *apply, const struct foreign *foreign,
                         const struct fb_node *entry)
{
    const struct fb_key *key = fb_key_find(foreign->ours);

    if (foreign->how == NOTHING) {
        fb_say(apply->log, "%s is not needed: %s", fb_show(entry->key).text, foreign->ours);
        return FOREBAY_OK;
    }
    if (entry->kind == FB_NODE_LIST || entry->kind == FB_NODE_MAP)
        return fb_apply_row(apply, key, entry); /* says what was expected */
    if (entry->kind == FB_NODE_NULL)
        return FOREBAY_OK; /* "not given" in those loaders, too */
    switch (foreign->how) {
    case WORKERS:
        return apply_as(apply, key, entry, entry->text);
    case FACTOR:
        return apply_factor(apply, key, entry);
    case GIB:
        return apply_cache_size(apply, key, entry);
    case SAMPLES:
        return apply_unit(apply, key, entry, "0123456789", " samples",
                          "a number of samples, e.g. 5000");
    case SWITCH:
        return apply_switch(apply, key, entry);
    default:
        return apply_as(apply, key, entry, entry->text);
    }
}

int fb_foreign_apply(const struct fb_apply *apply, const struct fb_node *entry, bool *known)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (strcasecmp(entry->key, table[i].name) == 0) {
            *known = true;
            return apply_foreign(apply, &table[i], entry);
        }
    }
    *known = false;
    return FOREBAY_OK;
}

int fb_foreign_finish(const struct fb_apply *apply)
{
    struct fb_config *config = apply->config;
    struct fb_config_places *places = config->places;
    const struct fb_key *key = fb_key_find("prefetch");
    const struct fb_place *place = fb_apply_place(apply, key);
    uint64_t workers = config->workers.value ? config->workers.value : 1, batches;

    if (!places->factor_key)
        return FOREBAY_OK;
    if (config->workers.is_auto)
        return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, place->origin, place->mark,
                              "%s counts batches for each worker, but workers is auto: set workers "
                              "to a number, or prefetch to the batches in flight in all",
                              fb_show(places->factor_key).text);
    if (__builtin_mul_overflow(workers, places->factor, &batches) ||
        batches > fb_key_limit(key).maximum)
        return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, place->origin, place->mark,
                              "%s: %" PRIu64 " for each of %" PRIu64 " workers is too much",
                              fb_show(places->factor_key).text, places->factor, workers);
    config->prefetch = (struct fb_count){ .value = batches };
    fb_say(apply->log, "read %s: %" PRIu64 " with %" PRIu64 " workers as prefetch: %" PRIu64,
           fb_show(places->factor_key).text, places->factor, workers, batches);
    return FOREBAY_OK;
}
