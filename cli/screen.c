#include "screen.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/size.h"
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

/* ---- The list ---- */

static void list_row(struct screen *screen, const struct fb_snapshot *page, bool chosen)
{
    char label[128], used[32], limit[32], speed[32], wait[32];

    loader_label(page, label, sizeof(label));
    put(screen, chosen ? MARK_CHOSEN : MARK_PLAIN, "%-20.20s %9s %9s %11s %6s %7" PRIu64 "  %s",
        label, size_text(page->used, used), size_text(page->limit, limit),
        real_text(page->samples_per_s, "%.0f", speed),
        real_text(100 * page->wait_share, "%.1f%%", wait), page->workers,
        fb_verdict_name(fb_verdict(page)));
}

void screen_list(struct screen *screen, const struct loaders *loaders, unsigned chosen,
                 unsigned columns, unsigned rows)
{
    unsigned room = rows > 3 ? rows - 3 : 1;

    (void)columns;
    screen->count = 0;
    put(screen, MARK_TITLE, "%-20s %9s %9s %11s %6s %7s  %s", "LOADER", "MEMORY", "BUDGET",
        "SAMPLES/S", "WAIT", "WORKERS", "LIMIT");
    for (unsigned i = 0; i < loaders->count && i < room; i++)
        list_row(screen, &loaders->pages[i], i == chosen);
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

static void put_memory(struct screen *screen, const struct fb_snapshot *page, unsigned cells)
{
    char bar[SCREEN_COLUMNS], a[32], b[32];
    double share = ratio(page->used, page->limit);

    bar_text(bar, sizeof(bar), cells, share);
    put(screen, share > 0.95 ? MARK_BAD : MARK_GOOD, "Memory      %s %s of %s", bar,
        size_text(page->used, a), size_text(page->limit, b));
    for (unsigned i = 0; i < FB_STAGE_COUNT; i++) {
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

void screen_one(struct screen *screen, const struct fb_snapshot *page, struct fb_gpus *gpus,
                unsigned columns, unsigned rows)
{
    unsigned cells = columns > 60 ? fb_min(columns - 46, 60) & 0xff : 16;
    char label[128], running[32], limit[SCREEN_COLUMNS] = "Limit       ";
    size_t named = strlen(limit);

    screen->count = 0;
    loader_label(page, label, sizeof(label));
    duration_text(page->seconds, running);
    fb_verdict_tell(page, limit + named, sizeof(limit) - named);
    put(screen, MARK_TITLE, "forebay %s  running %s  rank %" PRIu64 " of %" PRIu64, label, running,
        page->rank, page->world);
    put_flow(screen, page);
    put_epoch(screen, page, cells);
    put_memory(screen, page, cells);
    put_cache(screen, page);
    put_workers(screen, page, columns);
    put_host(screen, page);
    put_gpus(screen, gpus);
    put_wrapped(screen, fb_verdict(page) == FB_LIMIT_CONSUMER ? MARK_GOOD : MARK_BAD, columns,
                (unsigned)named, limit);
    put_decisions(screen, page, columns, rows > 1 ? rows - 1 : 1);
}
