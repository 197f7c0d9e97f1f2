/* sound.c -- which kind of sound an input is, its frames mixed to one channel, and another rate. */
#include "decode/sound.h"

#include <string.h>
#include <soxr.h>

#include "base/size.h"
#include "decode/sound_inside.h"

float *fb_sink_room(const struct fb_sink *sink, uint64_t *room)
{
    uint64_t left = sink->frames - sink->done;

    *room = sink->full ? fb_min(left, FB_SOUND_PIECE_FRAMES) : left;
    return sink->full ? sink->piece : sink->to + sink->done;
}

int fb_sink_add(struct fb_sink *sink, uint64_t frames, forebay_error *error)
{
    sink->done += frames;
    return sink->full ? sink->full(sink, sink->piece, frames, error) : FOREBAY_OK;
}

static bool fill(struct fb_sound_file *file)
{
    if (file->at >= file->from && file->at < file->from + file->have)
        return true;
    if (file->status || file->at >= file->input->bytes)
        return false;
    file->from = file->at;
    file->have = fb_min(FB_SOUND_WINDOW_BYTES, file->input->bytes - file->at);
    file->status = fb_input_read(file->input, file->window, file->have, file->at, file->error);
    if (file->status)
        file->have = 0;
    return !file->status;
}

uint64_t fb_sound_file_read(struct fb_sound_file *file, void *into, uint64_t count)
{
    uint64_t done = 0;

    while (done < count && fill(file)) {
        uint64_t step = fb_min(count - done, file->from + file->have - file->at);

        memcpy((char *)into + done, file->window + (file->at - file->from), step);
        file->at += step;
        done += step;
    }
    return done;
}

void fb_sound_mix(float *to, const float *from, uint64_t frames, uint32_t channels)
{
    for (uint64_t i = 0; i < frames; i++, from += channels) {
        float sum = from[0];

        for (uint32_t c = 1; c < channels; c++)
            sum += from[c];
        to[i] = channels == 1 ? sum : sum / (float)channels;
    }
}

/* What libsndfile may be shown: its other formats have no mark to know them by. */
static bool is_known_to_others(const uint8_t *head)
{
    static const char *const marks[] = { "OggS", "FORM", "RIFF", "RIFX", "RF64",
                                         "riff", "caff", ".snd", "ID3" };

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (memcmp(head, marks[i], strlen(marks[i])) == 0)
            return true;
    return false;
}

/* A frame of MPEG layer III. */
static bool is_mp3(const uint8_t *head)
{
    return head[0] == 0xff && (head[1] & 0xe6) == 0xe2;
}

static int check(const struct fb_sound *sound, forebay_error *error)
{
    if (sound->channels == 0 || sound->channels > FB_SOUND_CHANNELS_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA, "it has %" PRIu32 " channels; 1 to %u can be mixed",
                       sound->channels, FB_SOUND_CHANNELS_MAX);
    if (sound->rate == 0 || sound->rate > FB_SOUND_RATE_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "its header says %" PRIu32 " frames a second; 1 to "
                       "%u can be",
                       sound->rate, FB_SOUND_RATE_MAX);
    return FOREBAY_OK;
}

int fb_sound_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                   forebay_error *error)
{
    struct fb_sound found = { .format = FB_SOUND_OTHER };
    uint8_t head[12];
    bool known = true;
    int status;

    if (input->bytes < sizeof(head))
        return fb_fail(error, FOREBAY_BAD_DATA, "it has %" PRIu64 " bytes, which is no sound",
                       input->bytes);
    status = fb_input_read(input, head, sizeof(head), 0, error);
    if (status)
        return status;
    if (memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "WAVE", 4) == 0) {
        found.format = FB_SOUND_WAV;
        status = fb_wav_probe(&found, input, work, &known, error);
    } else if (memcmp(head, "fLaC", 4) == 0) {
        found.format = FB_SOUND_FLAC;
        status = fb_flac_probe(&found, input, work, error);
    } else if (is_mp3(head)) {
        found.format = FB_SOUND_MP3;
        status = fb_mp3_probe(&found, input, work, error);
    } else if (is_known_to_others(head)) {
        known = false;
    } else {
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "it is no sound that is known (WAV, FLAC, Ogg, "
                         "MP3, AIFF, AU, CAF, RF64): it begins with %02x %02x %02x %02x",
                         head[0], head[1], head[2], head[3]);
    }
    if (!status && !known) {
        found = (struct fb_sound){ .format = FB_SOUND_OTHER };
        status = fb_sndfile_probe(&found, input, work, error);
    }
    if (!status)
        status = check(&found, error);
    if (!status)
        *sound = found;
    return status;
}

static int read_into(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                     struct fb_sink *sink, void *work, forebay_error *error)
{
    if (first > sound->frames || sink->frames > sound->frames - first)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "it has %" PRIu64 " frames, not %" PRIu64 " from frame %" PRIu64 " on",
                       sound->frames, sink->frames, first);
    if (sink->frames == 0)
        return FOREBAY_OK;
    switch (sound->format) {
    case FB_SOUND_WAV:
        return fb_wav_read(sound, input, first, sink, work, error);
    case FB_SOUND_FLAC:
        return fb_flac_read(sound, input, first, sink, work, error);
    case FB_SOUND_MP3:
        return fb_mp3_read(sound, input, first, sink, work, error);
    case FB_SOUND_OTHER:
        break;
    }
    return fb_sndfile_read(sound, input, first, sink, work, error);
}

int fb_sound_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                  uint64_t frames, float *to, void *work, forebay_error *error)
{
    struct fb_sink sink = { .to = to, .frames = frames };

    return read_into(sound, input, first, &sink, work, error);
}

/* ---- another rate ---- */

uint64_t fb_sound_frames_at(uint64_t frames, uint32_t from_rate, uint32_t to_rate)
{
    uint64_t whole = frames / from_rate, rest = frames % from_rate, most;

    if (from_rate == to_rate)
        return frames;
    if (!fb_mul(whole, to_rate, &most))
        return UINT64_MAX / 8; /* no memory is so large: refused by whoever asks for it */
    return most + (rest * to_rate + from_rate / 2) / from_rate;
}

struct resampling {
    soxr_t soxr;
    float *to;
    uint64_t done, frames;
};

/* A piece in (NULL: that was all), whatever comes out to its place. */
static int resample(struct fb_sink *sink, const float *piece, uint64_t frames, forebay_error *error)
{
    struct resampling *out = sink->data;

    do {
        size_t taken = 0, made = 0;
        soxr_error_t bad = soxr_process(out->soxr, piece, frames, piece ? &taken : NULL,
                                        out->to + out->done, out->frames - out->done, &made);

        if (bad)
            return fb_fail(error, FOREBAY_NO_MEMORY, "libsoxr: %s", bad);
        out->done += made;
        if (piece) {
            piece += taken;
            frames -= taken;
        }
        if (out->done == out->frames || (!taken && !made))
            break;
    } while (frames || !piece);
    return FOREBAY_OK;
}

int fb_sound_read_at(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                     uint64_t frames, uint32_t rate, float *to, void *work, forebay_error *error)
{
    soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_runtime_spec_t threads = soxr_runtime_spec(1);
    struct resampling out = { .to = to, .frames = fb_sound_frames_at(frames, sound->rate, rate) };
    struct fb_sink sink = { .frames = frames,
                            .full = resample,
                            .data = &out,
                            .piece = (float *)(void *)((char *)work + FB_SOUND_READ_BYTES) };
    soxr_error_t bad = NULL;
    int status;

    if (rate == sound->rate)
        return fb_sound_read(sound, input, first, frames, to, work, error);
    out.soxr = soxr_create(sound->rate, rate, 1, &bad, &io, &quality, &threads);
    if (!out.soxr)
        return fb_fail(error, FOREBAY_NO_MEMORY, "libsoxr: %s", bad ? bad : "no memory");
    status = read_into(sound, input, first, &sink, work, error);
    if (!status)
        status = resample(&sink, NULL, 0, error);
    if (!status) /* it may owe the last frame or two */
        memset(to + out.done, 0, (out.frames - out.done) * sizeof(*to));
    soxr_delete(out.soxr);
    return status;
}
