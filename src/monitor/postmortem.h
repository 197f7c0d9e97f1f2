/*
 * postmortem.h -- what became of loaders that did not close: from the page they left behind and
 * the kernel's counters.
 */
#ifndef FB_MONITOR_POSTMORTEM_H
#define FB_MONITOR_POSTMORTEM_H
#include "base/log.h"
#include "monitor/snapshot_file.h"

#define FB_DEATH_BYTES sizeof(((struct fb_snapshot *)0)->verdict)

/* How it ended, in one sentence. `group_kills` and `host_kills` are the kernel's counters now
 * (FB_UNKNOWN: the group is gone), `rebooted`: the machine was started again since. Pure. */
void fb_death_tell(const struct fb_snapshot *page, uint64_t group_kills, uint64_t host_kills,
                   bool rebooted, char sentence[FB_DEATH_BYTES]);

/* The dead loader of this user that ended last, its verdict filled in. False if there is none. */
bool fb_death_last(struct fb_snapshot *page, forebay_error *error);

/* For a run that starts: say how those before it ended that nobody has heard of yet, write it into
 * their pages, and remove what is older than a day or too many. */
void fb_death_sweep(const struct fb_log *log);
#endif
