/* sound_inside.h -- what the files that read sound share. */
#ifndef FB_DECODE_SOUND_INSIDE_H
#define FB_DECODE_SOUND_INSIDE_H
#include "base/little.h"
#include "decode/sound.h"

/* How FB_SOUND_WORK_BYTES are shared out. */
#define FB_SOUND_READ_BYTES ((uint64_t)256 * 1024) /* of the input */
#define FB_SOUND_PIECE_FRAMES ((uint64_t)8192)     /* on their way to be resampled */

#define FB_SOUND_WINDOW_BYTES (FB_SOUND_READ_BYTES / 2) /* the other half: decoded frames */

/* The input as a library reads it: from front to back, through a window. */
struct fb_sound_file {
    const struct fb_input *input;
    uint8_t *window; /* FB_SOUND_WINDOW_BYTES */
    uint64_t from, have, at;
    int status; /* of a read that failed; `error` has the words */
    forebay_error *error;
};
/* Up to `count` bytes from `at` on; returns how many there were. */
uint64_t fb_sound_file_read(struct fb_sound_file *file, void *into, uint64_t count);

/* Where decoded frames go: to their place, or in pieces through somebody's hands. */
struct fb_sink {
    float *to;
    uint64_t done, frames; /* given, and wanted */
    /* NULL: straight to `to`. Else each piece, of at most FB_SOUND_PIECE_FRAMES. */
    int (*full)(struct fb_sink *sink, const float *piece, uint64_t frames, forebay_error *error);
    void *data;
    float *piece;
};

/* Where the next frames go; there is room for *room of them, which is 0 if all are there. */
float *fb_sink_room(const struct fb_sink *sink, uint64_t *room);
/* `frames` were put there. */
int fb_sink_add(struct fb_sink *sink, uint64_t frames, forebay_error *error);

/* Each reads frames [first, first + sink->frames), which lie within the sound. `work` has
 * FB_SOUND_READ_BYTES. */
int fb_wav_probe(struct fb_sound *sound, const struct fb_input *input, void *work, bool *known,
                 forebay_error *error);
int fb_wav_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                struct fb_sink *sink, void *work, forebay_error *error);
int fb_flac_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                  forebay_error *error);
int fb_flac_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                 struct fb_sink *sink, void *work, forebay_error *error);
int fb_mp3_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                 forebay_error *error);
int fb_mp3_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                struct fb_sink *sink, void *work, forebay_error *error);
int fb_sndfile_probe(struct fb_sound *sound, const struct fb_input *input, void *work,
                     forebay_error *error);
int fb_sndfile_read(const struct fb_sound *sound, const struct fb_input *input, uint64_t first,
                    struct fb_sink *sink, void *work, forebay_error *error);
/* Would the Vorbis stream that begins the input make libvorbis take more than it may? BAD_DATA with
 * the number if so; other Ogg streams are let through. */
int fb_vorbis_check(const struct fb_input *input, void *work, forebay_error *error);

/* `channels` interleaved numbers a frame to their mean. */
void fb_sound_mix(float *to, const float *from, uint64_t frames, uint32_t channels);

#endif
