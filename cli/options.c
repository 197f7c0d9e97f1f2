#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"

#define WORD_MOST 32

/* Letters to change, insert, remove or swap until a is b; large for words too long to be ours. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][WORD_MOST + 1]; /* the row before last, the last, the present */
    size_t m = strlen(a), n = strlen(b);

    if (m > WORD_MOST || n > WORD_MOST)
        return WORD_MOST;
    for (unsigned j = 0; j <= n; j++)
        rows[1][j] = rows[0][j] = j;
    for (unsigned i = 1; i <= m; i++) {
        rows[2][0] = i;
        for (unsigned j = 1; j <= n; j++) {
            unsigned change = rows[1][j - 1] + (a[i - 1] != b[j - 1]);
            unsigned best = rows[1][j] + 1 < rows[2][j - 1] + 1 ? rows[1][j] + 1
                                                                : rows[2][j - 1] + 1;

            if (change < best)
                best = change;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                rows[0][j - 2] + 1 < best)
                best = rows[0][j - 2] + 1;
            rows[2][j] = best;
        }
        memcpy(rows[0], rows[1], sizeof(rows[0]));
        memcpy(rows[1], rows[2], sizeof(rows[1]));
    }
    return rows[1][n];
}

const char *nearest_word(const char *word, const char *const *first, size_t stride, size_t count)
{
    const char *best = NULL, *at = (const char *)first;
    /* Half of a word may be wrong, but never more than three letters. */
    unsigned most = strlen(word) < 6 ? (unsigned)(strlen(word) + 1) / 2 : 3;

    for (size_t i = 0; i < count; i++, at += stride) {
        const char *candidate;
        unsigned far;

        memcpy(&candidate, at, sizeof(candidate));
        far = distance(word, candidate);
        if (far > most)
            continue;
        best = candidate;
        most = far ? far - 1 : 0;
    }
    return best;
}

bool options_has(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

static int number_read(const struct option *option, const char *text, forebay_error *error)
{
    uint64_t least = option->type == OPTION_COUNT ? 1 : 0, value;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || value < least)
        return fb_fail(error, FOREBAY_BAD_USE, "%s '%s': expected a whole number from %u on",
                       option->name, text, (unsigned)least);
    memcpy(option->to, &value, sizeof(value));
    return FOREBAY_OK;
}

static int value_read(const struct option *option, const char *text, int argc,
                      forebay_error *error)
{
    struct texts *texts = option->to;

    switch (option->type) {
    case OPTION_SIZE:
        if (!fb_size_parse(text, option->to) || *(uint64_t *)option->to == 0)
            return fb_fail(error, FOREBAY_BAD_USE,
                           "%s '%s': expected a size such as 4096, 15MB or 1GiB", option->name,
                           text);
        return FOREBAY_OK;
    case OPTION_TEXTS:
    case OPTION_REST:
        if (!texts->values)
            texts->values = calloc((size_t)argc, sizeof(*texts->values));
        if (!texts->values)
            return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the command line");
        texts->values[texts->count++] = text;
        return FOREBAY_OK;
    case OPTION_ALONE:
        memcpy(option->to, &text, sizeof(text));
        return FOREBAY_OK;
    default:
        return number_read(option, text, error);
    }
}

static const struct option *named(const char *argument, const struct option *options, size_t count)
{
    size_t length = strcspn(argument, "=");

    for (size_t i = 0; i < count; i++)
        if (options[i].name[0] == '-' && strlen(options[i].name) == length &&
            strncmp(options[i].name, argument, length) == 0)
            return &options[i];
    return NULL;
}

static int unknown(const char *argument, const struct option *options, size_t count,
                   forebay_error *error)
{
    char name[WORD_MOST + 1] = "";
    const char *near;

    strncpy(name, argument, WORD_MOST);
    name[strcspn(name, "=")] = '\0';
    near = nearest_word(name, &options[0].name, sizeof(options[0]), count);
    if (near && near[0] == '-')
        return fb_fail(error, FOREBAY_BAD_USE, "there is no option %s; did you mean %s?", argument,
                       near);
    return fb_fail(error, FOREBAY_BAD_USE, "there is no option %s", argument);
}

/* One option that begins with "--"; *i is moved on if its value is the next argument. */
static int option_read(int argc, char **argv, int *i, const struct option *options, size_t count,
                       forebay_error *error)
{
    const struct option *option = named(argv[*i], options, count);
    const char *value = strchr(argv[*i], '=');

    if (!option)
        return unknown(argv[*i], options, count, error);
    if (option->type == OPTION_FLAG) {
        if (value)
            return fb_fail(error, FOREBAY_BAD_USE, "%s takes no value", option->name);
        *(bool *)option->to = true;
        return FOREBAY_OK;
    }
    /* What begins with -- is the next option, not a value: "--epochs --json". */
    if (!value && (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0))
        return fb_fail(error, FOREBAY_BAD_USE, "%s needs a value", option->name);
    return value_read(option, value ? value + 1 : argv[++*i], argc, error);
}

static const struct option *next_alone(const struct option *options, size_t count, size_t *at)
{
    while (*at < count && options[*at].type != OPTION_ALONE && options[*at].type != OPTION_REST)
        ++*at;
    if (*at < count && options[*at].type == OPTION_REST)
        return &options[*at];
    return *at < count ? &options[(*at)++] : NULL;
}

int options_parse(int argc, char **argv, const struct option *options, size_t count,
                  forebay_error *error)
{
    const struct option *option;
    size_t alone = 0;
    bool only_alone = false;
    int status = FOREBAY_OK;

    for (int i = 1; i < argc && !status; i++) {
        if (!only_alone && strcmp(argv[i], "--") == 0)
            only_alone = true;
        else if (!only_alone && argv[i][0] == '-' && argv[i][1])
            status = option_read(argc, argv, &i, options, count, error);
        else if ((option = next_alone(options, count, &alone)))
            status = value_read(option, argv[i], argc, error);
        else
            status = fb_fail(error, FOREBAY_BAD_USE, "'%s' is one argument too many", argv[i]);
    }
    while (!status && (option = next_alone(options, count, &alone))) {
        bool given = option->type == OPTION_REST && ((struct texts *)option->to)->count > 0;

        if (option->required && !given)
            status = fb_fail(error, FOREBAY_BAD_USE, "%s is missing", option->name);
        if (option->type == OPTION_REST)
            break;
    }
    return status;
}
