/* cmd_pack.c -- `forebay pack`: the decoded units as plain tar shards of .npy. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "command.h"
#include "memory/host.h"
#include "options.h"
#include "output.h"
#include "pack/pack.h"
#include "plan/prepare.h"
#include "progress.h"
#include "stop.h"

static const char help[] =
    "Decodes the source of a configuration once and writes its units as plain tar files of .npy\n"
    "members, OUT-000000.tar, OUT-000001.tar, ..., with an index beside them, OUT.json. If OUT is\n"
    "a folder (or ends in /) the names begin with OUT/out. tar, WebDataset and forebay read them.\n"
    "\n"
    "Members are called KEY.FIELD.npy. The key is the file's path below the folder that all have\n"
    "in common, without its extension, dots as \"_\"; tables and archives have numbers. Two files\n"
    "that would have the same key are an error. What samples share (scans of overlapping\n"
    "sequences, series of windows) is packed once; the index says how samples are made of it.\n"
    "\n"
    "The same data and options give the same bytes. A shard gets its name when it is whole: after\n"
    "Ctrl-C or a crash run it again, and what was finished is kept (its checksum is compared).\n"
    "\n"
    "Options:\n"
    "  --set KEY=VALUE    over the configuration\n"
    "  --shard-size SIZE  of a tar file, at most (default 1GB); a unit is never divided\n"
    "  --dtype TYPE       f16 or f32: what floating point fields become (default: as they are)\n"
    "  --keep             the original files (jpg, png, wav, flac) instead of what they decode to\n"
    "  --force            overwrite shards that were made from something else\n"
    "  --json             print the result as one JSON object\n"
    "\n"
    "Works within memory.budget with `workers` threads. on_error: skip leaves broken units out.\n"
    "\n"
    "Examples:\n"
    "  forebay pack train.yaml packed/train\n"
    "  forebay pack train.yaml packed/train --dtype f16 --shard-size 256MB\n"
    "  forebay run --set source.kind=tar --set 'source.path=packed/train-*.tar'\n";

struct packing {
    const char *config_file;
    struct texts settings, dtype;
    struct fb_pack_options options;
    bool json;
    struct progress progress;
    struct fb_config config;
    struct fb_budget *budget;
    struct fb_source *source;
    struct fb_pack_result result;
    double seconds;
};

static int result_tell(const struct packing *packing)
{
    const struct fb_pack_result *result = &packing->result;
    char size[32];

    if (packing->json)
        return output_json(json_pack(
            "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "index",
            output_text(result->index), "units", (json_int_t)result->units, "members",
            (json_int_t)result->members, "skipped", (json_int_t)result->skipped, "shards",
            (json_int_t)result->shards, "kept", (json_int_t)result->kept, "bytes",
            (json_int_t)result->bytes, "threads", (json_int_t)result->threads, "seconds",
            packing->seconds, "bytes_per_s",
            packing->seconds > 0 ? (double)result->bytes / packing->seconds : 0.0));
    printf("%" PRIu64 " units (%" PRIu64 " members) in %" PRIu64 " shard%s, %s\n", result->units,
           result->members, result->shards, result->shards == 1 ? "" : "s",
           fb_size_text(result->bytes, size));
    if (result->kept)
        printf("  kept      %" PRIu64 " shards that were whole already\n", result->kept);
    if (result->skipped)
        printf("  skipped   %" PRIu64 " units that are broken\n", result->skipped);
    printf("  time      %.2f s, %.0f MB/s\n", packing->seconds,
           (double)result->bytes / packing->seconds / 1e6);
    printf("  index     %s\n", result->index);
    return EXIT_DONE;
}

static int pack(struct packing *packing, const struct fb_log *log, forebay_error *error)
{
    const struct fb_config *config = &packing->config;
    uint64_t began = fb_now_ns();
    int status = fb_prepare_budget(&packing->budget, config, &(struct fb_ranks){ .local_world = 1 },
                                   log, error);

    packing->options.threads = config->workers.is_auto ? fb_host_cpus() : config->workers.value;
    if (!status)
        status = fb_source_open(&packing->source, config, packing->budget, log, error);
    if (!status)
        status = fb_pack(&packing->result, packing->source, config, packing->budget,
                         &packing->options, log, error);
    packing->seconds = (double)(fb_now_ns() - began) / 1e9;
    if (packing->source)
        fb_source_close(packing->source);
    if (packing->budget)
        fb_budget_free(packing->budget);
    return status;
}

static int pack_all(struct packing *packing)
{
    struct fb_log log = { progress_log, progress_long_work, &packing->progress };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    forebay_error error;
    int code, status;

    options.config_file = packing->config_file;
    options.settings = packing->settings.values;
    options.setting_count = packing->settings.count;
    progress_init(&packing->progress);
    stop_catch();
    status = fb_config_read(&packing->config, &options, &log, &error);
    if (!status) {
        status = pack(packing, &log, &error);
        fb_config_release(&packing->config);
    }
    progress_finish(&packing->progress);
    code = status ? output_failure("pack", packing->json, &error) : result_tell(packing);
    return stop_asked() ? EXIT_SIGNAL + stop_asked() : code;
}

static int dtype_read(struct packing *packing, forebay_error *error)
{
    const char *text = packing->dtype.count ? packing->dtype.values[packing->dtype.count - 1] : "";

    packing->options.dtype = FB_CAST_KEEP;
    if (!packing->dtype.count || strcmp(text, "keep") == 0)
        return FOREBAY_OK;
    if (strcmp(text, "f16") != 0 && strcmp(text, "f32") != 0)
        return fb_fail(error, FOREBAY_BAD_USE, "--dtype '%s': expected f16, f32 or keep", text);
    packing->options.dtype = strcmp(text, "f16") == 0 ? FB_CAST_F16 : FB_CAST_F32;
    return FOREBAY_OK;
}

static int run(int argc, char **argv)
{
    struct packing packing = { .json = options_has(argc, argv, "--json") };
    const struct option table[] = {
        { "CONFIG", OPTION_ALONE, &packing.config_file, true },
        { "OUT", OPTION_ALONE, &packing.options.out, true },
        { "--set", OPTION_TEXTS, &packing.settings, false },
        { "--shard-size", OPTION_SIZE, &packing.options.shard_bytes, false },
        { "--dtype", OPTION_TEXTS, &packing.dtype, false },
        { "--keep", OPTION_FLAG, &packing.options.keep, false },
        { "--force", OPTION_FLAG, &packing.options.force, false },
        { "--json", OPTION_FLAG, &packing.json, false },
    };
    forebay_error error;
    int status = options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error), code;

    if (!status)
        status = dtype_read(&packing, &error);
    code = status ? output_bad_use("pack", packing.json, &error) : pack_all(&packing);
    free(packing.settings.values);
    free(packing.dtype.values);
    return code;
}

const struct command command_pack = {
    .name = "pack",
    .usage = "CONFIG OUT [--set key=value]... [--shard-size SIZE] [--dtype TYPE] [--keep] "
             "[--force] [--json]",
    .summary = "write the decoded units as tar shards of .npy",
    .help = help,
    .run = run,
};
