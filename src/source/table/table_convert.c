/*
 * table_convert.c -- text to the converted file.
 *
 * The shards are cut into chunks of 256 KiB. Each thread takes the next one, guesses that it begins
 * outside of quotes, and parses the rows that begin in it. Then chunks have their turn, in order:
 * if the one before ended where this one began, the guess was right, else (a line end inside
 * quotes) it is parsed again from there. New words get their codes, rows go to the file. So codes,
 * rows, lines in messages and which error is told are the same for any number of threads.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "base/thread.h"
#include "memory/block.h"
#include "memory/host.h"
#include "source/source.h"
#include "source/table/table.h"
#include "source/table/vocabulary.h"

#define THREADS_MAX 16
#define EXACT_CODES ((int32_t)1 << 24) /* f32 tells no more words apart */

struct convert {
    struct fb_table *table;
    struct fb_table_writer *writer;
    struct fb_vocabulary **vocabularies; /* [columns] */
    uint64_t chunk_count;

    pthread_mutex_t lock;
    pthread_cond_t turn_changed;

    /* Guarded by lock: */
    uint64_t taken; /* chunks */
    uint64_t taken_shard, taken_at;
    uint64_t turn; /* the chunk that may write */
    unsigned running;
    uint64_t done_bytes;
    int status;
    forebay_error error;

    /* Of whoever has the turn: */
    uint64_t expected; /* where the next row begins */
    uint64_t lines;    /* of this shard, before it */
};

struct job {
    struct convert *convert;
    struct fb_table_chunk chunk;
    pthread_t thread;
    uint64_t reserved;
    bool open;
    int fd;
    uint64_t shard; /* the one that fd is of; UINT64_MAX: none */
};

/* ---- A chunk's turn ---- */

static int add_words(struct convert *convert, struct fb_table_chunk *chunk, unsigned number,
                     forebay_error *error)
{
    const struct fb_table *table = convert->table;
    uint32_t offset = table->columns[number].offset;

    for (uint64_t r = 0; r < chunk->row_count; r++) {
        char *cell = chunk->rows + r * table->row_bytes + offset;
        int32_t code;
        float small;

        memcpy(&code, cell, sizeof(code));
        if (code < -1) {
            const char *word;
            uint64_t bytes;
            int status;

            fb_table_chunk_word(chunk, code, &word, &bytes);
            status = fb_vocabulary_add(convert->vocabularies[number], word, bytes, &code, error);
            if (!status && table->matrix && code >= EXACT_CODES)
                status = fb_fail(error, FOREBAY_BAD_DATA,
                                 "more than %d words are no exact f32; use "
                                 "source.as: columns",
                                 EXACT_CODES);
            if (status) {
                fb_error_context(error, "column '%s'", table->columns[number].name);
                return status;
            }
        }
        small = (float)code;
        if (table->matrix)
            memcpy(cell, &small, sizeof(small));
        else
            memcpy(cell, &code, sizeof(code));
    }
    return FOREBAY_OK;
}

static int fail_chunk(const struct convert *convert, struct fb_table_chunk *chunk,
                      forebay_error *error)
{
    uint64_t line = convert->lines + chunk->error_line + 1;

    *error = chunk->error;
    if (chunk->status != FOREBAY_BAD_DATA) {
        fb_error_context(error, "'%s'", chunk->shard->path);
    } else if (chunk->error_column) {
        fb_error_context(error, "'%s' line %" PRIu64 ", column '%s'", chunk->shard->path, line,
                         chunk->error_column);
    } else {
        fb_error_context(error, "'%s' line %" PRIu64, chunk->shard->path, line);
    }
    error->place[0] = '\0';
    fb_error_place(error, "%s:%" PRIu64, chunk->shard->path, line);
    return chunk->status;
}

static bool is_widened(const struct fb_table *table)
{
    for (unsigned i = 0; i < table->column_count; i++)
        if (table->columns[i].more)
            return true;
    return false;
}

/* The chunk before ended at convert->expected. */
static int take_turn(struct convert *convert, struct job *job, bool first_of_shard,
                     forebay_error *error)
{
    struct fb_table_chunk *chunk = &job->chunk;
    const struct fb_table *table = convert->table;
    int status = FOREBAY_OK;

    if (first_of_shard) {
        convert->expected = chunk->shard->data_at;
        convert->lines = chunk->shard->lines;
    }
    if (chunk->start != convert->expected)
        fb_table_chunk_parse(chunk, convert->expected, 0);
    if (chunk->status)
        return fail_chunk(convert, chunk, error);
    convert->expected = chunk->end;
    convert->lines += chunk->line_count;
    for (unsigned i = 0; chunk->widened && i < table->column_count; i++)
        convert->table->columns[i].more |= chunk->more[i];
    if (is_widened(table)) /* it will all be done again */
        return FOREBAY_OK;
    for (unsigned i = 0; i < table->column_count && !status; i++)
        if (table->columns[i].type == FB_CELL_CATEGORY)
            status = add_words(convert, chunk, i, error);
    if (!status)
        status = fb_table_writer_add(convert->writer, chunk->rows, chunk->row_count, error);
    return status;
}

/* ---- Threads ---- */

static int open_shard(struct job *job, uint64_t number, forebay_error *error)
{
    const struct fb_table_shard *shard = &job->convert->table->shards[number];

    if (job->shard == number)
        return FOREBAY_OK;
    if (job->fd >= 0)
        close(job->fd);
    job->shard = UINT64_MAX;
    job->fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (job->fd < 0)
        return fb_fail_errno(error, FOREBAY_MISSING, "cannot open '%s'", shard->path);
    job->shard = number;
    return FOREBAY_OK;
}

/* The next chunk: its shard and where it begins. False if there is none. */
static bool take_chunk_locked(struct convert *convert, uint64_t *number, uint64_t *shard,
                              uint64_t *at)
{
    const struct fb_table *table = convert->table;

    if (convert->status || convert->taken == convert->chunk_count)
        return false;
    while (convert->taken_at >= table->shards[convert->taken_shard].bytes) {
        convert->taken_shard++;
        convert->taken_at = 0;
    }
    *number = convert->taken++;
    *shard = convert->taken_shard;
    *at = convert->taken_at;
    convert->taken_at += FB_TABLE_CHUNK_BYTES;
    return true;
}

static void parse_chunk(struct job *job, uint64_t shard, uint64_t at)
{
    struct fb_table_chunk *chunk = &job->chunk;

    chunk->shard = &job->convert->table->shards[shard];
    chunk->limit = at + FB_TABLE_CHUNK_BYTES;
    chunk->start = UINT64_MAX;
    chunk->error_column = NULL;
    chunk->error_line = 0;
    chunk->status = open_shard(job, shard, &chunk->error);
    chunk->fd = job->fd;
    if (chunk->status)
        chunk->start = UINT64_MAX - 1;
    else if (at == 0)
        fb_table_chunk_parse(chunk, chunk->shard->data_at, 0);
    else
        fb_table_chunk_parse(chunk, UINT64_MAX, at);
}

static void end_turn_locked(struct convert *convert, int status, const forebay_error *error,
                            uint64_t bytes)
{
    if (status && !convert->status) {
        convert->status = status;
        convert->error = *error;
    }
    convert->turn++;
    convert->done_bytes += bytes;
    pthread_cond_broadcast(&convert->turn_changed);
}

static void *run_job(void *data)
{
    struct job *job = data;
    struct convert *convert = job->convert;
    uint64_t number, shard, at;

    pthread_mutex_lock(&convert->lock);
    while (take_chunk_locked(convert, &number, &shard, &at)) {
        forebay_error error;
        int status;

        pthread_mutex_unlock(&convert->lock);
        parse_chunk(job, shard, at);
        pthread_mutex_lock(&convert->lock);
        while (convert->turn != number && !convert->status)
            pthread_cond_wait(&convert->turn_changed, &convert->lock);
        if (convert->status)
            break;
        pthread_mutex_unlock(&convert->lock);
        status = job->shard == shard ? take_turn(convert, job, at == 0, &error)
                                     : fail_chunk(convert, &job->chunk, &error);
        pthread_mutex_lock(&convert->lock);
        end_turn_locked(convert, status, &error, FB_TABLE_CHUNK_BYTES);
    }
    convert->running--;
    pthread_cond_broadcast(&convert->turn_changed);
    pthread_mutex_unlock(&convert->lock);
    return NULL;
}

/* Tell how far it is, from the thread that opens, until all are done. */
static void watch(struct convert *convert, const struct fb_log *log)
{
    uint64_t total = convert->chunk_count * FB_TABLE_CHUNK_BYTES;

    pthread_mutex_lock(&convert->lock);
    while (convert->running) {
        struct timespec until;
        forebay_error error;
        uint64_t done = convert->done_bytes;
        int status;

        pthread_mutex_unlock(&convert->lock);
        status = fb_progress(log, "parsing the table", done, total, &error);
        pthread_mutex_lock(&convert->lock);
        if (status && !convert->status) {
            convert->status = status;
            convert->error = error;
            pthread_cond_broadcast(&convert->turn_changed);
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 50 * 1000 * 1000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (convert->running)
            pthread_cond_timedwait(&convert->turn_changed, &convert->lock, &until);
    }
    pthread_mutex_unlock(&convert->lock);
}

static int job_open(struct job *job, struct convert *convert, forebay_error *error)
{
    struct fb_budget *budget = convert->table->budget;
    uint64_t stack = fb_thread_bytes(FB_THREAD_STACK_BYTES);
    int status = fb_budget_reserve(budget, FB_STAGE_SCRATCH, stack, "a thread that parses", error);

    if (status)
        return status;
    *job = (struct job){ .convert = convert, .fd = -1, .shard = UINT64_MAX, .reserved = stack };
    status = fb_table_chunk_open(&job->chunk, convert->table, convert->vocabularies, error);
    if (status) {
        fb_budget_refund(budget, FB_STAGE_SCRATCH, stack);
        return status;
    }
    job->open = true;
    pthread_mutex_lock(&convert->lock);
    convert->running++;
    pthread_mutex_unlock(&convert->lock);
    status = fb_thread_start(&job->thread, run_job, job, "forebay-parse", FB_THREAD_STACK_BYTES, 0,
                             error);
    if (!status)
        return FOREBAY_OK;
    pthread_mutex_lock(&convert->lock);
    convert->running--;
    pthread_mutex_unlock(&convert->lock);
    fb_table_chunk_close(&job->chunk);
    fb_budget_refund(budget, FB_STAGE_SCRATCH, stack);
    job->open = false;
    return status;
}

static void job_close(struct job *job)
{
    if (!job->open)
        return;
    pthread_join(job->thread, NULL);
    if (job->fd >= 0)
        close(job->fd);
    fb_table_chunk_close(&job->chunk);
    fb_budget_refund(job->convert->table->budget, FB_STAGE_SCRATCH, job->reserved);
}

/* With as many threads as there is memory for, at least one. */
static int run_all(struct convert *convert, const struct fb_log *log, forebay_error *error)
{
    uint64_t threads = fb_min(fb_min(fb_host_cpus(), THREADS_MAX), fb_max(1, convert->chunk_count));
    struct job jobs[THREADS_MAX];
    uint64_t started = 0;
    int status = FOREBAY_OK;

    memset(jobs, 0, sizeof(jobs));
    for (; started < threads && !status; started += !status)
        status = job_open(&jobs[started], convert, error);
    if (started)
        watch(convert, log);
    for (uint64_t i = 0; i < started; i++)
        job_close(&jobs[i]);
    if (!started)
        return status;
    if (convert->status && error)
        *error = convert->error;
    return convert->status;
}

/* ---- All of it, once or again with wider types ---- */

#define ROUNDING (64 * FB_KIB) /* blocks to whole pages, and a few small ones */

uint64_t fb_table_convert_bytes(const struct fb_table *table)
{
    uint64_t blocks = 0, rows = table->block_rows * table->row_bytes;

    for (uint64_t i = 0; i < table->shard_count; i++) /* eight bytes are a cell and its delimiter */
        blocks += table->shards[i].bytes / fb_max(1, rows / 8) + 1;
    return fb_thread_bytes(FB_THREAD_STACK_BYTES) + fb_table_chunk_bytes(table) +
           fb_table_writer_bytes(table, blocks) + ROUNDING;
}

static void release_words(struct convert *convert)
{
    unsigned columns = convert->table->column_count;

    for (unsigned i = 0; convert->vocabularies && i < columns; i++)
        fb_vocabulary_free(convert->vocabularies[i]);
    fb_block_free(convert->table->budget, FB_STAGE_INDEX, convert->vocabularies, columns,
                  sizeof(*convert->vocabularies));
}

static int make_words(struct convert *convert, forebay_error *error)
{
    const struct fb_table *table = convert->table;
    struct fb_budget_report report;
    int status = FOREBAY_OK;

    fb_budget_read(table->budget, &report);
    convert->vocabularies = fb_block_new(table->budget, FB_STAGE_INDEX, table->column_count,
                                         sizeof(*convert->vocabularies), "vocabularies", error);
    if (!convert->vocabularies)
        return fb_failed(error);
    for (unsigned i = 0; i < table->column_count && !status; i++)
        if (table->columns[i].type == FB_CELL_CATEGORY) {
            status = fb_vocabulary_new(&convert->vocabularies[i], report.limit / 16, table->budget,
                                       error);
            if (status)
                fb_error_context(error, "column '%s'", table->columns[i].name);
        }
    return status;
}

static uint64_t count_chunks(const struct fb_table *table)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < table->shard_count; i++)
        count += (table->shards[i].bytes + FB_TABLE_CHUNK_BYTES - 1) / FB_TABLE_CHUNK_BYTES;
    return count;
}

static int convert_once(struct fb_table *table, const char *path, const struct fb_log *log,
                        forebay_error *error)
{
    struct convert convert = { .table = table, .chunk_count = count_chunks(table) };
    int status;

    pthread_mutex_init(&convert.lock, NULL);
    pthread_cond_init(&convert.turn_changed, NULL);
    status = make_words(&convert, error);
    if (!status)
        status = fb_table_writer_open(&convert.writer, path, table, error);
    if (!status)
        status = run_all(&convert, log, error);
    if (!status && !is_widened(table))
        status = fb_table_writer_finish(convert.writer, convert.vocabularies, error);
    fb_table_writer_close(convert.writer);
    release_words(&convert);
    pthread_cond_destroy(&convert.turn_changed);
    pthread_mutex_destroy(&convert.lock);
    return status;
}

/* The types that take what was seen, too; false if they are the same as before. */
static bool widen_types(struct fb_table *table, const struct fb_log *log)
{
    bool changed = false;

    for (unsigned i = 0; i < table->column_count; i++) {
        struct fb_table_column *column = &table->columns[i];
        uint8_t before = column->type;

        if (!column->more)
            continue;
        column->seen |= column->more;
        column->more = 0;
        column->type = fb_table_type_of(column->seen);
        changed |= column->type != before;
        fb_say(log, "column '%s' turned out to be %s, not %s: parsing again", column->name,
               fb_cell_names[column->type], fb_cell_names[before]);
    }
    return changed;
}

int fb_table_convert(struct fb_table *table, const char *path, const struct fb_log *log,
                     forebay_error *error)
{
    for (;;) { /* each time some column has seen more: at most eight times per column */
        int status = convert_once(table, path, log, error);

        if (status || !is_widened(table))
            return status;
        if (!widen_types(table, log))
            return fb_fail(error, FOREBAY_BAD_DATA, "'%s': no type takes all of a column",
                           table->shards[0].path);
        fb_table_lay_out(table);
    }
}
