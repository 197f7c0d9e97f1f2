/*
 * screen.h -- what `forebay top` shows, as lines of text: the same for a terminal, drawn with
 * ncurses, and for --once. One line is one string; the caller chooses the colours.
 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H
#include "history.h"
#include "loaders.h"
#include "monitor/gpu.h"

#define SCREEN_LINES 200
#define SCREEN_COLUMNS 1024 /* bytes of a line; a character of a chart has three */

enum screen_mark { MARK_PLAIN, MARK_TITLE, MARK_GOOD, MARK_BAD, MARK_CHOSEN };

struct screen {
    unsigned count;
    struct {
        enum screen_mark mark;
        char text[SCREEN_COLUMNS];
    } lines[SCREEN_LINES];
};

/* How to show it. */
struct screen_view {
    unsigned columns, rows;
    bool unicode;            /* charts of block characters and arrows, else of ASCII */
    struct history *history; /* NULL: no charts */
    struct fb_gpus *gpus;
};

/* The list of loaders, one chosen (UINT_MAX: none); or all about one. Of long lists the last part is
 * left out and counted, but the chosen loader is always shown. */
void screen_list(struct screen *screen, const struct loaders *loaders, unsigned chosen,
                 const struct screen_view *view);
void screen_one(struct screen *screen, const struct fb_snapshot *page,
                const struct screen_view *view);
/* The bytes of the first `columns` characters of a UTF-8 text. */
int screen_clip(const char *text, unsigned columns);
#endif
