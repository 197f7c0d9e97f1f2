/* screen.c -- the list of loaders and the page of one loader, as lines of text. */
#include "screen.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/size.h"
#include "chart.h"
#include "monitor/verdict.h"

#define STAGE_NAME 9 /* columns of a stage's name */

static void put(struct screen *screen, enum screen_mark mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(struct screen *screen, enum screen_mark mark, const char *format, ...)
{
    va_list arguments;

    if (screen->count == SCREEN_LINES)
        return;
    va_start(arguments, format);
    vsnprintf(screen->lines[screen->count].text, SCREEN_COLUMNS, format, arguments);
    va_end(arguments);
    screen->lines[screen->count++].mark = mark;
}

/* What is longer than the screen is wide goes on in the next line, `indent` columns in. */
static void put_wrapped(struct screen *screen, enum screen_mark mark, unsigned columns,
                        unsigned indent, const char *text)
{
    unsigned before = 0;

    columns = columns > indent + 20 ? columns : indent + 20;
    for (;;) {
        unsigned room = columns - before, cut = room;

        if (strlen(text) <= room) {
            put(screen, mark, "%*s%s", (int)before, "", text);
            return;
        }
        while (cut && text[cut] != ' ')
            cut--;
        if (!cut) /* a word as long as the line */
            cut = room;
        put(screen, mark, "%*s%.*s", (int)before, "", (int)cut, text);
        text += cut + (text[cut] == ' ');
        before = indent;
    }
}

/* "n/a" for what is not known. */
static const char *real_text(double value, const char *format, char text[32])
{
    if (isnan(value))
        return "n/a";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, 32, format, value);
#pragma GCC diagnostic pop
    return text;
}

static const char *size_text(uint64_t bytes, char text[32])
{
    return bytes == FB_UNKNOWN ? "n/a" : fb_size_text(bytes, text);
}

static double ratio(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : (double)NAN;
}

/* "[#####.....]" of `cells` inside. */
static void bar_text(char *text, size_t size, unsigned cells, double share)
{
    unsigned full = share >= 1 ? cells : share > 0 ? (unsigned)(share * cells + 0.5) : 0;

    if (cells + 3 > size)
        cells = (unsigned)size - 3;
    text[0] = '[';
    for (unsigned i = 0; i < cells; i++)
        text[1 + i] = i < full ? '#' : '.';
    text[1 + cells] = ']';
    text[2 + cells] = '\0';
}

static void duration_text(double seconds, char text[32])
{
    unsigned long long whole = seconds > 0 && seconds < 1e12 ? (unsigned long long)seconds : 0;

    if (whole >= 86400)
        snprintf(text, 32, "%llud %02lluh", whole / 86400, whole / 3600 % 24);
    else
        snprintf(text, 32, "%llu:%02llu:%02llu", whole / 3600, whole / 60 % 60, whole % 60);
}

/* Characters in the first `bytes` of it. */
static int screen_width(const char *text, int bytes)
{
    int width = 0;

    for (int i = 0; i < bytes; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

int screen_clip(const char *text, unsigned columns)
{
    int at = 0;

    for (; text[at]; at++)
        if (((unsigned char)text[at] & 0xc0) != 0x80 && !columns--)
            break;
    return at;
}

/* ---- The list ---- */

#define LABEL 20 /* columns of a loader's name */
#define LIMIT 10 /* of the stage that is the limit, and two blanks before it */

/* Columns of a figure, a blank before it and the arrow after it. */
static unsigned width_of(const struct fb_figure *figure)
{
    static const unsigned widths[] = {
        [FB_UNIT_COUNT] = 7, [FB_UNIT_BYTES] = 9, [FB_UNIT_RATE] = 9, [FB_UNIT_BYTE_RATE] = 12,
        [FB_UNIT_SHARE] = 6, [FB_UNIT_PERCENT] = 6, [FB_UNIT_SECONDS] = 9,
        [FB_UNIT_MILLISECONDS] = 9 };
    unsigned title = (unsigned)strlen(figure->title), width = widths[figure->unit];

    return 2 + (title > width ? title : width);
}

/* The titled figures that fit, in the order of the table; what is left of the width. */
static unsigned columns_choose(const struct fb_figure *chosen[HISTORY_FIGURES], unsigned *count,
                               unsigned columns)
{
    unsigned room = columns > LABEL + LIMIT ? columns - LABEL - LIMIT : 0;

    *count = 0;
    for (unsigned i = 0; i < fb_figure_count && *count < HISTORY_FIGURES; i++) {
        if (!fb_figures[i].title[0] || width_of(&fb_figures[i]) > room)
            continue;
        chosen[(*count)++] = &fb_figures[i];
        room -= width_of(&fb_figures[i]);
    }
    return room;
}

static void list_row(struct screen *screen, const struct fb_snapshot *page, bool chosen,
                     const struct screen_view *view)
{
    const struct fb_figure *figures[HISTORY_FIGURES];
    char label[128], line[SCREEN_COLUMNS], chart[3 * HISTORY_POINTS + 1], text[32];
    float points[HISTORY_POINTS];
    unsigned count, left = columns_choose(figures, &count, view->columns);
    int at;

    loader_label(page, label, sizeof(label));
    at = snprintf(line, sizeof(line), "%-*.*s", LABEL, LABEL, label);
    for (unsigned i = 0; i < count; i++) {
        unsigned got = history_get(view->history, page, figures[i], points, HISTORY_POINTS);
        int trend = history_trend(points, got);

        at += snprintf(line + at, sizeof(line) - (size_t)at, "%*s%s", (int)width_of(figures[i]) - 1,
                       fb_figure_text(figures[i], page, text),
                       trend ? chart_arrow(trend, view->unicode) : " ");
    }
    at += snprintf(line + at, sizeof(line) - (size_t)at, "  %-*s", LIMIT - 2,
                   fb_verdict_name(fb_verdict(page)));
    if (view->history && left > 10) { /* the history of the throughput fills the rest */
        unsigned got = history_get(view->history, page, fb_figure_find("samples_per_s"), points,
                                   left - 1 < HISTORY_POINTS ? left - 1 : HISTORY_POINTS);

        chart_row(chart, sizeof(chart), points, got, chart_top(points, got), 1, 0,
                  fb_min(left - 1, HISTORY_POINTS) & 0xffff, view->unicode);
        snprintf(line + at, sizeof(line) - (size_t)at, " %s", chart);
    }
    put(screen, chosen ? MARK_CHOSEN : MARK_PLAIN, "%s", line);
}

static void list_titles(struct screen *screen, const struct screen_view *view)
{
    const struct fb_figure *figures[HISTORY_FIGURES];
    unsigned count, left = columns_choose(figures, &count, view->columns);
    char line[SCREEN_COLUMNS];
    int at = snprintf(line, sizeof(line), "%-*s", LABEL, "LOADER");

    for (unsigned i = 0; i < count; i++)
        at += snprintf(line + at, sizeof(line) - (size_t)at, "%*s ", (int)width_of(figures[i]) - 1,
                       figures[i]->title);
    snprintf(line + at, sizeof(line) - (size_t)at, "  %-*s%s", LIMIT - 2, "LIMIT",
             view->history && left > 20 ? " HISTORY OF SAMPLES/S" : "");
    put(screen, MARK_TITLE, "%s", line);
}

void screen_list(struct screen *screen, const struct loaders *loaders, unsigned chosen,
                 const struct screen_view *view)
{
    unsigned room = view->rows > 3 ? view->rows - 3 : 1;
    unsigned first = chosen < loaders->count && chosen >= room ? chosen - room + 1 : 0;

    screen->count = 0;
    list_titles(screen, view);
    for (unsigned i = first; i < loaders->count && i < first + room; i++)
        list_row(screen, &loaders->pages[i], i == chosen, view);
    if (loaders->count > room)
        put(screen, MARK_PLAIN, "and %u more", loaders->count - room);
    if (!loaders->count)
        put(screen, MARK_PLAIN, "No loader of this user is running.");
}

/* ---- One loader ---- */

static void put_flow(struct screen *screen, const struct fb_snapshot *page)
{
    char speed[32], bytes[32], wait[32], p50[32], p99[32];

    put(screen, MARK_PLAIN, "Throughput  %s samples/s, %s MB/s; %" PRIu64 " samples in %" PRIu64
        " batches", real_text(page->samples_per_s, "%.0f", speed),
        real_text(page->bytes_per_s / 1e6, "%.1f", bytes), page->samples, page->batches);
    put(screen, MARK_PLAIN, "Waiting     %s of the consumer's time; p50 %s ms, p99 %s ms",
        real_text(100 * page->wait_share, "%.1f%%", wait),
        real_text(page->wait_p50_ms, "%.2f", p50), real_text(page->wait_p99_ms, "%.2f", p99));
}

static void put_epoch(struct screen *screen, const struct fb_snapshot *page, unsigned cells)
{
    double share = ratio(page->position, page->epoch_samples);
    char bar[SCREEN_COLUMNS];

    bar_text(bar, sizeof(bar), cells, share);
    put(screen, MARK_PLAIN, "Epoch %-5" PRIu64 " %s %3.0f%% of %" PRIu64 " samples",
        page->epoch + 1, bar, isnan(share) ? 0 : 100 * share, page->epoch_samples);
}

/* All stages in one line, where the screen has few rows. */
static void put_stages_short(struct screen *screen, const struct fb_snapshot *page,
                             unsigned columns)
{
    char line[SCREEN_COLUMNS] = "  ", a[32];

    for (unsigned i = 0; i < FB_STAGE_COUNT; i++) {
        size_t at = strlen(line);

        snprintf(line + at, sizeof(line) - at, "%s%s %s", i ? ", " : "", fb_stage_names[i],
                 size_text(page->by_stage[i], a));
    }
    put_wrapped(screen, MARK_PLAIN, columns, 2, line);
}

static void put_memory(struct screen *screen, const struct fb_snapshot *page, unsigned cells,
                       unsigned columns, bool brief)
{
    char bar[SCREEN_COLUMNS], a[32], b[32];
    double share = ratio(page->used, page->limit);

    bar_text(bar, sizeof(bar), cells, share);
    put(screen, share > 0.95 ? MARK_BAD : MARK_GOOD, "Memory      %s %s of %s", bar,
        size_text(page->used, a), size_text(page->limit, b));
    if (brief)
        put_stages_short(screen, page, columns);
    for (unsigned i = 0; !brief && i < FB_STAGE_COUNT; i++) {
        bar_text(bar, sizeof(bar), cells, ratio(page->by_stage[i], page->limit));
        put(screen, MARK_PLAIN, "  %-*s %s %s", STAGE_NAME, fb_stage_names[i], bar,
            size_text(page->by_stage[i], a));
    }
}

static void put_host(struct screen *screen, const struct fb_snapshot *page)
{
    char a[32], b[32], c[32], d[32], e[32];

    put(screen, MARK_PLAIN, "Host        %s of %s available, swap %s, resident %s",
        size_text(page->host_available, a), size_text(page->host_total, b),
        size_text(page->swap_used, c), size_text(page->resident, d));
    if (page->group_limit != FB_UNKNOWN)
        put(screen, MARK_PLAIN, "Cgroup      %s of %s used; stalled for memory %s",
            size_text(page->group_used, a), size_text(page->group_limit, b),
            real_text(page->memory_stalled, "%.1f%%", e));
}

static void put_cache(struct screen *screen, const struct fb_snapshot *page)
{
    char a[32], b[32], c[32];

    if (!page->has_cache)
        put(screen, MARK_PLAIN, "Cache       none");
    else
        put(screen, MARK_PLAIN, "Cache       %s: %" PRIu64 " items, %s of %s, hit rate %s",
            page->policy, page->cache_items, size_text(page->cache_bytes, a),
            size_text(page->cache_limit, b),
            real_text(100 * ratio(page->hits, page->hits + page->misses), "%.1f%%", c));
}

/* A letter for each worker: r reads, D decodes, . waits. */
static void put_workers(struct screen *screen, const struct fb_snapshot *page, unsigned columns)
{
    char doing[FB_SNAPSHOT_WORKERS + 1];
    uint64_t count = fb_min(page->worker_count, columns > 60 ? columns - 60 : 8);

    for (uint64_t i = 0; i < count; i++)
        doing[i] = ".rD"[page->doing[i] % 3];
    doing[count] = '\0';
    put(screen, MARK_PLAIN, "Workers     %" PRIu64 " [%s]  r reads D decodes . waits", page->workers,
        doing);
    put(screen, MARK_PLAIN, "Batches     %" PRIu64 " of %" PRIu64 " in flight, %" PRIu64
        " ready, %" PRIu64 " held", page->in_flight, page->prefetch, page->ready, page->held);
}

static void put_decisions(struct screen *screen, const struct fb_snapshot *page, unsigned columns,
                          unsigned rows)
{
    uint64_t kept = fb_min(page->decision_count, FB_SNAPSHOT_DECISIONS);

    for (uint64_t i = 0; i < kept && screen->count < rows; i++) {
        const struct fb_snapshot_decision *one =
            &page->decisions[(page->decision_count - 1 - i) % FB_SNAPSHOT_DECISIONS];
        time_t seconds = (time_t)(one->time_ns / 1000000000u);
        char when[16] = "", line[sizeof(one->text) + 24];
        struct tm local;

        if (localtime_r(&seconds, &local))
            strftime(when, sizeof(when), "%H:%M:%S", &local);
        snprintf(line, sizeof(line), "%s %s", when, one->text);
        put_wrapped(screen, MARK_PLAIN, columns, 9, line);
    }
}

static void put_gpus(struct screen *screen, struct fb_gpus *handle)
{
    struct fb_gpu gpus[FB_GPUS_MAX];
    unsigned count = fb_gpus_read(handle, gpus);

    if (!count)
        put(screen, MARK_PLAIN, "GPU         n/a");
    for (unsigned i = 0; i < count; i++) {
        char busy[32], used[32], total[32];

        put(screen, MARK_PLAIN, "GPU %-7u %s busy, %s of %s MiB  %s", i,
            real_text(gpus[i].utilisation, "%.0f%%", busy),
            real_text(gpus[i].memory_used / (double)FB_MIB, "%.0f", used),
            real_text(gpus[i].memory_total / (double)FB_MIB, "%.0f", total), gpus[i].name);
    }
}

/* ---- Charts ---- */

#define GUTTER 22   /* columns at the left of a chart: what it shows and the value of its top */
#define CHART_ROWS 8 /* a chart is not higher */

static const struct {
    const char *name, *key;
} charts[] = { { "Samples/s", "samples_per_s" }, { "Waiting", "wait_share" },
               { "Memory", "used_bytes" } };
#define CHARTS ((unsigned)(sizeof(charts) / sizeof(charts[0])))

/* What stands at the left: the name, its trend and value; the value of the top; how long. */
static void gutter_text(char *text, size_t size, const char *first, unsigned row,
                        const struct fb_figure *figure, double top, unsigned points)
{
    char number[32];

    if (row == 0)
        snprintf(text, size, "%s", first);
    else if (row == 1)
        snprintf(text, size, "  top %s", fb_figure_number(figure, top, number));
    else if (row == 2)
        snprintf(text, size, "  last %.0f s", points * (HISTORY_MS / 1000.0));
    else
        text[0] = '\0';
}

static void put_chart(struct screen *screen, const struct fb_snapshot *page, unsigned which,
                      unsigned rows, const struct screen_view *view)
{
    const struct fb_figure *figure = fb_figure_find(charts[which].key);
    unsigned columns = view->columns > GUTTER + 12 ? view->columns - GUTTER - 2 : 10, got;
    float points[HISTORY_POINTS], top;
    char first[96], gutter[96], chart[3 * HISTORY_POINTS + 1], number[32];
    const char *arrow;

    columns = columns < HISTORY_POINTS ? columns : HISTORY_POINTS;
    columns = columns < (SCREEN_COLUMNS - 96) / 3 ? columns : (SCREEN_COLUMNS - 96) / 3;
    got = history_get(view->history, page, figure, points, HISTORY_POINTS);
    arrow = chart_arrow(history_trend(points, got), view->unicode);
    got = history_get(view->history, page, figure, points, columns);
    top = chart_top(points, got);
    snprintf(first, sizeof(first), "%-9s %s %s", charts[which].name, arrow,
             fb_figure_text(figure, page, number));
    for (unsigned row = 0; row < rows; row++) {
        int used;

        gutter_text(gutter, sizeof(gutter), first, row, figure, (double)top, got);
        used = screen_clip(gutter, GUTTER);
        chart_row(chart, sizeof(chart), points, got, top, rows, row, columns, view->unicode);
        put(screen, row ? MARK_PLAIN : MARK_GOOD, "%.*s%*s%s", used, gutter,
            (int)GUTTER - screen_width(gutter, used), "", chart);
    }
}

/* As high as the rows that are left allow, if three rows are left. */
static void put_charts(struct screen *screen, const struct fb_snapshot *page,
                       const struct screen_view *view, unsigned room)
{
    unsigned each = room / CHARTS < CHART_ROWS ? room / CHARTS : CHART_ROWS;

    for (unsigned i = 0; view->history && each && i < CHARTS; i++)
        put_chart(screen, page, i, each, view);
}

static void put_figures(struct screen *screen, const struct fb_snapshot *page,
                        const struct screen_view *view, bool brief)
{
    unsigned columns = view->columns;
    unsigned cells = columns > 60 ? fb_min(columns - 46, 60) & 0xff : 16;
    char label[128], running[32], limit[512] = "Limit       ";
    size_t named = strlen(limit);

    loader_label(page, label, sizeof(label));
    duration_text(page->seconds, running);
    fb_verdict_tell(page, limit + named, sizeof(limit) - named);
    put(screen, MARK_TITLE, "forebay %s  running %s  rank %" PRIu64 " of %" PRIu64, label, running,
        page->rank, page->world);
    put_flow(screen, page);
    put_epoch(screen, page, cells);
    put_memory(screen, page, cells, columns, brief);
    put_cache(screen, page);
    put_workers(screen, page, columns);
    put_host(screen, page);
    put_gpus(screen, view->gpus);
    put_wrapped(screen, fb_verdict(page) == FB_LIMIT_CONSUMER ? MARK_GOOD : MARK_BAD, columns,
                (unsigned)named, limit);
}

void screen_one(struct screen *screen, const struct fb_snapshot *page,
                const struct screen_view *view)
{
    const unsigned decisions = 4; /* rows kept for them where there are many rows */
    unsigned rows = view->rows > 1 ? view->rows - 1 : 1, room;

    screen->count = 0;
    put_figures(screen, page, view, false);
    if (view->history && screen->count + CHARTS > rows) {
        screen->count = 0;
        put_figures(screen, page, view, true);
    }
    room = rows > screen->count ? rows - screen->count : 0;
    put_charts(screen, page, view, room > CHARTS + decisions ? room - decisions : room);
    put_decisions(screen, page, view->columns, rows);
}
