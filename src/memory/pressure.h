/*
 * pressure.h -- signs that the machine is short of something, and what the kernel did about it:
 * pressure stall information, swapping, out-of-memory kills. Unknown is NAN or FB_UNKNOWN.
 */
#ifndef FB_MEMORY_PRESSURE_H
#define FB_MEMORY_PRESSURE_H
#include <sys/types.h>

#include "memory/host.h"

/* Percent of the last ten seconds in which some (or all) tasks stood still for want of it. */
struct fb_host_pressure {
    double memory_some, memory_full, cpu_some, io_some;
    bool own;                /* of our own control group (v2 only), else of the whole machine */
    uint64_t swapped_out;    /* pages since boot */
};
void fb_host_pressure_read(struct fb_host_pressure *pressure, const char *root);

/* The folder of the memory control group this process is in; "" if there is none. */
void fb_host_group(char folder[FB_HOST_PATH_BYTES], const char *root);
/* Processes of that group the kernel killed for want of memory: v2 memory.events, v1
 * memory.oom_control. FB_UNKNOWN if the group is gone or does not say. */
uint64_t fb_host_group_kills(const char *folder);
/* The same of the whole machine, since boot. */
uint64_t fb_host_kills(const char *root);

/* This boot's own name, 36 letters; "" if unknown. */
void fb_host_boot(char id[40]);
/* When the process started, in clock ticks since boot: with pid and boot it is one process for
 * ever. 0 if there is none such, or a zombie. */
uint64_t fb_host_process_start(pid_t pid);
/* Which processes can see each other's numbers; 0 if unknown. */
uint64_t fb_host_pid_space(void);
/* How long a thread of this process waited for a CPU although it could have run, in all. */
uint64_t fb_host_run_delay_ns(uint64_t thread);
#endif
