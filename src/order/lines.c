#include "order/lines.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/block.h"

#define BUFFER_BYTES (64 * FB_KIB)

int fb_lines_open(struct fb_lines *lines, const char *path, const char *what,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct stat found;
    int status;

    *lines = (struct fb_lines){ .path = path, .what = what, .log = log, .budget = budget };
    /* Not blocking: a FIFO must not be waited for, it is refused below. */
    lines->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (lines->fd < 0) {
        status = fb_fail_errno(error, FOREBAY_MISSING, "%s: cannot open '%s'", what, path);
        goto fail;
    }
    if (fstat(lines->fd, &found)) {
        status = fb_fail_errno(error, FOREBAY_IO, "%s: cannot ask about '%s'", what, path);
        goto fail;
    }
    if (!S_ISREG(found.st_mode)) {
        status = fb_fail(error, FOREBAY_MISSING, "%s: '%s' is not a regular file", what, path);
        goto fail;
    }
    lines->file_bytes = (uint64_t)found.st_size;
    lines->buffer = fb_block_new(budget, FB_STAGE_INDEX, 1, BUFFER_BYTES, what, error);
    if (lines->buffer)
        return FOREBAY_OK;
    status = error->status;

fail:
    fb_error_place(error, "%s", path);
    fb_lines_close(lines);
    return status;
}

void fb_lines_close(struct fb_lines *lines)
{
    if (lines->fd >= 0)
        close(lines->fd);
    lines->fd = -1;
    fb_block_free(lines->budget, FB_STAGE_INDEX, lines->buffer, 1, BUFFER_BYTES);
    lines->buffer = NULL;
}

int fb_lines_refuse(const struct fb_lines *lines, const char *text, const char *expected,
                    forebay_error *error)
{
    int status = fb_fail(error, FOREBAY_BAD_DATA, "%s: '%s' line %llu: %s%s%sexpected %s",
                         lines->what, lines->path, (unsigned long long)lines->line,
                         text ? "found '" : "", text ? text : "", text ? "', " : "", expected);

    fb_error_place(error, "%s:%llu", lines->path, (unsigned long long)lines->line);
    return status;
}

/* Fill the buffer again; *more = false at the end of the file. */
static int refill(struct fb_lines *lines, bool *more, forebay_error *error)
{
    ssize_t got;
    int status = fb_progress(lines->log, lines->what, lines->read_bytes, lines->file_bytes, error);

    if (status)
        return status;
    do
        got = read(lines->fd, lines->buffer, BUFFER_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return fb_fail_errno(error, FOREBAY_IO, "%s: cannot read '%s'", lines->what, lines->path);
    lines->at = 0;
    lines->filled = (size_t)got;
    lines->read_bytes += (uint64_t)got;
    *more = got > 0;
    return FOREBAY_OK;
}

/* One line as it stands, without its end; *length may reach FB_LINE_BYTES: then it is too long. */
static int take_line(struct fb_lines *lines, char text[FB_LINE_BYTES], size_t *length, bool *got,
                     forebay_error *error)
{
    bool more = true, any = false;
    int status;

    *length = 0;
    for (;;) {
        const char *from, *end;
        size_t piece;

        if (lines->at == lines->filled) {
            status = refill(lines, &more, error);
            if (status)
                return status;
            if (!more)
                break;
        }
        any = true;
        from = lines->buffer + lines->at;
        end = memchr(from, '\n', lines->filled - lines->at);
        piece = end ? (size_t)(end - from) : lines->filled - lines->at;
        memcpy(text + *length, from, fb_min(piece, FB_LINE_BYTES - *length));
        *length += fb_min(piece, FB_LINE_BYTES - *length);
        lines->at += piece + (end ? 1 : 0);
        if (end || *length == FB_LINE_BYTES)
            break;
    }
    *got = any;
    return FOREBAY_OK;
}

static void trim(char text[FB_LINE_BYTES], size_t *length)
{
    size_t first = 0;

    while (*length && isspace((unsigned char)text[*length - 1]))
        --*length;
    while (first < *length && isspace((unsigned char)text[first]))
        first++;
    *length -= first;
    memmove(text, text + first, *length);
    text[*length] = '\0';
}

int fb_lines_next(struct fb_lines *lines, char text[FB_LINE_BYTES], bool *got, forebay_error *error)
{
    size_t length;
    int status;

    for (;;) {
        status = take_line(lines, text, &length, got, error);
        if (status || !*got)
            return status;
        lines->line++;
        if (length == FB_LINE_BYTES)
            return fb_lines_refuse(lines, NULL, "one number, not more than 63 characters", error);
        if (memchr(text, '\0', length))
            return fb_lines_refuse(lines, NULL, "text, not a zero byte", error);
        trim(text, &length);
        if (length)
            break;
        if (!lines->empty_line)
            lines->empty_line = lines->line;
    }
    if (!lines->empty_line)
        return FOREBAY_OK;
    lines->line = lines->empty_line;
    return fb_lines_refuse(lines, NULL, "a number, the line is empty", error);
}
