/*
 * progress.h -- the bar on stderr, and the lines that are said above it [any thread].
 *
 * On a terminal the bar is redrawn at most ten times a second; elsewhere (a log file) the same
 * text comes as a plain line every ten seconds.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    pthread_mutex_t lock;
    bool terminal;

    /* Guarded by lock: */
    bool drawn;       /* a bar is on the screen */
    uint64_t next_ns; /* when the next may be drawn */
};

void progress_init(struct progress *progress);
/* Take the bar off the screen. */
void progress_finish(struct progress *progress);

/* Is it time to draw? For callers whose numbers cost something. */
bool progress_due(struct progress *progress);
/* "<left> [#####.....]  50% <right>", cut to the terminal; total 0: unknown, no bar. */
void progress_draw(struct progress *progress, const char *left, uint64_t done, uint64_t total,
                   const char *right);
/* On a terminal only: draw it now, and leave it on the screen. */
void progress_keep(struct progress *progress, const char *left, uint64_t done, uint64_t total,
                   const char *right);
/* A whole line that stays. */
void progress_say(struct progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For forebay_options and fb_log; `data` is the struct progress. */
void progress_log(void *data, int level, const char *line);
int progress_long_work(void *data, const char *what, uint64_t done, uint64_t total);
#endif
