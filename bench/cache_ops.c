/*
 * cache_ops.c -- what the cache's own steps cost, without a loader around it.
 *
 *     cache_ops            prints one JSON object:
 *         find_ns          find + pin + done of a hit, one thread, units of 4 KiB
 *         hit_bytes_per_s  hits of 1 MiB units copied out, and memcpy_bytes_per_s of the same bytes
 *         shrink_bytes_per_s  a shared cache of 1 GiB gives all back: evict, punch, refund
 *         punch_bytes_per_s   the kernel's hole in a mapped memfd of the same size, by itself
 *         index_bytes      of a unit, where all are equal
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mix.h"
#include "base/size.h"
#include "cache/cache.h"
#include "config/config.h"

#define SMALL 4096
#define LARGE FB_MIB
#define ALL (FB_GIB)
#define SLOTS 128
#define ROUNDS 3

static struct fb_cache *open_cache(struct fb_budget *budget, uint64_t units, uint64_t bytes,
                                   int policy, int share)
{
    struct fb_cache_options options = { .unit_count = units,
                                        .unit_bytes = bytes,
                                        .unit_bytes_median = bytes,
                                        .unit_bytes_max = bytes,
                                        .limit_bytes = units * (bytes + 64) + FB_MIB,
                                        .policy = fb_policies[policy],
                                        .pins_max = 8,
                                        .share = share,
                                        .identity = (uint64_t)getpid(),
                                        .budget = budget };
    struct fb_cache *cache;
    forebay_error error;

    if (fb_cache_open(&cache, &options, &error)) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return cache;
}

static void fill_all(struct fb_cache *cache, uint64_t units, uint64_t bytes, const char *from)
{
    struct fb_cache_pin pin;

    for (uint64_t unit = 0; unit < units; unit++) {
        enum fb_cache_answer answer = fb_cache_find(cache, unit, bytes, unit, false, &pin);

        if (answer == FB_CACHE_FILL) {
            fb_cache_write(cache, &pin, 0, from, bytes, NULL);
            fb_cache_publish(cache, &pin);
        }
        if (answer != FB_CACHE_MISS)
            fb_cache_done(cache, &pin);
    }
}

static double find_ns(struct fb_budget *budget, const char *from)
{
    const uint64_t units = 10000, finds = 2000000;
    struct fb_cache *cache = open_cache(budget, units, SMALL, FB_POLICY_LRU, FB_SHARE_JOB);
    struct fb_random random = { 1 };
    struct fb_cache_pin pin;
    uint64_t begin, passed;

    fill_all(cache, units, SMALL, from);
    begin = fb_now_ns();
    for (uint64_t i = 0; i < finds; i++)
        if (fb_cache_find(cache, fb_random_below(&random, units), SMALL, 0, false, &pin) ==
            FB_CACHE_HIT)
            fb_cache_done(cache, &pin);
    passed = fb_now_ns() - begin;
    fb_cache_close(cache);
    return (double)passed / (double)finds;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

static double rate(uint64_t bytes, uint64_t begin)
{
    return (double)bytes * 1e9 / (double)(fb_now_ns() - begin);
}

/* Both copy the same number of bytes from random places of 1 GiB to where no cache of the processor
 * has them, as batches are. */
static void hits(struct fb_budget *budget, const char *one, double *cached, double *copied)
{
    const uint64_t units = ALL / LARGE;
    struct fb_cache *cache = open_cache(budget, units, LARGE, FB_POLICY_FILL, FB_SHARE_JOB);
    char *plain = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct fb_cache_pin pin;
    char *slots =
        mmap(NULL, SLOTS * LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct fb_random random = { 1 };
    uint64_t begin;

    if (plain == MAP_FAILED || slots == MAP_FAILED)
        exit(1);
    madvise(plain, ALL, MADV_HUGEPAGE);
    madvise(slots, SLOTS * LARGE, MADV_HUGEPAGE);
    memset(plain, 1, ALL);
    memset(slots, 1, SLOTS * LARGE);
    fill_all(cache, units, LARGE, one);
    for (int round = 0; round < ROUNDS; round++) {
        begin = fb_now_ns();
        for (uint64_t i = 0; i < units; i++) {
            if (fb_cache_find(cache, fb_random_below(&random, units), LARGE, 0, false, &pin) !=
                FB_CACHE_HIT)
                continue;
            fb_cache_read(cache, &pin, 0, slots + i % SLOTS * LARGE, LARGE, NULL);
            fb_cache_done(cache, &pin);
        }
        *cached = most(*cached, rate(ALL, begin));
        begin = fb_now_ns();
        for (uint64_t i = 0; i < units; i++)
            memcpy(slots + i % SLOTS * LARGE, plain + fb_random_below(&random, units) * LARGE,
                   LARGE);
        *copied = most(*copied, rate(ALL, begin));
    }
    munmap(plain, ALL);
    munmap(slots, SLOTS * LARGE);
    fb_cache_close(cache);
}

static double shrink(struct fb_budget *budget, const char *from)
{
    const uint64_t units = ALL / LARGE;
    struct fb_cache *cache = open_cache(budget, units, LARGE, FB_POLICY_FILL, FB_SHARE_JOB);
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        struct fb_cache_report before, after;
        uint64_t begin;

        fb_cache_set_limit(cache, units * (LARGE + 64) + FB_MIB);
        fill_all(cache, units, LARGE, from);
        fb_cache_read_report(cache, &before);
        begin = fb_now_ns();
        fb_cache_set_limit(cache, 2 * FB_MIB);
        best = most(best, rate(before.bytes, begin));
        fb_cache_read_report(cache, &after);
        if (before.items != units || after.items > 2)
            exit(1);
    }
    fb_cache_close(cache);
    return best;
}

static double punch(void)
{
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        int fd = memfd_create("cache_ops", MFD_CLOEXEC);
        uint64_t begin;
        char *memory;

        if (fd < 0 || ftruncate(fd, (off_t)ALL))
            exit(1);
        memory = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED)
            exit(1);
        memset(memory, 1, ALL);
        begin = fb_now_ns();
        for (uint64_t at = 0; at < ALL; at += 64 * FB_MIB)
            if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                          (off_t)(64 * FB_MIB)))
                exit(1);
        best = most(best, rate(ALL, begin));
        munmap(memory, ALL);
        close(fd);
    }
    return best;
}

int main(void)
{
    struct fb_budget *budget;
    double cached = 0, copied = 0;
    char *one = aligned_alloc(4096, LARGE);

    if (!one || fb_budget_new(&budget, 4 * FB_GIB, NULL))
        return 1;
    memset(one, 7, LARGE);
    hits(budget, one, &cached, &copied);
    printf("{\"find_ns\": %.1f, \"hit_bytes_per_s\": %.0f, \"memcpy_bytes_per_s\": %.0f, "
           "\"shrink_bytes_per_s\": %.0f, \"punch_bytes_per_s\": %.0f, \"index_bytes\": %.1f}\n",
           find_ns(budget, one), cached, copied, shrink(budget, one), punch(),
           (double)(fb_cache_index_bytes(2000000, true) - fb_cache_index_bytes(1000000, true)) / 1e6);
    fb_budget_free(budget);
    free(one);
    return 0;
}
