/* test_sound_files.h -- sounds made by libsndfile in memory, and the input that reads them. */
#ifndef FB_TEST_SOUND_FILES_H
#define FB_TEST_SOUND_FILES_H
#include <math.h>
#include <sndfile.h>
#include <stdlib.h>
#include <string.h>

#include "decode/sound.h"

struct memory_file {
    unsigned char *data;
    sf_count_t used, at, room;
};

static sf_count_t memory_bytes(void *data)
{
    return ((struct memory_file *)data)->used;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *data)
{
    struct memory_file *file = data;

    file->at = offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file->at : file->used);
    return file->at;
}

static sf_count_t memory_get(void *to, sf_count_t count, void *data)
{
    struct memory_file *file = data;

    count = file->at >= file->used          ? 0
            : count > file->used - file->at ? file->used - file->at
                                            : count;
    memcpy(to, file->data + file->at, (size_t)count);
    file->at += count;
    return count;
}

static sf_count_t memory_put(const void *from, sf_count_t count, void *data)
{
    struct memory_file *file = data;

    if (file->at + count > file->room) {
        file->room = (file->at + count) * 2;
        file->data = realloc(file->data, (size_t)file->room);
    }
    memcpy(file->data + file->at, from, (size_t)count);
    file->at += count;
    file->used = file->at > file->used ? file->at : file->used;
    return count;
}

static sf_count_t memory_tell(void *data)
{
    return ((struct memory_file *)data)->at;
}

static SF_VIRTUAL_IO memory_io = { memory_bytes, memory_seek, memory_get, memory_put, memory_tell };

/* A sound of `frames` frames: a sine in every channel, each higher than the one before. */
static struct memory_file make_sound(int format, int channels, int rate, sf_count_t frames)
{
    struct memory_file file = { 0 };
    SF_INFO info = { .samplerate = rate, .channels = channels, .format = format };
    SNDFILE *out = sf_open_virtual(&memory_io, SFM_WRITE, &info, &file);
    float *frame = calloc((size_t)channels, sizeof(float));

    for (sf_count_t i = 0; out && i < frames; i++) {
        for (int c = 0; c < channels; c++)
            frame[c] = 0.7f * (float)sin((double)i * 440.0 * (c + 1) * 6.283185307 / rate);
        sf_writef_float(out, frame, 1);
    }
    free(frame);
    if (out)
        sf_close(out);
    return file;
}

static int input_read(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    const struct memory_file *file = data;

    (void)error;
    memcpy(into, file->data + offset, bytes);
    return FOREBAY_OK;
}

static inline struct fb_input input_of(struct memory_file *file)
{
    return (struct fb_input){ input_read, file, (uint64_t)file->used };
}
#endif
