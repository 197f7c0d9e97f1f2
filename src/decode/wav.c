/*
 * wav.c -- RIFF WAVE with plain numbers: 8, 16, 24 and 32 bit integers, 32 and 64 bit floats, also
 * as WAVE_FORMAT_EXTENSIBLE. What is packed in any other way is left to libsndfile.
 */
#include <string.h>

#include "base/size.h"
#include "decode/sound_inside.h"

#define TAG_PCM 1u
#define TAG_FLOAT 3u
#define TAG_EXTENSIBLE 0xfffeu
#define CHUNKS_MAX 256            /* a file with more before its sound is no sound */
#define UNKNOWN_BYTES 0xffffffffu /* written by who cannot go back: up to the end */

/* The rest of the GUID that says "and this is the old tag". */
static const uint8_t guid_tail[14] = { 0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71 };

/* False: a way of packing that others know. */
static bool parse_format(struct fb_sound *sound, const uint8_t *chunk, uint64_t bytes)
{
    uint32_t tag = fb_le16(chunk), block = fb_le16(chunk + 12);

    sound->channels = fb_le16(chunk + 2);
    sound->rate = fb_le32(chunk + 4);
    sound->bits = fb_le16(chunk + 14);
    if (tag == TAG_EXTENSIBLE) {
        if (bytes < 40 || memcmp(chunk + 26, guid_tail, sizeof(guid_tail)) != 0)
            return false;
        tag = fb_le16(chunk + 24);
    }
    sound->is_float = tag == TAG_FLOAT;
    if (block != sound->channels * (sound->bits / 8) || sound->bits % 8)
        return false;
    if (tag == TAG_PCM)
        return sound->bits >= 8 && sound->bits <= 32;
    return tag == TAG_FLOAT && (sound->bits == 32 || sound->bits == 64);
}

static int set_frames(struct fb_sound *sound, uint64_t bytes, uint64_t left, forebay_error *error)
{
    uint64_t block = (uint64_t)sound->channels * (sound->bits / 8);

    if (bytes == UNKNOWN_BYTES || bytes == 0)
        bytes = left;
    if (bytes > left)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "its header says %" PRIu64 " bytes of sound from "
                       "byte %" PRIu64 " on, but it ends %" PRIu64 " bytes early",
                       bytes, sound->data, bytes - left);
    if (block == 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "its header says 0 channels");
    sound->frames = bytes / block;
    return FOREBAY_OK;
}

int fb_wav_probe(struct fb_sound *sound, const struct fb_input *input, void *work, bool *known,
                 forebay_error *error)
{
    uint8_t *bytes = work;
    bool has_format = false;
    uint64_t at = 12;

    *known = false;
    for (unsigned i = 0; i < CHUNKS_MAX && input->bytes - at >= 8; i++) {
        uint64_t have = fb_min(input->bytes - at, 8 + 40), size;
        int status = fb_input_read(input, bytes, have, at, error);

        if (status)
            return status;
        size = fb_le32(bytes + 4);
        if (memcmp(bytes, "data", 4) == 0) {
            if (!has_format)
                return fb_fail(error, FOREBAY_BAD_DATA, "its sound begins before its format");
            *known = true;
            sound->data = at + 8;
            return set_frames(sound, size, input->bytes - sound->data, error);
        }
        if (memcmp(bytes, "fmt ", 4) == 0) {
            if (size < 16 || have < 8 + 16)
                return fb_fail(error, FOREBAY_BAD_DATA,
                               "its format takes %" PRIu64 " bytes, and "
                               "16 are the least",
                               fb_min(size, have - 8));
            has_format = true;
            if (!parse_format(sound, bytes + 8, fb_min(size, have - 8)))
                return FOREBAY_OK;
        }
        at += 8 + size + size % 2;
        if (at > input->bytes)
            break;
    }
    return fb_fail(error, FOREBAY_BAD_DATA,
                   "a WAV without sound: no data chunk in %" PRIu64 " bytes", input->bytes);
}

/* ---- numbers to floats, as libsndfile has them ---- */

static float number_at(const uint8_t *from, uint32_t bits, bool is_float)
{
    float single;
    double wide;
    int16_t half;
    int32_t whole;

    switch (bits) {
    case 8:
        return (float)((int)from[0] - 128) * (1.0f / 128);
    case 16:
        memcpy(&half, from, sizeof(half));
        return (float)half * (1.0f / 32768);
    case 24:
        whole =
            (int32_t)((uint32_t)from[0] << 8 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 24);
        return (float)whole * (1.0f / 2147483648.0f);
    case 32:
        memcpy(&single, from, sizeof(single));
        memcpy(&whole, from, sizeof(whole));
        return is_float ? single : (float)whole * (1.0f / 2147483648.0f);
    default:
        memcpy(&wide, from, sizeof(wide));
        return (float)wide;
    }
}

/* The usual case, written so that a compiler sees what to do with eight at a time. */
static void convert_16(float *to, const uint8_t *from, uint64_t frames)
{
    for (uint64_t i = 0; i < frames; i++) {
        int16_t half;

        memcpy(&half, from + 2 * i, sizeof(half));
        to[i] = (float)half * (1.0f / 32768);
    }
}

static void convert(const struct fb_sound *sound, float *to, const uint8_t *from, uint64_t frames)
{
    uint32_t bytes = sound->bits / 8;

    if (sound->channels == 1 && sound->bits == 16) {
        convert_16(to, from, frames);
        return;
    }
    for (uint64_t i = 0; i < frames; i++) {
        float sum = number_at(from, sound->bits, sound->is_float);

        from += bytes;
        for (uint32_t c = 1; c < sound->channels; c++, from += bytes)
            sum += number_at(from, sound->bits, sound->is_float);
        to[i] = sound->channels == 1 ? sum : sum / (float)sound->channels;
    }
}

int fb_wav_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                struct fb_sink *sink, void *work, forebay_error *error)
{
    uint64_t block = (uint64_t)sound->channels * (sound->bits / 8);
    uint64_t at = sound->data + first * block, step = FB_SOUND_READ_BYTES / block;

    for (;;) {
        uint64_t room;
        float *to = fb_sink_room(sink, &room);
        int status;

        if (room == 0)
            return FOREBAY_OK;
        room = fb_min(room, step);
        status = fb_input_read(input, work, room * block, at, error);
        if (status)
            return status;
        convert(sound, to, work, room);
        at += room * block;
        status = fb_sink_add(sink, room, error);
        if (status)
            return status;
    }
}
