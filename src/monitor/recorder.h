/*
 * recorder.h -- a log of JSON lines (monitor.log), bounded: a file that has grown to half of the
 * bound becomes FILE.1, in the place of the one before, and a new one begins.
 */
#ifndef FB_MONITOR_RECORDER_H
#define FB_MONITOR_RECORDER_H
#include <jansson.h>

#include "base/log.h"

#define FB_RECORDER_BYTES ((uint64_t)32 << 20) /* of both files together */

struct fb_recorder;

/* Open for appending; the folder must be there. `bound` 0: FB_RECORDER_BYTES. */
int fb_recorder_open(struct fb_recorder **out, const char *path, uint64_t bound,
                     const struct fb_log *log, forebay_error *error);
void fb_recorder_close(struct fb_recorder *recorder);
/* One line; `length` without newline. A log that cannot be written is said once, then left. */
void fb_recorder_line(struct fb_recorder *recorder, const char *line, size_t length);
/* IO if a line could not be written. */
int fb_recorder_status(const struct fb_recorder *recorder, forebay_error *error);
/* The same of a JSON object, with "kind" put in; drops it. */
void fb_recorder_json(struct fb_recorder *recorder, const char *kind, json_t *object);

/* Read a log back: each line that is a JSON object, of the older file first. A line that is
 * none, or longer than 64 KiB, is counted and passed over. fn returns false to end. */
typedef bool (*fb_recorder_fn)(void *data, json_t *object);
int fb_recorder_read(const char *path, fb_recorder_fn fn, void *data, uint64_t *bad_lines,
                     forebay_error *error);
#endif
