#include "generate/generate.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"
#include "base/size.h"
#include "generate/checksum.h"
#include "generate/generate_maker.h"

#define THREADS_MOST 8
#define ROW_BYTES 190 /* about, of a table's row */

const struct fb_generate_kind fb_generate_kinds[] = {
    { "lidar", "LiDAR scans, float32 x 4 (x y z -80..80, intensity 0..1): DIR/000000.bin", 256,
      1000000 },
    { "frames", "image pairs and event voxels: DIR/000_blur.npy, 000_sharp.npy, 000_voxel.npy", 8,
      140083200 },
    { "windows", "long float32 series [rows, 96], normal: DIR/0000.npy", 200, 2304000 },
    { "images", "JPEG photographs in a folder a class: DIR/class_0/00000.jpg, and DIR/labels.csv",
      1000, 100000 },
    { "audio", "speech-like 16 kHz WAV and FLAC: DIR/00000.wav, and DIR/manifest.jsonl", 200,
      220000 },
    { "table", "24 columns of numbers in shards: DIR/data_part1.csv, ...", 8, 10000000 },
};
const unsigned fb_generate_kind_count = sizeof(fb_generate_kinds) / sizeof(fb_generate_kinds[0]);

/* In the order of fb_generate_kinds. */
static const struct fb_generator_ops *const generators[] = {
    &fb_generate_lidar,  &fb_generate_frames, &fb_generate_windows,
    &fb_generate_images, &fb_generate_audio,  &fb_generate_table,
};
_Static_assert(sizeof(generators) / sizeof(generators[0]) ==
                   sizeof(fb_generate_kinds) / sizeof(fb_generate_kinds[0]),
               "every kind has its generator");

uint64_t fb_maker_key(const struct fb_maker *maker, uint64_t number, uint64_t part)
{
    return fb_mix2(fb_mix2(maker->job->options->seed, number), part);
}

int fb_maker_step(struct fb_maker *maker, uint64_t bytes, forebay_error *error)
{
    struct fb_generate_job *job = maker->job;
    uint64_t total = job->files * job->bytes;
    uint64_t done = atomic_fetch_add_explicit(&job->done_bytes, bytes, memory_order_relaxed);

    if (atomic_load_explicit(&job->stop, memory_order_relaxed))
        return fb_fail(error, FOREBAY_STOPPED, "stopped");
    if (!maker->reports)
        return FOREBAY_OK;
    /* Encoded files are only about as large as asked for: the bar stops at its end. */
    return fb_progress(job->log, "generating", fb_min(done + bytes, total), total, error);
}

int fb_maker_open(struct fb_maker *maker, struct fb_new_file *file, const char *name,
                  forebay_error *error)
{
    const struct fb_generate_options *options = maker->job->options;

    return fb_new_file_open(file, options->folder, name, options->force, error);
}

int fb_maker_put(struct fb_maker *maker, struct fb_new_file *file, const void *data, uint64_t bytes,
                 forebay_error *error)
{
    int status = fb_new_file_put(file, data, bytes, error);

    return status ? status : fb_maker_step(maker, bytes, error);
}

int fb_maker_commit(struct fb_maker *maker, struct fb_new_file *file, forebay_error *error)
{
    bool kept;
    int status = fb_new_file_commit(file, &kept, error);

    if (status)
        return status;
    maker->made.bytes += file->bytes;
    maker->made.kept += kept;
    maker->made.written += !kept;
    return FOREBAY_OK;
}

int fb_maker_file(struct fb_maker *maker, const char *name, const void *data, uint64_t bytes,
                  forebay_error *error)
{
    struct fb_new_file file;
    int status = fb_maker_open(maker, &file, name, error);

    if (status)
        return status;
    status = fb_maker_put(maker, &file, data, bytes, error);
    if (status) {
        fb_new_file_give_up(&file);
        return status;
    }
    if (!maker->job->ops->checksum_of_data)
        maker->made.checksum += fb_checksum(data, bytes);
    return fb_maker_commit(maker, &file, error);
}

static void *make_many(void *argument)
{
    struct fb_maker *maker = argument;
    struct fb_generate_job *job = maker->job;

    while (!maker->status) {
        uint64_t number = atomic_fetch_add(&job->next, 1);

        if (number >= job->files || atomic_load(&job->stop))
            break;
        maker->status = job->ops->make(maker, number, &maker->error);
        maker->made.samples += !maker->status;
    }
    if (maker->status)
        atomic_store(&job->stop, true);
    return NULL;
}

/* What the others made is added to the first; a real failure comes before "stopped". */
static void join(struct fb_maker *first, const struct fb_maker *other)
{
    first->made.samples += other->made.samples;
    first->made.written += other->made.written;
    first->made.kept += other->made.kept;
    first->made.bytes += other->made.bytes;
    first->made.checksum += other->made.checksum;
    if (other->status && (!first->status || first->status == FOREBAY_STOPPED)) {
        first->status = other->status;
        first->error = other->error;
    }
}

static int makers_init(struct fb_maker *makers, unsigned count, struct fb_generate_job *job,
                       forebay_error *error)
{
    for (unsigned i = 0; i < count; i++) {
        makers[i] = (struct fb_maker){ .job = job, .reports = i == 0 };
        makers[i].piece = aligned_alloc(64, FB_PIECE_BYTES);
        if (!makers[i].piece)
            return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to generate data");
    }
    return FOREBAY_OK;
}

/* All samples: the calling thread works, too, and does all if no other can be started. */
static int make_all(struct fb_maker *makers, unsigned count, forebay_error *error)
{
    pthread_t threads[THREADS_MOST];
    unsigned started = 1;

    while (started < count &&
           pthread_create(&threads[started], NULL, make_many, &makers[started]) == 0)
        started++;
    make_many(&makers[0]);
    for (unsigned i = 1; i < started; i++) {
        pthread_join(threads[i], NULL);
        join(&makers[0], &makers[i]);
    }
    if (makers[0].status && error)
        *error = makers[0].error;
    return makers[0].status;
}

static int generate(struct fb_generate_result *result, struct fb_generate_job *job, unsigned count,
                    forebay_error *error)
{
    struct fb_maker makers[THREADS_MOST] = { { .job = NULL } };
    int status = makers_init(makers, count, job, error);

    if (!status && job->ops->prepare)
        status = job->ops->prepare(&makers[0], error);
    if (!status)
        status = make_all(makers, count, error);
    if (!status && job->ops->finish)
        status = job->ops->finish(&makers[0], error);
    if (!status) {
        *result = makers[0].made;
        result->checksum_of_data = job->ops->checksum_of_data;
    }
    for (unsigned i = 0; i < count; i++)
        free(makers[i].piece);
    return status;
}

static int kind_find(const char *name, unsigned *kind, forebay_error *error)
{
    for (unsigned i = 0; i < fb_generate_kind_count; i++) {
        if (strcmp(name, fb_generate_kinds[i].name) == 0) {
            *kind = i;
            return FOREBAY_OK;
        }
    }
    return fb_fail(error, FOREBAY_BAD_USE,
                   "there is no kind '%s' of sample data; the kinds are lidar, frames, windows, "
                   "images, audio and table", name);
}

int fb_generate(struct fb_generate_result *result, const struct fb_generate_options *options,
                const struct fb_log *log, forebay_error *error)
{
    struct fb_generate_job job = { .options = options, .log = log };
    unsigned kind = 0, threads = options->threads ? options->threads : 2;
    uint64_t total;
    int status = kind_find(options->kind, &kind, error);

    if (status)
        return status;
    job.ops = generators[kind];
    job.files = options->files ? options->files : fb_generate_kinds[kind].files;
    job.bytes = options->bytes ? options->bytes : fb_generate_kinds[kind].bytes;
    if (options->rows && !fb_mul(options->rows, ROW_BYTES, &job.bytes))
        job.bytes = UINT64_MAX;
    if (!fb_mul(job.files, job.bytes, &total) || total > INT64_MAX)
        return fb_fail(error, FOREBAY_BAD_USE, "%llu files of %llu bytes are more than any disk",
                       (unsigned long long)job.files, (unsigned long long)job.bytes);
    if (options->rows && job.ops != &fb_generate_table)
        return fb_fail(error, FOREBAY_BAD_USE, "only tables have rows; give --bytes for %s",
                       options->kind);
    status = fb_folder_make(options->folder, error);
    if (status)
        return status;
    return generate(result, &job, (unsigned)fb_min(threads, THREADS_MOST), error);
}
