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

static void the_host_copies_at_once(void **state)
{
    struct fb_device *device;
    char from[10000];
    void *memory = NULL, *event = from;

    (void)state;
    memset(from, 7, sizeof(from));
    assert_int_equal(fb_device_open(&device, "host", &test_log, NULL), FOREBAY_OK);
    assert_string_equal(device->ops->kind, "host");
    assert_int_equal(device->ops->dlpack_type, 1);
    assert_int_equal(device->ops->alloc(device, sizeof(from), &memory, NULL), FOREBAY_OK);
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_int_equal(device->ops->copy(device, memory, from, sizeof(from), &event, NULL),
                     FOREBAY_OK);
    assert_memory_equal(memory, from, sizeof(from));
    assert_int_equal(device->ops->wait(device, event, NULL), FOREBAY_OK);
    assert_int_equal(device->ops->copy(device, memory, NULL, 0, &event, NULL), FOREBAY_OK);
    device->ops->free(device, memory, sizeof(from));
    fb_device_close(device);
    fb_device_close(NULL);
}

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

static void what_is_not_built_says_so(void **state)
{
    static const char *const texts[] = { "cuda:0", "cuda:12", "opencl:0" };
    struct fb_device *device = NULL;
    forebay_error error;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fb_device_open(&device, texts[i], NULL, &error), FOREBAY_NOT_BUILT);
        assert_non_null(strstr(error.message, texts[i]));
        assert_non_null(strstr(error.message, "not built yet"));
        assert_null(device);
    }
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
        cmocka_unit_test(the_host_copies_at_once),
        cmocka_unit_test(memory_that_cannot_be_is_told),
        cmocka_unit_test(auto_takes_the_host_and_says_so),
        cmocka_unit_test(what_is_not_built_says_so),
        cmocka_unit_test(what_is_no_device_is_told_the_choices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
