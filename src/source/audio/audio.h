/* audio.h -- what the two files of the audio source share: source_audio.c is the seam, audio_open.c
 * reads the manifests. */
#ifndef FB_SOURCE_AUDIO_H
#define FB_SOURCE_AUDIO_H
#include <stdatomic.h>

#include "decode/sound.h"
#include "source/extract.h"
#include "source/files.h"
#include "source/audio/manifest.h"
#include "source/source.h"

#define FB_AUDIO_FIELDS 64
#define FB_AUDIO_BROKEN UINT64_MAX
#define FB_AUDIO_BAD_LINE (-2.0f)
/* For a sound, and for lines of the manifest. */
#define FB_AUDIO_SCRATCH_BYTES (FB_SOUND_WORK_BYTES + 2 * (uint64_t)FB_MANIFEST_LINE_BYTES)
/* Of the two libraries only one works at a time, but while manifests are read. */
#define FB_AUDIO_LIBRARY_BYTES FB_SOUND_LIBRARY_BYTES
_Static_assert(FB_MANIFEST_LIBRARY_BYTES <= FB_AUDIO_LIBRARY_BYTES, "the larger of both");

struct fb_audio_utterance {
    uint64_t at; /* of its line */
    uint32_t bytes, hash;
    uint32_t line; /* number */
    float seconds; /* what the manifest says, or the header if it says nothing; below 0: neither */
};

struct fb_audio {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_files files;     /* manifests */
    int *fds;                  /* of them; -1: not open */
    uint64_t *ends;            /* utterances up to the end of each */
    struct fb_tape utterances; /* struct fb_audio_utterance */
    struct fb_tape lengths;    /* uint32_t of each text field of each utterance */
    _Atomic uint64_t *rows;    /* 1 + frames of each utterance; 0: not known, or FB_AUDIO_BROKEN */
    uint32_t rate;             /* of what is handed out; 0 while it is not known */
    bool resample;             /* to it; else other rates are refused */
    uint64_t frames_max;       /* of one utterance: more are refused */
    struct fb_field *fields;
};

static inline const struct fb_audio_utterance *fb_audio_at(const struct fb_audio *audio,
                                                           uint64_t sample)
{
    return (const struct fb_audio_utterance *)(void *)audio->utterances.memory + sample;
}

/* The path of what a manifest calls `said`: relative ones start at its folder. */
int fb_audio_path(const struct fb_audio *audio, uint64_t manifest, const char *said, char *path,
                  size_t size, forebay_error *error);

/* The sound of one utterance. */
struct fb_audio_spoken {
    struct fb_utterance said; /* its numbers */
    struct fb_sound sound;
    uint64_t first, frames; /* of the sound that are the utterance */
};
/* Open it and find its part. On success the file is the caller's to close. */
int fb_audio_open_spoken(const struct fb_audio *audio, uint64_t sample, struct fb_scratch scratch,
                         struct fb_reader *reader, struct fb_audio_spoken *spoken,
                         struct fb_extract *file, forebay_error *error);

/* The two ends of its life: open is in audio_open.c. */
int fb_audio_open(struct fb_source **out, const struct fb_config *config, struct fb_budget *budget,
                  const struct fb_log *log, forebay_error *error);
void fb_audio_close(struct fb_source *source);
#endif
