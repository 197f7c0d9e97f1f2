/* cmd_generate.c -- `forebay generate`: deterministic sample data. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "command.h"
#include "options.h"
#include "output.h"
#include "generate/generate.h"
#include "progress.h"
#include "stop.h"

static const char help[] =
    "Writes deterministic sample data: the same kind, seed and sizes give the same bytes on every\n"
    "machine (JPEG and FLAC files: with the same version of the encoder). Good for a first try,\n"
    "for tests and for measuring.\n"
    "\n"
    "Kinds:\n"
    "  lidar     DIR/000000.bin ...: float32 x, y, z (-80..80) and intensity (0..1)\n"
    "            256 files of 1 MB.    source: {kind: bin, path: DIR/*.bin}\n"
    "  frames    DIR/000_blur.npy, 000_sharp.npy [720, 1280, 3] and 000_voxel.npy [32, 720, 1280]\n"
    "            8 samples of 140 MB.  source: {kind: npy, fields: {blur: DIR/*_blur.npy, ...}}\n"
    "  windows   DIR/0000.npy ...: float32 series [6000, 96], normal\n"
    "            200 files of 2.3 MB.  source: {kind: windows, path: DIR/*.npy}\n"
    "  images    DIR/class_0/00000.jpg ...: JPEG, about 500 x 400, ten classes; DIR/labels.csv\n"
    "            1000 files of about 100 kB.\n"
    "  audio     DIR/00000.wav, 00001.flac ...: 16 kHz mono, 2 to 15 s; DIR/manifest.jsonl\n"
    "            200 files.\n"
    "  table     DIR/data_part1.csv ...: 24 columns, integers and decimals\n"
    "            8 files of 10 MB.\n"
    "\n"
    "Options:\n"
    "  --files N     how many samples (for frames, three files each)\n"
    "  --bytes SIZE  of each sample: 15MB, 64KiB (encoded kinds: about; audio: 2 bytes a sample)\n"
    "  --rows N      table: rows of each file, instead of --bytes\n"
    "  --seed S      another seed, other data (default 0)\n"
    "  --force       overwrite files that hold something else\n"
    "  --json        print the result as one JSON object\n"
    "\n"
    "Files that are there already are compared: the same ones are kept, so an interrupted run can\n"
    "be repeated. A file is written under a temporary name first and so is whole or absent.\n"
    "\n"
    "The checksum (first, last and every 4096th byte of each array, added up) is the one that\n"
    "`forebay run --json` gives for an epoch of lidar, frames and windows read as bin or npy.\n"
    "\n"
    "Example:\n"
    "  forebay generate lidar /tmp/scans --files 64 --bytes 15MB\n"
    "  forebay run --set source.kind=bin --set 'source.path=/tmp/scans/*.bin'\n";

static int result_json(const struct fb_generate_options *options,
                       const struct fb_generate_result *result, double seconds)
{
    char checksum[24];

    snprintf(checksum, sizeof(checksum), "%016" PRIx64, result->checksum);
    return output_json(json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s}", "kind", options->kind, "folder",
        output_text(options->folder), "seed", (json_int_t)options->seed, "samples",
        (json_int_t)result->samples, "written", (json_int_t)result->written, "kept",
        (json_int_t)result->kept, "bytes", (json_int_t)result->bytes, "seconds", seconds,
        "bytes_per_s", seconds > 0 ? (double)result->bytes / seconds : 0.0, "checksum", checksum,
        "checksum_of", result->checksum_of_data ? "data" : "files"));
}

static void result_print(const struct fb_generate_options *options,
                         const struct fb_generate_result *result, double seconds)
{
    char size[32];

    printf("%s: %" PRIu64 " samples, %s in %s\n", options->kind, result->samples,
           fb_size_text(result->bytes, size), options->folder);
    printf("  files     %" PRIu64 " written", result->written);
    if (result->kept)
        printf(", %" PRIu64 " were there already", result->kept);
    printf("\n  time      %.2f s, %.0f MB/s\n", seconds, (double)result->bytes / seconds / 1e6);
    printf("  checksum  %016" PRIx64 " (of the %s)\n", result->checksum,
           result->checksum_of_data ? "data" : "files");
}

static int generate(const struct fb_generate_options *options, bool json)
{
    struct progress progress;
    struct fb_log log = { progress_log, progress_long_work, &progress };
    struct fb_generate_result result;
    forebay_error error;
    uint64_t begin = fb_now_ns();
    double seconds;
    int status;

    progress_init(&progress);
    stop_catch();
    status = fb_generate(&result, options, &log, &error);
    progress_finish(&progress);
    seconds = (double)(fb_now_ns() - begin) / 1e9;
    if (status) {
        output_failure("generate", json, &error);
        return stop_asked() ? EXIT_SIGNAL + stop_asked() : EXIT_FAILED;
    }
    if (json)
        return result_json(options, &result, seconds);
    result_print(options, &result, seconds);
    return EXIT_DONE;
}

static int run(int argc, char **argv)
{
    struct fb_generate_options options = { .kind = NULL };
    bool json = options_has(argc, argv, "--json");
    const struct option table[] = {
        { "KIND", OPTION_ALONE, &options.kind, true },
        { "DIR", OPTION_ALONE, &options.folder, true },
        { "--files", OPTION_COUNT, &options.files, false },
        { "--bytes", OPTION_SIZE, &options.bytes, false },
        { "--rows", OPTION_COUNT, &options.rows, false },
        { "--seed", OPTION_NUMBER, &options.seed, false },
        { "--force", OPTION_FLAG, &options.force, false },
        { "--json", OPTION_FLAG, &json, false },
    };
    forebay_error error;
    const char *near;

    if (options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error))
        return output_bad_use("generate", json, &error);
    for (unsigned i = 0; i < fb_generate_kind_count; i++)
        if (strcmp(options.kind, fb_generate_kinds[i].name) == 0)
            return generate(&options, json);
    near = nearest_word(options.kind, &fb_generate_kinds[0].name, sizeof(fb_generate_kinds[0]),
                        fb_generate_kind_count);
    fb_fail(&error, FOREBAY_BAD_USE,
            "there is no kind '%s'; %s%s%slidar, frames, windows, images, audio and table are",
            options.kind, near ? "did you mean " : "", near ? near : "", near ? "? " : "");
    return output_bad_use("generate", json, &error);
}

const struct command command_generate = {
    .name = "generate",
    .usage = "KIND DIR [--files N] [--bytes SIZE] [--seed S] [--force] [--json]",
    .summary = "deterministic sample data: lidar, frames, windows, images, audio, table",
    .help = help,
    .run = run,
};
