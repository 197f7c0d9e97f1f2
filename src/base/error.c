#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fb_fail(forebay_error *error, forebay_status status, const char *format, ...)
{
    va_list arguments;

    if (!error)
        return status;
    error->status = status;
    error->place[0] = '\0';
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

int fb_fail_errno(forebay_error *error, forebay_status status, const char *format, ...)
{
    int number = errno; /* before anything here can change it */
    char text[sizeof(error->message)], reason[128];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return fb_fail(error, status, "%s: %s", text, strerror_r(number, reason, sizeof(reason)));
}

void fb_error_context(forebay_error *error, const char *format, ...)
{
    char text[sizeof(error->message)];
    size_t used;
    va_list arguments;

    if (!error)
        return;
    memcpy(text, error->message, sizeof(text));
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    used = strlen(error->message);
    snprintf(error->message + used, sizeof(error->message) - used, ": %s", text);
}

void fb_error_place(forebay_error *error, const char *format, ...)
{
    va_list arguments;

    if (!error || error->place[0])
        return;
    va_start(arguments, format);
    vsnprintf(error->place, sizeof(error->place), format, arguments);
    va_end(arguments);
}

bool fb_status_is_data(int status)
{
    return status == FOREBAY_BAD_DATA || status == FOREBAY_MISSING;
}

const char *forebay_status_name(int status)
{
    switch (status) {
#define FOREBAY_X(name, value, text) \
    case value:                      \
        return #name;
        FOREBAY_STATUS_MAP(FOREBAY_X)
#undef FOREBAY_X
    default:
        return "?";
    }
}
