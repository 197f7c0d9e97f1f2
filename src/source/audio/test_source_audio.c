/* The audio source through its seam; values against soundfile are in tests/python/test_audio.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "decode/test_sound_files.h"
#include "source/source.h"
#include "source/test_source.h"

static struct fb_config config;
static char path[128], *paths[] = { path };

static int begin(void **state)
{
    (void)state;
    if (stand_begin("audio", 64 * FB_MIB))
        return -1;
    memset(&config, 0, sizeof(config));
    snprintf(path, sizeof(path), "%s/m.jsonl", folder);
    config.source_kind = FB_KIND_AUDIO;
    config.source_path = (struct fb_texts){ 1, paths };
    config.source_rate.is_auto = true;
    return 0;
}

static void put_sound(const char *name, int format, int rate, int frames)
{
    struct memory_file file = make_sound(format, 1, rate, frames);

    write_bytes(name, file.data, (size_t)file.used);
    free(file.data);
}

static int open_manifest(const char *text)
{
    write_bytes("m.jsonl", text, strlen(text));
    return fb_source_open(&source, &config, budget, NULL, &error);
}

/* A unit, loaded; the rows it has. */
static int load_unit(uint64_t unit, void *to, uint64_t *rows)
{
    static _Alignas(16) char memory[1 << 20];
    struct fb_load load = {
        .unit = unit, .to = to, .reader = reader, .scratch = { memory, sizeof(memory) }
    };
    struct fb_extent extent = source->ops->extent(source, unit);
    int status = FOREBAY_OK;

    assert_true(source->scratch_bytes <= sizeof(memory));
    if (extent.known == FB_EXTENT_UNKNOWN)
        status = source->ops->probe(source, unit, &load, &error);
    if (status)
        return status;
    extent = source->ops->extent(source, unit);
    load.rows = *rows = extent.rows;
    load.bytes = extent.rows * source->fields[unit % source->field_count].cell_bytes;
    return source->ops->load(source, &load, &error);
}

static void sound_and_text_are_units_of_their_own(void **state)
{
    static float sound[20000];
    char text[64] = "";
    uint64_t rows;

    (void)state;
    put_sound("a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 8000);
    put_sound("b.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 12000);
    assert_int_equal(open_manifest("{\"audio_filepath\": \"a.wav\", \"duration\": 0.5, "
                                   "\"text\": \"hello\"}\n"
                                   "{\"audio_filepath\": \"b.flac\", \"duration\": 0.75}\n"),
                     0);
    assert_int_equal(source->sample_count, 2);
    assert_int_equal(source->ops->extent(source, 0).known, FB_EXTENT_UNKNOWN);
    assert_int_equal(load_unit(0, sound, &rows), 0);
    assert_int_equal(rows, 8000);
    assert_int_equal(source->ops->extent(source, 0).rows, 8000);
    assert_int_equal(load_unit(1, text, &rows), 0);
    assert_int_equal(rows, 5);
    assert_string_equal(text, "hello");
    assert_int_equal(load_unit(2, sound, &rows), 0);
    assert_int_equal(rows, 12000);
    assert_int_equal(load_unit(3, text, &rows), 0);
    assert_int_equal(rows, 0);
    assert_true(source->ops->length(source, 1) == 0.75f);
    /* The longest and a second, whatever the files are. */
    assert_int_equal(source->unit_bytes_max, (12000 + 16000) * 4);
    assert_int_equal(source->fields[1].bytes_max, 5);
}

static void a_file_that_changes_its_length_is_an_error(void **state)
{
    static float sound[20000];
    uint64_t rows;

    (void)state;
    put_sound("a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 8000);
    assert_int_equal(open_manifest("{\"audio_filepath\": \"a.wav\", \"duration\": 0.5}\n"), 0);
    assert_int_equal(load_unit(0, sound, &rows), 0);
    put_sound("a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 8001);
    assert_int_equal(load_unit(0, sound, &rows), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "8000 frames then, 8001 now"));
}

static void relative_paths_start_at_the_manifest_and_go_nowhere_by_themselves(void **state)
{
    static const char *const names[] = { "../x.wav", "/nowhere/x.wav", "a/../../x.wav", "." };
    static float sound[16];

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char line[256];
        uint64_t rows;

        put_sound("a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 8000);
        snprintf(line, sizeof(line),
                 "{\"audio_filepath\": \"a.wav\", \"duration\": 1}\n"
                 "{\"audio_filepath\": \"%s\", \"duration\": 1}\n",
                 names[i]);
        assert_int_equal(open_manifest(line), 0);
        assert_int_equal(load_unit(2, sound, &rows), FOREBAY_MISSING);
        fb_source_close(source);
        source = NULL;
    }
}

static void filters_that_leave_nothing_are_an_error(void **state)
{
    double least = 5;

    (void)state;
    put_sound("a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 8000);
    config.source_min_duration = (struct fb_reals){ 1, &least };
    assert_int_equal(open_manifest("{\"audio_filepath\": \"a.wav\", \"duration\": 0.5}\n"),
                     FOREBAY_MISSING);
    assert_non_null(strstr(error.message, "source.min_duration"));
    assert_int_equal(open_manifest("\n\n"), FOREBAY_MISSING);
}

static void a_small_budget_is_an_error_that_gives_all_back(void **state)
{
    (void)state;
    put_sound("a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 8000);
    write_bytes("m.jsonl", "{\"audio_filepath\": \"a.wav\"}\n", 28);
    open_on_small_budgets(&config, 16 * FB_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sound_and_text_are_units_of_their_own, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_file_that_changes_its_length_is_an_error, begin, stand_end),
        cmocka_unit_test_setup_teardown(
            relative_paths_start_at_the_manifest_and_go_nowhere_by_themselves, begin, stand_end),
        cmocka_unit_test_setup_teardown(filters_that_leave_nothing_are_an_error, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_small_budget_is_an_error_that_gives_all_back, begin, stand_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
