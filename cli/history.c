/* history.c -- the last points of each loader's figures, for the charts and arrows of `top`. */
#include "history.h"

#include <math.h>
#include <stdlib.h>

#include "base/size.h"

#define TREND_POINTS 8   /* the mean of the newest so many ... */
#define TREND_BEFORE 16  /* ... is compared with the mean of as many before them */
#define TREND_SHARE 0.05

struct past {
    uint64_t pid, start, opened_ns; /* whose it is */
    bool seen;                      /* by the newest history_add */
    unsigned count;                 /* points added so far */
    float points[HISTORY_FIGURES][HISTORY_POINTS];
};

struct history {
    struct past *of[LOADERS_MAX];
};

struct history *history_open(void)
{
    return calloc(1, sizeof(struct history));
}

void history_close(struct history *history)
{
    for (unsigned i = 0; history && i < LOADERS_MAX; i++)
        free(history->of[i]);
    free(history);
}

static bool is_of(const struct past *past, const struct fb_snapshot *page)
{
    return past && past->pid == page->pid && past->start == page->start &&
           past->opened_ns == page->opened_ns;
}

/* Where it is kept; with `make` a free place if it is new. NULL if there is none. */
static struct past *find(struct history *history, const struct fb_snapshot *page, bool make)
{
    struct past **empty = NULL;

    for (unsigned i = 0; i < LOADERS_MAX; i++) {
        if (is_of(history->of[i], page))
            return history->of[i];
        if (!history->of[i] && !empty)
            empty = &history->of[i];
    }
    if (!make || !empty)
        return NULL;
    *empty = calloc(1, sizeof(**empty));
    if (*empty) {
        (*empty)->pid = page->pid;
        (*empty)->start = page->start;
        (*empty)->opened_ns = page->opened_ns;
    }
    return *empty;
}

static void add_one(struct past *past, const struct fb_snapshot *page)
{
    unsigned row = 0;

    for (unsigned i = 0; i < fb_figure_count && row < HISTORY_FIGURES; i++)
        if (fb_figures[i].title[0])
            past->points[row++][past->count % HISTORY_POINTS] =
                (float)fb_figure_value(&fb_figures[i], page);
    past->count++;
    past->seen = true;
}

void history_add(struct history *history, const struct loaders *loaders)
{
    if (!history)
        return;
    for (unsigned i = 0; i < LOADERS_MAX; i++)
        if (history->of[i])
            history->of[i]->seen = false;
    for (unsigned i = 0; i < loaders->count; i++) {
        struct past *past = find(history, &loaders->pages[i], true);

        if (past)
            add_one(past, &loaders->pages[i]);
    }
    for (unsigned i = 0; i < LOADERS_MAX; i++) {
        if (!history->of[i] || history->of[i]->seen)
            continue;
        free(history->of[i]);
        history->of[i] = NULL;
    }
}

static unsigned row_of(const struct fb_figure *figure)
{
    unsigned row = 0;

    for (const struct fb_figure *one = fb_figures; one < figure; one++)
        row += one->title[0] != '\0';
    return row;
}

unsigned history_get(const struct history *history, const struct fb_snapshot *page,
                     const struct fb_figure *figure, float *points, unsigned room)
{
    unsigned row = row_of(figure), count = 0;

    if (!history || !figure->title[0] || row >= HISTORY_FIGURES)
        return 0;
    for (unsigned i = 0; i < LOADERS_MAX; i++) {
        const struct past *past = history->of[i];

        if (!is_of(past, page))
            continue;
        count = past->count < HISTORY_POINTS ? past->count : HISTORY_POINTS;
        count = count < room ? count : room;
        for (unsigned k = 0; k < count; k++)
            points[k] = past->points[row][(past->count - count + k) % HISTORY_POINTS];
        break;
    }
    return count;
}

/* Of the points that are known; NAN if none is. */
static double mean(const float *points, unsigned count)
{
    double sum = 0;
    unsigned known = 0;

    for (unsigned i = 0; i < count; i++) {
        if (isnan(points[i]))
            continue;
        sum += (double)points[i];
        known++;
    }
    return known ? sum / known : (double)NAN;
}

int history_trend(const float *points, unsigned count)
{
    unsigned last = count < TREND_POINTS ? count / 2 : TREND_POINTS;
    unsigned before = count - last < TREND_BEFORE ? count - last : TREND_BEFORE;
    double now = mean(points + count - last, last);
    double then = mean(points + count - last - before, before);

    if (isnan(now) || isnan(then))
        return 0;
    return now > then * (1 + TREND_SHARE) ? 1 : now < then * (1 - TREND_SHARE) ? -1 : 0;
}
