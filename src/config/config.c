/* config.c -- the table of keys, reading them all, and finding them again. */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config/key.h"

/* "|hwc|chw": the words of a choice, as fb_word_next reads them. */
#define W(enumerator, word) "|" word
#define FB_ROW(type, member, key, fallback, flags, choices, ...)                                   \
    { type, flags, offsetof(struct fb_config, member), key, fallback, choices, { __VA_ARGS__ } },
#define FB_LIVE_ROW(type, member, key, fallback, flags, choices, ...)                              \
    FB_ROW(type, member, key, fallback, (flags) | IS_LIVE, choices, __VA_ARGS__)
const struct fb_key fb_keys[] = { FB_CONFIG_KEYS(FB_ROW, FB_LIVE_ROW) };
#undef W
const size_t fb_key_count = sizeof(fb_keys) / sizeof(fb_keys[0]);

struct fb_limit fb_key_limit(const struct fb_key *key)
{
    uint64_t minimum = key->flags >> 8 & 255, maximum = key->flags >> 16;

    if (key->flags & PERCENT)
        return (struct fb_limit){ 1, 0 };
    return (struct fb_limit){ minimum, maximum ? maximum : (uint64_t)1 << 53 };
}

const struct fb_key *fb_key_find(const char *path)
{
    for (size_t i = 0; i < fb_key_count; i++) {
        if (strcmp(fb_keys[i].name, path) == 0)
            return &fb_keys[i];
    }
    return NULL;
}

const char *forebay_key_of(const char *keyword)
{
    for (size_t i = 0; i < fb_key_count; i++) {
        if (fb_keys[i].texts[1] && strcmp(fb_keys[i].texts[1], keyword) == 0)
            return fb_keys[i].name;
    }
    return NULL;
}

bool fb_key_is_section(const char *path)
{
    size_t length = strlen(path);

    for (size_t i = 0; i < fb_key_count; i++) {
        if (strncmp(fb_keys[i].name, path, length) == 0 && fb_keys[i].name[length] == '.')
            return true;
    }
    return false;
}

bool fb_word_next(const char **cursor, struct fb_word *word)
{
    size_t length;

    *cursor += **cursor == '|';
    length = strcspn(*cursor, "|");
    if (!length)
        return false;
    word->text = *cursor;
    word->built = (*cursor)[length - 1] != '!';
    word->length = (int)length - !word->built;
    *cursor += length;
    return true;
}

int fb_word_find(const char *choices, const char *text, struct fb_word *word)
{
    size_t length = strlen(text);

    for (int number = 0; fb_word_next(&choices, word); number++) {
        if ((size_t)word->length == length && strncasecmp(word->text, text, length) == 0)
            return number;
    }
    return -1;
}

/* ---- Reading ---- */

static int begin(struct fb_config *config, forebay_error *error)
{
    struct fb_config_places *places = calloc(1, sizeof(*places));

    if (!places)
        return fb_config_no_memory(error);
    *config = (struct fb_config){ .places = places };
    places->at = fb_config_arena_take(&places->arena, fb_key_count * sizeof(*places->at));
    config->folder = fb_config_arena_copy(&places->arena, "", 0);
    if (!places->at || !config->folder)
        return fb_config_no_memory(error);
    for (size_t i = 0; i < fb_key_count; i++) {
        int status = fb_value_default((char *)config + fb_keys[i].offset, &fb_keys[i],
                                      &places->arena, error);

        if (status)
            return status;
    }
    return FOREBAY_OK;
}

/* Origins live as long as the places that name them. */
static const struct fb_origin *new_origin(struct fb_config *config, const char *prefix,
                                          const char *name, size_t length, forebay_error *error)
{
    struct fb_config_arena *arena = &config->places->arena;
    struct fb_origin *origin = fb_config_arena_take(arena, sizeof(*origin));
    char *full = fb_config_arena_take(arena, strlen(prefix) + length + 1);

    if (!origin || !full) {
        fb_config_no_memory(error);
        return NULL;
    }
    memcpy(full, prefix, strlen(prefix));
    memcpy(full + strlen(prefix), name, length);
    *origin = (struct fb_origin){ .name = full, .is_setting = prefix[0] != '\0' };
    return origin;
}

static int apply_text(struct fb_config *config, const struct fb_origin *origin, const char *text,
                      size_t bytes, const struct fb_log *log, forebay_error *error)
{
    struct fb_apply apply = { config, origin, log, error };
    struct fb_config_arena arena = { NULL };
    struct fb_node *document = NULL;
    int status = fb_yaml_read(&document, &arena, origin, text, bytes, error);

    if (!status)
        status = fb_apply_document(&apply, document);
    fb_config_arena_release(&arena);
    return status;
}

static int fail_file(const char *path, forebay_error *error)
{
    bool missing =
        errno == ENOENT || errno == EACCES || errno == ENOTDIR || errno == ELOOP || errno == EISDIR;
    int status = fb_fail_errno(error, missing ? FOREBAY_MISSING : FOREBAY_IO,
                               "cannot read the configuration '%s'", fb_show(path).text);
    const struct fb_origin origin = { path, true }; /* no line */
    char place[sizeof(error->place)];

    fb_origin_place(&origin, (struct fb_mark){ 0, 0 }, place);
    fb_error_place(error, "%s", place);
    return status;
}

/* All of the file, up to one byte more than is allowed: the length then tells. */
static int read_file(const char *path, char *text, size_t *bytes, forebay_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 1;

    if (fd < 0)
        return fail_file(path, error);
    while (got && *bytes < FB_CONFIG_BYTES_MAX + 1) {
        got = read(fd, text + *bytes, FB_CONFIG_BYTES_MAX + 1 - *bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int status = fail_file(path, error);

            close(fd);
            return status;
        }
        *bytes += (size_t)got;
    }
    close(fd);
    return FOREBAY_OK;
}

static int apply_file(struct fb_config *config, const char *path, const struct fb_log *log,
                      forebay_error *error)
{
    const struct fb_origin *origin = new_origin(config, "", path, strlen(path), error);
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0, bytes = 0;
    char *text = malloc(FB_CONFIG_BYTES_MAX + 1);
    int status;

    /* "/train.yaml" lies in "/". */
    config->folder = fb_config_arena_copy(&config->places->arena, path, length + (slash == path));
    if (!origin || !text || !config->folder)
        status = fb_config_no_memory(error);
    else
        status = read_file(path, text, &bytes, error);
    if (!status)
        status = apply_text(config, origin, text, bytes, log, error);
    free(text);
    return status;
}

/* Does `text` begin and end like a list, a mapping or a text in quotes? A glob such as [ab]*.bin
 * or *.npy does not, and is taken as it is. */
static bool is_flow(const char *text, size_t length)
{
    static const char pairs[][2] = { "[]", "{}", "\"\"", "''" };

    for (size_t i = 0; length >= 2 && i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (text[0] == pairs[i][0] && text[length - 1] == pairs[i][1])
            return true;
    }
    return false;
}

static void trim(const char **text, size_t *length)
{
    while (*length && strchr(" \t\n", (*text)[0])) {
        ++*text;
        --*length;
    }
    while (*length && strchr(" \t\n", (*text)[*length - 1]))
        --*length;
}

/* `key` and `value` are trimmed; the tree lives in `arena`. */
static int apply_entry(const struct fb_apply *apply, struct fb_config_arena *arena, const char *key,
                       const char *value, size_t length)
{
    struct fb_node plain, *entry = &plain;
    int status;

    fb_node_init_text(&plain, value);
    if (is_flow(value, length)) {
        status = fb_yaml_read(&entry, arena, apply->origin, value, length, apply->error);
        if (status)
            return status;
    }
    entry->key = key;
    return fb_apply_entry(apply, entry);
}

static int apply_setting(struct fb_config *config, const char *setting, const struct fb_log *log,
                         forebay_error *error)
{
    const char *equals = setting ? strchr(setting, '=') : NULL, *value, *key, *text;
    size_t key_length = equals ? (size_t)(equals - setting) : 0, length;
    struct fb_apply apply = { config, NULL, log, error };
    struct fb_config_arena arena = { NULL };
    int status;

    trim(&setting, &key_length);
    if (!key_length)
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       "--set %s: expected key=value, e.g. batch.size=16",
                       setting ? fb_show(setting).text : "");
    value = equals + 1;
    length = strlen(value);
    trim(&value, &length);
    apply.origin = new_origin(config, "--set ", setting, key_length, error);
    if (!apply.origin)
        return FOREBAY_NO_MEMORY;
    key = fb_config_arena_copy(&arena, setting, key_length);
    text = fb_config_arena_copy(&arena, value, length);
    status =
        key && text ? apply_entry(&apply, &arena, key, text, length) : fb_config_no_memory(error);
    fb_config_arena_release(&arena);
    return status;
}

static int apply_all(struct fb_config *config, const forebay_options *options,
                     const struct fb_log *log, forebay_error *error)
{
    static const struct fb_origin text_origin = { "configuration", false };
    struct fb_apply apply = { config, NULL, log, error };
    int status = FOREBAY_OK;

    if (options->config_file && options->config_text)
        return fb_fail(error, FOREBAY_BAD_USE,
                       "config_file and config_text are both given: only one can be read");
    if (options->setting_count > FB_CONFIG_ENTRIES_MAX)
        return fb_fail(error, FOREBAY_BAD_USE, "%zu settings are given: at most %d are read",
                       options->setting_count, FB_CONFIG_ENTRIES_MAX);
    if (options->config_file)
        status = apply_file(config, options->config_file, log, error);
    else if (options->config_text)
        status = apply_text(config, &text_origin, options->config_text,
                            strlen(options->config_text), log, error);
    for (size_t i = 0; i < options->setting_count && !status; i++)
        status = apply_setting(config, options->settings[i], log, error);
    if (!status && config->preset >= 0)
        status = fb_config_apply_preset(config, fb_config_word("preset", config->preset), log,
                                        error);
    return status ? status : fb_foreign_finish(&apply);
}

int fb_config_read(struct fb_config *config, const forebay_options *options,
                   const struct fb_log *log, forebay_error *error)
{
    struct fb_config made = { .places = NULL };
    int status = begin(&made, error);

    if (!status)
        status = apply_all(&made, options, log, error);
    if (status)
        fb_config_release(&made);
    else
        *config = made;
    return status;
}

void fb_config_release(struct fb_config *config)
{
    if (config->places)
        fb_config_arena_release(&config->places->arena);
    free(config->places);
    *config = (struct fb_config){ .places = NULL };
}

/* ---- Finding ---- */

static const struct fb_place *place_of(const struct fb_config *config, const char *key)
{
    const struct fb_key *row = fb_key_find(key);

    return config->places && row ? &config->places->at[row - fb_keys] : NULL;
}

bool fb_config_is_set(const struct fb_config *config, const char *key)
{
    const struct fb_place *place = place_of(config, key);

    return place && place->is_set;
}

void fb_config_place(const struct fb_config *config, const char *key, forebay_error *error)
{
    const struct fb_place *place = place_of(config, key);
    char text[sizeof(error->place)];

    if (place && place->is_set)
        fb_origin_place(place->origin, place->mark, text);
    else
        snprintf(text, sizeof(text), "%s", key);
    fb_error_place(error, "%s", text);
}

static int fail_not_live(const char *key, bool known, forebay_error *error)
{
    const char *nearest = known ? NULL : fb_suggest_key(key, IS_LIVE);
    char names[256] = "";

    for (size_t i = 0; i < fb_key_count; i++) {
        if (fb_keys[i].flags & IS_LIVE)
            snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                     names[0] ? ", " : "", fb_keys[i].name);
    }
    fb_fail(error, FOREBAY_BAD_CONFIG, "%s `%s`%s%s%s; these can be set while running: %s",
            known ? "cannot change" : "unknown key", fb_show(key).text,
            nearest ? "; did you mean `" : "", nearest ? nearest : "",
            nearest ? "`?"
            : known ? " while running"
                    : "",
            names);
    fb_error_place(error, "%s", fb_show(key).text);
    return FOREBAY_BAD_CONFIG;
}

int fb_config_parse_live(const char *key, const char *text, void *value, forebay_error *error)
{
    const struct fb_key *row = fb_key_find(key);
    struct fb_origin origin = { key, true };
    struct fb_node node;

    if (!row || !(row->flags & IS_LIVE))
        return fail_not_live(key, row != NULL, error);
    fb_node_init_text(&node, text);
    return fb_value_read(value, row, &node, NULL, &origin, error);
}

/* Every word of every choice, each with its own end: made once from the table, then read only. */
static char words[2048];
static pthread_once_t words_once = PTHREAD_ONCE_INIT;

static void words_make(void)
{
    size_t used = 0;

    for (size_t i = 0; i < fb_key_count; i++) {
        const char *cursor = fb_keys[i].choices;
        struct fb_word word;

        while (fb_keys[i].type == CHOICE && fb_word_next(&cursor, &word) &&
               used + (size_t)word.length + 1 < sizeof(words)) {
            memcpy(words + used, word.text, (size_t)word.length);
            used += (size_t)word.length + 1;
        }
    }
}

const char *fb_config_word(const char *key, int choice)
{
    const struct fb_key *row = fb_key_find(key);
    const char *cursor = row && row->type == CHOICE ? row->choices : "";
    struct fb_word word;

    pthread_once(&words_once, words_make);
    for (int number = 0; fb_word_next(&cursor, &word); number++) {
        const char *copy = words;

        if (number != choice)
            continue;
        /* An empty word is the end; equal words of other keys serve as well. */
        while (copy[0] && (strlen(copy) != (size_t)word.length ||
                           strncmp(copy, word.text, (size_t)word.length) != 0))
            copy += strlen(copy) + 1;
        return copy;
    }
    return "null";
}
