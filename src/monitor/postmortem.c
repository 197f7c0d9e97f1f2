/* postmortem.c -- find loaders that did not close, and say in one sentence how they ended. */
#include "monitor/postmortem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"

#define DAY_NS ((uint64_t)86400 * 1000000000)
#define DEAD_KEPT 32

/* ---- The sentence ---- */

static const char *bytes_text(uint64_t bytes, char text[32])
{
    return bytes == FB_UNKNOWN ? "an unknown number of bytes" : fb_size_text(bytes, text);
}

/* What the others in the group held leaves so much for a budget, with a twentieth to spare. */
static uint64_t budget_advised(const struct fb_snapshot *page, uint64_t room, uint64_t in_use)
{
    uint64_t others = in_use > page->used ? in_use - page->used : 0;
    uint64_t left = room > others ? room - others : 0;

    return left - left / 20;
}

static void advise(const struct fb_snapshot *page, uint64_t room, uint64_t in_use, char *text,
                   size_t size)
{
    uint64_t advised = room == FB_UNKNOWN || in_use == FB_UNKNOWN
                           ? 0
                           : fb_min(budget_advised(page, room, in_use), page->limit);
    char a[32], b[32];

    if (advised > page->floor)
        snprintf(text, size, "lower memory.budget (%s) below %s", fb_size_text(page->limit, a),
                 fb_size_text(advised, b));
    else
        snprintf(text, size, "the rest was held by others, so the limit must be raised or they "
                             "must take less");
}

static bool rose(uint64_t before, uint64_t now)
{
    return before != FB_UNKNOWN && now != FB_UNKNOWN && now > before;
}

/* Was it nearly full when it was last seen? */
static bool is_near(uint64_t used, uint64_t limit)
{
    return used != FB_UNKNOWN && limit != FB_UNKNOWN && used > limit - limit / 10;
}

void fb_death_tell(const struct fb_snapshot *page, uint64_t group_kills, uint64_t host_kills,
                   bool rebooted, char sentence[FB_DEATH_BYTES])
{
    uint64_t used = page->host_total == FB_UNKNOWN || page->host_available == FB_UNKNOWN
                        ? FB_UNKNOWN
                        : page->host_total - fb_min(page->host_total, page->host_available);
    bool by_group = rose(page->group_kills, group_kills);
    bool maybe = group_kills == FB_UNKNOWN && page->group_kills != FB_UNKNOWN &&
                 is_near(page->group_used, page->group_limit);
    char a[32], b[32], c[32], what[200];

    if (rebooted) {
        snprintf(sentence, FB_DEATH_BYTES, "the machine was restarted while it ran");
    } else if (by_group || maybe) {
        advise(page, page->group_limit, page->group_used, what, sizeof(what));
        snprintf(sentence, FB_DEATH_BYTES,
                 "%skilled by the kernel at %s of cgroup limit %s; cache held %s; %s",
                 by_group ? "" : "probably ", bytes_text(page->group_used, a),
                 bytes_text(page->group_limit, b), fb_size_text(page->by_stage[FB_STAGE_CACHE], c),
                 what);
    } else if (rose(page->host_kills, host_kills) && is_near(used, page->host_total)) {
        advise(page, page->host_total, used, what, sizeof(what));
        snprintf(sentence, FB_DEATH_BYTES,
                 "killed by the kernel, which was out of memory at %s of %s; cache held %s; %s",
                 bytes_text(used, a), bytes_text(page->host_total, b),
                 fb_size_text(page->by_stage[FB_STAGE_CACHE], c), what);
    } else {
        snprintf(sentence, FB_DEATH_BYTES,
                 "killed or crashed (SIGKILL or another signal; the kernel counted no "
                 "out-of-memory kill) with %s of a budget of %s in use after %" PRIu64 " batches",
                 fb_size_text(page->used, a), fb_size_text(page->limit, b), page->batches);
    }
}

static void judge(struct fb_snapshot *page)
{
    char boot[40];

    if (page->verdict[0])
        return;
    fb_host_boot(boot);
    fb_death_tell(page, fb_host_group_kills(page->group), fb_host_kills(""),
                  strcmp(boot, page->boot) != 0, page->verdict);
}

/* ---- Finding them ---- */

struct search {
    struct fb_snapshot last; /* the newest dead one */
    bool found;
};

static bool keep_newest(void *data, const struct fb_snapshot *page, const char *path)
{
    struct search *search = data;

    (void)path;
    if (fb_snapshot_is_alive(page) || (search->found && page->time_ns <= search->last.time_ns))
        return true;
    search->last = *page;
    search->found = true;
    return true;
}

bool fb_death_last(struct fb_snapshot *page, forebay_error *error)
{
    struct search *search = calloc(1, sizeof(*search));
    bool found;

    if (!search)
        return false;
    found = fb_snapshot_file_list(keep_newest, search, error) == FOREBAY_OK && search->found;
    if (found) {
        *page = search->last;
        judge(page);
    }
    free(search);
    return found;
}

struct sweep {
    const struct fb_log *log;
    uint64_t now_ns, oldest_ns;
    unsigned dead;
    char oldest[FB_HOST_PATH_BYTES + 300];
};

static void say(const struct fb_log *log, const struct fb_snapshot *page)
{
    char when[32] = "";
    time_t ended = (time_t)(page->time_ns / 1000000000u);
    struct tm local;

    if (localtime_r(&ended, &local))
        strftime(when, sizeof(when), "%F %T", &local);
    fb_warn(log, "an earlier run (pid %" PRIu64 "%s%s, ended about %s) did not close: %s",
            page->pid, page->name[0] ? ", " : "", page->name, when, page->verdict);
}

static bool sweep_one(void *data, const struct fb_snapshot *page, const char *path)
{
    struct sweep *sweep = data;
    struct fb_snapshot told;

    if (fb_snapshot_is_alive(page))
        return true;
    if (!page->verdict[0]) {
        told = *page;
        judge(&told);
        say(sweep->log, &told);
        fb_snapshot_file_settle(path, &told);
    }
    if (page->time_ns + DAY_NS < sweep->now_ns) {
        (void)unlink(path);
        return true;
    }
    sweep->dead++;
    if (page->time_ns < sweep->oldest_ns) {
        sweep->oldest_ns = page->time_ns;
        snprintf(sweep->oldest, sizeof(sweep->oldest), "%s", path);
    }
    return true;
}

void fb_death_sweep(const struct fb_log *log)
{
    struct sweep sweep = { .log = log, .now_ns = fb_wall_ns(), .oldest_ns = UINT64_MAX };

    /* One comes with each run at most, so it is enough that one goes. */
    if (fb_snapshot_file_list(sweep_one, &sweep, NULL) == FOREBAY_OK && sweep.dead > DEAD_KEPT)
        (void)unlink(sweep.oldest);
}
