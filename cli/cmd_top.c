/* cmd_top.c -- `forebay top`: the user's running loaders, live; and what became of the last one. */
#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "command.h"
#include "monitor/snapshot_file.h"
#include "monitor/postmortem.h"
#include "options.h"
#include "output.h"
#include "screen.h"
#include "terminal.h"

static const char help[] =
    "Shows the loaders this user runs on this machine. With PID[:NAME], or when only one runs, all\n"
    "about that one: throughput, waiting, memory by stage against the budget, the cache, what each\n"
    "worker does, the governor's last decisions, and which stage is the limit (read, decode, copy,\n"
    "or the consumer). The loaders are read from their pages; they notice nothing.\n"
    "\n"
    "Charts show throughput, waiting and memory since top was started, one point each half second;\n"
    "an arrow shows whether a figure rises or falls.\n"
    "\n"
    "Keys: up and down choose, Enter shows one, Esc or l goes back to the list, s sorts the list by\n"
    "the next column, r reverses it, q ends.\n"
    "\n"
    "Options:\n"
    "  --once  print it once, as text, and end (as it does where stdout is no terminal, or a\n"
    "          terminal without a cursor, TERM=dumb)\n"
    "  --json  once, as one JSON object: {\"loaders\": [...]}\n"
    "  --last  what became of the last loader that did not close, in one sentence\n"
    "\n"
    "Exit code: 0 done, 1 failed (no such loader; with --last: none died), 2 bad use.\n"
    "\n"
    "Examples:\n"
    "  forebay top\n"
    "  forebay top 4711:train --once\n"
    "  forebay top --json | jq '.loaders[].memory.used_bytes'\n"
    "  forebay top --last\n";

struct top {
    const char *which;
    bool once, json, last;

    bool alone;      /* one loader is shown, not the list */
    uint64_t pid;    /* which one is chosen or shown, and its name */
    char name[64];
    const struct fb_figure *sort; /* NULL: by PID */
    bool reverse;
    uint64_t point_ns; /* when the last point was added to the history */
    struct screen_view view;
};

/* ---- Once ---- */

static int print_json(const struct loaders *loaders)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < loaders->count; i++)
        json_array_append_new(list, fb_snapshot_json(&loaders->pages[i]));
    return output_json(json_pack("{s:o}", "loaders", list));
}

static int print_text(const struct top *top, const struct loaders *loaders)
{
    struct screen *screen = calloc(1, sizeof(*screen));

    if (!screen)
        return EXIT_FAILED;
    if (top->which || loaders->count == 1)
        screen_one(screen, &loaders->pages[0], &top->view);
    else
        screen_list(screen, loaders, UINT32_MAX, &top->view);
    for (unsigned i = 0; i < screen->count; i++)
        puts(screen->lines[i].text);
    free(screen);
    return EXIT_DONE;
}

static int tell_last(bool json)
{
    struct fb_snapshot *page = calloc(1, sizeof(*page));
    forebay_error error;
    int code = EXIT_DONE;
    char label[128];

    fb_fail(&error, FOREBAY_MISSING, "no loader of this user has died lately");
    if (!page || !fb_death_last(page, &error)) {
        code = output_failure("top", json, &error);
    } else if (json) {
        code = output_json(fb_snapshot_json(page));
    } else {
        loader_label(page, label, sizeof(label));
        printf("%s: %s\n", label, page->verdict);
        for (uint64_t i = 0; i < page->decision_count && i < FB_SNAPSHOT_DECISIONS; i++)
            printf("  %s\n", page->decisions[(page->decision_count - 1 - i) %
                                             FB_SNAPSHOT_DECISIONS].text);
    }
    free(page);
    return code;
}

/* ---- Live ---- */

static void draw(const struct screen *screen, const char *keys)
{
    static const int pairs[] = { [MARK_GOOD] = 2, [MARK_BAD] = 3 };
    int rows, columns;

    getmaxyx(stdscr, rows, columns);
    erase();
    for (int i = 0; i < (int)screen->count && i < rows - 1; i++) {
        enum screen_mark mark = screen->lines[i].mark;
        chtype look = mark == MARK_TITLE    ? A_BOLD
                      : mark == MARK_CHOSEN ? A_REVERSE
                      : mark == MARK_PLAIN  ? A_NORMAL
                                            : (chtype)COLOR_PAIR(pairs[mark]);

        attrset((int)look);
        mvaddnstr(i, 0, screen->lines[i].text,
                  screen_clip(screen->lines[i].text, (unsigned)columns));
    }
    attrset((int)A_DIM);
    mvaddnstr(rows - 1, 0, keys, columns - 1);
    attrset((int)A_NORMAL);
    refresh();
}

/* Where the chosen loader is in the list; the first if it does not run any more. */
static unsigned chosen_find(const struct top *top, const struct loaders *loaders, bool *found)
{
    for (unsigned i = 0; i < loaders->count; i++) {
        *found = loaders->pages[i].pid == top->pid && !strcmp(loaders->pages[i].name, top->name);
        if (*found)
            return i;
    }
    *found = false;
    return 0;
}

static void choose(struct top *top, const struct loaders *loaders, unsigned index)
{
    if (index >= loaders->count)
        return;
    top->pid = loaders->pages[index].pid;
    memcpy(top->name, loaders->pages[index].name, sizeof(top->name));
}

/* qsort has no argument for it; the view runs in one thread. */
static const struct top *sorting;

static int compare(const void *a, const void *b)
{
    const struct fb_snapshot *one = a, *two = b;
    double x = sorting->sort ? fb_figure_value(sorting->sort, one) : -(double)one->pid;
    double y = sorting->sort ? fb_figure_value(sorting->sort, two) : -(double)two->pid;

    x = isnan(x) ? -HUGE_VAL : x; /* unknown last */
    y = isnan(y) ? -HUGE_VAL : y;
    if (x == y)
        return one->pid < two->pid ? -1 : one->pid > two->pid;
    return (x > y) == sorting->reverse ? 1 : -1;
}

/* The largest first; by PID the smallest first. */
static void sort(const struct top *top, struct loaders *loaders)
{
    sorting = top;
    if (loaders->count)
        qsort(loaders->pages, loaders->count, sizeof(*loaders->pages), compare);
}

/* The next figure that has a column; by PID after the last. */
static void sort_next(struct top *top)
{
    const struct fb_figure *end = fb_figures + fb_figure_count;

    top->sort = top->sort ? top->sort + 1 : fb_figures;
    while (top->sort < end && !top->sort->title[0])
        top->sort++;
    if (top->sort == end)
        top->sort = NULL;
}

/* The terminal's size as it is, whatever $LINES and $COLUMNS say. */
static void size_follow(void)
{
    struct winsize size;

    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col &&
        is_term_resized(size.ws_row, size.ws_col))
        resizeterm(size.ws_row, size.ws_col);
}

static void show(struct top *top, const struct loaders *loaders, struct screen *screen)
{
    bool found;
    unsigned chosen = chosen_find(top, loaders, &found);
    int rows, columns;
    char keys[160];

    size_follow();
    getmaxyx(stdscr, rows, columns);
    top->view.rows = (unsigned)rows;
    top->view.columns = (unsigned)columns;
    if (top->alone && found) {
        screen_one(screen, &loaders->pages[chosen], &top->view);
        draw(screen, "q quit  l list");
        return;
    }
    top->alone = false;
    choose(top, loaders, chosen);
    screen_list(screen, loaders, chosen, &top->view);
    snprintf(keys, sizeof(keys), "q quit  up/down choose  Enter show  s sort: %s%s  r reverse",
             top->sort ? top->sort->title : "PID", top->reverse ? " reversed" : "");
    draw(screen, keys);
}

/* False: end. */
static bool handle_key(struct top *top, const struct loaders *loaders, int key)
{
    bool found;
    unsigned chosen = chosen_find(top, loaders, &found);

    switch (key) {
    case 'q':
    case 3: /* Ctrl-C, in raw mode */
        return false;
    case KEY_UP:
        choose(top, loaders, chosen - (chosen > 0));
        break;
    case KEY_DOWN:
        choose(top, loaders, chosen + 1);
        break;
    case '\n':
    case KEY_ENTER:
        top->alone = loaders->count > 0;
        break;
    case 27:
    case 'l':
        top->alone = false;
        break;
    case 's':
        sort_next(top);
        break;
    case 'r':
        top->reverse = !top->reverse;
        break;
    default: /* a resize, or nothing: draw again */
        break;
    }
    return true;
}

static void screen_begin(void)
{
    initscr();
    raw();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    set_escdelay(25);
    timeout(HISTORY_MS);
    if (has_colors()) {
        start_color();
        use_default_colors();
        init_pair(2, COLOR_GREEN, -1);
        init_pair(3, COLOR_YELLOW, -1);
    }
}

static void look(struct top *top, struct loaders *loaders)
{
    uint64_t now = fb_now_ns();

    sort(top, loaders);
    if (top->point_ns && now - top->point_ns < (HISTORY_MS - 50) * (uint64_t)1000000)
        return; /* a key was pressed: not yet time for a point */
    history_add(top->view.history, loaders);
    top->point_ns = now;
}

static int live(struct top *top, forebay_error *error)
{
    struct screen *screen = calloc(1, sizeof(*screen));
    bool first = true, go_on = screen != NULL;
    int status = FOREBAY_OK;

    if (!screen)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the screen");
    top->view.history = history_open();
    screen_begin();
    while (go_on && !status) {
        struct loaders loaders;

        status = loaders_find(&loaders, first ? top->which : NULL, error);
        if (status)
            break;
        look(top, &loaders);
        if (first && loaders.count == 1) {
            choose(top, &loaders, 0);
            top->alone = true;
        }
        first = false;
        show(top, &loaders, screen);
        go_on = handle_key(top, &loaders, getch());
        loaders_release(&loaders);
    }
    endwin();
    history_close(top->view.history);
    free(screen);
    return status;
}

static int once(const struct top *top, forebay_error *error, int *code)
{
    struct loaders loaders;
    int status = loaders_find(&loaders, top->which, error);

    if (status)
        return status;
    sort(top, &loaders);
    *code = top->json ? print_json(&loaders) : print_text(top, &loaders);
    loaders_release(&loaders);
    return FOREBAY_OK;
}

static int run(int argc, char **argv)
{
    struct top top = { .json = options_has(argc, argv, "--json") };
    const struct option table[] = {
        { "PID[:NAME]", OPTION_ALONE, &top.which, false },
        { "--once", OPTION_FLAG, &top.once, false },
        { "--json", OPTION_FLAG, &top.json, false },
        { "--last", OPTION_FLAG, &top.last, false },
    };
    forebay_error error;
    int code = EXIT_DONE;
    int status = options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error);

    if (!status && top.last)
        return tell_last(top.json);
    setlocale(LC_CTYPE, "");
    top.view = (struct screen_view){
        .columns = 80, .rows = SCREEN_LINES, .gpus = status ? NULL : fb_gpus_open(),
        .unicode = !strcmp(nl_langinfo(CODESET), "UTF-8") };
    if (!status && (top.once || top.json || !terminal_can_draw()))
        status = once(&top, &error, &code);
    else if (!status)
        status = live(&top, &error);
    fb_gpus_close(top.view.gpus);
    if (status == FOREBAY_BAD_USE)
        return output_bad_use("top", top.json, &error);
    return status ? output_failure("top", top.json, &error) : code;
}

const struct command command_top = {
    .name = "top",
    .usage = "[PID[:NAME]] [--once] [--json] [--last]",
    .summary = "live view of running loaders",
    .help = help,
    .run = run,
};
