/*
 * sentence.h -- how often the governor speaks: one sentence a second and cause. Changes in between
 * are part of the next sentence of that cause: it counts from the setting that was last told.
 */
#ifndef FB_GOVERNOR_SENTENCE_H
#define FB_GOVERNOR_SENTENCE_H
#include "governor/decide.h"

#define FB_SENTENCES 16 /* causes that are remembered; of more the oldest is forgotten */

/* All zero at first. */
struct fb_sentences {
    struct fb_sentence {
        const char *reason;
        enum fb_action action;
        uint64_t time_ns, from;
        bool joined; /* changes since then, from `from`, are not told yet */
    } list[FB_SENTENCES];
};

/* Sets `quiet` if the last sentence of this cause is younger than a second, else `from` to what was
 * last told. */
void fb_sentence_join(struct fb_sentences *said, struct fb_decision *decision, uint64_t now_ns);
#endif
