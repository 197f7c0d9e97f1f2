#include "config/test_config.h"

static void a_preset_sets_the_keys_of_the_guide(void **state)
{
    static const struct {
        const char *text;
        uint64_t samples, prefetch, workers, batch;
    } guide[] = {
        { "preset: gpu-basic", 5000, 0, 1, 1 },      { "preset: gpu-prefetch", 0, 2, 1, 1 },
        { "preset: gpu-combined", 3000, 2, 1, 1 },   { "preset: gpu-aggressive", 10000, 3, 0, 1 },
        { "preset: gpu-minimal", 2000, 1, 0, 512 },
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(guide); i++) {
        struct fb_config config = must_read(guide[i].text, NULL);

        assert_string_equal(config.device_kind, "auto");
        assert_int_equal(config.device_cache.mode,
                         guide[i].samples ? FB_SIZE_SAMPLES : FB_SIZE_OFF);
        assert_int_equal(config.device_cache.value, guide[i].samples);
        assert_int_equal(config.device_prefetch.value, guide[i].prefetch);
        assert_false(config.workers.is_auto);
        assert_int_equal(config.workers.value, guide[i].workers);
        assert_int_equal(config.batch_size.value, guide[i].batch);
        fb_config_release(&config);
    }
}

static void what_is_set_wins_over_a_preset(void **state)
{
    static const char *const texts[] = {
        "preset: gpu-minimal\ndevice: {kind: cuda:1, prefetch: 5}\nworkers: 3\nbatch: {size: 8}",
        "batch_size: 8\nnum_workers: 3\ndevice: {prefetch: 5, kind: cuda:1}\npreset: gpu-minimal",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct fb_config config = must_read(texts[i], "device.cache=null");

        assert_string_equal(config.device_kind, "cuda:1");
        assert_int_equal(config.device_cache.mode, FB_SIZE_OFF); /* null: the table's default */
        assert_int_equal(config.device_prefetch.value, 5);
        assert_int_equal(config.workers.value, 3);
        assert_int_equal(config.batch_size.value, 8);
        assert_non_null(strstr(said, "preset gpu-minimal is device.kind: auto (not taken: you set "));
        fb_config_release(&config);
    }
}

static void a_setting_takes_another_preset(void **state)
{
    struct fb_config config = must_read("preset: gpu-minimal", "preset=gpu-combined");

    (void)state;
    assert_int_equal(config.batch_size.value, 1);
    assert_int_equal(config.device_cache.value, 3000);
    assert_true(fb_config_is_set(&config, "device.cache"));
    fb_config_release(&config);
    config = must_read("preset: gpu-minimal", "preset=null");
    assert_string_equal(config.device_kind, "host");
    fb_config_release(&config);
}

static void gpu_auto_leaves_the_choice_until_the_device_is_known(void **state)
{
    struct fb_config config = must_read("preset: gpu-auto\nworkers: 2", NULL);
    forebay_error error;

    (void)state;
    assert_int_equal(config.preset, FB_PRESET_GPU_AUTO);
    assert_string_equal(config.device_kind, "auto");
    assert_int_equal(config.device_cache.mode, FB_SIZE_OFF);
    assert_int_equal(fb_config_apply_preset(&config, "gpu-aggressive", &listener, &error),
                     FOREBAY_OK);
    assert_int_equal(config.device_cache.value, 10000);
    assert_int_equal(config.workers.value, 2);
    fb_config_release(&config);
}

static void presets_that_are_not_there_are_told(void **state)
{
    struct fb_config config;
    forebay_error error;

    (void)state;
    assert_int_equal(read_both(&config, "preset: safe", NULL, &error), FOREBAY_NOT_BUILT);
    assert_int_equal(read_both(&config, "preset: gpu-huge", NULL, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "gpu-minimal"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_preset_sets_the_keys_of_the_guide),
        cmocka_unit_test(what_is_set_wins_over_a_preset),
        cmocka_unit_test(a_setting_takes_another_preset),
        cmocka_unit_test(gpu_auto_leaves_the_choice_until_the_device_is_known),
        cmocka_unit_test(presets_that_are_not_there_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
