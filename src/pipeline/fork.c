/*
 * fork.c -- what a fork takes along: the batches the caller holds, and nothing else of ours.
 *
 * Slots are mapped so that a child does not get them. Those the caller holds at the moment of a fork
 * are lent to the child just then: madvise takes the lock that page faults take, so to do this for
 * each batch would make every hand-over wait for whoever faults a slot in.
 */
#include <unistd.h>

#include "memory/block.h"
#include "pipeline/pipeline_internal.h"

/* Every pipeline of the process, so that a fork finds them. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fb_pipeline *all;

static void lend_held_locked(const struct fb_pipeline *pipeline, bool lend)
{
    if (pipeline->upload || pipeline->pid != getpid())
        return;
    for (const struct fb_batch *batch = pipeline->held_first; batch; batch = batch->next)
        fb_map_inherit(batch->memory, batch->capacity, lend);
}

static void before_fork(void)
{
    pthread_mutex_lock(&all_lock);
    for (struct fb_pipeline *pipeline = all; pipeline; pipeline = pipeline->next) {
        pthread_mutex_lock(&pipeline->lock);
        lend_held_locked(pipeline, true);
    }
}

static void in_parent(void)
{
    for (struct fb_pipeline *pipeline = all; pipeline; pipeline = pipeline->next) {
        lend_held_locked(pipeline, false);
        pthread_mutex_unlock(&pipeline->lock);
    }
    pthread_mutex_unlock(&all_lock);
}

/* What it has lent, the child keeps. */
static void in_child(void)
{
    for (struct fb_pipeline *pipeline = all; pipeline; pipeline = pipeline->next)
        pthread_mutex_unlock(&pipeline->lock);
    pthread_mutex_unlock(&all_lock);
}

static void prepare_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

void fb_fork_add(struct fb_pipeline *pipeline)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, prepare_forks);
    pthread_mutex_lock(&all_lock);
    pipeline->next = all;
    all = pipeline;
    pthread_mutex_unlock(&all_lock);
}

void fb_fork_remove(struct fb_pipeline *pipeline)
{
    pthread_mutex_lock(&all_lock);
    for (struct fb_pipeline **link = &all; *link; link = &(*link)->next)
        if (*link == pipeline) {
            *link = pipeline->next;
            break;
        }
    pthread_mutex_unlock(&all_lock);
}

void fb_held_add_locked(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    batch->previous = NULL;
    batch->next = pipeline->held_first;
    if (batch->next)
        batch->next->previous = batch;
    pipeline->held_first = batch;
}

void fb_held_remove_locked(struct fb_pipeline *pipeline, struct fb_batch *batch)
{
    if (batch->next)
        batch->next->previous = batch->previous;
    if (batch->previous)
        batch->previous->next = batch->next;
    else
        pipeline->held_first = batch->next;
}
