#include "self_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "consume.h"
#include "decode/cast.h"
#include "generate/generate.h"
#include "scratch.h"

#define BYTES ((uint64_t)4 << 20)
#define FILES 24

/* Device memory, a stream and pinned memory, together. */
struct bench {
    struct fb_device *device;
    const struct fb_device_ops *ops;
    struct fb_pinned pinned;
    void *memory[2], *view[2], *stream;
    uint64_t bytes;
    forebay_error error; /* of what failed last */
};

static void bench_close(struct bench *bench)
{
    if (bench->stream)
        bench->ops->stream_close(bench->device, bench->stream);
    for (unsigned i = 0; i < 2; i++) {
        if (bench->view[i])
            bench->ops->unview(bench->device, bench->view[i]);
        if (bench->memory[i])
            bench->ops->free(bench->device, bench->memory[i], bench->bytes);
    }
    if (bench->pinned.memory)
        bench->ops->host_free(bench->device, &bench->pinned);
}

static int bench_open(struct bench *bench, struct fb_device *device, uint64_t bytes)
{
    const struct fb_device_ops *ops = device->ops;
    int status;

    *bench = (struct bench){ .device = device, .ops = ops, .bytes = bytes };
    status = ops->host_alloc(device, bytes, &bench->pinned, &bench->error);
    if (!status)
        status = ops->stream_open(device, &bench->stream, &bench->error);
    for (unsigned i = 0; i < 2 && !status; i++) {
        status = ops->alloc(device, bytes, &bench->memory[i], &bench->error);
        if (!status)
            status = ops->view(device, bench->memory[i], 0, bytes, &bench->view[i], &bench->error);
    }
    if (status)
        bench_close(bench);
    return status;
}

static void pattern(unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i * 13 + (i >> 9));
}

/* Is the first `bytes` of device memory `which` what `expected` says? */
static bool holds(struct bench *bench, unsigned which, const void *expected, uint64_t bytes)
{
    void *back = malloc(bytes);
    bool same = back &&
                !bench->ops->download(bench->device, bench->stream, back, bench->view[which], 0,
                                      bytes, &bench->error) &&
                memcmp(back, expected, bytes) == 0;

    free(back);
    return same;
}

/* ---- The claims about the device ---- */

static bool copies_arrive(struct bench *bench)
{
    void *event = NULL;
    bool good;

    pattern(bench->pinned.memory, bench->bytes);
    good = !bench->ops->upload(bench->device, bench->stream, bench->memory[0], 0,
                               bench->pinned.memory, bench->bytes, &bench->error) &&
           !bench->ops->record(bench->device, bench->stream, &event, &bench->error) &&
           !bench->ops->event_wait(bench->device, event, &bench->error) &&
           bench->ops->event_done(bench->device, event);
    bench->ops->event_free(bench->device, event);
    return good && holds(bench, 0, bench->pinned.memory, bench->bytes);
}

static bool streams_wait(struct bench *bench)
{
    const struct fb_device_ops *ops = bench->ops;
    void *second = NULL, *event = NULL;
    bool good = true;

    if (ops->stream_open(bench->device, &second, &bench->error))
        return false;
    for (unsigned i = 0; i < 20 && good; i++) { /* a race would show now and then */
        memset(bench->pinned.memory, (int)(i + 1), bench->bytes);
        good = !ops->upload(bench->device, bench->stream, bench->memory[0], 0,
                            bench->pinned.memory, bench->bytes, &bench->error) &&
               !ops->record(bench->device, bench->stream, &event, &bench->error) &&
               !ops->stream_wait(bench->device, second, event, &bench->error) &&
               !ops->move(bench->device, second, bench->memory[1], 0, bench->memory[0], 0,
                          bench->bytes, &bench->error);
        ops->event_free(bench->device, event);
        event = NULL;
        if (good)
            good = !ops->record(bench->device, second, &event, &bench->error) &&
                   !ops->event_wait(bench->device, event, &bench->error) &&
                   holds(bench, 1, bench->pinned.memory, bench->bytes);
        ops->event_free(bench->device, event);
        event = NULL;
    }
    ops->stream_close(bench->device, second);
    return good;
}

/* Rows in reverse, through the gather kernel; the list lies behind them. */
static bool gather_works(struct bench *bench)
{
    uint64_t rows = 512, row = 1000, list = bench->bytes - rows * 24;
    uint64_t *moves = (uint64_t *)(void *)((char *)bench->pinned.memory + list);
    unsigned char *expected = malloc(rows * row);
    struct fb_launch launch = { .kernel = FB_KERNEL_GATHER,
                                .memories = { bench->memory[1], bench->memory[0],
                                              bench->memory[0] },
                                .memory_count = 3,
                                .numbers = { list, rows, row },
                                .number_count = 3,
                                .items = rows * ((row + 15) / 16) };
    bool good = expected != NULL;

    pattern(bench->pinned.memory, list);
    for (uint64_t i = 0; i < rows && good; i++) {
        moves[3 * i] = (rows - 1 - i) * row;
        moves[3 * i + 1] = i * row;
        moves[3 * i + 2] = row;
        memcpy(expected + i * row, (char *)bench->pinned.memory + moves[3 * i], row);
    }
    good = good &&
           !bench->ops->upload(bench->device, bench->stream, bench->memory[0], 0,
                               bench->pinned.memory, bench->bytes, &bench->error) &&
           !bench->ops->launch(bench->device, bench->stream, &launch, &bench->error) &&
           holds(bench, 1, expected, rows * row);
    free(expected);
    return good;
}

static bool casts_work(struct bench *bench)
{
    uint64_t count = bench->bytes / 4;
    uint32_t *numbers = bench->pinned.memory;
    uint16_t *expected = malloc(count * 2);
    struct fb_launch launch = { .memories = { bench->memory[1], bench->memory[0] },
                                .memory_count = 2,
                                .numbers = { count },
                                .number_count = 1,
                                .items = count };
    bool good = expected != NULL;

    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (uint32_t)i * 4099u;
    good = good && !bench->ops->upload(bench->device, bench->stream, bench->memory[0], 0, numbers,
                                       bench->bytes, &bench->error);
    for (unsigned half = 0; half < 2 && good; half++) {
        launch.kernel = half ? FB_KERNEL_CAST_F16 : FB_KERNEL_CAST_BF16;
        fb_cast(expected, half ? FOREBAY_F16 : FOREBAY_BF16, numbers, FOREBAY_F32, count);
        good = !bench->ops->launch(bench->device, bench->stream, &launch, &bench->error) &&
               holds(bench, 1, expected, count * 2);
    }
    free(expected);
    return good;
}

/* (value - mean) * scale; mean and scale are one array here. */
static bool normalise_works(struct bench *bench)
{
    enum { CHANNELS = 3, INNER = 1000 };
    uint64_t count = bench->bytes / sizeof(float);
    float *numbers = bench->pinned.memory, means[CHANNELS] = { 0.1f, 0.485f, 3.7f };
    float *expected = malloc(bench->bytes);
    struct fb_launch launch = { .kernel = FB_KERNEL_NORMALISE,
                                .memories = { bench->memory[0], bench->memory[1],
                                              bench->memory[1] },
                                .memory_count = 3,
                                .numbers = { count, INNER, CHANNELS },
                                .number_count = 3,
                                .items = count };
    bool good = expected != NULL;

    for (uint64_t i = 0; i < count && good; i++) {
        float mean = means[i / INNER % CHANNELS];

        numbers[i] = (float)(i % 1021) / 7.0f;
        expected[i] = (numbers[i] - mean) * mean;
    }
    good = good &&
           !bench->ops->upload_now(bench->device, bench->stream, bench->memory[1], 0, means,
                                   sizeof(means), &bench->error) &&
           !bench->ops->upload(bench->device, bench->stream, bench->memory[0], 0, numbers,
                               bench->bytes, &bench->error) &&
           !bench->ops->launch(bench->device, bench->stream, &launch, &bench->error) &&
           holds(bench, 0, expected, bench->bytes);
    free(expected);
    return good;
}

static bool no_memory_is_told(struct bench *bench)
{
    void *memory;
    int status = bench->ops->alloc(bench->device, (uint64_t)1 << 60, &memory, &bench->error);

    bench->error.message[0] = '\0';
    return status == FOREBAY_NO_MEMORY;
}

static const struct {
    const char *name;
    bool (*holds)(struct bench *bench);
} claims[] = {
    { "a copy from pinned memory arrives, and its event fires then", copies_arrive },
    { "a stream waits for another one's event", streams_wait },
    { "the gather kernel moves what it is told to", gather_works },
    { "the casts give the bits the host gives", casts_work },
    { "normalising gives the bits the host gives", normalise_works },
    { "memory that is not there is told, and survived", no_memory_is_told },
};

/* ---- The claims about the loader ---- */

static int loader_sum(const char *folder, bool windows, const char *kind, const char *cache,
                      uint64_t *sum, forebay_error *error)
{
    char path[SCRATCH_BYTES + 32], device[80];
    const char *settings[] = { windows ? "source.kind=windows" : "source.kind=npy",
                               windows ? "batch.size=64" : "batch.size=5",
                               windows ? "source.stride=20" : "source.stride=1", path, device,
                               cache, "memory.budget=256MiB", "memory.share=off" };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    forebay_loader *loader;
    forebay_batch *batch;
    int status;

    snprintf(path, sizeof(path), "source.path=%s/*.npy", folder);
    snprintf(device, sizeof(device), "device.kind=%s", kind);
    options.settings = settings;
    options.setting_count = sizeof(settings) / sizeof(settings[0]);
    status = forebay_open(&loader, &options, error);
    if (status)
        return status;
    *sum = 0;
    for (unsigned epoch = 0; epoch < 3 && (!status || status == FOREBAY_END); epoch++)
        while ((status = forebay_next(&batch, loader, error)) == FOREBAY_OK) {
            status = consume_batch(sum, batch, error);
            forebay_batch_release(batch);
            if (status)
                break;
        }
    forebay_close(loader);
    return status == FOREBAY_END ? FOREBAY_OK : status;
}

/* The same sums from the host and from the device, with and without its cache. */
static int loader_agrees(const char *kind, bool windows, const struct fb_log *log, bool *agrees,
                         forebay_error *error)
{
    char folder[SCRATCH_BYTES];
    struct fb_generate_options options = { .kind = "windows", .folder = folder, .files = FILES,
                                           .bytes = 300000 };
    struct fb_generate_result made;
    uint64_t sums[3];
    int status = scratch_make(folder, "self-test", error);

    if (status)
        return status;
    status = fb_generate(&made, &options, log, error);
    if (!status)
        status = loader_sum(folder, windows, "host", "device.cache=off", &sums[0], error);
    if (!status)
        status = loader_sum(folder, windows, kind, "device.cache=off", &sums[1], error);
    if (!status)
        status = loader_sum(folder, windows, kind,
                            windows ? "device.cache=2MB" : "device.cache=10 samples", &sums[2],
                            error);
    *agrees = !status && sums[0] == sums[1] && sums[0] == sums[2];
    scratch_remove(folder);
    return status;
}

/* ---- All of them ---- */

static void told(json_t *list, const char *name, bool good, const char *words, unsigned *failed)
{
    *failed += !good;
    json_array_append_new(list, json_pack("{s:s, s:b, s:s}", "name", name, "ok", good, "words",
                                          good ? "" : words));
}

json_t *self_test(struct fb_device *device, const char *kind, const struct fb_log *log,
                  unsigned *failed)
{
    json_t *list = json_array();
    forebay_error error = { .message = "the sums differ" };
    struct bench bench;
    bool agrees = false;

    if (bench_open(&bench, device, BYTES)) {
        told(list, "memory, pinned and of the device, can be had", false, bench.error.message,
             failed);
        return list;
    }
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        bool good;

        snprintf(bench.error.message, sizeof(bench.error.message), "what came back is not right");
        good = claims[i].holds(&bench);
        told(list, claims[i].name, good, bench.error.message, failed);
    }
    bench_close(&bench);
    loader_agrees(kind, false, log, &agrees, &error);
    told(list, "a loader delivers the same from the host and the device", agrees, error.message,
         failed);
    loader_agrees(kind, true, log, &agrees, &error);
    told(list, "windows gathered on the device are those of the host", agrees, error.message,
         failed);
    return list;
}

double self_test_copy_rate(struct fb_device *device, uint64_t bytes, bool pinned)
{
    const struct fb_device_ops *ops = device->ops;
    void *from = pinned ? NULL : calloc(1, bytes);
    uint64_t began, best = UINT64_MAX;
    struct bench bench;
    int opened = bench_open(&bench, device, bytes), status = opened;

    for (unsigned i = 0; i < 4 && !status && (pinned || from); i++) {
        void *event = NULL;

        began = fb_now_ns();
        if (pinned)
            status = ops->upload(device, bench.stream, bench.memory[0], 0, bench.pinned.memory,
                                 bytes, NULL);
        else
            status = ops->upload_now(device, bench.stream, bench.memory[0], 0, from, bytes, NULL);
        if (!status)
            status = ops->record(device, bench.stream, &event, NULL);
        if (!status)
            status = ops->event_wait(device, event, NULL);
        ops->event_free(device, event);
        if (!status && fb_now_ns() - began < best)
            best = fb_now_ns() - began;
    }
    if (!opened)
        bench_close(&bench);
    free(from);
    return best == UINT64_MAX ? NAN : (double)bytes / (double)best * 1e9;
}
