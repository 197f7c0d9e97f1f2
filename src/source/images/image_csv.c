#include "source/images/image_csv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/source.h"

#define LINE_BYTES (FB_PATH_BYTES + 128) /* the longest line */
#define CHUNK_BYTES ((size_t)64 * 1024)

struct csv {
    struct fb_files *files;
    struct fb_tape *labels;
    const struct fb_log *log;
    const char *path;
    uint64_t line; /* number of the one at hand, from 1 */
    char chunk[CHUNK_BYTES];
    char text[LINE_BYTES];
    char name[LINE_BYTES];
};

static int fail_line(const struct csv *csv, const char *why, forebay_error *error)
{
    int status =
        fb_fail(error, FOREBAY_BAD_DATA, "'%s', line %" PRIu64 ": %s; expected: path,label",
                csv->path, csv->line, why);

    fb_error_place(error, "%s:%" PRIu64, csv->path, csv->line);
    return status;
}

/* ---- The index ---- */

static int add_text(struct fb_tape *names, const char *text, uint64_t *place, forebay_error *error)
{
    size_t length = strlen(text) + 1;
    char *kept;

    *place = names->used;
    kept = fb_tape_add(names, length, "names of files", error);
    if (!kept)
        return fb_failed(error);
    memcpy(kept, text, length);
    return FOREBAY_OK;
}

static int add_folder(struct fb_files *files, const char *folder, forebay_error *error)
{
    uint64_t place, *kept;
    int status = add_text(&files->names, folder, &place, error);

    if (status)
        return status;
    kept = fb_tape_add(&files->folders, sizeof(*kept), "folders of the source", error);
    if (!kept)
        return fb_failed(error);
    *kept = place;
    files->folder_count++;
    files->folder_bytes = fb_max(files->folder_bytes, strlen(folder));
    return FOREBAY_OK;
}

/* The working folder, then folder 0: the list's own, for relative paths; and 1: the root. */
static int index_begin(struct csv *csv, forebay_error *error)
{
    struct fb_files *files = csv->files;
    const char *slash = strrchr(csv->path, '/');
    size_t length = slash ? (size_t)(slash - csv->path) + 1 : 0;
    int status;

    if (!getcwd(csv->name, sizeof(csv->name) - 1))
        return fb_fail_errno(error, FOREBAY_IO, "the working folder has no name");
    strcat(csv->name, "/");
    status = add_text(&files->names, csv->name, &files->root, error);
    if (status)
        return status;
    memcpy(csv->name, csv->path, length);
    csv->name[length] = '\0';
    status = add_folder(files, csv->name, error);
    return status ? status : add_folder(files, "/", error);
}

static void look(struct csv *csv, struct fb_file *file)
{
    char path[FB_PATH_BYTES + LINE_BYTES];
    struct stat status;

    fb_files_path(csv->files, (uint64_t)(file - csv->files->file), path, sizeof(path));
    if (stat(path, &status)) {
        file->fault = (uint32_t)errno;
    } else if (!S_ISREG(status.st_mode)) {
        file->fault = S_ISDIR(status.st_mode) ? EISDIR : ENODEV;
    } else {
        file->bytes = (uint64_t)status.st_size;
        file->mtime_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    }
}

static int add_file(struct csv *csv, const char *name, int64_t label, forebay_error *error)
{
    struct fb_files *files = csv->files;
    bool absolute = name[0] == '/';
    struct fb_file *file;
    uint64_t place;
    int64_t *kept;
    int status = add_text(&files->names, name + absolute, &place, error);

    if (status)
        return status;
    kept = fb_tape_add(csv->labels, sizeof(*kept), "labels of images", error);
    file = kept ? fb_tape_add(&files->list, sizeof(*file), "index of files", error) : NULL;
    if (!file)
        return fb_failed(error);
    *kept = label;
    *file = (struct fb_file){ .name = place, .folder = absolute };
    files->file = (struct fb_file *)(void *)files->list.memory;
    files->count++;
    look(csv, file);
    if (files->count % 4096)
        return FOREBAY_OK;
    return fb_progress(csv->log, "listing files", files->count, 0, error);
}

/* ---- Lines ---- */

/* The first field of the line into csv->name; returns what stands behind its comma, or NULL. */
static const char *take_name(struct csv *csv)
{
    const char *from = csv->text;
    char *to = csv->name;
    bool quoted = *from == '"';

    for (from += quoted; *from && (quoted || *from != ','); from++) {
        if (quoted && *from == '"' && *++from != '"')
            break;
        *to++ = *from;
    }
    *to = '\0';
    return *from == ',' ? from + 1 : NULL;
}

static bool parse_label(const char *text, int64_t *label)
{
    size_t length = strlen(text), at = text[0] == '-', digits;
    uint64_t value = 0;

    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\r'))
        length--;
    digits = length - fb_min(at, length);
    if (digits == 0 || digits > 18)
        return false;
    for (; at < length; at++) {
        if (text[at] < '0' || text[at] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[at] - '0');
    }
    *label = text[0] == '-' ? -(int64_t)value : (int64_t)value;
    return true;
}

static int take_line(struct csv *csv, size_t length, forebay_error *error)
{
    const char *rest;
    int64_t label;

    csv->line++;
    if (strlen(csv->text) != length)
        return fail_line(csv, "it has a NUL byte", error);
    if (length == 0 || strcmp(csv->text, "\r") == 0)
        return FOREBAY_OK;
    rest = take_name(csv);
    if (!rest)
        return fail_line(csv, "there is no comma behind the path", error);
    if (!parse_label(rest, &label)) {
        if (csv->line == 1)
            return FOREBAY_OK; /* a heading */
        return fail_line(csv, "the label is no whole number", error);
    }
    if (csv->name[0] == '\0')
        return fail_line(csv, "the path is empty", error);
    return add_file(csv, csv->name, label, error);
}

static int read_lines(struct csv *csv, int fd, forebay_error *error)
{
    size_t length = 0;
    ssize_t got;
    int status = FOREBAY_OK;

    while ((got = read(fd, csv->chunk, sizeof(csv->chunk))) > 0) {
        for (ssize_t i = 0; i < got && !status; i++) {
            if (csv->chunk[i] != '\n') {
                if (length + 1 >= sizeof(csv->text)) {
                    csv->line++;
                    return fail_line(csv, "it is too long", error);
                }
                csv->text[length++] = csv->chunk[i];
                continue;
            }
            csv->text[length] = '\0';
            status = take_line(csv, length, error);
            length = 0;
        }
        if (status)
            return status;
    }
    if (got < 0)
        return fb_fail_errno(error, FOREBAY_IO, "cannot read '%s'", csv->path);
    csv->text[length] = '\0';
    return length ? take_line(csv, length, error) : FOREBAY_OK;
}

int fb_image_csv_read(struct fb_files *files, struct fb_tape *labels, const char *path,
                      struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct csv *csv =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*csv), "reading a list", error);
    int fd = -1, status;

    *files = (struct fb_files){ .list.budget = budget, .folders.budget = budget,
                                .names.budget = budget };
    if (!csv)
        return fb_failed(error);
    csv->files = files;
    csv->labels = labels;
    csv->log = log;
    csv->path = path;
    status = index_begin(csv, error);
    if (status)
        goto done;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        status = fb_fail_errno(error, FOREBAY_MISSING, "source.path: cannot open '%s'", path);
        goto done;
    }
    status = read_lines(csv, fd, error);
    if (!status && files->count == 0)
        status = fb_fail(error, FOREBAY_MISSING, "source.path: '%s' lists no image", path);
done:
    if (fd >= 0)
        close(fd);
    fb_block_free(budget, FB_STAGE_INDEX, csv, 1, sizeof(*csv));
    return status;
}
