/* cmd_top.c -- `forebay top`: the user's running loaders, live; and what became of the last one. */
#include <curses.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "command.h"
#include "monitor/snapshot_file.h"
#include "monitor/postmortem.h"
#include "options.h"
#include "output.h"
#include "screen.h"

#define REFRESH_MS 500

static const char help[] =
    "Shows the loaders this user runs on this machine. With PID[:NAME], or when only one runs, all\n"
    "about that one: throughput, waiting, memory by stage against the budget, the cache, what each\n"
    "worker does, the governor's last decisions, and which stage is the limit (read, decode, copy,\n"
    "or the consumer). The loaders are read from their pages; they notice nothing.\n"
    "\n"
    "Keys: up and down choose, Enter shows one, Esc or l goes back to the list, q ends.\n"
    "\n"
    "Options:\n"
    "  --once  print it once, as text, and end (so also where stdout is no terminal)\n"
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

    unsigned chosen; /* of the list */
    bool alone;      /* one loader is shown, not the list */
    uint64_t pid;    /* which one, and its name */
    char name[64];
    struct fb_gpus *gpus;
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
        screen_one(screen, &loaders->pages[0], top->gpus, 80, SCREEN_LINES);
    else
        screen_list(screen, loaders, UINT32_MAX, 80, SCREEN_LINES);
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
        mvaddnstr(i, 0, screen->lines[i].text, columns);
    }
    attrset((int)A_DIM);
    mvaddnstr(rows - 1, 0, keys, columns - 1);
    attrset((int)A_NORMAL);
    refresh();
}

/* The one that is shown, if it still runs. */
static const struct fb_snapshot *shown(const struct top *top, const struct loaders *loaders)
{
    for (unsigned i = 0; i < loaders->count; i++)
        if (loaders->pages[i].pid == top->pid && !strcmp(loaders->pages[i].name, top->name))
            return &loaders->pages[i];
    return NULL;
}

static void show_one(struct top *top, const struct loaders *loaders, unsigned index)
{
    if (index >= loaders->count)
        return;
    top->alone = true;
    top->pid = loaders->pages[index].pid;
    memcpy(top->name, loaders->pages[index].name, sizeof(top->name));
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
    const struct fb_snapshot *page = top->alone ? shown(top, loaders) : NULL;
    int rows, columns;

    size_follow();
    getmaxyx(stdscr, rows, columns);
    if (page) {
        screen_one(screen, page, top->gpus, (unsigned)columns, (unsigned)rows);
        draw(screen, "q quit  l list");
        return;
    }
    top->alone = false;
    if (top->chosen >= loaders->count)
        top->chosen = loaders->count ? loaders->count - 1 : 0;
    screen_list(screen, loaders, top->chosen, (unsigned)columns, (unsigned)rows);
    draw(screen, "q quit  up/down choose  Enter show");
}

/* False: end. */
static bool handle_key(struct top *top, const struct loaders *loaders, int key)
{
    switch (key) {
    case 'q':
    case 3: /* Ctrl-C, in raw mode */
        return false;
    case KEY_UP:
        top->chosen -= top->chosen > 0;
        break;
    case KEY_DOWN:
        top->chosen++;
        break;
    case '\n':
    case KEY_ENTER:
        show_one(top, loaders, top->chosen);
        break;
    case 27:
    case 'l':
        top->alone = false;
        break;
    default: /* a resize, or nothing: draw again */
        break;
    }
    return true;
}

static void screen_begin(void)
{
    setlocale(LC_ALL, "");
    initscr();
    raw();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    set_escdelay(25);
    timeout(REFRESH_MS);
    if (has_colors()) {
        start_color();
        use_default_colors();
        init_pair(2, COLOR_GREEN, -1);
        init_pair(3, COLOR_YELLOW, -1);
    }
}

static int live(struct top *top, forebay_error *error)
{
    struct screen *screen = calloc(1, sizeof(*screen));
    bool first = true, go_on = screen != NULL;
    int status = FOREBAY_OK;

    if (!screen)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the screen");
    screen_begin();
    while (go_on && !status) {
        struct loaders loaders;

        status = loaders_find(&loaders, first ? top->which : NULL, error);
        if (status)
            break;
        if (first && loaders.count == 1)
            show_one(top, &loaders, 0);
        first = false;
        show(top, &loaders, screen);
        go_on = handle_key(top, &loaders, getch());
        loaders_release(&loaders);
    }
    endwin();
    free(screen);
    return status;
}

static int once(const struct top *top, forebay_error *error, int *code)
{
    struct loaders loaders;
    int status = loaders_find(&loaders, top->which, error);

    if (status)
        return status;
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
    top.gpus = status ? NULL : fb_gpus_open();
    if (!status && (top.once || top.json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
        status = once(&top, &error, &code);
    else if (!status)
        status = live(&top, &error);
    fb_gpus_close(top.gpus);
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
