/* A cache of items by number: several handles stand for several processes, and forks are real. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/sanitized.h"
#include "base/size.h"
#include "forebay.h"

/* The thread sanitizer takes a child's first thread for one of its parent's and gives up. */
#define THREADS_IN_CHILDREN (!FB_SANITIZED_THREAD)

#define ITEMS 1000
#define LIMIT (8 * FB_MIB)
#define ITEM_BYTES 40000 /* about 190 of them fit */

static const char *fresh_identity(void)
{
    static char text[64];
    static unsigned count;

    snprintf(text, sizeof(text), "test-%d-%u-%llu", (int)getpid(), count++,
             (unsigned long long)fb_now_ns());
    return text;
}

static forebay_cache *open_of(const char *identity, uint64_t limit, const char *policy)
{
    forebay_cache_options options = FOREBAY_CACHE_OPTIONS_INIT;
    forebay_error error = { .message = "" };
    forebay_cache *cache;

    options.identity = identity;
    options.items = ITEMS;
    options.limit_bytes = limit;
    options.policy = policy;
    if (forebay_cache_open(&cache, &options, &error))
        fail_msg("%s", error.message);
    return cache;
}

static unsigned char byte_of(uint64_t number, uint64_t at)
{
    return (unsigned char)(number * 31 + at * 7 + at / 251);
}

/* In three pieces that end where no page does. */
static int put(forebay_cache *cache, uint64_t number, uint64_t bytes)
{
    unsigned char *memory = malloc(bytes);
    uint64_t first = bytes / 3, second = bytes / 2;
    forebay_piece pieces[] = { { memory, first },
                               { memory + first, second - first },
                               { memory + second, bytes - second } };
    int status;

    for (uint64_t i = 0; i < bytes; i++)
        memory[i] = byte_of(number, i);
    status = forebay_cache_put(cache, number, pieces, 3, 1000, NULL);
    free(memory);
    return status;
}

/* Its bytes if it is there and as it was put; 0 if it is not; UINT64_MAX if it is damaged. */
static uint64_t look(forebay_cache *cache, uint64_t number)
{
    forebay_item item;
    unsigned char *memory;
    uint64_t bytes, wrong = 0;

    if (forebay_cache_find(cache, number, &item, NULL) != FOREBAY_OK)
        return 0;
    bytes = item.bytes;
    memory = malloc(bytes);
    wrong += forebay_cache_read(cache, &item, 0, memory, bytes, NULL) != FOREBAY_OK;
    for (uint64_t i = 0; i < bytes; i++)
        wrong += memory[i] != byte_of(number, i);
    forebay_cache_done(cache, &item);
    free(memory);
    return wrong ? UINT64_MAX : bytes;
}

static forebay_cache_stats stats_of(forebay_cache *cache)
{
    forebay_cache_stats stats;

    assert_int_equal(forebay_cache_read_stats(cache, false, &stats, NULL), FOREBAY_OK);
    return stats;
}

static uint64_t fill(forebay_cache *cache, uint64_t from, uint64_t to)
{
    uint64_t kept = 0;

    for (uint64_t number = from; number < to; number++)
        kept += put(cache, number, ITEM_BYTES) == FOREBAY_OK;
    return kept;
}

static uint64_t present(forebay_cache *cache)
{
    uint64_t found = 0;

    for (uint64_t number = 0; number < ITEMS; number++) {
        uint64_t bytes = look(cache, number);

        assert_int_not_equal(bytes, UINT64_MAX);
        found += bytes != 0;
    }
    return found;
}

/* Other processes act within a tick of theirs: asked again and again, for five seconds at most. */
#define EVENTUALLY(condition)                                        \
    do {                                                             \
        uint64_t deadline = fb_now_ns() + 5000000000u;               \
        bool holds = false;                                          \
        while (!(holds = (condition)) && fb_now_ns() < deadline)     \
            sched_yield();                                           \
        assert_true(holds);                                          \
    } while (0)

static void items_of_every_size_come_back_as_they_were_put(void **state)
{
    static const uint64_t sizes[] = { 1, 2, 511, 512, 513, 4096, 5000, 65536, 1000001, 3 * FB_MIB };
    forebay_cache *cache = open_of(fresh_identity(), LIMIT, NULL);

    (void)state;
    for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(look(cache, i), 0);
        assert_int_equal(put(cache, i, sizes[i]), FOREBAY_OK);
        assert_int_equal(put(cache, i, sizes[i]), FOREBAY_MISS); /* it is there already */
        assert_int_equal(look(cache, i), sizes[i]);
    }
    assert_int_equal(stats_of(cache).items, 10);
    assert_int_equal(stats_of(cache).hits, 10);
    assert_int_equal(stats_of(cache).misses, 10);
    forebay_cache_close(cache);
}

static void the_limit_is_of_all_who_share_it(void **state)
{
    const char *identity = fresh_identity();
    forebay_cache *one = open_of(identity, LIMIT, NULL), *two = open_of(identity, LIMIT, NULL);
    forebay_cache *three = open_of(identity, LIMIT, NULL);
    uint64_t kept = fill(two, 0, ITEMS / 2) + fill(three, ITEMS / 2, ITEMS);

    (void)state;
    assert_in_range(kept, (LIMIT - FB_MIB) / ITEM_BYTES, LIMIT / ITEM_BYTES);
    assert_int_equal(present(one), kept);
    assert_int_equal(stats_of(one).items, kept);
    assert_int_equal(stats_of(one).limit_bytes, LIMIT);
    assert_int_equal(stats_of(one).processes, 3);
    assert_true(stats_of(one).bytes <= LIMIT);
    assert_int_equal(stats_of(two).hits, kept); /* by one, but counted together */
    forebay_cache_close(one);
    forebay_cache_close(two);
    forebay_cache_close(three);
}

static void when_the_giver_leaves_another_gives_and_nothing_is_lost(void **state)
{
    const char *identity = fresh_identity();
    forebay_cache *one = open_of(identity, LIMIT, NULL), *two = open_of(identity, LIMIT, NULL);
    uint64_t kept = fill(one, 0, 100);

    (void)state;
    assert_int_equal(kept, 100);
    forebay_cache_close(one);
    EVENTUALLY(put(two, 100, ITEM_BYTES) == FOREBAY_OK);
    assert_int_equal(present(two), 101);
    assert_true(fill(two, 101, ITEMS) > 50);
    assert_true(stats_of(two).bytes <= LIMIT);
    forebay_cache_close(two);
}

static void strangers_do_not_meet(void **state)
{
    forebay_cache *one = open_of(fresh_identity(), LIMIT, NULL);
    forebay_cache *two = open_of(fresh_identity(), LIMIT, NULL);

    (void)state;
    assert_int_equal(put(one, 7, 100), FOREBAY_OK);
    assert_int_equal(look(two, 7), 0);
    assert_int_equal(stats_of(two).processes, 1);
    forebay_cache_close(one);
    forebay_cache_close(two);
}

static void a_limit_can_be_changed_by_any_of_them(void **state)
{
    const char *identity = fresh_identity();
    forebay_cache *one = open_of(identity, LIMIT, NULL), *two = open_of(identity, LIMIT, NULL);
    uint64_t kept = fill(one, 0, ITEMS);

    (void)state;
    assert_int_equal(forebay_cache_set_limit(two, LIMIT / 2, NULL), FOREBAY_OK);
    EVENTUALLY(stats_of(two).bytes <= LIMIT / 2);
    assert_int_equal(stats_of(one).limit_bytes, LIMIT / 2);
    assert_true(present(one) >= kept / 2 - 30);
    assert_int_equal(forebay_cache_set_limit(two, 2 * LIMIT, NULL), FOREBAY_OK);
    EVENTUALLY(fill(one, 0, ITEMS) == 0 && stats_of(one).bytes > LIMIT + LIMIT / 2);
    assert_true(stats_of(one).bytes <= 2 * LIMIT);
    assert_int_equal(forebay_cache_set_limit(one, 0, NULL), FOREBAY_OK); /* the index stays */
    EVENTUALLY(stats_of(two).items == 0);
    assert_int_equal(put(two, 1, ITEM_BYTES), FOREBAY_MISS);
    forebay_cache_close(one);
    forebay_cache_close(two);
}

static void clearing_leaves_only_what_is_being_read(void **state)
{
    forebay_cache *cache = open_of(fresh_identity(), LIMIT, NULL);
    unsigned char byte;
    forebay_item item;

    (void)state;
    assert_int_equal(fill(cache, 0, 100), 100);
    assert_int_equal(forebay_cache_find(cache, 42, &item, NULL), FOREBAY_OK);
    assert_int_equal(forebay_cache_clear(cache, NULL), FOREBAY_OK);
    assert_int_equal(stats_of(cache).items, 1);
    assert_int_equal(forebay_cache_read(cache, &item, 5, &byte, 1, NULL), FOREBAY_OK);
    assert_int_equal(byte, byte_of(42, 5));
    forebay_cache_done(cache, &item);
    assert_int_equal(fill(cache, 0, 100), 99);
    forebay_cache_close(cache);
}

static void what_is_too_large_or_empty_is_not_kept(void **state)
{
    forebay_cache *cache = open_of(fresh_identity(), FB_MIB, NULL);
    forebay_error error;
    uint64_t before;

    (void)state;
    assert_int_equal(put(cache, 1, 100), FOREBAY_OK);
    before = stats_of(cache).bytes;
    assert_int_equal(put(cache, 2, 2 * FB_MIB), FOREBAY_MISS);
    assert_int_equal(put(cache, ITEMS, 100), FOREBAY_MISS); /* no such number */
    assert_int_equal(look(cache, ITEMS), 0);
    assert_int_equal(forebay_cache_put(cache, 3, NULL, 0, 0, &error), FOREBAY_BAD_USE);
    assert_int_equal(stats_of(cache).bytes, before);
    assert_int_equal(look(cache, 1), 100);
    forebay_cache_close(cache);
}

static void lru_keeps_what_was_used_last_and_fill_what_came_first(void **state)
{
    forebay_cache *fills = open_of(fresh_identity(), LIMIT, "fill");
    forebay_cache *lru = open_of(fresh_identity(), LIMIT, "lru");
    uint64_t first = 0, last = 0;

    (void)state;
    fill(fills, 0, ITEMS);
    fill(lru, 0, ITEMS);
    for (uint64_t i = 0; i < 100; i++) {
        first += look(fills, i) != 0;
        last += look(lru, ITEMS - 1 - i) != 0;
    }
    assert_int_equal(first, 100);
    assert_true(last > 90); /* the worst of 64 drawn goes, not the very worst */
    assert_int_equal(look(fills, ITEMS - 1), 0);
    assert_int_equal(look(lru, 0), 0);
    forebay_cache_close(fills);
    forebay_cache_close(lru);
}

static void bad_options_are_errors_in_words(void **state)
{
    forebay_cache_options options = FOREBAY_CACHE_OPTIONS_INIT;
    forebay_cache *cache = NULL;
    forebay_error error;

    (void)state;
    options.identity = "x";
    options.limit_bytes = LIMIT;
    assert_int_equal(forebay_cache_open(&cache, &options, &error), FOREBAY_BAD_USE);
    options.items = ITEMS;
    options.policy = "random";
    assert_int_equal(forebay_cache_open(&cache, &options, &error), FOREBAY_BAD_CONFIG);
    options.policy = "lru";
    options.limit_bytes = 1000;
    assert_int_equal(forebay_cache_open(&cache, &options, &error), FOREBAY_OVER_BUDGET);
    assert_non_null(strstr(error.message, "cannot hold one item"));
    assert_null(cache);
    forebay_cache_close(NULL);
}

/* ---- other processes ---- */

static void reap(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("the child: %s %d", WIFEXITED(status) ? "check" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int child_joins(forebay_cache *cache, forebay_item *held)
{
    unsigned char byte;

    if (forebay_cache_read(cache, held, 0, &byte, 1, NULL) != FOREBAY_FORKED)
        return 1; /* what the parent has pinned is the parent's */
    forebay_cache_done(cache, held);
    if (look(cache, 1) != 5000 || look(cache, 2))
        return 2;
    if (put(cache, 2, 6000) != FOREBAY_OK || look(cache, 2) != 6000)
        return 3;
    if (stats_of(cache).processes != 2)
        return 4;
    if (forebay_cache_read(cache, held, 0, &byte, 1, NULL) != FOREBAY_FORKED)
        return 5;
    forebay_cache_close(cache);
    return 0;
}

static void a_child_of_a_fork_joins_by_itself(void **state)
{
    forebay_cache *cache = open_of(fresh_identity(), LIMIT, NULL);
    forebay_item held;
    pid_t child;

    (void)state;
    if (!THREADS_IN_CHILDREN) {
        forebay_cache_close(cache);
        skip();
    }
    assert_int_equal(put(cache, 1, 5000), FOREBAY_OK);
    assert_int_equal(forebay_cache_find(cache, 1, &held, NULL), FOREBAY_OK);
    child = fork();
    if (child == 0) {
        alarm(20);
        _exit(child_joins(cache, &held));
    }
    reap(child);
    forebay_cache_done(cache, &held);
    assert_int_equal(look(cache, 2), 6000);
    EVENTUALLY(stats_of(cache).processes == 1);
    forebay_cache_close(cache);
}

static void a_child_that_only_closes_harms_nobody(void **state)
{
    forebay_cache *cache = open_of(fresh_identity(), LIMIT, NULL);
    pid_t child;

    (void)state;
    put(cache, 1, 5000);
    child = fork();
    if (child == 0) {
        alarm(20);
        forebay_cache_close(cache);
        _exit(0);
    }
    reap(child);
    assert_int_equal(look(cache, 1), 5000);
    assert_int_equal(stats_of(cache).processes, 1);
    forebay_cache_close(cache);
}

/* A process that has it open first, so it is the giver; it fills and then waits to be killed. */
static pid_t start_giver(const char *identity, int *ready)
{
    int pipes[2];
    pid_t child;
    char one = 1;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        forebay_cache *cache;

        alarm(20);
        close(pipes[0]);
        cache = open_of(identity, LIMIT, NULL);
        fill(cache, 0, 100);
        (void)!write(pipes[1], &one, 1);
        for (uint64_t number = 100;; number++) /* killed in the middle of whatever it does */
            put(cache, 100 + number % 50, 1 + number * 997 % ITEM_BYTES);
    }
    close(pipes[1]);
    *ready = pipes[0];
    return child;
}

static void killing_the_giver_loses_nothing(void **state)
{
    (void)state;
    for (int turn = 0; turn < 10; turn++) {
        const char *identity = fresh_identity();
        forebay_cache *cache;
        int ready, status;
        pid_t child = start_giver(identity, &ready);
        char one;

        assert_int_equal(read(ready, &one, 1), 1);
        close(ready);
        cache = open_of(identity, LIMIT, NULL);
        assert_int_equal(stats_of(cache).processes, 2);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        EVENTUALLY(stats_of(cache).processes == 1);
        EVENTUALLY(put(cache, 500, ITEM_BYTES) == FOREBAY_OK || look(cache, 500));
        for (uint64_t number = 0; number < 100; number++)
            assert_int_equal(look(cache, number), ITEM_BYTES);
        fill(cache, 501, ITEMS);
        assert_true(stats_of(cache).bytes <= LIMIT);
        assert_int_equal(present(cache), stats_of(cache).items);
        forebay_cache_close(cache);
    }
}

static void laps_count_what_all_did_since_the_last(void **state)
{
    const char *identity = fresh_identity();
    forebay_cache *one = open_of(identity, LIMIT, NULL), *two = open_of(identity, LIMIT, NULL);
    forebay_cache_stats stats;
    forebay_item item;

    (void)state;
    look(one, 1);
    put(one, 1, 100);
    look(two, 1);
    forebay_cache_read_stats(one, true, &stats, NULL);
    assert_int_equal(stats.lap_hits, 1);
    assert_int_equal(stats.lap_misses, 1);
    look(one, 1);
    assert_int_equal(forebay_cache_find(two, 9, &item, NULL), FOREBAY_MISS);
    assert_int_equal(item.use, 4);
    forebay_cache_read_stats(two, true, &stats, NULL);
    assert_int_equal(stats.lap_hits, 1);
    assert_int_equal(stats.lap_misses, 1);
    assert_int_equal(stats.hits, 2);
    forebay_cache_close(one);
    forebay_cache_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_of_every_size_come_back_as_they_were_put),
        cmocka_unit_test(the_limit_is_of_all_who_share_it),
        cmocka_unit_test(when_the_giver_leaves_another_gives_and_nothing_is_lost),
        cmocka_unit_test(strangers_do_not_meet),
        cmocka_unit_test(a_limit_can_be_changed_by_any_of_them),
        cmocka_unit_test(clearing_leaves_only_what_is_being_read),
        cmocka_unit_test(what_is_too_large_or_empty_is_not_kept),
        cmocka_unit_test(lru_keeps_what_was_used_last_and_fill_what_came_first),
        cmocka_unit_test(bad_options_are_errors_in_words),
        cmocka_unit_test(a_child_of_a_fork_joins_by_itself),
        cmocka_unit_test(a_child_that_only_closes_harms_nobody),
        cmocka_unit_test(killing_the_giver_loses_nothing),
        cmocka_unit_test(laps_count_what_all_did_since_the_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
