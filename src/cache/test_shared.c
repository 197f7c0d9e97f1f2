/* One memory, several members: here all in one process, so that every sanitizer can look on. */
#include "cache/test_help.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#include "cache/rendezvous.h"

static struct fb_cache_options shared_of(struct fb_budget *budget, uint64_t identity, int policy,
                                         uint64_t limit)
{
    struct fb_cache_options options = options_of(budget, policy, 300, 5000, limit);

    options.share = FB_SHARE_JOB;
    options.identity = identity;
    return options;
}

static void what_one_fills_the_other_finds(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, fresh_identity(), FB_POLICY_FILL, FB_MIB);
    struct fb_cache *one = open_of(&options), *two = open_of(&options);
    struct fb_cache_report report;

    (void)state;
    assert_true(fb_cache_is_shared(one) && fb_cache_is_shared(two));
    for (uint64_t unit = 0; unit < 50; unit++)
        assert_int_equal(use(one, unit, 5000, 0), FB_CACHE_FILL);
    for (uint64_t unit = 0; unit < 50; unit++)
        assert_int_equal(use(two, unit, 5000, 0), FB_CACHE_HIT);
    fb_cache_read_report(two, &report);
    assert_int_equal(report.hits, 50);
    assert_int_equal(report.misses, 0);
    assert_int_equal(report.members, 2);
    fb_cache_read_report_together(two, &report);
    assert_int_equal(report.misses, 50);
    assert_int_equal(report.items, 50);
    assert_int_equal(report.limit_bytes, 2 * FB_MIB);
    assert_int_equal(report.share_bytes, FB_MIB);
    fb_cache_close(one); /* gives its share back; what fits in the other's stays */
    fb_cache_read_report(two, &report);
    assert_int_equal(report.limit_bytes, FB_MIB);
    fb_cache_read_report_together(two, &report);
    assert_int_equal(report.misses, 50); /* those who left count, too */
    fb_cache_close(two);
    fb_budget_free(budget);
}

static void members_with_another_identity_are_strangers(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, fresh_identity(), FB_POLICY_FILL, FB_MIB);
    struct fb_cache *one = open_of(&options), *two;

    (void)state;
    options.identity++;
    two = open_of(&options);
    use(one, 1, 5000, 0);
    assert_int_equal(use(two, 1, 5000, 0), FB_CACHE_FILL);
    fb_cache_close(one);
    fb_cache_close(two);
    fb_budget_free(budget);
}

static void leaving_evicts_down_to_what_the_others_give(void **state)
{
    struct fb_budget *budget = budget_of(MUCH), *small = budget_of(MUCH);
    struct fb_cache_options options =
        shared_of(budget, fresh_identity(), FB_POLICY_FILL, 4 * FB_MIB);
    struct fb_cache *one = open_of(&options), *two;
    struct fb_cache_report report;
    struct stat status;

    (void)state;
    options.budget = small;
    options.limit_bytes = FB_MIB;
    two = open_of(&options);
    for (uint64_t unit = 0; unit < 300; unit++)
        use(one, unit, 5000, 0);
    fb_cache_close(one);
    fb_limit_settle(two); /* its service would do it within a quarter of a second */
    fb_cache_read_report(two, &report);
    assert_true(report.bytes <= FB_MIB && report.items < 300);
    assert_true(report.items > 50); /* what its own share allows is still there */
    assert_true(in_ledger(small) <= FB_MIB);
    fstat(two->segment.fd, &status);
    assert_true((uint64_t)status.st_blocks * 512 <= FB_MIB); /* the system has it back */
    fb_cache_close(two);
    fb_budget_free(budget);
    fb_budget_free(small);
}

static void the_memory_is_what_the_ledgers_say(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, fresh_identity(), FB_POLICY_LRU, FB_MIB);
    struct fb_cache *one = open_of(&options), *two = open_of(&options);
    struct stat status;

    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        use(i % 2 ? one : two, i * 7919 % 300, 5000, 0);
        if (i % 100 == 99)
            fb_cache_set_limit(i % 3 ? one : two, FB_MIB / 2 + i * 500);
        fstat(one->segment.fd, &status);
        assert_true((uint64_t)status.st_blocks * 512 <= in_ledger(budget));
    }
    fb_cache_close(one);
    fb_cache_close(two);
    fb_budget_free(budget);
}

static void the_memory_is_sealed_and_the_name_goes_with_it(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, fresh_identity(), FB_POLICY_FILL, FB_MIB);
    struct fb_cache *cache = open_of(&options);
    char name[FB_NAME_TEXT];
    uint64_t id;
    int memory;

    (void)state;
    fb_cache_name(cache, name);
    memory = fb_rendezvous_ask_all(name, 1000, &id);
    assert_true(memory >= 0);
    assert_int_equal(ftruncate(memory, 4096), -1);
    close(memory);
    fb_cache_close(cache);
    assert_int_equal(fb_rendezvous_ask_all(name, 1000, &id), -1);
    fb_budget_free(budget);
}

static void living_caches_are_listed_and_can_be_emptied(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, fresh_identity(), FB_POLICY_FILL, FB_MIB);
    struct fb_cache *cache = open_of(&options);
    static struct fb_cache_listed list[64];
    struct fb_cache_report report;
    struct fb_cache_pin pin;
    char name[FB_NAME_TEXT];
    uint64_t bytes = 0;
    size_t count, at;

    (void)state;
    for (uint64_t unit = 0; unit < 50; unit++)
        use(cache, unit, 5000, 0);
    fb_cache_name(cache, name);
    count = fb_cache_list(list, 64);
    for (at = 0; at < count && strcmp(list[at].name, name) != 0; at++)
        continue;
    assert_true(at < count);
    assert_int_equal(list[at].report.items, 50);
    assert_int_equal(list[at].report.limit_bytes, FB_MIB);
    assert_int_equal(list[at].pids[0], getpid());
    assert_int_equal(fb_cache_find(cache, 3, 5000, 0, true, &pin), FB_CACHE_HIT);
    assert_int_equal(fb_cache_drop(name, &bytes, NULL), 0);
    assert_true(bytes >= 49 * 5000);
    check_unit(cache, &pin); /* what is in use stays */
    fb_cache_done(cache, &pin);
    fb_cache_read_report(cache, &report);
    assert_int_equal(report.items, 1);
    fb_cache_close(cache);
    assert_int_equal(fb_cache_drop(name, &bytes, NULL), FOREBAY_MISSING);
    fb_budget_free(budget);
}

static void a_file_that_is_no_segment_is_refused(void **state)
{
    struct fb_segment segment;
    forebay_error error;
    char garbage[8192];
    int fd = memfd_create("test", MFD_ALLOW_SEALING);

    (void)state;
    memset(garbage, 0x5a, sizeof(garbage));
    assert_int_equal(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
    assert_int_equal(fb_segment_shared_attach(&segment, fd, &error), FOREBAY_BAD_DATA);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    assert_int_equal(fb_segment_shared_attach(&segment, fd, &error), FOREBAY_BAD_DATA);
    close(fd);
}

static void several_jobs_keep_admitting_in_the_last_epoch(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options =
        shared_of(budget, fresh_identity(), FB_POLICY_NEXT_USE, FB_MIB);
    struct fb_cache *one, *two;

    (void)state;
    options.job = 1;
    one = open_of(&options);
    fb_cache_last_epoch(one, true);
    assert_int_equal(use(one, 1, 5000, 1), FB_CACHE_MISS);
    options.job = 2;
    two = open_of(&options);
    fb_service_look_around(one);
    assert_int_equal(use(one, 1, 5000, 1), FB_CACHE_FILL);
    assert_ptr_equal(atomic_load(&one->policy), &fb_policy_fill);
    fb_cache_close(two);
    fb_cache_close(one);
    fb_budget_free(budget);
}

/* The instant between "it is going" and "nobody has it pinned". */
static void who_dies_while_evicting_takes_nothing_from_a_reader(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, fresh_identity(), FB_POLICY_LRU, FB_MIB);
    struct fb_cache *one = open_of(&options), *two = open_of(&options);
    uint64_t life = atomic_load(&one->segment.rows[one->member.row].life);
    struct fb_cache_pin pin;

    (void)state;
    use(two, 5, 5000, 0);
    use(two, 6, 5000, 0);
    assert_int_equal(fb_cache_find(two, 5, 5000, 0, true, &pin), FB_CACHE_HIT);
    assert_true(fb_entry_move(&one->segment, 5, FB_READY, FB_DYING | FB_WHOLE | one->member.token));
    assert_true(fb_entry_move(&one->segment, 6, FB_READY, FB_DYING | one->member.token));
    fb_sweep_row(two, one->member.row, life);
    assert_int_equal(fb_entry_state(&two->segment, 5), FB_READY);
    assert_int_equal(fb_entry_state(&two->segment, 6), FB_FREE);
    check_unit(two, &pin);
    fb_cache_done(two, &pin);
    audit(two, 1);
    fb_cache_close(one);
    fb_cache_close(two);
    fb_budget_free(budget);
}

/* caching.md 10: rank r takes every fourth position; no rank has a cache of its own. */
static void ranks_together_hit_what_one_would(void **state)
{
    enum { RANKS = 4, EPOCHS = 5 };
    struct fb_budget *budget = budget_of(MUCH);
    uint64_t identity = fresh_identity(), order[300];
    struct fb_random random = { .state = 5 };
    struct fb_cache *ranks[RANKS];
    struct fb_cache_report report, before = { 0 };
    double rate;

    (void)state;
    for (int i = 0; i < RANKS; i++) {
        struct fb_cache_options options = shared_of(budget, identity, FB_POLICY_FILL, 0);

        options.limit_bytes = (fb_cache_index_bytes(300, true) + 150 * 5000) / RANKS + FB_SERVICE_BYTES;
        options.limit_bytes += i ? 0 : fb_cache_index_bytes(300, true) / 2;
        ranks[i] = open_of(&options);
    }
    for (uint64_t i = 0; i < 300; i++)
        order[i] = i;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint64_t i = 299; i > 0; i--) {
            uint64_t j = fb_random_below(&random, i + 1), swap = order[i];

            order[i] = order[j];
            order[j] = swap;
        }
        if (epoch == 1)
            fb_cache_read_report_together(ranks[0], &before);
        for (uint64_t i = 0; i < 300; i++)
            use(ranks[i % RANKS], order[i], 5000, 0);
    }
    fb_cache_read_report_together(ranks[0], &report);
    report.hits -= before.hits;
    report.misses -= before.misses;
    rate = fb_cache_hit_rate(&report);
    if (rate < (double)report.items / 300 - 0.01 || rate > (double)report.items / 300 + 0.01)
        fail_msg("hit rate %.3f with %llu of 300 kept", rate, (unsigned long long)report.items);
    assert_true(report.items > 100 && report.items < 250);
    for (int i = 0; i < RANKS; i++)
        fb_cache_close(ranks[i]);
    fb_budget_free(budget);
}

/* ---- threads of several members ---- */

/* Two members of one process map the memory twice: ThreadSanitizer takes the two addresses of a
 * word for two words, so it gets one member with four threads. */
#ifdef __SANITIZE_THREAD__
#define MEMBERS 1
#else
#define MEMBERS 2
#endif

struct party {
    struct fb_cache *cache;
    uint64_t seed;
    atomic_bool wrong;
};

static void *join_in(void *data)
{
    struct party *party = data;
    struct fb_random random = { .state = party->seed };
    unsigned char bytes[5000];
    struct fb_cache_pin pin;

    for (int i = 0; i < 3000; i++) {
        uint64_t unit = fb_random_below(&random, 300);
        enum fb_cache_answer answer = fb_cache_find(party->cache, unit, 5000, 0, true, &pin);

        if (answer == FB_CACHE_MISS)
            continue;
        if (answer == FB_CACHE_FILL) {
            memset(bytes, (int)(unit + 3), sizeof(bytes));
            fb_cache_write(party->cache, &pin, 0, bytes, sizeof(bytes), NULL);
            fb_cache_publish(party->cache, &pin);
        }
        if (fb_cache_read(party->cache, &pin, 0, bytes, sizeof(bytes), NULL) ||
            bytes[0] != (unsigned char)(unit + 3) || bytes[4999] != (unsigned char)(unit + 3))
            atomic_store(&party->wrong, true);
        fb_cache_done(party->cache, &pin);
        if (i % 200 == 0)
            fb_cache_set_limit(party->cache, FB_MIB / 2 + fb_random_below(&random, FB_MIB));
    }
    return NULL;
}

static void members_work_at_once_and_see_only_whole_units(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, fresh_identity(), FB_POLICY_LRU, FB_MIB);
    struct party parties[4] = { 0 };
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < 4; i++)
        parties[i] =
            (struct party){ .seed = i + 1,
                            .cache = i % (4 / MEMBERS) ? parties[i - 1].cache : open_of(&options) };
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, join_in, &parties[i]), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    audit(parties[0].cache, MEMBERS);
    for (size_t i = 0; i < 4; i++) {
        assert_false(atomic_load(&parties[i].wrong));
        if (i % (4 / MEMBERS) == 0)
            fb_cache_close(parties[i].cache);
    }
    fb_budget_free(budget);
}

/* ---- the memory domain ---- */

static void put_file(const char *root, const char *path, const char *text)
{
    char full[512], *slash;
    FILE *file;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static uint64_t domain_of(const char *root, const char *cgroup)
{
    put_file(root, "/proc/self/cgroup", cgroup);
    return fb_rendezvous_domain(root);
}

static void the_domain_is_the_deepest_cgroup_with_a_limit(void **state)
{
    char root[] = "/tmp/forebay-test-XXXXXX", command[64];
    uint64_t job, other;

    (void)state;
    assert_non_null(mkdtemp(root));
    put_file(root, "/sys/fs/cgroup/job/memory.max", "1000000\n");
    put_file(root, "/sys/fs/cgroup/job/step/memory.max", "max\n");
    put_file(root, "/sys/fs/cgroup/other/memory.max", "5\n");
    put_file(root, "/sys/fs/cgroup/free/memory.max", "max\n");
    put_file(root, "/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "4096\n");
    put_file(root, "/sys/fs/cgroup/memory/none/memory.limit_in_bytes", "9223372036854771712\n");
    job = domain_of(root, "0::/job\n");
    other = domain_of(root, "0::/other\n");
    assert_true(job && other && job != other);
    assert_int_equal(domain_of(root, "0::/job/step\n"), job);
    assert_int_equal(domain_of(root, "0::/free\n"), 0);
    assert_int_equal(domain_of(root, "9:cpu:/\n4:memory:/none\n"), 0);
    assert_true(domain_of(root, "9:cpu:/\n4:memory:/old/deeper\n0::/\n") != 0);
    snprintf(command, sizeof(command), "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* A sweep that counts while a unit is between its state and its counter would count it wrong for as
 * long as nobody else dies. */
static void a_unit_on_its_way_is_not_miscounted(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = options_of(budget, FB_POLICY_LRU, 10, 5000, FB_MIB);
    struct fb_cache *cache;
    struct fb_segment *segment;
    uint64_t going;

    (void)state;
    options.share = FB_SHARE_JOB;
    options.identity = fresh_identity();
    cache = open_of(&options);
    segment = &cache->segment;
    going = FB_DYING | FB_WHOLE | cache->member.token;
    for (uint64_t unit = 0; unit < 3; unit++)
        assert_int_equal(use(cache, unit, 5000, 0), FB_CACHE_FILL);
    fb_member_begin(segment, &cache->member); /* as fb_unit_evict is when it finds a pin */
    assert_true(fb_entry_move(segment, 1, FB_READY, going));
    fb_sweep_row(cache, 7, (uint64_t)1 << 32);
    assert_true(fb_entry_move(segment, 1, going, FB_READY));
    assert_int_equal(atomic_load(&segment->header->items_lost), 0);
    fb_member_end(segment, &cache->member);
    assert_int_equal(items_soon(cache, 3), 3);
    /* What the dead one had not counted is counted as soon as nobody is on the way. */
    fb_member_begin(segment, &cache->member);
    atomic_store(&segment->header->items_lost, 1);
    fb_sweep_row(cache, 7, (uint64_t)1 << 32);
    assert_int_equal(atomic_load(&segment->header->items_lost), 1);
    fb_member_end(segment, &cache->member);
    assert_int_equal(items_soon(cache, 3), 3);
    audit(cache, 1);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_fills_the_other_finds),
        cmocka_unit_test(members_with_another_identity_are_strangers),
        cmocka_unit_test(leaving_evicts_down_to_what_the_others_give),
        cmocka_unit_test(the_memory_is_what_the_ledgers_say),
        cmocka_unit_test(the_memory_is_sealed_and_the_name_goes_with_it),
        cmocka_unit_test(living_caches_are_listed_and_can_be_emptied),
        cmocka_unit_test(a_file_that_is_no_segment_is_refused),
        cmocka_unit_test(several_jobs_keep_admitting_in_the_last_epoch),
        cmocka_unit_test(who_dies_while_evicting_takes_nothing_from_a_reader),
        cmocka_unit_test(ranks_together_hit_what_one_would),
        cmocka_unit_test(members_work_at_once_and_see_only_whole_units),
        cmocka_unit_test(the_domain_is_the_deepest_cgroup_with_a_limit),
        cmocka_unit_test(a_unit_on_its_way_is_not_miscounted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
