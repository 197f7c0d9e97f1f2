#include "memory_line.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/host.h"
#include "statistics.h"

/* Resident bytes of this process, FB_UNKNOWN if /proc does not say. */
static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long size, resident;
    int read;

    if (!file)
        return FB_UNKNOWN;
    read = fscanf(file, "%llu %llu", &size, &resident);
    fclose(file);
    return read == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : FB_UNKNOWN;
}

static void process_text(char *text, size_t size, uint64_t total)
{
    uint64_t resident = resident_bytes();

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

void memory_line(struct progress *progress, const char *where, double warn, forebay_loader *loader)
{
    struct fb_host_memory host;
    char process[64], system[64] = "n/a", gpu[80];
    double used = 0, total;

    fb_host_memory_read(&host, "");
    process_text(process, sizeof(process), host.total_bytes);
    gpu_text(gpu, sizeof(gpu), loader);
    if (host.total_bytes != FB_UNKNOWN && host.available_bytes != FB_UNKNOWN && host.total_bytes) {
        total = (double)host.total_bytes;
        used = (total - (double)host.available_bytes) / total;
        snprintf(system, sizeof(system), "%.1f/%.1fGB (%.1f%%)", used * total / (double)FB_GIB,
                 total / (double)FB_GIB, 100 * used);
    }
    progress_say(progress, "[%s] Memory - Process: %s, System: %s, GPU: %s", where, process,
                 system, gpu);
    if (used > warn)
        progress_say(progress, "\u26a0\ufe0f  WARNING: System memory usage is critically high "
                               "(%.1f%%)!\n   Consider reducing memory.budget, memory.cache or "
                               "workers.", 100 * used);
}
