/*
 * generate.h -- deterministic sample data: same kind, seed and sizes, same bytes.
 *
 * Numbers come from a counter (base/mix.h) and exact or integer arithmetic, never from libm, so
 * the values do not depend on the machine. Three kinds go through an encoder (JPEG, WAV, FLAC):
 * there the pixels and PCM samples are the same everywhere, and the files are for the same version
 * of libjpeg, libsndfile and libFLAC.
 *
 * Every file is written under a temporary name and renamed, so it is whole or absent. A file that
 * is already there is compared, not written: the same is kept, another is an error unless `force`.
 */
#ifndef FB_GENERATE_H
#define FB_GENERATE_H
#include "base/error.h"
#include "base/log.h"

struct fb_generate_options {
    const char *kind;   /* a name of fb_generate_kinds */
    const char *folder; /* made if missing, parents too */
    uint64_t files;     /* samples; 0: the kind's default */
    uint64_t bytes;     /* of each; 0: the kind's default */
    uint64_t rows;      /* table: of each file, instead of bytes; 0: by bytes */
    uint64_t seed;
    bool force;         /* overwrite what is there */
    unsigned threads;   /* 0: 2 */
};

struct fb_generate_result {
    uint64_t samples;
    uint64_t written; /* files */
    uint64_t kept;    /* files that were there already, byte for byte */
    uint64_t bytes;   /* of all of them */
    uint64_t checksum;
    bool checksum_of_data; /* of the arrays, as `forebay run` sums them; else of whole files */
};

struct fb_generate_kind {
    const char *name;
    const char *help;   /* one line: what it is, names and sizes by default */
    uint64_t files;     /* default */
    uint64_t bytes;     /* default */
};
extern const struct fb_generate_kind fb_generate_kinds[];
extern const unsigned fb_generate_kind_count;

/* Make the set. Two threads; progress (in bytes) comes from the calling one and may stop it. On
 * failure whole files stay, no half file does. */
int fb_generate(struct fb_generate_result *result, const struct fb_generate_options *options,
                const struct fb_log *log, forebay_error *error);
#endif
