#include "source/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mix.h"
#include "base/size.h"
#include "source/source.h"

#define TELL_NS ((uint64_t)100 * 1000 * 1000)

void fb_walk_init(struct fb_walk *walk, struct fb_files *files, const struct fb_log *log)
{
    *walk = (struct fb_walk){ .files = files, .log = log, .told_ns = fb_now_ns() };
}

static int tell(struct fb_walk *walk, forebay_error *error)
{
    uint64_t now;

    if (walk->files->count % 256)
        return FOREBAY_OK;
    now = fb_now_ns();
    if (now - walk->told_ns < TELL_NS)
        return FOREBAY_OK;
    walk->told_ns = now;
    return fb_progress(walk->log, "listing files", walk->files->count, 0, error);
}

/* Copy a name behind the others; its place, or UINT64_MAX. */
static uint64_t add_name(struct fb_files *files, const char *name, size_t length,
                         forebay_error *error)
{
    uint64_t place = files->names.used;
    char *kept = fb_tape_add(&files->names, length + 1, "names of files", error);

    if (!kept)
        return UINT64_MAX;
    memcpy(kept, name, length);
    kept[length] = '\0';
    return place;
}

/* The number of the folder, `length` bytes of `name` with the slash at the end; or UINT32_MAX. */
static uint32_t find_folder(struct fb_walk *walk, const char *name, size_t length,
                            forebay_error *error)
{
    struct fb_files *files = walk->files;
    uint64_t hash = length, *place, at;
    uint32_t *recent;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    recent = &walk->recent[fb_mix(hash) % FB_WALK_RECENT];
    if (*recent) {
        const uint64_t *places = (const uint64_t *)(void *)files->folders.memory;
        const char *known = files->names.memory + places[*recent - 1];

        if (strncmp(known, name, length) == 0 && known[length] == '\0')
            return *recent - 1;
    }
    if (files->folder_count >= UINT32_MAX - 1) {
        fb_fail(error, FOREBAY_BAD_DATA, "there are more than 2^32 folders");
        return UINT32_MAX;
    }
    at = add_name(files, name, length, error);
    place = at == UINT64_MAX ? NULL : fb_tape_add(&files->folders, sizeof(*place),
                                                   "folders of the source", error);
    if (!place)
        return UINT32_MAX;
    *place = at;
    *recent = (uint32_t)++files->folder_count;
    return *recent - 1;
}

/* Keep the file `name` of folder walk->path[0 .. length). */
static int add(struct fb_walk *walk, size_t length, const char *name, const struct stat *status,
               uint32_t fault, forebay_error *error)
{
    struct fb_files *files = walk->files;
    uint32_t folder = find_folder(walk, walk->path, length, error);
    uint64_t place = folder == UINT32_MAX ? UINT64_MAX : add_name(files, name, strlen(name), error);
    struct fb_file *file = place == UINT64_MAX ? NULL : fb_tape_add(&files->list, sizeof(*file),
                                                                     "index of files", error);

    if (!file)
        return fb_failed(error);
    *file = (struct fb_file){ .name = place, .folder = folder, .fault = fault };
    if (!fault) {
        file->bytes = (uint64_t)status->st_size;
        file->mtime_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
    }
    files->file = (struct fb_file *)(void *)files->list.memory;
    files->count++;
    return tell(walk, error);
}

/* Look at `name` in the folder and keep it, whatever it is. `parent` is open, or AT_FDCWD and
 * `name` the path. */
static int look_and_add(struct fb_walk *walk, int parent, const char *at, size_t length,
                        const char *name, bool folders_too, forebay_error *error)
{
    struct stat status;
    uint32_t fault = 0;

    if (fstatat(parent, at, &status, 0)) {
        if (errno == EIO || errno == ENOMEM || errno == ESTALE || errno == ETIMEDOUT)
            return fb_fail_errno(error, FOREBAY_IO, "cannot look at '%.*s%s'", (int)length,
                                 walk->path, name);
        fault = (uint32_t)errno;
    } else if (S_ISDIR(status.st_mode)) {
        if (!folders_too)
            return FOREBAY_OK;
        fault = EISDIR;
    } else if (!S_ISREG(status.st_mode)) {
        fault = ENODEV;
    }
    return add(walk, length, name, &status, fault, error);
}

static int too_long(const struct fb_walk *walk, const char *name, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_DATA, "the path is too long: '%.200s...%.200s'", walk->path,
                   name);
}

static int visit(struct fb_walk *walk, size_t length, const char *pattern, forebay_error *error);

/* Go into the folder `name` of walk->path[0 .. length) with the rest of the pattern. */
static int descend(struct fb_walk *walk, size_t length, const char *name, size_t name_bytes,
                   const char *rest, forebay_error *error)
{
    int status;

    if (length + name_bytes + 2 > sizeof(walk->path))
        return too_long(walk, name, error);
    memmove(walk->path + length, name, name_bytes); /* visit_plain() put it there already */
    memcpy(walk->path + length + name_bytes, "/", 2);
    status = visit(walk, length + name_bytes + 1, rest, error);
    walk->path[length] = '\0';
    return status;
}

/* Into every folder below, however deep, that is none of those the walk is inside of. */
static int descend_all(struct fb_walk *walk, int parent, size_t length, const char *name,
                       const char *pattern, forebay_error *error)
{
    struct stat status;
    int result;

    if (fstatat(parent, name, &status, 0) || !S_ISDIR(status.st_mode))
        return FOREBAY_OK;
    for (unsigned i = 0; i < walk->depth; i++)
        if (walk->above[i].device == status.st_dev && walk->above[i].inode == status.st_ino)
            return FOREBAY_OK;
    if (walk->depth == FB_FILES_DEPTH) {
        fb_warn(walk->log, "'%s%s' is more than %d folders deep and is not looked into",
                walk->path, name, FB_FILES_DEPTH);
        return FOREBAY_OK;
    }
    walk->above[walk->depth].device = status.st_dev;
    walk->above[walk->depth++].inode = status.st_ino;
    result = descend(walk, length, name, strlen(name), pattern, error);
    walk->depth--;
    return result;
}

/* What a folder's entries are held against. */
struct step {
    const char *pattern;   /* the component, `bytes` long */
    size_t bytes;
    const char *rest;      /* of the pattern behind it; NULL: it is the last */
    bool any_folder;       /* the component is ** */
};

static int visit_entry(struct fb_walk *walk, int parent, size_t length, const struct step *step,
                       const struct dirent *entry, forebay_error *error)
{
    const char *name = entry->d_name;
    bool maybe_folder = entry->d_type == DT_DIR || entry->d_type == DT_LNK ||
                        entry->d_type == DT_UNKNOWN;

    if (step->any_folder) {
        if (name[0] == '.' || !maybe_folder)
            return FOREBAY_OK;
        return descend_all(walk, parent, length, name, step->pattern, error);
    }
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        !fb_glob_match(step->pattern, step->bytes, name))
        return FOREBAY_OK;
    if (step->rest)
        return maybe_folder ? descend(walk, length, name, strlen(name), step->rest, error)
                            : FOREBAY_OK;
    /* A folder called a.npy is a mistake worth a word; one that * alone found is none. */
    return look_and_add(walk, parent, name, length, name,
                        step->pattern[0] != '*' || step->bytes > 1, error);
}

static DIR *open_folder(struct fb_walk *walk, forebay_error *error, int *status)
{
    DIR *folder = opendir(walk->path[0] ? walk->path : ".");

    *status = FOREBAY_OK;
    if (folder || errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return folder;
    if (errno == EACCES) /* not silently: there may be files in it */
        fb_warn(walk->log, "the folder '%s' may not be read; what is in it is left out",
                walk->path);
    else
        *status = fb_fail_errno(error, FOREBAY_IO, "cannot list the folder '%s'", walk->path);
    return NULL;
}

static int visit_entries(struct fb_walk *walk, size_t length, const struct step *step,
                         forebay_error *error)
{
    int status;
    DIR *folder = open_folder(walk, error, &status);
    const struct dirent *entry;

    if (!folder)
        return status;
    while (!status) {
        errno = 0;
        entry = readdir(folder);
        if (!entry) {
            if (errno)
                status = fb_fail_errno(error, FOREBAY_IO, "cannot list '%s'", walk->path);
            break;
        }
        status = visit_entry(walk, dirfd(folder), length, step, entry, error);
    }
    closedir(folder);
    return status;
}

static size_t unescape(char *to, const char *from, size_t length)
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        if (from[i] == '\\' && i + 1 < length)
            i++;
        to[used++] = from[i];
    }
    to[used] = '\0';
    return used;
}

/* A component without wildcards: no need to list the folder. */
static int visit_plain(struct fb_walk *walk, size_t length, const struct step *step,
                       forebay_error *error)
{
    char *name = walk->path + length;
    struct stat status;
    size_t bytes;
    int result = FOREBAY_OK;

    if (length + step->bytes + 2 > sizeof(walk->path))
        return too_long(walk, step->pattern, error);
    bytes = unescape(name, step->pattern, step->bytes);
    if (step->rest)
        return descend(walk, length, name, bytes, step->rest, error);
    if (walk->plain || !lstat(walk->path, &status))
        result = look_and_add(walk, AT_FDCWD, walk->path, length, name, true, error);
    walk->path[length] = '\0';
    return result;
}

/* The folder that the walk begins in counts as one it is inside of. */
static void remember_start(struct fb_walk *walk)
{
    struct stat status;

    if (walk->depth || stat(walk->path[0] ? walk->path : ".", &status))
        return;
    walk->above[0].device = status.st_dev;
    walk->above[0].inode = status.st_ino;
    walk->depth = 1;
}

/* walk->path[0 .. length) is a folder (maybe): match the rest of the pattern in it. */
static int visit(struct fb_walk *walk, size_t length, const char *pattern, forebay_error *error)
{
    struct step step = { .pattern = pattern };
    int status;

    while (*step.pattern == '/')
        step.pattern++;
    step.bytes = strcspn(step.pattern, "/");
    step.rest = step.pattern[step.bytes] ? step.pattern + step.bytes + 1 : NULL;
    step.any_folder = step.bytes == 2 && memcmp(step.pattern, "**", 2) == 0;
    if (step.bytes == 0)
        return FOREBAY_OK;
    if (!fb_glob_is_magic(step.pattern, step.bytes))
        return visit_plain(walk, length, &step, error);
    if (step.any_folder) { /* none of them, and then every one */
        remember_start(walk);
        status = visit(walk, length, step.rest ? step.rest : "*", error);
        if (status)
            return status;
    }
    return visit_entries(walk, length, &step, error);
}

int fb_walk_pattern(struct fb_walk *walk, const char *pattern, forebay_error *error)
{
    if (!walk->pattern[0])
        snprintf(walk->pattern, sizeof(walk->pattern), "%s", pattern);
    walk->plain = !fb_glob_is_magic(pattern, strlen(pattern));
    walk->depth = 0;
    strcpy(walk->path, pattern[0] == '/' ? "/" : "");
    return visit(walk, strlen(walk->path), pattern, error);
}

/* A line is a path as it stands: no pattern. */
static int add_line(struct fb_walk *walk, const char *folder, char *line, forebay_error *error)
{
    char path[FB_PATH_BYTES];
    bool relative = line[0] != '/' && folder[0];
    int length = snprintf(path, sizeof(path), "%s%s%s", relative ? folder : "",
                          relative ? "/" : "", line);
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + 1 : 0;

    if (length < 0 || (size_t)length >= sizeof(path))
        return too_long(walk, line, error);
    memcpy(walk->path, path, bytes);
    walk->path[bytes] = '\0';
    if (!walk->pattern[0])
        snprintf(walk->pattern, sizeof(walk->pattern), "%s", path);
    return look_and_add(walk, AT_FDCWD, path, bytes, path + bytes, true, error);
}

static int add_lines(struct fb_walk *walk, const char *folder, FILE *file, forebay_error *error)
{
    char line[FB_PATH_BYTES];
    int status = FOREBAY_OK;

    for (unsigned long long number = 1; !status && fgets(line, sizeof(line), file); number++) {
        size_t length = strlen(line);

        if (length + 1 == sizeof(line) && line[length - 1] != '\n')
            return fb_fail(error, FOREBAY_BAD_DATA, "line %llu is longer than any path", number);
        while (length && strchr("\r\n", line[length - 1]))
            line[--length] = '\0';
        if (length)
            status = add_line(walk, folder, line, error);
    }
    if (!status && ferror(file))
        return fb_fail_errno(error, FOREBAY_IO, "cannot be read");
    return status;
}

int fb_walk_list(struct fb_walk *walk, const char *path, const char *folder, forebay_error *error)
{
    char whole[FB_PATH_BYTES];
    bool relative = path[0] != '/' && folder[0];
    int length = snprintf(whole, sizeof(whole), "%s%s%s", relative ? folder : "",
                          relative ? "/" : "", path);
    struct stat kind;
    FILE *file = NULL;
    int fd, status;

    if (length < 0 || (size_t)length >= sizeof(whole))
        return too_long(walk, path, error);
    fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block */
    if (fd < 0 || fstat(fd, &kind) || !S_ISREG(kind.st_mode) || !(file = fdopen(fd, "r"))) {
        status = fd < 0 ? fb_fail_errno(error, FOREBAY_MISSING, "cannot open the list '%s'", whole)
                        : fb_fail(error, FOREBAY_MISSING, "the list '%s' is no file", whole);
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (!walk->pattern[0])
        snprintf(walk->pattern, sizeof(walk->pattern), "%s", whole);
    status = add_lines(walk, folder, file, error);
    if (status)
        fb_error_context(error, "the list '%s'", whole);
    fclose(file);
    return status;
}

/* What stands in the folder where the pattern ceases to be plain. */
static int explain_folder(const struct fb_walk *walk, const char *folder, const char *rest,
                          forebay_error *error)
{
    DIR *entries = opendir(folder[0] ? folder : ".");
    const struct dirent *entry;
    char example[256] = "";
    unsigned long long count = 0;

    if (!entries)
        return fb_fail_errno(error, FOREBAY_MISSING, "no file matches '%s': the folder '%s'",
                             walk->pattern, folder);
    while ((entry = readdir(entries))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (count++ == 0)
            snprintf(example, sizeof(example), "%s", entry->d_name);
    }
    closedir(entries);
    if (count == 0)
        return fb_fail(error, FOREBAY_MISSING, "no file matches '%s': the folder '%s' is empty",
                       walk->pattern, folder[0] ? folder : ".");
    return fb_fail(error, FOREBAY_MISSING, "no file matches '%s': the folder '%s' has %llu "
                   "entries, e.g. '%s', but nothing there is '%s'", walk->pattern,
                   folder[0] ? folder : ".", count, example, rest);
}

int fb_walk_explain(struct fb_walk *walk, forebay_error *error)
{
    const char *at = walk->pattern;
    size_t length = 0;

    if (!at[0])
        return fb_fail(error, FOREBAY_BAD_CONFIG, "no path is given");
    walk->path[0] = '\0';
    for (;;) { /* follow the plain folders as far as they exist */
        size_t bytes = strcspn(at, "/");
        struct stat status;

        if (!at[bytes] || fb_glob_is_magic(at, bytes))
            return explain_folder(walk, walk->path, at, error);
        length += unescape(walk->path + length, at, bytes + 1);
        if (stat(walk->path, &status) || !S_ISDIR(status.st_mode))
            return fb_fail(error, FOREBAY_MISSING, "no file matches '%s': there is no folder '%s'",
                           walk->pattern, walk->path);
        at += bytes + 1;
    }
}
