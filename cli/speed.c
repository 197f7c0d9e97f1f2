#include "speed.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "consume.h"
#include "output.h"
#include "generate/generate.h"
#include "scratch.h"

/* What is measured, in a folder of its own. */
struct course {
    const char *kind; /* of generate */
    const char *source, *glob, *workers;
    uint64_t files, bytes;
};
static const struct course reading = { "lidar", "source.kind=bin", "*.bin", "workers=auto", 8,
                                       4000000 };
static const struct course decoding = { "images", "source.kind=images", "**/*.jpg", "workers=1", 24,
                                        0 };

struct pace {
    double bytes_per_s, samples_per_s;
};

/* To the disk, and out of the page cache: then a read is one. */
static int path_drop(const char *path, const struct stat *about, int type, struct FTW *at)
{
    int fd = type == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    (void)about;
    (void)at;
    if (fd < 0)
        return 0;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return 0;
}

static int loader_run(const struct course *course, const char *folder, struct pace *pace,
                      forebay_error *error)
{
    char path[600];
    const char *settings[] = { course->source, path, course->workers, "batch.size=1",
                               "memory.budget=256MiB", "memory.cache=off", "memory.share=off",
                               "order.shuffle=false", "epochs=1" };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    uint64_t sum = 0, bytes = 0, samples = 0, began = fb_now_ns();
    forebay_loader *loader;
    forebay_batch *batch;
    double seconds;
    int status;

    snprintf(path, sizeof(path), "source.path=%s/%s", folder, course->glob);
    options.settings = settings;
    options.setting_count = sizeof(settings) / sizeof(settings[0]);
    status = forebay_open(&loader, &options, error);
    if (status)
        return status;
    while (!status && (status = forebay_next(&batch, loader, error)) == FOREBAY_OK) {
        status = consume_batch(&sum, batch, error);
        bytes += batch->bytes;
        samples += batch->samples;
        forebay_batch_release(batch);
    }
    forebay_close(loader);
    seconds = (double)(fb_now_ns() - began) / 1e9;
    if (status != FOREBAY_END)
        return status;
    *pace = (struct pace){ (double)bytes / seconds, (double)samples / seconds };
    return FOREBAY_OK;
}

static struct pace course_run(const struct course *course, const struct fb_log *log)
{
    char folder[SCRATCH_BYTES];
    struct fb_generate_options options = { .kind = course->kind, .folder = folder,
                                           .files = course->files, .bytes = course->bytes };
    struct fb_generate_result made;
    struct pace pace = { NAN, NAN };
    forebay_error error;
    int status = scratch_make(folder, "speed", &error);

    if (status) {
        fb_warn(log, "no speed of %s: %s", course->kind, error.message);
        return pace;
    }
    status = fb_generate(&made, &options, log, &error);
    nftw(folder, path_drop, 8, FTW_PHYS | FTW_MOUNT);
    if (!status)
        status = loader_run(course, folder, &pace, &error);
    if (status)
        fb_warn(log, "no speed of %s: %s", course->kind, error.message);
    scratch_remove(folder);
    return pace;
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *speed_json(const struct fb_log *log)
{
    struct pace read = course_run(&reading, log), decode = course_run(&decoding, log);

    return json_pack("{s:o, s:o, s:o, s:o}", "folder", output_text(scratch_base()),
                     "read_bytes_per_s", real(read.bytes_per_s), "decode_bytes_per_s",
                     real(decode.bytes_per_s), "decode_images_per_s", real(decode.samples_per_s));
}
