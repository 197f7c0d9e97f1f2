/* cmd_run.c -- `forebay run`: stream epochs, consume every batch, tell what happened. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "command.h"
#include "config/config.h"
#include "config_json.h"
#include "consume.h"
#include "memory_line.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "settings.h"
#include "state_file.h"
#include "statistics.h"
#include "stop.h"

#define POLL_NS 100000000u /* how often a wait looks for Ctrl-C and redraws */
#define SECOND_NS 1000000000u
#define EPOCHS_SHOWN 20 /* bars of finished epochs that stay on the screen */

static const char help[] =
    "Streams epochs of a data set the way a training would see them, within the memory budget,\n"
    "and reports speed, waiting, memory and the cache. Every batch is read (first, last and every\n"
    "4096th byte of each sample), so nothing that was not delivered is counted.\n"
    "\n"
    "Without CONFIG and without --set source.* it runs the built-in quickstart: 256 LiDAR-like\n"
    "scans of 1 MB, generated once in the user's cache folder, 3 epochs in batches of 16 under a\n"
    "budget of 256 MiB.\n"
    "\n"
    "Options:\n"
    "  --set KEY=VALUE  over the configuration; may be given many times. Without CONFIG a\n"
    "                   configuration of its own, over the defaults\n"
    "  --epochs N       epochs to stream (default 1, or the configuration's; quickstart 3)\n"
    "  --steps N        stop after N batches; without --epochs it goes through as many epochs as\n"
    "                   that takes\n"
    "  --save-state FILE  write where the run is when it ends or is stopped (SIGINT, SIGTERM,\n"
    "                   SIGUSR1), as JSON\n"
    "  --resume FILE    go on exactly after such a state, under any budget and number of workers;\n"
    "                   --epochs counts from the first epoch of all. Several ranks: give all their\n"
    "                   states, or one if the ranks were in step\n"
    "  --json           print the result as one JSON object on stdout\n"
    "  --help-config    every key of the configuration, its default and what it does\n"
    "                   (with --markdown as a page, with --json as an object)\n"
    "\n"
    "On stderr: a progress bar (on a terminal), a memory line at the start, after opening and every\n"
    "monitor.every steps (100; 0: none) with the speed beside it, what the governor changes and\n"
    "why, at the end of each epoch the cache's statistics. Ctrl-C ends with the summary (exit 130).\n"
    "\n"
    "Exit code: 0 done, 1 failed, 2 bad use, 128 + signal if stopped by one.\n"
    "\n"
    "Examples:\n"
    "  forebay run\n"
    "  forebay run train.yaml --epochs 9 --save-state s.json     # later: --resume s.json\n"
    "  forebay run train.yaml --epochs 3 --set memory.budget=8GiB --set workers=4\n"
    "  forebay run --set source.kind=bin --set 'source.path=scans/*.bin' --set batch.size=16\n"
    "  forebay run train.yaml --steps 500 --json > result.json\n"
    "\n"
    "A configuration:\n"
    "  source: {kind: npy, path: \"data/*.npy\"}\n"
    "  batch:  {size: 32}\n"
    "  memory: {budget: 8GiB}\n";

struct run {
    const char *config_file;
    struct texts settings; /* the user's */
    struct texts resume, save_state; /* files */
    uint64_t epochs, steps; /* 0: not given */
    bool json, help_config, markdown, quickstart;

    /* From the configuration: */
    uint64_t monitor_every;
    bool opened_said;
    double warn;
    char name[64];

    struct progress progress;
    struct memory_seen seen;
    forebay_loader *loader;
    uint64_t epoch, step; /* epochs ended, batches taken */
    uint64_t checksum;

    /* For the bar: */
    uint64_t epoch_samples, bytes, samples;
    uint64_t drawn_ns, drawn_bytes, drawn_samples;
    uint64_t epoch_ns, epoch_bytes; /* when the epoch began, and `bytes` then */
    uint64_t ask_again_ns;          /* when statistics may be read again */
    uint64_t cache_said_ns;
    uint64_t waited_ns;             /* in forebay_next */
    /* When the last speed line came, and `samples` and `waited_ns` then: */
    uint64_t lines_ns;
    uint64_t said_ns, said_samples, said_waited_ns;
    char memory[96];
};

/* ---- The bar ---- */

/* Memory and hit rate come from the loader's statistics, which may take a while to gather: they
 * are asked for so seldom that it costs at most a hundredth of the time. */
static void memory_ask(struct run *run, uint64_t now)
{
    json_t *statistics;
    char a[32], b[32], hits[32] = "";
    double used, rate;

    if (now < run->ask_again_ns)
        return;
    statistics = statistics_read(run->loader);
    used = statistics_number(statistics, "memory.used_bytes");
    rate = statistics_number(statistics, "cache.hit_rate");
    if (isnan(used))
        used = statistics_number(statistics, "memory.peak_bytes");
    if (statistics_number(statistics, "cache.limit_bytes") > 0 && !isnan(rate))
        snprintf(hits, sizeof(hits), ", %.0f%% hits", 100 * rate);
    if (!isnan(used))
        snprintf(run->memory, sizeof(run->memory), ", memory %s/%s%s",
                 fb_size_text((uint64_t)used, a),
                 fb_size_text((uint64_t)statistics_number(statistics, "memory.budget_bytes"), b),
                 hits);
    json_decref(statistics);
    run->ask_again_ns = now + fb_max(POLL_NS, 100 * (fb_now_ns() - now));
}

typedef void (*draw_fn)(struct progress *progress, const char *left, uint64_t done, uint64_t total,
                        const char *right);

/* `samples` and `bytes` came since `since_ns`. */
static void bar_put(struct run *run, draw_fn draw, uint64_t samples, uint64_t bytes,
                    uint64_t since_ns)
{
    double seconds = (double)(fb_now_ns() - since_ns + 1) / 1e9;
    char left[64], right[256];

    if (run->epochs)
        snprintf(left, sizeof(left), "epoch %" PRIu64 "/%" PRIu64, run->epoch + 1, run->epochs);
    else
        snprintf(left, sizeof(left), "step %" PRIu64 "/%" PRIu64, run->step, run->steps);
    snprintf(right, sizeof(right), "%.0f samples/s, %.0f MB/s%s", (double)samples / seconds,
             (double)bytes / seconds / 1e6, run->memory);
    if (run->epochs)
        draw(&run->progress, left, run->epoch_samples, forebay_epoch_samples(run->loader), right);
    else
        draw(&run->progress, left, run->step, run->steps, right);
}

static void bar_draw(struct run *run)
{
    uint64_t now = fb_now_ns();

    if (!progress_due(&run->progress))
        return;
    memory_ask(run, now);
    bar_put(run, progress_draw, run->samples - run->drawn_samples, run->bytes - run->drawn_bytes,
            run->drawn_ns);
    run->drawn_ns = now;
    run->drawn_bytes = run->bytes;
    run->drawn_samples = run->samples;
}

/* ---- Streaming ---- */

/* Beside the memory line: how fast since the last one, and how much of that was waiting. */
static void speed_line(struct run *run, const char *where)
{
    uint64_t now = fb_now_ns();
    double seconds = (double)(now - run->said_ns) / 1e9;
    double waited = (double)(run->waited_ns - run->said_waited_ns) / 1e9;

    progress_say(&run->progress, "[%s] Speed - %.1f samples/s, waiting for data %.1f%% of the time",
                 where, (double)(run->samples - run->said_samples) / seconds,
                 100 * waited / seconds);
    run->said_ns = now;
    run->said_samples = run->samples;
    run->said_waited_ns = run->waited_ns;
}

/* On a terminal at most once in two seconds; a file or a pipe gets them all. */
static bool lines_due(struct run *run)
{
    uint64_t now = fb_now_ns();

    if (run->progress.terminal && run->lines_ns && now - run->lines_ns < 2 * SECOND_NS)
        return false;
    run->lines_ns = now;
    return true;
}

static int batch_use(struct run *run, const forebay_batch *batch, forebay_error *error)
{
    int status = consume_batch(&run->checksum, batch, error);

    if (status)
        return status;
    run->step++;
    run->samples += batch->samples;
    run->epoch_samples += batch->samples;
    run->bytes += batch->bytes;
    if (run->monitor_every && run->step % run->monitor_every == 0 && lines_due(run)) {
        char where[48];

        snprintf(where, sizeof(where), "Step %" PRIu64, run->step);
        memory_line(&run->progress, &run->seen, where, run->warn, run->loader);
        speed_line(run, where);
    }
    return FOREBAY_OK;
}

/* Epochs of a moment would flood the screen: of those only some are told. */
static void epoch_end(struct run *run)
{
    uint64_t now = fb_now_ns();
    bool last = run->epochs && run->epoch + 1 >= run->epochs;
    json_t *statistics;

    memory_ask(run, now);
    if (run->epochs && (run->epochs <= EPOCHS_SHOWN || progress_due(&run->progress)))
        bar_put(run, progress_keep, run->epoch_samples, run->bytes - run->epoch_bytes,
                run->epoch_ns);
    run->epoch++;
    run->epoch_samples = 0;
    run->epoch_bytes = run->bytes;
    run->epoch_ns = now;
    if (!last && now < run->cache_said_ns + SECOND_NS)
        return;
    run->cache_said_ns = now;
    statistics = statistics_read(run->loader);
    statistics_say_cache(&run->progress, statistics, run->name);
    json_decref(statistics);
}

static bool is_over(const struct run *run)
{
    return stop_asked() || (run->epochs && run->epoch >= run->epochs) ||
           (run->steps && run->step >= run->steps);
}

/* The guide's line after opening. It asks the host, which takes a processor from the first batch: so
 * it comes when that is there. */
static void say_opened(struct run *run)
{
    if (!run->monitor_every || run->opened_said)
        return;
    run->opened_said = true;
    run->seen.again_ns = 0;
    memory_line(&run->progress, &run->seen, "After dataset creation", run->warn, run->loader);
}

static int stream(struct run *run, forebay_error *error)
{
    run->drawn_ns = run->epoch_ns = run->said_ns = fb_now_ns();
    while (!is_over(run)) {
        uint64_t samples = run->samples, began = fb_now_ns();
        forebay_batch *batch;
        int status = forebay_next_within(&batch, run->loader, POLL_NS, error);

        run->waited_ns += fb_now_ns() - began;
        say_opened(run);
        if (status == FOREBAY_OK) {
            status = batch_use(run, batch, error);
            forebay_batch_release(batch);
            if (status)
                return status;
        } else if (status == FOREBAY_END) {
            /* With --steps alone an epoch without a batch would be followed by others, for ever. */
            if (!run->epoch_samples && samples == run->samples && !run->epochs)
                return FOREBAY_OK;
            epoch_end(run);
        } else if (status != FOREBAY_TIMEOUT) {
            return status;
        }
        bar_draw(run);
    }
    return FOREBAY_OK;
}

/* ---- The result ---- */

static int result_tell(struct run *run)
{
    json_t *statistics = statistics_read(run->loader);
    char checksum[24];

    snprintf(checksum, sizeof(checksum), "%016" PRIx64, run->checksum);
    if (run->json) {
        if (statistics)
            json_object_set_new(statistics, "checksum", json_string(checksum));
        if (statistics && stop_asked())
            json_object_set_new(statistics, "stopped", json_true());
        return output_json(statistics);
    }
    if (stop_asked())
        printf("Stopped. ");
    statistics_print(statistics, checksum);
    json_decref(statistics);
    if (run->quickstart && !stop_asked())
        printf("\nThis was the built-in quickstart. Your own data:\n"
               "  forebay run --set source.kind=npy --set 'source.path=data/*.npy' "
               "--set memory.budget=2GiB\n"
               "  forebay run --help-config     every setting\n");
    return EXIT_DONE;
}

/* ---- Set-up ---- */

/* What the command itself needs of the configuration. */
static void config_use(struct run *run, const struct fb_config *config)
{
    run->monitor_every = config->monitor_every.value;
    run->warn = config->monitor_warn.value / (config->monitor_warn.is_percent ? 100 : 1);
    snprintf(run->name, sizeof(run->name), "%s", config->name ? config->name : "forebay");
    if (!run->epochs && !run->steps && fb_config_is_set(config, "epochs"))
        run->epochs = config->epochs.value;
    if (!run->epochs && !run->steps)
        run->epochs = run->quickstart ? 3 : 1;
}

static int loader_open(struct run *run, struct settings *all, const struct fb_log *log,
                       forebay_error *error)
{
    char epochs[48];
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_config config;
    int status;

    options.config_file = run->config_file;
    options.settings = all->values;
    options.setting_count = all->count;
    options.log = log->log;
    options.progress = log->progress;
    options.data = log->data;
    status = fb_config_read(&config, &options, NULL, error);
    if (status)
        return status;
    config_use(run, &config);
    fb_config_release(&config);
    if (run->epochs) {
        snprintf(epochs, sizeof(epochs), "epochs=%" PRIu64, run->epochs);
        all->values[options.setting_count++] = epochs;
    }
    if (run->monitor_every)
        memory_line(&run->progress, &run->seen, "Start", run->warn, NULL);
    status = forebay_open(&run->loader, &options, error);
    return status;
}

static int resume(struct run *run, forebay_error *error)
{
    int status;

    if (!run->resume.count)
        return FOREBAY_OK;
    status = state_file_load(run->loader, &run->resume, &run->epoch, error);
    if (!status && run->epochs && run->epoch >= run->epochs)
        progress_say(&run->progress, "--resume: the state is at the end of epoch %" PRIu64
                     ", and --epochs is %" PRIu64 ": nothing is left to do", run->epoch,
                     run->epochs);
    return status;
}

/* A run that failed is saved, too: it goes on after the last batch that was good. */
static int run_saved(struct run *run, forebay_error *error)
{
    const struct texts *files = &run->save_state;
    int status = resume(run, error), saved;
    forebay_error saving;

    if (status) /* what is in the file is worth more than the beginning */
        return status;
    status = stream(run, error);
    if (!files->count)
        return status;
    saved = state_file_save(run->loader, files->values[files->count - 1], &saving);
    if (!saved)
        progress_say(&run->progress, "state saved in '%s'", files->values[files->count - 1]);
    if (saved && !status)
        *error = saving;
    return status ? status : saved;
}

static int run_all(struct run *run)
{
    struct fb_log log = { progress_log, progress_long_work, &run->progress };
    struct settings all;
    forebay_error error;
    int code = EXIT_DONE, status;

    progress_init(&run->progress);
    stop_catch();
    if (run->save_state.count)
        stop_catch_usr1();
    status = settings_gather(&all, &run->settings, run->quickstart, &log, &error);
    if (!status)
        status = loader_open(run, &all, &log, &error);
    if (!status)
        status = run_saved(run, &error);
    progress_finish(&run->progress);
    if (status)
        code = output_failure("run", run->json, &error);
    else
        code = result_tell(run);
    if (run->loader)
        forebay_close(run->loader);
    free(all.values);
    return stop_asked() ? EXIT_SIGNAL + stop_asked() : code;
}

static int help_config(bool json, bool markdown)
{
    if (json)
        return output_json(config_json());
    fb_config_help(stdout, markdown);
    return EXIT_DONE;
}

static int run(int argc, char **argv)
{
    struct run run = { .json = options_has(argc, argv, "--json") };
    const struct option table[] = {
        { "CONFIG", OPTION_ALONE, &run.config_file, false },
        { "--set", OPTION_TEXTS, &run.settings, false },
        { "--epochs", OPTION_COUNT, &run.epochs, false },
        { "--steps", OPTION_COUNT, &run.steps, false },
        { "--save-state", OPTION_TEXTS, &run.save_state, false },
        { "--resume", OPTION_TEXTS, &run.resume, false },
        { "--json", OPTION_FLAG, &run.json, false },
        { "--help-config", OPTION_FLAG, &run.help_config, false },
        { "--markdown", OPTION_FLAG, &run.markdown, false },
    };
    forebay_error error;
    int code;

    if (options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error)) {
        code = output_bad_use("run", run.json, &error);
    } else if (run.help_config) {
        code = help_config(run.json, run.markdown);
    } else {
        run.quickstart = !run.config_file && !settings_name_a_source(&run.settings);
        code = run_all(&run);
    }
    free(run.settings.values);
    free(run.resume.values);
    free(run.save_state.values);
    return code;
}

const struct command command_run = {
    .name = "run",
    .usage = "[CONFIG.yaml] [--set key=value]... [--epochs N] [--steps N] "
             "[--save-state FILE] [--resume FILE] [--json] [--help-config]",
    .summary = "stream epochs within the memory budget; alone: a quickstart on data of its own",
    .help = help,
    .run = run,
};
