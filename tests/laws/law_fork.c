/* law_fork.c -- a process that forks in the middle of an epoch keeps working; the child can do
 * nothing to its loader, and is told so. */
#include "law.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child does; the number of the first thing that was wrong is its exit code. */
static int child_looks(forebay_loader *loader, forebay_batch *held, uint64_t digest)
{
    forebay_batch *batch = NULL;
    forebay_error error = { .message = "" };
    char state[FOREBAY_STATE_BYTES];

    if (law_digest(0, held) != digest)
        return 1; /* what the caller holds is inherited */
    if (forebay_next(&batch, loader, &error) != FOREBAY_FORKED || batch)
        return 2;
    if (!error.message[0])
        return 3;
    if (forebay_set(loader, "workers", "3", NULL, &error) != FOREBAY_FORKED)
        return 4;
    (void)forebay_state_save(loader, state, NULL); /* must only not hang or crash */
    forebay_batch_release(held);
    forebay_close(loader);
    return law_digest(0, held) == digest ? 0 : 5; /* both did nothing */
}

static void fork_and_wait(forebay_loader *loader, forebay_batch *held)
{
    uint64_t digest = law_digest(0, held);
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        alarm(20); /* a child that hangs dies of it */
        _exit(child_looks(loader, held, digest));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("the child: %s %d", WIFEXITED(status) ? "check" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    assert_int_equal(law_digest(0, held), digest);
}

/* Two epochs, with a fork after every `every` batches (0: none). */
static uint64_t run_forking(unsigned every)
{
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    uint64_t digest = 0;
    int status;

    law_ok(law_open_scans(&loader, NULL, &error, "batch.size=8", "batch.collate=pad", "workers=4",
                          "prefetch=4", "memory.budget=32MiB", "memory.share=off", NULL));
    for (unsigned epoch = 0, step = 1; epoch < 2; epoch++) {
        while ((status = forebay_next(&batch, loader, &error)) == FOREBAY_OK) {
            if (every && step++ % every == 0)
                fork_and_wait(loader, batch);
            digest = law_digest(digest, batch);
            forebay_batch_release(batch);
        }
        assert_int_equal(status, FOREBAY_END);
    }
    forebay_close(loader);
    return digest;
}

static void the_parent_goes_on_as_if_nothing_had_happened(void **state)
{
    (void)state;
    assert_int_equal(run_forking(law_count(7, 1)), run_forking(0));
}

static void a_child_may_open_a_loader_of_its_own(void **state)
{
    forebay_loader *loader;
    forebay_error error;
    pid_t child;
    int status;

    (void)state;
    law_folder();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        if (law_open_scans(&loader, NULL, &error, "batch.collate=pad", "batch.size=8",
                           "memory.budget=32MiB", "memory.share=off", NULL))
            _exit(1);
        law_run_epoch(0, loader);
        forebay_close(loader);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parent_goes_on_as_if_nothing_had_happened),
        cmocka_unit_test(a_child_may_open_a_loader_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
