/*
 * key.h -- what the files of config/ share: the table's rows, the tree that YAML becomes, and the
 * way from one to the other.
 *
 *   text ── config_yaml.c ──▶ nodes ── config_apply.c (foreign.c) ──▶ rows ── config_value.c ──▶
 * value
 */
#ifndef FB_CONFIG_KEY_H
#define FB_CONFIG_KEY_H
#include "config/config_arena.h"
#include "config/config.h"

#define FB_CONFIG_BYTES_MAX ((size_t)1 << 20)
#define FB_CONFIG_DEPTH_MAX 8
#define FB_CONFIG_ENTRIES_MAX 4096 /* of one list or mapping */
#define FB_CONFIG_NODES_MAX 32768  /* in all: bounds the tree, whatever its shape */
#define FB_KEY_BYTES 96            /* more than the longest path of the table */

/* ---- Rows of the table ---- */

enum fb_type { BOOL, COUNT, SIZE, CHOICE, DTYPE, SHARE, TEXT, TEXTS, PAIRS, REALS };
enum { IS_LIVE = 1, LATER = 2, PERCENT = 4 };
#define FROM(minimum) ((unsigned)(minimum) << 8)                              /* below 256 */
#define BETWEEN(minimum, maximum) (FROM(minimum) | (unsigned)(maximum) << 16) /* below 65536 */

struct fb_key {
    enum fb_type type;
    unsigned flags;
    size_t offset; /* of the member in struct fb_config */
    const char *name, *fallback, *choices;
    const char *texts[2]; /* what it does; Python's keyword for it, or NULL */
};

extern const struct fb_key fb_keys[];
extern const size_t fb_key_count;

const struct fb_key *fb_key_find(const char *path);
/* Is there a key that begins with `path` and a dot? */
bool fb_key_is_section(const char *path);

/* Numbers a COUNT, SIZE or SHARE may have; 0 to 2^53 (what a double, so also JSON, holds exactly)
 * where the table names no others. A minimum above the maximum: none, only a share in percent. */
struct fb_limit {
    uint64_t minimum, maximum;
};
struct fb_limit fb_key_limit(const struct fb_key *key);

/* One word of `choices` after the other. */
struct fb_word {
    const char *text;
    int length;
    bool built;
};
bool fb_word_next(const char **cursor, struct fb_word *word);
/* Is `text` among the words of `choices`, whatever the case of its letters? Its number, or -1. */
int fb_word_find(const char *choices, const char *text, struct fb_word *word);

/* ---- The tree ---- */

enum fb_node_kind { FB_NODE_NULL, FB_NODE_TEXT, FB_NODE_LIST, FB_NODE_MAP };

struct fb_mark {
    size_t line, column; /* from 1 */
};

struct fb_node {
    enum fb_node_kind kind;
    bool quoted;      /* TEXT: "5" rather than 5 */
    const char *text; /* TEXT, NULL: as written; never NULL there */
    const char *key;  /* in a mapping; else NULL */
    uint32_t key_hash;
    struct fb_mark mark, key_mark;
    struct fb_node *first, *last, *next; /* of a LIST or MAP; `next` is this one's sibling */
    size_t count;
};

/* Where nodes come from. Two values have the same origin exactly if the pointers are equal. */
struct fb_origin {
    const char *name; /* a file's, or "--set key" */
    bool is_setting;  /* then there are no lines */
};

/* Text to tree. `origin` is for errors. *out is NULL if the document is empty. */
int fb_yaml_read(struct fb_node **out, struct fb_config_arena *arena, const struct fb_origin *origin,
                 const char *text, size_t bytes, forebay_error *error);
/* A node for text that was not read as YAML: kind NULL if it is a word for null. */
void fb_node_init_text(struct fb_node *node, const char *text);

/* ---- Errors ---- */

/* "file:12:9: <message>" with the place also in error->place. */
int fb_config_fail(forebay_error *error, forebay_status status, const struct fb_origin *origin,
                   struct fb_mark mark, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void fb_origin_place(const struct fb_origin *origin, struct fb_mark mark,
                     char place[sizeof(((forebay_error *)0)->place)]);
int fb_config_no_memory(forebay_error *error);

/* What a user wrote, fit for a message: valid UTF-8, no control characters, not too long. */
struct fb_shown {
    char text[100];
};
struct fb_shown fb_show(const char *text);

/* The key nearest to `path`, or NULL. Only such with all of `flags`. */
const char *fb_suggest_key(const char *path, unsigned flags);
/* The section nearest to `path`, into `section`; false if none is near. */
bool fb_suggest_section(const char *path, char section[FB_KEY_BYTES]);

/* ---- Values ---- */

/* Read `node` into `value`, of the key's C type. Texts are copied into `arena`. `origin` is for
 * errors. FB_NODE_NULL is the table's default. */
int fb_value_read(void *value, const struct fb_key *key, const struct fb_node *node,
                  struct fb_config_arena *arena, const struct fb_origin *origin, forebay_error *error);
int fb_value_default(void *value, const struct fb_key *key, struct fb_config_arena *arena,
                     forebay_error *error);
/* Set the text of one name of PAIRS; *was_there says if it replaced one. */
int fb_pairs_set(struct fb_pairs *pairs, const char *name, const char *text, struct fb_config_arena *arena,
                 bool *was_there, forebay_error *error);
/* "a whole number, 1 or more, or auto": for errors and --help-config. */
struct fb_expected {
    char text[320];
};
struct fb_expected fb_value_expected(const struct fb_key *key);

/* ---- Applying ---- */

struct fb_config_places {
    struct fb_config_arena arena;
    struct fb_place {
        const struct fb_origin *origin; /* who named it last, also if with null */
        struct fb_mark mark;
        bool is_set, is_foreign;
    } * at; /* fb_key_count of them */

    /* prefetch_factor waits until the number of workers is known; NULL: none. */
    const char *factor_key;
    uint64_t factor;
    /* Who said USE_RAM_CACHE: false; that beats a CACHE_SIZE_GB of the same file. */
    const struct fb_origin *uncached;
};

struct fb_apply {
    struct fb_config *config; /* with its places */
    const struct fb_origin *origin;
    const struct fb_log *log;
    forebay_error *error;
};

/* A whole document (NULL: empty), or one key and its value. */
int fb_apply_document(const struct fb_apply *apply, const struct fb_node *document);
int fb_apply_entry(const struct fb_apply *apply, const struct fb_node *entry);
/* Set one row from `node`, whose mark is where it stood. Twice from one origin is an error. */
int fb_apply_row(const struct fb_apply *apply, const struct fb_key *key,
                 const struct fb_node *node);
/* The row is set by `node`, without reading a value yet. */
int fb_apply_claim(const struct fb_apply *apply, const struct fb_key *key,
                   const struct fb_node *node);
struct fb_place *fb_apply_place(const struct fb_apply *apply, const struct fb_key *key);

/* Keys of other loaders. *known is false if `entry` is none. */
int fb_foreign_apply(const struct fb_apply *apply, const struct fb_node *entry, bool *known);
bool fb_foreign_is_section(const char *name);
/* The key of ours that foreign name number `i` is read as; *foreign is NULL behind the last. */
const char *fb_foreign_name(size_t i, const char **foreign);
/* After all was applied: what needed to know the rest. */
int fb_foreign_finish(const struct fb_apply *apply);
#endif
