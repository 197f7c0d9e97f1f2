#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/size.h"
#include "base/thread.h"
#include "memory/block.h"
#include "pack/pack_inside.h"

#define JOBS 64                 /* groups handed out and not yet done */
#define THREADS_MAX 64
#define WAIT_NS 100000000       /* how often a waiting main thread tells how far it is */

/* A shard that is being written. */
struct shard_file {
    uint64_t number;
    int fd;
    uint64_t left; /* groups that are not written yet; under the pool's lock */
    uint32_t crc;  /* of those that are, each as if only zeros followed; under the pool's lock */
};

struct job {
    enum { JOB_FREE, JOB_READY, JOB_BUSY } state;
    struct shard_file *shard;
    uint64_t offset, bytes; /* in the shard */
    struct fb_pack_group group;
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    bool started;
    struct fb_pack_hands hands;
};

/*
 * The main thread puts jobs in, workers take them out in the same order, each writes its group at
 * the place that was planned for it. `lock` guards the states of jobs, what is left of shards, and
 * the first failure; nothing is read or written while it is held.
 */
struct pool {
    struct fb_pack_plan *plan;
    const struct fb_log *log;
    struct fb_pack_need need;
    struct fb_part *parts; /* JOBS x parts_max */
    unsigned thread_count;
    struct worker workers[THREADS_MAX];
    struct shard_file files[JOBS];
    _Atomic uint64_t written;

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct job jobs[JOBS];
    uint64_t put, taken; /* jobs so far */
    bool stop;
    int status;
    forebay_error error;
};

/* ---- Workers ---- */

/* The checksum of a piece with `behind` zero bytes after it: those of all pieces, xored, are that
 * of the whole. */
static uint32_t crc_behind(uLong crc, uint64_t behind)
{
    return (uint32_t)crc32_combine64(crc, 0, (z_off64_t)behind);
}

static struct job *job_take_locked(struct pool *pool)
{
    while (!pool->stop && pool->taken == pool->put)
        pthread_cond_wait(&pool->work, &pool->lock);
    if (pool->stop)
        return NULL;
    pool->jobs[pool->taken % JOBS].state = JOB_BUSY;
    return &pool->jobs[pool->taken++ % JOBS];
}

static void fail_locked(struct pool *pool, int status, const forebay_error *error)
{
    if (!pool->status) {
        pool->status = status;
        pool->error = *error;
    }
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
}

static int job_do(struct worker *worker, const struct job *job, uint32_t *crc,
                  forebay_error *error)
{
    const struct fb_pack_plan *plan = worker->pool->plan;
    uint64_t end = job->offset + job->bytes;
    char path[PATH_MAX];
    int status;

    fb_pack_shard_path(plan, job->shard->number, ".tmp", path);
    worker->hands.path = path;
    worker->hands.fd = job->shard->fd;
    status = fb_pack_put_group(&worker->hands, &job->group, job->offset, job->bytes, error);
    if (!status)
        *crc = crc_behind(worker->hands.crc, plan->shards[job->shard->number].bytes - end);
    return status;
}

static void *work(void *data)
{
    struct worker *worker = data;
    struct pool *pool = worker->pool;
    forebay_error error;
    struct job *job;

    pthread_mutex_lock(&pool->lock);
    while ((job = job_take_locked(pool))) {
        uint32_t crc = 0;
        int status;

        pthread_mutex_unlock(&pool->lock);
        status = job_do(worker, job, &crc, &error);
        pthread_mutex_lock(&pool->lock);
        job->state = JOB_FREE;
        job->shard->crc ^= crc;
        /* A shard that lacks a group is never whole. */
        if (status)
            fail_locked(pool, status, &error);
        else
            job->shard->left--;
        pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- Shards ---- */

static int shard_open(struct pool *pool, uint64_t number, struct shard_file *file,
                      forebay_error *error)
{
    const struct fb_pack_shard *shard = &pool->plan->shards[number];
    char path[PATH_MAX];
    int fd;

    fb_pack_shard_path(pool->plan, number, ".tmp", path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return fb_pack_write_failed(path, error);
    /* Better to learn now that the disk has no room. Some file systems cannot tell. */
    if (fallocate(fd, 0, 0, (off_t)shard->bytes) != 0 && (errno == ENOSPC || errno == EDQUOT)) {
        fb_pack_write_failed(path, error);
        close(fd);
        unlink(path);
        return FOREBAY_IO;
    }
    *file = (struct shard_file){ .number = number, .fd = fd, .left = shard->groups };
    return FOREBAY_OK;
}

static int shard_finish(struct pool *pool, struct shard_file *file, int journal,
                        forebay_error *error)
{
    static const char zeros[FB_TAR_END_BYTES];
    struct fb_pack_shard *shard = &pool->plan->shards[file->number];
    char temporary[PATH_MAX], path[PATH_MAX];
    uLong crc = crc32(crc32(0, NULL, 0), (const Bytef *)zeros, FB_TAR_END_BYTES);
    bool good;

    fb_pack_shard_path(pool->plan, file->number, ".tmp", temporary);
    fb_pack_shard_path(pool->plan, file->number, "", path);
    good = pwrite(file->fd, zeros, sizeof(zeros), (off_t)(shard->bytes - sizeof(zeros))) ==
               (ssize_t)sizeof(zeros) &&
           fdatasync(file->fd) == 0;
    good = close(file->fd) == 0 && good;
    file->fd = -1;
    if (!good || rename(temporary, path) != 0) {
        fb_pack_write_failed(path, error);
        unlink(temporary);
        return FOREBAY_IO;
    }
    shard->crc = file->crc ^ (uint32_t)crc;
    shard->whole = true;
    return fb_pack_journal_add(pool->plan, journal, file->number, error);
}

/* Give every shard that is all written its name. */
static int shards_finish(struct pool *pool, int journal, forebay_error *error)
{
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < JOBS && !status; i++) {
        bool whole;

        pthread_mutex_lock(&pool->lock);
        whole = pool->files[i].fd >= 0 && pool->files[i].left == 0;
        pthread_mutex_unlock(&pool->lock);
        if (whole)
            status = shard_finish(pool, &pool->files[i], journal, error);
    }
    return status;
}

/* ---- The main thread ---- */

/* Wait a moment for a worker to be done with something; tell how far it is. */
static int wait_a_moment(struct pool *pool, int journal, forebay_error *error)
{
    struct timespec until;
    int status;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&pool->lock);
    if (!pool->stop)
        pthread_cond_timedwait(&pool->done, &pool->lock, &until);
    status = pool->status;
    if (status)
        *error = pool->error;
    pthread_mutex_unlock(&pool->lock);
    if (!status)
        status = shards_finish(pool, journal, error);
    return status ? status : fb_progress(pool->log, "packing", atomic_load(&pool->written),
                                         pool->plan->bytes, error);
}

static bool job_is_free(struct pool *pool)
{
    bool is_free;

    pthread_mutex_lock(&pool->lock);
    is_free = pool->jobs[pool->put % JOBS].state == JOB_FREE;
    pthread_mutex_unlock(&pool->lock);
    return is_free;
}

static void job_put(struct pool *pool, struct shard_file *file, uint64_t offset, uint64_t bytes,
                    const struct fb_pack_group *group)
{
    uint64_t slot = pool->put % JOBS;
    struct fb_part *parts = pool->parts + slot * pool->plan->source->parts_max;

    memcpy(parts, group->parts, group->count * sizeof(*parts));
    pthread_mutex_lock(&pool->lock);
    pool->jobs[slot] = (struct job){ .state = JOB_READY, .shard = file, .offset = offset,
                                     .bytes = bytes, .group = *group };
    pool->jobs[slot].group.parts = parts;
    pool->put++;
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

/* A file that is not in use; there are as many as jobs, so there is one before long. */
static int file_find(struct pool *pool, struct shard_file **out, int journal, forebay_error *error)
{
    int status = FOREBAY_OK;

    for (*out = NULL; !status;) {
        for (unsigned i = 0; i < JOBS; i++)
            if (pool->files[i].fd < 0) {
                *out = &pool->files[i];
                return FOREBAY_OK;
            }
        status = wait_a_moment(pool, journal, error);
    }
    return status;
}

/* Put all groups of shards that are not whole yet. */
static int jobs_put(struct pool *pool, int journal, forebay_error *error)
{
    struct fb_pack_plan *plan = pool->plan;
    struct shard_file *file = NULL;
    struct fb_pack_group group;
    uint64_t number = 0, offset = 0, bytes;
    int status = FOREBAY_OK;

    fb_pack_walk_rewind(&plan->walk);
    while (!status && fb_pack_walk_next(&plan->walk, &group) == FOREBAY_OK) {
        while (group.number >= plan->shards[number].first_group + plan->shards[number].groups) {
            number++;
            file = NULL;
        }
        if (plan->shards[number].whole && !file)
            continue;
        if (!file) {
            offset = 0;
            if ((status = file_find(pool, &file, journal, error)) ||
                (status = shard_open(pool, number, file, error)))
                break;
        }
        while (!status && !job_is_free(pool))
            status = wait_a_moment(pool, journal, error);
        if (!status)
            status = fb_pack_group_bytes(plan, &group, &bytes, error);
        if (!status) {
            job_put(pool, file, offset, bytes, &group);
            offset += bytes;
        }
    }
    return status;
}

static bool files_are_open(const struct pool *pool)
{
    for (unsigned i = 0; i < JOBS; i++)
        if (pool->files[i].fd >= 0)
            return true;
    return false;
}

/* ---- Open and close ---- */

static int threads_choose(struct pool *pool, forebay_error *error)
{
    struct fb_budget_report now;
    uint64_t want = fb_max(1, fb_min(pool->plan->options->threads, THREADS_MAX)), fit;
    char a[32], b[32];

    fb_budget_read(pool->plan->budget, &now);
    fit = (now.limit - fb_min(now.limit, now.used)) / pool->need.per_worker;
    if (fit == 0)
        return fb_fail(error, FOREBAY_OVER_BUDGET, "one worker needs %s for the largest unit, and "
                       "%s of the budget are left; raise memory.budget to %" PRIu64,
                       fb_size_text(pool->need.per_worker, a),
                       fb_size_text(now.limit - fb_min(now.limit, now.used), b),
                       now.used + pool->need.per_worker);
    pool->thread_count = (unsigned)fb_min(want, fit);
    return FOREBAY_OK;
}

static int worker_start(struct pool *pool, struct worker *worker, forebay_error *error)
{
    int status = fb_pack_hands_open(&worker->hands, pool->plan, &pool->need, &pool->written,
                                    pool->log, error);

    worker->pool = pool;
    if (!status)
        status = fb_thread_start(&worker->thread, work, worker, "forebay-pack",
                                 FB_THREAD_STACK_BYTES, 0, error);
    worker->started = !status;
    return status;
}

static int pool_open(struct pool *pool, forebay_error *error)
{
    pthread_condattr_t monotonic;
    int status;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (unsigned i = 0; i < JOBS; i++)
        pool->files[i].fd = -1;
    for (uint64_t i = 0; i < pool->plan->shard_count; i++)
        if (pool->plan->shards[i].whole)
            pool->written += pool->plan->shards[i].bytes;
    pool->parts = fb_block_new(pool->plan->budget, FB_STAGE_OTHER,
                               JOBS * (uint64_t)pool->plan->source->parts_max,
                               sizeof(*pool->parts), "jobs", error);
    fb_pack_need(&pool->need, pool->plan);
    status = pool->parts ? threads_choose(pool, error) : error->status;
    for (unsigned i = 0; i < pool->thread_count && !status; i++)
        status = worker_start(pool, &pool->workers[i], error);
    return status;
}

/* No half file is left, whatever happened. */
static void pool_close(struct pool *pool)
{
    char path[PATH_MAX];

    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->thread_count; i++) {
        if (pool->workers[i].started)
            pthread_join(pool->workers[i].thread, NULL);
        fb_pack_hands_close(&pool->workers[i].hands);
    }
    for (unsigned i = 0; i < JOBS; i++)
        if (pool->files[i].fd >= 0) {
            close(pool->files[i].fd);
            fb_pack_shard_path(pool->plan, pool->files[i].number, ".tmp", path);
            unlink(path);
        }
    fb_block_free(pool->plan->budget, FB_STAGE_OTHER, pool->parts,
                  JOBS * (uint64_t)pool->plan->source->parts_max, sizeof(*pool->parts));
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
}

static bool is_idle_locked(const struct pool *pool)
{
    for (unsigned i = 0; i < JOBS; i++)
        if (pool->jobs[i].state != JOB_FREE)
            return false;
    return true;
}

/* It ends early: what was handed out is still done, so that shards that lack nothing are kept. */
static void drain(struct pool *pool, int journal)
{
    forebay_error ignored;

    pthread_mutex_lock(&pool->lock);
    while (!pool->stop && !is_idle_locked(pool))
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    shards_finish(pool, journal, &ignored);
}

int fb_pack_write(struct fb_pack_plan *plan, int journal, uint64_t *threads,
                  const struct fb_log *log, forebay_error *error)
{
    struct pool *pool = fb_block_new(plan->budget, FB_STAGE_OTHER, 1, sizeof(*pool), "workers",
                                     error);
    int status;

    if (!pool)
        return error->status;
    pool->plan = plan;
    pool->log = log;
    status = pool_open(pool, error);
    if (!status)
        status = jobs_put(pool, journal, error);
    while (!status && files_are_open(pool))
        status = wait_a_moment(pool, journal, error);
    *threads = pool->thread_count;
    if (status)
        drain(pool, journal);
    pool_close(pool);
    fb_block_free(plan->budget, FB_STAGE_OTHER, pool, 1, sizeof(*pool));
    return status;
}
