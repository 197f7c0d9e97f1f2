#include "memory/pressure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "memory/cgroup.h"

static FILE *open_at(const char *folder, const char *name)
{
    char path[FB_CGROUP_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s%s", folder, name);

    return length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
}

/* "some avg10=1.23 avg60=..." and "full ...": both figures of ten seconds. */
static bool stalls_read(FILE *file, double *some, double *full)
{
    char line[160];
    bool found = false;
    double value;

    if (!file)
        return false;
    while (fb_line_read(file, line, sizeof(line))) {
        if (sscanf(line, "some avg10=%lf", &value) == 1) {
            *some = value;
            found = true;
        } else if (full && sscanf(line, "full avg10=%lf", &value) == 1) {
            *full = value;
        }
    }
    fclose(file);
    return found;
}

/* The number behind "name " at the beginning of a line. */
static uint64_t number_after(FILE *file, const char *name)
{
    size_t length = strlen(name);
    uint64_t value = FB_UNKNOWN;
    char line[160];

    if (!file)
        return FB_UNKNOWN;
    while (value == FB_UNKNOWN && fb_line_read(file, line, sizeof(line)))
        if (!strncmp(line, name, length) && line[length] == ' ' &&
            sscanf(line + length, "%" SCNu64, &value) != 1)
            value = FB_UNKNOWN;
    fclose(file);
    return value;
}

void fb_host_pressure_read(struct fb_host_pressure *pressure, const char *root)
{
    struct fb_cgroup group;

    *pressure = (struct fb_host_pressure){ NAN, NAN, NAN, NAN, false, FB_UNKNOWN };
    pressure->own = fb_cgroup_find(&group, root, "memory", true) &&
                    stalls_read(fb_cgroup_open(&group, "/memory.pressure"),
                                &pressure->memory_some, &pressure->memory_full);
    if (!pressure->own)
        stalls_read(open_at(root, "/proc/pressure/memory"), &pressure->memory_some,
                    &pressure->memory_full);
    stalls_read(open_at(root, "/proc/pressure/cpu"), &pressure->cpu_some, NULL);
    stalls_read(open_at(root, "/proc/pressure/io"), &pressure->io_some, NULL);
    pressure->swapped_out = number_after(open_at(root, "/proc/vmstat"), "pswpout");
}

void fb_host_group(char folder[FB_HOST_PATH_BYTES], const char *root)
{
    struct fb_cgroup group;
    FILE *limit = NULL;

    folder[0] = '\0';
    /* Of a tree of version 2 without the memory controller nothing can be learnt. */
    if (!fb_cgroup_find(&group, root, "memory", false)) {
        if (!fb_cgroup_find(&group, root, "memory", true))
            return;
        limit = fb_cgroup_open(&group, "/memory.events");
        if (!limit)
            return;
        fclose(limit);
    }
    if (strlen(group.folder) < FB_HOST_PATH_BYTES)
        memcpy(folder, group.folder, strlen(group.folder) + 1);
}

uint64_t fb_host_group_kills(const char *folder)
{
    uint64_t kills;

    if (!folder[0])
        return FB_UNKNOWN;
    kills = number_after(open_at(folder, "/memory.events"), "oom_kill");
    if (kills == FB_UNKNOWN)
        kills = number_after(open_at(folder, "/memory.oom_control"), "oom_kill");
    return kills;
}

uint64_t fb_host_kills(const char *root)
{
    return number_after(open_at(root, "/proc/vmstat"), "oom_kill");
}

void fb_host_boot(char id[40])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    id[0] = '\0';
    if (!file)
        return;
    if (!fb_line_read(file, id, 40))
        id[0] = '\0';
    fclose(file);
}

uint64_t fb_host_process_start(pid_t pid)
{
    char path[64], line[1024], state, *at;
    unsigned long long start;
    long threads;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    /* The name in parentheses may hold anything. Behind it: state, ppid ..., nice, threads, start. */
    at = fb_line_read(file, line, sizeof(line)) ? strrchr(line, ')') : NULL;
    fclose(file);
    if (!at || sscanf(at, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld "
                          "%*d %llu", &state, &threads, &start) != 3)
        return 0;
    /* Dead, and nobody has asked how it ended: where no init does, for ever. A first thread that
     * left the others to go on looks the same but for their number. */
    return (state == 'Z' || state == 'X') && threads <= 1 ? 0 : start;
}

uint64_t fb_host_pid_space(void)
{
    struct stat about;

    return stat("/proc/self/ns/pid", &about) ? 0 : (uint64_t)about.st_ino;
}

uint64_t fb_host_run_delay_ns(uint64_t thread)
{
    char path[64], line[128];
    uint64_t ran, waited = FB_UNKNOWN;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%" PRIu64 "/schedstat", thread);
    file = thread ? fopen(path, "re") : NULL;
    if (!file)
        return FB_UNKNOWN;
    if (!fb_line_read(file, line, sizeof(line)) ||
        sscanf(line, "%" SCNu64 " %" SCNu64, &ran, &waited) != 2)
        waited = FB_UNKNOWN;
    fclose(file);
    return waited;
}
