/*
 * manifest.h -- speech manifests: JSON-lines, one utterance a line, as NeMo writes them.
 *
 *     {"audio_filepath": "clips/0001.wav", "duration": 3.2, "offset": 0.5, "text": "hello", ...}
 *
 * Lines are bounded; blank ones are passed over. Only where a line lies is kept in memory: it is
 * read again when its utterance is wanted, and its hash tells whether it is still the same.
 */
#ifndef FB_SOURCE_MANIFEST_H
#define FB_SOURCE_MANIFEST_H
#include "base/error.h"

#define FB_MANIFEST_LINE_BYTES 65536u
/* What jansson takes for the worst line, which is full of empty objects: 5.2 MB (test_manifest.c
 * holds the two together). */
#define FB_MANIFEST_LIBRARY_BYTES ((uint64_t)6 << 20)

/* One line, parsed. The texts belong to it. */
struct fb_utterance {
    void *object;     /* jansson's */
    const char *path; /* as written */
    double duration;  /* seconds; below 0 if it does not say */
    double offset;    /* seconds; below 0 if it does not say */
};

/* Nothing to release on failure. */
int fb_utterance_parse(struct fb_utterance *utterance, const char *line, size_t bytes,
                       forebay_error *error);
void fb_utterance_release(struct fb_utterance *utterance);
/* The value of any key as text: strings as they are, all else as JSON, "" if it has no such key or
 * null. How many bytes it has; as many as `size` are written, without a NUL. */
size_t fb_utterance_text(const struct fb_utterance *utterance, const char *key, char *to,
                         size_t size);

/* Called for every line that is not blank: `number` from 1, `at` its first byte in the file. What
 * is longer than FB_MANIFEST_LINE_BYTES comes with bytes = 0. A status other than 0 ends it. */
typedef int (*fb_manifest_fn)(void *data, const char *line, size_t bytes, uint64_t at,
                              uint64_t number, forebay_error *error);
/* All lines of the open file; `room` is 2 * FB_MANIFEST_LINE_BYTES. */
int fb_manifest_walk(int fd, char *room, fb_manifest_fn fn, void *data, forebay_error *error);

uint32_t fb_manifest_hash(const char *line, size_t bytes);
#endif
