/* alarm.c -- thresholds of memory, and the command that an alarm starts. */
#include "monitor/alarm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"

#define COMMAND_NS ((uint64_t)60 * 1000000000) /* a command that takes longer is killed */
#define END_NS ((uint64_t)1000000000)          /* what is left to it when the run ends */
#define CALM 0.95 /* of its threshold: an alarm may go off again */

extern char **environ;

static const char *const names[FB_ALARM_COUNT] = {
#define FB_X(name, text, help) text,
    FB_ALARM_MAP(FB_X)
#undef FB_X
};
static const char *const helps[FB_ALARM_COUNT] = {
#define FB_X(name, text, help) help,
    FB_ALARM_MAP(FB_X)
#undef FB_X
};

bool fb_alarm_parse(const char *text, bool *percent, double *value)
{
    uint64_t bytes;
    char *end;

    *value = strtod(text, &end);
    *percent = end > text && !strcmp(end, "%");
    if (*percent)
        return *value > 0 && *value <= 100;
    if (end > text && !*end) /* 40: of percent, or of bytes? */
        return false;
    if (!fb_size_parse(text, &bytes) || !bytes)
        return false;
    *value = (double)bytes;
    return true;
}

int fb_alarms_read(struct fb_alarms *alarms, const struct fb_config *config, forebay_error *error)
{
    const char *texts[FB_ALARM_COUNT] = { config->monitor_alarm_process,
                                          config->monitor_alarm_system,
                                          config->monitor_alarm_swap, config->monitor_alarm_gpu };
    char key[64];

    *alarms = (struct fb_alarms){ .any = false };
    for (unsigned i = 0; i < FB_ALARM_COUNT; i++) {
        if (!texts[i] || !strcasecmp(texts[i], "off"))
            continue;
        if (!fb_alarm_parse(texts[i], &alarms->levels[i].percent, &alarms->levels[i].value)) {
            snprintf(key, sizeof(key), "monitor.alarm.%s", names[i]);
            fb_fail(error, FOREBAY_BAD_CONFIG,
                    "%s: '%.64s' is neither a size such as 40GiB nor a share such as 90%%; a number "
                    "needs a unit", key, texts[i]);
            fb_config_place(config, key, error);
            return FOREBAY_BAD_CONFIG;
        }
        alarms->levels[i].set = alarms->any = true;
    }
    if (config->monitor_alarm_command.count > FB_ALARM_WORDS) {
        fb_fail(error, FOREBAY_BAD_CONFIG, "monitor.alarm.command: at most %d words",
                FB_ALARM_WORDS);
        fb_config_place(config, "monitor.alarm.command", error);
        return FOREBAY_BAD_CONFIG;
    }
    for (size_t i = 0; i < config->monitor_alarm_command.count; i++)
        alarms->command[i] = config->monitor_alarm_command.values[i];
    if (config->monitor_alarm_action != FB_ALARM_COMMAND || alarms->command[0])
        return FOREBAY_OK;
    fb_fail(error, FOREBAY_BAD_CONFIG, "monitor.alarm.action: command needs monitor.alarm.command, "
            "a list such as [mail, -s, memory, me]");
    fb_config_place(config, "monitor.alarm.action", error);
    return FOREBAY_BAD_CONFIG;
}

void fb_alarm_readings_host(struct fb_alarm_readings *readings, const struct fb_host_memory *host,
                            uint64_t resident)
{
    for (unsigned i = 0; i < FB_ALARM_COUNT; i++)
        readings->used[i] = readings->total[i] = FB_UNKNOWN;
    readings->used[FB_ALARM_PROCESS] = resident;
    readings->total[FB_ALARM_PROCESS] = host->total_bytes;
    readings->total[FB_ALARM_SYSTEM] = host->total_bytes;
    if (host->total_bytes != FB_UNKNOWN && host->available_bytes <= host->total_bytes)
        readings->used[FB_ALARM_SYSTEM] = host->total_bytes - host->available_bytes;
    readings->used[FB_ALARM_SWAP] = host->swap_used_bytes;
    readings->total[FB_ALARM_SWAP] = host->swap_total_bytes;
}

bool fb_alarm_check(struct fb_alarms *alarms, const struct fb_alarm_readings *readings, char *text,
                    size_t size)
{
    bool went_off = false;

    for (unsigned i = 0; i < FB_ALARM_COUNT; i++) {
        double used = (double)readings->used[i], level = alarms->levels[i].value;
        char now[32], most[32];

        if (!alarms->levels[i].set || readings->used[i] == FB_UNKNOWN)
            continue;
        if (alarms->levels[i].percent) {
            if (readings->total[i] == FB_UNKNOWN)
                continue;
            level *= (double)readings->total[i] / 100;
        }
        if (used < level * CALM || level == 0)
            alarms->levels[i].on = false;
        if (used < level || level == 0 || alarms->levels[i].on || went_off)
            continue;
        alarms->levels[i].on = went_off = true;
        snprintf(text, size, "%s, %s, exceeds %s", helps[i],
                 fb_size_text(readings->used[i], now), fb_size_text((uint64_t)level, most));
    }
    return went_off;
}

/* The environment with one variable more. The caller frees the array. */
static char **environment_with(char *variable)
{
    size_t count = 0;
    char **all;

    while (environ && environ[count])
        count++;
    all = calloc(count + 2, sizeof(*all));
    if (!all)
        return NULL;
    for (size_t i = 0; i < count; i++)
        all[i] = environ[i];
    all[count] = variable;
    return all;
}

bool fb_alarm_run(struct fb_alarms *alarms, const char *text)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    char variable[320], **all;
    sigset_t none, fatal;
    pid_t child;
    int number;

    fb_alarm_reap(alarms);
    if (!alarms->command[0] || alarms->child)
        return false;
    snprintf(variable, sizeof(variable), "FOREBAY_ALARM=%s", text);
    all = environment_with(variable);
    if (!all)
        return false;
    sigemptyset(&none); /* our threads block all signals; the command's are its own */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigemptyset(&fatal);
    sigaddset(&fatal, SIGXFSZ); /* the program ignores it; the command should not */
    posix_spawnattr_setsigdefault(&attributes, &fatal);
    posix_spawnattr_setpgroup(&attributes, 0); /* so that its children end with it */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    /* stdout is for results: what the command prints goes to stderr. */
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    number = posix_spawnp(&child, alarms->command[0], &files, &attributes, alarms->command, all);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    free(all);
    if (!number) {
        alarms->child = (int)child;
        alarms->started_ns = fb_now_ns();
    }
    errno = number;
    return !number;
}

void fb_alarm_reap(struct fb_alarms *alarms)
{
    int status;

    if (alarms->child && fb_now_ns() - alarms->started_ns > COMMAND_NS)
        kill(-(pid_t)alarms->child, SIGKILL);
    if (alarms->child && waitpid((pid_t)alarms->child, &status, WNOHANG) != 0)
        alarms->child = 0;
}

void fb_alarm_end(struct fb_alarms *alarms)
{
    uint64_t until = fb_now_ns() + END_NS;
    const struct timespec pause = { .tv_nsec = 10000000 };
    int status;

    for (fb_alarm_reap(alarms); alarms->child && fb_now_ns() < until; fb_alarm_reap(alarms))
        nanosleep(&pause, NULL);
    if (!alarms->child)
        return;
    kill(-(pid_t)alarms->child, SIGKILL);
    (void)waitpid((pid_t)alarms->child, &status, 0);
    alarms->child = 0;
}
