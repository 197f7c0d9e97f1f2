/*
 * keep.c -- a cache that stays warm for the next run: the last member starts a keeper, a small
 * process of the command `forebay cache keep ...`, which joins, outlives its starter by some
 * seconds and leaves when the next run has joined, when its time is over, or when it is dropped.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/program.h"
#include "base/size.h"
#include "cache/inside.h"
#include "cache/rendezvous.h"
#include "config/config.h"

#define JOIN_NS 5000000000u /* the keeper must be there before its starter leaves */
#define NUMBERS 11
#define ANSWER_MS 100
#define TICK_MS 100
#define TEXT_BYTES 256

extern char **environ;

/* What the keeper has to open, as one argument. */
static void describe(const struct fb_cache *cache, uint64_t limit, char text[TEXT_BYTES])
{
    const struct fb_cache_options *options = &cache->options;

    snprintf(text, TEXT_BYTES, "%llu:%llu:%llu:%llu:%llu:%llu:%llu:%llu:%llu:%llu:%llu",
             (unsigned long long)options->identity, (unsigned long long)options->unit_count,
             (unsigned long long)options->unit_bytes,
             (unsigned long long)options->unit_bytes_median,
             (unsigned long long)options->unit_bytes_max, (unsigned long long)limit,
             (unsigned long long)options->share, (unsigned long long)options->keep_s,
             (unsigned long long)atomic_load(&cache->segment.rows[cache->member.row].life),
             (unsigned long long)atomic_load(&cache->segment.header->drops),
             (unsigned long long)cache->segment.id);
}

/* As it was when the keeper was started. */
struct before {
    uint64_t starter, drops, id;
};

static bool understand(const char *text, struct fb_cache_options *options, struct before *before)
{
    uint64_t numbers[NUMBERS];
    char *end;

    for (size_t i = 0; i < NUMBERS; i++) {
        errno = 0;
        numbers[i] = strtoull(text, &end, 10);
        if (end == text || errno || *end != (i < NUMBERS - 1 ? ':' : '\0'))
            return false;
        text = end + 1;
    }
    *options = (struct fb_cache_options){
        .identity = numbers[0],
        .unit_count = numbers[1],
        .unit_bytes = numbers[2],
        .unit_bytes_median = numbers[3],
        .unit_bytes_max = numbers[4],
        .limit_bytes = numbers[5],
        .share = (int)numbers[6],
        .policy = FB_POLICY_FILL,
        .pins_max = 1,
        .keep_s = numbers[7],
    };
    *before = (struct before){ .starter = numbers[8], .drops = numbers[9], .id = numbers[10] };
    return numbers[6] < FB_SHARE_OFF;
}

/* Nothing of the trainer's is inherited: no file, no terminal, no group. */
static bool start(char *text)
{
    char program[PATH_MAX];
    char command[] = "forebay", cache[] = "cache", keep[] = "keep";
    char *arguments[] = { command, cache, keep, text, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t child;
    int failed, status;

    posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    fb_program_find(program);
    failed = posix_spawnp(&child, program, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    /* It forks and ends at once: no child of ours is left to be waited for. */
    return !failed && waitpid(child, &status, 0) == child && status == 0;
}

/* Does anybody but this process answer? A row is taken before its owner listens, and a next run that
 * finds nobody listening would begin a cache of its own. */
static bool another_answers(const struct fb_cache *cache)
{
    const struct fb_segment *segment = &cache->segment;
    char name[FB_NAME_TEXT];
    uint64_t id;

    fb_cache_name(cache, name);
    for (unsigned row = 0; row < fb_members_high(segment); row++) {
        int memory = -1;

        if (row != cache->member.row && fb_life_taken(atomic_load(&segment->rows[row].life)))
            memory = fb_rendezvous_ask(name, (int)row, ANSWER_MS, &id);
        if (memory >= 0) {
            close(memory);
            return true;
        }
    }
    return false;
}

void fb_keeper_start(struct fb_cache *cache)
{
    struct fb_segment *segment = &cache->segment;
    uint64_t deadline = fb_now_ns() + JOIN_NS;
    char text[TEXT_BYTES];

    if (!cache->options.keep_s || !cache->service || fb_members_count(segment) > 1)
        return;
    describe(cache, fb_limit_together(cache), text);
    if (!start(text)) {
        fb_warn(cache->options.log, "cache: not kept: the command 'forebay' could not be started; "
                "is it in PATH, or named by FOREBAY_PROGRAM?");
        return;
    }
    while (!another_answers(cache)) {
        if (fb_now_ns() > deadline) {
            fb_warn(cache->options.log, "cache: not kept: its keeper did not come up in time");
            return;
        }
        poll(NULL, 0, 1);
    }
}

/* Members but for the keeper itself and whoever started it: the next run. */
static bool next_run_is_there(const struct fb_cache *cache, uint64_t starter)
{
    const struct fb_segment *segment = &cache->segment;
    unsigned high = fb_members_high(segment);

    for (unsigned row = 0; row < high; row++) {
        uint64_t life = atomic_load(&segment->rows[row].life);

        if (fb_life_taken(life) && row != cache->member.row && life != starter)
            return true;
    }
    return false;
}

static void keep_until_over(struct fb_cache *cache, uint64_t seconds, struct before before)
{
    uint64_t began = fb_now_ns();

    while (atomic_load(&cache->segment.header->drops) == before.drops &&
           !next_run_is_there(cache, before.starter) &&
           (fb_now_ns() - began) / 1000000000u < seconds)
        poll(NULL, 0, TICK_MS);
}

int fb_cache_keeper_run(const char *text, forebay_error *error)
{
    struct fb_cache_options options;
    struct fb_budget *budget;
    struct fb_cache *cache;
    struct before before;
    int status;

    if (!understand(text, &options, &before))
        return fb_fail(error, FOREBAY_BAD_USE, "cache keep is for forebay's own use");
    if (fork())
        return FOREBAY_OK;
    status = fb_budget_new(&budget, UINT64_MAX / 2, error);
    if (status)
        _exit(1);
    options.budget = budget;
    if (fb_cache_open(&cache, &options, error))
        _exit(1);
    cache->options.keep_s = 0; /* it does not start another one */
    /* Its starter may have left as soon as it answered; what it came for is the same cache. */
    if (fb_cache_is_shared(cache) && cache->segment.id == before.id) {
        fb_limit_settle(cache);
        keep_until_over(cache, options.keep_s, before);
    }
    fb_cache_close(cache);
    _exit(0);
}
