/*
 * sampler.h -- what the machine and a tree of processes do: for `forebay monitor` and its log.
 * Rates are since the sample before. Unknown is NAN or FB_UNKNOWN, never 0.
 */
#ifndef FB_MONITOR_SAMPLER_H
#define FB_MONITOR_SAMPLER_H
#include <jansson.h>

#include "memory/pressure.h"
#include "monitor/gpu.h"

#define FB_SAMPLER_CPUS 1024
#define FB_SAMPLER_SHOWN 5 /* largest processes of the tree that are named */

struct fb_sample {
    double time; /* seconds since 1970 */
    struct fb_host_memory memory;
    struct fb_host_pressure pressure;
    unsigned cpu_count;
    double cpu[FB_SAMPLER_CPUS]; /* percent busy, each */
    double cpu_all, io_wait;     /* percent */
    double disk_read, disk_write; /* bytes a second */

    /* Of the tree; 0 processes: none is watched, or it has ended */
    unsigned processes;
    uint64_t resident;           /* shared pages counted in each */
    uint64_t private_bytes, shared_bytes; /* by smaps_rollup, read every 10 s at most */
    struct {
        uint64_t pid, resident;
        char command[64];
    } largest[FB_SAMPLER_SHOWN];

    unsigned gpu_count;
    struct fb_gpu gpus[FB_GPUS_MAX];
};

struct fb_sampler;

/* `root`: the first process of the tree; 0: none. */
int fb_sampler_open(struct fb_sampler **out, pid_t root, forebay_error *error);
void fb_sampler_close(struct fb_sampler *sampler);
void fb_sampler_watch(struct fb_sampler *sampler, pid_t root);
void fb_sampler_take(struct fb_sampler *sampler, struct fb_sample *sample);
/* Is there a library that knows of GPUs? */
bool fb_sampler_has_gpus(const struct fb_sampler *sampler);

/* An array with an object for each; unknown is null. */
json_t *fb_gpus_json(const struct fb_gpu *gpus, unsigned count);
json_t *fb_sample_json(const struct fb_sample *sample);
#endif
