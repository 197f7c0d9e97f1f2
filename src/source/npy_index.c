#include "source/npy_index.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/source.h"

#define SCAN_THREADS 4      /* headers are waited for, not computed */
#define SCAN_STACK ((uint64_t)256 * 1024)
#define FEW 256             /* headers that are not worth a thread */
#define TELL_NS ((uint64_t)100 * 1000 * 1000)

/* Headers of one field, read by several threads; each takes the next file. */
struct scan {
    struct fb_npy_index *index;
    const struct fb_log *log;
    _Atomic uint64_t next;
    _Atomic bool stop;

    pthread_mutex_t lock;
    /* Guarded by lock: */
    int status; /* the first failure that is not the data's own */
    forebay_error error;
};

static bool alike(const struct fb_npy *one, const struct fb_npy *two)
{
    if (one->dtype != two->dtype || one->ndim != two->ndim)
        return false;
    for (unsigned i = 1; i < one->ndim; i++)
        if (one->shape[i] != two->shape[i])
            return false;
    return true;
}

int fb_npy_index_check(const struct fb_npy_index *index, const struct fb_npy *npy,
                       const char *path, forebay_error *error)
{
    char one[256], two[256], place[320];

    if (alike(&index->first, npy))
        return FOREBAY_OK;
    fb_files_place(index->files, index->first_number, place, sizeof(place));
    return fb_fail(error, FOREBAY_BAD_DATA, "'%s' is %s where '%s' is %s: only the first dimension "
                   "may differ", path, fb_npy_text(npy, one), place,
                   fb_npy_text(&index->first, two));
}

uint64_t fb_npy_index_rows(const struct fb_npy_index *index, uint64_t number)
{
    if (index->files->file[number].fault)
        return FB_NPY_BROKEN;
    return index->rows ? index->rows[number] : fb_npy_rows(&index->first);
}

static int open_at(const struct fb_npy_index *index, uint64_t number, struct fb_array *array,
                   char *path, void *work, forebay_error *error)
{
    fb_files_path(index->files, number, path, FB_PATH_BYTES);
    return fb_array_open(array, path, index->member, NULL, FB_NPY_HEADER_USUAL, work, error);
}

/* The facts of one more file that is whole. */
static void count_in(struct fb_npy_index *index, const struct fb_npy *npy, bool deflated,
                     uint64_t files)
{
    index->bytes_max = fb_max(index->bytes_max, npy->data_bytes);
    index->bytes_total += npy->data_bytes * files;
    index->turned |= npy->fortran;
    index->swapped |= npy->swapped;
    index->deflated |= deflated;
    if (npy->fortran)
        index->turned_bytes = fb_max(index->turned_bytes, npy->data_bytes);
    index->uniform &= fb_npy_rows(npy) == fb_npy_rows(&index->first);
}

/* The first header that can be read; what cannot is skipped, as long as that is the data's fault.
 */
static int find_first(struct fb_npy_index *index, void *work, forebay_error *error)
{
    char path[FB_PATH_BYTES];
    int first_status = FOREBAY_OK;

    for (uint64_t i = 0; i < index->files->count; i++) {
        struct fb_array array;
        forebay_error failure;
        int status = open_at(index, i, &array, path, work, &failure);

        if (!status) {
            index->first = array.npy;
            index->first_number = i;
            index->deflated = array.deflated;
            fb_array_close(&array);
            return FOREBAY_OK;
        }
        if (!first_status || !fb_status_is_data(status)) {
            first_status = status;
            if (error)
                *error = failure;
        }
        if (!fb_status_is_data(status))
            return status;
    }
    fb_error_context(error, "none of %llu files can be read; the first",
                     (unsigned long long)index->files->count);
    return first_status;
}

static void note_failure(struct scan *scan, int status, const forebay_error *error)
{
    pthread_mutex_lock(&scan->lock);
    if (!scan->status) {
        scan->status = status;
        scan->error = *error;
    }
    pthread_mutex_unlock(&scan->lock);
    scan->stop = true;
}

static void scan_one(struct scan *scan, uint64_t number, void *work)
{
    struct fb_npy_index *index = scan->index;
    struct fb_array array;
    forebay_error error = { .status = FOREBAY_OK };
    char path[FB_PATH_BYTES];
    int status = open_at(index, number, &array, path, work, &error);

    if (status && !fb_status_is_data(status)) {
        note_failure(scan, status, &error);
        return;
    }
    index->rows[number] = FB_NPY_BROKEN;
    if (status)
        return;
    if (alike(&index->first, &array.npy)) {
        index->rows[number] = fb_npy_rows(&array.npy);
        pthread_mutex_lock(&scan->lock);
        count_in(index, &array.npy, array.deflated, 1);
        pthread_mutex_unlock(&scan->lock);
    }
    fb_array_close(&array);
}

/* Take files until there are none; `told` is for the one thread that may tell progress. */
static void scan_many(struct scan *scan, void *work, bool tells)
{
    uint64_t count = scan->index->files->count, told_ns = fb_now_ns(), number;
    forebay_error error;

    while (!scan->stop && (number = scan->next++) < count) {
        scan_one(scan, number, work);
        if (tells && fb_now_ns() - told_ns >= TELL_NS) {
            told_ns = fb_now_ns();
            if (fb_progress(scan->log, "reading headers", number, count, &error))
                note_failure(scan, FOREBAY_STOPPED, &error);
        }
    }
}

static void *scan_thread(void *data)
{
    struct scan *scan = data;
    struct fb_budget *budget = scan->index->budget;
    void *work = NULL;

    if (scan->index->member)
        work = fb_block_new(budget, FB_STAGE_INDEX, 1, FB_NPZ_WORK_BYTES, "reading headers", NULL);
    if (work || !scan->index->member) /* else the others do it all */
        scan_many(scan, work, false);
    fb_block_free(budget, FB_STAGE_INDEX, work, 1, FB_NPZ_WORK_BYTES);
    return NULL;
}

/* Helpers are welcome, not needed: what the budget or the system refuses is done without. */
static unsigned start_helpers(struct scan *scan, pthread_t *helpers)
{
    pthread_attr_t attributes;
    unsigned started = 0;

    if (scan->index->files->count < FEW || pthread_attr_init(&attributes))
        return 0;
    pthread_attr_setstacksize(&attributes, SCAN_STACK);
    while (started < SCAN_THREADS - 1 &&
           fb_budget_try_reserve(scan->index->budget, FB_STAGE_INDEX, SCAN_STACK)) {
        if (pthread_create(&helpers[started], &attributes, scan_thread, scan)) {
            fb_budget_refund(scan->index->budget, FB_STAGE_INDEX, SCAN_STACK);
            break;
        }
        started++;
    }
    pthread_attr_destroy(&attributes);
    return started;
}

static int scan_all(struct fb_npy_index *index, void *work, const struct fb_log *log,
                    forebay_error *error)
{
    struct scan scan = { .index = index, .log = log, .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_t helpers[SCAN_THREADS];
    unsigned started;

    index->rows = fb_block_new(index->budget, FB_STAGE_INDEX, index->files->count,
                               sizeof(*index->rows), "index of arrays", error);
    if (!index->rows)
        return fb_failed(error);
    started = start_helpers(&scan, helpers);
    scan_many(&scan, work, true);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(helpers[i], NULL);
        fb_budget_refund(index->budget, FB_STAGE_INDEX, SCAN_STACK);
    }
    if (scan.status && error)
        *error = scan.error;
    return scan.status;
}

/* Do all files that are there have the size of the first good one? */
static bool sizes_agree(const struct fb_npy_index *index)
{
    const struct fb_file *files = index->files->file;

    for (uint64_t i = 0; i < index->files->count; i++)
        if (!files[i].fault && files[i].bytes != files[index->first_number].bytes)
            return false;
    return true;
}

int fb_npy_index_open(struct fb_npy_index *index, const struct fb_files *files, const char *member,
                      void *work, struct fb_budget *budget, const struct fb_log *log,
                      forebay_error *error)
{
    uint64_t whole = 0;
    int status;

    *index = (struct fb_npy_index){ .budget = budget, .files = files, .member = member,
                                    .uniform = true };
    status = find_first(index, work, error);
    if (status)
        return status;
    if (!sizes_agree(index)) {
        status = scan_all(index, work, log, error);
        if (status)
            fb_npy_index_release(index);
    }
    for (uint64_t i = 0; !status && i < files->count; i++)
        whole += fb_npy_index_rows(index, i) != FB_NPY_BROKEN;
    index->broken = files->count - whole;
    if (!index->rows)
        count_in(index, &index->first, index->deflated, whole);
    return status;
}

void fb_npy_index_release(struct fb_npy_index *index)
{
    fb_block_free(index->budget, FB_STAGE_INDEX, index->rows,
                  index->files ? index->files->count : 0, sizeof(*index->rows));
    index->rows = NULL;
}
