#include "source/store_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/host.h"

#define DEPTH 4 /* nothing that forebay makes there is deeper */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static DIR *folder_open(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);

    if (!folder && fd >= 0)
        close(fd);
    return folder;
}

static uint64_t folder_bytes(int parent, const char *name, unsigned depth)
{
    DIR *folder = depth ? folder_open(parent, name) : NULL;
    uint64_t sum = 0;

    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat about;

        if (is_dots(entry->d_name) ||
            fstatat(dirfd(folder), entry->d_name, &about, AT_SYMLINK_NOFOLLOW))
            continue;
        sum += S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
        if (S_ISDIR(about.st_mode))
            sum += folder_bytes(dirfd(folder), entry->d_name, depth - 1);
    }
    if (folder)
        closedir(folder);
    return sum;
}

uint64_t fb_store_folder_bytes(int parent, const char *name)
{
    return folder_bytes(parent, name, DEPTH);
}

static bool entry_look(struct fb_stored *stored, int folder, const char *name)
{
    struct stat about;

    if (is_dots(name) || fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW))
        return false;
    *stored = (struct fb_stored){ .bytes = (uint64_t)about.st_size,
                                  .used_s = about.st_mtim.tv_sec,
                                  .is_folder = S_ISDIR(about.st_mode) };
    snprintf(stored->name, sizeof(stored->name), "%s", name);
    if (stored->is_folder)
        stored->bytes = folder_bytes(folder, name, DEPTH);
    return true;
}

static int compare_age(const void *a, const void *b)
{
    const struct fb_stored *left = a, *right = b;

    if (left->used_s != right->used_s)
        return left->used_s < right->used_s ? -1 : 1;
    return strcmp(left->name, right->name);
}

static int cache_folder_open(DIR **folder, forebay_error *error)
{
    char path[PATH_MAX];

    if (!fb_host_cache_folder(path, sizeof(path)))
        return fb_fail(error, FOREBAY_IO, "there is no cache folder: set $XDG_CACHE_HOME (or "
                       "$HOME) to one that can be written to");
    *folder = opendir(path);
    return *folder ? FOREBAY_OK : fb_fail_errno(error, FOREBAY_IO, "cannot list '%s'", path);
}

int fb_store_list(struct fb_stored *list, size_t most, size_t *count, uint64_t *bytes,
                  forebay_error *error)
{
    struct fb_stored stored;
    DIR *folder;
    int status = cache_folder_open(&folder, error);

    if (status)
        return status;
    *count = 0;
    *bytes = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!entry_look(&stored, dirfd(folder), entry->d_name))
            continue;
        *bytes += stored.bytes;
        if (*count < most)
            list[*count] = stored;
        ++*count;
    }
    closedir(folder);
    qsort(list, *count < most ? *count : most, sizeof(*list), compare_age);
    return FOREBAY_OK;
}

static void entry_remove(int parent, const char *name, unsigned depth)
{
    DIR *folder = depth ? folder_open(parent, name) : NULL;

    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (!is_dots(entry->d_name))
            entry_remove(dirfd(folder), entry->d_name, depth - 1);
    if (folder)
        closedir(folder);
    unlinkat(parent, name, folder ? AT_REMOVEDIR : 0);
}

int fb_store_drop(const char *name, uint64_t *bytes, forebay_error *error)
{
    struct fb_stored stored;
    struct stat about;
    DIR *folder;
    int status = cache_folder_open(&folder, error);

    if (status)
        return status;
    if (strchr(name, '/') || !name[0] || !entry_look(&stored, dirfd(folder), name)) {
        status = fb_fail(error, FOREBAY_MISSING, "nothing called '%s' is kept on disk", name);
    } else {
        entry_remove(dirfd(folder), name, DEPTH);
        *bytes = stored.bytes;
        if (fstatat(dirfd(folder), name, &about, AT_SYMLINK_NOFOLLOW) == 0)
            status = fb_fail_errno(error, FOREBAY_IO, "'%s' could not be removed", name);
    }
    closedir(folder);
    return status;
}
