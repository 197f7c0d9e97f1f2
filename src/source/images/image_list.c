#include "source/images/image_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "source/images/image_csv.h"
#include "source/sort.h"
#include "source/source.h"

/* ---- Globs and folders ---- */

static void join_path(char *path, size_t size, const char *folder, const char *text)
{
    bool relative = text[0] != '/' && folder && folder[0];

    snprintf(path, size, "%s%s%s", relative ? folder : "", relative ? "/" : "", text);
}

static bool is_folder(const char *folder, const char *text)
{
    char path[FB_PATH_BYTES];
    struct stat status;

    join_path(path, sizeof(path), folder, text);
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A folder's name as a glob for the pictures below it; other texts stay. */
static int add_pattern(struct fb_tape *texts, const char *folder, const char *text,
                       forebay_error *error)
{
    bool below = is_folder(folder, text);
    const char *tail = below ? "/**/*.{jpg,jpeg,png,bmp,ppm,pgm,pbm,JPG,JPEG,PNG,BMP,PPM,PGM,PBM}" : "";
    char *to = fb_tape_add(texts, 2 * strlen(text) + strlen(tail) + 1, "patterns", error);
    char *end = to;

    if (!to)
        return fb_failed(error);
    for (; *text; text++) {
        if (below && strchr("*?[]{},\\", *text))
            *end++ = '\\';
        *end++ = *text;
    }
    while (below && end > to + 1 && end[-1] == '/')
        end--;
    strcpy(end, tail);
    texts->used = (uint64_t)(end - texts->memory) + strlen(tail) + 1;
    return FOREBAY_OK;
}

static int list_globs(struct fb_image_list *list, const struct fb_config *config,
                      const struct fb_log *log, forebay_error *error)
{
    const struct fb_texts *paths = &config->source_path;
    struct fb_tape texts = { .budget = list->budget }, room = { .budget = list->budget };
    char **patterns = fb_tape_add(&room, paths->count * sizeof(*patterns), "patterns", error);
    char *at;
    int status = patterns ? FOREBAY_OK : fb_failed(error);

    for (size_t i = 0; i < paths->count && !status; i++)
        status = add_pattern(&texts, config->folder, paths->values[i], error);
    if (!status) {
        at = texts.memory;
        for (size_t i = 0; i < paths->count; i++, at += strlen(at) + 1)
            patterns[i] = at;
        status = fb_files_list(&list->files, "source.path", patterns, paths->count, config->folder,
                               list->budget, log, error);
    }
    fb_tape_release(&texts);
    fb_tape_release(&room);
    return status;
}

/* ---- Classes ---- */

/* The last part of a folder's name, which ends with a slash (or is "": the working folder). */
static const char *class_name(const struct fb_files *files, uint32_t folder, size_t *length)
{
    const uint64_t *places = (const uint64_t *)(void *)files->folders.memory;
    const char *name = files->names.memory + places[folder], *end = name + strlen(name), *start;

    while (end > name && end[-1] == '/')
        end--;
    for (start = end; start > name && start[-1] != '/'; start--)
        ;
    *length = (size_t)(end - start);
    return start;
}

static int compare_classes(const void *a, const void *b, const void *data)
{
    size_t one_length, two_length;
    const char *one = class_name(data, *(const uint32_t *)a, &one_length);
    const char *two = class_name(data, *(const uint32_t *)b, &two_length);
    int order = memcmp(one, two, fb_min(one_length, two_length));

    return order ? order : (one_length > two_length) - (one_length < two_length);
}

static int number_classes(struct fb_image_list *list, forebay_error *error)
{
    uint64_t count = list->files.folder_count;
    struct fb_tape room = { .budget = list->budget };
    uint32_t *sorted = fb_tape_add(&room, count * sizeof(*sorted), "sorting the classes", error);
    uint32_t *classes = sorted ? fb_tape_add(&list->classes, count * sizeof(*classes),
                                              "classes of images", error)
                               : NULL;

    if (!classes) {
        fb_tape_release(&room);
        return fb_failed(error);
    }
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = i;
    fb_sort(sorted, count, sizeof(*sorted), compare_classes, &list->files);
    for (uint64_t i = 0; i < count; i++) {
        if (i == 0 || compare_classes(&sorted[i - 1], &sorted[i], &list->files) != 0)
            list->class_count++;
        classes[sorted[i]] = (uint32_t)(list->class_count - 1);
    }
    fb_tape_release(&room);
    return FOREBAY_OK;
}

/* ---- The whole ---- */

static bool is_csv(const struct fb_texts *paths)
{
    const char *path = paths->values[0];
    size_t length = strlen(path);

    return paths->count == 1 && length > 4 && strcmp(path + length - 4, ".csv") == 0 &&
           !fb_glob_is_magic(path, length);
}

int fb_image_list_open(struct fb_image_list *list, const struct fb_config *config,
                       struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    const struct fb_texts *paths = &config->source_path;
    char path[FB_PATH_BYTES];
    int status;

    *list = (struct fb_image_list){ .budget = budget, .labels.budget = budget,
                                    .classes.budget = budget };
    if (paths->count == 0)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.path is not set: where are the images?");
    if (is_csv(paths)) {
        join_path(path, sizeof(path), config->folder, paths->values[0]);
        status = fb_image_csv_read(&list->files, &list->labels, path, budget, log, error);
    } else {
        status = list_globs(list, config, log, error);
        if (!status)
            status = number_classes(list, error);
    }
    if (status)
        fb_image_list_release(list);
    return status;
}

void fb_image_list_release(struct fb_image_list *list)
{
    fb_files_release(&list->files);
    fb_tape_release(&list->labels);
    fb_tape_release(&list->classes);
}

int64_t fb_image_list_label(const struct fb_image_list *list, uint64_t number)
{
    if (list->labels.memory)
        return ((const int64_t *)(void *)list->labels.memory)[number];
    return ((const uint32_t *)(void *)list->classes.memory)[list->files.file[number].folder];
}
