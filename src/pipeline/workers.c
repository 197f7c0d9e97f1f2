#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/thread.h"
#include "memory/block.h"
#include "pipeline/pipeline_internal.h"

static uint64_t chunk_bytes(const struct fb_pipeline *pipeline)
{
    return fb_fetch_chunk_bytes(pipeline->options.source, &pipeline->collation,
                                pipeline->options.cache != NULL);
}

/* Stack, reader, libraries: memory that others allocate for a worker. */
static uint64_t outside_bytes(const struct fb_source *source)
{
    return sizeof(struct fb_worker) + fb_thread_bytes(FB_THREAD_STACK_BYTES) + FB_READER_BYTES +
           source->library_bytes;
}

static uint64_t mapped_or_none(uint64_t bytes)
{
    return bytes ? fb_map_bytes(bytes) : 0;
}

/* Scratch of the source, chunk and list of parts: mapped by us. */
static uint64_t inside_bytes(const struct fb_source *source, uint64_t chunk)
{
    return mapped_or_none(source->scratch_bytes) + mapped_or_none(chunk) +
           fb_map_bytes(source->parts_max * sizeof(struct fb_part));
}

uint64_t fb_pipeline_scratch_bytes(const struct fb_source *source,
                                   const struct fb_collation *collation, bool cached)
{
    return inside_bytes(source, fb_fetch_chunk_bytes(source, collation, cached));
}

uint64_t fb_pipeline_worker_bytes(const struct fb_source *source,
                                  const struct fb_collation *collation, bool cached)
{
    return outside_bytes(source) + fb_pipeline_scratch_bytes(source, collation, cached);
}

static int map_scratch(struct fb_scratch *scratch, uint64_t bytes, forebay_error *error)
{
    if (bytes == 0)
        return FOREBAY_OK;
    scratch->memory = fb_map_reserved(bytes, error);
    scratch->bytes = scratch->memory ? bytes : 0;
    return scratch->memory ? FOREBAY_OK : FOREBAY_NO_MEMORY;
}

static int worker_state_fill(struct fb_worker_state *state, struct fb_pipeline *pipeline, forebay_error *error)
{
    const struct fb_source *source = pipeline->options.source;
    struct fb_reader_options options = { .direct = pipeline->options.config->source_direct,
                                         .log = &pipeline->log };
    int status = fb_reader_new(&state->reader, &options, error);

    if (!status)
        status = map_scratch(&state->scratch, source->scratch_bytes, error);
    if (!status)
        status = map_scratch(&state->chunk, chunk_bytes(pipeline), error);
    if (status)
        return status;
    state->parts = fb_map_reserved(source->parts_max * sizeof(struct fb_part), error);
    return state->parts ? FOREBAY_OK : FOREBAY_NO_MEMORY;
}

int fb_worker_state_init(struct fb_worker_state *state, struct fb_pipeline *pipeline, forebay_error *error)
{
    const struct fb_source *source = pipeline->options.source;
    struct fb_budget *budget = pipeline->options.budget;
    uint64_t outside = outside_bytes(source), inside = inside_bytes(source, chunk_bytes(pipeline));
    int status = fb_budget_reserve(budget, FB_STAGE_WORKERS, outside, "a worker", error);

    if (status)
        return status;
    status = fb_budget_reserve(budget, FB_STAGE_SCRATCH, inside, "a worker's scratch", error);
    if (status) {
        fb_budget_refund(budget, FB_STAGE_WORKERS, outside);
        return status;
    }
    *state = (struct fb_worker_state){ .reader = NULL };
    status = worker_state_fill(state, pipeline, error);
    if (status)
        fb_worker_state_release(state, pipeline);
    return status;
}

void fb_worker_state_release(struct fb_worker_state *state, struct fb_pipeline *pipeline)
{
    const struct fb_source *source = pipeline->options.source;
    struct fb_budget *budget = pipeline->options.budget;

    if (state->reader)
        fb_reader_free(state->reader);
    fb_unmap_reserved(state->scratch.memory, state->scratch.bytes);
    fb_unmap_reserved(state->chunk.memory, state->chunk.bytes);
    fb_unmap_reserved(state->parts, source->parts_max * sizeof(struct fb_part));
    fb_budget_refund(budget, FB_STAGE_SCRATCH, inside_bytes(source, chunk_bytes(pipeline)));
    fb_budget_refund(budget, FB_STAGE_WORKERS, outside_bytes(source));
}

static bool leaves_locked(const struct fb_worker *worker)
{
    const struct fb_pipeline *pipeline = worker->pipeline;

    return pipeline->stopping || worker->number >= pipeline->worker_target;
}

/* A worker that close did not wait for is back, and the last one tidies up. */
static void come_back(struct fb_worker *worker)
{
    struct fb_pipeline *pipeline = worker->pipeline;
    void (*left)(void *owner) = pipeline->options.left;
    void *owner = pipeline->options.owner;
    bool last;

    free(worker);
    pthread_mutex_lock(&pipeline->lock);
    last = --pipeline->missing == 0 && pipeline->deserted;
    fb_pipeline_unref_locked(pipeline);
    if (last && left)
        left(owner);
}

static void *worker_main(void *argument)
{
    struct fb_worker *worker = argument;
    struct fb_pipeline *pipeline = worker->pipeline;
    bool abandoned;

    pthread_mutex_lock(&pipeline->lock);
    while (!leaves_locked(worker)) {
        worker->doing = FB_WORKER_DECODES;
        if (!fb_work_step_locked(pipeline, &worker->state)) {
            worker->doing = FB_WORKER_WAITS;
            pthread_cond_wait(&pipeline->work, &pipeline->lock);
        }
    }
    /* From here on it only tidies up: whoever wants its place joins it. */
    worker->leaving = true;
    pipeline->worker_count--;
    abandoned = worker->abandoned;
    /* What it opened or began last may be the caller's to finish, if no worker is to stay. */
    pthread_cond_broadcast(&pipeline->ready);
    pthread_mutex_unlock(&pipeline->lock);

    fb_worker_state_release(&worker->state, pipeline);
    if (abandoned) /* nobody joins it any more */
        come_back(worker);
    return NULL;
}

static int start_worker(struct fb_pipeline *pipeline, unsigned number, forebay_error *error)
{
    struct fb_worker *worker = calloc(1, sizeof(*worker));
    char name[16];
    int status;

    if (!worker)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a worker");
    *worker = (struct fb_worker){ .pipeline = pipeline, .number = number };
    status = fb_worker_state_init(&worker->state, pipeline, error);
    if (status)
        goto fail;
    snprintf(name, sizeof(name), "forebay-%u", number);
    pthread_mutex_lock(&pipeline->lock);
    pipeline->workers[number] = worker;
    pipeline->worker_count++;
    pthread_mutex_unlock(&pipeline->lock);
    status = fb_thread_start(&worker->thread, worker_main, worker, name, FB_THREAD_STACK_BYTES,
                             pipeline->nice, error);
    if (!status)
        return FOREBAY_OK;
    pthread_mutex_lock(&pipeline->lock);
    pipeline->workers[number] = NULL;
    pipeline->worker_count--;
    pthread_mutex_unlock(&pipeline->lock);
    fb_worker_state_release(&worker->state, pipeline);
fail:
    free(worker);
    return status;
}

/* ---- What they do ---- */

unsigned fb_pipeline_read_workers(struct fb_pipeline *pipeline, unsigned char *doing, unsigned max)
{
    unsigned count = 0;

    pthread_mutex_lock(&pipeline->lock);
    for (unsigned i = 0; i < FB_WORKERS_MAX && count < max; i++) {
        const struct fb_worker *worker = pipeline->workers[i];

        if (!worker || worker->leaving)
            continue;
        doing[count] = (unsigned char)worker->doing;
        if (fb_reader_busy_since_ns(worker->state.reader))
            doing[count] = FB_WORKER_READS;
        count++;
    }
    pthread_mutex_unlock(&pipeline->lock);
    return count;
}

void fb_pipeline_check_slow(struct fb_pipeline *pipeline)
{
    for (unsigned i = 0; i < FB_WORKERS_MAX; i++) {
        char path[256] = "";
        uint64_t since = 0;
        bool slow = false;

        pthread_mutex_lock(&pipeline->lock);
        if (pipeline->workers[i] && !pipeline->workers[i]->leaving) {
            struct fb_reader *reader = pipeline->workers[i]->state.reader;

            since = fb_reader_busy_since_ns(reader);
            slow = since && fb_reader_busy_path(reader, path, sizeof(path)) &&
                   fb_reader_check_slow(reader, NULL);
        }
        pthread_mutex_unlock(&pipeline->lock);
        if (slow) /* said without the lock, as everything is */
            fb_warn(&pipeline->log, "worker %u: a read of '%s' takes long: %llu s so far; is its "
                    "disk or server in trouble?", i, path,
                    (unsigned long long)((fb_now_ns() - since) / 1000000000u));
    }
}

/* Places whose thread leaves are joined and free again. */
void fb_workers_reap(struct fb_pipeline *pipeline)
{
    for (unsigned i = 0; i < FB_WORKERS_MAX; i++) {
        struct fb_worker *worker;

        pthread_mutex_lock(&pipeline->lock);
        worker = pipeline->workers[i];
        if (worker && worker->leaving)
            pipeline->workers[i] = NULL;
        else
            worker = NULL;
        pthread_mutex_unlock(&pipeline->lock);
        if (!worker)
            continue;
        pthread_join(worker->thread, NULL);
        free(worker);
    }
}

int fb_workers_grow(struct fb_pipeline *pipeline, uint64_t target, forebay_error *error)
{
    int status = FOREBAY_OK;

    fb_workers_reap(pipeline);
    for (unsigned i = 0; i < target && !status; i++) {
        bool there;

        pthread_mutex_lock(&pipeline->lock);
        there = pipeline->workers[i] && !pipeline->workers[i]->leaving;
        pthread_mutex_unlock(&pipeline->lock);
        if (!there)
            status = start_worker(pipeline, i, error);
    }
    return status;
}

/* Wait for one thread until the deadline; false if it is stuck. */
static bool join_until(pthread_t thread, uint64_t deadline_ns)
{
    uint64_t now = fb_now_ns();
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until); /* pthread_timedjoin_np knows no other clock */
    if (deadline_ns > now) {
        uint64_t left = deadline_ns - now + (uint64_t)until.tv_nsec;

        until.tv_sec += (time_t)(left / 1000000000u);
        until.tv_nsec = (long)(left % 1000000000u);
    }
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

static void abandon_locked(struct fb_pipeline *pipeline, struct fb_worker *worker)
{
    worker->abandoned = true;
    pipeline->references++;
    pipeline->abandoned++;
    pipeline->missing++;
    pthread_detach(worker->thread);
}

void fb_workers_stop(struct fb_pipeline *pipeline, uint64_t deadline_ns)
{
    for (unsigned i = 0; i < FB_WORKERS_MAX; i++) {
        struct fb_worker *worker = pipeline->workers[i];

        if (!worker)
            continue;
        if (!join_until(worker->thread, deadline_ns)) {
            pthread_mutex_lock(&pipeline->lock);
            if (!worker->leaving) {
                abandon_locked(pipeline, worker);
                worker = NULL;
            }
            pthread_mutex_unlock(&pipeline->lock);
            if (worker) /* it ended just now */
                pthread_join(worker->thread, NULL);
        }
        free(worker);
        pipeline->workers[i] = NULL;
    }
}
