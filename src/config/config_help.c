/* config_help.c -- the table in words: what a value must be, --help-config, the reference page. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/key.h"

static void append(struct fb_expected *expected, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(struct fb_expected *expected, const char *format, ...)
{
    size_t used = strlen(expected->text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(expected->text + used, sizeof(expected->text) - used, format, arguments);
    va_end(arguments);
}

static void append_words(struct fb_expected *expected, const struct fb_key *key, const char *before)
{
    const char *cursor = key->choices;
    struct fb_word word;

    while (fb_word_next(&cursor, &word)) {
        if (key->type == SIZE && strncmp(word.text, "samples", 7) == 0)
            continue;
        append(expected, "%s%.*s%s", before, word.length, word.text,
               word.built ? "" : " (not built yet)");
        before = key->type == CHOICE ? ", " : " or ";
    }
}

static void append_count(struct fb_expected *expected, const struct fb_key *key)
{
    struct fb_limit limit = fb_key_limit(key);

    append(expected, "a whole number");
    if (limit.maximum < (uint64_t)1 << 53)
        append(expected, " from %" PRIu64 " to %" PRIu64, limit.minimum, limit.maximum);
    else
        append(expected, ", %" PRIu64 " or more", limit.minimum);
    append(expected, " (e.g. %d)", 8);
    append_words(expected, key, ", or ");
}

static void append_size(struct fb_expected *expected, const struct fb_key *key)
{
    struct fb_word word;

    append(expected, "a size such as 12GiB, 50GB or 4096 (bytes)");
    if (fb_word_find(key->choices, "samples", &word) >= 0)
        append(expected, ", a number of samples such as 5000 samples");
    append_words(expected, key, ", or ");
}

static void append_dtypes(struct fb_expected *expected)
{
    append(expected, "a type of number:");
#define FOREBAY_X(name, bytes, text, numpy, dlpack) append(expected, " %s", text);
    FOREBAY_DTYPE_MAP(FOREBAY_X)
#undef FOREBAY_X
    append(expected, " (or NumPy's name, e.g. float32)");
}

static void append_share(struct fb_expected *expected, const struct fb_key *key)
{
    struct fb_limit limit = fb_key_limit(key);

    append(expected, "a share from 0%% to 100%% such as 2.5%%");
    if (limit.minimum <= limit.maximum)
        append(expected, ", or a whole number such as 100");
}

struct fb_expected fb_value_expected(const struct fb_key *key)
{
    struct fb_expected expected = { "" };

    switch (key->type) {
    case BOOL:
        append(&expected, "true or false");
        break;
    case COUNT:
        append_count(&expected, key);
        break;
    case SIZE:
        append_size(&expected, key);
        break;
    case CHOICE:
        append(&expected, "one of ");
        append_words(&expected, key, "");
        break;
    case DTYPE:
        append_dtypes(&expected);
        break;
    case SHARE:
        append_share(&expected, key);
        break;
    case TEXT:
        append(&expected, "a text");
        break;
    case TEXTS:
        append(&expected, "a text, or a list of texts such as [\"a\", \"b\"]");
        break;
    case PAIRS:
        append(&expected, "a mapping of names to texts such as {blur: \"blur/*.npy\"}");
        break;
    case REALS:
        append(&expected, "a number, or a list of numbers such as [0.5, 0.25]");
        break;
    }
    return expected;
}

/* What Markdown and HTML would take for their own. */
static void put_markdown(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (strchr("*|`[]\\", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static const char *remark(const struct fb_key *key)
{
    return key->flags & IS_LIVE ? "live" : key->flags & LATER ? "not built yet" : "";
}

static void put_row(FILE *out, const struct fb_key *key)
{
    fprintf(out, "| `%s` | `%s` | %s | ", key->name, key->fallback, remark(key));
    put_markdown(out, fb_value_expected(key).text);
    fputs(" | ", out);
    put_markdown(out, key->texts[0]);
    fputs(" |\n", out);
}

static void put_text(FILE *out, const struct fb_key *key)
{
    const char *mark = remark(key);

    fprintf(out, "%s: %s%s%s%s\n    %s\n    Takes %s.\n", key->name, key->fallback,
            mark[0] ? "   (" : "", mark, mark[0] ? ")" : "", key->texts[0],
            fb_value_expected(key).text);
}

void fb_config_help(void *out, bool markdown)
{
    if (markdown)
        fputs("| key | default | | takes | what it does |\n|---|---|---|---|---|\n", out);
    for (size_t i = 0; i < fb_key_count; i++) {
        if (markdown)
            put_row(out, &fb_keys[i]);
        else
            put_text(out, &fb_keys[i]);
    }
}
