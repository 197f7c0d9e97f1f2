#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "order/order.h"

/* Every variable that is asked for; all are unset before each case. */
static const char *const names[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NODEID",
    "SLURM_NNODES", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
    "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
};

struct row {
    const char *what;
    const char *variables; /* "NAME=value NAME=value" */
    int rank, world, here; /* given in the configuration; -1: auto */
    struct fb_ranks expected;
    const char *place, *words; /* of the error, if there is to be one */
};

/* clang-format off: a case in as few lines as it fits */
static const struct row rows[] = {
    { "nothing is one process", "", -1, -1, -1, { 0, 1, 1, 0, 1, "none" }, 0, 0 },
    { "torchrun", "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", -1, -1, -1,
      { 5, 8, 4, 1, 2, "torchrun" }, 0, 0 },
    { "torchrun that does not say how many are here", "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1", -1, -1,
      -1, { 5, 8, 8, 0, 1, "torchrun" }, 0, 0 },
    { "ranks_here adds what the launcher did not say", "RANK=5 WORLD_SIZE=8", -1, -1, 4,
      { 5, 8, 4, 1, 2, "torchrun" }, 0, 0 },
    { "uneven slurm, a middle node",
      "SLURM_PROCID=6 SLURM_NTASKS=11 SLURM_STEP_TASKS_PER_NODE=4(x2),3 SLURM_NODEID=1 "
      "SLURM_NNODES=3", -1, -1, -1, { 6, 11, 4, 1, 3, "slurm" }, 0, 0 },
    { "uneven slurm, the last node",
      "SLURM_PROCID=8 SLURM_NTASKS=11 SLURM_STEP_TASKS_PER_NODE=4(x2),3 SLURM_NODEID=2", -1, -1,
      -1, { 8, 11, 3, 2, 3, "slurm" }, 0, 0 },
    { "a slurm step smaller than its job",
      "SLURM_JOB_ID=7 SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 "
      "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_TASKS_PER_NODE=4(x2) SLURM_NODEID=1", -1, -1, -1,
      { 1, 2, 1, 1, 2, "slurm" }, 0, 0 },
    { "slurm without a list", "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_NODEID=1", -1, -1,
      -1, { 3, 4, 2, 1, 2, "slurm" }, 0, 0 },
    { "a batch script's own process is alone",
      "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=4(x2) SLURM_NODEID=0", -1,
      -1, -1, { 0, 1, 1, 0, 1, "none" }, 0, 0 },
    { "an allocation's shell is alone", "SLURM_JOB_ID=7 SLURM_NTASKS=8", -1, -1, -1,
      { 0, 1, 1, 0, 1, "none" }, 0, 0 },
    { "torchrun inside a slurm step",
      "RANK=5 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 SLURM_PROCID=1 SLURM_NTASKS=2", -1, -1, -1,
      { 5, 8, 4, 1, 2, "torchrun" }, 0, 0 },
    { "open mpi",
      "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", -1, -1, -1, { 2, 4, 2, 1, 2, "openmpi" }, 0, 0 },
    { "pmi", "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALNRANKS=4 MPI_LOCALRANKID=3", -1, -1, -1,
      { 3, 4, 4, 0, 1, "pmi" }, 0, 0 },
    { "srun with pmi", "PMI_RANK=3 PMI_SIZE=4 SLURM_PROCID=3 SLURM_NTASKS=4 "
      "SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=1", -1, -1, -1,
      { 3, 4, 2, 1, 2, "slurm" }, 0, 0 },
    { "given wins", "RANK=5 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4", 1, 3, -1,
      { 1, 3, 3, 0, 1, "given" }, 0, 0 },
    { "given wins over nonsense", "RANK=x WORLD_SIZE=8", 1, 3, -1, { 1, 3, 3, 0, 1, "given" },
      0, 0 },
    { "given as launched keeps the node", "RANK=5 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4", 5, 8, -1,
      { 5, 8, 4, 1, 2, "given" }, 0, 0 },
    { "given with ranks_here", "", 3, 4, 2, { 3, 4, 2, 1, 2, "given" }, 0, 0 },
    { "processes that are no ranks may share memory", "", -1, -1, 4, { 0, 1, 4, 0, 1, "none" },
      0, 0 },
    { "rank alone", "RANK=1", -1, -1, -1, { 0 }, "WORLD_SIZE",
      "RANK is set but WORLD_SIZE is not" },
    { "world alone", "OMPI_COMM_WORLD_SIZE=2", -1, -1, -1, { 0 }, "OMPI_COMM_WORLD_RANK",
      "set both" },
    { "rank out of range", "PMI_RANK=4 PMI_SIZE=4", -1, -1, -1, { 0 }, "PMI_RANK", "count from 0" },
    { "no number", "RANK=-1 WORLD_SIZE=2", -1, -1, -1, { 0 }, "RANK", "'-1'" },
    { "a number without end", "RANK=99999999999999999999999 WORLD_SIZE=2", -1, -1, -1, { 0 },
      "RANK", "expected a number" },
    { "more here than there are", "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4", -1, -1, -1, { 0 },
      "LOCAL_WORLD_SIZE", "contradict" },
    { "a local rank too high", "RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 LOCAL_RANK=2", -1, -1, -1,
      { 0 }, "LOCAL_WORLD_SIZE", "contradict" },
    { "slurm's list and its sum differ",
      "SLURM_PROCID=0 SLURM_NTASKS=9 SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_NODEID=0", -1, -1, -1,
      { 0 }, "SLURM_STEP_TASKS_PER_NODE", "8 tasks, but there are 9" },
    { "slurm's list is cut", "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_TASKS_PER_NODE=4(x", -1, -1,
      -1, { 0 }, "SLURM_STEP_TASKS_PER_NODE", "4(x2),3" },
    { "slurm's list is hostile",
      "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_TASKS_PER_NODE=4294967296(x4294967296)", -1, -1, -1,
      { 0 }, "SLURM_STEP_TASKS_PER_NODE", "expected a list" },
    { "a node that the list has not",
      "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_NODEID=2", -1, -1, -1,
      { 0 }, "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID is 2" },
    { "a list but no node",
      "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_TASKS_PER_NODE=4(x2)", -1, -1, -1, { 0 },
      "SLURM_STEP_TASKS_PER_NODE", "not set" },
    { "slurm cannot tell", "SLURM_PROCID=0 SLURM_NTASKS=5 SLURM_NNODES=2 SLURM_NODEID=0", -1, -1,
      -1, { 0 }, "SLURM_NNODES", "memory.ranks_here" },
    { "order.rank alone", "", 1, -1, -1, { 0 }, "order.rank", "order.world is not" },
    { "order.world alone", "RANK=0 WORLD_SIZE=2", -1, 2, -1, { 0 }, "order.world",
      "order.rank is not" },
    { "order.rank too high", "", 2, 2, -1, { 0 }, "order.rank", "count from 0" },
    { "more ranks here than in all", "", 0, 2, 3, { 0 }, "memory.ranks_here", "2 ranks in all" },
    { "no ranks here", "", -1, -1, 0, { 0 }, "memory.ranks_here", "at least 1" },
};
/* clang-format on */

static void set_variables(const char *variables)
{
    char copy[512], *rest, *one;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    strcpy(copy, variables);
    for (one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');

        *value = '\0';
        setenv(one, value + 1, 1);
    }
}

static struct fb_count count_of(int value)
{
    return (struct fb_count){ value < 0, value < 0 ? 0 : (uint64_t)value };
}

static void check_row(const struct row *row)
{
    struct fb_config config = { .order_rank = count_of(row->rank),
                                .order_world = count_of(row->world),
                                .memory_ranks_here = count_of(row->here) };
    struct fb_ranks found = { 0 };
    forebay_error error = { 0 };
    int status;

    set_variables(row->variables);
    status = fb_ranks_find(&found, &config, &error);
    if (row->words) {
        assert_int_equal(status, FOREBAY_BAD_CONFIG);
        assert_string_equal(error.place, row->place);
        assert_int_equal(found.world, 0); /* only written on success */
        if (!strstr(error.message, row->words))
            fail_msg("%s: %s", row->what, error.message);
        return;
    }
    if (status)
        fail_msg("%s: %s", row->what, error.message);
    if (found.rank != row->expected.rank || found.world != row->expected.world ||
        found.local_world != row->expected.local_world || found.node != row->expected.node ||
        found.nodes != row->expected.nodes ||
        strcmp(found.launcher, row->expected.launcher) != 0)
        fail_msg("%s: rank %d of %d, %d here, node %d of %d, %s", row->what, (int)found.rank,
                 (int)found.world, (int)found.local_world, (int)found.node, (int)found.nodes,
                 found.launcher);
}

static void ranks_are_found_or_the_contradiction_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_row(&rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_found_or_the_contradiction_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
