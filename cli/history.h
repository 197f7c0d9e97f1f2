/*
 * history.h -- what `forebay top` saw of each loader since it was started: the figures that have a
 * column, one point each HISTORY_MS.
 */
#ifndef CLI_HISTORY_H
#define CLI_HISTORY_H
#include "loaders.h"

#define HISTORY_MS 500
#define HISTORY_POINTS 512 /* the newest are kept */
#define HISTORY_FIGURES 16 /* figures with a column, at most */

struct history;
/* NULL if there is no memory for it: every other call takes NULL, too. */
struct history *history_open(void);
void history_close(struct history *history);

/* Add a point for each of these loaders, and forget those that are not among them. */
void history_add(struct history *history, const struct loaders *loaders);
/* The newest points of one figure, oldest first, at most `room`; how many. NAN: unknown. */
unsigned history_get(const struct history *history, const struct fb_snapshot *page,
                     const struct fb_figure *figure, float *points, unsigned room);
/* +1 if it rises, -1 if it falls by more than 5 %, 0 if it is steady or not known yet. */
int history_trend(const float *points, unsigned count);
#endif
