#include "source/glob.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct expansion {
    fb_glob_fn fn;
    void *data;
    unsigned count;
};

/* The end of the part at `at` of a brace: its comma or closing brace; NULL if there is none. */
static const char *part_end(const char *at)
{
    unsigned depth = 0;

    for (; *at; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '{')
            depth++;
        else if (depth == 0 && (*at == ',' || *at == '}'))
            return at;
        else if (*at == '}')
            depth--;
    }
    return NULL;
}

/* A brace that stands for numbers: {000..123}, and {0..10..5} with a step. */
struct range {
    uint64_t first, last, step;
    int width; /* digits, as many as the longer of the two has if one begins with 0 */
    const char *rest;
};

static const char *number_end(const char *at, uint64_t *number)
{
    const char *begin = at;

    for (*number = 0; *at >= '0' && *at <= '9' && at - begin < 18; at++)
        *number = *number * 10 + (uint64_t)(*at - '0');
    return at > begin ? at : NULL;
}

static bool range_read(const char *brace, struct range *range)
{
    const char *first = brace + 1, *first_end = number_end(first, &range->first), *last, *end;
    bool padded;

    if (!first_end || strncmp(first_end, "..", 2) != 0)
        return false;
    last = first_end + 2;
    end = number_end(last, &range->last);
    if (!end)
        return false;
    padded = (first[0] == '0' && first_end > first + 1) || (last[0] == '0' && end > last + 1);
    range->width = !padded ? 1 : (int)(first_end - first > end - last ? first_end - first
                                                                      : end - last);
    range->step = 1;
    if (strncmp(end, "..", 2) == 0)
        end = number_end(end + 2, &range->step);
    range->rest = end ? end + 1 : NULL;
    return end && *end == '}' && range->step > 0;
}

/* The first brace that is closed and has a comma or a range; others are plain text, as in a
 * shell. */
static const char *find_brace(const char *pattern)
{
    for (; *pattern; pattern++) {
        const char *end;

        if (*pattern == '\\' && pattern[1]) {
            pattern++;
            continue;
        }
        if (*pattern != '{')
            continue;
        if (range_read(pattern, &(struct range){ 0 }))
            return pattern;
        end = part_end(pattern + 1);
        if (end && *end == ',') {
            while (end && *end == ',')
                end = part_end(end + 1);
            if (end)
                return pattern;
        }
    }
    return NULL;
}

static int expand(struct expansion *expansion, const char *pattern, forebay_error *error);

/* Each number of a range in its place, upwards or downwards. */
static int expand_range(struct expansion *expansion, const char *pattern, const char *brace,
                        const struct range *range, forebay_error *error)
{
    uint64_t count, number = range->first;
    int status = FOREBAY_OK;

    count = range->last > number ? range->last - number : number - range->last;
    count = count / range->step + 1;
    for (uint64_t i = 0; i < count && !status; i++) {
        char one[FB_PATH_BYTES];
        int length = snprintf(one, sizeof(one), "%.*s%0*" PRIu64 "%s", (int)(brace - pattern),
                              pattern, range->width, number, range->rest);

        if (length < 0 || (size_t)length >= sizeof(one))
            return fb_fail(error, FOREBAY_BAD_CONFIG, "the pattern is longer than any path: "
                           "'%.60s...'", pattern);
        status = expand(expansion, one, error);
        number = range->last > range->first ? number + range->step : number - range->step;
    }
    return status;
}

static int expand(struct expansion *expansion, const char *pattern, forebay_error *error)
{
    const char *brace = find_brace(pattern), *part, *end, *rest;
    char one[FB_PATH_BYTES];
    struct range range;
    int status = FOREBAY_OK;

    if (!brace) {
        if (++expansion->count > FB_GLOB_PATTERNS)
            return fb_fail(error, FOREBAY_BAD_CONFIG, "the braces of the pattern stand for more "
                           "than %d patterns", FB_GLOB_PATTERNS);
        return expansion->fn(expansion->data, pattern, error);
    }
    if (range_read(brace, &range))
        return expand_range(expansion, pattern, brace, &range, error);
    for (rest = part_end(brace + 1); *rest == ',';)
        rest = part_end(rest + 1);
    rest++;
    for (part = brace + 1; part < rest && !status; part = end + 1) {
        size_t before = (size_t)(brace - pattern), inside;

        end = part_end(part);
        inside = (size_t)(end - part);
        /* What is put together is shorter than the pattern, which was measured. */
        memcpy(one, pattern, before);
        memcpy(one + before, part, inside);
        memcpy(one + before + inside, rest, strlen(rest) + 1);
        status = expand(expansion, one, error);
    }
    return status;
}

int fb_glob_expand(const char *pattern, fb_glob_fn fn, void *data, forebay_error *error)
{
    struct expansion expansion = { fn, data, 0 };
    unsigned braces = 0;

    if (strlen(pattern) >= FB_PATH_BYTES)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "the pattern is longer than any path: '%.60s...'",
                       pattern);
    for (const char *at = pattern; *at; at++)
        braces += *at == '{';
    if (braces > 16) /* each is a level of the stack */
        return fb_fail(error, FOREBAY_BAD_CONFIG, "the pattern has more than 16 braces: '%.60s...'",
                       pattern);
    return expand(&expansion, pattern, error);
}

bool fb_glob_is_magic(const char *pattern, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (pattern[i] == '\\')
            i++;
        else if (strchr("*?[", pattern[i]))
            return true;
    }
    return false;
}

/* One thing of a pattern that stands for one character: x, \x, ? or [...]. */
static const char *one_end(const char *at, const char *end)
{
    const char *close = at + 1;

    if (*at == '\\')
        return at + 1 < end ? at + 2 : end;
    if (*at != '[')
        return at + 1;
    if (close < end && (*close == '!' || *close == '^'))
        close++;
    if (close < end && *close == ']') /* the first one is meant as itself */
        close++;
    while (close < end && *close != ']')
        close++;
    return close < end ? close + 1 : at + 1; /* never closed: a plain [ */
}

static bool set_holds(const char *at, const char *end, unsigned char c)
{
    bool found = false, turned = *at == '!' || *at == '^';

    at += turned;
    while (at < end) {
        unsigned char low = (unsigned char)*at++, high = low;

        if (at + 1 < end && *at == '-') {
            high = (unsigned char)at[1];
            at += 2;
        }
        found |= c >= low && c <= high;
    }
    return found != turned;
}

/* How many bytes of `name` the thing [at, end) matches: 0 if it does not. */
static size_t match_one(const char *at, const char *end, const char *name)
{
    size_t length = 1;

    if (*name == '\0' || *name == '/')
        return 0;
    if (*at == '?') { /* a whole character of UTF-8 */
        while (((unsigned char)name[length] & 0xc0) == 0x80)
            length++;
        return length;
    }
    if (*at == '[' && end > at + 1)
        return set_holds(at + 1, end - 1, (unsigned char)*name);
    return *name == *(*at == '\\' && end == at + 2 ? at + 1 : at);
}

bool fb_glob_match(const char *pattern, size_t length, const char *name)
{
    const char *at = pattern, *end = pattern + length, *star = NULL, *again = name;

    if (*name == '.' && (length == 0 || *pattern != '.'))
        return false;
    while (*name) {
        const char *next = at < end ? one_end(at, end) : at;
        size_t taken = at < end && *at != '*' ? match_one(at, next, name) : 0;

        if (at < end && *at == '*') {
            star = ++at;
            again = name;
        } else if (taken) {
            at = next;
            name += taken;
        } else if (star) { /* let the last star take one more */
            at = star;
            name = ++again;
        } else {
            return false;
        }
    }
    while (at < end && *at == '*')
        at++;
    return at == end;
}

struct capture {
    char *found;
    size_t size;
};

static bool capture(struct capture *kept, const char *at, const char *path, size_t used);

/* The wildcard stood for [from, path): keep that and go on behind it. */
static bool keep(struct capture *kept, const char *at, const char *from, const char *path,
                 size_t used)
{
    size_t length = (size_t)(path - from);

    if (used + length + 2 > kept->size)
        return false;
    memcpy(kept->found + used, from, length);
    kept->found[used + length] = '/';
    return capture(kept, at, path, used + length + 1);
}

/* Folders: none, or as many as it takes, each with its slash. */
static bool capture_folders(struct capture *kept, const char *at, const char *path, size_t used)
{
    for (const char *to = path;; to++) {
        if (keep(kept, at, path, to, used))
            return true;
        to = strchr(to, '/');
        if (!to)
            return false;
    }
}

static bool capture(struct capture *kept, const char *at, const char *path, size_t used)
{
    const char *end = at + strlen(at), *next;
    size_t taken;

    for (bool begins = true; at < end; begins = at[-1] == '/') {
        if (begins && strncmp(at, "**/", 3) == 0)
            return capture_folders(kept, at + 3, path, used);
        if (*at == '*') {
            for (const char *to = path;; to++) {
                if (keep(kept, at + 1, path, to, used))
                    return true;
                if (*to == '\0' || *to == '/')
                    return false;
            }
        }
        if (*at == '/') {
            if (*path++ != '/')
                return false;
            at++;
            continue;
        }
        next = one_end(at, end);
        taken = match_one(at, next, path);
        if (!taken)
            return false;
        if (fb_glob_is_magic(at, (size_t)(next - at)))
            return keep(kept, next, path, path + taken, used);
        at = next;
        path += taken;
    }
    if (*path)
        return false;
    kept->found[used] = '\0';
    return true;
}

bool fb_glob_capture(const char *pattern, const char *path, char *found, size_t size)
{
    struct capture kept = { found, size };

    return size > 0 && capture(&kept, pattern, path, 0);
}
