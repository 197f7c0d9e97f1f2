/* The host device, and what can be asked for by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"

static char said[256];

static void hear(void *data, int level, const char *line)
{
    (void)data;
    (void)level;
    snprintf(said, sizeof(said), "%s", line);
}
static const struct fb_log test_log = { .log = hear };

static void memory_that_cannot_be_is_told(void **state)
{
    struct fb_device *device;
    void *memory = &device;
    forebay_error error;

    (void)state;
    assert_int_equal(fb_device_open(&device, "host", NULL, NULL), FOREBAY_OK);
    assert_int_equal(device->ops->alloc(device, UINT64_MAX, &memory, &error), FOREBAY_NO_MEMORY);
    assert_ptr_equal(memory, &device);
    fb_device_close(device);
}

/* No GPU in the machines that run this: PoCL, a CPU device, must not be taken. */
static void auto_takes_the_host_and_says_so(void **state)
{
    struct fb_device *device;

    (void)state;
    said[0] = '\0';
    assert_int_equal(fb_device_open(&device, "auto", &test_log, NULL), FOREBAY_OK);
    assert_string_equal(device->ops->kind, "host");
    assert_non_null(strstr(said, "host"));
    fb_device_close(device);
}

/* This test runs without a CUDA driver; if the machine has one, it has not a thousand devices. */
static void what_is_not_there_says_so(void **state)
{
    struct fb_device *device = NULL;
    forebay_error error;

    (void)state;
    assert_int_equal(fb_device_open(&device, "cuda:1000", NULL, &error), FOREBAY_NO_DEVICE);
    assert_non_null(strstr(error.message, "cuda"));
    assert_string_equal(error.place, "device.kind");
    assert_null(device);
    assert_true(fb_device_open(&device, "opencl:1000", NULL, &error) != FOREBAY_OK);
    assert_non_null(strstr(error.message, "opencl"));
    assert_null(device);
}

static void what_is_no_device_is_told_the_choices(void **state)
{
    static const char *const texts[] = {
        "",
        "cuda",
        "cuda:",
        "cuda:x",
        "cuda:-1",
        "cuda:0x",
        "cuda: 0",
        "gpu:0",
        "host:0",
        "HOST",
        "opencl:9999",
        ":0",
        "cuda:4294967296",
        "auto ",
        "cuda:00000",
        "a-kind-with-a-long-name:0",
    };
    struct fb_device *device = NULL;
    forebay_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(fb_device_open(&device, texts[i], NULL, &error), FOREBAY_BAD_CONFIG);
        assert_non_null(strstr(error.message, "host, auto, cuda:0, opencl:0"));
        assert_string_equal(error.place, "device.kind");
        assert_null(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_cannot_be_is_told),
        cmocka_unit_test(auto_takes_the_host_and_says_so),
        cmocka_unit_test(what_is_not_there_says_so),
        cmocka_unit_test(what_is_no_device_is_told_the_choices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
