/* config_apply.c -- a tree of nodes onto the rows of the table. */
#include <stdio.h>
#include <string.h>

#include "config/key.h"

struct fb_place *fb_apply_place(const struct fb_apply *apply, const struct fb_key *key)
{
    return &apply->config->places->at[key - fb_keys];
}

static void *member_of(const struct fb_apply *apply, const struct fb_key *key)
{
    return (char *)apply->config + key->offset;
}

static int fail_twice(const struct fb_apply *apply, const char *name, const struct fb_place *first,
                      struct fb_mark mark)
{
    char place[sizeof(apply->error->place)];

    fb_origin_place(first->origin, first->mark, place);
    return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, mark,
                          "`%s` is set twice; the first time at %s", fb_show(name).text, place);
}

int fb_apply_claim(const struct fb_apply *apply, const struct fb_key *key,
                   const struct fb_node *node)
{
    struct fb_place *place = fb_apply_place(apply, key);

    if (place->origin == apply->origin)
        return fail_twice(apply, key->name, place, node->mark);
    *place = (struct fb_place){ .origin = apply->origin,
                                .mark = node->mark,
                                .is_set = node->kind != FB_NODE_NULL };
    /* A prefetch_factor of an earlier origin no longer counts. */
    if (key->offset == offsetof(struct fb_config, prefetch))
        apply->config->places->factor_key = NULL;
    return FOREBAY_OK;
}

/* Any value of a key that takes a single word, or NULL for "none". */
union value {
    bool is_true;
    int choice;
    struct fb_count count;
    struct fb_size size;
    forebay_dtype dtype;
    struct fb_share share;
    char *text;
    struct fb_texts texts;
    struct fb_pairs pairs;
    struct fb_reals reals;
};

static bool is_equal(enum fb_type type, const union value *a, const union value *b)
{
    switch (type) {
    case BOOL:
        return a->is_true == b->is_true;
    case COUNT:
        return a->count.is_auto == b->count.is_auto && a->count.value == b->count.value;
    case SIZE:
        return a->size.mode == b->size.mode && a->size.value == b->size.value;
    case CHOICE:
        return a->choice == b->choice;
    case DTYPE:
        return a->dtype == b->dtype;
    case SHARE:
        return a->share.is_percent == b->share.is_percent && a->share.value == b->share.value;
    case TEXT:
        return a->text && b->text ? strcmp(a->text, b->text) == 0 : a->text == b->text;
    case TEXTS:
        return !a->texts.count && !b->texts.count;
    case PAIRS:
        return !a->pairs.count && !b->pairs.count;
    case REALS:
        return !a->reals.count && !b->reals.count;
    }
    return false;
}

/* A key whose part is not built yet may only say its default. */
static int check_built(const struct fb_apply *apply, const struct fb_key *key,
                       const struct fb_node *node)
{
    union value fallback;
    int status;

    if (!(key->flags & LATER))
        return FOREBAY_OK;
    status = fb_value_default(&fallback, key, &apply->config->places->arena, apply->error);
    if (status || is_equal(key->type, member_of(apply, key), &fallback))
        return status;
    return fb_config_fail(apply->error, FOREBAY_NOT_BUILT, apply->origin, node->mark,
                          "%s is not built yet: leave it out, or at its default, %s", key->name,
                          key->fallback);
}

int fb_apply_row(const struct fb_apply *apply, const struct fb_key *key, const struct fb_node *node)
{
    int status = fb_apply_claim(apply, key, node);

    if (!status)
        status = fb_value_read(member_of(apply, key), key, node, &apply->config->places->arena,
                               apply->origin, apply->error);
    return status ? status : check_built(apply, key, node);
}

/* The row of PAIRS that `path` names an entry of, as source.fields.blur does; or NULL. */
static const struct fb_key *find_pairs(const char *path, const char **name)
{
    for (size_t i = 0; i < fb_key_count; i++) {
        size_t length = strlen(fb_keys[i].name);

        if (fb_keys[i].type == PAIRS && strncmp(path, fb_keys[i].name, length) == 0 &&
            path[length] == '.' && path[length + 1]) {
            *name = path + length + 1;
            return &fb_keys[i];
        }
    }
    return NULL;
}

static int apply_pair(const struct fb_apply *apply, const struct fb_key *key, const char *path,
                      const char *name, const struct fb_node *node)
{
    struct fb_place *place = fb_apply_place(apply, key), first = *place;
    bool was_there = false;
    int status;

    if (node->kind != FB_NODE_TEXT)
        return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, node->mark,
                              "%s: expected a text, e.g. \"blur/*.npy\"", fb_show(path).text);
    status = fb_pairs_set(member_of(apply, key), name, node->text, &apply->config->places->arena,
                          &was_there, apply->error);
    if (status)
        return status;
    if (was_there && first.origin == apply->origin)
        return fail_twice(apply, path, &first, node->mark);
    *place = (struct fb_place){ .origin = apply->origin, .mark = node->mark, .is_set = true };
    return check_built(apply, key, node);
}

/* "budget, cache, policy": the next words behind `section` ("" for the top). */
static void list_section(char *text, size_t size, const char *section)
{
    size_t length = strlen(section), used = 0;
    char last[FB_KEY_BYTES] = "";

    text[0] = '\0';
    for (size_t i = 0; i < fb_key_count; i++) {
        const char *name = fb_keys[i].name;
        char word[FB_KEY_BYTES];

        if (length && (strncmp(name, section, length) != 0 || name[length] != '.'))
            continue;
        name += length ? length + 1 : 0;
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "."), name);
        if (strcmp(word, last) == 0 || used + strlen(word) + 3 > size)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", word);
        memcpy(last, word, sizeof(last));
    }
}

/* Keys that earlier versions had, and what to do instead. */
static const struct removed_key {
    const char *name, *instead;
} removed_keys[] = {
    { "memory.keep", "a cache ends with its last process. The kernel's page cache keeps the files "
                     "warm for the next run; `forebay pack` saves the decoding as well" },
};

static int fail_removed(const struct fb_apply *apply, const struct removed_key *key,
                        const struct fb_node *entry)
{
    return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, entry->key_mark,
                          "`%s` is no longer a setting: %s", key->name, key->instead);
}

static int fail_unknown(const struct fb_apply *apply, const char *section, const char *path,
                        const struct fb_node *entry)
{
    bool is_map = entry->kind == FB_NODE_MAP;
    const char *what = is_map ? "section" : "key";
    char nearest[FB_KEY_BYTES], known[320];
    const char *key = is_map ? NULL : fb_suggest_key(path, 0);

    for (size_t i = 0; i < sizeof(removed_keys) / sizeof(removed_keys[0]); i++)
        if (strcmp(path, removed_keys[i].name) == 0)
            return fail_removed(apply, &removed_keys[i], entry);
    if (!key && fb_suggest_section(path, nearest))
        key = nearest;
    else if (!key)
        key = fb_suggest_key(path, 0);
    if (key)
        return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, entry->key_mark,
                              "unknown %s `%s`; did you mean `%s`?", what, fb_show(path).text, key);
    if (!fb_key_is_section(section))
        section = "";
    list_section(known, sizeof(known), section);
    return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, entry->key_mark,
                          "unknown %s `%s`; known %s%s: %s", what, fb_show(path).text,
                          section[0] ? "in " : "here", section, known);
}

static int apply_at(const struct fb_apply *apply, const char *section, bool is_foreign,
                    const struct fb_node *entry);

static int apply_section(const struct fb_apply *apply, const char *path, bool is_foreign,
                         const struct fb_node *section)
{
    char known[320];
    int status = FOREBAY_OK;

    if (section->kind != FB_NODE_MAP && section->kind != FB_NODE_NULL) {
        list_section(known, sizeof(known), path);
        return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, section->mark,
                              "`%s` is a section: expected a mapping of its keys%s%s%s",
                              fb_show(path).text, is_foreign ? "" : " (", is_foreign ? "" : known,
                              is_foreign ? "" : ")");
    }
    for (const struct fb_node *entry = section->first; entry && !status; entry = entry->next)
        status = apply_at(apply, path, is_foreign, entry);
    return status;
}

/* One entry of the section at path `section`. `is_foreign`: of DATA: and the like. */
static int apply_at(const struct fb_apply *apply, const char *section, bool is_foreign,
                    const struct fb_node *entry)
{
    /* Longer than any path of the table, so that what is cut off is none of them. A name of
     * PAIRS may be longer where it stands in a mapping of its own. */
    char path[4 * FB_KEY_BYTES];
    const struct fb_key *key = NULL, *pairs = NULL;
    const char *name;
    bool known = false;
    int length = snprintf(path, sizeof(path), "%s%s%s", section, section[0] ? "." : "", entry->key);

    if (length >= 0 && (size_t)length < sizeof(path) && !is_foreign) {
        key = fb_key_find(path);
        pairs = find_pairs(path, &name);
    }
    if (key)
        return fb_apply_row(apply, key, entry);
    if (pairs)
        return apply_pair(apply, pairs, path, name, entry);
    if (!is_foreign && fb_key_is_section(path))
        return apply_section(apply, path, false, entry);
    if (!section[0] || is_foreign) {
        int status = fb_foreign_apply(apply, entry, &known);

        if (known)
            return status;
        if (fb_foreign_is_section(entry->key))
            return apply_section(apply, path, true, entry);
    }
    return fail_unknown(apply, section, path, entry);
}

int fb_apply_entry(const struct fb_apply *apply, const struct fb_node *entry)
{
    return apply_at(apply, "", false, entry);
}

int fb_apply_document(const struct fb_apply *apply, const struct fb_node *document)
{
    int status = FOREBAY_OK;

    if (!document || document->kind == FB_NODE_NULL)
        return FOREBAY_OK;
    if (document->kind != FB_NODE_MAP)
        return fb_config_fail(apply->error, FOREBAY_BAD_CONFIG, apply->origin, document->mark,
                              "expected keys and values, e.g. `batch: {size: 16}`; found %s",
                              document->kind == FB_NODE_LIST ? "a list" : "a single text");
    for (const struct fb_node *entry = document->first; entry && !status; entry = entry->next)
        status = fb_apply_entry(apply, entry);
    return status;
}
