/* upload_cache.c -- device.cache at open: are its entries samples or units, and how many fit? */
#include <inttypes.h>
#include <math.h>

#include "base/size.h"
#include "memory/block.h"
#include "device_stage/upload_internal.h"

#define ENTRY_ALIGN 16

/* What could be cached, each way. */
struct choice {
    uint64_t sample_bytes; /* of the largest, all fields; 0: they differ, or cannot be kept */
    uint64_t unit_bytes;   /* of the largest; 0: units cannot be kept */
    uint64_t bytes;        /* device.cache */
};

/* What a unit or item of `loaded` bytes takes in a batch. */
static uint64_t in_batch(const struct fb_column *column, uint64_t loaded)
{
    return column->cell_in ? loaded / column->cell_in * column->cell_out : 0;
}

/* The largest unit as a batch has it; 0 if units of this source cannot be kept. */
static uint64_t unit_bytes(const struct fb_pipeline *pipeline)
{
    const struct fb_source *source = pipeline->options.source;
    uint64_t most = 0;

    for (unsigned f = 0; f < source->field_count; f++) {
        const struct fb_field *field = &source->fields[f];

        if (!pipeline->collation.columns[f].wanted)
            continue;
        if (field->finished || field->indexed || field->always_ragged || field->vary > 1 ||
            fb_field_bytes_max(source, field) == 0)
            return 0;
        most = fb_max(most, in_batch(&pipeline->collation.columns[f],
                                     fb_field_bytes_max(source, field)));
    }
    return fb_round_up(most, ENTRY_ALIGN);
}

/* The largest sample, where the layout is not known: of its largest units. */
static uint64_t largest_sample(const struct fb_pipeline *pipeline)
{
    const struct fb_source *source = pipeline->options.source;
    uint64_t bytes = 0;

    for (unsigned f = 0; f < source->field_count; f++)
        if (pipeline->collation.columns[f].wanted)
            bytes += source->fields[f].items * in_batch(&pipeline->collation.columns[f],
                                                        fb_field_bytes_max(source,
                                                                           &source->fields[f]));
    return bytes;
}

static int sample_bytes(const struct fb_pipeline *pipeline, uint64_t *out, forebay_error *error)
{
    struct fb_budget *budget = pipeline->options.budget;
    uint64_t outputs = pipeline->collation.output_count, bytes;
    struct fb_placed *placed = fb_block_new(budget, FB_STAGE_OTHER, outputs, sizeof(*placed),
                                            "a batch's layout", error);
    int status;

    if (!placed)
        return error->status;
    status = fb_collation_place(&pipeline->collation, 1, pipeline->fixed_measures, placed, &bytes,
                                error);
    if (!status)
        *out = fb_max(1, fb_assembly_entry_bytes(&pipeline->collation, placed, 1));
    fb_block_free(budget, FB_STAGE_OTHER, placed, outputs, sizeof(*placed));
    return status;
}

static int fail_uncacheable(const struct fb_pipeline *pipeline, bool finished, forebay_error *error)
{
    int status = fb_fail(
        error, FOREBAY_BAD_CONFIG,
        finished ? "device.cache: this source makes its samples anew each time (crop, flip, "
                   "scale), which the device cannot yet; set device.cache: off"
                 : "device.cache: the samples differ in size, in more than their rows or by how "
                   "much is not known before they are read; set device.cache: off");

    fb_config_place(pipeline->options.config, "device.cache", error);
    return status;
}

static int choice_make(struct choice *choice, const struct fb_pipeline *pipeline,
                       forebay_error *error)
{
    const struct fb_source *source = pipeline->options.source;
    const struct fb_size *size = &pipeline->options.config->device_cache;
    bool finished = false, fixed = pipeline->collation.fixed;
    bool shared = (source->sliced && !source->ops->gather) || source->shared_units;
    uint64_t sample = 0;
    int status = FOREBAY_OK;

    for (unsigned f = 0; f < source->field_count; f++)
        finished |= pipeline->collation.columns[f].wanted && source->fields[f].finished;
    *choice = (struct choice){ .unit_bytes = !fixed || shared ? unit_bytes(pipeline) : 0 };
    if (finished || (!fixed && !choice->unit_bytes))
        return fail_uncacheable(pipeline, finished, error);
    if (fixed)
        status = sample_bytes(pipeline, &sample, error);
    else
        sample = largest_sample(pipeline);
    if (status)
        return status;
    choice->sample_bytes = fixed ? sample : 0;
    if (size->mode != FB_SIZE_SAMPLES)
        choice->bytes = size->value;
    else if (!fb_mul(size->value, sample, &choice->bytes))
        choice->bytes = UINT64_MAX;
    return FOREBAY_OK;
}

static double share_of(uint64_t bytes, uint64_t entry, uint64_t count)
{
    return fmin(1, floor((double)bytes / (double)entry) / (double)fb_max(1, count));
}

/* Units where that keeps as large a part of the data; samples of a series that does not fit. */
static bool takes_units(const struct choice *choice, const struct fb_source *source)
{
    return choice->unit_bytes &&
           (!choice->sample_bytes ||
            share_of(choice->bytes, choice->unit_bytes, source->unit_count) >=
                share_of(choice->bytes, choice->sample_bytes, source->sample_count));
}

/* With sticky: rank a sample stays on its rank, and what is cached is hit in every epoch; else this
 * rank is given only its part of what it has cached. What many samples share is hit by all. */
static void say_hit_rate(const struct fb_upload *upload, const struct fb_pipeline *pipeline)
{
    const struct fb_device_cache *cache = upload->cache;
    const struct fb_source *source = pipeline->options.source;
    double all = (double)cache->key_count, world = (double)pipeline->options.ranks.world;
    bool sticky = pipeline->options.config->order_sticky == FB_STICKY_RANK;
    bool shared = cache->source && (source->sliced || source->shared_units);
    double share = world > 1 && sticky && !shared ? fmin(1, (double)cache->limit * world / all)
                                                  : (double)cache->limit / all;
    char text[32];

    fb_say(upload->log, "device.cache: room for %" PRIu64 " of %" PRIu64 " %s (%s); from the "
           "second epoch on %.0f %% of the samples need not be copied%s", cache->limit,
           cache->key_count, cache->source ? "units" : "samples",
           fb_size_text(cache->limit * cache->entry_bytes, text), 100 * share,
           world > 1 && !sticky && !shared
               ? " (order.sticky: rank keeps each sample on its rank, and gives up to as many "
                 "times that as there are ranks)" : "");
}

int fb_upload_cache_open(struct fb_upload *upload, struct fb_pipeline *pipeline,
                         forebay_error *error)
{
    const struct fb_source *source = pipeline->options.source;
    struct choice choice;
    struct fb_device_cache_options options = { .device = upload->device,
                                               .policy = &fb_policy_fill,
                                               .stream = upload->stream,
                                               .lock = upload->lock,
                                               .budget = pipeline->options.budget,
                                               .collation = &pipeline->collation,
                                               .samples = source->sample_count };
    int status = choice_make(&choice, pipeline, error);

    if (status)
        return status;
    if (takes_units(&choice, source))
        options.source = source;
    options.entry_bytes = options.source ? choice.unit_bytes : choice.sample_bytes;
    options.limit = choice.bytes / options.entry_bytes;
    status = fb_device_cache_open(&upload->cache, &options, error);
    if (!status)
        say_hit_rate(upload, pipeline);
    return status;
}
