/* cmd_monitor.c -- `forebay monitor [-- CMD]`: host, a tree of processes and GPUs, seen and kept. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "command.h"
#include "monitor/alarm.h"
#include "monitor/recorder.h"
#include "options.h"
#include "output.h"
#include "prometheus.h"

extern char **environ;

static const char help[] =
    "Samples the host, a tree of processes and the GPUs. Without CMD it shows them until Ctrl-C;\n"
    "with CMD it starts that command, stays quiet, and ends with the command's own exit code. The\n"
    "log has a JSON object a line; 32 MiB of it are kept.\n"
    "\n"
    "Options:\n"
    "  --pid N          watch the tree of processes that begins with N\n"
    "  --every SECONDS  between samples (default 1)\n"
    "  --samples N      end after N samples\n"
    "  --job ID         name of the log: gpu_utilization_ID.log (default $SLURM_JOB_ID)\n"
    "  --log FILE       the log itself; without it, a job or CMD there is none\n"
    "  --listen WHERE   Prometheus metrics over HTTP, at PORT of 127.0.0.1 or at ADDRESS:PORT\n"
    "  --set KEY=VALUE  monitor.alarm.*: process, system, swap, gpu (40GiB or 90%), action (log,\n"
    "                   command, stop: ends CMD with SIGTERM), command\n"
    "  --json           at the end one JSON object: the last sample, peaks and alarms\n"
    "  -- CMD...        the command and its arguments, whatever they look like\n"
    "\n"
    "GPUs are asked through NVIDIA's management library; without it they are n/a.\n"
    "Exit code: CMD's, 128 + signal if it was killed; else 0 done, 1 failed, 2 bad use.\n"
    "\n"
    "Examples:\n"
    "  forebay monitor\n"
    "  forebay monitor --job 52098 -- python train.py\n"
    "  forebay monitor --pid 4711 --set monitor.alarm.system=90% --listen 9090\n";

#define SECOND_NS ((uint64_t)1000000000)
#define FIRST_NS (SECOND_NS / 5) /* the first sample is of this long; none is made up for later */

struct monitor {
    uint64_t pid, every, samples;
    const char *job, *log, *listen;
    struct texts settings;
    bool json;
    char **command; /* NULL: none */

    struct fb_config config;
    struct fb_alarms alarms;
    struct fb_sampler *sampler;
    struct fb_recorder *recorder;
    struct prometheus *prometheus;
    struct fb_sample sample;
    pid_t child;
    int status;        /* of the child, when it has ended */
    uint64_t taken, alarm_count, peak_resident, peak_used;
    char alarm[200]; /* the last one, and when it went off */
    time_t alarm_at;
};

/* ---- What is seen ---- */

static const char *text_of(double value, const char *unit, double scale, char text[32])
{
    if (isnan(value))
        snprintf(text, 32, "n/a");
    else
        snprintf(text, 32, "%.1f%s", value * scale, unit);
    return text;
}

static double known(uint64_t value)
{
    return value == FB_UNKNOWN ? (double)NAN : (double)value;
}

/* Guide 001's view, in its order and words. */
static void view_memory(const struct fb_sample *sample)
{
    const double gib = 1.0 / (double)FB_GIB;
    double total = known(sample->memory.total_bytes), left = known(sample->memory.available_bytes);
    char a[32], b[32], c[32], d[32], e[32], f[32], g[32];

    printf("=== CPU Memory ===\n"
           "Mem:  total %s, used %s, available %s\n"
           "Swap: total %s, used %s\n",
           text_of(total, "GB", gib, a), text_of(total - left, "GB", gib, b),
           text_of(left, "GB", gib, c), text_of(known(sample->memory.swap_total_bytes), "GB", gib,
                                                d),
           text_of(known(sample->memory.swap_used_bytes), "GB", gib, e));
    if (sample->memory.cgroup_limit_bytes != FB_UNKNOWN)
        printf("Cgroup: limit %s, used %s\n",
               text_of(known(sample->memory.cgroup_limit_bytes), "GB", gib, a),
               text_of(known(sample->memory.cgroup_used_bytes), "GB", gib, b));
    printf("CPU:  %s busy, I/O wait %s; disk reads %s, writes %s\n",
           text_of(sample->cpu_all, "%", 1, a), text_of(sample->io_wait, "%", 1, b),
           text_of(sample->disk_read, " MB/s", 1e-6, f),
           text_of(sample->disk_write, " MB/s", 1e-6, g));
}

static void view_gpus(const struct fb_sample *sample)
{
    const double mib = 1.0 / (double)FB_MIB;
    char a[32], b[32], c[32], d[32], e[32];

    printf("\n=== GPU Memory ===\n");
    if (!sample->gpu_count)
        printf("n/a\n");
    for (unsigned i = 0; i < sample->gpu_count; i++) {
        const struct fb_gpu *gpu = &sample->gpus[i];

        printf("%s, %s, %s, %s, %s  %s\n", text_of(gpu->memory_used, " MiB", mib, a),
               text_of(gpu->memory_total, " MiB", mib, b), text_of(gpu->utilisation, " %", 1, c),
               text_of(gpu->power, " W", 1, d), text_of(gpu->temperature, " C", 1, e), gpu->name);
    }
}

static void view_tree(const struct fb_sample *sample)
{
    char a[32], b[32], c[32];

    if (!sample->processes)
        return;
    printf("\n=== Processes ===\n%u in all, resident %s, private %s, shared %s\n",
           sample->processes, text_of(known(sample->resident), "MB", 1.0 / (double)FB_MIB, a),
           text_of(known(sample->private_bytes), "MB", 1.0 / (double)FB_MIB, b),
           text_of(known(sample->shared_bytes), "MB", 1.0 / (double)FB_MIB, c));
    for (unsigned i = 0; i < FB_SAMPLER_SHOWN && sample->largest[i].pid; i++)
        printf("%" PRIu64 " %.1f%% %s\n", sample->largest[i].pid,
               100 * (double)sample->largest[i].resident / known(sample->memory.total_bytes),
               sample->largest[i].command);
}

/* Is the terminal drawn anew with each sample? */
static bool is_drawn(const struct monitor *monitor)
{
    return !monitor->command && !monitor->json && isatty(STDOUT_FILENO);
}

static void view_alarm(const struct monitor *monitor)
{
    char when[16] = "";
    struct tm local;

    if (!monitor->alarm_count)
        return;
    if (localtime_r(&monitor->alarm_at, &local))
        strftime(when, sizeof(when), "%H:%M:%S", &local);
    printf("\n=== Alarms ===\n%" PRIu64 " so far, the last at %s\nwarning: alarm: %s\n",
           monitor->alarm_count, when, monitor->alarm);
}

static void view(const struct monitor *monitor)
{
    if (monitor->command || monitor->json)
        return;
    if (is_drawn(monitor))
        fputs("\033[H\033[J", stdout);
    view_memory(&monitor->sample);
    view_gpus(&monitor->sample);
    view_tree(&monitor->sample);
    if (is_drawn(monitor))
        view_alarm(monitor);
    putchar('\n');
    fflush(stdout);
}

/* ---- Alarms ---- */

static void raise_alarm(struct monitor *monitor, const char *text)
{
    monitor->alarm_count++;
    snprintf(monitor->alarm, sizeof(monitor->alarm), "%s", text);
    monitor->alarm_at = time(NULL);
    if (!is_drawn(monitor)) /* else the screen shows it, and the next drawing too */
        fprintf(stderr, "warning: alarm: %s\n", text);
    if (monitor->recorder)
        fb_recorder_json(monitor->recorder, "alarm", json_pack("{s:s}", "text", text));
    if (monitor->config.monitor_alarm_action == FB_ALARM_COMMAND &&
        !fb_alarm_run(&monitor->alarms, text))
        fprintf(stderr, "forebay monitor: the alarm's command could not be started\n");
    if (monitor->config.monitor_alarm_action == FB_ALARM_STOP && monitor->child)
        kill(monitor->child, SIGTERM);
}

static void watch_alarms(struct monitor *monitor)
{
    const struct fb_sample *sample = &monitor->sample;
    struct fb_alarm_readings readings;
    char text[200];

    fb_alarm_readings_host(&readings, &sample->memory, sample->resident);
    for (unsigned i = 0; i < sample->gpu_count; i++)
        if (!isnan(sample->gpus[i].memory_used) &&
            (readings.used[FB_ALARM_GPU] == FB_UNKNOWN ||
             sample->gpus[i].memory_used > (double)readings.used[FB_ALARM_GPU])) {
            readings.used[FB_ALARM_GPU] = (uint64_t)sample->gpus[i].memory_used;
            readings.total[FB_ALARM_GPU] = (uint64_t)sample->gpus[i].memory_total;
        }
    fb_alarm_reap(&monitor->alarms);
    while (fb_alarm_check(&monitor->alarms, &readings, text, sizeof(text)))
        raise_alarm(monitor, text);
}

/* ---- The child ---- */

static int child_start(struct monitor *monitor, forebay_error *error)
{
    posix_spawnattr_t attributes;
    sigset_t none, fatal;
    int number;

    sigemptyset(&none);
    sigemptyset(&fatal);
    sigaddset(&fatal, SIGXFSZ); /* ignored here, but not by the command */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &fatal);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    number = posix_spawnp(&monitor->child, monitor->command[0], NULL, &attributes,
                          monitor->command, environ);
    posix_spawnattr_destroy(&attributes);
    errno = number;
    return number ? fb_fail_errno(error, FOREBAY_MISSING, "cannot start '%s'", monitor->command[0])
                  : FOREBAY_OK;
}

/* Wait for the next sample, a signal or the child's end: 0 to go on, else the signal. */
static int wait_next(struct monitor *monitor, const sigset_t *signals, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = fb_now_ns(), left = until_ns > now ? until_ns - now : 0;
        struct timespec wait;
        int number;

        prometheus_tick(monitor->prometheus);
        left = fb_min(left, SECOND_NS);
        wait = (struct timespec){ (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
        number = sigtimedwait(signals, NULL, &wait);
        if (monitor->child && waitpid(monitor->child, &monitor->status, WNOHANG) > 0) {
            monitor->child = 0;
            return SIGCHLD;
        }
        if (number < 0 && errno == EAGAIN && fb_now_ns() >= until_ns)
            return 0;
        if ((number == SIGINT || number == SIGTERM || number == SIGHUP) && monitor->child)
            kill(monitor->child, number); /* it decides; we end with it */
        else if (number == SIGINT || number == SIGTERM || number == SIGHUP)
            return number;
    }
}

/* ---- The run ---- */

static void take(struct monitor *monitor)
{
    struct fb_sample *sample = &monitor->sample;

    fb_sampler_take(monitor->sampler, sample);
    monitor->taken++;
    if (sample->resident != FB_UNKNOWN)
        monitor->peak_resident = fb_max(monitor->peak_resident, sample->resident);
    if (sample->memory.total_bytes != FB_UNKNOWN && sample->memory.available_bytes != FB_UNKNOWN)
        monitor->peak_used = fb_max(monitor->peak_used, sample->memory.total_bytes -
                                                            sample->memory.available_bytes);
    if (monitor->recorder)
        fb_recorder_json(monitor->recorder, "host", fb_sample_json(sample));
    prometheus_tell(monitor->prometheus, sample);
    watch_alarms(monitor);
    view(monitor);
}

static int watch(struct monitor *monitor, forebay_error *error)
{
    sigset_t signals;
    uint64_t next;
    int number = 0, status;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    status = monitor->command ? child_start(monitor, error) : FOREBAY_OK;
    if (status)
        return status;
    fb_sampler_watch(monitor->sampler, monitor->child ? monitor->child : (pid_t)monitor->pid);
    next = fb_now_ns();
    if (!monitor->command) { /* rates need something to count from */
        fb_sampler_take(monitor->sampler, &monitor->sample);
        next += FIRST_NS;
        number = wait_next(monitor, &signals, next);
    }
    while (!number) {
        take(monitor);
        if (!monitor->command && monitor->taken == monitor->samples)
            break;
        next = fb_max(next, fb_now_ns() - FIRST_NS) + monitor->every * SECOND_NS;
        number = wait_next(monitor, &signals, next);
    }
    return FOREBAY_OK;
}

static int result_tell(const struct monitor *monitor)
{
    if (!monitor->json)
        return EXIT_DONE;
    return output_json(json_pack("{s:I, s:I, s:o, s:I, s:o}", "samples",
                                 (json_int_t)monitor->taken, "alarms",
                                 (json_int_t)monitor->alarm_count, "peak_resident_bytes",
                                 monitor->peak_resident
                                     ? json_integer((json_int_t)monitor->peak_resident)
                                     : json_null(),
                                 "peak_used_bytes", (json_int_t)monitor->peak_used, "last",
                                 fb_sample_json(&monitor->sample)));
}

/* gpu_utilization_<JOB>.log; none where neither a log nor a job nor a command is named. */
static bool log_path(const struct monitor *monitor, char path[PATH_MAX])
{
    const char *job = monitor->job ? monitor->job : getenv("SLURM_JOB_ID");

    if (monitor->log)
        snprintf(path, PATH_MAX, "%s", monitor->log);
    else if (job && job[0])
        snprintf(path, PATH_MAX, "gpu_utilization_%.200s.log", job);
    else if (monitor->command)
        snprintf(path, PATH_MAX, "gpu_utilization_%d.log", (int)getpid());
    else
        return false;
    return true;
}

static int config_use(struct monitor *monitor, forebay_error *error)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    int status;

    for (size_t i = 0; i < monitor->settings.count; i++)
        if (strncmp(monitor->settings.values[i], "monitor.alarm.", 14) != 0)
            return fb_fail(error, FOREBAY_BAD_USE, "--set %s: only monitor.alarm.* is read here",
                           monitor->settings.values[i]);
    options.settings = monitor->settings.values;
    options.setting_count = monitor->settings.count;
    status = fb_config_read(&monitor->config, &options, NULL, error);
    if (!status)
        status = fb_alarms_read(&monitor->alarms, &monitor->config, error);
    if (!status && monitor->config.monitor_alarm_action == FB_ALARM_SHRINK)
        status = fb_fail(error, FOREBAY_BAD_USE, "monitor.alarm.action: shrink is for a loader's "
                         "own configuration");
    return status;
}

static int monitor_all(struct monitor *monitor, forebay_error *error)
{
    char path[PATH_MAX];
    int status = config_use(monitor, error);

    if (!status && monitor->pid && !fb_host_process_start((pid_t)monitor->pid))
        status = fb_fail(error, FOREBAY_MISSING, "there is no process %" PRIu64, monitor->pid);
    if (!status && log_path(monitor, path))
        status = fb_recorder_open(&monitor->recorder, path, 0, NULL, error);
    if (!status && monitor->listen)
        status = prometheus_start(&monitor->prometheus, monitor->listen, error);
    if (!status)
        status = fb_sampler_open(&monitor->sampler, 0, error);
    if (!status)
        status = watch(monitor, error);
    fb_alarm_end(&monitor->alarms);
    if (!status)
        status = fb_recorder_status(monitor->recorder, error);
    prometheus_stop(monitor->prometheus);
    fb_sampler_close(monitor->sampler);
    fb_recorder_close(monitor->recorder);
    if (monitor->config.places)
        fb_config_release(&monitor->config);
    return status;
}

/* What stands behind "--" is the command, whatever it looks like. */
static int command_cut(int argc, char **argv, char ***command)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            *command = i + 1 < argc ? argv + i + 1 : NULL;
            return i;
        }
    return argc;
}

static int run(int argc, char **argv)
{
    static struct monitor monitor;
    struct texts logs = { 0 }, jobs = { 0 }, listens = { 0 };
    const struct option table[] = {
        { "--pid", OPTION_COUNT, &monitor.pid, false },
        { "--every", OPTION_COUNT, &monitor.every, false },
        { "--samples", OPTION_COUNT, &monitor.samples, false },
        { "--job", OPTION_TEXTS, &jobs, false },
        { "--log", OPTION_TEXTS, &logs, false },
        { "--listen", OPTION_TEXTS, &listens, false },
        { "--set", OPTION_TEXTS, &monitor.settings, false },
        { "--json", OPTION_FLAG, &monitor.json, false },
    };
    forebay_error error;
    int status, code = EXIT_DONE;

    monitor = (struct monitor){ .every = 1, .json = options_has(argc, argv, "--json") };
    argc = command_cut(argc, argv, &monitor.command);
    status = options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error);
    if (!status) {
        monitor.job = jobs.count ? jobs.values[jobs.count - 1] : NULL;
        monitor.log = logs.count ? logs.values[logs.count - 1] : NULL;
        monitor.listen = listens.count ? listens.values[listens.count - 1] : NULL;
        status = monitor_all(&monitor, &error);
    }
    if (status == FOREBAY_BAD_USE)
        code = output_bad_use("monitor", monitor.json, &error);
    else if (status)
        code = output_failure("monitor", monitor.json, &error);
    else
        code = result_tell(&monitor);
    free(jobs.values);
    free(logs.values);
    free(listens.values);
    free(monitor.settings.values);
    if (status || !monitor.command)
        return code;
    return WIFEXITED(monitor.status) ? WEXITSTATUS(monitor.status)
                                     : EXIT_SIGNAL + WTERMSIG(monitor.status);
}

const struct command command_monitor = {
    .name = "monitor",
    .usage = "[--pid N] [--every SECONDS] [--samples N] [--job ID] [--log FILE] [--listen WHERE] "
             "[--set KEY=VALUE]... [--json] [-- CMD...]",
    .summary = "sample host, processes and GPU to a log; alarms",
    .help = help,
    .run = run,
};
