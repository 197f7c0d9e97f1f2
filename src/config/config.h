/*
 * config.h -- YAML and key=value settings to one typed struct; every value knows where it stood.
 *
 * config.[ch] gives every member of the schema its C type:
 *   BOOL bool · COUNT struct fb_count · SIZE struct fb_size · CHOICE int (the word's number in the
 *   table's choices) · DTYPE forebay_dtype · SHARE struct fb_share · TEXT char * (NULL: not set) ·
 *   TEXTS struct fb_texts · PAIRS struct fb_pairs · REALS struct fb_reals
 *
 * Errors name "file:line:column" (or "--set key") in error->place, what was expected and the
 * nearest known key. The file is bounded (1 MiB, depth 8, 4096 list entries) and hostile.
 */
#ifndef FB_CONFIG_CONFIG_H
#define FB_CONFIG_CONFIG_H
#include "base/error.h"
#include "base/log.h"
#include "config/schema.h"

struct fb_count {
    bool is_auto;   /* then `value` is 0 */
    uint64_t value;
};
struct fb_size {
    enum { FB_SIZE_BYTES, FB_SIZE_AUTO, FB_SIZE_OFF, FB_SIZE_SAMPLES } mode;
    uint64_t value; /* bytes, or samples */
};
struct fb_share {   /* "100", or "2.5%" */
    bool is_percent;
    double value;   /* the number before the % */
};
struct fb_texts {
    size_t count;
    char **values;
};
struct fb_pairs {
    size_t count;
    char **keys, **values;
};
struct fb_reals {
    size_t count;
    double *values;
};

typedef bool fb_type_BOOL;
typedef struct fb_count fb_type_COUNT;
typedef struct fb_size fb_type_SIZE;
typedef int fb_type_CHOICE;
typedef forebay_dtype fb_type_DTYPE;
typedef struct fb_share fb_type_SHARE;
typedef char *fb_type_TEXT;
typedef struct fb_texts fb_type_TEXTS;
typedef struct fb_pairs fb_type_PAIRS;
typedef struct fb_reals fb_type_REALS;

struct fb_config {
#define FB_X(type, member, ...) fb_type_##type member;
    FB_CONFIG_KEYS(FB_X, FB_X)
#undef FB_X
    struct fb_config_places *places; /* where each value stood; config.c only */
    char *folder; /* of the configuration file, "" if none: relative paths start there */
};

/* Values of choices: an enum for each CHOICE, in the order of its words; -1 is null. */
#define W(enumerator, word) enumerator,
#define FB_ENUM_CHOICE(...) enum { __VA_ARGS__ };
#define FB_ENUM_BOOL(...)
#define FB_ENUM_COUNT(...)
#define FB_ENUM_SIZE(...)
#define FB_ENUM_DTYPE(...)
#define FB_ENUM_SHARE(...)
#define FB_ENUM_TEXT(...)
#define FB_ENUM_TEXTS(...)
#define FB_ENUM_PAIRS(...)
#define FB_ENUM_REALS(...)
#define FB_X(type, member, key, fallback, flags, choices, ...) FB_ENUM_##type(choices)
FB_CONFIG_KEYS(FB_X, FB_X)
#undef FB_X
#undef W

/* All defaults; then whatever options name, the file (or text) first, settings over it. On success
 * the caller owns what the members point to: fb_config_release. On failure there is nothing to
 * release. Foreign keys of the guides (prefetch_factor, CACHE_SIZE_GB, NUM_WORKERS, ...) are read
 * as ours and said in the log. */
int fb_config_read(struct fb_config *config, const forebay_options *options,
                   const struct fb_log *log, forebay_error *error);
void fb_config_release(struct fb_config *config);

/* Set the keys of this preset that nobody has set yet, and say so. Done by fb_config_read, except
 * for what gpu-auto chooses. */
int fb_config_apply_preset(struct fb_config *config, const char *name, const struct fb_log *log,
                           forebay_error *error);

/* Was it named by the user (file, setting or preset), or is it the table's default? */
bool fb_config_is_set(const struct fb_config *config, const char *key);
/* Put where `key` was set ("train.yaml:12:9") into error->place, for errors found later. */
void fb_config_place(const struct fb_config *config, const char *key, forebay_error *error);
/* Check one value against the table without a config: for `set`. LIVE keys only. Writes the parsed
 * value into the member's type at `value` (COUNT or SIZE). */
int fb_config_parse_live(const char *key, const char *text, void *value, forebay_error *error);
/* The word of a choice, e.g. fb_config_word("memory.policy", FB_POLICY_LRU) -> "lru". */
const char *fb_config_word(const char *key, int choice);
/* --help-config and docs/configuration.md: the table, as text or as Markdown, to `out` (FILE *). */
void fb_config_help(void *out, bool markdown);
#endif
