/*
 * generate_audio.c -- speech-like sound: a voice of eight harmonics whose pitch wanders, in
 * syllables, over faint noise; 16 kHz mono, 16 bit, WAV and FLAC in turn, and their manifest.
 * All samples are computed in integers.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sndfile.h>

#include "base/size.h"
#include "generate/generate_maker.h"
#include "generate/generate_noise.h"

#define RATE 16000u
#define WAVE 4096u /* steps of one period */
#define FRAMES_MOST (3600u * RATE)

/* One period of a sine and of the voice, amplitude 2^14 and about 2^14. */
static int32_t sine[WAVE], voice[WAVE];
static pthread_once_t waves_once = PTHREAD_ONCE_INIT;

/* Bhaskara's rational sine, exact in integers: 0.2 % off is no matter here. */
static int32_t sine_at(uint32_t step)
{
    int64_t x = step % (WAVE / 2), product = x * (WAVE / 2 - x), whole = WAVE / 2;
    int64_t value = 16 * product * 16384 / (5 * whole * whole - 4 * product);

    return (int32_t)(step % WAVE < WAVE / 2 ? value : -value);
}

static void waves_init(void)
{
    static const int32_t loudness[8] = { 1000, 406, 240, 165, 123, 97, 80, 67 }; /* 1000 k^-1.3 */

    for (uint32_t i = 0; i < WAVE; i++) {
        int32_t sum = 0;

        sine[i] = sine_at(i);
        for (uint32_t k = 1; k <= 8; k++)
            sum += sine_at(i * k) / 8 * loudness[k - 1] / 250;
        voice[i] = sum;
    }
}

static uint64_t frames_of(const struct fb_maker *maker, uint64_t number)
{
    struct fb_random random = { fb_maker_key(maker, number, 0) };

    if (maker->job->options->bytes)
        return fb_max(maker->job->options->bytes / 2, 1);
    return 2 * RATE + fb_random_below(&random, 13 * RATE + 1);
}

static int16_t clipped(int64_t value)
{
    return (int16_t)(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
}

/* Phases are 32-bit fractions of a turn. */
static void speak(int16_t *out, uint64_t frames, uint64_t key, uint64_t noise)
{
    const uint32_t hertz = (uint32_t)(((uint64_t)1 << 32) / RATE);
    struct fb_random random = { key };
    uint32_t pitch = (90 + (uint32_t)fb_random_below(&random, 120)) * hertz;
    uint32_t syllable = hertz * 5 / 2 + (uint32_t)fb_random_below(&random, hertz);
    uint32_t phase = 0, wander = (uint32_t)fb_random_next(&random), beat = 0;

    for (uint64_t i = 0; i < frames; i++) {
        int64_t bend = (int64_t)sine[wander >> 20] * 15 * hertz / 16384;
        int64_t loud = sine[beat >> 20] + 4915; /* + 0.3 */

        loud = loud < 0 ? 0 : loud > 16384 ? 16384 : loud;
        phase += (uint32_t)((int64_t)pitch + bend);
        wander += hertz * 7 / 10;
        beat += syllable;
        out[i] = clipped(voice[phase >> 20] * loud / 16384 / 2 +
                         fb_noise_bell(noise, i) / (FB_BELL_SIGMA / 128));
    }
}

/* libsndfile writes into memory: what it needs of a file. */
struct sound_buffer {
    unsigned char *data;
    sf_count_t used, at, room;
};

static sf_count_t buffer_length(void *data)
{
    return ((struct sound_buffer *)data)->used;
}

static sf_count_t buffer_seek(sf_count_t offset, int whence, void *data)
{
    struct sound_buffer *buffer = data;
    sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? buffer->at : buffer->used;

    if (from + offset < 0 || from + offset > buffer->room)
        return -1;
    return buffer->at = from + offset;
}

static sf_count_t buffer_read(void *to, sf_count_t count, void *data)
{
    struct sound_buffer *buffer = data;

    if (buffer->at >= buffer->used)
        return 0;
    if (count > buffer->used - buffer->at)
        count = buffer->used - buffer->at;
    memcpy(to, buffer->data + buffer->at, (size_t)count);
    buffer->at += count;
    return count;
}

static sf_count_t buffer_write(const void *from, sf_count_t count, void *data)
{
    struct sound_buffer *buffer = data;

    if (count > buffer->room - buffer->at)
        count = buffer->room - buffer->at;
    memcpy(buffer->data + buffer->at, from, (size_t)count);
    buffer->at += count;
    if (buffer->at > buffer->used)
        buffer->used = buffer->at;
    return count;
}

static sf_count_t buffer_tell(void *data)
{
    return ((struct sound_buffer *)data)->at;
}

static int encode(struct sound_buffer *buffer, const int16_t *sound, uint64_t frames, bool flac,
                  forebay_error *error)
{
    SF_VIRTUAL_IO io = { buffer_length, buffer_seek, buffer_read, buffer_write, buffer_tell };
    SF_INFO info = { .samplerate = RATE, .channels = 1,
                     .format = (flac ? SF_FORMAT_FLAC : SF_FORMAT_WAV) | SF_FORMAT_PCM_16 };
    SNDFILE *file = sf_open_virtual(&io, SFM_WRITE, &info, buffer);
    bool whole;

    if (!file)
        return fb_fail(error, FOREBAY_NO_MEMORY, "libsndfile: %s", sf_strerror(NULL));
    whole = sf_writef_short(file, sound, (sf_count_t)frames) == (sf_count_t)frames;
    whole = sf_close(file) == 0 && whole;
    return whole ? FOREBAY_OK : fb_fail(error, FOREBAY_IO, "libsndfile could not encode a sound");
}

static void sound_name(char *name, size_t size, uint64_t number)
{
    snprintf(name, size, "%05" PRIu64 ".%s", number, number % 2 ? "flac" : "wav");
}

static int audio_make(struct fb_maker *maker, uint64_t number, forebay_error *error)
{
    uint64_t frames = frames_of(maker, number);
    int16_t *sound = malloc(frames * sizeof(*sound));
    /* FLAC is never much larger than PCM: a verbatim frame adds some 20 bytes to 4096 samples. */
    struct sound_buffer buffer = { .room = (sf_count_t)(frames * 2 + frames / 16 + 65536) };
    char name[48];
    int status = FOREBAY_OK;

    buffer.data = malloc((size_t)buffer.room);
    if (!sound || !buffer.data) {
        status = fb_fail(error, FOREBAY_NO_MEMORY, "no memory to make a sound");
    } else {
        speak(sound, frames, fb_maker_key(maker, number, 1), fb_maker_key(maker, number, 2));
        status = encode(&buffer, sound, frames, number % 2, error);
    }
    sound_name(name, sizeof(name), number);
    if (!status)
        status = fb_maker_file(maker, name, buffer.data, (uint64_t)buffer.used, error);
    free(buffer.data);
    free(sound);
    return status;
}

static int audio_prepare(struct fb_maker *maker, forebay_error *error)
{
    pthread_once(&waves_once, waves_init);
    if (maker->job->options->bytes > FRAMES_MOST * 2)
        return fb_fail(error, FOREBAY_BAD_USE, "--bytes %" PRIu64 " is too much for one sound: at "
                       "most %u, an hour", maker->job->options->bytes, FRAMES_MOST * 2);
    return FOREBAY_OK;
}

/* manifest.jsonl: paths relative to its folder, durations to a tenth of a millisecond. */
static int audio_finish(struct fb_maker *maker, forebay_error *error)
{
    struct fb_new_file file;
    char line[256], name[48];
    int status = fb_maker_open(maker, &file, "manifest.jsonl", error);

    if (status)
        return status;
    for (uint64_t i = 0; i < maker->job->files && !status; i++) {
        uint64_t tenths = (frames_of(maker, i) * 10000 + RATE / 2) / RATE;

        sound_name(name, sizeof(name), i);
        snprintf(line, sizeof(line),
                 "{\"audio_filepath\": \"%s\", \"duration\": %" PRIu64 ".%04u, "
                 "\"text\": \"utterance number %" PRIu64 "\"}\n",
                 name, tenths / 10000, (unsigned)(tenths % 10000), i);
        status = fb_new_file_put(&file, line, strlen(line), error);
    }
    if (status) {
        fb_new_file_give_up(&file);
        return status;
    }
    return fb_maker_commit(maker, &file, error);
}

const struct fb_generator_ops fb_generate_audio = { .prepare = audio_prepare,
                                                    .make = audio_make,
                                                    .finish = audio_finish };
