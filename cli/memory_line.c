#include "memory_line.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "memory/host.h"
#include "statistics.h"

static void process_text(char *text, size_t size, uint64_t total)
{
    uint64_t resident = fb_host_resident_bytes();

    if (resident == FB_UNKNOWN || total == FB_UNKNOWN || !total)
        snprintf(text, size, "n/a");
    else
        snprintf(text, size, "%.1fMB (%.1f%%)", (double)resident / (double)FB_MIB,
                 100.0 * (double)resident / (double)total);
}

static void gpu_text(char *text, size_t size, forebay_loader *loader)
{
    json_t *statistics = loader ? statistics_read(loader) : NULL;
    double allocated = statistics_number(statistics, "device.allocated_bytes");
    double reserved = statistics_number(statistics, "device.reserved_bytes");

    if (isnan(allocated) || isnan(reserved))
        snprintf(text, size, "n/a");
    else
        snprintf(text, size, "%.1fMB allocated, %.1fMB reserved", allocated / (double)FB_MIB,
                 reserved / (double)FB_MIB);
    json_decref(statistics);
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

    if (now < seen->again_ns)
        return;
    fb_host_memory_read(&host, "");
    process_text(seen->process, sizeof(seen->process), host.total_bytes);
    seen->used = system_text(seen->system, sizeof(seen->system), &host);
    seen->group = host.cgroup_limit_bytes == FB_UNKNOWN || host.cgroup_used_bytes == FB_UNKNOWN ||
                          !host.cgroup_limit_bytes
                      ? 0
                      : (double)host.cgroup_used_bytes / (double)host.cgroup_limit_bytes;
    gpu_text(seen->gpu, sizeof(seen->gpu), loader);
    seen->again_ns = now + 100 * (fb_now_ns() - now);
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
