/* Every device there is, through the same tests: the host, CUDA (emulated), OpenCL (PoCL). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sanitized.h"
#include "config/config.h"
#include "decode/cast.h"
#include "device/device.h"
#include "emulated.h"

#define BYTES ((uint64_t)1 << 20)

static void hear(void *data, int level, const char *line)
{
    (void)data;
    if (level)
        printf("warning: %s\n", line);
}
static const struct fb_log test_log = { .log = hear };

static struct fb_device *device_of(void **state)
{
    forebay_error error;
    struct fb_device *device = NULL;
    int status;

    /* PoCL is not compiled for the thread sanitizer, which then sees races where there are none. */
    if (FB_SANITIZED_THREAD && strcmp(*state, "opencl:0") == 0)
        skip();
    status = fb_device_open(&device, *state, &test_log, &error);

    if (status)
        printf("%s\n", error.message);
    if (status && strcmp(*state, "opencl:0") == 0)
        skip(); /* no driver installed: said above */
    assert_int_equal(status, FOREBAY_OK);
    return device;
}

static void pattern(unsigned char *bytes, uint64_t count, unsigned seed)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i * 7 + (i >> 8) + seed);
}

static void a_copy_arrives_when_its_event_fires(void **state)
{
    struct fb_device *device = device_of(state);
    const struct fb_device_ops *ops = device->ops;
    unsigned char *back = malloc(BYTES);
    struct fb_pinned pinned;
    void *memory, *stream, *event, *view;

    assert_int_equal(ops->host_alloc(device, BYTES, &pinned, NULL), FOREBAY_OK);
    assert_int_equal((uintptr_t)pinned.memory % 64, 0);
    assert_int_equal(ops->alloc(device, BYTES, &memory, NULL), FOREBAY_OK);
    assert_int_equal(ops->stream_open(device, &stream, NULL), FOREBAY_OK);
    pattern(pinned.memory, BYTES, 3);
    assert_int_equal(ops->upload(device, stream, memory, 0, pinned.memory, BYTES, NULL),
                     FOREBAY_OK);
    assert_int_equal(ops->upload(device, stream, memory, 0, NULL, 0, NULL), FOREBAY_OK);
    assert_int_equal(ops->record(device, stream, &event, NULL), FOREBAY_OK);
    assert_int_equal(ops->event_wait(device, event, NULL), FOREBAY_OK);
    assert_true(ops->event_done(device, event));
    ops->event_free(device, event);

    assert_int_equal(ops->view(device, memory, device->align, 1000, &view, NULL), FOREBAY_OK);
    assert_int_equal(ops->download(device, NULL, back, view, 10, 900, NULL), FOREBAY_OK);
    assert_memory_equal(back, (char *)pinned.memory + device->align + 10, 900);
    ops->unview(device, view);
    assert_int_equal(ops->view(device, memory, 0, 0, &view, NULL), FOREBAY_OK);
    assert_non_null(view);
    ops->unview(device, view);
    ops->stream_close(device, stream);
    ops->free(device, memory, BYTES);
    ops->host_free(device, &pinned);
    free(back);
    fb_device_close(device);
}

static void pageable_memory_is_copied_at_once(void **state)
{
    struct fb_device *device = device_of(state);
    const struct fb_device_ops *ops = device->ops;
    unsigned char *bytes = malloc(BYTES), *back = malloc(BYTES);
    void *memory, *stream, *view;

    assert_int_equal(ops->alloc(device, BYTES, &memory, NULL), FOREBAY_OK);
    assert_int_equal(ops->stream_open(device, &stream, NULL), FOREBAY_OK);
    assert_int_equal(ops->view(device, memory, 0, BYTES, &view, NULL), FOREBAY_OK);
    pattern(bytes, BYTES, 9);
    assert_int_equal(ops->upload_now(device, stream, memory, 0, bytes, BYTES, NULL), FOREBAY_OK);
    memset(bytes, 0, BYTES); /* it is ours again */
    assert_int_equal(ops->download(device, stream, back, view, 0, BYTES, NULL), FOREBAY_OK);
    pattern(bytes, BYTES, 9);
    assert_memory_equal(back, bytes, BYTES);
    assert_int_equal(ops->move(device, stream, memory, 4096, memory, 0, 2048, NULL), FOREBAY_OK);
    assert_int_equal(ops->download(device, stream, back, view, 4096, 2048, NULL), FOREBAY_OK);
    assert_memory_equal(back, bytes, 2048);
    ops->unview(device, view);
    ops->stream_close(device, stream);
    ops->free(device, memory, BYTES);
    free(bytes);
    free(back);
    fb_device_close(device);
}

static void one_stream_waits_for_another(void **state)
{
    struct fb_device *device = device_of(state);
    const struct fb_device_ops *ops = device->ops;
    unsigned char *back = malloc(BYTES);
    struct fb_pinned pinned;
    void *memory, *first, *second, *event, *done, *view;
    double seconds;

    assert_int_equal(ops->host_alloc(device, BYTES, &pinned, NULL), FOREBAY_OK);
    assert_int_equal(ops->alloc(device, 2 * BYTES, &memory, NULL), FOREBAY_OK);
    assert_int_equal(ops->stream_open(device, &first, NULL), FOREBAY_OK);
    assert_int_equal(ops->stream_open(device, &second, NULL), FOREBAY_OK);
    pattern(pinned.memory, BYTES, 5);
    assert_int_equal(ops->upload(device, first, memory, 0, pinned.memory, BYTES, NULL),
                     FOREBAY_OK);
    assert_int_equal(ops->record(device, first, &event, NULL), FOREBAY_OK);
    assert_int_equal(ops->stream_wait(device, second, event, NULL), FOREBAY_OK);
    assert_int_equal(ops->move(device, second, memory, BYTES, memory, 0, BYTES, NULL), FOREBAY_OK);
    assert_int_equal(ops->record(device, second, &done, NULL), FOREBAY_OK);
    assert_int_equal(ops->event_wait(device, done, NULL), FOREBAY_OK);
    seconds = ops->event_seconds(device, event, done);
    assert_true(fb_device_is_host(device) || (seconds >= 0 && seconds < 60));
    assert_int_equal(ops->stream_wait(device, NULL, event, NULL), FOREBAY_OK);
    ops->event_free(device, event);
    ops->event_free(device, done);
    assert_int_equal(ops->view(device, memory, BYTES, BYTES, &view, NULL), FOREBAY_OK);
    assert_int_equal(ops->download(device, NULL, back, view, 0, BYTES, NULL), FOREBAY_OK);
    assert_memory_equal(back, pinned.memory, BYTES);
    ops->unview(device, view);
    ops->stream_close(device, first);
    ops->stream_close(device, second);
    ops->free(device, memory, 2 * BYTES);
    ops->host_free(device, &pinned);
    free(back);
    fb_device_close(device);
}

static void more_than_there_is_is_told(void **state)
{
    struct fb_device *device = device_of(state);
    void *memory = &device;
    forebay_error error;

    assert_int_equal(device->ops->alloc(device, (uint64_t)1 << 60, &memory, &error),
                     FOREBAY_NO_MEMORY);
    assert_ptr_equal(memory, &device);
    fb_device_close(device);
}

static void a_device_says_what_it_is(void **state)
{
    struct fb_device *device = device_of(state);
    struct fb_device_info info;

    device->ops->info(device, &info);
    assert_true(info.name[0] != '\0');
    assert_true(device->align >= 64 && (device->align & (device->align - 1)) == 0);
    assert_int_equal(info.is_gpu, device->ops == &fb_device_cuda);
    fb_device_close(fb_device_share(device));
    fb_device_close(device);
}

/* ---- Kernels ---- */

/* Upload, launch, download; false if the device has no kernels. */
static bool run_kernel(struct fb_device *device, struct fb_launch *launch, const void *const *in,
                       const uint64_t *bytes, void *back)
{
    const struct fb_device_ops *ops = device->ops;
    void *stream;
    int status;

    assert_int_equal(ops->stream_open(device, &stream, NULL), FOREBAY_OK);
    for (unsigned i = 0; i < launch->memory_count; i++) {
        assert_int_equal(ops->alloc(device, bytes[i], &launch->memories[i], NULL), FOREBAY_OK);
        assert_int_equal(ops->upload_now(device, stream, launch->memories[i], 0, in[i], bytes[i],
                                         NULL), FOREBAY_OK);
    }
    status = ops->launch(device, stream, launch, NULL);
    assert_true(status == FOREBAY_OK || status == FOREBAY_NOT_BUILT);
    if (!status) {
        void *view;

        assert_int_equal(ops->view(device, launch->memories[0], 0, bytes[0], &view, NULL), 0);
        assert_int_equal(ops->download(device, stream, back, view, 0, bytes[0], NULL), 0);
        ops->unview(device, view);
    }
    ops->stream_close(device, stream);
    for (unsigned i = 0; i < launch->memory_count; i++)
        ops->free(device, launch->memories[i], bytes[i]);
    return status == FOREBAY_OK;
}

static void check_gather(struct fb_device *device, uint64_t bytes, uint64_t count)
{
    uint64_t sizes[3] = { count * bytes + 64, count * bytes + 64, (3 * count + 1) * 8 };
    unsigned char *in = malloc(sizes[1]), *to = calloc(1, sizes[0]), *back = malloc(sizes[0]);
    uint64_t *moves = calloc(3 * count + 1, 8);
    const void *arrays[3] = { to, in, moves };
    struct fb_launch launch = { .kernel = FB_KERNEL_GATHER, .memory_count = 3,
                                .numbers = { 8, count, bytes }, .number_count = 3,
                                .items = count * ((bytes + 15) / 16) };

    pattern(in, sizes[1], 1);
    for (uint64_t i = 0; i < count; i++) { /* the list begins at 8 */
        uint64_t *move = &moves[1 + 3 * i];

        move[0] = (count - 1 - i) * bytes + (i % 3 == 0);
        move[1] = i * bytes;
        move[2] = bytes - i % bytes; /* the rest stays as it was */
        memcpy(to + i * bytes, in + i * bytes, bytes);
        memcpy(to + i * bytes, in + move[0], move[2]);
    }
    arrays[0] = in; /* what is overwritten */
    if (run_kernel(device, &launch, arrays, sizes, back))
        assert_memory_equal(back, to, count * bytes);
    free(in);
    free(to);
    free(back);
    free(moves);
}

static void gather_moves_any_pieces(void **state)
{
    struct fb_device *device = device_of(state);

    check_gather(device, 1, 1);
    check_gather(device, 16, 100);
    check_gather(device, 1000, 33);
    check_gather(device, 4099, 7);
    fb_device_close(device);
}

static void check_cast(struct fb_device *device, enum fb_kernel kernel, forebay_dtype to)
{
    enum { COUNT = 70000 };
    uint32_t *in = malloc(COUNT * 4);
    uint16_t *want = malloc(COUNT * 2), *back = malloc(COUNT * 2);
    uint64_t sizes[2] = { COUNT * 2, COUNT * 4 };
    const void *arrays[2] = { want, in };
    struct fb_launch launch = { .kernel = kernel, .memory_count = 2, .numbers = { COUNT },
                                .number_count = 1, .items = COUNT };

    for (uint32_t i = 0; i < COUNT; i++) /* every exponent, ties, subnormals, NaNs */
        in[i] = i * 61403u + (i & 7) * 0x1000;
    fb_cast(want, to, in, FOREBAY_F32, COUNT);
    if (run_kernel(device, &launch, arrays, sizes, back))
        assert_memory_equal(back, want, COUNT * 2);
    free(in);
    free(want);
    free(back);
}

static void casts_give_the_bits_the_host_gives(void **state)
{
    struct fb_device *device = device_of(state);

    check_cast(device, FB_KERNEL_CAST_F16, FOREBAY_F16);
    check_cast(device, FB_KERNEL_CAST_BF16, FOREBAY_BF16);
    fb_device_close(device);
}

static void normalise_works_by_channel(void **state)
{
    struct fb_device *device = device_of(state);
    enum { COUNT = 3 * 50 * 4 };
    float values[COUNT], mean[3] = { 1, 2, 3 }, scale[3] = { 0.5f, 2, 4 }, back[COUNT];
    uint64_t sizes[3] = { sizeof(values), sizeof(mean), sizeof(scale) };
    const void *arrays[3] = { values, mean, scale };
    struct fb_launch launch = { .kernel = FB_KERNEL_NORMALISE, .memory_count = 3,
                                .numbers = { COUNT, 50, 3 }, .number_count = 3, .items = COUNT };

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    if (run_kernel(device, &launch, arrays, sizes, back))
        for (int i = 0; i < COUNT; i++)
            assert_true(back[i] == ((float)i - mean[i / 50 % 3]) * scale[i / 50 % 3]);
    fb_device_close(device);
}

int main(void)
{
    static const char *const kinds[] = { "host", "cuda:0", "opencl:0" };
    int failed = 0;

    for (size_t i = 0; i < 3; i++) {
#define ON(test) { #test, test, NULL, NULL, (void *)(uintptr_t)kinds[i] }
        const struct CMUnitTest tests[] = {
            ON(a_copy_arrives_when_its_event_fires),
            ON(pageable_memory_is_copied_at_once),
            ON(one_stream_waits_for_another),
            ON(more_than_there_is_is_told),
            ON(a_device_says_what_it_is),
            ON(gather_moves_any_pieces),
            ON(casts_give_the_bits_the_host_gives),
            ON(normalise_works_by_channel),
        };

        failed += cmocka_run_group_tests_name(kinds[i], tests, NULL, NULL);
    }
    return failed;
}
