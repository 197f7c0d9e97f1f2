#include "source/join.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/sort.h"
#include "source/source.h"

/* The key of every file of a field, and the files in the order of their keys. */
struct keys {
    struct fb_budget *budget;
    uint64_t count;
    uint64_t *places; /* of the keys, in `text` */
    uint32_t *order;
    struct fb_tape text;
};

static const char *key_of(const struct keys *keys, uint64_t place)
{
    return keys->text.memory + keys->places[keys->order[place]];
}

static int compare_keys(const void *a, const void *b, const void *data)
{
    const struct keys *keys = data;

    return strcmp(keys->text.memory + keys->places[*(const uint32_t *)a],
                  keys->text.memory + keys->places[*(const uint32_t *)b]);
}

static void release_keys(struct keys *keys)
{
    fb_block_free(keys->budget, FB_STAGE_INDEX, keys->places, keys->count, sizeof(uint64_t));
    fb_block_free(keys->budget, FB_STAGE_INDEX, keys->order, keys->count, sizeof(uint32_t));
    fb_tape_release(&keys->text);
    *keys = (struct keys){ .budget = keys->budget, .text.budget = keys->budget };
}

static bool find_stem(const struct fb_files *files, uint64_t number, char *key, size_t size)
{
    const char *name = fb_files_name(files, number), *dot = strrchr(name, '.');
    size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);

    if (length >= size)
        return false;
    memcpy(key, name, length);
    key[length] = '\0';
    return true;
}

/* What the wildcards stood for, in the first of the patterns that the path matches. */
struct matching {
    const char *folder, *path;
    char *key;
    size_t size;
    bool found;
};

static int match_pattern(void *data, const char *pattern, forebay_error *error)
{
    struct matching *matching = data;
    char whole[FB_PATH_BYTES];
    bool relative = pattern[0] != '/' && matching->folder[0];

    (void)error;
    snprintf(whole, sizeof(whole), "%s%s%s", relative ? matching->folder : "",
             relative ? "/" : "", pattern);
    if (!matching->found)
        matching->found = fb_glob_capture(whole, matching->path, matching->key, matching->size);
    return FOREBAY_OK;
}

static bool find_key(const struct fb_join *field, uint64_t number, const char *folder, bool stems,
                     char *key, size_t size)
{
    char path[FB_PATH_BYTES];
    struct matching matching = { .folder = folder, .path = path, .key = key, .size = size };

    if (stems)
        return find_stem(field->files, number, key, size);
    fb_files_place(field->files, number, path, sizeof(path));
    return fb_glob_expand(field->pattern, match_pattern, &matching, NULL) == FOREBAY_OK &&
           matching.found;
}

static int make_keys(struct keys *keys, const struct fb_join *field, const char *folder, bool stems,
                     forebay_error *error)
{
    char key[FB_PATH_BYTES];

    keys->count = field->files->count;
    keys->places = fb_block_new(keys->budget, FB_STAGE_INDEX, keys->count, sizeof(uint64_t),
                                "joining the fields", error);
    keys->order = fb_block_new(keys->budget, FB_STAGE_INDEX, keys->count, sizeof(uint32_t),
                               "joining the fields", error);
    if (!keys->places || !keys->order)
        return fb_failed(error);
    for (uint64_t i = 0; i < keys->count; i++) {
        char *kept;
        size_t bytes;

        if (!find_key(field, i, folder, stems, key, sizeof(key)))
            return fb_fail(error, FOREBAY_BAD_DATA, "field '%s': '%s' has no stem to join by",
                           field->name, fb_files_name(field->files, i));
        bytes = strlen(key) + 1;
        kept = fb_tape_add(&keys->text, bytes, "joining the fields", error);
        if (!kept)
            return fb_failed(error);
        memcpy(kept, key, bytes);
        keys->places[i] = keys->text.used - bytes;
        keys->order[i] = (uint32_t)i;
    }
    fb_sort(keys->order, keys->count, sizeof(uint32_t), compare_keys, keys);
    for (uint64_t i = 1; i < keys->count; i++)
        if (strcmp(key_of(keys, i - 1), key_of(keys, i)) == 0)
            return fb_fail(error, FOREBAY_BAD_DATA, "field '%s' has two files with the stem '%s', "
                           "so that fields cannot be joined by it", field->name, key_of(keys, i));
    return FOREBAY_OK;
}

/* The first few stems that one field has and the other has not. */
struct lonely {
    char text[160];
    uint64_t count;
};

static void add_lonely(struct lonely *lonely, const char *key)
{
    size_t used = strlen(lonely->text);

    if (lonely->count++ < 3)
        snprintf(lonely->text + used, sizeof(lonely->text) - used, "%s'%.40s'", used ? ", " : "",
                 key);
}

static int fail_lonely(const struct fb_join *one, const struct fb_join *two, const struct keys *a,
                       const struct keys *b, forebay_error *error)
{
    struct lonely left = { "", 0 }, right = { "", 0 };

    for (uint64_t i = 0, k = 0; i < a->count || k < b->count;) {
        int order = i == a->count ? 1 : k == b->count ? -1 : strcmp(key_of(a, i), key_of(b, k));

        if (order < 0)
            add_lonely(&left, key_of(a, i));
        if (order > 0)
            add_lonely(&right, key_of(b, k));
        i += order <= 0;
        k += order >= 0;
    }
    return fb_fail(error, FOREBAY_BAD_DATA, "the fields do not join by file stem: '%s' has %" PRIu64
                   " files, %" PRIu64 " of them without a partner%s%s; '%s' has %" PRIu64
                   " files, %" PRIu64 " without a partner%s%s", one->name, a->count, left.count,
                   left.count ? ": " : "", left.text, two->name, b->count, right.count,
                   right.count ? ": " : "", right.text);
}

static int join_two(const struct fb_join *one, struct fb_join *two, const struct keys *a,
                    const struct keys *b, forebay_error *error)
{
    bool same = true;

    for (uint64_t i = 0; i < fb_max(a->count, b->count); i++)
        if (i == a->count || i == b->count || strcmp(key_of(a, i), key_of(b, i)) != 0)
            return fail_lonely(one, two, a, b, error);
    for (uint64_t i = 0; i < a->count && same; i++)
        same = a->order[i] == b->order[i];
    if (same) /* the usual case: sorted alike, no map is needed */
        return FOREBAY_OK;
    two->map = fb_block_new(a->budget, FB_STAGE_INDEX, a->count, sizeof(*two->map),
                            "joining the fields", error);
    if (!two->map)
        return fb_failed(error);
    for (uint64_t i = 0; i < a->count; i++)
        two->map[a->order[i]] = b->order[i];
    return FOREBAY_OK;
}

static int join_by(struct fb_join *fields, size_t count, const char *folder, bool stems,
                   struct fb_budget *budget, forebay_error *error)
{
    struct keys first = { .budget = budget, .text.budget = budget }, other = first;
    int status = make_keys(&first, &fields[0], folder, stems, error);

    for (size_t i = 1; i < count && !status; i++) {
        status = make_keys(&other, &fields[i], folder, stems, error);
        if (!status)
            status = join_two(&fields[0], &fields[i], &first, &other, error);
        release_keys(&other);
    }
    release_keys(&first);
    if (status)
        fb_join_release(fields, count, budget);
    return status;
}

int fb_join(struct fb_join *fields, size_t count, const char *folder, struct fb_budget *budget,
            forebay_error *error)
{
    forebay_error second;
    int status;

    if (count < 2)
        return FOREBAY_OK;
    for (size_t i = 0; i < count; i++)
        if (fields[i].files->count > UINT32_MAX)
            return fb_fail(error, FOREBAY_BAD_DATA, "field '%s' has more than 2^32 files",
                           fields[i].name);
    status = join_by(fields, count, folder, true, budget, error);
    if (status != FOREBAY_BAD_DATA)
        return status;
    /* If that does not help either, the message about stems is the one that says more. */
    return join_by(fields, count, folder, false, budget, &second) ? status : FOREBAY_OK;
}

void fb_join_release(struct fb_join *fields, size_t count, struct fb_budget *budget)
{
    for (size_t i = 0; i < count; i++) {
        fb_block_free(budget, FB_STAGE_INDEX, fields[i].map, fields[i].files->count,
                      sizeof(*fields[i].map));
        fields[i].map = NULL;
    }
}
