#include "monitor/sampler.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/cgroup.h"

#define PROCESSES_MAX 65536
#define ROLLUP_NS ((uint64_t)10 * 1000000000) /* smaps_rollup costs 14 ms per GiB */
#define SECTOR 512                            /* of diskstats, whatever the disk's own is */

struct times {
    uint64_t busy, wait, all;
};

struct process {
    pid_t pid, parent;
    uint64_t resident;
    bool inside;
    char command[64];
};

struct fb_sampler {
    pid_t root;
    struct fb_gpus *gpus;
    uint64_t taken_ns, rollup_ns;
    struct times all, cpu[FB_SAMPLER_CPUS];
    uint64_t read_sectors, written_sectors;
    uint64_t private_bytes, shared_bytes;
    struct process *processes;
};

int fb_sampler_open(struct fb_sampler **out, pid_t root, forebay_error *error)
{
    struct fb_sampler *sampler = calloc(1, sizeof(*sampler));

    if (sampler)
        sampler->processes = calloc(PROCESSES_MAX, sizeof(*sampler->processes));
    if (!sampler || !sampler->processes) {
        free(sampler);
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to watch processes");
    }
    sampler->gpus = fb_gpus_open();
    fb_sampler_watch(sampler, root);
    *out = sampler;
    return FOREBAY_OK;
}

void fb_sampler_close(struct fb_sampler *sampler)
{
    if (!sampler)
        return;
    fb_gpus_close(sampler->gpus);
    free(sampler->processes);
    free(sampler);
}

void fb_sampler_watch(struct fb_sampler *sampler, pid_t root)
{
    sampler->root = root;
    sampler->private_bytes = sampler->shared_bytes = FB_UNKNOWN;
    sampler->rollup_ns = 0;
}

bool fb_sampler_has_gpus(const struct fb_sampler *sampler)
{
    return sampler->gpus != NULL;
}

/* ---- CPUs and disks ---- */

/* The kernel's count of waiting may fall, and that of a CPU that was switched off. */
static double percent(uint64_t now, uint64_t before, const struct times *all,
                      const struct times *all_before)
{
    uint64_t part = now > before ? now - before : 0;

    if (all->all <= all_before->all)
        return (double)NAN;
    return fmin(100, 100.0 * (double)part / (double)(all->all - all_before->all));
}

/* "cpu3 user nice system idle iowait irq softirq steal ..." */
static bool times_parse(const char *line, int *cpu, struct times *times)
{
    unsigned long long v[8] = { 0 };
    int used = 0;

    *cpu = -1;
    if (strncmp(line, "cpu", 3) != 0)
        return false;
    if (isdigit((unsigned char)line[3]) && sscanf(line + 3, "%d%n", cpu, &used) != 1)
        return false;
    if (sscanf(line + 3 + used, "%llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2],
               &v[3], &v[4], &v[5], &v[6], &v[7]) < 5)
        return false;
    times->wait = v[4];
    times->busy = v[0] + v[1] + v[2] + v[5] + v[6] + v[7];
    times->all = times->busy + v[3] + v[4];
    return true;
}

static void cpus_take(struct fb_sampler *sampler, struct fb_sample *sample)
{
    FILE *file = fopen("/proc/stat", "re");
    bool first = !sampler->taken_ns;
    struct times now;
    char line[512];
    int cpu;

    sample->cpu_all = sample->io_wait = NAN;
    while (file && fb_line_read(file, line, sizeof(line)) && times_parse(line, &cpu, &now)) {
        struct times *last;
        double busy;

        if (cpu >= FB_SAMPLER_CPUS)
            continue;
        last = cpu < 0 ? &sampler->all : &sampler->cpu[cpu];
        busy = first ? (double)NAN : percent(now.busy, last->busy, &now, last);
        if (cpu < 0) {
            sample->cpu_all = busy;
            sample->io_wait =
                first ? (double)NAN : percent(now.wait, last->wait, &now, last);
        } else {
            sample->cpu[cpu] = busy;
            sample->cpu_count = (unsigned)fb_max(sample->cpu_count, (uint64_t)cpu + 1);
        }
        *last = now;
    }
    if (file)
        fclose(file);
}

/* Whole disks only: their partitions are counted in them; memory and loops are no disks. */
static bool is_disk(const char *name)
{
    char path[160];

    if (!strncmp(name, "loop", 4) || !strncmp(name, "ram", 3) || !strncmp(name, "dm-", 3) ||
        !strncmp(name, "md", 2) || strchr(name, '/'))
        return false;
    snprintf(path, sizeof(path), "/sys/block/%.100s", name);
    return access(path, F_OK) == 0;
}

static void disks_take(struct fb_sampler *sampler, struct fb_sample *sample, double seconds)
{
    FILE *file = fopen("/proc/diskstats", "re");
    unsigned long long read, written;
    uint64_t all_read = 0, all_written = 0;
    char line[512], name[128];

    while (file && fb_line_read(file, line, sizeof(line)))
        if (sscanf(line, "%*u %*u %127s %*u %*u %llu %*u %*u %*u %llu", name, &read, &written) ==
                3 && is_disk(name)) {
            all_read += read;
            all_written += written;
        }
    sample->disk_read = sample->disk_write = NAN;
    if (file && sampler->taken_ns && seconds > 0) {
        sample->disk_read = (double)(all_read - sampler->read_sectors) * SECTOR / seconds;
        sample->disk_write = (double)(all_written - sampler->written_sectors) * SECTOR / seconds;
    }
    sampler->read_sectors = all_read;
    sampler->written_sectors = all_written;
    if (file)
        fclose(file);
}

/* ---- The tree of processes ---- */

static bool process_read(struct process *process, pid_t pid)
{
    char path[64], line[1024], *open, *close;
    long long resident = 0;
    int parent = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    open = fb_line_read(file, line, sizeof(line)) ? strchr(line, '(') : NULL;
    close = open ? strrchr(open, ')') : NULL;
    fclose(file);
    if (!close || sscanf(close + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                         "%*d %*d %*d %*d %*u %*u %lld", &parent, &resident) != 2)
        return false;
    *process = (struct process){ .pid = pid, .parent = (pid_t)parent };
    process->resident = resident > 0 ? (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    snprintf(process->command, sizeof(process->command), "%.*s", (int)(close - open - 1), open + 1);
    return true;
}

static unsigned processes_read(struct process *processes)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    unsigned count = 0;

    while (folder && count < PROCESSES_MAX && (entry = readdir(folder)))
        if (isdigit((unsigned char)entry->d_name[0]) &&
            process_read(&processes[count], (pid_t)atoi(entry->d_name)))
            count++;
    if (folder)
        closedir(folder);
    return count;
}

/* Children of those inside are inside; until none is added. */
static void tree_mark(struct process *processes, unsigned count, pid_t root)
{
    bool more = true;

    for (unsigned i = 0; i < count; i++)
        processes[i].inside = processes[i].pid == root;
    while (more) {
        more = false;
        for (unsigned i = 0; i < count; i++)
            for (unsigned j = 0; j < count && !processes[i].inside; j++)
                if (processes[j].inside && processes[j].pid == processes[i].parent)
                    more = processes[i].inside = true;
    }
}

static uint64_t rollup_number(FILE *file, const char *name)
{
    unsigned long long kib, sum = 0;
    size_t length = strlen(name);
    char line[256];

    rewind(file);
    while (fb_line_read(file, line, sizeof(line)))
        if (!strncmp(line, name, length) && sscanf(line + length, "%*[^:]: %llu", &kib) == 1)
            sum += kib;
    return (uint64_t)sum * 1024;
}

static void rollup_add(struct fb_sampler *sampler, pid_t pid)
{
    char path[64];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return;
    if (sampler->private_bytes == FB_UNKNOWN)
        sampler->private_bytes = sampler->shared_bytes = 0;
    sampler->private_bytes += rollup_number(file, "Private_");
    sampler->shared_bytes += rollup_number(file, "Shared_");
    fclose(file);
}

static void largest_put(struct fb_sample *sample, const struct process *process)
{
    unsigned at = FB_SAMPLER_SHOWN;

    while (at > 0 && sample->largest[at - 1].resident < process->resident)
        at--;
    if (at == FB_SAMPLER_SHOWN)
        return;
    memmove(&sample->largest[at + 1], &sample->largest[at],
            (FB_SAMPLER_SHOWN - 1 - at) * sizeof(sample->largest[0]));
    sample->largest[at].pid = (uint64_t)process->pid;
    sample->largest[at].resident = process->resident;
    memcpy(sample->largest[at].command, process->command, sizeof(process->command));
}

static void tree_take(struct fb_sampler *sampler, struct fb_sample *sample, uint64_t now_ns)
{
    bool roll = !sampler->rollup_ns || now_ns - sampler->rollup_ns >= ROLLUP_NS;
    unsigned count;

    sample->resident = FB_UNKNOWN;
    sample->private_bytes = sample->shared_bytes = FB_UNKNOWN;
    if (!sampler->root)
        return;
    count = processes_read(sampler->processes);
    tree_mark(sampler->processes, count, sampler->root);
    if (roll) {
        sampler->private_bytes = sampler->shared_bytes = FB_UNKNOWN;
        sampler->rollup_ns = now_ns;
    }
    for (unsigned i = 0; i < count; i++) {
        const struct process *process = &sampler->processes[i];

        if (!process->inside)
            continue;
        sample->resident = (sample->processes++ ? sample->resident : 0) + process->resident;
        largest_put(sample, process);
        if (roll)
            rollup_add(sampler, process->pid);
    }
    sample->private_bytes = sampler->private_bytes;
    sample->shared_bytes = sampler->shared_bytes;
}

void fb_sampler_take(struct fb_sampler *sampler, struct fb_sample *sample)
{
    uint64_t now_ns = fb_now_ns();
    struct timespec wall;

    memset(sample, 0, sizeof(*sample));
    clock_gettime(CLOCK_REALTIME, &wall);
    sample->time = (double)wall.tv_sec + (double)wall.tv_nsec / 1e9;
    fb_host_memory_read(&sample->memory, "");
    fb_host_pressure_read(&sample->pressure, "");
    cpus_take(sampler, sample);
    disks_take(sampler, sample, (double)(now_ns - sampler->taken_ns) / 1e9);
    tree_take(sampler, sample, now_ns);
    sample->gpu_count = fb_gpus_read(sampler->gpus, sample->gpus);
    sampler->taken_ns = now_ns;
}

/* ---- JSON ---- */

static json_t *number(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *memory_json(const struct fb_sample *sample)
{
    const struct fb_host_memory *memory = &sample->memory;

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "total_bytes",
                     number(memory->total_bytes), "available_bytes",
                     number(memory->available_bytes), "swap_used_bytes",
                     number(memory->swap_used_bytes), "swap_total_bytes",
                     number(memory->swap_total_bytes), "cgroup_limit_bytes",
                     number(memory->cgroup_limit_bytes), "cgroup_used_bytes",
                     number(memory->cgroup_used_bytes), "stalled_percent",
                     real(sample->pressure.memory_some));
}

static json_t *cpu_json(const struct fb_sample *sample)
{
    json_t *each = json_array();

    for (unsigned i = 0; i < sample->cpu_count; i++)
        json_array_append_new(each, real(sample->cpu[i]));
    return json_pack("{s:o, s:o, s:o, s:o}", "percent", real(sample->cpu_all), "io_wait_percent",
                     real(sample->io_wait), "stalled_percent", real(sample->pressure.cpu_some),
                     "each", each);
}

json_t *fb_gpus_json(const struct fb_gpu *gpus, unsigned count)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < count; i++) {
        const struct fb_gpu *gpu = &gpus[i];
        json_t *name = json_string(gpu->name);

        json_array_append_new(
            list, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "name", name ? name : json_null(),
                            "utilization_percent", real(gpu->utilisation), "memory_used_bytes",
                            real(gpu->memory_used), "memory_total_bytes", real(gpu->memory_total),
                            "power_watts", real(gpu->power), "temperature_celsius",
                            real(gpu->temperature)));
    }
    return list;
}

static json_t *tree_json(const struct fb_sample *sample)
{
    if (!sample->processes)
        return json_null();
    return json_pack("{s:i, s:o, s:o, s:o}", "processes", (int)sample->processes, "resident_bytes",
                     number(sample->resident), "private_bytes", number(sample->private_bytes),
                     "shared_bytes", number(sample->shared_bytes));
}

json_t *fb_sample_json(const struct fb_sample *sample)
{
    return json_pack("{s:o, s:o, s:o, s:{s:o, s:o}, s:o, s:o}", "time", real(sample->time),
                     "memory", memory_json(sample), "cpu", cpu_json(sample), "disk",
                     "read_bytes_per_s", real(sample->disk_read), "write_bytes_per_s",
                     real(sample->disk_write), "tree", tree_json(sample), "gpus",
                     sample->gpu_count ? fb_gpus_json(sample->gpus, sample->gpu_count)
                                       : json_null());
}
