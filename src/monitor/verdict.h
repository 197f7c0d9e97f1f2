/* verdict.h -- which stage is the limit: read, decode, copy, or the consumer. */
#ifndef FB_MONITOR_VERDICT_H
#define FB_MONITOR_VERDICT_H
#include "monitor/snapshot_file.h"

enum fb_limit_stage { FB_LIMIT_UNKNOWN, FB_LIMIT_READ, FB_LIMIT_DECODE, FB_LIMIT_COPY,
                      FB_LIMIT_CONSUMER };

/* From the shares of the last second. Pure. */
enum fb_limit_stage fb_verdict(const struct fb_snapshot *page);
const char *fb_verdict_name(enum fb_limit_stage stage); /* "read" */
/* The same in a sentence that says why and what to change. */
void fb_verdict_tell(const struct fb_snapshot *page, char *text, size_t size);
#endif
