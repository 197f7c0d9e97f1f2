/* sndfile.c -- every other kind of sound, through libsndfile. */
#include <string.h>
#include <sndfile.h>

#include "base/size.h"
#include "decode/sound_inside.h"

#define WINDOW_BYTES FB_SOUND_WINDOW_BYTES

static sf_count_t file_bytes(void *data)
{
    return (sf_count_t)((struct fb_sound_file *)data)->input->bytes;
}

static sf_count_t file_seek(sf_count_t offset, int whence, void *data)
{
    struct fb_sound_file *file = data;
    sf_count_t from = whence == SEEK_SET   ? 0
                      : whence == SEEK_CUR ? (sf_count_t)file->at
                                           : file_bytes(data);
    sf_count_t to;

    if (__builtin_add_overflow(from, offset, &to) || to < 0)
        return -1;
    file->at = (uint64_t)to;
    return to;
}

static sf_count_t file_read(void *into, sf_count_t count, void *data)
{
    return (sf_count_t)fb_sound_file_read(data, into, (uint64_t)count);
}

static sf_count_t file_write(const void *from, sf_count_t count, void *data)
{
    (void)from;
    (void)count;
    (void)data;
    return 0;
}

static sf_count_t file_tell(void *data)
{
    return (sf_count_t)((struct fb_sound_file *)data)->at;
}

static SF_VIRTUAL_IO io = { file_bytes, file_seek, file_read, file_write, file_tell };

static int open_file(struct fb_sound_file *file, SNDFILE **out, SF_INFO *info)
{
    *info = (SF_INFO){ .format = 0 };
    *out = sf_open_virtual(&io, SFM_READ, info, file);
    if (*out)
        return FOREBAY_OK;
    return file->status
               ? file->status
               : fb_fail(file->error, FOREBAY_BAD_DATA, "libsndfile: %s", sf_strerror(NULL));
}

int fb_sndfile_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                     forebay_error *error)
{
    struct fb_sound_file file = { .input = input, .window = work, .error = error };
    SNDFILE *opened;
    SF_INFO info;
    int status = fb_vorbis_check(input, work, error);

    if (!status)
        status = open_file(&file, &opened, &info);
    if (status)
        return status;
    sf_close(opened);
    if ((info.format & SF_FORMAT_TYPEMASK) == SF_FORMAT_MPEG) { /* its length is an estimate */
        sound->format = FB_SOUND_MP3;
        return fb_mp3_probe(sound, input, work, error);
    }
    if (info.frames < 0 || info.frames == SF_COUNT_MAX || info.samplerate < 0 || info.channels < 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "it does not say how long it is");
    sound->rate = (uint32_t)info.samplerate;
    sound->channels = (uint32_t)info.channels;
    sound->frames = (uint64_t)info.frames;
    return FOREBAY_OK;
}

static int read_frames(SNDFILE *opened, const struct fb_sound *sound, struct fb_sound_file *file,
                       struct fb_sink *sink)
{
    float *numbers = (float *)(void *)(file->window + WINDOW_BYTES);
    uint64_t step = WINDOW_BYTES / sizeof(float) / sound->channels, room;
    float *to;

    while (to = fb_sink_room(sink, &room), room > 0) {
        sf_count_t count = (sf_count_t)fb_min(room, step);
        sf_count_t got = sf_readf_float(opened, numbers, count);
        int status;

        if (file->status)
            return file->status;
        if (got <= 0)
            return fb_fail(file->error, FOREBAY_BAD_DATA,
                           "it ends %" PRIu64 " frames before the "
                           "%" PRIu64 " its header says: %s",
                           sink->frames - sink->done, sound->frames, sf_strerror(opened));
        fb_sound_mix(to, numbers, (uint64_t)got, sound->channels);
        status = fb_sink_add(sink, (uint64_t)got, file->error);
        if (status)
            return status;
    }
    return FOREBAY_OK;
}

/* To frame `first`. Codecs whose frames hang together are decoded from the beginning: a seek does
 * not always give the same values (and near the end of a Vorbis file libsndfile 1.2 is frames off).
 */
static int go_to(SNDFILE *opened, const SF_INFO *info, uint64_t first, struct fb_sound_file *file)
{
    int major = info->format & SF_FORMAT_TYPEMASK;
    float *numbers = (float *)(void *)(file->window + WINDOW_BYTES);
    uint64_t step = WINDOW_BYTES / sizeof(float) / (uint64_t)info->channels, done = 0;

    if (first == 0)
        return FOREBAY_OK;
    if (major != SF_FORMAT_OGG)
        done = sf_seek(opened, (sf_count_t)first, SEEK_SET) == (sf_count_t)first ? first : 0;
    while (done < first) {
        sf_count_t got = sf_readf_float(opened, numbers, (sf_count_t)fb_min(step, first - done));

        if (got <= 0)
            return file->status ? file->status
                                : fb_fail(file->error, FOREBAY_BAD_DATA,
                                          "frame %" PRIu64 " is not to be found: %s", first,
                                          sf_strerror(opened));
        done += (uint64_t)got;
    }
    return FOREBAY_OK;
}

int fb_sndfile_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                    struct fb_sink *sink, void *work, forebay_error *error)
{
    struct fb_sound_file file = { .input = input, .window = work, .error = error };
    SNDFILE *opened;
    SF_INFO info;
    int status = open_file(&file, &opened, &info);

    if (status)
        return status;
    if (info.channels != (int)sound->channels || info.frames != (sf_count_t)sound->frames)
        status = fb_fail(error, FOREBAY_BAD_DATA, "it changed while it was read");
    else
        status = go_to(opened, &info, first, &file);
    if (!status)
        status = read_frames(opened, sound, &file, sink);
    sf_close(opened);
    return status;
}
