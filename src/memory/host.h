/*
 * host.h -- what the machine leaves us: cgroup v1 and v2 at every level, meminfo, this process.
 * Unknown is FB_UNKNOWN, never 0.
 */
#ifndef FB_MEMORY_HOST_H
#define FB_MEMORY_HOST_H
#include <stdbool.h>
#include <stdint.h>

#define FB_UNKNOWN UINT64_MAX

struct fb_host_memory {
    uint64_t total_bytes;      /* MemTotal */
    uint64_t available_bytes;  /* MemAvailable */
    uint64_t swap_used_bytes;
    uint64_t cgroup_limit_bytes; /* the tightest at any level up to the root; UNKNOWN: none */
    uint64_t cgroup_used_bytes;  /* anon + shmem of that level, never the page cache */
    uint64_t left_bytes;       /* what may still be taken: the smaller of both */
};

/* `root` is "" for the real system; tests give a folder with proc/ and sys/ of their own. */
void fb_host_memory_read(struct fb_host_memory *memory, const char *root);
/* Pss_Anon of this process from smaps_rollup (14 ms per GiB: not for every batch). */
uint64_t fb_host_pss_anon_bytes(void);
/* CPUs this process may run on (affinity and cgroup quota), at least 1. */
unsigned fb_host_cpus(void);
/* $FOREBAY_RUN_DIR etc. are elsewhere; this is the cache folder: $XDG_CACHE_HOME/forebay or
 * ~/.cache/forebay, made if missing. False if it cannot be. */
bool fb_host_cache_folder(char *path, unsigned long size);
#endif
