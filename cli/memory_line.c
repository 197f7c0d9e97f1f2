#include "memory_line.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "memory/host.h"
#include "statistics.h"

#define STALE_NS ((uint64_t)200000000) /* older figures are not shown */

/* With a loader: its share of a shared cache, too. */
static void process_text(char *text, size_t size, uint64_t total, const json_t *statistics)
{
    double bytes = statistics_number(statistics, "memory.process_bytes");

    if (!statistics && fb_host_resident_bytes() != FB_UNKNOWN)
        bytes = (double)fb_host_resident_bytes();
    if (isnan(bytes) || total == FB_UNKNOWN || !total)
        snprintf(text, size, "n/a");
    else
        snprintf(text, size, "%.1fMB (%.1f%%)", bytes / (double)FB_MIB,
                 100.0 * bytes / (double)total);
}

static void gpu_text(char *text, size_t size, const json_t *statistics)
{
    double allocated = statistics_number(statistics, "device.allocated_bytes");
    double reserved = statistics_number(statistics, "device.reserved_bytes");

    if (isnan(allocated) || isnan(reserved))
        snprintf(text, size, "n/a");
    else
        snprintf(text, size, "%.1fMB allocated, %.1fMB reserved", allocated / (double)FB_MIB,
                 reserved / (double)FB_MIB);
}

/* "used/total (share)" of the host, and the share that is used. */
static double system_text(char *text, size_t size, const struct fb_host_memory *host)
{
    double total = (double)host->total_bytes, used;

    snprintf(text, size, "n/a");
    if (host->total_bytes == FB_UNKNOWN || host->available_bytes == FB_UNKNOWN ||
        !host->total_bytes)
        return 0;
    used = (total - (double)host->available_bytes) / total;
    snprintf(text, size, "%.1f/%.1fGB (%.1f%%)", used * total / (double)FB_GIB,
             total / (double)FB_GIB, 100 * used);
    return used;
}

/* Batches of a moment need a line every few milliseconds: the host is asked so seldom that it costs
 * at most a hundredth of the time. */
static void look(struct memory_seen *seen, forebay_loader *loader)
{
    uint64_t now = fb_now_ns();
    struct fb_host_memory host;
    json_t *statistics;

    if (now < seen->again_ns)
        return;
    fb_host_memory_read(&host, "");
    statistics = loader ? statistics_read(loader) : NULL;
    process_text(seen->process, sizeof(seen->process), host.total_bytes, statistics);
    seen->used = system_text(seen->system, sizeof(seen->system), &host);
    seen->group = host.cgroup_limit_bytes == FB_UNKNOWN || host.cgroup_used_bytes == FB_UNKNOWN ||
                          !host.cgroup_limit_bytes
                      ? 0
                      : (double)host.cgroup_used_bytes / (double)host.cgroup_limit_bytes;
    gpu_text(seen->gpu, sizeof(seen->gpu), statistics);
    json_decref(statistics);
    seen->again_ns = now + fb_min(100 * (fb_now_ns() - now), STALE_NS);
}

static void warn_of(struct progress *progress, const char *whose, double used)
{
    progress_say(progress, "\u26a0\ufe0f  WARNING: %s memory usage is critically high (%.1f%%)!\n"
                           "   Consider reducing memory.budget, memory.cache or workers.", whose,
                 100 * used);
}

void memory_line(struct progress *progress, struct memory_seen *seen, const char *where,
                 double warn, forebay_loader *loader)
{
    look(seen, loader);
    progress_say(progress, "[%s] Memory - Process: %s, System: %s, GPU: %s", where, seen->process,
                 seen->system, seen->gpu);
    if (seen->used > warn)
        warn_of(progress, "System", seen->used);
    if (seen->group > warn)
        warn_of(progress, "Control group", seen->group);
}
