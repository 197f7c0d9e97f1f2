#include "governor/trial.h"

#include "base/size.h"

#define SECOND ((uint64_t)1000000000)
#define LEG_NS (SECOND / 5)
#define LEG_BATCHES 3       /* fewer say little about a rate */
#define LEG_MOST_NS (5 * SECOND / 2)
#define PAIRS 6             /* a step that changes nothing wins them all once in 64 times */
#define HELPED 1.03         /* what gains less is not worth its memory */
#define TRIAL_LONG_NS (8 * SECOND) /* slow batches: then fewer must do */
#define PAIRS_LEAST 3
#define CLEAR_PAIRS 4       /* that all gain so much need no more */
#define CLEAR_GAIN 1.15

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* new old, old new, new old, old new: what drifts meets both, and few changes are made. */
static bool is_new(uint64_t leg)
{
    return leg % 4 == 0 || leg % 4 == 3;
}

static void leg_begin(const struct fb_view *now, struct fb_past *past)
{
    past->leg_ns = now->time_ns;
    past->leg_bytes = now->bytes;
    past->leg_batches = now->batches;
    past->leg_delivered_ns = now->delivered_ns;
}

void fb_trial_begin(const struct fb_view *now, struct fb_past *past, enum fb_action action,
                    uint64_t old, uint64_t to)
{
    past->trial = action;
    past->trial_old = old;
    past->trial_new = to;
    past->trial_ns = now->time_ns;
    past->trial_leg = 0;
    past->trial_old_rate = past->trial_new_rate = 0;
    past->leg_fresh = true;
}

uint64_t fb_trial_setting(const struct fb_past *past)
{
    return is_new(past->trial_leg) ? past->trial_new : past->trial_old;
}

static double pair_at(const struct fb_past *past, uint64_t number)
{
    const double pairs[PAIRS] = { past->pair_1, past->pair_2, past->pair_3,
                                  past->pair_4, past->pair_5, past->pair_6 };

    return pairs[number % PAIRS];
}

static void pair_put(struct fb_past *past, uint64_t number, double gain)
{
    double *pairs[PAIRS] = { &past->pair_1, &past->pair_2, &past->pair_3,
                             &past->pair_4, &past->pair_5, &past->pair_6 };

    *pairs[number % PAIRS] = gain;
}

/* From delivery to delivery: with large batches a look comes anywhere between two. */
static double leg_rate(const struct fb_view *now, const struct fb_past *past)
{
    uint64_t passed = less(now->delivered_ns, past->leg_delivered_ns);

    return passed ? (double)less(now->bytes, past->leg_bytes) / (double)passed * (double)SECOND : 0;
}

static void leg_end(const struct fb_view *now, struct fb_past *past)
{
    double rate = leg_rate(now, past), fresh, old;

    if (past->trial_leg % 2) {
        fresh = is_new(past->trial_leg) ? rate : past->leg_rate;
        old = is_new(past->trial_leg) ? past->leg_rate : rate;
        pair_put(past, past->trial_leg / 2, old > 0 ? fresh / old : 1);
    }
    past->leg_rate = rate;
    if (is_new(past->trial_leg))
        past->trial_new_rate += rate;
    else
        past->trial_old_rate += rate;
    past->trial_leg++;
}

uint64_t fb_trial_wins(const struct fb_past *past)
{
    uint64_t pairs = fb_min(past->trial_leg / 2, PAIRS), wins = 0;

    for (uint64_t i = 0; i < pairs; i++)
        wins += pair_at(past, i) >= 1;
    return wins;
}

/* On a machine with moods a step that changes nothing wins every other pair: one lost is enough. */
static bool has_lost(const struct fb_past *past)
{
    return fb_trial_wins(past) < fb_min(past->trial_leg / 2, PAIRS);
}

static bool is_clear(const struct fb_past *past, uint64_t pairs)
{
    for (uint64_t i = 0; i < pairs; i++)
        if (pair_at(past, i) < CLEAR_GAIN)
            return false;
    return pairs >= CLEAR_PAIRS;
}

static bool is_over(const struct fb_view *now, const struct fb_past *past)
{
    uint64_t pairs = past->trial_leg / 2;

    if (past->trial_leg % 2 || !pairs)
        return false;
    return pairs >= PAIRS || has_lost(past) || is_clear(past, pairs) ||
           (pairs >= PAIRS_LEAST && less(now->time_ns, past->trial_ns) >= TRIAL_LONG_NS);
}

enum fb_trial_news fb_trial_look(const struct fb_view *now, struct fb_past *past)
{
    uint64_t passed = less(now->time_ns, past->leg_ns);
    uint64_t batches = less(now->batches, past->leg_batches);

    if (past->leg_fresh) { /* the first moment is the change itself */
        past->leg_fresh = false;
        leg_begin(now, past);
        return FB_TRIAL_GOES_ON;
    }
    if ((passed < LEG_NS || batches < LEG_BATCHES) && passed < LEG_MOST_NS)
        return FB_TRIAL_GOES_ON;
    if (!batches)
        return FB_TRIAL_VOID;
    leg_end(now, past);
    leg_begin(now, past);
    if (is_over(now, past))
        return FB_TRIAL_OVER;
    if (is_new(past->trial_leg) == is_new(past->trial_leg - 1))
        return FB_TRIAL_GOES_ON;
    past->leg_fresh = true;
    return FB_TRIAL_CHANGE;
}

/* The new rate over the old one: the median of the pairs. */
static double gain_of(const struct fb_past *past)
{
    double sorted[PAIRS] = { past->pair_1, past->pair_2, past->pair_3,
                             past->pair_4, past->pair_5, past->pair_6 };
    uint64_t pairs = fb_min(past->trial_leg / 2, PAIRS);

    for (uint64_t i = 1; i < pairs; i++)
        for (uint64_t j = i; j && sorted[j] < sorted[j - 1]; j--) {
            double larger = sorted[j - 1];

            sorted[j - 1] = sorted[j];
            sorted[j] = larger;
        }
    return pairs ? (sorted[(pairs - 1) / 2] + sorted[pairs / 2]) / 2 : 1;
}

bool fb_trial_is_won(const struct fb_past *past)
{
    double gain = gain_of(past);

    if (has_lost(past))
        return false;
    return past->trial_new > past->trial_old ? gain > HELPED : gain >= 1;
}
