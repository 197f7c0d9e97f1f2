#include "monitor/verdict.h"

#include <math.h>
#include <stdio.h>

#define WAITS 0.05 /* of the consumer's time: less, and the data is there when it comes */

enum fb_limit_stage fb_verdict(const struct fb_snapshot *page)
{
    double read = page->read_share, decode = page->decode_share, copy = page->copy_share;

    if (isnan(page->wait_share))
        return FB_LIMIT_UNKNOWN;
    if (page->wait_share < WAITS)
        return FB_LIMIT_CONSUMER;
    if (isnan(read) || isnan(decode) || isnan(copy))
        return FB_LIMIT_UNKNOWN;
    if (read >= decode && read >= copy)
        return FB_LIMIT_READ;
    return decode >= copy ? FB_LIMIT_DECODE : FB_LIMIT_COPY;
}

const char *fb_verdict_name(enum fb_limit_stage stage)
{
    static const char *const names[] = { "unknown", "read", "decode", "copy", "consumer" };

    return names[stage];
}

void fb_verdict_tell(const struct fb_snapshot *page, char *text, size_t size)
{
    double wait = 100 * page->wait_share;

    switch (fb_verdict(page)) {
    case FB_LIMIT_CONSUMER:
        snprintf(text, size, "consumer: it waits for data %.1f%% of its time; the loader keeps up",
                 wait);
        break;
    case FB_LIMIT_READ:
        snprintf(text, size, "read: the consumer waits %.0f%%, workers spend %.0f%% reading; more "
                 "cache, more workers or a faster disk", wait, 100 * page->read_share);
        break;
    case FB_LIMIT_DECODE:
        snprintf(text, size, "decode: the consumer waits %.0f%%, workers spend %.0f%% decoding; "
                 "more workers, or forebay pack", wait, 100 * page->decode_share);
        break;
    case FB_LIMIT_COPY:
        snprintf(text, size, "copy: the consumer waits %.0f%%, workers spend %.0f%% copying cached "
                 "units; memory is the limit", wait, 100 * page->copy_share);
        break;
    default:
        snprintf(text, size, "unknown yet");
    }
}
