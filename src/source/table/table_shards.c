#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/glob.h"
#include "source/sort.h"
#include "source/source.h"
#include "source/table/table.h"

/* name.csv -> its folder with a slash, "name", ".csv" */
struct name {
    char folder[FB_PATH_BYTES];
    char stem[256], extension[64];
};

static int split_name(struct name *name, const char *path, forebay_error *error)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    size_t folder = (size_t)(base - path), stem = dot ? (size_t)(dot - base) : strlen(base);

    if (folder >= sizeof(name->folder) || stem >= sizeof(name->stem) || stem == 0 ||
        strlen(base + stem) >= sizeof(name->extension))
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       "source.path: '%.200s' is no path of a table, "
                       "e.g. data/train.csv",
                       path);
    memcpy(name->folder, path, folder);
    name->folder[folder] = '\0';
    memcpy(name->stem, base, stem);
    name->stem[stem] = '\0';
    memcpy(name->extension, base + stem, strlen(base + stem) + 1);
    return FOREBAY_OK;
}

/* The number of name_part<number>.csv; false if the entry is something else. */
static bool part_number(const struct name *name, const char *entry, uint64_t *number)
{
    size_t stem = strlen(name->stem);
    char *end;

    if (strncmp(entry, name->stem, stem) != 0 || strncmp(entry + stem, "_part", 5) != 0)
        return false;
    entry += stem + 5;
    if (*entry < '0' || *entry > '9' || strspn(entry, "0123456789") > 9)
        return false;
    *number = strtoull(entry, &end, 10);
    return strcmp(end, name->extension) == 0;
}

static int add_shard(struct fb_table *table, const char *folder, const char *file, uint64_t number,
                     forebay_error *error)
{
    uint64_t bytes = strlen(folder) + strlen(file) + 1;
    struct fb_table_shard *shard;

    if (table->shard_count == FB_TABLE_SHARDS)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' has more than %d parts", folder,
                       FB_TABLE_SHARDS);
    if (table->shard_count == table->shard_room) {
        uint64_t room = fb_max(8, 2 * table->shard_room);
        void *more = fb_block_grow(table->budget, FB_STAGE_INDEX, table->shards, table->shard_room,
                                   room, sizeof(*table->shards), "the table's parts", error);

        if (!more)
            return fb_failed(error);
        table->shards = more;
        table->shard_room = room;
    }
    shard = &table->shards[table->shard_count];
    *shard = (struct fb_table_shard){ .path_bytes = bytes, .lines = number };
    shard->path = fb_block_new(table->budget, FB_STAGE_INDEX, bytes, 1, "a path", error);
    if (!shard->path)
        return fb_failed(error);
    snprintf(shard->path, bytes, "%s%s", folder, file);
    table->shard_count++;
    return FOREBAY_OK;
}

/* By their number, which stands in `lines` until the lines are counted. */
static int compare_shards(const void *a, const void *b, const void *data)
{
    uint64_t one = ((const struct fb_table_shard *)a)->lines;
    uint64_t two = ((const struct fb_table_shard *)b)->lines;

    (void)data;
    return one < two ? -1 : one > two;
}

static int check_parts(struct fb_table *table, const struct name *name, forebay_error *error)
{
    fb_sort(table->shards, table->shard_count, sizeof(*table->shards), compare_shards, NULL);
    if (table->shards[0].lines > 1)
        return fb_fail(error, FOREBAY_MISSING,
                       "'%s%s_part1%s' is missing: the first part there is "
                       "is %" PRIu64,
                       name->folder, name->stem, name->extension, table->shards[0].lines);
    for (uint64_t i = 1; i < table->shard_count; i++) {
        uint64_t before = table->shards[i - 1].lines, number = table->shards[i].lines;

        if (number == before)
            return fb_fail(error, FOREBAY_BAD_DATA, "'%s' and '%s' are the same part",
                           table->shards[i - 1].path, table->shards[i].path);
        if (number != before + 1)
            return fb_fail(error, FOREBAY_MISSING,
                           "'%s%s_part%" PRIu64 "%s' is missing: there are "
                           "parts %" PRIu64 " and %" PRIu64,
                           name->folder, name->stem, before + 1, name->extension, before, number);
    }
    return FOREBAY_OK;
}

static int find_parts(struct fb_table *table, const struct name *name, forebay_error *error)
{
    DIR *folder = opendir(name->folder[0] ? name->folder : ".");
    struct dirent *entry;
    int status = FOREBAY_OK;

    if (!folder)
        return fb_fail_errno(error, FOREBAY_MISSING, "cannot list '%s'", name->folder);
    while (!status && (entry = readdir(folder))) {
        uint64_t number;

        if (part_number(name, entry->d_name, &number))
            status = add_shard(table, name->folder, entry->d_name, number, error);
    }
    closedir(folder);
    if (!status && table->shard_count == 0)
        status = fb_fail(error, FOREBAY_MISSING, "there is neither '%s%s%s' nor '%s%s_part1%s'",
                         name->folder, name->stem, name->extension, name->folder, name->stem,
                         name->extension);
    return status ? status : check_parts(table, name, error);
}

static int find_all(struct fb_table *table, const struct fb_config *config, forebay_error *error)
{
    const struct fb_texts *paths = &config->source_path;
    const char *folder = config->folder ? config->folder : "";
    char path[FB_PATH_BYTES];
    struct name name;
    struct stat about;
    int status;

    if (paths->count != 1)
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       "source.path: a table is one path, name.csv, "
                       "whether that file or its parts name_part1.csv ... exist");
    if (snprintf(path, sizeof(path), "%s%s%s", paths->values[0][0] == '/' ? "" : folder,
                 paths->values[0][0] == '/' || !folder[0] ? "" : "/",
                 paths->values[0]) >= (int)sizeof(path))
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.path is longer than a path can be");
    status = split_name(&name, path, error);
    if (status)
        return status;
    if (stat(path, &about) == 0)
        return add_shard(table, "", path, 0, error);
    return find_parts(table, &name, error);
}

static int absolute_paths(struct fb_table *table, forebay_error *error)
{
    char path[FB_PATH_BYTES];

    for (uint64_t i = 0; i < table->shard_count; i++) {
        struct fb_table_shard *shard = &table->shards[i];
        char *whole = realpath(shard->path, NULL), *kept;
        uint64_t bytes;

        if (!whole)
            return fb_fail_errno(error, FOREBAY_MISSING, "cannot open '%s'", shard->path);
        bytes = strlen(whole) + 1;
        memcpy(path, whole, fb_min(bytes, sizeof(path)));
        free(whole);
        kept = fb_block_new(table->budget, FB_STAGE_INDEX, bytes, 1, "a path", error);
        if (!kept)
            return fb_failed(error);
        memcpy(kept, path, bytes);
        fb_block_free(table->budget, FB_STAGE_INDEX, shard->path, shard->path_bytes, 1);
        shard->path = kept;
        shard->path_bytes = bytes;
    }
    return FOREBAY_OK;
}

int fb_table_find_shards(struct fb_table *table, const struct fb_config *config,
                         forebay_error *error)
{
    int status = find_all(table, config, error);

    return status ? status : absolute_paths(table, error);
}
