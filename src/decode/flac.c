/*
 * flac.c -- FLAC through libFLAC.
 *
 * The metadata is walked here and libFLAC is shown only "fLaC", the STREAMINFO and the frames:
 * pictures, comments and seek tables, which may be 16 MiB each, never reach it. A seek goes by
 * halving, which needs no table.
 */
#include <string.h>
#include <FLAC/stream_decoder.h>

#include "base/size.h"
#include "decode/sound_inside.h"

#define INFO_BYTES 34u
#define SHOWN_BYTES (4u + 4u + INFO_BYTES) /* of metadata */
#define BLOCKS_MAX 4096                    /* of metadata */

/* ---- the header ---- */

static int parse_info(struct fb_sound *sound, forebay_error *error)
{
    const uint8_t *info = sound->info;

    sound->rate = (uint32_t)info[10] << 12 | (uint32_t)info[11] << 4 | (uint32_t)info[12] >> 4;
    sound->channels = ((uint32_t)info[12] >> 1 & 7) + 1;
    sound->bits = (((uint32_t)info[12] & 1) << 4 | (uint32_t)info[13] >> 4) + 1;
    sound->frames = (uint64_t)(info[13] & 15) << 32 | (uint64_t)info[14] << 24 |
                    (uint64_t)info[15] << 16 | (uint64_t)info[16] << 8 | info[17];
    if (sound->bits < 4)
        return fb_fail(error, FOREBAY_BAD_DATA, "its header says %" PRIu32 " bits; 4 to 32 can be",
                       sound->bits);
    return FOREBAY_OK;
}

static int count_frames(struct fb_sound *sound, const struct fb_input *input, void *work,
                        forebay_error *error);

int fb_flac_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                  forebay_error *error)
{
    uint64_t at = 4;
    bool has_info = false;

    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        uint8_t block[4 + INFO_BYTES];
        uint64_t have = fb_min(input->bytes - at, sizeof(block)), size;
        int status = fb_input_read(input, block, fb_max(have, 4), at, error);

        if (status)
            return status;
        size = (uint64_t)block[1] << 16 | (uint64_t)block[2] << 8 | block[3];
        if ((block[0] & 0x7f) == 0 && !has_info) {
            if (size != INFO_BYTES || have < sizeof(block))
                return fb_fail(error, FOREBAY_BAD_DATA,
                               "its STREAMINFO has %" PRIu64 " bytes instead of %u",
                               fb_min(size, have - 4), INFO_BYTES);
            memcpy(sound->info, block + 4, INFO_BYTES);
            has_info = true;
        }
        at += 4 + size;
        if (at > input->bytes || !has_info)
            break;
        if (block[0] & 0x80) {
            sound->data = at;
            status = parse_info(sound, error);
            if (!status && sound->frames == 0 && at < input->bytes)
                status = count_frames(sound, input, work, error);
            return status;
        }
    }
    return fb_fail(error, FOREBAY_BAD_DATA,
                   has_info ? "a FLAC that ends within its metadata"
                            : "a FLAC that does not begin with STREAMINFO");
}

/* ---- the frames ---- */

struct flac {
    const struct fb_sound *sound;
    const struct fb_input *input;
    struct fb_sink *sink; /* NULL: only count */
    uint8_t head[SHOWN_BYTES];
    uint8_t *window;     /* of the input: FB_SOUND_READ_BYTES */
    uint64_t from, have; /* what of it is there */
    uint64_t at;         /* in what libFLAC is shown */
    uint64_t next;       /* frame that comes next */
    float scale;
    int status; /* of a callback that failed; `error` has the words */
    forebay_error *error;
};

static uint64_t shown_bytes(const struct flac *flac)
{
    return SHOWN_BYTES + flac->input->bytes - flac->sound->data;
}

static FLAC__StreamDecoderReadStatus on_read(const FLAC__StreamDecoder *decoder, FLAC__byte *into,
                                             size_t *bytes, void *data)
{
    struct flac *flac = data;
    uint64_t left = shown_bytes(flac) - flac->at, count = fb_min(*bytes, left), at;

    (void)decoder;
    *bytes = 0;
    if (count == 0)
        return FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
    if (flac->at < SHOWN_BYTES) {
        count = fb_min(count, SHOWN_BYTES - flac->at);
        memcpy(into, flac->head + flac->at, count);
    } else {
        at = flac->sound->data + flac->at - SHOWN_BYTES;
        if (at < flac->from || at >= flac->from + flac->have) {
            flac->from = at;
            flac->have = fb_min(FB_SOUND_READ_BYTES, flac->input->bytes - at);
            flac->status = fb_input_read(flac->input, flac->window, flac->have, at, flac->error);
            if (flac->status) {
                flac->have = 0;
                return FLAC__STREAM_DECODER_READ_STATUS_ABORT;
            }
        }
        count = fb_min(count, flac->from + flac->have - at);
        memcpy(into, flac->window + (at - flac->from), count);
    }
    flac->at += count;
    *bytes = count;
    return FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
}

static FLAC__StreamDecoderSeekStatus on_seek(const FLAC__StreamDecoder *decoder,
                                             FLAC__uint64 offset, void *data)
{
    struct flac *flac = data;

    (void)decoder;
    if (offset > shown_bytes(flac))
        return FLAC__STREAM_DECODER_SEEK_STATUS_ERROR;
    flac->at = offset;
    return FLAC__STREAM_DECODER_SEEK_STATUS_OK;
}

static FLAC__StreamDecoderTellStatus on_tell(const FLAC__StreamDecoder *decoder,
                                             FLAC__uint64 *offset, void *data)
{
    (void)decoder;
    *offset = ((struct flac *)data)->at;
    return FLAC__STREAM_DECODER_TELL_STATUS_OK;
}

static FLAC__StreamDecoderLengthStatus on_length(const FLAC__StreamDecoder *decoder,
                                                 FLAC__uint64 *bytes, void *data)
{
    (void)decoder;
    *bytes = shown_bytes(data);
    return FLAC__STREAM_DECODER_LENGTH_STATUS_OK;
}

static FLAC__bool on_end(const FLAC__StreamDecoder *decoder, void *data)
{
    const struct flac *flac = data;

    (void)decoder;
    return flac->at >= shown_bytes(flac);
}

static void convert(const struct flac *flac, float *to, const FLAC__int32 *const *from,
                    uint64_t begin, uint64_t frames)
{
    uint32_t channels = flac->sound->channels;

    if (channels == 1) {
        for (uint64_t i = 0; i < frames; i++)
            to[i] = (float)from[0][begin + i] * flac->scale;
        return;
    }
    for (uint64_t i = 0; i < frames; i++) {
        float sum = (float)from[0][begin + i] * flac->scale;

        for (uint32_t c = 1; c < channels; c++)
            sum += (float)from[c][begin + i] * flac->scale;
        to[i] = sum / (float)channels;
    }
}

static int put_block(struct flac *flac, const FLAC__Frame *frame, const FLAC__int32 *const *from)
{
    uint64_t begin = frame->header.number.sample_number, count = frame->header.blocksize;

    if (frame->header.channels != flac->sound->channels ||
        frame->header.bits_per_sample != flac->sound->bits)
        return fb_fail(flac->error, FOREBAY_BAD_DATA,
                       "frame %" PRIu64 " has %u channels of %u "
                       "bits, its header says %" PRIu32 " of %" PRIu32,
                       begin, frame->header.channels, frame->header.bits_per_sample,
                       flac->sound->channels, flac->sound->bits);
    if (begin != flac->next)
        return fb_fail(flac->error, FOREBAY_BAD_DATA,
                       "frame %" PRIu64 " is missing: behind it "
                       "comes frame %" PRIu64,
                       flac->next, begin);
    flac->next += count;
    for (uint64_t done = 0, step; flac->sink && done < count; done += step) {
        uint64_t room;
        float *to = fb_sink_room(flac->sink, &room);
        int status;

        step = fb_min(room, count - done);
        if (step == 0)
            break;
        convert(flac, to, from, done, step);
        status = fb_sink_add(flac->sink, step, flac->error);
        if (status)
            return status;
    }
    return FOREBAY_OK;
}

static FLAC__StreamDecoderWriteStatus on_block(const FLAC__StreamDecoder *decoder,
                                               const FLAC__Frame *frame,
                                               const FLAC__int32 *const from[], void *data)
{
    struct flac *flac = data;

    (void)decoder;
    if (!flac->status)
        flac->status = put_block(flac, frame, from);
    return flac->status ? FLAC__STREAM_DECODER_WRITE_STATUS_ABORT
                        : FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
}

static void on_error(const FLAC__StreamDecoder *decoder, FLAC__StreamDecoderErrorStatus what,
                     void *data)
{
    struct flac *flac = data;

    (void)decoder;
    if (flac->status)
        return;
    flac->status =
        fb_fail(flac->error, FOREBAY_BAD_DATA, "near frame %" PRIu64 ", byte %" PRIu64 ": %s",
                flac->next, flac->at < SHOWN_BYTES ? 0 : flac->sound->data + flac->at - SHOWN_BYTES,
                FLAC__StreamDecoderErrorStatusString[what]);
}

static bool wants_more(const struct flac *flac)
{
    return !flac->status && (!flac->sink || flac->sink->done < flac->sink->frames);
}

static int decode(struct flac *flac, FLAC__StreamDecoder *decoder, uint64_t first)
{
    FLAC__StreamDecoderState state;

    if (FLAC__stream_decoder_init_stream(decoder, on_read, on_seek, on_tell, on_length, on_end,
                                         on_block, NULL, on_error,
                                         flac) != FLAC__STREAM_DECODER_INIT_STATUS_OK)
        return fb_fail(flac->error, FOREBAY_NO_MEMORY, "libFLAC could not be set up");
    flac->next = first;
    if (first && !FLAC__stream_decoder_seek_absolute(decoder, first) && !flac->status)
        return fb_fail(flac->error, FOREBAY_BAD_DATA, "frame %" PRIu64 " is not to be found",
                       first);
    while (wants_more(flac)) {
        bool went_on = FLAC__stream_decoder_process_single(decoder);

        state = FLAC__stream_decoder_get_state(decoder);
        if (flac->status || state == FLAC__STREAM_DECODER_END_OF_STREAM)
            break;
        if (!went_on)
            return fb_fail(flac->error,
                           state == FLAC__STREAM_DECODER_MEMORY_ALLOCATION_ERROR ? FOREBAY_NO_MEMORY
                                                                                 : FOREBAY_BAD_DATA,
                           "libFLAC: %s", FLAC__StreamDecoderStateString[state]);
    }
    if (!flac->status && flac->sink && flac->sink->done < flac->sink->frames)
        return fb_fail(flac->error, FOREBAY_BAD_DATA,
                       "it ends at frame %" PRIu64 ", its header says %" PRIu64, flac->next,
                       flac->sound->frames);
    return flac->status;
}

static int run(struct flac *flac, uint64_t first)
{
    FLAC__StreamDecoder *decoder = FLAC__stream_decoder_new();
    int status;

    if (!decoder)
        return fb_fail(flac->error, FOREBAY_NO_MEMORY, "no memory for libFLAC");
    memcpy(flac->head, "fLaC\x80\0\0\x22", 8); /* the STREAMINFO is the only one, so the last */
    memcpy(flac->head + 8, flac->sound->info, INFO_BYTES);
    flac->scale = 1.0f / (float)((uint32_t)1 << (flac->sound->bits - 1));
    status = decode(flac, decoder, first);
    FLAC__stream_decoder_delete(decoder);
    return status;
}

/* Some encoders do not know how long it will be when they write the header. */
static int count_frames(struct fb_sound *sound, const struct fb_input *input, void *work,
                        forebay_error *error)
{
    struct flac flac = { .sound = sound, .input = input, .window = work, .error = error };
    int status = run(&flac, 0);

    if (!status)
        sound->frames = flac.next;
    return status;
}

int fb_flac_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                 struct fb_sink *sink, void *work, forebay_error *error)
{
    struct flac flac = {
        .sound = sound, .input = input, .sink = sink, .window = work, .error = error
    };

    return run(&flac, first);
}
