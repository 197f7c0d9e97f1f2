/*
 * alarm.h -- thresholds of memory, and what to do when one is crossed: guide 001's script, without
 * the script. An alarm goes off once, and again only after the figure fell below 95 % of its
 * threshold.
 */
#ifndef FB_MONITOR_ALARM_H
#define FB_MONITOR_ALARM_H
#include "config/config.h"
#include "memory/host.h"

#define FB_ALARM_WORDS 32 /* of a command, at most */

#define FB_ALARM_MAP(X)                                  \
    X(PROCESS, "process", "resident memory of the process") \
    X(SYSTEM, "system", "used memory of the system")     \
    X(SWAP, "swap", "used swap")                         \
    X(GPU, "gpu", "used memory of a GPU")

enum fb_alarm_kind {
#define FB_X(name, text, help) FB_ALARM_##name,
    FB_ALARM_MAP(FB_X)
#undef FB_X
    FB_ALARM_COUNT
};

struct fb_alarms {
    struct {
        bool set, percent, on;
        double value; /* bytes, or percent of the total */
    } levels[FB_ALARM_COUNT];
    bool any;
    char *command[FB_ALARM_WORDS + 1]; /* borrowed; ends with NULL */
    int child;                         /* of the command under way; 0: none */
    uint64_t started_ns;
};

/* A threshold: "40GiB" or "90%"; a bare number is neither. */
bool fb_alarm_parse(const char *text, bool *percent, double *value);
/* From monitor.alarm.*; with action `command` there must be one. */
int fb_alarms_read(struct fb_alarms *alarms, const struct fb_config *config, forebay_error *error);

/* What is used and what there is, FB_UNKNOWN where that is not known. */
struct fb_alarm_readings {
    uint64_t used[FB_ALARM_COUNT], total[FB_ALARM_COUNT];
};
void fb_alarm_readings_host(struct fb_alarm_readings *readings, const struct fb_host_memory *host,
                            uint64_t resident);

/* Look at all; the first that goes off now is told in `text`. Pure but for `on`. */
bool fb_alarm_check(struct fb_alarms *alarms, const struct fb_alarm_readings *readings, char *text,
                    size_t size);
/* Start the command with the alarm's text as FOREBAY_ALARM in its environment, no shell between;
 * one at a time. Its output goes to stderr, and after a minute it is killed with its children.
 * False if it could not be started. */
bool fb_alarm_run(struct fb_alarms *alarms, const char *text);
/* Forget a command that has ended, kill one that takes too long; never waits. */
void fb_alarm_reap(struct fb_alarms *alarms);
/* The run ends: the command has one more second. */
void fb_alarm_end(struct fb_alarms *alarms);
#endif
