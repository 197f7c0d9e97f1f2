/*
 * cgroup.h -- where this process stands in the control groups, v1 and v2, and what each level up
 * to the root says. A container sees its own part of the tree only; what it sees is walked.
 */
#ifndef FB_MEMORY_CGROUP_H
#define FB_MEMORY_CGROUP_H
#include <stdbool.h>
#include <stdio.h>

#define FB_CGROUP_PATH_BYTES 4096

/* One level; start with fb_cgroup_find, go up with fb_cgroup_up. */
struct fb_cgroup {
    bool v2;
    unsigned top;                      /* length of the mount point within folder */
    char folder[FB_CGROUP_PATH_BYTES]; /* of this level, `root` in front */
};

/* The group of this process that holds `controller` ("memory", "cpu"): of version 1 if `v2` is
 * false, else of the unified tree. `root` as in host.h. False if there is none. */
bool fb_cgroup_find(struct fb_cgroup *group, const char *root, const char *controller, bool v2);
/* To its parent; false at the highest level that can be seen. */
bool fb_cgroup_up(struct fb_cgroup *group);
/* Open one of its files; NULL if it is not there. */
FILE *fb_cgroup_open(const struct fb_cgroup *group, const char *name);

/* Read a line without its newline; what is longer than the buffer is cut. False at the end. */
bool fb_line_read(FILE *file, char *line, size_t size);
#endif
