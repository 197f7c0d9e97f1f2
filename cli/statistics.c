#include "statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define MB (1024.0 * 1024.0) /* the guides' */

json_t *statistics_read(forebay_loader *loader)
{
    size_t size = 16384, needed;
    char *text = malloc(size);
    json_t *statistics = NULL;

    while (text && (needed = forebay_stats_json(loader, text, size)) >= size) {
        size = needed + 1024; /* it may grow between two calls */
        free(text);
        text = malloc(size);
    }
    if (text)
        statistics = json_loads(text, 0, NULL);
    free(text);
    return statistics;
}

static const json_t *find(const json_t *at, const char *path)
{
    char key[64];

    while (at && *path) {
        size_t length = strcspn(path, ".");

        snprintf(key, sizeof(key), "%.*s", (int)length, path);
        at = json_object_get(at, key);
        path += length + (path[length] == '.');
    }
    return at;
}

double statistics_number(const json_t *statistics, const char *path)
{
    const json_t *number = find(statistics, path);

    return json_is_number(number) ? json_number_value(number) : (double)NAN;
}

const char *statistics_text(const json_t *statistics, const char *path)
{
    const char *text = json_string_value(find(statistics, path));

    return text ? text : "";
}

static bool has_cache(const json_t *statistics)
{
    return statistics_number(statistics, "cache.limit_bytes") > 0;
}

void statistics_say_cache(struct progress *progress, const json_t *statistics, const char *name)
{
    double hits = statistics_number(statistics, "cache.hits");
    double misses = statistics_number(statistics, "cache.misses");

    if (!has_cache(statistics))
        return;
    progress_say(progress,
                 "[%s] Cache Stats:\n  - Size: %.0f items\n  - Memory: %.1f / %.1f MB\n"
                 "  - Hit Rate: %.2f%% (%.0f hits / %.0f misses)",
                 name, statistics_number(statistics, "cache.items"),
                 statistics_number(statistics, "cache.bytes") / MB,
                 statistics_number(statistics, "cache.limit_bytes") / MB,
                 hits + misses > 0 ? 100 * hits / (hits + misses) : 0.0, hits, misses);
}

/* "12.3 MiB", or n/a. */
static const char *size_text(double bytes, char text[32])
{
    if (!(bytes >= 0))
        return "n/a";
    return fb_size_text((uint64_t)bytes, text);
}

static void print_seconds(const char *before, double seconds, const char *after)
{
    if (isnan(seconds))
        printf("%sn/a%s", before, after);
    else if (seconds < 1)
        printf("%s%.1f ms%s", before, seconds * 1e3, after);
    else
        printf("%s%.2f s%s", before, seconds, after);
}

static void print_speed(const json_t *s)
{
    printf("  speed     %.0f samples/s, %.0f MB/s", statistics_number(s, "samples_per_s"),
           statistics_number(s, "bytes_per_s") / 1e6);
    print_seconds("; first batch after ", statistics_number(s, "first_batch_s"), "\n");
    print_seconds("  waiting   ", statistics_number(s, "wait_s"), " for data in all");
    print_seconds(", half of the batches at most ", statistics_number(s, "wait_p50_ms") / 1e3, "");
    print_seconds(", 99% at most ", statistics_number(s, "wait_p99_ms") / 1e3, "\n");
}

static void print_memory(const json_t *s)
{
    char a[32], b[32], c[32];

    printf("  memory    at most %s of a budget of %s (by the kernel's count %s)\n",
           size_text(statistics_number(s, "memory.peak_bytes"), a),
           size_text(statistics_number(s, "memory.budget_bytes"), b),
           size_text(statistics_number(s, "memory.peak_pss_bytes"), c));
    if (!has_cache(s)) {
        printf("  cache     none\n");
        return;
    }
    printf("  cache     %s: %.0f items, %s of %s, hit rate %.1f%%\n",
           statistics_text(s, "cache.policy"), statistics_number(s, "cache.items"),
           size_text(statistics_number(s, "cache.bytes"), a),
           size_text(statistics_number(s, "cache.limit_bytes"), b),
           100 * statistics_number(s, "cache.hit_rate"));
}

static void print_epochs(const json_t *s)
{
    const json_t *epochs = json_object_get(s, "epochs"), *epoch;
    size_t i;

    json_array_foreach(epochs, i, epoch) {
        double seconds = statistics_number(epoch, "seconds");
        double samples = statistics_number(epoch, "samples");
        double hits = statistics_number(epoch, "hits"), misses = statistics_number(epoch, "misses");

        printf("  epoch %-3zu %.0f samples in %.2f s, %.0f samples/s, %.0f MB read", i + 1, samples,
               seconds, seconds > 0 ? samples / seconds : 0.0,
               statistics_number(epoch, "bytes_read") / 1e6);
        if (has_cache(s) && hits + misses > 0)
            printf(", %.1f%% from the cache", 100 * hits / (hits + misses));
        putchar('\n');
    }
}

void statistics_print(const json_t *s, const char *checksum)
{
    double workers = statistics_number(s, "workers"), prefetch = statistics_number(s, "prefetch");
    double skipped = statistics_number(s, "skipped"), replaced = statistics_number(s, "replaced");

    printf("%.0f samples in %.0f batches, %.1f MB in %.2f s\n", statistics_number(s, "samples"),
           statistics_number(s, "batches"), statistics_number(s, "bytes") / 1e6,
           statistics_number(s, "seconds"));
    print_speed(s);
    print_memory(s);
    printf("  running   %.0f worker%s, %.0f batch%s in flight\n", workers, workers == 1 ? "" : "s",
           prefetch, prefetch == 1 ? "" : "es");
    if (skipped > 0)
        printf("  skipped   %.0f samples that could not be read\n", skipped);
    if (replaced > 0)
        printf("  replaced  %.0f samples that could not be read\n", replaced);
    print_epochs(s);
    printf("  checksum  %s\n", checksum);
}
