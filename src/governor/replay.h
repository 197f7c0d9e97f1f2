/*
 * replay.h -- decisions as lines of JSON, and made again from them. A line holds what was seen,
 * what was done before and what was decided, so that any decision of a log can be made again
 * alone: {"kind":"decision","view":{...},"past":{...},"action":"cache","from":1,"to":2,...}
 */
#ifndef FB_GOVERNOR_REPLAY_H
#define FB_GOVERNOR_REPLAY_H
#include <stddef.h>

#include "governor/decide.h"

#define FB_REPLAY_LINE_BYTES 4096 /* the longest line, its NUL included */

/* Write the line without a newline; false if there is no memory for it or it is too long. */
bool fb_replay_write(const struct fb_view *view, const struct fb_past *past,
                     const struct fb_decision *decision, char line[FB_REPLAY_LINE_BYTES]);

enum fb_replay_result { FB_REPLAY_OTHER, FB_REPLAY_SAME, FB_REPLAY_DIFFERS };
/* Decide again. OTHER: the line is no decision, or malformed. `made` may be NULL. */
enum fb_replay_result fb_replay_line(const char *line, size_t length, struct fb_decision *made);
#endif
