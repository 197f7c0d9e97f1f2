/* governor.c -- the thread that looks, decides and acts. */
#include "governor/governor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/thread.h"
#include "governor/view.h"
#include "governor/replay.h"
#include "governor/sentence.h"
#include "monitor/alarm.h"
#include "monitor/gpu.h"
#include "monitor/snapshot_file.h"
#include "monitor/recorder.h"

#define TICK_NS ((uint64_t)100000000)
#define SECOND_NS ((uint64_t)1000000000)

struct fb_governor {
    /* Constant: */
    struct fb_governor_options options;
    struct fb_log log;
    char name[64];
    pid_t pid;
    pthread_t thread;
    int wake; /* an eventfd: the thread is to look up */

    /* [any thread] */
    atomic_bool stopping;
    atomic_bool fixed[FB_FIXED_COUNT];
    atomic_bool stop_asked;
    char stop_text[256]; /* written before stop_asked, then constant */

    /* The thread's own: */
    struct fb_past past;
    struct fb_observer look;
    struct fb_snapshot_file *page;
    struct fb_control *control;
    struct fb_recorder *recorder;
    struct fb_alarms alarms;
    struct fb_gpus *gpus;
    bool alarmed;
    struct fb_sentences sentences;
    uint64_t second_ns; /* when what is due once a second was done */
    char line[FB_REPLAY_LINE_BYTES];
};

/* ---- Acting ---- */

/* Has the user set it himself since we looked? */
static bool is_fixed(const struct fb_governor *governor, enum fb_action action)
{
    static const enum fb_fixed keys[FB_ACTION_COUNT] = { [FB_ACT_CACHE] = FB_FIXED_CACHE,
                                                         [FB_ACT_PREFETCH] = FB_FIXED_PREFETCH,
                                                         [FB_ACT_WORKERS] = FB_FIXED_WORKERS,
                                                         [FB_ACT_CPU_SHARE] = FB_FIXED_CPU };

    return atomic_load(&governor->fixed[keys[action]]);
}

/* False: nothing was done. */
static bool carry_out(struct fb_governor *governor, const struct fb_decision *decision,
                      uint64_t *out)
{
    const struct fb_governor_options *options = &governor->options;
    uint64_t reached = decision->to;
    bool fixed;

    pthread_mutex_lock(options->settings);
    fixed = is_fixed(governor, decision->action);
    switch (fixed ? FB_ACT_NONE : decision->action) {
    case FB_ACT_CACHE:
        reached = options->cache ? fb_cache_set_limit(options->cache, decision->to)
                                 : options->source->ops->keep(options->source, decision->to,
                                                              options->run->window);
        break;
    case FB_ACT_PREFETCH:
        reached = fb_pipeline_set_prefetch(options->pipeline, decision->to);
        break;
    case FB_ACT_WORKERS:
        reached = fb_pipeline_set_workers(options->pipeline, decision->to);
        break;
    case FB_ACT_CPU_SHARE:
        reached = fb_pipeline_set_cpu_share(options->pipeline, decision->to);
        break;
    default:
        break;
    }
    pthread_mutex_unlock(options->settings);
    *out = reached;
    return !fixed;
}

static void tell_change(const struct fb_decision *decision, uint64_t reached, char *text,
                        size_t size)
{
    char from[32], to[32];

    if (decision->action == FB_ACT_CACHE) {
        fb_size_text(decision->from, from);
        fb_size_text(reached, to);
    } else if (decision->from == UINT64_MAX) { /* cpu.share: all */
        snprintf(from, sizeof(from), "auto");
        snprintf(to, sizeof(to), "%" PRIu64, reached);
    } else {
        snprintf(from, sizeof(from), "%" PRIu64, decision->from);
        snprintf(to, sizeof(to), "%" PRIu64, reached);
    }
    snprintf(text, size, "%s %s -> %s: %s (%s)", fb_action_names[decision->action], from, to,
             decision->reason, decision->figures);
}

static void keep_decision(struct fb_snapshot *page, const char *text)
{
    struct fb_snapshot_decision *place = &page->decisions[page->decision_count++ % FB_SNAPSHOT_DECISIONS];

    place->time_ns = fb_wall_ns();
    snprintf(place->text, sizeof(place->text), "%.*s", (int)sizeof(place->text) - 1, text);
}

static void decide_and_act(struct fb_governor *governor, uint64_t now_ns)
{
    struct fb_view view = fb_view_make(&governor->look, &governor->options, governor->fixed,
                                       now_ns);
    struct fb_past before = governor->past;
    struct fb_decision decision, told;
    uint64_t reached;
    char text[400];

    view.alarmed = governor->alarmed;
    governor->alarmed = false;
    decision = fb_governor_decide(&view, &governor->past);
    if (decision.action == FB_ACT_NONE)
        return;
    if (decision.action == FB_ACT_WARN) {
        snprintf(text, sizeof(text), "%s (%s), and all that could give way is fixed by the "
                 "configuration or forebay set: lower memory.cache, prefetch or workers, or leave "
                 "them to auto", decision.reason, decision.figures);
        fb_warn(&governor->log, "%s", text);
    } else {
        if (!carry_out(governor, &decision, &reached))
            return;
        if (reached == decision.from && decision.action != FB_ACT_CPU_SHARE)
            decision.quiet = true; /* nothing changed, nothing to say */
        told = decision;
        fb_sentence_join(&governor->sentences, &told, now_ns);
        decision.quiet = told.quiet;
        tell_change(&told, reached, text, sizeof(text));
        if (!decision.quiet)
            fb_say(&governor->log, "governor: %s", text);
    }
    if (!decision.quiet)
        keep_decision(&governor->look.now, text);
    if (governor->recorder && fb_replay_write(&view, &before, &decision, governor->line))
        fb_recorder_line(governor->recorder, governor->line, strlen(governor->line));
}

/* ---- Alarms ---- */

static void gpus_put(struct fb_governor *governor, struct fb_alarm_readings *readings)
{
    struct fb_gpu gpus[FB_GPUS_MAX];
    unsigned count = fb_gpus_read(governor->gpus, gpus);

    for (unsigned i = 0; i < count; i++) {
        if (isnan(gpus[i].memory_used) ||
            (readings->used[FB_ALARM_GPU] != FB_UNKNOWN &&
             (uint64_t)gpus[i].memory_used <= readings->used[FB_ALARM_GPU]))
            continue;
        readings->used[FB_ALARM_GPU] = (uint64_t)gpus[i].memory_used;
        readings->total[FB_ALARM_GPU] = (uint64_t)gpus[i].memory_total;
    }
}

static void raise_alarm(struct fb_governor *governor, const char *text)
{
    char line[256];

    snprintf(line, sizeof(line), "alarm: %s", text);
    fb_warn(&governor->log, "%s", line);
    keep_decision(&governor->look.now, line);
    governor->look.alarms++;
    if (governor->recorder)
        fb_recorder_json(governor->recorder, "alarm", json_pack("{s:s}", "text", text));
    switch (governor->options.config->monitor_alarm_action) {
    case FB_ALARM_COMMAND:
        if (!fb_alarm_run(&governor->alarms, text))
            fb_warn(&governor->log, "alarm: the command '%s' could not be started, or the one "
                    "before still runs", governor->alarms.command[0]);
        break;
    case FB_ALARM_SHRINK:
        governor->alarmed = true;
        break;
    case FB_ALARM_STOP:
        if (!atomic_load(&governor->stop_asked)) {
            snprintf(governor->stop_text, sizeof(governor->stop_text), "%s", text);
            atomic_store(&governor->stop_asked, true);
        }
        break;
    default:
        break;
    }
}

static void watch_alarms(struct fb_governor *governor)
{
    struct fb_alarm_readings readings;
    char text[200];

    fb_alarm_reap(&governor->alarms);
    if (!governor->alarms.any)
        return;
    fb_alarm_readings_host(&readings, &governor->look.host, governor->look.process);
    gpus_put(governor, &readings);
    if (fb_alarm_check(&governor->alarms, &readings, text, sizeof(text)))
        raise_alarm(governor, text);
}

/* ---- The thread ---- */

static void look_around(struct fb_governor *governor, uint64_t now_ns)
{
    bool second = !governor->second_ns || now_ns - governor->second_ns >= SECOND_NS;

    fb_observe(&governor->look, now_ns);
    decide_and_act(governor, now_ns);
    if (second) {
        governor->second_ns = now_ns;
        watch_alarms(governor);
        fb_pipeline_check_slow(governor->options.pipeline);
        if (governor->recorder)
            fb_recorder_json(governor->recorder, "snapshot", fb_snapshot_json(&governor->look.now));
    }
    if (governor->page)
        fb_snapshot_file_write(governor->page, &governor->look.now);
}

/* Until the next look, or somebody asks for something. */
static void wait_for_tick(struct fb_governor *governor, uint64_t next_ns)
{
    struct pollfd fds[1 + FB_CONTROL_FDS];
    uint64_t now = fb_now_ns(), ignored;
    nfds_t count = 1;
    bool asked = false;

    fds[0] = (struct pollfd){ .fd = governor->wake, .events = POLLIN };
    if (governor->control) {
        fb_control_poll(governor->control, fds + 1);
        count += FB_CONTROL_FDS;
    }
    poll(fds, count, next_ns > now ? (int)((next_ns - now + 999999) / 1000000) : 0);
    if (fds[0].revents)
        (void)!read(governor->wake, &ignored, sizeof(ignored));
    for (nfds_t i = 1; i < count; i++) /* a client that says nothing is looked at, too */
        asked = asked || fds[i].revents || (i > 1 && fds[i].fd >= 0);
    if (asked)
        fb_control_serve(governor->control);
}

static void *governor_main(void *argument)
{
    struct fb_governor *governor = argument;
    uint64_t next_ns = fb_now_ns() + TICK_NS;

    while (!atomic_load(&governor->stopping)) {
        uint64_t now;

        wait_for_tick(governor, next_ns);
        now = fb_now_ns();
        if (now < next_ns || atomic_load(&governor->stopping))
            continue;
        look_around(governor, now);
        /* After a long stop (SIGSTOP, a laptop's lid) no look is made up for. */
        next_ns = next_ns + TICK_NS > now ? next_ns + TICK_NS : now + TICK_NS;
    }
    return NULL;
}

/* ---- Start and stop ---- */

static void release(struct fb_governor *governor)
{
    if (governor->recorder)
        fb_recorder_json(governor->recorder, "end", fb_snapshot_json(&governor->look.now));
    fb_alarm_end(&governor->alarms);
    fb_recorder_close(governor->recorder);
    fb_control_close(governor->control);
    fb_snapshot_file_close(governor->page);
    fb_gpus_close(governor->gpus);
    if (governor->wake >= 0)
        close(governor->wake);
    free(governor);
}

/* The page and the socket are for those who look; without them the loader works as well. */
static void publish(struct fb_governor *governor)
{
    forebay_error error;

    if (fb_control_open(&governor->control, governor->options.set, governor->options.data, &error))
        fb_warn(&governor->log, "forebay set cannot reach this loader: %s", error.message);
    else
        snprintf(governor->look.now.socket, sizeof(governor->look.now.socket), "%s",
                 fb_control_name(governor->control));
    fb_observe(&governor->look, fb_now_ns());
    if (fb_snapshot_file_open(&governor->page, &governor->look.now, &error))
        fb_warn(&governor->log, "forebay top cannot see this loader, and its death would leave no "
                "trace: %s", error.message);
}

static int open_asked_for(struct fb_governor *governor, forebay_error *error)
{
    const struct fb_config *config = governor->options.config;
    int status = fb_alarms_read(&governor->alarms, config, error);

    if (!status && config->monitor_log)
        status = fb_recorder_open(&governor->recorder, config->monitor_log, 0, &governor->log,
                                  error);
    if (status)
        return status;
    if (governor->alarms.levels[FB_ALARM_GPU].set) {
        governor->gpus = fb_gpus_open();
        if (!governor->gpus)
            fb_warn(&governor->log, "monitor.alarm.gpu has no effect: NVIDIA's management library "
                    "is not there");
    }
    return FOREBAY_OK;
}

static void observer_begin(struct fb_governor *governor)
{
    const struct fb_governor_options *options = &governor->options;
    struct fb_observed what = { .pipeline = options->pipeline,
                                .cache = options->cache,
                                .source = options->source,
                                .budget = options->budget,
                                .name = options->name,
                                .policy = options->policy,
                                .device = options->device,
                                .ranks = options->ranks,
                                .floor = options->run->plan.floor,
                                .recent = true };

    fb_observer_init(&governor->look, &what);
}

static void fix_from_config(struct fb_governor *governor)
{
    const struct fb_config *config = governor->options.config;

    atomic_store(&governor->fixed[FB_FIXED_CACHE], config->memory_cache.mode != FB_SIZE_AUTO);
    atomic_store(&governor->fixed[FB_FIXED_WORKERS], !config->workers.is_auto);
    atomic_store(&governor->fixed[FB_FIXED_PREFETCH], !config->prefetch.is_auto);
    atomic_store(&governor->fixed[FB_FIXED_CPU], !config->cpu_share.is_auto);
}

int fb_governor_start(struct fb_governor **out, const struct fb_governor_options *options,
                      forebay_error *error)
{
    struct fb_governor *governor = calloc(1, sizeof(*governor));
    int status;

    if (!governor)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the governor");
    governor->options = *options;
    governor->log = *options->log;
    governor->pid = getpid();
    snprintf(governor->name, sizeof(governor->name), "%s", options->name);
    governor->options.name = governor->name;
    governor->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fix_from_config(governor);
    status = governor->wake < 0
                 ? fb_fail_errno(error, FOREBAY_NO_MEMORY, "no descriptor for the governor")
                 : open_asked_for(governor, error);
    if (!status) {
        observer_begin(governor);
        publish(governor);
        if (governor->recorder)
            fb_recorder_json(governor->recorder, "start", fb_snapshot_json(&governor->look.now));
        status = fb_thread_start(&governor->thread, governor_main, governor, "forebay-gov",
                                 FB_THREAD_STACK_BYTES, 0, error);
    }
    if (status)
        release(governor);
    else
        *out = governor;
    return status;
}

void fb_governor_stop(struct fb_governor *governor)
{
    const uint64_t one = 1;

    if (!governor || governor->pid != getpid())
        return;
    atomic_store(&governor->stopping, true);
    (void)!write(governor->wake, &one, sizeof(one));
    pthread_join(governor->thread, NULL);
    release(governor);
}

/* ---- From other threads ---- */

void fb_governor_fix(struct fb_governor *governor, const char *key, bool fixed)
{
    static const char *const keys[FB_FIXED_COUNT] = { "memory.cache", "workers", "prefetch",
                                                      "cpu.share" };

    for (unsigned i = 0; i < FB_FIXED_COUNT; i++)
        if (!strcmp(key, keys[i]))
            atomic_store(&governor->fixed[i], fixed);
}

bool fb_governor_asks_to_stop(struct fb_governor *governor, char text[256])
{
    if (!atomic_load(&governor->stop_asked))
        return false;
    memcpy(text, governor->stop_text, sizeof(governor->stop_text));
    return true;
}
