#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pack/pack_inside.h"
#include "source/glob.h"

void fb_pack_keys_init(struct fb_pack_keys *keys, const struct fb_source *source)
{
    static const char *const named[] = { "bin", "npy", "windows", "images" };

    *keys = (struct fb_pack_keys){ .source = source, .numbers = true, .first = true };
    for (unsigned i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (strcmp(source->ops->kind, named[i]) == 0)
            keys->numbers = false;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Letters that all fields' paths begin with; those of one field: up to its extension. */
static size_t common_bytes(const struct fb_pack_keys *keys, const struct fb_pack_group *group,
                           const char *path)
{
    size_t common = strlen(path);
    char other[FB_PATH_BYTES];

    for (unsigned i = 1; i < group->count; i++) {
        if (keys->source->fields[group->parts[i].field].indexed)
            continue;
        keys->source->ops->place(keys->source, group->parts[i].unit, other, sizeof(other));
        for (size_t at = 0; at < common; at++)
            if (path[at] != other[at])
                common = at;
    }
    return common;
}

/* The name of a group without its extension; 000_blur.npy and 000_sharp.npy are 000. */
static void stem_of(const struct fb_pack_keys *keys, const struct fb_pack_group *group,
                    char path[FB_PATH_BYTES])
{
    size_t common, base;
    char *dot;

    keys->source->ops->place(keys->source, group->parts[0].unit, path, FB_PATH_BYTES);
    common = common_bytes(keys, group, path);
    base = (size_t)(base_of(path) - path);
    if (common > base && common < strlen(path)) {
        while (common > base && !isalnum((unsigned char)path[common - 1]))
            common--;
        if (common > base)
            path[common] = '\0';
    }
    dot = strrchr(base_of(path), '.');
    if (dot && dot != base_of(path))
        *dot = '\0';
}

void fb_pack_keys_see(struct fb_pack_keys *keys, const struct fb_pack_group *group)
{
    char path[FB_PATH_BYTES];
    size_t same = 0;

    if (keys->numbers || (!keys->first && keys->root == 0))
        return;
    stem_of(keys, group, path);
    if (keys->first) {
        keys->first = false;
        keys->root = (size_t)(base_of(path) - path);
        if (keys->root >= sizeof(keys->folder))
            keys->root = 0;
        memcpy(keys->folder, path, keys->root);
        return;
    }
    for (size_t i = 0; i < keys->root && path[i] == keys->folder[i]; i++)
        if (path[i] == '/')
            same = i + 1;
    keys->root = same;
}

bool fb_pack_key(const struct fb_pack_keys *keys, const struct fb_pack_group *group, char *key,
                 size_t size)
{
    char path[FB_PATH_BYTES];
    const char *from = path;

    if (keys->numbers)
        return snprintf(key, size, "%08" PRIu64, group->number) < (int)size;
    stem_of(keys, group, path);
    for (from += keys->root; *from == '/'; from++)
        ;
    if (!*from || strlen(from) >= size)
        return false;
    memcpy(key, from, strlen(from) + 1);
    for (char *at = key; *at; at++)
        if (*at == '.')
            *at = '_';
    return true;
}
