/*
 * screen.h -- what `forebay top` shows, as lines of text: the same for a terminal, drawn with
 * ncurses, and for --once. One line is one string; colours are up to whoever draws.
 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H
#include "loaders.h"
#include "monitor/gpu.h"

#define SCREEN_LINES 200
#define SCREEN_COLUMNS 256

enum screen_mark { MARK_PLAIN, MARK_TITLE, MARK_GOOD, MARK_BAD, MARK_CHOSEN };

struct screen {
    unsigned count;
    struct {
        enum screen_mark mark;
        char text[SCREEN_COLUMNS];
    } lines[SCREEN_LINES];
};

/* The list of loaders, one chosen (UINT_MAX: none); or all about one. `columns`, `rows`: what there
 * is room for; of long lists the last part is left out and counted. */
void screen_list(struct screen *screen, const struct loaders *loaders, unsigned chosen,
                 unsigned columns, unsigned rows);
void screen_one(struct screen *screen, const struct fb_snapshot *page, struct fb_gpus *gpus,
                unsigned columns, unsigned rows);
#endif
