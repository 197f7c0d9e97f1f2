/* What the machine leaves us, on machines made of a folder with proc/ and sys/. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"
#include "memory/host.h"

static char root[256];

#define V1_MOUNT "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define V1_CPU_MOUNT "36 31 0:33 / /sys/fs/cgroup/cpu rw shared:7 - cgroup cgroup rw,cpu,cpuacct\n"
#define V2_MOUNT "41 31 0:38 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"
#define NO_LIMIT_V1 "9223372036854771712\n"
#define MEMINFO                                                                                    \
    "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    524288 kB\n"                      \
    "SwapTotal: 1000 kB\nSwapFree: 600 kB\n"

/* Write `text` to `path` below the root, folders and all. */
static void put(const char *path, const char *text)
{
    char whole[512];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *slash = whole + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        assert_true(!mkdir(whole, 0700) || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void group_v1(const char *folder, const char *limit, uint64_t rss, uint64_t shmem)
{
    char path[256], text[256];

    snprintf(path, sizeof(path), "%s/memory.limit_in_bytes", folder);
    put(path, limit);
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    snprintf(text, sizeof(text),
             "cache 999999999\nrss 1\ntotal_cache 99999999\ntotal_rss %llu\n"
             "total_rss_huge 77\ntotal_shmem %llu\n",
             (unsigned long long)rss, (unsigned long long)shmem);
    put(path, text);
}

static void group_v2(const char *folder, const char *max, uint64_t anon, uint64_t shmem)
{
    char path[256], text[256];

    snprintf(path, sizeof(path), "%s/memory.max", folder);
    put(path, max);
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    snprintf(text, sizeof(text), "anon %llu\nfile 9999999999\nanon_thp 5\nshmem %llu\n",
             (unsigned long long)anon, (unsigned long long)shmem);
    put(path, text);
}

static struct fb_host_memory host(void)
{
    struct fb_host_memory memory;

    fb_host_memory_read(&memory, root);
    return memory;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "%s/test_host.XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(root));
    return 0;
}

static int tear_down(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static void without_cgroups_meminfo_decides(void **state)
{
    struct fb_host_memory memory;

    (void)state;
    put("/proc/meminfo", MEMINFO);
    memory = host();
    assert_int_equal(memory.total_bytes, FB_GIB);
    assert_int_equal(memory.available_bytes, FB_GIB / 2);
    assert_int_equal(memory.swap_used_bytes, 400 * FB_KIB);
    assert_true(memory.cgroup_limit_bytes == FB_UNKNOWN);
    assert_true(memory.cgroup_used_bytes == FB_UNKNOWN);
    assert_int_equal(memory.left_bytes, FB_GIB / 2);
    assert_int_equal(fb_host_cpu_quota(root), UINT_MAX);
}

static void what_is_not_there_is_unknown(void **state)
{
    struct fb_host_memory memory = host();

    (void)state;
    assert_true(memory.total_bytes == FB_UNKNOWN && memory.available_bytes == FB_UNKNOWN);
    assert_true(memory.swap_used_bytes == FB_UNKNOWN && memory.left_bytes == FB_UNKNOWN);
}

static void v1_takes_the_level_that_leaves_least(void **state)
{
    struct fb_host_memory memory;

    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/job/step\n0::/\n");
    put("/proc/self/mountinfo", V1_MOUNT);
    group_v1("/sys/fs/cgroup/memory", NO_LIMIT_V1, 900 * FB_MIB, 0);
    group_v1("/sys/fs/cgroup/memory/job", "209715200\n", 150 * FB_MIB, 10 * FB_MIB);
    group_v1("/sys/fs/cgroup/memory/job/step", "104857600\n", 20 * FB_MIB, 5 * FB_MIB);
    memory = host();
    assert_int_equal(memory.cgroup_limit_bytes, 200 * FB_MIB);
    assert_int_equal(memory.cgroup_used_bytes, 160 * FB_MIB);
    assert_int_equal(memory.left_bytes, 40 * FB_MIB);
}

static void v1_knows_of_limits_above_what_it_sees(void **state)
{
    struct fb_host_memory memory;

    (void)state;
    /* A container: the path is the host's, the mount shows the container's part of the tree. */
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "4:cpuset,memory:/docker/abc\n");
    put("/proc/self/mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpuset,memory\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_V1);
    put("/sys/fs/cgroup/memory/memory.stat",
        "hierarchical_memory_limit 104857600\ntotal_rss 1048576\ntotal_shmem 0\n");
    memory = host();
    assert_int_equal(memory.cgroup_limit_bytes, 100 * FB_MIB);
    assert_int_equal(memory.left_bytes, 99 * FB_MIB);
}

static void v2_takes_the_level_that_leaves_least(void **state)
{
    struct fb_host_memory memory;

    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "0::/user.slice/job.scope\n");
    put("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/x rw\n" V2_MOUNT);
    put("/sys/fs/cgroup/cgroup.controllers", "memory\n");
    group_v2("/sys/fs/cgroup/user.slice", "314572800\n", 280 * FB_MIB, 0);
    group_v2("/sys/fs/cgroup/user.slice/job.scope", "max\n", 20 * FB_MIB, 1);
    memory = host();
    assert_int_equal(memory.cgroup_limit_bytes, 300 * FB_MIB);
    assert_int_equal(memory.cgroup_used_bytes, 280 * FB_MIB);
    assert_int_equal(memory.left_bytes, 20 * FB_MIB);
    put("/sys/fs/cgroup/user.slice/job.scope/memory.high", "31457280\n");
    memory = host();
    assert_int_equal(memory.cgroup_limit_bytes, 30 * FB_MIB);
    assert_int_equal(memory.left_bytes, 10 * FB_MIB - 1);
}

static void above_its_limit_nothing_is_left(void **state)
{
    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    group_v2("/sys/fs/cgroup/a", "1000\n", 2000, 0);
    assert_int_equal(host().left_bytes, 0);
}

static void in_a_hybrid_tree_v1_counts(void **state)
{
    struct fb_host_memory memory;

    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "4:memory:/job\n0::/elsewhere\n");
    put("/proc/self/mountinfo",
        V1_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/unified/elsewhere/cgroup.procs", "1\n");
    group_v1("/sys/fs/cgroup/memory/job", "104857600\n", FB_MIB, 0);
    memory = host();
    assert_int_equal(memory.cgroup_limit_bytes, 100 * FB_MIB);
    assert_int_equal(memory.left_bytes, 99 * FB_MIB);
}

static void a_group_that_cannot_be_seen_is_looked_for_at_the_mount(void **state)
{
    static const char *const paths[] = {
        "0::/\n",
        "0::/not/visible\n",
        "0::/../../other\n",
        "0::/kubepods/pod1\n",
    };

    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/mountinfo",
        "41 31 0:38 /kubepods /sys/fs/cg\\040roup rw - cgroup2 cgroup2 rw\n");
    group_v2("/sys/fs/cg roup", "104857600\n", FB_MIB, 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        put("/proc/self/cgroup", paths[i]);
        assert_int_equal(host().cgroup_limit_bytes, 100 * FB_MIB);
    }
    group_v2("/sys/fs/cg roup/pod1", "52428800\n", FB_MIB, 0);
    assert_int_equal(host().cgroup_limit_bytes, 50 * FB_MIB);
}

static void an_unknown_use_does_not_hide_a_limit(void **state)
{
    struct fb_host_memory memory;

    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/a/memory.max", "104857600\n");
    memory = host();
    assert_true(memory.cgroup_used_bytes == FB_UNKNOWN);
    assert_int_equal(memory.left_bytes, 100 * FB_MIB);
}

static void garbage_is_unknown_and_harms_nobody(void **state)
{
    static const char *const texts[] = {
        "",
        "\n",
        ":",
        "::",
        ":::::\n",
        "0:",
        "-5\n",
        "max\n",
        "12x\n",
        "0x10\n",
        " - \n",
        " - cgroup",
        "a b c d e - cgroup2",
        "1 2 3 / / - cgroup2 x y\n",
        "0::no/slash\n",
        "4:memory:\n",
        "99999999999999999999999999999\n",
        "MemTotal: -1 kB\nMemAvailable: 99999999999999999999 kB\n",
        "MemTotal: 18446744073709551614 kB\nSwapTotal: 1 kB\nSwapFree: 2 kB\n",
    };
    static const char *const files[] = {
        "/proc/meminfo",
        "/proc/self/cgroup",
        "/proc/self/mountinfo",
        "/sys/fs/cgroup/a/memory.max",
        "/sys/fs/cgroup/a/memory.stat",
        "/sys/fs/cgroup/a/cpu.max",
    };
    struct fb_host_memory memory;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put("/proc/meminfo", "");
        put("/proc/self/cgroup", "0::/a\n");
        put("/proc/self/mountinfo", V2_MOUNT);
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
            put(files[k], texts[i]);
            memory = host();
            assert_true(memory.total_bytes == FB_UNKNOWN);
            assert_true(memory.available_bytes == FB_UNKNOWN);
            assert_true(memory.cgroup_limit_bytes == FB_UNKNOWN);
            assert_int_equal(fb_host_cpu_quota(root), UINT_MAX);
        }
    }
}

static void a_line_of_any_length_is_passed_over(void **state)
{
    char *text = malloc(100000 + 1000);

    (void)state;
    memset(text, 'x', 100000);
    strcpy(text + 100000, "\n" V2_MOUNT);
    put("/proc/self/mountinfo", text);
    free(text);
    put("/proc/self/cgroup", "0::/a\n");
    group_v2("/sys/fs/cgroup/a", "104857600\n", 0, 0);
    assert_int_equal(host().cgroup_limit_bytes, 100 * FB_MIB);
}

static void a_cpu_quota_is_rounded_up_and_the_tightest_counts(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "2:cpu,cpuacct:/a/b\n");
    put("/proc/self/mountinfo", V1_CPU_MOUNT);
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(fb_host_cpu_quota(root), 3);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(fb_host_cpu_quota(root), 4);
    put("/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
    assert_int_equal(fb_host_cpu_quota(root), 1);
    put("/sys/fs/cgroup/a/b/cpu.max", "1000 0\n");
    assert_int_equal(fb_host_cpu_quota(root), 4);
}

static void this_machine_has_memory_and_a_cpu(void **state)
{
    struct fb_host_memory memory;

    (void)state;
    fb_host_memory_read(&memory, "");
    assert_true(memory.total_bytes > FB_MIB && memory.total_bytes != FB_UNKNOWN);
    assert_true(memory.left_bytes <= memory.total_bytes);
    assert_true(fb_host_cpus() >= 1 && fb_host_cpus() <= (unsigned)sysconf(_SC_NPROCESSORS_CONF));
    assert_true(fb_host_pss_anon_bytes() > 4096);
}

/* A file's pages are none of them, memory is as soon as it is touched. */
static void anonymous_memory_is_seen_where_it_is_touched(void **state)
{
    size_t bytes = 32 * FB_MIB;
    uint64_t before = fb_host_anon_bytes();
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(memory != MAP_FAILED);
    assert_true(fb_host_anon_bytes() < before + bytes / 2);
    memset(memory, 1, bytes);
    assert_true(fb_host_anon_bytes() >= before + bytes / 2);
    assert_true(fb_host_anon_bytes() < fb_host_resident_bytes());
    munmap(memory, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(without_cgroups_meminfo_decides),
        TEST(what_is_not_there_is_unknown),
        TEST(v1_takes_the_level_that_leaves_least),
        TEST(v1_knows_of_limits_above_what_it_sees),
        TEST(v2_takes_the_level_that_leaves_least),
        TEST(above_its_limit_nothing_is_left),
        TEST(in_a_hybrid_tree_v1_counts),
        TEST(a_group_that_cannot_be_seen_is_looked_for_at_the_mount),
        TEST(an_unknown_use_does_not_hide_a_limit),
        TEST(garbage_is_unknown_and_harms_nobody),
        TEST(a_line_of_any_length_is_passed_over),
        TEST(a_cpu_quota_is_rounded_up_and_the_tightest_counts),
        TEST(this_machine_has_memory_and_a_cpu),
        TEST(anonymous_memory_is_seen_where_it_is_touched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
