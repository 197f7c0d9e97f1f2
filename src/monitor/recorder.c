#include "monitor/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"

#define LINE_MOST ((size_t)64 << 10)

struct fb_recorder {
    int fd; /* -1: given up */
    uint64_t bytes, bound;
    struct fb_log log;
    char path[PATH_MAX], older[PATH_MAX + 2];
    char *buffer; /* a line being made */
    int failed;   /* the error that ended it; 0: none */
};

static int open_file(struct fb_recorder *recorder, forebay_error *error)
{
    struct stat about;

    recorder->fd = open(recorder->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
                        0600);
    if (recorder->fd < 0 || fstat(recorder->fd, &about)) {
        fb_fail_errno(error, FOREBAY_IO, "monitor.log: cannot write to '%s'", recorder->path);
        fb_error_place(error, "monitor.log");
        return FOREBAY_IO;
    }
    recorder->bytes = S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
    return FOREBAY_OK;
}

int fb_recorder_open(struct fb_recorder **out, const char *path, uint64_t bound,
                     const struct fb_log *log, forebay_error *error)
{
    struct fb_recorder *recorder = calloc(1, sizeof(*recorder));
    char *buffer = malloc(LINE_MOST);
    int status;

    if (!recorder || !buffer || strlen(path) >= sizeof(recorder->path)) {
        free(recorder);
        free(buffer);
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the log '%s'", path);
    }
    *recorder = (struct fb_recorder){ .bound = bound ? bound : FB_RECORDER_BYTES,
                                      .buffer = buffer };
    if (log)
        recorder->log = *log;
    snprintf(recorder->path, sizeof(recorder->path), "%s", path);
    snprintf(recorder->older, sizeof(recorder->older), "%s.1", path);
    status = open_file(recorder, error);
    if (status)
        fb_recorder_close(recorder);
    else
        *out = recorder;
    return status;
}

void fb_recorder_close(struct fb_recorder *recorder)
{
    if (!recorder)
        return;
    if (recorder->fd >= 0)
        close(recorder->fd);
    free(recorder->buffer);
    free(recorder);
}

static void give_up(struct fb_recorder *recorder)
{
    recorder->failed = errno ? errno : ENOSPC;
    fb_warn(&recorder->log, "the log '%s' cannot be written any more: %s", recorder->path,
            strerror(recorder->failed));
    if (recorder->fd >= 0)
        close(recorder->fd);
    recorder->fd = -1;
}

static void rotate(struct fb_recorder *recorder)
{
    close(recorder->fd);
    recorder->fd = -1;
    if (rename(recorder->path, recorder->older) || open_file(recorder, NULL))
        give_up(recorder);
}

void fb_recorder_line(struct fb_recorder *recorder, const char *line, size_t length)
{
    struct iovec parts[2] = { { .iov_len = length }, { .iov_len = 1 } };
    ssize_t written;

    if (recorder->fd < 0)
        return;
    if (recorder->bytes && recorder->bytes + length + 1 > recorder->bound / 2)
        rotate(recorder);
    if (recorder->fd < 0)
        return;
    memcpy(&parts[0].iov_base, &line, sizeof(line)); /* writev does not write to it */
    parts[1].iov_base = (char[]){ '\n' };
    written = writev(recorder->fd, parts, 2);
    if (written < (ssize_t)length + 1) { /* a part of a line: the disk is full */
        errno = written < 0 ? errno : ENOSPC;
        give_up(recorder);
    } else {
        recorder->bytes += (uint64_t)written;
    }
}

int fb_recorder_status(const struct fb_recorder *recorder, forebay_error *error)
{
    if (!recorder || !recorder->failed)
        return FOREBAY_OK;
    errno = recorder->failed;
    return fb_fail_errno(error, FOREBAY_IO, "the log '%s' is not complete", recorder->path);
}

void fb_recorder_json(struct fb_recorder *recorder, const char *kind, json_t *object)
{
    size_t length = 0;

    if (object && !json_object_set_new(object, "kind", json_string(kind)))
        length = json_dumpb(object, recorder->buffer, LINE_MOST,
                            JSON_COMPACT | JSON_REAL_PRECISION(14));
    json_decref(object);
    if (length && length < LINE_MOST)
        fb_recorder_line(recorder, recorder->buffer, length);
}

/* ---- Reading ---- */

/* A line into the buffer; SIZE_MAX if it was too long for it. False at the end. */
static bool line_read(FILE *file, char *buffer, size_t *length)
{
    size_t count = 0;
    int next;

    while ((next = getc_unlocked(file)) != EOF && next != '\n') {
        if (count < LINE_MOST)
            buffer[count] = (char)next;
        count++;
    }
    *length = count <= LINE_MOST ? count : SIZE_MAX;
    return count > 0 || next != EOF;
}

static bool file_read(FILE *file, char *buffer, fb_recorder_fn fn, void *data,
                      uint64_t *bad_lines)
{
    bool go_on = true;
    size_t length;

    while (go_on && line_read(file, buffer, &length)) {
        json_t *object = length < SIZE_MAX ? json_loadb(buffer, length, 0, NULL) : NULL;

        if (json_is_object(object))
            go_on = fn(data, object);
        else
            ++*bad_lines;
        json_decref(object);
    }
    return go_on;
}

int fb_recorder_read(const char *path, fb_recorder_fn fn, void *data, uint64_t *bad_lines,
                     forebay_error *error)
{
    char older[PATH_MAX], *buffer = malloc(LINE_MOST);
    FILE *files[2] = { NULL, NULL };
    uint64_t bad = 0;
    bool go_on = true;
    int status = FOREBAY_OK;

    snprintf(older, sizeof(older), "%s.1", path);
    if (buffer) {
        files[0] = fopen(older, "re");
        files[1] = fopen(path, "re");
    }
    if (!buffer || !files[1])
        status = fb_fail_errno(error, FOREBAY_MISSING, "cannot read the log '%s'", path);
    for (unsigned i = 0; i < 2; i++) {
        if (files[i] && !status && go_on)
            go_on = file_read(files[i], buffer, fn, data, &bad);
        if (files[i])
            fclose(files[i]);
    }
    free(buffer);
    if (!status && bad_lines)
        *bad_lines = bad;
    return status;
}
