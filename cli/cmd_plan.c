/* cmd_plan.c -- `forebay plan`: memory, settings and what each cache would bring, before a run. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "command.h"
#include "options.h"
#include "output.h"
#include "plan/forecast.h"
#include "progress.h"
#include "settings.h"
#include "stop.h"

#define CHART_CELLS 50

static const char help[] =
    "Tells, without running: the floor (the least budget with which a run ends), what each stage\n"
    "takes of the budget, the settings that auto comes to, and for each cache size and policy the\n"
    "hit rate and the bytes read in an epoch. The run uses the same formulas.\n"
    "\n"
    "Where every unit is used once an epoch the hit rates are exact: fill and next-use c, lru\n"
    "c + (1 - c) ln(1 - c), c being the share of the data that is kept. Elsewhere (overlapping\n"
    "sequences, windows, weights, groups, several nodes) the real order is simulated.\n"
    "\n"
    "Without CONFIG and without --set source.* it plans the quickstart of `forebay run`.\n"
    "\n"
    "Options:\n"
    "  --set KEY=VALUE  over the configuration; without CONFIG a configuration of its own\n"
    "  --json           print the result as one JSON object\n"
    "\n"
    "A budget below what a run needs is a failure (exit code 1) that says what it would take.\n"
    "\n"
    "Examples:\n"
    "  forebay plan train.yaml\n"
    "  forebay plan train.yaml --set memory.budget=8GiB --set memory.cache=6GiB\n";

struct planning {
    const char *config_file;
    struct texts settings;
    bool json;
    struct progress progress;
    struct fb_forecast forecast;
};

#define POLICIES (FB_POLICY_COUNT - 1)
static const struct fb_policy *const *const policies = fb_policies + FB_POLICY_AUTO + 1;

static const char *bytes_text(double bytes, char text[32])
{
    return isnan(bytes) ? "n/a" : fb_size_text((uint64_t)bytes, text);
}

/* ---- For a person ---- */

static void memory_print(const struct fb_forecast *forecast)
{
    static const char *const help_of[] = {
#define FB_X(name, text, about) about,
        FB_STAGE_MAP(FB_X)
#undef FB_X
    };
    uint64_t sum = 0;
    char a[32];

    printf("\nMemory, at most\n");
    for (unsigned i = 0; i < FB_STAGE_COUNT; i++) {
        sum += forecast->by_stage[i];
        printf("  %-9s %10s  %s\n", fb_stage_names[i], fb_size_text(forecast->by_stage[i], a),
               help_of[i]);
    }
    printf("  %-9s %10s  ", "together", fb_size_text(sum, a));
    printf("of a budget of %s\n", fb_size_text(forecast->run.plan.budget, a));
}

static void settings_print(const struct fb_forecast *forecast)
{
    const struct fb_plan *plan = &forecast->run.plan;
    char a[32];

    printf("\nSettings\n  workers   %" PRIu64 "\n  prefetch  %" PRIu64 "\n", plan->workers,
           plan->prefetch);
    if (plan->cache) {
        printf("  cache     %s, policy %s", fb_size_text(plan->cache, a),
               fb_config_word("memory.policy", forecast->run.policy));
        if (forecast->curve.has_planned)
            printf(": holds %.0f%%, hit rate %.3f, %s read an epoch",
                   100 * forecast->curve.planned.share,
                   forecast->curve.planned.by[forecast->run.policy].hit_rate,
                   bytes_text(forecast->curve.planned.by[forecast->run.policy].bytes_read, a));
        putchar('\n');
    } else if (forecast->page_cache_bytes) {
        printf("  cache     off: the data fits in the page cache, which serves it as fast\n");
    } else {
        printf("  cache     off\n");
    }
}

/* Does a policy read more in an epoch than there is without a cache? */
static bool reads_more(const struct fb_curve *curve)
{
    for (unsigned i = 0; i < FB_CURVE_POINTS; i++)
        for (unsigned j = 0; j < POLICIES; j++)
            if (curve->points[i].by[policies[j]->number].bytes_read > curve->epoch_bytes)
                return true;
    return false;
}

static void table_print(const struct fb_curve *curve)
{
    char a[32];

    printf("\nCache: hit rate and bytes read an epoch (%s without one); %s\n",
           bytes_text(curve->epoch_bytes, a),
           curve->simulated ? "simulated on this order" : "exact: every unit once an epoch");
    printf("     c  memory.cache ");
    for (unsigned i = 0; i < POLICIES; i++)
        printf("  %16s", policies[i]->name);
    putchar('\n');
    for (unsigned i = 0; i < FB_CURVE_POINTS; i++) {
        const struct fb_curve_point *point = &curve->points[i];

        printf("  %4.1f  %12s ", point->share,
               point->cache_bytes ? fb_size_text(point->cache_bytes, a) : "n/a");
        for (unsigned j = 0; j < POLICIES; j++)
            printf("  %5.3f %10s", point->by[policies[j]->number].hit_rate,
                   bytes_text(point->by[policies[j]->number].bytes_read, a));
        putchar('\n');
    }
    if (reads_more(curve))
        printf("  (more than the %s without a cache: a policy that evicts reads a whole unit\n"
               "  again for each slice of it; fill does not)\n", bytes_text(curve->epoch_bytes, a));
}

/* One line a size, a letter for each policy at its hit rate; * where two of them meet. */
static void chart_print(const struct fb_curve *curve)
{
    char line[CHART_CELLS + 2];

    printf("\n     c  hit rate: f fill, n next-use, l lru, * several\n");
    for (unsigned i = FB_CURVE_POINTS; i-- > 0;) {
        memset(line, ' ', CHART_CELLS + 1);
        line[CHART_CELLS + 1] = '\0';
        for (unsigned j = 0; j < POLICIES; j++) {
            double rate = curve->points[i].by[policies[j]->number].hit_rate;
            char *cell = &line[(unsigned)(rate * CHART_CELLS + 0.5)];

            *cell = *cell == ' ' ? policies[j]->name[0] : '*';
        }
        printf("  %4.1f |%s|\n", curve->points[i].share, line);
    }
    printf("        0%*s%*s\n", CHART_CELLS / 2, "0.5", CHART_CELLS / 2, "1");
}

static void forecast_print(const struct fb_forecast *forecast)
{
    char a[32];

    printf("%s: %" PRIu64 " samples of %" PRIu64 " units, ", forecast->kind, forecast->samples,
           forecast->units);
    printf("%s decoded, %" PRIu64 " batches an epoch\n",
           forecast->unit_bytes ? fb_size_text(forecast->unit_bytes, a) : "size not known",
           forecast->epoch_batches);
    printf("  budget    %s\n", fb_size_text(forecast->run.plan.budget, a));
    if (forecast->run.needs.slot)
        printf("  floor     %s (one batch, the two a caller holds, one worker, the index)\n",
               fb_size_text(forecast->run.plan.floor, a));
    else
        printf("  floor     %s and three batches, whose size shows only when they are read\n",
               fb_size_text(forecast->run.plan.floor, a));
    memory_print(forecast);
    settings_print(forecast);
    table_print(&forecast->curve);
    chart_print(&forecast->curve);
}

/* ---- JSON ---- */

static json_t *bytes_json(double bytes)
{
    return isnan(bytes) ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *point_json(const struct fb_curve_point *point)
{
    json_t *object = json_pack("{s:f, s:o}", "share", point->share, "cache_bytes",
                               point->cache_bytes ? json_integer((json_int_t)point->cache_bytes)
                                                  : json_null());

    for (unsigned i = 0; i < POLICIES; i++)
        json_object_set_new(
            object, policies[i]->name,
            json_pack("{s:f, s:o}", "hit_rate", point->by[policies[i]->number].hit_rate,
                      "bytes_read", bytes_json(point->by[policies[i]->number].bytes_read)));
    return object;
}

static json_t *curve_json(const struct fb_curve *curve)
{
    json_t *points = json_array();

    for (unsigned i = 0; i < FB_CURVE_POINTS; i++)
        json_array_append_new(points, point_json(&curve->points[i]));
    return json_pack("{s:b, s:o, s:o, s:o, s:o}", "simulated", curve->simulated, "used_bytes",
                     bytes_json(curve->used_bytes), "epoch_bytes", bytes_json(curve->epoch_bytes),
                     "points", points, "planned",
                     curve->has_planned ? point_json(&curve->planned) : json_null());
}

static json_t *forecast_json(const struct fb_forecast *forecast)
{
    const struct fb_plan *plan = &forecast->run.plan;
    json_t *memory = json_object(), *settings;

    for (unsigned i = 0; i < FB_STAGE_COUNT; i++)
        json_object_set_new(memory, fb_stage_names[i],
                            json_integer((json_int_t)forecast->by_stage[i]));
    settings = json_pack("{s:I, s:I, s:I, s:s, s:b}", "workers", (json_int_t)plan->workers,
                         "prefetch", (json_int_t)plan->prefetch, "cache_bytes",
                         (json_int_t)plan->cache, "policy",
                         fb_config_word("memory.policy", forecast->run.policy), "page_cache",
                         forecast->page_cache_bytes > 0);
    return json_pack("{s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "kind",
                     forecast->kind, "samples", (json_int_t)forecast->samples, "units",
                     (json_int_t)forecast->units, "bytes",
                     bytes_json(forecast->unit_bytes ? (double)forecast->unit_bytes : NAN),
                     "batches", (json_int_t)forecast->epoch_batches, "budget_bytes",
                     (json_int_t)plan->budget, "floor_bytes", (json_int_t)plan->floor,
                     "batch_bytes",
                     bytes_json(forecast->run.needs.slot ? (double)forecast->run.needs.slot : NAN),
                     "memory", memory, "settings", settings, "curve",
                     curve_json(&forecast->curve));
}

/* ---- Set-up ---- */

/* What gpu-auto chooses depends on a device, which is opened for a moment. */
static int choose_preset(struct fb_config *config, const struct fb_log *log, forebay_error *error)
{
    struct fb_device *device;
    int status;

    if (config->preset != FB_PRESET_GPU_AUTO)
        return FOREBAY_OK;
    status = fb_device_open(&device, config->device_kind, log, error);
    if (status)
        return status;
    status = fb_prepare_preset(config, device, log, error);
    fb_device_close(device);
    return status;
}

static int plan(struct planning *planning, const struct fb_log *log, forebay_error *error)
{
    bool quickstart = !planning->config_file && !settings_name_a_source(&planning->settings);
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_config config;
    struct settings all;
    int status = settings_gather(&all, &planning->settings, quickstart, log, error);

    options.config_file = planning->config_file;
    options.settings = all.values;
    options.setting_count = all.count;
    if (!status)
        status = fb_config_read(&config, &options, log, error);
    if (!status) {
        status = choose_preset(&config, log, error);
        if (!status)
            status = fb_forecast_make(&planning->forecast, &config, log, error);
        fb_config_release(&config);
    }
    free(all.values);
    return status;
}

static int plan_all(struct planning *planning)
{
    struct fb_log log = { progress_log, progress_long_work, &planning->progress };
    forebay_error error;
    int code = EXIT_DONE, status;

    progress_init(&planning->progress);
    stop_catch();
    status = plan(planning, &log, &error);
    progress_finish(&planning->progress);
    if (status)
        code = output_failure("plan", planning->json, &error);
    else if (planning->json)
        code = output_json(forecast_json(&planning->forecast));
    else
        forecast_print(&planning->forecast);
    return stop_asked() ? EXIT_SIGNAL + stop_asked() : code;
}

static int run(int argc, char **argv)
{
    struct planning planning = { .json = options_has(argc, argv, "--json") };
    const struct option table[] = {
        { "CONFIG", OPTION_ALONE, &planning.config_file, false },
        { "--set", OPTION_TEXTS, &planning.settings, false },
        { "--json", OPTION_FLAG, &planning.json, false },
    };
    forebay_error error;
    int code = options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error)
                   ? output_bad_use("plan", planning.json, &error)
                   : plan_all(&planning);

    free(planning.settings.values);
    return code;
}

const struct command command_plan = {
    .name = "plan",
    .usage = "[CONFIG] [--set key=value]... [--json]",
    .summary = "memory and settings before anything runs; hit rate for each cache size",
    .help = help,
    .run = run,
};
