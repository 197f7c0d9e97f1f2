#include "pipeline/pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "memory/block.h"
#include "pipeline/pipeline_internal.h"

#define CLOSE_NS ((uint64_t)800 * 1000 * 1000) /* close returns within a second, joins included */

/* ---- What it takes ---- */

static uint64_t slice_rows(const struct fb_source *source, const struct fb_part *part)
{
    const struct fb_field *field = &source->fields[part->field];

    return field->ndim ? field->shape[0] : part->rows;
}

/* The extents of a full batch where all are alike: those of the first sample that is whole. Slices
 * of units are as long as their field says, or are padded to that. */
static bool measure_fixed(const struct fb_collation *collation, struct fb_part *parts,
                          struct fb_measure *measures)
{
    const struct fb_source *source = collation->source;

    for (uint64_t sample = 0; sample < source->sample_count; sample++) {
        unsigned count = source->ops->parts(source, sample, parts), good = 0;

        memset(measures, 0, source->field_count * sizeof(*measures));
        for (; good < count; good++) {
            struct fb_extent extent = source->ops->extent(source, parts[good].unit);

            if (extent.known != FB_EXTENT_EXACT)
                break;
            extent = fb_extent_in_batch(&source->fields[parts[good].field], extent);
            if (parts[good].rows != FB_ALL_ROWS)
                extent.rows = slice_rows(source, &parts[good]);
            fb_measure_add(&measures[parts[good].field], extent);
        }
        if (good == count)
            return true;
    }
    return false;
}

/* Bytes of a full batch with its header: exact if the layout is fixed, else the largest there can
 * be. `measures` is left with what a fixed layout is made from. */
static int largest_batch(const struct fb_collation *collation, struct fb_budget *budget,
                         struct fb_measure *measures, uint64_t *bytes, forebay_error *error)
{
    const struct fb_source *source = collation->source;
    struct fb_part *parts = fb_block_new(budget, FB_STAGE_OTHER, source->parts_max, sizeof(*parts),
                                         "a sample's parts", error);
    struct fb_placed *placed = fb_block_new(budget, FB_STAGE_OTHER, collation->output_count,
                                            sizeof(*placed), "a batch's layout", error);
    int status = parts && placed ? FOREBAY_OK : FOREBAY_NO_MEMORY;

    *bytes = 0;
    if (!status && collation->fixed && measure_fixed(collation, parts, measures))
        status = fb_collation_place(collation, collation->batch_size, measures, placed, bytes,
                                    error);
    else if (!status)
        *bytes = fb_collation_largest(collation);
    fb_block_free(budget, FB_STAGE_OTHER, parts, source->parts_max, sizeof(*parts));
    fb_block_free(budget, FB_STAGE_OTHER, placed, collation->output_count, sizeof(*placed));
    return status;
}

/* What a full batch takes at least that has this sample in it; 0 if a size is not known. */
static uint64_t batch_with(const struct fb_collation *collation, uint64_t sample,
                           struct fb_part *parts, struct fb_measure *measures,
                           struct fb_placed *placed)
{
    const struct fb_source *source = collation->source;
    unsigned count = source->ops->parts(source, sample, parts);
    uint64_t bytes = 0;

    memset(measures, 0, source->field_count * sizeof(*measures));
    for (unsigned i = 0; i < count; i++) {
        struct fb_extent extent = source->ops->extent(source, parts[i].unit);

        if (extent.known != FB_EXTENT_EXACT)
            return 0;
        extent = fb_extent_in_batch(&source->fields[parts[i].field], extent);
        if (parts[i].rows != FB_ALL_ROWS)
            extent.rows = slice_rows(source, &parts[i]);
        fb_measure_add(&measures[parts[i].field], extent);
    }
    return fb_collation_place(collation, fb_min(collation->batch_size, source->sample_count),
                              measures, placed, &bytes, NULL)
               ? 0
               : bytes;
}

/* The largest of those over all samples. Every sample comes in every epoch, so such a batch does. */
static uint64_t certain_batch(const struct fb_collation *collation, struct fb_budget *budget,
                              struct fb_measure *measures)
{
    const struct fb_source *source = collation->source;
    struct fb_part *parts = fb_block_new(budget, FB_STAGE_OTHER, source->parts_max, sizeof(*parts),
                                         "a sample's parts", NULL);
    struct fb_placed *placed = fb_block_new(budget, FB_STAGE_OTHER, collation->output_count,
                                            sizeof(*placed), "a batch's layout", NULL);
    uint64_t most = 0;

    for (uint64_t i = 0; parts && placed && i < source->sample_count; i++)
        most = fb_max(most, batch_with(collation, i, parts, measures, placed));
    fb_block_free(budget, FB_STAGE_OTHER, parts, source->parts_max, sizeof(*parts));
    fb_block_free(budget, FB_STAGE_OTHER, placed, collation->output_count, sizeof(*placed));
    return most;
}

/* Asked for only where the largest batch there can be may not fit: it looks at every sample. */
static bool wants_certain(const struct fb_pipeline_needs *needs, const struct fb_config *config,
                          struct fb_budget *budget)
{
    struct fb_budget_report now;

    fb_budget_read(budget, &now);
    return !needs->fixed &&
           2 * needs->slot + needs->per_worker > now.limit - fb_min(now.limit, now.used) &&
           !config->order_subset && !config->order_weights && config->order_draws.is_auto;
}

int fb_pipeline_measure(struct fb_pipeline_needs *needs, const struct fb_source *source,
                        const struct fb_config *config, bool cached, struct fb_budget *budget,
                        forebay_error *error)
{
    struct fb_collation collation;
    struct fb_measure *measures;
    uint64_t bytes = 0;
    int status = fb_collation_open(&collation, source, config, budget, error);

    if (status)
        return status;
    measures = fb_block_new(budget, FB_STAGE_OTHER, source->field_count, sizeof(*measures),
                            "the fields' sizes", error);
    status = measures ? largest_batch(&collation, budget, measures, &bytes, error)
                      : FOREBAY_NO_MEMORY;
    needs->fixed = collation.fixed;
    needs->header = bytes ? fb_batch_header_bytes(&collation) : 0;
    needs->slot = bytes ? fb_map_bytes(bytes) + needs->header : 0;
    needs->per_worker = fb_pipeline_worker_bytes(source, &collation, cached);
    needs->scratch = fb_pipeline_scratch_bytes(source, &collation, cached);
    needs->certain = 0;
    if (!status && wants_certain(needs, config, budget)) {
        needs->certain = certain_batch(&collation, budget, measures);
        if (needs->certain)
            needs->certain = fb_map_bytes(needs->certain) + needs->header;
    }
    fb_block_free(budget, FB_STAGE_OTHER, measures, source->field_count, sizeof(*measures));
    fb_collation_close(&collation);
    return status;
}

/* ---- Open and close ---- */

static uint64_t errors_allowed(const struct fb_config *config, uint64_t epoch_samples)
{
    double most = config->max_errors.value;

    if (config->max_errors.is_percent)
        most = most >= 100 ? 0x1p62 : floor(most / 100 * (double)epoch_samples);
    return most >= 0x1p62 ? UINT64_MAX : (uint64_t)most;
}

static void sync_init(struct fb_pipeline *pipeline)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&pipeline->lock, NULL);
    pthread_cond_init(&pipeline->work, NULL);
    pthread_cond_init(&pipeline->ready, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void constants_init(struct fb_pipeline *pipeline, const struct fb_pipeline_options *options)
{
    const struct fb_config *config = options->config;

    pipeline->options = *options;
    pipeline->log = *options->log;
    pipeline->batch_size = config->batch_size.value;
    pipeline->drop_last = config->order_drop_last;
    pipeline->used_once = options->cache && !options->source->shared_units &&
                          !options->source->sliced && !config->order_weights;
    pipeline->nice = (int)config->cpu_nice.value;
    pipeline->pid = getpid();
    pipeline->opened_ns = fb_now_ns();
    pipeline->fetcher = (struct fb_fetcher){ .source = options->source,
                                             .order = options->order,
                                             .cache = options->cache,
                                             .collation = &pipeline->collation,
                                             .ranks = options->ranks,
                                             .seed = options->seed,
                                             .on_error = options->on_error,
                                             .epochs = options->epochs,
                                             .next_use = options->next_use };
    pipeline->prefetch = fb_max(1, fb_min(options->prefetch, FB_PREFETCH_MAX));
    pipeline->cpu_share = config->cpu_share.is_auto || config->cpu_share.value == 0
                              ? UINT64_MAX
                              : config->cpu_share.value;
    pipeline->epoch_limit = options->epochs;
    pipeline->references = 1;
}

/* The first slot is mapped and faulted now, so that the first batch is as fast as any. */
static int first_slot(struct fb_pipeline *pipeline, uint64_t bytes, forebay_error *error)
{
    struct fb_batch *batch;

    if (!pipeline->collation.fixed || !bytes)
        return FOREBAY_OK;
    batch = fb_slots_take(pipeline, error);
    if (!batch)
        return error ? error->status : FOREBAY_NO_MEMORY;
    if (!fb_slots_fit(pipeline, batch, bytes, error)) {
        fb_batch_free(batch, &pipeline->collation, pipeline->options.budget);
        return fb_fail(error, FOREBAY_OVER_BUDGET, "one batch of %" PRIu64
                       " bytes does not fit; raise memory.budget or lower batch.size", bytes);
    }
    if (!pipeline->upload) /* pinned memory is there already */
        fb_map_populate(batch->memory, batch->capacity);
    pthread_mutex_lock(&pipeline->lock);
    fb_slots_give_back_locked(pipeline, batch);
    pthread_mutex_unlock(&pipeline->lock);
    return FOREBAY_OK;
}

static int parts_init(struct fb_pipeline *pipeline, forebay_error *error)
{
    const struct fb_pipeline_options *options = &pipeline->options;
    uint64_t fields = options->source->field_count, bytes;
    int status = fb_collation_open(&pipeline->collation, options->source, options->config,
                                   options->budget, error);

    if (status)
        return status;
    pipeline->measures = fb_block_new(options->budget, FB_STAGE_OTHER, fields,
                                      sizeof(struct fb_measure), "the fields' sizes", error);
    pipeline->fixed_measures = fb_block_new(options->budget, FB_STAGE_OTHER, fields,
                                            sizeof(struct fb_measure), "the fields' sizes", error);
    if (!pipeline->measures || !pipeline->fixed_measures)
        return error ? error->status : FOREBAY_NO_MEMORY;
    status = largest_batch(&pipeline->collation, options->budget, pipeline->fixed_measures, &bytes,
                           error);
    if (status)
        return status;
    status = fb_budget_reserve(options->budget, FB_STAGE_SLOTS, options->slots_floor,
                               "memory for batches", error);
    if (status)
        return status;
    pipeline->slots_paid = options->slots_floor;
    if (!fb_device_is_host(options->device)) {
        pipeline->stage = options->device_stage;
        status = pipeline->stage->open(&pipeline->upload, pipeline, options->device,
                                       options->config->device_prefetch.value, error);
    }
    return status ? status : first_slot(pipeline, bytes, error);
}

/* At least one worker must start; with fewer than asked for the run is slower, not wrong. */
static int workers_init(struct fb_pipeline *pipeline, forebay_error *error)
{
    uint64_t wanted = fb_min(pipeline->options.workers, FB_WORKERS_MAX), started;
    int status;

    if (wanted == 0) {
        status = fb_worker_state_init(&pipeline->caller_state, pipeline, error);
        pipeline->has_own = status == FOREBAY_OK;
        return status;
    }
    pipeline->worker_target = wanted;
    status = fb_workers_grow(pipeline, wanted, error);
    if (!status)
        return FOREBAY_OK;
    pthread_mutex_lock(&pipeline->lock);
    started = pipeline->worker_count;
    pipeline->worker_target = started;
    pthread_mutex_unlock(&pipeline->lock);
    if (started == 0)
        return status;
    fb_warn(&pipeline->log, "%" PRIu64 " workers instead of %" PRIu64 ": %s", started, wanted,
            error->message);
    return FOREBAY_OK;
}

int fb_pipeline_open(struct fb_pipeline **out, const struct fb_pipeline_options *options,
                     forebay_error *error)
{
    struct fb_pipeline *pipeline = fb_block_new(options->budget, FB_STAGE_OTHER, 1,
                                                sizeof(*pipeline), "the pipeline", error);
    forebay_error local;
    int status;

    error = error ? error : &local;
    if (!pipeline)
        return error->status;
    constants_init(pipeline, options);
    fb_budget_share(options->budget);
    sync_init(pipeline);
    fb_fork_add(pipeline);
    status = parts_init(pipeline, error);
    if (!status) {
        struct fb_epoch_walk begin = fb_epoch_walk_begin(pipeline, fb_order_begin(options->order, 0));

        pipeline->delivered = pipeline->open = begin;
        pipeline->errors_max = errors_allowed(options->config, begin.count);
        if (begin.count == 0)
            status = fb_fail(error, FOREBAY_BAD_CONFIG,
                             "an epoch has no batch: order.drop_last leaves out the only one, which "
                             "is not full; lower batch.size or set order.drop_last: false");
    }
    if (!status && options->cache && options->config->memory_preload)
        status = fb_pipeline_preload(pipeline, error);
    if (!status && pipeline->upload && options->config->device_preload)
        status = pipeline->stage->preload(pipeline, error);
    if (!status)
        status = workers_init(pipeline, error);
    if (status) {
        fb_pipeline_close(pipeline);
        return status;
    }
    *out = pipeline;
    return FOREBAY_OK;
}

void fb_pipeline_start(struct fb_pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->lock);
    pipeline->opened_ns = fb_now_ns();
    pipeline->started = true;
    /* One, who calls the others when it has opened a batch. All at once they would land on the one
     * processor that is free as long as the caller has not gone to wait. */
    pthread_cond_signal(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
}

static void drop_batches_locked(struct fb_pipeline *pipeline)
{
    uint64_t spare;

    fb_work_cancel_locked(pipeline);
    while (pipeline->free) {
        struct fb_batch *batch = pipeline->free;

        pipeline->free = batch->next;
        fb_slots_destroy_locked(pipeline, batch);
    }
    spare = pipeline->slots_paid - pipeline->slots_mapped;
    pipeline->slots_paid -= spare;
    fb_budget_refund(pipeline->options.budget, FB_STAGE_SLOTS, spare);
}

unsigned fb_pipeline_close(struct fb_pipeline *pipeline)
{
    unsigned abandoned;

    if (!pipeline || pipeline->pid != getpid())
        return 0;
    pthread_mutex_lock(&pipeline->lock);
    pipeline->stopping = true;
    pthread_cond_broadcast(&pipeline->work);
    pthread_cond_broadcast(&pipeline->ready);
    pthread_mutex_unlock(&pipeline->lock);

    fb_workers_stop(pipeline, fb_now_ns() + CLOSE_NS);
    if (pipeline->has_own)
        fb_worker_state_release(&pipeline->caller_state, pipeline);
    pthread_mutex_lock(&pipeline->lock);
    drop_batches_locked(pipeline);
    abandoned = (unsigned)pipeline->abandoned;
    pthread_mutex_unlock(&pipeline->lock);
    if (pipeline->upload)
        pipeline->stage->stop(pipeline->upload);
    if (abandoned)
        fb_warn(&pipeline->log, "%u worker%s stuck in a read and left behind with %s memory",
                abandoned, abandoned == 1 ? " is" : "s are", abandoned == 1 ? "its" : "their");
    if (abandoned && pipeline->options.stuck)
        pipeline->options.stuck(pipeline->options.owner);
    pthread_mutex_lock(&pipeline->lock);
    abandoned = (unsigned)pipeline->missing; /* some may have come back meanwhile */
    pipeline->deserted = abandoned > 0;
    fb_pipeline_unref_locked(pipeline);
    return abandoned;
}

/* ---- Live setters ---- */

uint64_t fb_pipeline_set_workers(struct fb_pipeline *pipeline, uint64_t workers)
{
    workers = fb_min(workers, FB_WORKERS_MAX);
    if (workers == 0 && !pipeline->has_own) {
        if (fb_worker_state_init(&pipeline->caller_state, pipeline, NULL))
            workers = 1;
        else
            pipeline->has_own = true;
    }
    pthread_mutex_lock(&pipeline->lock);
    pipeline->worker_target = workers;
    pthread_cond_broadcast(&pipeline->work);
    pthread_cond_broadcast(&pipeline->ready); /* with 0, whoever waits in next has to work */
    pthread_mutex_unlock(&pipeline->lock);

    if (fb_workers_grow(pipeline, workers, NULL) == FOREBAY_OK)
        return workers;
    pthread_mutex_lock(&pipeline->lock); /* no memory for all: keep those that started */
    workers = 0;
    while (workers < FB_WORKERS_MAX && pipeline->workers[workers] &&
           !pipeline->workers[workers]->leaving)
        workers++;
    pipeline->worker_target = workers; /* none at all: only after 0, then the caller works on */
    pthread_cond_broadcast(&pipeline->ready);
    pthread_mutex_unlock(&pipeline->lock);
    return workers;
}

uint64_t fb_pipeline_set_prefetch(struct fb_pipeline *pipeline, uint64_t prefetch)
{
    prefetch = fb_max(1, fb_min(prefetch, FB_PREFETCH_MAX));
    pthread_mutex_lock(&pipeline->lock);
    if (prefetch < pipeline->prefetch) /* free slots go back now, those in flight as they come */
        fb_slots_trim_locked(pipeline, 0);
    pipeline->prefetch = prefetch;
    pipeline->held_most = pipeline->held;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    return prefetch;
}

uint64_t fb_pipeline_set_cpu_share(struct fb_pipeline *pipeline, uint64_t running)
{
    pthread_mutex_lock(&pipeline->lock);
    pipeline->cpu_share = running ? running : UINT64_MAX;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    return running;
}

uint64_t fb_pipeline_trim(struct fb_pipeline *pipeline)
{
    uint64_t given;

    pthread_mutex_lock(&pipeline->lock);
    given = fb_slots_trim_locked(pipeline, 0);
    fb_memory_freed_locked(pipeline);
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    return given;
}

uint64_t fb_pipeline_device_trim(struct fb_pipeline *pipeline, uint64_t bytes)
{
    return pipeline->upload ? pipeline->stage->trim(pipeline, bytes) : 0;
}
