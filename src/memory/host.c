#include "memory/host.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "memory/cgroup.h"

/* ---- Numbers in small files ---- */

/* A number, perhaps with " kB" behind it and nothing else; FB_UNKNOWN if it is none. */
static uint64_t number_parse(const char *text)
{
    char *end;
    unsigned long long value;

    while (*text == ' ' || *text == '\t')
        text++;
    if (!isdigit((unsigned char)*text))
        return FB_UNKNOWN;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || (*end && strcmp(end, " kB") != 0))
        return FB_UNKNOWN;
    return value;
}

/* A row of keys to look for in a file of "key value" lines. */
struct row {
    const char *key;
    uint64_t *value;
};

static void rows_read(FILE *file, const struct row *rows, size_t count)
{
    char line[512];

    for (size_t i = 0; i < count; i++)
        *rows[i].value = FB_UNKNOWN;
    if (!file)
        return;
    while (fb_line_read(file, line, sizeof(line))) {
        size_t length = strcspn(line, " \t");

        for (size_t i = 0; i < count; i++)
            if (strlen(rows[i].key) == length && !memcmp(line, rows[i].key, length))
                *rows[i].value = number_parse(line + length);
    }
    fclose(file);
}

static uint64_t from_kib(uint64_t kib)
{
    uint64_t bytes;

    return kib != FB_UNKNOWN && fb_mul(kib, 1024, &bytes) ? bytes : FB_UNKNOWN;
}

static FILE *open_proc(const char *root, const char *name)
{
    char path[FB_CGROUP_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/proc/%s", root, name);

    return length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
}

static uint64_t group_number(const struct fb_cgroup *group, const char *name)
{
    FILE *file = fb_cgroup_open(group, name);
    char line[128];
    uint64_t value = FB_UNKNOWN;

    if (!file)
        return FB_UNKNOWN;
    if (fb_line_read(file, line, sizeof(line)))
        value = number_parse(line); /* "max" is no number: no limit */
    fclose(file);
    return value;
}

/* ---- Memory ---- */

/* What one level of a cgroup tree allows and holds. */
struct level {
    uint64_t limit, used;
};

static uint64_t sum_known(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return a != FB_UNKNOWN && b != FB_UNKNOWN && fb_add(a, b, &sum) ? sum : FB_UNKNOWN;
}

static struct level level_read_v2(const struct fb_cgroup *group)
{
    uint64_t anon, shmem;
    const struct row rows[] = { { "anon", &anon }, { "shmem", &shmem } };
    struct level level;

    /* Above memory.high a group is slowed down until it hardly runs: as good as a limit. */
    level.limit = fb_min(group_number(group, "/memory.max"), group_number(group, "/memory.high"));
    rows_read(fb_cgroup_open(group, "/memory.stat"), rows, 2);
    level.used = sum_known(anon, shmem);
    return level;
}

static struct level level_read_v1(const struct fb_cgroup *group)
{
    uint64_t rss, shmem, above;
    const struct row rows[] = {
        { "total_rss", &rss },
        { "total_shmem", &shmem },
        { "hierarchical_memory_limit", &above }, /* also of levels that cannot be seen from here */
    };
    struct level level;

    rows_read(fb_cgroup_open(group, "/memory.stat"), rows, 3);
    level.limit = fb_min(group_number(group, "/memory.limit_in_bytes"), above);
    level.used = sum_known(rss, shmem);
    /* No limit is written as the highest page number there is. */
    if (level.limit >= (uint64_t)1 << 60)
        level.limit = FB_UNKNOWN;
    return level;
}

static uint64_t level_left(const struct level *level)
{
    if (level->limit == FB_UNKNOWN)
        return FB_UNKNOWN;
    if (level->used == FB_UNKNOWN)
        return level->limit; /* more it cannot be */
    return level->limit > level->used ? level->limit - level->used : 0;
}

/* The level of one tree that leaves least replaces *tightest if it leaves less. */
static void tree_read(struct level *tightest, const struct fb_host_groups *groups, bool v2)
{
    struct fb_cgroup group = groups->groups[v2];

    if (!groups->found[v2])
        return;
    do {
        struct level level = v2 ? level_read_v2(&group) : level_read_v1(&group);

        if (level_left(&level) < level_left(tightest))
            *tightest = level;
    } while (fb_cgroup_up(&group));
}

void fb_host_groups_find(struct fb_host_groups *groups, const char *root)
{
    for (int v2 = 0; v2 < 2; v2++)
        groups->found[v2] = fb_cgroup_find(&groups->groups[v2], root, "memory", v2);
}

void fb_host_memory_read(struct fb_host_memory *memory, const char *root)
{
    struct fb_host_groups groups;

    fb_host_groups_find(&groups, root);
    fb_host_memory_read_in(memory, &groups, root);
}

void fb_host_memory_read_in(struct fb_host_memory *memory, const struct fb_host_groups *groups,
                            const char *root)
{
    uint64_t total, available, swap, swap_free;
    const struct row rows[] = { { "MemTotal:", &total },
                                { "MemAvailable:", &available },
                                { "SwapTotal:", &swap },
                                { "SwapFree:", &swap_free } };
    struct level tightest = { FB_UNKNOWN, FB_UNKNOWN };

    rows_read(open_proc(root, "meminfo"), rows, 4);
    memory->total_bytes = from_kib(total);
    memory->available_bytes = from_kib(available);
    memory->swap_used_bytes = FB_UNKNOWN;
    memory->swap_total_bytes = from_kib(swap);
    if (swap != FB_UNKNOWN && swap_free <= swap)
        memory->swap_used_bytes = from_kib(swap - swap_free);
    tree_read(&tightest, groups, false);
    tree_read(&tightest, groups, true);
    memory->cgroup_limit_bytes = tightest.limit;
    memory->cgroup_used_bytes = tightest.limit == FB_UNKNOWN ? FB_UNKNOWN : tightest.used;
    memory->left_bytes = fb_min(memory->available_bytes, level_left(&tightest));
}

static bool resident_read(uint64_t *all, uint64_t *files)
{
    FILE *file = fopen("/proc/self/statm", "re");
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int read;

    if (!file)
        return false;
    read = fscanf(file, "%*u %" SCNu64 " %" SCNu64, all, files);
    fclose(file);
    *all *= page;
    *files *= page;
    return read == 2;
}

uint64_t fb_host_resident_bytes(void)
{
    uint64_t all = 0, files = 0;

    return resident_read(&all, &files) ? all : FB_UNKNOWN;
}

uint64_t fb_host_anon_bytes(void)
{
    uint64_t all = 0, files = 0;

    return resident_read(&all, &files) ? all - fb_min(all, files) : FB_UNKNOWN;
}

uint64_t fb_host_shmem_bytes(void)
{
    uint64_t kib;
    const struct row row = { "RssShmem:", &kib };

    rows_read(open_proc("", "self/status"), &row, 1);
    return from_kib(kib);
}

uint64_t fb_host_pss_anon_bytes(void)
{
    uint64_t kib;
    const struct row row = { "Pss_Anon:", &kib };

    rows_read(open_proc("", "self/smaps_rollup"), &row, 1);
    return from_kib(kib);
}

/* ---- CPUs ---- */

/* Quota and period of one level in microseconds; FB_UNKNOWN where there is none ("max", -1). */
static void quota_read(const struct fb_cgroup *group, uint64_t *quota, uint64_t *period)
{
    char line[128], *blank;
    FILE *file;

    *quota = *period = FB_UNKNOWN;
    if (!group->v2) {
        *quota = group_number(group, "/cpu.cfs_quota_us");
        *period = group_number(group, "/cpu.cfs_period_us");
        return;
    }
    file = fb_cgroup_open(group, "/cpu.max");
    if (!file)
        return;
    if (fb_line_read(file, line, sizeof(line)) && (blank = strchr(line, ' '))) {
        *blank++ = '\0';
        *quota = number_parse(line);
        *period = number_parse(blank);
    }
    fclose(file);
}

static unsigned tree_quota(const char *root, bool v2)
{
    unsigned tightest = UINT_MAX;
    struct fb_cgroup group;

    if (!fb_cgroup_find(&group, root, "cpu", v2))
        return tightest;
    do {
        uint64_t quota, period, cpus;

        quota_read(&group, &quota, &period);
        if (quota == FB_UNKNOWN || period == FB_UNKNOWN || !period)
            continue;
        cpus = quota / period + (quota % period != 0);
        tightest = (unsigned)fb_min(tightest, fb_max(cpus, 1));
    } while (fb_cgroup_up(&group));
    return tightest;
}

unsigned fb_host_cpu_quota(const char *root)
{
    return (unsigned)fb_min(tree_quota(root, false), tree_quota(root, true));
}

unsigned fb_host_cpus(void)
{
    cpu_set_t set[64]; /* 65,536 CPUs: one cpu_set_t is refused on machines with more than 1,024 */
    int cpus = 1;

    memset(set, 0, sizeof(set));
    if (!sched_getaffinity(0, sizeof(set), set))
        cpus = CPU_COUNT_S(sizeof(set), set);
    return (unsigned)fb_min(fb_max(cpus > 0 ? (uint64_t)cpus : 1, 1), fb_host_cpu_quota(""));
}

/* ---- Folders ---- */

/* path = a + b, and true, if that fits. */
static bool path_join(char *path, size_t size, const char *a, const char *b)
{
    int length = snprintf(path, size, "%s%s", a, b);

    return length > 0 && (size_t)length < size;
}

/* Make every folder of `path` that is missing, 0700. What stands in the way shows at the end. */
static void folders_make(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    (void)mkdir(path, 0700);
}

/* Why `path` is no folder of our own that is closed to the permissions in `others`; NULL if it
 * is one. Asked of the opened folder, so that nobody can exchange it in between. */
static const char *folder_fault(const char *path, mode_t others)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const char *fault = NULL;
    struct stat about;

    if (fd < 0)
        return errno == ELOOP || errno == ENOTDIR ? "it is a symlink or no folder"
                                                  : "it cannot be made or opened";
    if (fstat(fd, &about))
        fault = "it cannot be examined";
    else if (about.st_uid != geteuid())
        fault = "it belongs to another user";
    else if (about.st_mode & others)
        fault = "other users have access to it; chmod 700 it";
    close(fd);
    return fault;
}

static const char *folder_make(const char *path, mode_t others)
{
    (void)mkdir(path, 0700); /* may be there already; what is wrong shows when it is opened */
    return folder_fault(path, others);
}

/* The last resort, in a folder where everybody may write: so it must be ours and closed. */
static const char *temporary_folder(char *path, size_t size)
{
    snprintf(path, size, "/tmp/forebay-%u", (unsigned)geteuid());
    return folder_make(path, 077);
}

/* A home may well be reached through symlinks; what counts is that we can write there. */
static bool cache_try(char *path, size_t size, const char *base, const char *below)
{
    struct stat about;

    if (!base || base[0] != '/' || !path_join(path, size, base, below))
        return false;
    folders_make(path);
    return !stat(path, &about) && S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
           !access(path, W_OK | X_OK);
}

bool fb_host_cache_folder(char *path, unsigned long size)
{
    char found[FB_HOST_PATH_BYTES];

    if (!cache_try(found, sizeof(found), getenv("XDG_CACHE_HOME"), "/forebay") &&
        !cache_try(found, sizeof(found), getenv("HOME"), "/.cache/forebay") &&
        temporary_folder(found, sizeof(found)))
        return false;
    return path_join(path, size, found, "");
}

static int fail_folder(const char *path, const char *fault, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_CONFIG,
                   "the folder for run-time files, '%s', cannot be used: %s, or name another with "
                   "FOREBAY_RUN_DIR",
                   path, fault);
}

/* A symlink with a slash behind it would be followed. */
static void slashes_cut(char *path)
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
}

static const char *runtime_folder(char *path, size_t size)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    /* After su the variable names the folder of another user: that is no error. */
    if (runtime && runtime[0] == '/' && path_join(path, size, runtime, "/forebay") &&
        !folder_make(path, 022))
        return NULL;
    return temporary_folder(path, size);
}

int fb_host_run_folder(char path[FB_HOST_PATH_BYTES], forebay_error *error)
{
    const char *named = getenv("FOREBAY_RUN_DIR"), *fault;
    char found[FB_HOST_PATH_BYTES];

    if (named && *named) { /* named by hand: never another one instead */
        if (!path_join(found, sizeof(found), named, ""))
            return fail_folder(named, "its name is too long", error);
        slashes_cut(found);
        folders_make(found);
        fault = folder_fault(found, 022);
    } else {
        fault = runtime_folder(found, sizeof(found));
    }
    if (fault)
        return fail_folder(found, fault, error);
    memcpy(path, found, strlen(found) + 1);
    return FOREBAY_OK;
}
