#include "progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "stop.h"

#define SCREEN_NS 100000000u     /* ten times a second */
#define PLAIN_NS 10000000000u
#define BAR_MOST 30
#define BAR_LEAST 4

void progress_init(struct progress *progress)
{
    *progress = (struct progress){ .terminal = isatty(STDERR_FILENO) };
    pthread_mutex_init(&progress->lock, NULL);
    /* A log needs no line about what is over in a moment. */
    progress->next_ns = progress->terminal ? 0 : fb_now_ns() + PLAIN_NS;
}

static void erase_locked(struct progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}

void progress_finish(struct progress *progress)
{
    pthread_mutex_lock(&progress->lock);
    erase_locked(progress);
    fflush(stderr);
    pthread_mutex_unlock(&progress->lock);
}

bool progress_due(struct progress *progress)
{
    bool due;

    pthread_mutex_lock(&progress->lock);
    due = fb_now_ns() >= progress->next_ns;
    pthread_mutex_unlock(&progress->lock);
    return due;
}

static unsigned columns(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20)
        return 80;
    return size.ws_col;
}

/* The bar takes what left and right leave of the width. */
static void bar_text(char *text, size_t size, unsigned width, const char *left, double share,
                     const char *right)
{
    char bar[BAR_MOST + 1];
    size_t others = strlen(left) + strlen(right) + 10, cells = BAR_MOST;

    if (others + cells > width)
        cells = others + BAR_LEAST < width ? width - others : BAR_LEAST;
    for (size_t i = 0; i < cells; i++)
        bar[i] = (double)i < share * (double)cells ? '#' : '.';
    bar[cells] = '\0';
    snprintf(text, size, "%s [%s] %3.0f%% %s", left, bar, share * 100, right);
}

static void draw_locked(struct progress *progress, const char *left, uint64_t done, uint64_t total,
                        const char *right)
{
    char text[512];
    double share = total ? (double)fb_min(done, total) / (double)total : 0;

    if (total && progress->terminal)
        bar_text(text, sizeof(text), columns(), left, share, right);
    else if (total)
        snprintf(text, sizeof(text), "%s %.0f%% %s", left, share * 100, right);
    else
        snprintf(text, sizeof(text), "%s %s", left, right);
    erase_locked(progress);
    if (progress->terminal)
        fprintf(stderr, "%.*s", (int)columns() - 1, text);
    else
        fprintf(stderr, "%s\n", text);
    progress->drawn = progress->terminal;
}

void progress_draw(struct progress *progress, const char *left, uint64_t done, uint64_t total,
                   const char *right)
{
    uint64_t now = fb_now_ns();

    pthread_mutex_lock(&progress->lock);
    if (now >= progress->next_ns) {
        progress->next_ns = now + (progress->terminal ? SCREEN_NS : PLAIN_NS);
        draw_locked(progress, left, done, total, right);
        fflush(stderr);
    }
    pthread_mutex_unlock(&progress->lock);
}

void progress_keep(struct progress *progress, const char *left, uint64_t done, uint64_t total,
                   const char *right)
{
    if (!progress->terminal)
        return;
    pthread_mutex_lock(&progress->lock);
    draw_locked(progress, left, done, total, right);
    fputc('\n', stderr);
    progress->drawn = false;
    pthread_mutex_unlock(&progress->lock);
}

void progress_say(struct progress *progress, const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&progress->lock);
    erase_locked(progress);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    pthread_mutex_unlock(&progress->lock);
}

void progress_log(void *data, int level, const char *line)
{
    progress_say(data, "%s%s", level ? "warning: " : "", line);
}

int progress_long_work(void *data, const char *what, uint64_t done, uint64_t total)
{
    char right[64], a[32], b[32];

    if (stop_asked())
        return 1;
    if (!progress_due(data))
        return 0;
    /* Bytes are large numbers; files and samples are counted. */
    if (total >= FB_MIB && (strcmp(what, "generating") == 0 || strcmp(what, "packing") == 0))
        snprintf(right, sizeof(right), "%s of %s", fb_size_text(done, a), fb_size_text(total, b));
    else
        snprintf(right, sizeof(right), "%" PRIu64, done);
    progress_draw(data, what, done, total, right);
    return 0;
}
