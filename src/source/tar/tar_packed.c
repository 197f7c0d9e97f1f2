/*
 * tar_packed.c -- what the index of `forebay pack` says of its shards: their fields' own names, and
 * what samples are made of (docs/pack.md). It is somebody's file like any other: if it is not what it should be, the fields
 * are called by their extensions.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/tar/tar_source.h"

/* The list of shards comes last and is not wanted: only so much is read. */
#define HEAD_BYTES (32 * FB_KIB)
#define JSON_BYTES (80 * HEAD_BYTES) /* "{},{},{}" takes 78 bytes of jansson's for each of text */

/* The bytes of "path/out" in "path/out-000012.tar"; 0 if it is not called like that. */
static size_t prefix_bytes(const char *path)
{
    size_t length = strlen(path), digits = 0;

    if (length < 5 || strcmp(path + length - 4, ".tar") != 0)
        return 0;
    for (length -= 4; length && path[length - 1] >= '0' && path[length - 1] <= '9'; length--)
        digits++;
    return digits >= 6 && length > 1 && path[length - 1] == '-' ? length - 1 : 0;
}

/* Do all shards belong to one index? Its path. */
static bool index_path(const struct fb_tar_source *tar, char path[FB_PATH_BYTES])
{
    char other[FB_PATH_BYTES];
    size_t prefix;

    fb_files_path(&tar->files, 0, path, FB_PATH_BYTES);
    prefix = prefix_bytes(path);
    if (!prefix || prefix + 6 > FB_PATH_BYTES)
        return false;
    for (uint64_t i = 1; i < tar->files.count; i++) {
        fb_files_path(&tar->files, i, other, sizeof(other));
        if (prefix_bytes(other) != prefix || strncmp(path, other, prefix) != 0)
            return false;
    }
    memcpy(path + prefix, ".json", 6);
    return true;
}

/* What stands before the list of shards, closed. */
static bool head_read(const char *path, char head[HEAD_BYTES + 2])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    ssize_t got = -1;
    char *end;

    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
        got = pread(fd, head, HEAD_BYTES, 0);
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return false;
    head[got] = '\0';
    end = strstr(head, "\"shards\"");
    if (!end)
        return false;
    while (end > head && (end[-1] == ' ' || end[-1] == '\n' || end[-1] == ','))
        end--;
    memcpy(end, "}", 2);
    return true;
}

static json_t *index_read(const char *path, char head[HEAD_BYTES + 2])
{
    json_t *index = head_read(path, head) ? json_loads(head, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *format = json_string_value(json_object_get(index, "format"));

    if (format && strcmp(format, "forebay-pack") == 0 &&
        json_integer_value(json_object_get(index, "version")) == 1)
        return index;
    json_decref(index);
    return NULL;
}

static bool is_taken(const struct fb_tar_index *index, const char *name)
{
    for (unsigned i = 0; i < index->extension_count; i++)
        if (strcmp(index->extensions[i].field, name) == 0)
            return true;
    return false;
}

static void rename_field(struct fb_tar_index *index, struct fb_tar_extension *extension,
                         const char *name)
{
    if (strlen(name) < FB_NAME_BYTES && name[0] && !is_taken(index, name))
        snprintf(extension->field, FB_NAME_BYTES, "%s", name);
}

/* The one extension that no member of the index has: that of the original files. */
static struct fb_tar_extension *original_find(struct fb_tar_index *index, const json_t *fields)
{
    struct fb_tar_extension *found = NULL;

    for (unsigned i = 0; i < index->extension_count; i++) {
        bool listed = false;
        json_t *field;
        size_t at;

        json_array_foreach(fields, at, field)
        {
            const char *member = json_string_value(json_object_get(field, "member"));

            listed = listed || (member && strcasecmp(member, index->extensions[i].name) == 0);
        }
        if (!listed && found)
            return NULL;
        if (!listed)
            found = &index->extensions[i];
    }
    return found;
}

static void names_take(struct fb_tar_index *index, const json_t *fields)
{
    struct fb_tar_extension *original = original_find(index, fields);
    json_t *field;
    size_t at;

    json_array_foreach(fields, at, field)
    {
        const char *name = json_string_value(json_object_get(field, "name"));
        const char *member = json_string_value(json_object_get(field, "member"));

        /* Extensions were made lower case when the shards were read. */
        for (unsigned i = 0; name && member && i < index->extension_count; i++)
            if (strcasecmp(member, index->extensions[i].name) == 0)
                rename_field(index, &index->extensions[i], name);
        if (name && json_is_true(json_object_get(field, "original")) && original)
            rename_field(index, original, name);
    }
}

int fb_tar_packed_names(struct fb_tar_source *tar, forebay_error *error)
{
    struct fb_tar_extension *extensions = tar->index.extensions;
    char path[FB_PATH_BYTES], *head;
    json_t *index = NULL;
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < tar->index.extension_count; i++)
        memcpy(extensions[i].field, extensions[i].name, FB_NAME_BYTES);
    if (!index_path(tar, path) || access(path, F_OK) != 0)
        return FOREBAY_OK;
    tar->open_most =
        fb_max(tar->open_most, tar->index.records.mapped + JSON_BYTES + HEAD_BYTES + 2);
    if (fb_budget_reserve(tar->budget, FB_STAGE_INDEX, JSON_BYTES, "reading the index", error))
        return fb_failed(error);
    head = fb_block_new(tar->budget, FB_STAGE_INDEX, HEAD_BYTES + 2, 1, "reading the index", error);
    if (head)
        index = index_read(path, head);
    if (index) {
        names_take(&tar->index, json_object_get(index, "fields"));
        status = fb_tar_made_read(&tar->made, index, tar->budget, error);
        json_decref(index);
    }
    fb_block_free(tar->budget, FB_STAGE_INDEX, head, HEAD_BYTES + 2, 1);
    fb_budget_refund(tar->budget, FB_STAGE_INDEX, JSON_BYTES);
    return head ? status : fb_failed(error);
}
