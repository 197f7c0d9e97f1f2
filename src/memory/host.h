/*
 * host.h -- what the machine leaves us: cgroup v1 and v2 at every level, meminfo, this process.
 * Unknown is FB_UNKNOWN, never 0.
 */
#ifndef FB_MEMORY_HOST_H
#define FB_MEMORY_HOST_H
#include "forebay.h"
#include "memory/cgroup.h"

#define FB_UNKNOWN UINT64_MAX

struct fb_host_memory {
    uint64_t total_bytes;      /* MemTotal */
    uint64_t available_bytes;  /* MemAvailable */
    uint64_t swap_used_bytes, swap_total_bytes;
    uint64_t cgroup_limit_bytes; /* the tightest at any level up to the root; UNKNOWN: none */
    uint64_t cgroup_used_bytes;  /* anon + shmem of that level, never the page cache */
    uint64_t left_bytes;       /* what may still be taken: the smaller of both */
};

/* `root` is "" for the real system; tests give a folder with proc/ and sys/ of their own. */
void fb_host_memory_read(struct fb_host_memory *memory, const char *root);

/* The same for someone who looks often: finding our control groups is half of the work, and they
 * seldom change. */
struct fb_host_groups {
    bool found[2]; /* of version 1, of version 2 */
    struct fb_cgroup groups[2];
};
void fb_host_groups_find(struct fb_host_groups *groups, const char *root);
void fb_host_memory_read_in(struct fb_host_memory *memory, const struct fb_host_groups *groups,
                            const char *root);
/* Resident bytes of this process, all and those of no file; FB_UNKNOWN if /proc does not say. */
uint64_t fb_host_resident_bytes(void);
uint64_t fb_host_anon_bytes(void);
/* Of the resident bytes those in shared memory (RssShmem); FB_UNKNOWN if /proc does not say. */
uint64_t fb_host_shmem_bytes(void);
/* Pss_Anon of this process from smaps_rollup (14 ms per GiB: not for every batch). */
uint64_t fb_host_pss_anon_bytes(void);
/* CPUs this process may run on (affinity and cgroup quota), at least 1. */
unsigned fb_host_cpus(void);
/* The quota alone, rounded up to whole CPUs, the tightest at any level; UINT_MAX if none. */
unsigned fb_host_cpu_quota(const char *root);

/* Where what is kept on disk lives: $XDG_CACHE_HOME/forebay, else ~/.cache/forebay, else
 * /tmp/forebay-UID; made if missing. False if it cannot be. */
bool fb_host_cache_folder(char *path, unsigned long size);
/* Where run-time files live: $FOREBAY_RUN_DIR, else $XDG_RUNTIME_DIR/forebay, else
 * /tmp/forebay-UID; made (0700) if missing. It is ours and nobody else can write to it, and it is
 * never a symlink, or this fails with BAD_CONFIG; `path` needs room for FB_HOST_PATH_BYTES. */
#define FB_HOST_PATH_BYTES 1024
int fb_host_run_folder(char path[FB_HOST_PATH_BYTES], forebay_error *error);
#endif
