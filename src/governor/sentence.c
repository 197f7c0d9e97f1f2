/* sentence.c -- how often the governor speaks of one cause. */
#include "governor/sentence.h"

#define SECOND_NS ((uint64_t)1000000000)

void fb_sentence_join(struct fb_sentences *said, struct fb_decision *decision, uint64_t now_ns)
{
    struct fb_sentence *one = &said->list[0], *oldest = one;

    if (decision->quiet)
        return;
    for (; one < said->list + FB_SENTENCES; one++) {
        if (one->reason == decision->reason && one->action == decision->action)
            break;
        if (one->time_ns < oldest->time_ns)
            oldest = one;
    }
    if (one == said->list + FB_SENTENCES) {
        one = oldest;
        *one = (struct fb_sentence){ .reason = decision->reason, .action = decision->action };
    }
    if (one->time_ns && now_ns - one->time_ns < SECOND_NS) {
        if (!one->joined)
            one->from = decision->from;
        one->joined = decision->quiet = true;
        return;
    }
    if (one->joined)
        decision->from = one->from;
    one->joined = false;
    one->time_ns = now_ns;
}
