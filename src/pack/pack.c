#include "pack/pack.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "decode/picture.h"
#include "memory/block.h"
#include "base/new_file.h"
#include "pack/pack_inside.h"

/* Values that are drawn anew each epoch cannot be packed. */
static int check_random(const struct fb_source *source, const struct fb_config *config,
                        const struct fb_pack_options *options, forebay_error *error)
{
    bool random = config->source_flip || config->source_crop == FB_CROP_RANDOM;
    const char *key = config->source_flip ? "source.flip" : "source.crop";

    for (unsigned i = 0; i < source->field_count; i++)
        if (source->fields[i].finished && random && !options->keep) {
            fb_fail(error, FOREBAY_BAD_CONFIG, "%s draws anew each epoch, so '%s' cannot be packed "
                    "decoded; leave it to the run (--set %s), or pack the original files with "
                    "--keep", key, source->fields[i].name,
                    config->source_flip ? "source.flip=false" : "source.crop=none");
            fb_config_place(config, key, error);
            return FOREBAY_BAD_CONFIG;
        }
    if (options->keep && !source->ops->file)
        return fb_fail(error, FOREBAY_BAD_USE, "--keep: a unit of kind %s is no encoded file of "
                       "its own; pack it without", source->ops->kind);
    return FOREBAY_OK;
}

static int sample_probe(struct fb_source *source, uint64_t sample, struct fb_part *parts,
                        struct fb_load *load, bool skip, forebay_error *error)
{
    unsigned count = source->ops->parts(source, sample, parts);
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < count && !status; i++) {
        if (source->ops->extent(source, parts[i].unit).known != FB_EXTENT_UNKNOWN)
            continue;
        load->unit = parts[i].unit;
        status = source->ops->probe(source, parts[i].unit, load, error);
        if (fb_status_is_data(status) && skip)
            status = FOREBAY_OK;
    }
    return status;
}

/* Find out all sizes that only the files know: where everything goes must be known first. */
static int probe_all(struct fb_source *source, struct fb_budget *budget, bool skip,
                     const struct fb_log *log, forebay_error *error)
{
    uint64_t scratch = fb_max(1, source->scratch_bytes);
    struct fb_load load = { .scratch.bytes = source->scratch_bytes };
    struct fb_part *parts = fb_block_new(budget, FB_STAGE_OTHER, source->parts_max, sizeof(*parts),
                                         "a sample's parts", error);
    int status;

    load.scratch.memory = fb_block_new(budget, FB_STAGE_SCRATCH, scratch, 1, "decode memory",
                                       error);
    status = parts && load.scratch.memory
                 ? fb_reader_new(&load.reader, &(struct fb_reader_options){ .log = log }, error)
                 : error->status;
    for (uint64_t i = 0; i < source->sample_count && !status && source->ops->probe; i++) {
        status = sample_probe(source, i, parts, &load, skip, error);
        if (!status && i % 256 == 0)
            status = fb_progress(log, "reading headers", i, source->sample_count, error);
    }
    if (load.reader)
        fb_reader_free(load.reader);
    fb_block_free(budget, FB_STAGE_SCRATCH, load.scratch.memory, scratch, 1);
    fb_block_free(budget, FB_STAGE_OTHER, parts, source->parts_max, sizeof(*parts));
    return status;
}

static int folder_make(const char *prefix, forebay_error *error)
{
    const char *slash = strrchr(prefix, '/');
    char folder[PATH_MAX];

    if (!slash || slash == prefix)
        return FOREBAY_OK;
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - prefix), prefix);
    return fb_folder_make(folder, error);
}

/* What a run that was killed while it wrote the index left behind: path.tmp and its number. */
static void forget_leftovers(const char *path)
{
    char pattern[PATH_MAX + 16];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%.*s.tmp*", PATH_MAX, path);
    if (glob(pattern, GLOB_NOSORT, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

static void result_fill(struct fb_pack_result *result, const struct fb_pack_plan *plan,
                        uint64_t kept, uint64_t threads)
{
    *result = (struct fb_pack_result){ .units = plan->groups,
                                       .members = plan->members,
                                       .skipped = plan->skipped,
                                       .shards = plan->shard_count,
                                       .kept = kept,
                                       .bytes = plan->bytes,
                                       .threads = threads };
    snprintf(result->index, sizeof(result->index), "%s.json", plan->prefix);
    forget_leftovers(result->index);
}

static int write_all(struct fb_pack_result *result, struct fb_pack_plan *plan,
                     const struct fb_log *log, forebay_error *error)
{
    uint64_t kept = 0, threads = 0;
    int journal, status = fb_pack_journal_open(plan, &journal, log, error);

    if (status)
        return status;
    for (uint64_t i = 0; i < plan->shard_count; i++)
        kept += plan->shards[i].whole;
    if (kept < plan->shard_count)
        status = fb_pack_write(plan, journal, &threads, log, error);
    if (!status)
        status = fb_pack_index_write(plan, error);
    close(journal);
    if (!status)
        result_fill(result, plan, kept, threads);
    return status;
}

int fb_pack(struct fb_pack_result *result, struct fb_source *source,
            const struct fb_config *config, struct fb_budget *budget,
            const struct fb_pack_options *options, const struct fb_log *log, forebay_error *error)
{
    bool skip = config->on_error != FB_ON_ERROR_FAIL;
    struct fb_pack_plan *plan;
    forebay_error local;
    int status;

    error = error ? error : &local;
    status = check_random(source, config, options, error);
    if (!status)
        status = probe_all(source, budget, skip, log, error);
    if (status)
        return status;
    plan = fb_block_new(budget, FB_STAGE_OTHER, 1, sizeof(*plan), "the plan", error);
    if (!plan)
        return error->status;
    status = fb_pack_plan_open(plan, source, config, options, budget, log, error);
    if (!status)
        status = folder_make(plan->prefix, error);
    if (!status)
        status = write_all(result, plan, log, error);
    fb_pack_plan_close(plan);
    fb_block_free(budget, FB_STAGE_OTHER, plan, 1, sizeof(*plan));
    return status;
}
