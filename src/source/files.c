#include "source/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mix.h"
#include "base/size.h"
#include "source/sort.h"
#include "source/source.h"
#include "source/walk.h"

const char *fb_files_name(const struct fb_files *files, uint64_t number)
{
    return files->names.memory + files->file[number].name;
}

static const char *folder_name(const struct fb_files *files, uint64_t folder)
{
    return files->names.memory + ((const uint64_t *)(void *)files->folders.memory)[folder];
}

const char *fb_files_folder(const struct fb_files *files, uint64_t number)
{
    return folder_name(files, files->file[number].folder);
}

void fb_files_place(const struct fb_files *files, uint64_t number, char *text, size_t size)
{
    snprintf(text, size, "%s%s", fb_files_folder(files, number), fb_files_name(files, number));
}

void fb_files_path(const struct fb_files *files, uint64_t number, char *path, size_t size)
{
    const char *folder = fb_files_folder(files, number);

    snprintf(path, size, "%s%s%s", folder[0] == '/' ? "" : files->names.memory + files->root,
             folder, fb_files_name(files, number));
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    size_t left = strlen(text);

    hash = fb_mix2(hash, left);
    while (left) {
        size_t bytes = left < 8 ? left : 8;
        uint64_t word = 0;

        memcpy(&word, text, bytes);
        hash = fb_mix2(hash, word);
        text += bytes;
        left -= bytes;
    }
    return hash;
}

uint64_t fb_files_hash(const struct fb_files *files, uint64_t seed)
{
    uint64_t hash = hash_text(seed, files->names.memory + files->root);

    for (uint64_t i = 0; i < files->count; i++) {
        const struct fb_file *file = &files->file[i];

        if (i == 0 || file->folder != file[-1].folder)
            hash = hash_text(hash, fb_files_folder(files, i));
        hash = hash_text(hash, fb_files_name(files, i));
        hash = fb_mix2(hash, file->bytes ^ (uint64_t)file->fault << 56);
        hash = fb_mix2(hash, (uint64_t)file->mtime_ns);
    }
    return hash;
}

/* Bytes of the folder that all files have in common. */
static size_t common_folder(const struct fb_files *files)
{
    const char *first = files->count ? fb_files_folder(files, 0) : "";
    size_t common = strlen(first);

    for (uint64_t i = 1; i < files->count; i++) {
        const char *folder = fb_files_folder(files, i);
        size_t same = 0;

        if (files->file[i].folder == files->file[i - 1].folder)
            continue;
        while (same < common && folder[same] == first[same])
            same++;
        common = same;
    }
    while (common && first[common - 1] != '/')
        common--;
    return common;
}

uint64_t fb_files_fingerprint(const struct fb_files *files, uint64_t seed)
{
    size_t common = common_folder(files);
    uint64_t hash = fb_mix2(seed, files->count);

    for (uint64_t i = 0; i < files->count; i++) {
        const struct fb_file *file = &files->file[i];

        if (i == 0 || file->folder != file[-1].folder)
            hash = hash_text(hash, fb_files_folder(files, i) + common);
        hash = hash_text(hash, fb_files_name(files, i));
        hash = fb_mix2(hash, file->bytes);
    }
    return hash;
}

static int compare_folders(const void *a, const void *b, const void *data)
{
    return fb_natural_compare(folder_name(data, *(const uint32_t *)a),
                              folder_name(data, *(const uint32_t *)b));
}

static int compare_files(const void *a, const void *b, const void *data)
{
    const struct fb_files *files = data;
    const struct fb_file *one = a, *two = b;

    if (one->folder != two->folder)
        return one->folder < two->folder ? -1 : 1;
    return fb_natural_compare(files->names.memory + one->name, files->names.memory + two->name);
}

/* Number the folders by their order; those that were met twice become one. `sorted` and `rank` are
 * room for a number of each. */
static int renumber_folders(struct fb_files *files, uint32_t *sorted, uint32_t *rank,
                            forebay_error *error)
{
    struct fb_tape folders = { .budget = files->folders.budget };
    uint64_t kept = 0, longest = 0;

    for (uint32_t i = 0; i < files->folder_count; i++)
        sorted[i] = i;
    fb_sort(sorted, files->folder_count, sizeof(*sorted), compare_folders, files);
    for (uint64_t i = 0; i < files->folder_count; i++) {
        if (i == 0 || compare_folders(&sorted[i - 1], &sorted[i], files) != 0) {
            const char *name = folder_name(files, sorted[i]);
            uint64_t *place = fb_tape_add(&folders, sizeof(*place), "folders of the source", error);

            if (!place) {
                fb_tape_release(&folders);
                return fb_failed(error);
            }
            *place = (uint64_t)(name - files->names.memory);
            longest = fb_max(longest, strlen(name));
            kept++;
        }
        rank[sorted[i]] = (uint32_t)(kept - 1);
    }
    for (uint64_t i = 0; i < files->count; i++)
        files->file[i].folder = rank[files->file[i].folder];
    fb_tape_release(&files->folders);
    files->folders = folders;
    files->folder_count = kept;
    files->folder_bytes = longest;
    return FOREBAY_OK;
}

/* Sort by folder and name, and keep each file once. */
static int put_in_order(struct fb_files *files, forebay_error *error)
{
    struct fb_tape room = { .budget = files->list.budget };
    uint64_t kept = 0, bytes = files->folder_count * sizeof(uint32_t);
    uint32_t *numbers = fb_tape_add(&room, 2 * bytes, "sorting the folders", error);
    int status = numbers ? renumber_folders(files, numbers, numbers + files->folder_count, error)
                         : fb_failed(error);

    fb_tape_release(&room);
    if (status)
        return status;
    fb_sort(files->file, files->count, sizeof(*files->file), compare_files, files);
    for (uint64_t i = 0; i < files->count; i++)
        if (i == 0 || compare_files(&files->file[kept - 1], &files->file[i], files) != 0)
            files->file[kept++] = files->file[i];
    files->count = kept;
    files->list.used = kept * sizeof(*files->file);
    fb_tape_trim(&files->list);
    fb_tape_trim(&files->names);
    files->file = (struct fb_file *)(void *)files->list.memory;
    return FOREBAY_OK;
}

/* One pattern of the user's after another. */
struct listing {
    struct fb_walk walk;
    const char *folder;
};

static int list_pattern(void *data, const char *pattern, forebay_error *error)
{
    struct listing *listing = data;
    char path[FB_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s%s%s", pattern[0] == '/' ? "" : listing->folder,
                          listing->folder[0] && pattern[0] != '/' ? "/" : "", pattern);

    if (length < 0 || (size_t)length >= sizeof(path))
        return fb_fail(error, FOREBAY_BAD_CONFIG, "the path is too long: '%.60s...'", pattern);
    return fb_walk_pattern(&listing->walk, path, error);
}

static int list_text(struct listing *listing, const char *text, forebay_error *error)
{
    size_t length = strlen(text);
    bool is_list = text[0] == '@' || (length > 4 && strcmp(text + length - 4, ".txt") == 0 &&
                                      !fb_glob_is_magic(text, length) && !strchr(text, '{'));

    if (is_list)
        return fb_walk_list(&listing->walk, text + (text[0] == '@'), listing->folder, error);
    return fb_glob_expand(text, list_pattern, listing, error);
}

static bool any_exists(const struct fb_files *files)
{
    for (uint64_t i = 0; i < files->count; i++)
        if (files->file[i].fault != ENOENT && files->file[i].fault != ENOTDIR)
            return true;
    return false;
}

static int add_root(struct fb_files *files, forebay_error *error)
{
    char here[FB_PATH_BYTES], *root;
    size_t length;

    if (!getcwd(here, sizeof(here) - 1))
        return fb_fail_errno(error, FOREBAY_IO, "the working folder has no name");
    strcat(here, "/");
    length = strlen(here) + 1;
    root = fb_tape_add(&files->names, length, "names of files", error);
    if (!root)
        return fb_failed(error);
    memcpy(root, here, length);
    return FOREBAY_OK;
}

int fb_files_list(struct fb_files *files, const char *what, char *const *patterns, size_t count,
                  const char *folder, struct fb_budget *budget, const struct fb_log *log,
                  forebay_error *error)
{
    struct listing listing = { .folder = folder ? folder : "" };
    int status;

    *files = (struct fb_files){ .list.budget = budget, .folders.budget = budget,
                                .names.budget = budget };
    fb_walk_init(&listing.walk, files, log);
    status = add_root(files, error);
    for (size_t i = 0; i < count && !status; i++)
        status = list_text(&listing, patterns[i], error);
    if (!status && !any_exists(files))
        status = fb_walk_explain(&listing.walk, error);
    if (!status)
        status = put_in_order(files, error);
    if (status) {
        fb_error_place(error, "%s", what);
        fb_files_release(files);
    }
    return status;
}

void fb_files_release(struct fb_files *files)
{
    fb_tape_release(&files->list);
    fb_tape_release(&files->folders);
    fb_tape_release(&files->names);
    files->count = files->folder_count = 0;
    files->file = NULL;
}
