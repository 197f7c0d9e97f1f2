/* Sounds of every kind, held against libsndfile's own reading of them. */
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <FLAC/stream_encoder.h>

#include <cmocka.h>

#include "base/thread.h"
#include "decode/sound_inside.h"
#include "decode/test_sound_files.h"

static _Alignas(16) char work[FB_SOUND_WORK_BYTES];
static forebay_error error;

/* What libsndfile makes of it, mixed to one channel. */
static float *reference(struct memory_file *file, SF_INFO *info)
{
    SNDFILE *in;
    float *all, *mono;
    sf_count_t got;

    file->at = 0;
    *info = (SF_INFO){ 0 };
    in = sf_open_virtual(&memory_io, SFM_READ, info, file);
    assert_non_null(in);
    all = calloc((size_t)(info->frames * info->channels), sizeof(float));
    mono = calloc((size_t)info->frames, sizeof(float));
    got = sf_readf_float(in, all, info->frames);
    sf_close(in);
    assert_int_equal(got, info->frames);
    for (sf_count_t i = 0; i < got; i++) {
        float sum = 0;

        for (int c = 0; c < info->channels; c++)
            sum += all[i * info->channels + c];
        mono[i] = sum / (float)info->channels;
    }
    free(all);
    return mono;
}

static const struct {
    const char *name;
    int format;
    enum fb_sound_format read_as;
} kinds[] = {
    { "wav u8", SF_FORMAT_WAV | SF_FORMAT_PCM_U8, FB_SOUND_WAV },
    { "wav 16", SF_FORMAT_WAV | SF_FORMAT_PCM_16, FB_SOUND_WAV },
    { "wav 24", SF_FORMAT_WAV | SF_FORMAT_PCM_24, FB_SOUND_WAV },
    { "wav 32", SF_FORMAT_WAV | SF_FORMAT_PCM_32, FB_SOUND_WAV },
    { "wav float", SF_FORMAT_WAV | SF_FORMAT_FLOAT, FB_SOUND_WAV },
    { "wav double", SF_FORMAT_WAV | SF_FORMAT_DOUBLE, FB_SOUND_WAV },
    { "wavex 16", SF_FORMAT_WAVEX | SF_FORMAT_PCM_16, FB_SOUND_WAV },
    { "wavex 24", SF_FORMAT_WAVEX | SF_FORMAT_PCM_24, FB_SOUND_WAV },
    { "wavex float", SF_FORMAT_WAVEX | SF_FORMAT_FLOAT, FB_SOUND_WAV },
    { "wav ulaw", SF_FORMAT_WAV | SF_FORMAT_ULAW, FB_SOUND_OTHER },
    { "wav adpcm", SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM, FB_SOUND_OTHER },
    { "rf64", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, FB_SOUND_OTHER },
    { "flac 8", SF_FORMAT_FLAC | SF_FORMAT_PCM_S8, FB_SOUND_FLAC },
    { "flac 16", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, FB_SOUND_FLAC },
    { "flac 24", SF_FORMAT_FLAC | SF_FORMAT_PCM_24, FB_SOUND_FLAC },
    { "ogg vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, FB_SOUND_OTHER },
    { "ogg opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, FB_SOUND_OTHER },
    { "aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, FB_SOUND_OTHER },
    { "caf", SF_FORMAT_CAF | SF_FORMAT_PCM_24, FB_SOUND_OTHER },
    { "au", SF_FORMAT_AU | SF_FORMAT_PCM_16, FB_SOUND_OTHER },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void check_kind(size_t kind, int channels, sf_count_t frames)
{
    struct memory_file file = make_sound(kinds[kind].format, channels, 16000, frames);
    struct fb_input input = input_of(&file);
    struct fb_sound sound;
    SF_INFO info;
    float *wanted = reference(&file, &info), *got = calloc((size_t)info.frames + 1, sizeof(float));

    if (fb_sound_probe(&sound, &input, work, &error))
        fail_msg("%s: %s", kinds[kind].name, error.message);
    assert_int_equal(sound.format, kinds[kind].read_as);
    assert_int_equal(sound.frames, info.frames);
    assert_int_equal(sound.rate, info.samplerate);
    assert_int_equal(sound.channels, channels);
    if (fb_sound_read(&sound, &input, 0, sound.frames, got, work, &error))
        fail_msg("%s: %s", kinds[kind].name, error.message);
    if (memcmp(got, wanted, (size_t)info.frames * sizeof(float)) != 0)
        fail_msg("%s with %d channels, %ld frames: other values", kinds[kind].name, channels,
                 (long)frames);
    free(file.data);
    free(wanted);
    free(got);
}

static void values_are_those_of_libsndfile(void **state)
{
    static const sf_count_t frames[] = { 1, 1000, 70001 };

    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++)
        for (int channels = 1; channels <= 3; channels++)
            for (size_t i = 0; i < 3; i++)
                if (channels < 3 || kinds[kind].read_as != FB_SOUND_OTHER)
                    check_kind(kind, channels, frames[i]);
}

static void a_part_is_the_same_as_that_part_of_the_whole(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct memory_file file = make_sound(kinds[kind].format, 2, 16000, 50000);
        struct fb_input input = input_of(&file);
        struct fb_sound sound;
        float *whole, part[300];

        assert_int_equal(fb_sound_probe(&sound, &input, work, &error), 0);
        whole = calloc((size_t)sound.frames, sizeof(float));
        assert_int_equal(fb_sound_read(&sound, &input, 0, sound.frames, whole, work, &error), 0);
        for (uint64_t first = 1; first < 49000; first += 9677) {
            if (fb_sound_read(&sound, &input, first, 300, part, work, &error))
                fail_msg("%s from %d on: %s", kinds[kind].name, (int)first, error.message);
            for (size_t i = 0; i < 300; i++)
                if (part[i] != whole[first + i])
                    fail_msg("%s: frame %d is %g, not %g", kinds[kind].name, (int)(first + i),
                             (double)part[i], (double)whole[first + i]);
        }
        assert_int_equal(fb_sound_read(&sound, &input, sound.frames, 1, part, work, &error),
                         FOREBAY_BAD_DATA);
        free(whole);
        free(file.data);
    }
}

static void a_file_that_is_cut_says_so_or_gives_what_it_says(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct memory_file file = make_sound(kinds[kind].format, 1, 16000, 20000);
        sf_count_t whole = file.used;
        float *to = malloc(64 << 20);

        for (sf_count_t cut = 0; cut < whole; cut += 1 + cut / 3) {
            struct fb_input input;
            struct fb_sound sound;
            int status;

            file.used = cut;
            input = input_of(&file);
            status = fb_sound_probe(&sound, &input, work, &error);
            if (!status && sound.frames < (16 << 20))
                status = fb_sound_read(&sound, &input, 0, sound.frames, to, work, &error);
            if (kinds[kind].read_as != FB_SOUND_OTHER)
                assert_int_equal(status, FOREBAY_BAD_DATA);
            else
                assert_true(status == FOREBAY_BAD_DATA || status == FOREBAY_OK);
        }
        free(to);
        free(file.data);
    }
}

static void headers_that_lie_are_errors_in_words(void **state)
{
    static const struct {
        int at;
        uint32_t value;
        const char *says;
    } rows[] = {
        { 40, 1 << 20, "ends 1008576 bytes early" },
        { 22, 0x10000 | 0, "channels" },
        { 24, 0, "0 frames a second" },
        { 24, 0x7fffffff, "2147483647 frames a second" },
        { 16, 8, "16 are the least" },
        { 36, 0x61746165, "no data chunk" },
        { 0, 0x12345678, "no sound that is known" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct memory_file file = make_sound(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 16000, 20000);
        struct fb_input input = input_of(&file);
        struct fb_sound sound;

        memcpy(file.data + rows[i].at, &rows[i].value, 4);
        if (rows[i].at == 22)
            memset(file.data + 32, 0, 2);
        assert_int_equal(fb_sound_probe(&sound, &input, work, &error), FOREBAY_BAD_DATA);
        if (!strstr(error.message, rows[i].says))
            fail_msg("'%s' does not say '%s'", error.message, rows[i].says);
        free(file.data);
    }
}

static void a_wav_of_unknown_length_goes_up_to_its_end(void **state)
{
    static const uint32_t lengths[] = { 0xffffffff, 0 };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct memory_file file = make_sound(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 16000, 20000);
        struct fb_input input = input_of(&file);
        struct fb_sound sound;

        memcpy(file.data + 40, &lengths[i], 4);
        assert_int_equal(fb_sound_probe(&sound, &input, work, &error), 0);
        assert_int_equal(sound.frames, 20000);
        free(file.data);
    }
}

static void a_flac_of_unknown_length_is_counted(void **state)
{
    struct memory_file file = make_sound(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 1, 16000, 20000);
    struct fb_input input = input_of(&file);
    struct fb_sound sound;

    (void)state;
    memset(file.data + 8 + 14, 0, 4); /* total samples, of which the upper 4 bits are 0 anyway */
    assert_int_equal(fb_sound_probe(&sound, &input, work, &error), 0);
    assert_int_equal(sound.frames, 20000);
    free(file.data);
}

static void a_flac_with_a_wrong_byte_is_an_error_near_it(void **state)
{
    struct memory_file file = make_sound(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 1, 16000, 60000);
    struct fb_input input = input_of(&file);
    struct fb_sound sound;
    static float to[60000];

    (void)state;
    assert_int_equal(fb_sound_probe(&sound, &input, work, &error), 0);
    memset(file.data + file.used / 2, 0x55, 40);
    assert_int_equal(fb_sound_read(&sound, &input, 0, 60000, to, work, &error), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "frame"));
    free(file.data);
}

/* ---- another rate ---- */

static double level_of(const float *numbers, uint64_t count, double per_turn)
{
    double a = 0, b = 0;

    for (uint64_t i = 0; i < count; i++) {
        a += numbers[i] * sin((double)i * 6.283185307179586 / per_turn);
        b += numbers[i] * cos((double)i * 6.283185307179586 / per_turn);
    }
    return 2 * sqrt(a * a + b * b) / (double)count;
}

static void a_tone_is_the_same_tone_at_another_rate(void **state)
{
    static const uint32_t rates[] = { 8000, 16000, 22050, 44100, 48000 };

    (void)state;
    for (size_t from = 0; from < 5; from++) {
        for (size_t to = 0; to < 5; to++) {
            struct memory_file file =
                make_sound(SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 1, (int)rates[from], 2 * rates[from]);
            struct fb_input input = input_of(&file);
            struct fb_sound sound;
            uint64_t frames;
            float *numbers;

            assert_int_equal(fb_sound_probe(&sound, &input, work, &error), 0);
            frames = fb_sound_frames_at(sound.frames, sound.rate, rates[to]);
            assert_int_equal(frames, 2 * rates[to]);
            numbers = calloc(frames + 1, sizeof(float));
            numbers[frames] = 77;
            assert_int_equal(
                fb_sound_read_at(&sound, &input, 0, sound.frames, rates[to], numbers, work, &error),
                0);
            assert_true(numbers[frames] == 77);
            assert_true(fabs(level_of(numbers, frames, rates[to] / 440.0) - 0.7) < 1e-3);
            free(numbers);
            free(file.data);
        }
    }
}

/* ---- memory ---- */

static uint64_t most_bytes, bytes_before;

static int watching_read(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *e)
{
    uint64_t now = mallinfo2().uordblks + mallinfo2().hblkhd;

    most_bytes = now - bytes_before > most_bytes ? now - bytes_before : most_bytes;
    return input_read(data, into, bytes, offset, e);
}

static void *read_it_all(void *data)
{
    struct fb_input input = *(struct fb_input *)data;
    struct fb_sound sound;
    static float to[400000];

    input.read = watching_read;
    bytes_before = mallinfo2().uordblks + mallinfo2().hblkhd;
    if (fb_sound_probe(&sound, &input, work, &error))
        return &error;
    return fb_sound_read_at(&sound, &input, 0, sound.frames, 22050, to, work, &error) ? &error
                                                                                      : NULL;
}

/* In a thread with the small stack that workers have, and a rate that must be resampled. */
static void libraries_stay_inside_their_allowance_and_stack(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct memory_file file = make_sound(kinds[kind].format, 2, 48000, 200000);
        struct fb_input input = input_of(&file);
        pthread_attr_t small;
        pthread_t thread;
        void *failed;

        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, FB_THREAD_STACK_BYTES);
        most_bytes = 0;
        assert_int_equal(pthread_create(&thread, &small, read_it_all, &input), 0);
        pthread_join(thread, &failed);
        pthread_attr_destroy(&small);
        if (failed)
            fail_msg("%s: %s", kinds[kind].name, error.message);
        print_message("%-12s libraries took %8llu bytes\n", kinds[kind].name,
                      (unsigned long long)most_bytes);
        assert_true(most_bytes < FB_SOUND_LIBRARY_BYTES);
        free(file.data);
    }
}

static FLAC__StreamEncoderWriteStatus keep(const FLAC__StreamEncoder *encoder,
                                           const FLAC__byte *from, size_t bytes, uint32_t samples,
                                           uint32_t frame, void *data)
{
    (void)encoder;
    (void)samples;
    (void)frame;
    memory_put(from, (sf_count_t)bytes, data);
    return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
}

static void the_largest_legal_flac_stays_inside_the_allowance(void **state)
{
    struct memory_file file = { 0 };
    struct fb_input input;
    FLAC__StreamEncoder *encoder = FLAC__stream_encoder_new();
    FLAC__int32 frame[8];

    (void)state;
    FLAC__stream_encoder_set_channels(encoder, 8);
    FLAC__stream_encoder_set_bits_per_sample(encoder, 24);
    FLAC__stream_encoder_set_sample_rate(encoder, 48000);
    FLAC__stream_encoder_set_streamable_subset(encoder, false);
    FLAC__stream_encoder_set_blocksize(encoder, 65535);
    FLAC__stream_encoder_set_max_residual_partition_order(encoder, 15);
    assert_int_equal(FLAC__stream_encoder_init_stream(encoder, keep, NULL, NULL, NULL, &file), 0);
    for (int i = 0; i < 3 * 65535; i++) {
        for (int c = 0; c < 8; c++)
            frame[c] = (int)(0x5bd1e995u * (unsigned)(i * 8 + c)) >> (8 + i % 16);
        assert_true(FLAC__stream_encoder_process_interleaved(encoder, frame, 1));
    }
    FLAC__stream_encoder_finish(encoder);
    FLAC__stream_encoder_delete(encoder);
    input = input_of(&file);
    most_bytes = 0;
    if (mallinfo2().uordblks == 0) { /* a sanitizer's malloc does not say */
        free(file.data);
        skip();
    }
    if (read_it_all(&input))
        fail_msg("%s", error.message);
    print_message("libraries took %8llu bytes\n", (unsigned long long)most_bytes);
    assert_true(most_bytes > FB_SOUND_LIBRARY_BYTES / 2); /* it was the largest, was it not? */
    assert_true(most_bytes < FB_SOUND_LIBRARY_BYTES);
    free(file.data);
}

/* ---- Ogg headers ---- */

static size_t find(const struct memory_file *file, const char *mark, size_t length)
{
    for (size_t i = 0; i + length < (size_t)file->used; i++)
        if (memcmp(file->data + i, mark, length) == 0)
            return i;
    fail_msg("no %s", mark);
    return 0;
}

static void a_vorbis_header_that_asks_for_much_is_refused_with_the_number(void **state)
{
    struct memory_file file = make_sound(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 1, 16000, 20000);
    struct fb_input input = input_of(&file);
    size_t book = find(&file, "BCV", 3);

    (void)state;
    assert_int_equal(fb_vorbis_check(&input, work, &error), 0);
    memset(file.data + book + 5, 0xff, 3); /* 2^24 - 1 entries */
    assert_int_equal(fb_vorbis_check(&input, work, &error), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "16777215"));
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_libsndfile),
        cmocka_unit_test(a_part_is_the_same_as_that_part_of_the_whole),
        cmocka_unit_test(a_file_that_is_cut_says_so_or_gives_what_it_says),
        cmocka_unit_test(headers_that_lie_are_errors_in_words),
        cmocka_unit_test(a_wav_of_unknown_length_goes_up_to_its_end),
        cmocka_unit_test(a_flac_of_unknown_length_is_counted),
        cmocka_unit_test(a_flac_with_a_wrong_byte_is_an_error_near_it),
        cmocka_unit_test(a_tone_is_the_same_tone_at_another_rate),
        cmocka_unit_test(libraries_stay_inside_their_allowance_and_stack),
        cmocka_unit_test(the_largest_legal_flac_stays_inside_the_allowance),
        cmocka_unit_test(a_vorbis_header_that_asks_for_much_is_refused_with_the_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
