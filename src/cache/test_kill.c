/*
 * Processes that are killed, stopped and forked at any instant: the others go on, what they find is
 * whole, nothing leaks, nothing is left.
 */
#include "cache/test_help.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include "cache/rendezvous.h"

#define WORKERS 4
#define UNITS 200

/* What the test and its processes both see: how far they are. */
struct board {
    _Atomic uint64_t uses, wrong, go, ready;
};

static struct board *board;

static uint64_t size_of(uint64_t unit)
{
    return 1000 + unit * 613 % 30000;
}

static struct fb_cache_options options_for(struct fb_budget *budget, uint64_t identity,
                                           uint64_t limit)
{
    struct fb_cache_options options = options_of(budget, FB_POLICY_LRU, UNITS, 0, limit);

    options.unit_bytes_median = 16000;
    options.unit_bytes_max = 31000;
    options.share = FB_SHARE_JOB;
    options.identity = identity;
    return options;
}

/* A byte of a unit that two units, or two places, rarely share. */
static unsigned char pattern(uint64_t unit, uint64_t at)
{
    return (unsigned char)fb_mix2(unit, at / 64);
}

static bool is_whole(const unsigned char *bytes, uint64_t unit)
{
    for (uint64_t i = 0; i < size_of(unit); i++)
        if (bytes[i] != pattern(unit, i))
            return false;
    return true;
}

static void use_one(struct fb_cache *cache, uint64_t unit)
{
    static unsigned char bytes[32000];
    struct fb_cache_pin pin;
    uint64_t size = size_of(unit);
    enum fb_cache_answer answer = fb_cache_find(cache, unit, size, 0, true, &pin);

    if (answer == FB_CACHE_FILL) {
        for (uint64_t i = 0; i < size; i++)
            bytes[i] = pattern(unit, i);
        fb_cache_write(cache, &pin, 0, bytes, size, NULL);
        fb_cache_publish(cache, &pin);
    }
    if (answer != FB_CACHE_MISS) {
        memset(bytes, 0, size);
        if (fb_cache_read(cache, &pin, 0, bytes, size, NULL) || !is_whole(bytes, unit))
            atomic_fetch_add(&board->wrong, 1);
        fb_cache_done(cache, &pin);
    }
    atomic_fetch_add(&board->uses, 1);
}

/* A worker process: until it is killed. */
static void work(uint64_t identity, uint64_t seed)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_for(budget, identity, FB_MIB);
    struct fb_random random = { .state = seed };
    struct fb_cache *cache = open_of(&options);

    if (!fb_cache_is_shared(cache))
        atomic_fetch_add(&board->wrong, 1);
    atomic_fetch_add(&board->ready, 1);
    for (;;) {
        use_one(cache, fb_random_below(&random, UNITS));
        if (fb_random_below(&random, 64) == 0)
            fb_cache_set_limit(cache, FB_MIB / 2 + fb_random_below(&random, FB_MIB));
    }
}

static pid_t spawn(uint64_t identity, uint64_t seed)
{
    pid_t child = fork();

    if (child == 0) {
        work(identity, seed);
        _exit(0);
    }
    return child;
}

static void end(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void wait_until(_Atomic uint64_t *word, uint64_t reached)
{
    uint64_t deadline = fb_now_ns() + 20000000000u;

    while (atomic_load(word) < reached && fb_now_ns() < deadline)
        sched_yield();
    assert_true(atomic_load(word) >= reached);
}

/* Until the living have swept: a second is the promise, more only on a machine that is busy. */
static void wait_for_members(struct fb_cache *cache, unsigned members)
{
    uint64_t deadline = fb_now_ns() + 10000000000u;
    struct fb_cache_report report;

    do {
        sched_yield();
        fb_cache_read_report(cache, &report);
    } while (report.members != members && fb_now_ns() < deadline);
    assert_int_equal(report.members, members);
}

static void check_contents(struct fb_cache *cache)
{
    static unsigned char bytes[32000];
    struct fb_cache_pin pin;
    unsigned found = 0;

    for (uint64_t unit = 0; unit < UNITS; unit++) {
        if (fb_entry_state(&cache->segment, unit) != FB_READY)
            continue;
        assert_int_equal(fb_cache_find(cache, unit, size_of(unit), 0, false, &pin), FB_CACHE_HIT);
        assert_int_equal(fb_cache_read(cache, &pin, 0, bytes, size_of(unit), NULL), 0);
        assert_true(is_whole(bytes, unit));
        fb_cache_done(cache, &pin);
        found++;
    }
    assert_true(found > 0);
}

static void killing_any_process_at_any_instant_harms_nobody(void **state)
{
    unsigned kills = getenv("FOREBAY_SOAK") ? 200 : 30;
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t identity = fresh_identity(), id;
    struct fb_cache_options options = options_for(budget, identity, FB_MIB);
    struct fb_random random = { .state = 99 };
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report report;
    char name[FB_NAME_TEXT];
    pid_t workers[WORKERS];

    (void)state;
    *board = (struct board){ 0 };
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = spawn(identity, i);
    wait_until(&board->ready, WORKERS);
    for (unsigned i = 0; i < kills; i++) {
        unsigned who = (unsigned)fb_random_below(&random, WORKERS);

        wait_until(&board->uses, atomic_load(&board->uses) + fb_random_below(&random, 200));
        end(workers[who]);
        workers[who] = spawn(identity, 1000 + i);
        wait_until(&board->ready, WORKERS + i + 1);
        use_one(cache, fb_random_below(&random, UNITS)); /* goes on */
    }
    assert_int_equal(atomic_load(&board->wrong), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        end(workers[i]);
    wait_for_members(cache, 1);
    fb_limit_settle(cache);
    fb_sweep_dead(cache);
    check_contents(cache);
    audit(cache, 1);
    fb_cache_read_report(cache, &report);
    assert_true(report.bytes <= report.limit_bytes && report.limit_bytes == FB_MIB);
    fb_cache_name(cache, name);
    fb_cache_close(cache);
    assert_int_equal(fb_rendezvous_ask_all(name, 100, &id), -1);
    fb_budget_free(budget);
}

static void after_the_death_of_all_nothing_is_left(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t identity = fresh_identity(), id;
    struct fb_cache_options options = options_for(budget, identity, FB_MIB);
    char name[FB_NAME_TEXT];
    pid_t workers[WORKERS];
    struct fb_cache *cache;

    (void)state;
    *board = (struct board){ 0 };
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = spawn(identity, i);
    wait_until(&board->uses, 200);
    for (unsigned i = 0; i < WORKERS; i++)
        end(workers[i]);
    cache = open_of(&options); /* begins anew: nobody was there */
    fb_cache_name(cache, name);
    assert_int_equal(cache->segment.rows[0].counts[FB_COUNT_MISSES], 0);
    assert_int_equal(use(cache, 1, size_of(1), 0), FB_CACHE_FILL);
    fb_cache_close(cache);
    assert_int_equal(fb_rendezvous_ask_all(name, 100, &id), -1);
    fb_budget_free(budget);
}

static void a_late_comer_finds_the_living_whoever_died(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t identity = fresh_identity();
    struct fb_cache_options options = options_for(budget, identity, 4 * FB_MIB);
    struct fb_cache *cache, *late;
    pid_t first;

    (void)state;
    *board = (struct board){ 0 };
    first = spawn(identity, 1); /* holds the name */
    wait_until(&board->ready, 1);
    cache = open_of(&options);
    assert_int_equal(cache->member.row, 1);
    end(first);
    late = open_of(&options); /* at once: the name has no holder yet, perhaps */
    assert_int_equal(late->segment.id, cache->segment.id);
    wait_for_members(cache, 2);
    fb_cache_close(late);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void a_death_lowers_the_limit_and_the_survivors_follow(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t identity = fresh_identity(), began;
    struct fb_cache_options options = options_for(budget, identity, FB_MIB / 2 + FB_MIB / 4);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report report;
    struct stat status;
    pid_t child;

    (void)state;
    *board = (struct board){ 0 };
    child = fork();
    if (child == 0) {
        struct fb_budget *own = budget_of(MUCH);

        options.budget = own;
        options.limit_bytes = 8 * FB_MIB;
        cache = open_of(&options);
        for (uint64_t unit = 0; unit < UNITS; unit++)
            use_one(cache, unit);
        atomic_store(&board->ready, 1);
        pause();
    }
    wait_until(&board->ready, 1);
    fb_cache_read_report(cache, &report);
    assert_int_equal(report.items, UNITS);
    end(child);
    began = fb_now_ns();
    do {
        sched_yield();
        fb_cache_read_report(cache, &report);
        fstat(cache->segment.fd, &status);
    } while ((report.bytes > options.limit_bytes || report.members > 1 ||
              (uint64_t)status.st_blocks * 512 > options.limit_bytes) &&
             fb_now_ns() - began < 10000000000u);
    print_message("within the limit %.0f ms after the death\n",
                  (double)(fb_now_ns() - began) / 1e6);
    assert_int_equal(report.members, 1);
    assert_true(report.bytes <= options.limit_bytes);
    assert_true((uint64_t)status.st_blocks * 512 <= options.limit_bytes);
    check_contents(cache);
    audit(cache, 1);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

/* A child that becomes the one reader of unit 7 and never reads. */
static pid_t spawn_lazy_reader(struct fb_cache_options options)
{
    pid_t child = fork();
    struct fb_cache_pin pin;

    if (child)
        return child;
    options.budget = budget_of(MUCH);
    if (fb_cache_find(open_of(&options), 7, size_of(7), 0, true, &pin) == FB_CACHE_FILL)
        atomic_store(&board->ready, 1);
    for (;;)
        pause();
}

static void a_fill_is_taken_over_when_the_filler_dies(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_for(budget, fresh_identity(), FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_pin pin;
    int found;
    pid_t child;

    (void)state;
    *board = (struct board){ 0 };
    child = spawn_lazy_reader(options);
    wait_until(&board->ready, 1);
    assert_int_equal(fb_cache_find(cache, 7, size_of(7), 0, false, &pin), FB_CACHE_MISS);
    end(child);
    /* On a busy machine the death may be noticed later than the second that one call waits. */
    do
        found = fb_cache_find(cache, 7, size_of(7), 0, true, &pin);
    while (found == FB_CACHE_MISS);
    assert_int_equal(found, FB_CACHE_FILL);
    fb_cache_abandon(cache, &pin);
    wait_for_members(cache, 1);
    audit(cache, 1);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void a_stopped_member_holds_nobody_up_for_more_than_a_second(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_for(budget, fresh_identity(), FB_MIB);
    struct fb_cache *cache = open_of(&options), *late;
    struct fb_cache_pin pin;
    uint64_t began, took;
    pid_t child;
    int status;

    (void)state;
    *board = (struct board){ 0 };
    child = spawn_lazy_reader(options);
    wait_until(&board->ready, 1);
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    began = fb_now_ns();
    use_one(cache, 8);
    late = open_of(&options);
    assert_int_equal(late->segment.id, cache->segment.id);
    fb_cache_close(late);
    took = fb_now_ns() - began;
    assert_true(took < 1000000000u);
    assert_int_equal(fb_cache_find(cache, 7, size_of(7), 0, true, &pin), FB_CACHE_MISS);
    assert_true(fb_now_ns() - began - took < 1500000000u); /* a second, and a busy machine */
    print_message("others %.1f ms, its own unit %.0f ms\n", (double)took / 1e6,
                  (double)(fb_now_ns() - began - took) / 1e6);
    end(child);
    wait_for_members(cache, 1);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void a_child_that_inherits_a_shared_cache_is_no_member(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_for(budget, fresh_identity(), FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_pin pin;
    char name[FB_NAME_TEXT];
    int status;
    pid_t child;

    (void)state;
    *board = (struct board){ 0 };
    use_one(cache, 1);
    child = fork();
    if (child == 0) {
        bool good = fb_cache_find(cache, 1, size_of(1), 0, true, &pin) == FB_CACHE_MISS &&
                    cache->segment.fd < 0; /* it does not keep the memory alive */

        fb_cache_close(cache);
        atomic_store(&board->ready, good ? 1 : 2);
        wait_until(&board->go, 1);
        _exit(good ? 0 : 1);
    }
    wait_until(&board->ready, 1);
    assert_int_equal(fb_cache_find(cache, 1, size_of(1), 0, true, &pin), FB_CACHE_HIT);
    fb_cache_done(cache, &pin);
    audit(cache, 1);
    fb_cache_name(cache, name);
    fb_cache_close(cache);
    assert_int_equal(fb_rendezvous_bind(name, 0) >= 0, 1); /* nor the names: the child lives on */
    atomic_store(&board->go, 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fb_budget_free(budget);
}

/* Four processes use every unit once, together: each is read once, by one of them. */
static void one_process_reads_and_the_others_wait(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_for(budget, fresh_identity(), 8 * FB_MIB);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report report;
    pid_t children[WORKERS];

    (void)state;
    *board = (struct board){ 0 };
    for (unsigned i = 0; i < WORKERS; i++) {
        children[i] = fork();
        if (children[i])
            continue;
        options.budget = budget_of(MUCH);
        cache = open_of(&options);
        atomic_fetch_add(&board->ready, 1);
        wait_until(&board->go, 1);
        for (uint64_t unit = 0; unit < UNITS; unit++)
            use_one(cache, unit);
        fb_cache_close(cache);
        _exit(0);
    }
    wait_until(&board->ready, WORKERS);
    atomic_store(&board->go, 1);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
    fb_cache_read_report_together(cache, &report);
    print_message("waits %llu bypasses %llu evictions %llu\n", (unsigned long long)report.waits,
                  (unsigned long long)report.bypasses, (unsigned long long)report.evictions);
    assert_int_equal(report.misses, UNITS);
    assert_int_equal(report.hits, (WORKERS - 1) * UNITS);
    assert_int_equal(atomic_load(&board->wrong), 0);

    fb_cache_close(cache);
    fb_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killing_any_process_at_any_instant_harms_nobody),
        cmocka_unit_test(after_the_death_of_all_nothing_is_left),
        cmocka_unit_test(a_late_comer_finds_the_living_whoever_died),
        cmocka_unit_test(a_death_lowers_the_limit_and_the_survivors_follow),
        cmocka_unit_test(a_fill_is_taken_over_when_the_filler_dies),
        cmocka_unit_test(a_stopped_member_holds_nobody_up_for_more_than_a_second),
        cmocka_unit_test(a_child_that_inherits_a_shared_cache_is_no_member),
        cmocka_unit_test(one_process_reads_and_the_others_wait),
    };

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
