/* log.h -- one line a fact, to whoever the caller of forebay_open named. Nobody else prints. */
#ifndef FB_BASE_LOG_H
#define FB_BASE_LOG_H
#include "forebay.h"

/* Copied freely; all of it may be NULL: then it is silent. */
struct fb_log {
    forebay_log_fn log;
    forebay_progress_fn progress;
    void *data;
};

void fb_say(const struct fb_log *log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fb_warn(const struct fb_log *log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Long work goes on; fails with FOREBAY_STOPPED if the caller wants to give up. */
int fb_progress(const struct fb_log *log, const char *what, uint64_t done, uint64_t total,
                forebay_error *error);
#endif
