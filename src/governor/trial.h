/*
 * trial.h -- is a new setting better than the old one? Both run in turns of a few tenths of a
 * second, new old old new ..., so that whatever else goes on (a cache that fills, a machine that
 * others use) meets both alike. The new one must not lose one pair, and more of something must win
 * by a few percent; so a trial that does not help is over soon. The state is part of struct
 * fb_past; pure, as the decision is.
 */
#ifndef FB_GOVERNOR_TRIAL_H
#define FB_GOVERNOR_TRIAL_H
#include "governor/decide.h"

enum fb_trial_news {
    FB_TRIAL_GOES_ON,
    FB_TRIAL_CHANGE, /* it is the other setting's turn: see fb_trial_setting() */
    FB_TRIAL_OVER,   /* see fb_trial_is_won() */
    FB_TRIAL_VOID    /* nothing was delivered: it shows nothing */
};

/* From the next look on `action` is tried at `to`, beside `old`. */
void fb_trial_begin(const struct fb_view *now, struct fb_past *past, enum fb_action action,
                    uint64_t old, uint64_t to);
enum fb_trial_news fb_trial_look(const struct fb_view *now, struct fb_past *past);
/* What should be set at present. */
uint64_t fb_trial_setting(const struct fb_past *past);
/* Of a trial that is over: does the new setting stay? And how many pairs it won. */
bool fb_trial_is_won(const struct fb_past *past);
uint64_t fb_trial_wins(const struct fb_past *past);
#endif
