/*
 * governor.h -- the thread that looks, decides and acts, ten times a second: it takes one view of
 * loader and host, asks decide.h, changes one setting through the pipeline's and the cache's
 * setters, says so with reason and figures, and publishes all of it in the loader's snapshot file. It also
 * answers the control socket, keeps the log, watches for alarms and for reads that hang.
 *
 * It never touches the order or the contents of batches.
 */
#ifndef FB_GOVERNOR_GOVERNOR_H
#define FB_GOVERNOR_GOVERNOR_H
#include "config/config.h"
#include "monitor/control_socket.h"
#include "order/order.h"
#include "plan/prepare.h"
#include "source/source.h"

struct fb_governor_options {
    struct fb_pipeline *pipeline; /* borrowed, all of these */
    struct fb_cache *cache;       /* NULL: none */
    struct fb_source *source;     /* may keep units itself, in the place of a cache */
    struct fb_budget *budget;
    const struct fb_config *config;
    const struct fb_log *log;
    pthread_mutex_t *settings;    /* held while a setting is changed */
    const char *name, *policy, *device;
    struct fb_ranks ranks;
    const struct fb_run *run;         /* policy, needs, plan */
    uint64_t cache_least, cache_most; /* its index; all it could ever use */
    fb_control_set_fn set;            /* what the control socket calls */
    void *data;
};

struct fb_governor;

/* Its memory (thread, page, structs, lines of the log: 400 KiB) is in FB_LOADER_BYTES. A page or a socket that cannot be had is said and done without; a log or an alarm that was asked
 * for and cannot be is an error. */
int fb_governor_start(struct fb_governor **out, const struct fb_governor_options *options,
                      forebay_error *error);
/* Before the pipeline is closed. Removes the page. In a fork's child this does nothing. */
void fb_governor_stop(struct fb_governor *governor);

/* [any thread] The user set `key` by hand: it is no longer moved; `fixed` false gives it back. */
void fb_governor_fix(struct fb_governor *governor, const char *key, bool fixed);
/* [any thread] Has an alarm asked to stop? Then `text` (of 256) says which. */
bool fb_governor_asks_to_stop(struct fb_governor *governor, char text[256]);
#endif
