/* error.h -- say what went wrong where it is known; each caller may add where it happened. */
#ifndef FB_BASE_ERROR_H
#define FB_BASE_ERROR_H
#include "forebay.h"

/* Write the message into `error` (may be NULL) and return `status`, so that one can
 * `return fb_fail(...)`. fb_fail_errno() appends ": " and the text of errno. Both clear `place`. */
int fb_fail(forebay_error *error, forebay_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int fb_fail_errno(forebay_error *error, forebay_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "<place>: " in front of the message already there. */
void fb_error_context(forebay_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Say where: a file, "file:line:column", a key. The first one said stays. */
void fb_error_place(forebay_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Is this failure the data's own (missing, malformed, too large)? Only such may be skipped. */
bool fb_status_is_data(int status);
#endif
