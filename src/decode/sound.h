/*
 * sound.h -- sound files to mono float32 in -1..1: WAV and FLAC directly, MP3 through libmpg123, the
 * rest (Ogg Vorbis and Opus, AIFF, CAF, RF64, ...) through libsndfile; the same values as libsndfile's
 * everywhere. The length is counted, never estimated.
 *
 *     input ──fb_sound_probe──▶ rate, channels, frames ──fb_sound_read──▶ frames of mono floats
 *
 * Several channels are mixed to one: their sum in order, divided by their number, in float32.
 * Headers are hostile: nothing of what they say is allocated, and a file that has less than its
 * header says is an error.
 */
#ifndef FB_DECODE_SOUND_H
#define FB_DECODE_SOUND_H
#include "decode/input.h"

/* What the functions here work in. */
#define FB_SOUND_WORK_BYTES ((uint64_t)320 * 1024)
/* What the libraries allocate for themselves, for the worst legal file: libFLAC with 8 channels in
 * blocks of 65535 frames takes 4.9 MiB (measured: test_sound.c holds the two together). Vorbis
 * headers that would take more are refused before libvorbis sees them. */
#define FB_SOUND_LIBRARY_BYTES ((uint64_t)6 << 20)

#define FB_SOUND_RATE_MAX 768000u
#define FB_SOUND_CHANNELS_MAX 32u

enum fb_sound_format { FB_SOUND_WAV, FB_SOUND_FLAC, FB_SOUND_MP3, FB_SOUND_OTHER };

struct fb_sound {
    enum fb_sound_format format;
    uint32_t rate; /* frames a second */
    uint32_t channels;
    uint64_t frames;
    uint64_t data;    /* WAV, FLAC: where the sound begins in the input */
    uint32_t bits;    /* WAV, FLAC: of one number */
    bool is_float;    /* WAV */
    uint8_t info[34]; /* FLAC: its STREAMINFO */
};

/* Read the header. `work` is FB_SOUND_WORK_BYTES long and 16-byte aligned, here and below. */
int fb_sound_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                   forebay_error *error);
/* Frames [first, first + frames) at the sound's own rate. */
int fb_sound_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                  uint64_t frames, float *to, void *work, forebay_error *error);

/* How many frames `frames` become at another rate, rounded to the nearest. */
uint64_t fb_sound_frames_at(uint64_t frames, uint32_t from_rate, uint32_t to_rate);
/* The same as fb_sound_read, resampled (libsoxr, high quality): writes exactly
 * fb_sound_frames_at(frames, sound->rate, rate) frames. */
int fb_sound_read_at(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                     uint64_t frames, uint32_t rate, float *to, void *work, forebay_error *error);
#endif
