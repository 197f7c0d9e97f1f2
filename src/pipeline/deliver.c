#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "memory/block.h"
#include "pipeline/pipeline_internal.h"

static void destroy(struct fb_pipeline *pipeline)
{
    struct fb_budget *budget = pipeline->options.budget;
    uint64_t fields = pipeline->collation.field_count;

    fb_fork_remove(pipeline);
    fb_budget_refund(budget, FB_STAGE_SLOTS, pipeline->slots_paid);
    fb_block_free(budget, FB_STAGE_OTHER, pipeline->measures, fields, sizeof(struct fb_measure));
    fb_block_free(budget, FB_STAGE_OTHER, pipeline->fixed_measures, fields,
                  sizeof(struct fb_measure));
    fb_collation_close(&pipeline->collation);
    if (pipeline->upload)
        pipeline->stage->free(pipeline->upload, pipeline);
    pthread_cond_destroy(&pipeline->work);
    pthread_cond_destroy(&pipeline->ready);
    pthread_mutex_destroy(&pipeline->lock);
    fb_block_free(budget, FB_STAGE_OTHER, pipeline, 1, sizeof(*pipeline));
    fb_budget_free(budget);
}

void fb_pipeline_unref_locked(struct fb_pipeline *pipeline)
{
    bool last = --pipeline->references == 0;

    pthread_mutex_unlock(&pipeline->lock);
    if (last)
        destroy(pipeline);
}

void fb_pipeline_batch_release(forebay_batch *shown)
{
    struct fb_batch *batch = (struct fb_batch *)(void *)shown;
    struct fb_pipeline *pipeline;

    if (!batch)
        return;
    pipeline = batch->pipeline;
    if (pipeline->pid != getpid()) /* a fork's copy: the parent's is the one that counts */
        return;
    if (pipeline->upload)
        pipeline->stage->take_back(pipeline, batch);
    pthread_mutex_lock(&pipeline->lock);
    fb_held_remove_locked(pipeline, batch);
    pipeline->held--;
    pipeline->held_bytes -= batch->bytes;
    fb_slots_give_back_locked(pipeline, batch);
    pthread_cond_signal(&pipeline->work);
    fb_pipeline_unref_locked(pipeline);
}

int fb_pipeline_batch_use_on(forebay_batch *shown, void *stream, forebay_error *error)
{
    struct fb_batch *batch = (struct fb_batch *)(void *)shown;
    const struct fb_pipeline *pipeline = batch->pipeline;

    /* In host memory there is nothing to wait for. */
    return pipeline->upload ? pipeline->stage->use_on(batch, stream, error) : FOREBAY_OK;
}

int fb_pipeline_batch_read(const forebay_batch *shown, const forebay_field *field, void *to,
                           forebay_error *error)
{
    const struct fb_batch *batch = (const struct fb_batch *)(const void *)shown;

    if (batch->pipeline->upload)
        return batch->pipeline->stage->read(batch, field, to, error);
    if (field->bytes)
        memcpy(to, field->data, field->bytes);
    return FOREBAY_OK;
}

/* ---- next ---- */

/* Nothing is held, nothing more can be given back, and still it does not fit: it never will. That
 * is an error of this batch; the next call goes on behind it. */
static void pass_over_locked(struct fb_pipeline *pipeline)
{
    uint64_t count = fb_min(pipeline->batch_size, pipeline->delivered.count - pipeline->delivered.first);

    pipeline->delivered.first += count;
    pipeline->open.first += count; /* the ring is empty: both stand at the same batch */
    pipeline->figures.failed++;
}

static int fail_starved_locked(struct fb_pipeline *pipeline, forebay_error *error)
{
    struct fb_budget_report budget;
    char need[32], limit[32], used[32];

    fb_budget_read(pipeline->options.budget, &budget);
    fb_size_text(pipeline->starved_bytes, need);
    fb_size_text(budget.limit, limit);
    fb_size_text(budget.used, used);
    fb_memory_freed_locked(pipeline); /* the next call tries again */
    pthread_cond_signal(&pipeline->work);
    if (pipeline->held)
        return fb_fail(error, FOREBAY_HELD,
                       "%" PRIu64 " batch%s held and the budget of %s (%s in use) has no room for "
                       "one more of %s; release a batch (in Python: drop it, or keep a .copy()), or "
                       "raise memory.budget", pipeline->held,
                       pipeline->held == 1 ? " is" : "es are", limit, used, need);
    fb_fail(error, FOREBAY_OVER_BUDGET,
            "batch %" PRIu64 " of epoch %" PRIu64 " takes %s, but the budget is %s and %s of it is "
            "in use; raise memory.budget or lower batch.size", pipeline->delivered.first /
            pipeline->batch_size, pipeline->delivered.at.epoch, need, limit, used);
    pass_over_locked(pipeline);
    return FOREBAY_OVER_BUDGET;
}

/* The oldest batch is ready, or there will be none: 0 to go on, else the status to return. */
static int wait_head_locked(struct fb_pipeline *pipeline, uint64_t deadline_ns,
                            forebay_error *error)
{
    struct timespec until = { .tv_sec = (time_t)(deadline_ns / 1000000000u),
                              .tv_nsec = (long)(deadline_ns % 1000000000u) };

    for (;;) {
        bool empty = pipeline->head == pipeline->tail;

        if (pipeline->stopping)
            return fb_fail(error, FOREBAY_STOPPED, "the loader is closed");
        if (!empty && (*fb_ring_at(pipeline, pipeline->head))->ready) {
            struct fb_batch *head = *fb_ring_at(pipeline, pipeline->head);

            if (!pipeline->upload || pipeline->stage->is_over(pipeline, head))
                return FOREBAY_OK;
            if (pipeline->stage->step_locked(pipeline, true))
                continue;
        }
        if (empty && pipeline->starved && !pipeline->opening) {
            if (fb_slots_trim_locked(pipeline, 0) == 0)
                return fail_starved_locked(pipeline, error);
            fb_memory_freed_locked(pipeline);
            pthread_cond_signal(&pipeline->work);
        }
        /* Asked anew each time: another thread may set workers to 0 while we wait. */
        if (pipeline->worker_target == 0 && fb_work_step_locked(pipeline, &pipeline->caller_state))
            continue;
        if (deadline_ns != UINT64_MAX && fb_now_ns() >= deadline_ns) {
            pthread_cond_signal(&pipeline->work); /* what waited for this wait to end */
            return FOREBAY_TIMEOUT;
        }
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&pipeline->ready, &pipeline->lock);
        else
            pthread_cond_timedwait(&pipeline->ready, &pipeline->lock, &until);
    }
}

/* A number is for the whole run, a share for each epoch: what is broken fails in every one. */
static int too_many_errors(struct fb_pipeline *pipeline, forebay_error *error)
{
    const struct fb_failure *first = &pipeline->figures.failures[0];
    bool share = pipeline->options.config->max_errors.is_percent;
    uint64_t failed = share ? fb_figures_epoch_failures(&pipeline->figures)
                            : pipeline->figures.failure_count;

    if (failed <= pipeline->errors_max)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_DATA,
                   "%" PRIu64 " samples %s failed, more than the %" PRIu64
                   " that max_errors allows; the first was sample %" PRIu64 ": %s",
                   failed, share ? "of this epoch" : "in all", pipeline->errors_max, first->sample,
                   first->reason);
}

/* Take the oldest batch off the ring. NULL with status 0: it was passed over, ask again. */
static int pop_locked(struct fb_pipeline *pipeline, struct fb_batch **out, forebay_error *error)
{
    struct fb_batch *batch = *fb_ring_at(pipeline, pipeline->head++);
    int status = FOREBAY_OK;

    pipeline->delivered.first += batch->count;
    fb_figures_batch(&pipeline->figures, batch);
    if (batch->error_at != UINT64_MAX) {
        if (error)
            *error = batch->error;
        status = batch->error.status;
    } else {
        status = too_many_errors(pipeline, error);
    }
    fb_figures_deliver(&pipeline->figures, batch, status);
    *out = NULL;
    if (status || batch->shown.samples == 0)
        fb_slots_give_back_locked(pipeline, batch);
    else
        *out = batch;
    pthread_cond_signal(&pipeline->work);
    return status;
}

static void hand_out_locked(struct fb_pipeline *pipeline, struct fb_batch *batch, uint64_t began_ns)
{
    uint64_t now = fb_now_ns();

    fb_held_add_locked(pipeline, batch);
    if (!pipeline->held || !pipeline->caller)
        pipeline->caller = gettid();
    pipeline->held++;
    pipeline->held_most = fb_max(pipeline->held_most, pipeline->held);
    pipeline->held_bytes += batch->bytes;
    pipeline->references++;
    fb_figures_wait(&pipeline->figures, now - began_ns);
    pipeline->figures.delivered_ns = now;
    if (!pipeline->figures.first_batch_ns)
        pipeline->figures.first_batch_ns = now - pipeline->opened_ns;
}

static int end_epoch_locked(struct fb_pipeline *pipeline)
{
    const struct fb_order *order = pipeline->options.order;

    fb_figures_epoch_end(&pipeline->figures, fb_now_ns());
    pipeline->delivered = fb_epoch_walk_begin(pipeline, fb_order_begin(order, pipeline->delivered.at.epoch + 1));
    return FOREBAY_END;
}

static int next_locked(struct fb_batch **batch, struct fb_pipeline *pipeline, uint64_t deadline_ns,
                       forebay_error *error)
{
    int status = FOREBAY_OK;

    if (pipeline->delivered.at.epoch >= pipeline->epoch_limit) { /* it comes after all */
        pipeline->epoch_limit = pipeline->delivered.at.epoch + 1;
        pthread_cond_signal(&pipeline->work);
    }
    *batch = NULL;
    while (!status && !*batch) {
        if (pipeline->delivered.first >= pipeline->delivered.count)
            return end_epoch_locked(pipeline);
        status = wait_head_locked(pipeline, deadline_ns, error);
        if (!status)
            status = pop_locked(pipeline, batch, error);
    }
    return status;
}

int fb_pipeline_next(forebay_batch **out, struct fb_pipeline *pipeline, uint64_t timeout_ns,
                     forebay_error *error)
{
    uint64_t began = fb_now_ns(), deadline = UINT64_MAX;
    struct fb_batch *batch;
    int status;

    if (pipeline->pid != getpid())
        return fb_fail(error, FOREBAY_FORKED,
                       "this loader was opened by process %d; open one of its own in the child",
                       (int)pipeline->pid);
    if (timeout_ns < UINT64_MAX - began)
        deadline = began + timeout_ns;
    pthread_mutex_lock(&pipeline->lock);
    fb_figures_epoch_begin(&pipeline->figures, pipeline->delivered.at.epoch, began);
    pipeline->figures.waits_since_ns = began;
    status = next_locked(&batch, pipeline, deadline, error);
    pipeline->figures.waits_since_ns = 0;
    if (status == FOREBAY_TIMEOUT)
        pipeline->figures.wait_ns += fb_now_ns() - began; /* it asks again, but waited all the same */
    if (status == FOREBAY_OK) {
        hand_out_locked(pipeline, batch, began);
        if (pipeline->upload) /* the next one, even if all workers are busy */
            pipeline->stage->step_locked(pipeline, false);
    }
    pthread_mutex_unlock(&pipeline->lock);
    if (status)
        return status;
    if (pipeline->upload)
        status = pipeline->stage->hand_out(pipeline, batch, error);
    if (status)
        fb_pipeline_batch_release(&batch->shown);
    else
        *out = &batch->shown;
    return status;
}

/* ---- Where the caller stands ---- */

void fb_pipeline_seek(struct fb_pipeline *pipeline, struct fb_cursor at)
{
    struct fb_cursor now;

    pthread_mutex_lock(&pipeline->lock);
    now = pipeline->delivered.at;
    /* What is in flight is just what is asked for: keep it. */
    if (pipeline->delivered.first == 0 && now.epoch == at.epoch && now.start == at.start &&
        now.world == at.world) {
        pthread_mutex_unlock(&pipeline->lock);
        return;
    }
    fb_work_cancel_locked(pipeline);
    fb_figures_epoch_end(&pipeline->figures, fb_now_ns());
    pipeline->delivered = pipeline->open = fb_epoch_walk_begin(pipeline, at);
    fb_memory_freed_locked(pipeline);
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
}

void fb_pipeline_tell(struct fb_pipeline *pipeline, struct fb_cursor *at, uint64_t *local)
{
    pthread_mutex_lock(&pipeline->lock);
    *at = pipeline->delivered.at;
    *local = pipeline->delivered.first;
    pthread_mutex_unlock(&pipeline->lock);
}
