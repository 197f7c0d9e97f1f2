#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"

static void put(const struct fb_log *log, int level, const char *format, va_list arguments)
{
    char line[1024];

    if (!log || !log->log)
        return;
    vsnprintf(line, sizeof(line), format, arguments);
    log->log(log->data, level, line);
}

void fb_say(const struct fb_log *log, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    put(log, 0, format, arguments);
    va_end(arguments);
}

void fb_warn(const struct fb_log *log, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    put(log, 1, format, arguments);
    va_end(arguments);
}

int fb_progress(const struct fb_log *log, const char *what, uint64_t done, uint64_t total,
                forebay_error *error)
{
    if (!log || !log->progress || !log->progress(log->data, what, done, total))
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_STOPPED, "stopped while %s", what);
}
