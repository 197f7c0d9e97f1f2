#include "memory_line.h"

#include <stdio.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/host.h"

static void process_text(char *text, size_t size, uint64_t total)
{
    uint64_t resident = fb_host_resident_bytes();

    if (resident == FB_UNKNOWN || total == FB_UNKNOWN || !total)
        snprintf(text, size, "n/a");
    else
        snprintf(text, size, "%.1fMB (%.1f%%)", (double)resident / (double)FB_MIB,
                 100.0 * (double)resident / (double)total);
}

void memory_line(struct progress *progress, const char *where, double warn)
{
    struct fb_host_memory host;
    char process[64], system[64] = "n/a";
    double used = 0, total;

    fb_host_memory_read(&host, "");
    process_text(process, sizeof(process), host.total_bytes);
    if (host.total_bytes != FB_UNKNOWN && host.available_bytes != FB_UNKNOWN && host.total_bytes) {
        total = (double)host.total_bytes;
        used = (total - (double)host.available_bytes) / total;
        snprintf(system, sizeof(system), "%.1f/%.1fGB (%.1f%%)", used * total / (double)FB_GIB,
                 total / (double)FB_GIB, 100 * used);
    }
    progress_say(progress, "[%s] Memory - Process: %s, System: %s, GPU: n/a", where, process,
                 system);
    if (used > warn)
        progress_say(progress, "\u26a0\ufe0f  WARNING: System memory usage is critically high "
                               "(%.1f%%)!\n   Consider reducing memory.budget, memory.cache or "
                               "workers.", 100 * used);
}
