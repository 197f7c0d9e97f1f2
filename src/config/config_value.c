/* config_value.c -- one node to one value of its key's type; says what was expected if it is none.
 */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/dtype.h"
#include "base/size.h"
#include "config/key.h"

/* What every reader of a type gets. */
struct context {
    const struct fb_key *key;
    struct fb_config_arena *arena;
    const struct fb_origin *origin;
    forebay_error *error;
};

/* "key: ", unless the place that stands in front of the message ends with the key already. */
static struct fb_shown label(const struct context *context)
{
    const char *key = context->key->name, *place = context->origin->name;
    size_t length = strlen(place), key_length = strlen(key);
    struct fb_shown shown = { "" };

    if (!context->origin->is_setting || length < key_length ||
        strcmp(place + length - key_length, key) != 0)
        snprintf(shown.text, sizeof(shown.text), "%s: ", key);
    return shown;
}

static int fail_expected(const struct context *context, const struct fb_node *node)
{
    static const char *const kinds[] = { "nothing", "", "a list", "a mapping" };
    char found[sizeof(struct fb_shown) + 2];

    if (node->kind == FB_NODE_TEXT)
        snprintf(found, sizeof(found), "`%s`", fb_show(node->text).text);
    else
        snprintf(found, sizeof(found), "%s", kinds[node->kind]);
    return fb_config_fail(context->error, FOREBAY_BAD_CONFIG, context->origin, node->mark,
                          "%sexpected %s; found %s", label(context).text,
                          fb_value_expected(context->key).text, found);
}

static bool is_word(const char *text, const char *const *words)
{
    while (*words && strcasecmp(text, *words) != 0)
        words++;
    return *words != NULL;
}

static bool is_yes(const char *text)
{
    return is_word(text, (const char *const[]){ "true", "yes", "on", NULL });
}

static bool is_no(const char *text)
{
    return is_word(text, (const char *const[]){ "false", "no", "off", NULL });
}

/* The number of a word the key accepts, or -1. Readers of YAML 1.1 turn `off` into false before
 * we see it, so both are the same where `off` is a word. */
static int find_word(const struct fb_key *key, const struct fb_node *node, struct fb_word *word)
{
    int number = fb_word_find(key->choices, node->text, word);

    return number < 0 && !node->quoted && is_no(node->text)
               ? fb_word_find(key->choices, "off", word)
               : number;
}

static bool word_is(const struct fb_word *word, const char *text)
{
    return (size_t)word->length == strlen(text) && strncmp(word->text, text, strlen(text)) == 0;
}

/* Decimal digits and nothing else; false also if it is more than 2^53. */
static bool parse_digits(const char *text, uint64_t *value)
{
    uint64_t number = 0;

    if (!isdigit((unsigned char)*text))
        return false;
    for (; isdigit((unsigned char)*text); text++) {
        number = number * 10 + (uint64_t)(*text - '0');
        if (number > (uint64_t)1 << 53)
            return false;
    }
    *value = number;
    return *text == '\0';
}

/* A decimal number, read alike under every locale. */
static bool parse_real(const char *text, double *value)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *end = NULL;
    bool good;

    if (!plain)
        return false;
    /* strtod also takes "inf", "nan" and hexadecimal. */
    good = *text && strspn(text, "+-.0123456789eE") == strlen(text);
    if (good)
        *value = strtod_l(text, &end, plain);
    good = good && *end == '\0' && isfinite(*value);
    freelocale(plain);
    return good;
}

static int read_bool(const struct context *context, const struct fb_node *node, bool *value)
{
    if (!is_yes(node->text) && !is_no(node->text))
        return fail_expected(context, node);
    *value = is_yes(node->text);
    return FOREBAY_OK;
}

static int read_count(const struct context *context, const struct fb_node *node,
                      struct fb_count *value)
{
    struct fb_limit limit = fb_key_limit(context->key);
    struct fb_count count = { .is_auto = false };
    struct fb_word word;

    if (find_word(context->key, node, &word) >= 0)
        count.is_auto = true;
    else if (!parse_digits(node->text, &count.value) || count.value < limit.minimum ||
             count.value > limit.maximum)
        return fail_expected(context, node);
    *value = count;
    return FOREBAY_OK;
}

/* "5000 samples", "10min": digits, and what stands behind them. NULL: there are none. */
static const char *parse_amount(const char *text, uint64_t *value)
{
    char digits[24];
    size_t length = strspn(text, "0123456789");

    if (length >= sizeof(digits))
        return NULL;
    memcpy(digits, text, length);
    digits[length] = '\0';
    return parse_digits(digits, value) ? text + length + strspn(text + length, " ") : NULL;
}

static bool parse_samples(const char *text, uint64_t *value)
{
    const char *unit = parse_amount(text, value);

    return unit && is_word(unit, (const char *const[]){ "samples", "sample", NULL });
}

static int read_size(const struct context *context, const struct fb_node *node,
                     struct fb_size *value)
{
    const char *choices = context->key->choices;
    struct fb_size size = { .mode = FB_SIZE_BYTES };
    struct fb_word word;

    if (fb_word_find(choices, "samples", &word) >= 0 && parse_samples(node->text, &size.value))
        size.mode = FB_SIZE_SAMPLES;
    else if (find_word(context->key, node, &word) >= 0 && !word_is(&word, "samples"))
        size.mode = word_is(&word, "auto") ? FB_SIZE_AUTO : FB_SIZE_OFF;
    else if (!fb_size_parse(node->text, &size.value) ||
             size.value < fb_key_limit(context->key).minimum)
        return fail_expected(context, node);
    /* No bytes, no samples: that is off, and whoever asks needs to look at one thing only. */
    if (size.value == 0 && size.mode != FB_SIZE_AUTO && fb_word_find(choices, "off", &word) >= 0)
        size.mode = FB_SIZE_OFF;
    *value = size;
    return FOREBAY_OK;
}

static int read_choice(const struct context *context, const struct fb_node *node, int *value)
{
    struct fb_word word;
    int number = find_word(context->key, node, &word);

    if (number < 0)
        return fail_expected(context, node);
    if (!word.built)
        return fb_config_fail(context->error, FOREBAY_NOT_BUILT, context->origin, node->mark,
                              "%s%.*s is not built yet", label(context).text, word.length,
                              word.text);
    *value = number;
    return FOREBAY_OK;
}

static int read_dtype(const struct context *context, const struct fb_node *node,
                      forebay_dtype *value)
{
    return fb_dtype_parse(node->text, value) ? FOREBAY_OK : fail_expected(context, node);
}

static int read_share(const struct context *context, const struct fb_node *node,
                      struct fb_share *value)
{
    struct fb_limit limit = fb_key_limit(context->key);
    size_t length = strlen(node->text);
    struct fb_share share = { .is_percent = length && node->text[length - 1] == '%' };
    uint64_t whole = 0;
    char number[32];
    bool good = length < sizeof(number);

    if (good && share.is_percent) {
        snprintf(number, sizeof(number), "%.*s", (int)(length - 1), node->text);
        good = parse_real(number, &share.value) && share.value >= 0 && share.value <= 100;
    } else if (good) {
        good = parse_digits(node->text, &whole) && whole >= limit.minimum && whole <= limit.maximum;
        share.value = (double)whole;
    }
    if (!good)
        return fail_expected(context, node);
    *value = share;
    return FOREBAY_OK;
}

static int read_text(const struct context *context, const struct fb_node *node, char **value)
{
    char *copy = fb_config_arena_copy(context->arena, node->text, strlen(node->text));

    if (!copy)
        return fb_config_no_memory(context->error);
    *value = copy;
    return FOREBAY_OK;
}

/* A list may also be written as its only entry. */
static const struct fb_node *first_entry(const struct fb_node *node, size_t *count)
{
    *count = node->kind == FB_NODE_LIST ? node->count : 1;
    return node->kind == FB_NODE_LIST ? node->first : node;
}

static int read_texts(const struct context *context, const struct fb_node *node,
                      struct fb_texts *value)
{
    struct fb_texts texts = { .count = 0 };
    size_t count;
    const struct fb_node *entry = first_entry(node, &count);

    texts.values = fb_config_arena_take(context->arena, count * sizeof(*texts.values));
    if (!texts.values)
        return fb_config_no_memory(context->error);
    for (; texts.count < count; texts.count++, entry = entry->next) {
        int status = entry->kind == FB_NODE_TEXT
                         ? read_text(context, entry, &texts.values[texts.count])
                         : fail_expected(context, entry);

        if (status)
            return status;
    }
    *value = texts;
    return FOREBAY_OK;
}

static int read_reals(const struct context *context, const struct fb_node *node,
                      struct fb_reals *value)
{
    struct fb_reals reals = { .count = 0 };
    size_t count;
    const struct fb_node *entry = first_entry(node, &count);

    reals.values = fb_config_arena_take(context->arena, count * sizeof(*reals.values));
    if (!reals.values)
        return fb_config_no_memory(context->error);
    for (; reals.count < count; reals.count++, entry = entry->next) {
        if (entry->kind != FB_NODE_TEXT || !parse_real(entry->text, &reals.values[reals.count]))
            return fail_expected(context, entry);
    }
    *value = reals;
    return FOREBAY_OK;
}

static int read_pairs(const struct context *context, const struct fb_node *node,
                      struct fb_pairs *value)
{
    struct fb_pairs pairs = { .count = 0 };
    const struct fb_node *entry = node->first;

    pairs.keys = fb_config_arena_take(context->arena, node->count * sizeof(*pairs.keys));
    pairs.values = fb_config_arena_take(context->arena, node->count * sizeof(*pairs.values));
    if (!pairs.keys || !pairs.values)
        return fb_config_no_memory(context->error);
    for (; entry; pairs.count++, entry = entry->next) {
        int status;

        if (entry->kind != FB_NODE_TEXT)
            return fail_expected(context, entry);
        if (!entry->key[0])
            return fb_config_fail(context->error, FOREBAY_BAD_CONFIG, context->origin,
                                  entry->key_mark, "%s: a name is empty", context->key->name);
        pairs.keys[pairs.count] = fb_config_arena_copy(context->arena, entry->key, strlen(entry->key));
        if (!pairs.keys[pairs.count])
            return fb_config_no_memory(context->error);
        status = read_text(context, entry, &pairs.values[pairs.count]);
        if (status)
            return status;
    }
    *value = pairs;
    return FOREBAY_OK;
}

int fb_pairs_set(struct fb_pairs *pairs, const char *name, const char *text, struct fb_config_arena *arena,
                 bool *was_there, forebay_error *error)
{
    struct fb_pairs more = { .count = pairs->count };
    size_t at = 0;

    while (at < pairs->count && strcmp(pairs->keys[at], name) != 0)
        at++;
    more.count += at == pairs->count;
    more.keys = fb_config_arena_take(arena, more.count * sizeof(*more.keys));
    more.values = fb_config_arena_take(arena, more.count * sizeof(*more.values));
    if (!more.keys || !more.values)
        return fb_config_no_memory(error);
    for (size_t i = 0; i < pairs->count; i++) {
        more.keys[i] = pairs->keys[i];
        more.values[i] = pairs->values[i];
    }
    more.keys[at] = fb_config_arena_copy(arena, name, strlen(name));
    more.values[at] = fb_config_arena_copy(arena, text, strlen(text));
    if (!more.keys[at] || !more.values[at])
        return fb_config_no_memory(error);
    *was_there = at < pairs->count;
    *pairs = more;
    return FOREBAY_OK;
}

int fb_value_default(void *value, const struct fb_key *key, struct fb_config_arena *arena,
                     forebay_error *error)
{
    static const struct fb_origin origin = { "the table of keys", true };
    struct fb_node node;

    fb_node_init_text(&node, key->fallback);
    if (node.kind == FB_NODE_TEXT)
        return fb_value_read(value, key, &node, arena, &origin, error);
    switch (key->type) {
    case CHOICE:
        *(int *)value = -1;
        break;
    case TEXT:
        *(char **)value = NULL;
        break;
    case TEXTS:
        *(struct fb_texts *)value = (struct fb_texts){ .count = 0 };
        break;
    case PAIRS:
        *(struct fb_pairs *)value = (struct fb_pairs){ .count = 0 };
        break;
    case REALS:
        *(struct fb_reals *)value = (struct fb_reals){ .count = 0 };
        break;
    default:
        return fb_fail(error, FOREBAY_BAD_CONFIG, "%s has no default", key->name);
    }
    return FOREBAY_OK;
}

static bool fits_type(enum fb_type type, enum fb_node_kind kind)
{
    if (type == PAIRS)
        return kind == FB_NODE_MAP;
    return kind == FB_NODE_TEXT || (kind == FB_NODE_LIST && (type == TEXTS || type == REALS));
}

int fb_value_read(void *value, const struct fb_key *key, const struct fb_node *node,
                  struct fb_config_arena *arena, const struct fb_origin *origin, forebay_error *error)
{
    struct context context = { key, arena, origin, error };

    if (node->kind == FB_NODE_NULL)
        return fb_value_default(value, key, arena, error);
    if (!fits_type(key->type, node->kind))
        return fail_expected(&context, node);
    switch (key->type) {
    case BOOL:
        return read_bool(&context, node, value);
    case COUNT:
        return read_count(&context, node, value);
    case SIZE:
        return read_size(&context, node, value);
    case CHOICE:
        return read_choice(&context, node, value);
    case DTYPE:
        return read_dtype(&context, node, value);
    case SHARE:
        return read_share(&context, node, value);
    case TEXT:
        return read_text(&context, node, value);
    case TEXTS:
        return read_texts(&context, node, value);
    case PAIRS:
        return read_pairs(&context, node, value);
    case REALS:
        return read_reals(&context, node, value);
    }
    return fb_fail(error, FOREBAY_BAD_CONFIG, "%s has no type", key->name);
}
