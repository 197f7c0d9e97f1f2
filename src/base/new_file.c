#include "base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"

static int too_long(const char *folder, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_USE, "'%s' is too long for a path", folder);
}

static int other_content(const struct fb_new_file *file, forebay_error *error)
{
    fb_fail(error, FOREBAY_BAD_USE,
            "'%s' is there already and holds something else; choose another folder, or overwrite "
            "it with --force", file->path);
    fb_error_place(error, "%s", file->path);
    return FOREBAY_BAD_USE;
}

static int write_failed(const struct fb_new_file *file, forebay_error *error)
{
    if (errno == ENOSPC || errno == EDQUOT)
        fb_fail_errno(error, FOREBAY_IO,
                      "cannot write '%s': the disk is full (files that were finished stay; make "
                      "room and run it again, or take fewer or smaller files)", file->path);
    else
        fb_fail_errno(error, FOREBAY_IO, "cannot write '%s'", file->path);
    fb_error_place(error, "%s", file->path);
    return FOREBAY_IO;
}

int fb_new_file_open(struct fb_new_file *file, const char *folder, const char *name, bool force,
                     forebay_error *error)
{
    int length = snprintf(file->path, sizeof(file->path), "%s/%s", folder, name);

    file->bytes = 0;
    if (length < 0 || (size_t)length >= sizeof(file->path) - 32)
        return too_long(folder, error);
    file->comparing = false;
    if (!force) {
        file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        file->comparing = file->fd >= 0;
        if (file->fd < 0 && errno != ENOENT) {
            fb_fail_errno(error, FOREBAY_IO, "'%s' is there but cannot be read", file->path);
            return FOREBAY_IO;
        }
    }
    if (file->comparing)
        return FOREBAY_OK;
    /* The name ends in .tmp and a number, so that no glob of a data set takes it for data. */
    snprintf(file->temporary, sizeof(file->temporary), "%.*s.tmp%ld", (int)sizeof(file->path) - 32,
             file->path, (long)getpid());
    file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file->fd < 0)
        return write_failed(file, error);
    return FOREBAY_OK;
}

static int compare(struct fb_new_file *file, const unsigned char *data, uint64_t bytes,
                   forebay_error *error)
{
    char there[16384];

    while (bytes) {
        ssize_t got = pread(file->fd, there, fb_min(bytes, sizeof(there)), (off_t)file->bytes);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fb_fail_errno(error, FOREBAY_IO, "cannot read '%s'", file->path);
        if (got == 0 || memcmp(there, data, (size_t)got) != 0)
            return other_content(file, error);
        data += got;
        bytes -= (uint64_t)got;
        file->bytes += (uint64_t)got;
    }
    return FOREBAY_OK;
}

int fb_new_file_put(struct fb_new_file *file, const void *data, uint64_t bytes,
                    forebay_error *error)
{
    const unsigned char *from = data;

    if (file->comparing)
        return compare(file, from, bytes, error);
    while (bytes) {
        ssize_t put = write(file->fd, from, bytes);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return write_failed(file, error);
        from += put;
        bytes -= (uint64_t)put;
        file->bytes += (uint64_t)put;
    }
    return FOREBAY_OK;
}

static int commit_compared(struct fb_new_file *file, forebay_error *error)
{
    struct stat now;
    bool same = fstat(file->fd, &now) == 0 && S_ISREG(now.st_mode) &&
                (uint64_t)now.st_size == file->bytes;

    close(file->fd);
    file->fd = -1;
    return same ? FOREBAY_OK : other_content(file, error);
}

int fb_new_file_commit(struct fb_new_file *file, bool *kept, forebay_error *error)
{
    int fd = file->fd, status = FOREBAY_OK;

    *kept = file->comparing;
    if (file->comparing)
        return commit_compared(file, error);
    file->fd = -1;
    /* Some file systems report a full disk only when the file is closed. */
    if (close(fd) != 0 || rename(file->temporary, file->path) != 0) {
        status = write_failed(file, error);
        unlink(file->temporary);
    }
    return status;
}

void fb_new_file_give_up(struct fb_new_file *file)
{
    if (file->fd < 0)
        return;
    close(file->fd);
    file->fd = -1;
    if (!file->comparing)
        unlink(file->temporary);
}

/* The rename itself is on the disk only when the folder is. */
static void folder_sync(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int fd;

    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

int fb_file_write(const char *path, const char *text, forebay_error *error)
{
    struct fb_new_file file = { .bytes = 0 };
    int status, length = snprintf(file.path, sizeof(file.path), "%s", path);

    if (length < 0 || (size_t)length >= sizeof(file.path) - 32)
        return too_long(path, error);
    snprintf(file.temporary, sizeof(file.temporary), "%.*s.tmp%ld", length, path, (long)getpid());
    file.fd = open(file.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file.fd < 0)
        return fb_fail_errno(error, FOREBAY_IO, "cannot write '%s'", path);
    status = fb_new_file_put(&file, text, strlen(text), error);
    if (!status && fsync(file.fd) != 0 && errno != EINVAL)
        status = write_failed(&file, error);
    if (status) {
        fb_new_file_give_up(&file);
        return status;
    }
    status = fb_new_file_commit(&file, &(bool){ false }, error);
    if (!status)
        folder_sync(path);
    return status;
}

int fb_folder_make(const char *path, forebay_error *error)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    struct stat now;

    if (length == 0 || length >= sizeof(part))
        return too_long(path, error);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        part[i] = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return fb_fail_errno(error, FOREBAY_IO, "cannot make the folder '%s'", part);
        part[i] = path[i];
    }
    if (stat(path, &now) != 0 || !S_ISDIR(now.st_mode))
        return fb_fail(error, FOREBAY_BAD_USE, "'%s' is there but is no folder", path);
    return FOREBAY_OK;
}
