/* law_device.c -- batches on a device: the same as on the host, never written under a reader, and
 * a device without memory slows a run down but does not end it. CUDA is the emulated driver, which
 * aborts on any misuse; OpenCL is PoCL. */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda_driver.h"

struct run {
    bool frames;
    const char *device, *workers, *prefetch, *collate;
};

static uint64_t run_with(const struct run *run)
{
    forebay_loader *loader;
    forebay_error error;
    uint64_t digest = 0;

    law_ok((run->frames ? law_open_frames : law_open_scans)(
        &loader, NULL, &error, run->device, run->workers, run->prefetch, run->collate,
        "batch.size=8", "memory.budget=64MiB", "memory.share=off", NULL));
    for (unsigned i = 0; i < 2; i++)
        digest = law_run_epoch(digest, loader);
    forebay_close(loader);
    return digest;
}

static void every_device_gives_the_same_batches(void **state)
{
    static const char *const devices[] = { "device.kind=cuda:0", "device.kind=opencl:0" };
    static const char *const workers[] = { "workers=0", "workers=1", "workers=3" };
    static const char *const ahead[] = { "device.prefetch=0", "device.prefetch=1",
                                         "device.prefetch=3" };
    static const char *const collates[] = { "batch.collate=pad", "batch.collate=ragged",
                                            "batch.collate=stack" };

    (void)state;
    for (unsigned c = 0; c < 3; c++) {
        struct run run = { .frames = c == 2, .device = "device.kind=host", .workers = workers[1],
                           .prefetch = ahead[0], .collate = collates[c] };
        uint64_t expected = run_with(&run);

        for (unsigned d = 0; d < 2; d++) {
            run.device = devices[d];
            if (d == 1 && device_is_missing(devices[d]))
                continue;
            for (unsigned i = 0; i < 3; i++) {
                run.workers = workers[i];
                run.prefetch = ahead[(i + c) % 3];
                assert_int_equal(run_with(&run), expected);
            }
        }
    }
}

static void a_batch_is_where_it_says(void **state)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;

    (void)state;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:2", "batch.size=4",
                           "memory.budget=64MiB", NULL));
    law_ok(forebay_next(&batch, loader, &error));
    assert_int_equal(batch->device_type, 2);
    assert_int_equal(batch->device_id, 2);
    assert_int_equal((uintptr_t)batch->fields[1].data % 256, 0);
    forebay_batch_release(batch);
    assert_true(law_stat(loader, "device", "bytes_copied") >= 4 * 256 * 512);
    forebay_close(loader);
}

/* ---- No memory on the device ---- */

static void no_memory_at_any_allocation_still_ends_the_run(void **state)
{
    struct run run = { .frames = true, .device = "device.kind=cuda:0", .workers = "workers=2",
                       .prefetch = "device.prefetch=3", .collate = "batch.collate=stack" };
    struct emulated *emulated = device_control();
    uint64_t expected = run_with(&run), count = emulated->allocations;

    (void)state;
    assert_true(count >= 4);
    for (uint64_t n = 1; n <= count + 2; n++) {
        emulated->allocations = 0;
        emulated->fail_first = emulated->fail_last = n;
        assert_int_equal(run_with(&run), expected);
    }
    for (uint64_t n = 1; n <= count; n++) { /* and from then on there is never any */
        emulated->allocations = 0;
        emulated->fail_first = n;
        emulated->fail_last = UINT64_MAX;
        assert_int_equal(run_with(&run), expected);
    }
}

static void a_device_with_room_for_one_batch_will_do(void **state)
{
    struct run run = { .frames = true, .device = "device.kind=cuda:0", .workers = "workers=2",
                       .prefetch = "device.prefetch=3", .collate = "batch.collate=stack" };
    uint64_t expected = run_with(&run);

    (void)state;
    device_control()->memory_bytes = 8 * 256 * 512 + 4096;
    assert_int_equal(run_with(&run), expected);
}

static void a_batch_without_room_comes_in_host_memory(void **state)
{
    forebay_loader *loader;
    forebay_batch *first, *second;
    forebay_error error;

    (void)state;
    device_control()->memory_bytes = 8 * 256 * 512 + 4096;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "batch.size=8",
                           "memory.budget=64MiB", NULL));
    law_ok(forebay_next(&first, loader, &error));
    law_ok(forebay_next(&second, loader, &error));
    assert_int_equal(first->device_type, 2);
    assert_int_equal(second->device_type, 1);
    assert_int_equal(law_stat(loader, "device", "host_batches"), 1);
    law_ok(forebay_batch_use_on(second, NULL, &error));
    forebay_batch_release(second);
    forebay_batch_release(first);
    law_ok(forebay_next(&first, loader, &error));
    assert_int_equal(first->device_type, 2);
    forebay_batch_release(first);
    forebay_close(loader);
}

/* ---- Nobody writes under a reader ---- */

/* As the emulated driver sums. */
static uint64_t sum_of(const forebay_field *field)
{
    const char *bytes = field->data;
    size_t size = field->bytes;
    uint64_t sum = 0, word;

    for (; size >= sizeof(word); bytes += sizeof(word), size -= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + (unsigned char)bytes[i];
    return sum;
}

#define BATCHES (2 * LAW_FRAMES / 4)

static void host_sums(uint64_t sums[BATCHES])
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    unsigned count = 0;

    law_ok(law_open_frames(&loader, NULL, &error, "batch.size=4", "memory.budget=64MiB", NULL));
    for (unsigned epoch = 0; epoch < 2; epoch++)
        while (forebay_next(&batch, loader, &error) == FOREBAY_OK) {
            sums[count++] = sum_of(&batch->fields[1]);
            forebay_batch_release(batch);
        }
    forebay_close(loader);
    assert_int_equal(count, BATCHES);
}

/* A trainer's own stream, in the same (primary) context. */
struct trainer {
    void *library;
    CUcontext context;
    CUstream stream;
    CUresult (*retain)(CUcontext *, CUdevice), (*release)(CUdevice);
    CUresult (*push)(CUcontext), (*pop)(CUcontext *);
    CUresult (*create)(CUstream *, unsigned), (*destroy)(CUstream);
};

static void trainer_open(struct trainer *trainer)
{
    trainer->library = dlopen("libcuda.so.1", RTLD_NOW);
#define LOAD(field, symbol) \
    *(void **)(void *)&trainer->field = dlsym(trainer->library, symbol)
    LOAD(retain, "cuDevicePrimaryCtxRetain");
    LOAD(release, "cuDevicePrimaryCtxRelease");
    LOAD(push, "cuCtxPushCurrent_v2");
    LOAD(pop, "cuCtxPopCurrent_v2");
    LOAD(create, "cuStreamCreate");
    LOAD(destroy, "cuStreamDestroy_v2");
    trainer->retain(&trainer->context, 0);
    trainer->push(trainer->context);
    trainer->create(&trainer->stream, CU_STREAM_NON_BLOCKING);
}

static void trainer_close(struct trainer *trainer)
{
    trainer->destroy(trainer->stream);
    trainer->pop(&trainer->context);
    trainer->release(0);
    dlclose(trainer->library);
}

/* Every batch is given back right after a slow kernel on it was started. */
static void drop_under_kernels(bool own_stream, const char *cache)
{
    uint64_t expected[BATCHES], seen[BATCHES];
    struct emulated *emulated = device_control();
    struct trainer trainer;
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    unsigned count = 0;

    host_sums(expected);
    emulated->ns_per_mb = 2000000;
    trainer_open(&trainer);
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "batch.size=4",
                           "memory.budget=64MiB", "workers=2", cache, NULL));
    for (unsigned epoch = 0; epoch < 2; epoch++)
        while (forebay_next(&batch, loader, &error) == FOREBAY_OK) {
            void *stream = own_stream ? trainer.stream : NULL;

            if (own_stream)
                law_ok(forebay_batch_use_on(batch, stream, &error));
            emulated->slow_read(stream, (uintptr_t)batch->fields[1].data, batch->fields[1].bytes,
                                3000000, &seen[count++]);
            forebay_batch_release(batch);
        }
    emulated->wait_all();
    forebay_close(loader);
    trainer_close(&trainer);
    assert_int_equal(count, BATCHES);
    for (unsigned i = 0; i < BATCHES; i++)
        assert_int_equal(seen[i], expected[i]);
}

static void a_batch_dropped_under_a_kernel_is_not_written(void **state)
{
    (void)state;
    drop_under_kernels(false, "device.cache=off");
    drop_under_kernels(false, "device.cache=30 samples");
}

static void a_batch_dropped_under_a_kernel_on_another_stream_is_not_written(void **state)
{
    (void)state;
    drop_under_kernels(true, "device.cache=off");
    drop_under_kernels(true, "device.cache=30 samples");
}

static void a_batch_is_used_on_four_streams_at_most(void **state)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    struct trainer trainer[5];

    (void)state;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "batch.size=4",
                           "memory.budget=64MiB", NULL));
    law_ok(forebay_next(&batch, loader, &error));
    for (unsigned i = 0; i < 5; i++)
        trainer_open(&trainer[i]);
    for (unsigned i = 0; i < 4; i++)
        law_ok(forebay_batch_use_on(batch, trainer[i].stream, &error));
    law_ok(forebay_batch_use_on(batch, trainer[0].stream, &error));
    assert_int_equal(forebay_batch_use_on(batch, trainer[4].stream, &error), FOREBAY_BAD_USE);
    forebay_batch_release(batch);
    for (unsigned i = 5; i-- > 0;)
        trainer_close(&trainer[i]);
    forebay_close(loader);
}

/* ---- Time ---- */

static double device_seconds(forebay_loader *loader, const char *name)
{
    static char text[1 << 16];
    char key[64];
    const char *at;

    assert_true(forebay_stats_json(loader, text, sizeof(text)) < sizeof(text));
    snprintf(key, sizeof(key), "\"%s\":", name);
    at = strstr(text, key);
    assert_non_null(at);
    return atof(at + strlen(key));
}

/* A step that is longer than a copy: until the copy of the batch behind has begun, by itself, and
 * is over. Bounded, in case it never begins. */
static void take_a_step(forebay_loader *loader, uint64_t copied)
{
    for (unsigned i = 0; law_stat(loader, "device", "bytes_copied") < copied; i++) {
        struct timespec moment = { .tv_nsec = 1000000 };

        if (i == 20000)
            fail_msg("no batch is copied ahead");
        nanosleep(&moment, NULL);
    }
    device_control()->wait_all();
}

/* By the emulated driver's clock nobody waits for a copy that is shorter than the caller's step,
 * but for the first, which nothing can hide. */
static void copies_hide_behind_the_callers_work(void **state)
{
    uint64_t bytes = 4 * 256 * 512, count = 0;
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    double first = 0;

    (void)state;
    device_control()->ns_per_mb = 5000000 / (bytes / 1000) * 1000;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "batch.size=4",
                           "memory.budget=64MiB", "workers=1", "device.prefetch=1", "epochs=1",
                           NULL));
    while (forebay_next(&batch, loader, &error) == FOREBAY_OK) {
        count++;
        take_a_step(loader, (count == LAW_FRAMES / 4 ? count : count + 1) * bytes);
        forebay_batch_release(batch);
        if (count == 1)
            first = device_seconds(loader, "copy_exposed_s");
    }
    assert_int_equal(count, LAW_FRAMES / 4);
    assert_true(device_seconds(loader, "copy_exposed_s") == first);
    assert_true(device_seconds(loader, "copy_hidden_s") > 0.050); /* 11 or 12 copies of 5 ms */
    forebay_close(loader);
}

static void without_prefetch_copies_are_exposed(void **state)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;

    (void)state;
    device_control()->ns_per_mb = 5000000 / (4 * 256 * 512 / 1000) * 1000;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "batch.size=4",
                           "memory.budget=64MiB", "workers=1", "device.prefetch=0", NULL));
    while (forebay_next(&batch, loader, &error) == FOREBAY_OK) {
        device_control()->wait_all(); /* a step that needs the batch at once */
        forebay_batch_release(batch);
    }
    assert_true(device_seconds(loader, "copy_exposed_s") > 0.030);
    forebay_close(loader);
}

/* ---- Ends ---- */

static void a_seek_drops_copies_under_way(void **state)
{
    uint64_t expected;
    struct emulated *emulated = device_control();
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;

    (void)state;
    law_ok(law_open_frames(&loader, NULL, &error, "batch.size=4", "memory.budget=64MiB", NULL));
    law_ok(forebay_set_epoch(loader, 5, &error));
    expected = law_run_epoch(0, loader);
    forebay_close(loader);

    emulated->ns_per_mb = 4000000;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:0", "batch.size=4",
                           "memory.budget=64MiB", "device.prefetch=3", "workers=2", NULL));
    for (unsigned i = 0; i < 20; i++) {
        law_ok(forebay_set_epoch(loader, i, &error));
        law_ok(forebay_next(&batch, loader, &error));
        forebay_batch_release(batch);
    }
    law_ok(forebay_set_epoch(loader, 5, &error));
    assert_int_equal(law_run_epoch(0, loader), expected);
    forebay_close(loader);
}

static void a_held_batch_outlives_its_loader(void **state)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    uint64_t before;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        device_control()->ns_per_mb = i * 10000000;
        law_ok(law_open_frames(&loader, NULL, &error, "device.kind=cuda:1", "batch.size=4",
                               "memory.budget=64MiB", NULL));
        law_ok(forebay_next(&batch, loader, &error));
        before = i == 1 ? 0 : law_digest(0, batch); /* once without waiting for the copy */
        forebay_close(loader);
        if (before)
            assert_int_equal(law_digest(0, batch), before);
        forebay_batch_release(batch);
    }
}

static void two_devices_do_not_mix(void **state)
{
    forebay_loader *loaders[2];
    forebay_error error;
    uint64_t digests[2] = { 0, 0 };

    (void)state;
    law_ok(law_open_frames(&loaders[0], NULL, &error, "device.kind=cuda:0", "batch.size=4",
                           "memory.budget=64MiB", NULL));
    law_ok(law_open_frames(&loaders[1], NULL, &error, "device.kind=cuda:3", "batch.size=4",
                           "memory.budget=64MiB", NULL));
    for (unsigned done = 0; done < LAW_FRAMES / 4; done++)
        for (unsigned i = 0; i < 2; i++) {
            forebay_batch *batch;

            law_ok(forebay_next(&batch, loaders[i], &error));
            assert_int_equal(batch->device_id, i ? 3 : 0);
            digests[i] = law_digest(digests[i], batch);
            forebay_batch_release(batch);
        }
    assert_int_equal(digests[0], digests[1]);
    forebay_close(loaders[0]);
    forebay_close(loaders[1]);
}

static void a_device_that_is_missing_is_told(void **state)
{
    forebay_loader *loader;
    forebay_error error;

    (void)state;
    assert_int_equal(law_open_frames(&loader, NULL, &error, "device.kind=cuda:4", NULL),
                     FOREBAY_NO_DEVICE);
    assert_non_null(strstr(error.message, "cuda:4 is not there"));
    assert_string_equal(error.place, "device.kind");
}

static void auto_takes_the_first_gpu(void **state)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;

    (void)state;
    law_ok(law_open_frames(&loader, NULL, &error, "device.kind=auto", "memory.budget=64MiB", NULL));
    law_ok(forebay_next(&batch, loader, &error));
    assert_int_equal(batch->device_type, 2);
    forebay_batch_release(batch);
    forebay_close(loader);
}

int main(void)
{
#define LAW(test) cmocka_unit_test_setup(test, device_settle)
    const struct CMUnitTest tests[] = {
        LAW(every_device_gives_the_same_batches),
        LAW(a_batch_is_where_it_says),
        LAW(no_memory_at_any_allocation_still_ends_the_run),
        LAW(a_device_with_room_for_one_batch_will_do),
        LAW(a_batch_without_room_comes_in_host_memory),
        LAW(a_batch_dropped_under_a_kernel_is_not_written),
        LAW(a_batch_dropped_under_a_kernel_on_another_stream_is_not_written),
        LAW(a_batch_is_used_on_four_streams_at_most),
        LAW(copies_hide_behind_the_callers_work),
        LAW(without_prefetch_copies_are_exposed),
        LAW(a_seek_drops_copies_under_way),
        LAW(a_held_batch_outlives_its_loader),
        LAW(two_devices_do_not_mix),
        LAW(a_device_that_is_missing_is_told),
        LAW(auto_takes_the_first_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
