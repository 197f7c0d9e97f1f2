/* domain.c -- who may share memory: the memory cgroup a page would be charged to. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mix.h"
#include "cache/cache.h"
#include "cache/rendezvous.h"

#define PATH_TEXT 4096

/* Read a small file of the kernel's; false if it is not there. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (fd < 0)
        return false;
    length = read(fd, text, size - 1);
    close(fd);
    if (length < 0)
        return false;
    text[length] = '\0';
    return true;
}

/* cgroup v1 writes a number near 2^63 for "none", v2 the word max. */
static bool has_limit(const char *folder)
{
    char path[PATH_TEXT + 64], text[64];

    snprintf(path, sizeof(path), "%s/memory.max", folder);
    if (read_text(path, text, sizeof(text)))
        return strncmp(text, "max", 3) != 0;
    snprintf(path, sizeof(path), "%s/memory.limit_in_bytes", folder);
    return read_text(path, text, sizeof(text)) && strtoull(text, NULL, 10) < (uint64_t)1 << 60;
}

/* From the process's cgroup up to the mount. The inode is the same for all who look, whatever
 * their namespace calls the path. */
static uint64_t deepest_with_limit(const char *mount, const char *cgroup)
{
    char folder[PATH_TEXT];
    size_t mount_length = strlen(mount);
    struct stat status;

    if (snprintf(folder, sizeof(folder), "%s%s", mount, cgroup) >= (int)sizeof(folder))
        return 0;
    for (;;) {
        char *slash;

        if (has_limit(folder) && !stat(folder, &status))
            return fb_mix2((uint64_t)status.st_ino, 1);
        slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < mount_length)
            return 0;
        *slash = '\0';
    }
}

static uint64_t domain_of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':'), *path;
    char mount[PATH_TEXT];
    bool unified;

    if (!controllers)
        return 0;
    path = strchr(++controllers, ':');
    if (!path)
        return 0;
    *path++ = '\0';
    unified = *controllers == '\0';
    if (!unified && !strstr(controllers, "memory"))
        return 0;
    snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root, unified ? "" : "/memory");
    return deepest_with_limit(mount, path);
}

uint64_t fb_rendezvous_domain(const char *root)
{
    char path[PATH_TEXT], text[8192], *rest = text, *line;
    uint64_t domain = 0;

    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (!read_text(path, text, sizeof(text)))
        return 0;
    while (!domain && (line = strsep(&rest, "\n")) != NULL)
        domain = domain_of_line(root, line);
    return domain;
}

uint64_t fb_rendezvous_pid_space(void)
{
    struct stat status;

    return stat("/proc/self/ns/pid", &status) ? 0 : (uint64_t)status.st_ino;
}

uint64_t fb_cache_memory_domain(void)
{
    return fb_rendezvous_domain("");
}

/* What launchers say of the job; all its ranks and worker processes inherit it. */
uint64_t fb_cache_job(void)
{
    static const char *const names[] = {
        "SLURM_JOB_ID", "SLURM_STEP_ID",  "TORCHELASTIC_RUN_ID",    "MASTER_ADDR",
        "MASTER_PORT",  "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"
    };
    uint64_t hash = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        for (; value && *value; value++)
            hash = fb_mix2(hash + i, (unsigned char)*value);
    }
    return (hash ? hash : fb_mix2(2, (uint64_t)getpgrp())) | 1;
}
