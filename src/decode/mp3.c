/*
 * mp3.c -- MPEG layer III through libmpg123.
 *
 * libsndfile estimates the length of a file without a Xing header from its size, and reads no further
 * than that. Here all frame headers are walked once, without decoding: the count is exact. libsndfile
 * decodes with the same library.
 */
#include <stdio.h>
#include <string.h>
#include <mpg123.h>

#include "base/size.h"
#include "decode/sound_inside.h"

#define HEAD_BYTES 8192 /* a Xing header is in the first frame; before it there may be a tag */

static ssize_t file_read(void *data, void *into, size_t count)
{
    struct fb_sound_file *file = data;
    uint64_t got = fb_sound_file_read(file, into, count);

    return file->status ? -1 : (ssize_t)got;
}

static off_t file_seek(void *data, off_t offset, int whence)
{
    struct fb_sound_file *file = data;
    off_t from = whence == SEEK_SET   ? 0
                 : whence == SEEK_CUR ? (off_t)file->at
                                      : (off_t)file->input->bytes;
    off_t to;

    if (__builtin_add_overflow(from, offset, &to) || to < 0)
        return -1;
    file->at = (uint64_t)to;
    return to;
}

static int fail_library(const struct fb_sound_file *file, mpg123_handle *mp3)
{
    return file->status ? file->status
                        : fb_fail(file->error, FOREBAY_BAD_DATA, "libmpg123: %s",
                                  mpg123_strerror(mp3));
}

/* At the first frame, with its rate and channels known. *out is written on success only. */
static int open_mp3(struct fb_sound_file *file, mpg123_handle **out, long *rate, int *channels)
{
    int bad = MPG123_OK, encoding, status;
    mpg123_handle *mp3 = mpg123_new(NULL, &bad);

    if (!mp3)
        return fb_fail(file->error, FOREBAY_NO_MEMORY, "libmpg123: %s",
                       mpg123_plain_strerror(bad));
    /* A tag may have a picture of any size: it is passed over, not kept. */
    mpg123_param(mp3, MPG123_ADD_FLAGS, MPG123_FORCE_FLOAT | MPG123_QUIET | MPG123_SKIP_ID3V2, 0);
    mpg123_param(mp3, MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0);
    if (mpg123_replace_reader_handle(mp3, file_read, file_seek, NULL) != MPG123_OK ||
        mpg123_open_handle(mp3, file) != MPG123_OK ||
        mpg123_getformat(mp3, rate, channels, &encoding) != MPG123_OK) {
        status = fail_library(file, mp3);
    } else if (encoding != MPG123_ENC_FLOAT_32 || *rate <= 0 || *channels < 1 || *channels > 2) {
        status = fb_fail(file->error, FOREBAY_BAD_DATA,
                         "libmpg123: its format (%ld Hz, %d channels) cannot be decoded to f32",
                         *rate, *channels);
    } else {
        *out = mp3;
        return FOREBAY_OK;
    }
    mpg123_delete(mp3);
    return status;
}

/* Does the file say how many frames it has? */
static bool has_xing(const struct fb_input *input, char *work)
{
    uint64_t bytes = fb_min(input->bytes, HEAD_BYTES);

    return fb_input_read(input, work, bytes, 0, NULL) == FOREBAY_OK &&
           (memmem(work, bytes, "Xing", 4) || memmem(work, bytes, "Info", 4));
}

int fb_mp3_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                 forebay_error *error)
{
    struct fb_sound_file file = { .input = input, .window = work, .error = error };
    bool says = has_xing(input, work);
    mpg123_handle *mp3;
    off_t said, counted;
    int channels, status;
    long rate;

    status = open_mp3(&file, &mp3, &rate, &channels);
    if (status)
        return status;
    said = mpg123_length(mp3);
    status = mpg123_scan(mp3) == MPG123_OK && !file.status ? FOREBAY_OK : fail_library(&file, mp3);
    counted = mpg123_length(mp3);
    mpg123_delete(mp3);
    if (status)
        return status;
    if (counted < 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "its frames cannot be counted");
    if (says && counted < said)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "its header says %lld frames of sound, but it ends %lld frames early: it is "
                       "cut short",
                       (long long)said, (long long)(said - counted));
    sound->rate = (uint32_t)rate;
    sound->channels = (uint32_t)channels;
    sound->frames = (uint64_t)counted;
    return FOREBAY_OK;
}

/* The next frames, at most `frames`, to `to`: *got of them. */
static int decode(struct fb_sound_file *file, mpg123_handle *mp3, float *to, uint64_t frames,
                  uint32_t channels, uint64_t *got)
{
    size_t bytes = 0;
    int result = mpg123_read(mp3, (void *)to, frames * channels * sizeof(float), &bytes);

    *got = bytes / sizeof(float) / channels;
    if (file->status)
        return file->status;
    if (result == MPG123_NEW_FORMAT)
        return fb_fail(file->error, FOREBAY_BAD_DATA,
                       "its rate or its channels change in the middle");
    if (*got)
        return FOREBAY_OK;
    return fb_fail(file->error, FOREBAY_BAD_DATA, "it ends before its last frame: %s",
                   result == MPG123_DONE ? "no more frames" : mpg123_strerror(mp3));
}

/* Frames before `first` are decoded and dropped: each needs the ones before it. */
static int read_frames(const struct fb_sound *sound, struct fb_sound_file *file, mpg123_handle *mp3,
                       uint64_t first, struct fb_sink *sink)
{
    float *numbers = (float *)(void *)(file->window + FB_SOUND_WINDOW_BYTES), *to;
    uint64_t step = FB_SOUND_WINDOW_BYTES / sizeof(float) / sound->channels, room, got;
    int status = FOREBAY_OK;

    for (; first && !status; first -= got)
        status = decode(file, mp3, numbers, fb_min(step, first), sound->channels, &got);
    while (!status && (to = fb_sink_room(sink, &room), room > 0)) {
        status = decode(file, mp3, numbers, fb_min(step, room), sound->channels, &got);
        if (status)
            break;
        fb_sound_mix(to, numbers, got, sound->channels);
        status = fb_sink_add(sink, got, file->error);
    }
    return status;
}

int fb_mp3_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                struct fb_sink *sink, void *work, forebay_error *error)
{
    struct fb_sound_file file = { .input = input, .window = work, .error = error };
    mpg123_handle *mp3;
    int channels, status;
    long rate;

    status = open_mp3(&file, &mp3, &rate, &channels);
    if (status)
        return status;
    if ((uint32_t)channels != sound->channels || (uint32_t)rate != sound->rate)
        status = fb_fail(error, FOREBAY_BAD_DATA, "it changed while it was read");
    else
        status = read_frames(sound, &file, mp3, first, sink);
    mpg123_delete(mp3);
    return status;
}
