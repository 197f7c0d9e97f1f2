/*
 * ranks.c -- where this process stands among those of its job, from its launcher's variables.
 *
 * The order of asking matters: torchrun and MPI launchers also run inside Slurm jobs, where the
 * variables of the surrounding job are still set.
 */
#include <stdlib.h>

#include "base/size.h"
#include "order/order.h"

#define MOST_RANKS ((uint64_t)1 << 32)
typedef unsigned long long llu; /* for messages */

/* A number a launcher set; *found = false if it did not (or set it empty). */
static int number_get(const char *name, uint64_t *number, bool *found, forebay_error *error)
{
    const char *text = getenv(name);
    uint64_t value = 0;
    int status;

    *found = text && *text;
    if (!*found)
        return FOREBAY_OK;
    for (const char *digit = text; *digit; digit++) {
        if (*digit < '0' || *digit > '9' || value > MOST_RANKS) {
            status = fb_fail(error, FOREBAY_BAD_CONFIG,
                             "%s is '%.64s', expected a number; correct it, or set order.rank and "
                             "order.world",
                             name, text);
            fb_error_place(error, "%s", name);
            return status;
        }
        value = value * 10 + (uint64_t)(*digit - '0');
    }
    *number = value;
    return FOREBAY_OK;
}

static int refuse(forebay_error *error, const char *place, const char *sentence)
{
    int status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s", sentence);

    fb_error_place(error, "%s", place);
    return status;
}

/* A launcher that sets rank, world and, perhaps, the rank and number of ranks on this node. */
struct launcher {
    const char *name, *rank, *world, *local_rank, *local_world;
};
static const struct launcher launchers[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" },
    { "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE" },
    { "pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" },
};

/* Rank and world, both or none. */
static int pair_get(const char *rank_name, const char *world_name, struct fb_ranks *ranks,
                    bool *found, forebay_error *error)
{
    bool has_rank, has_world;
    int status = number_get(rank_name, &ranks->rank, &has_rank, error);

    if (!status)
        status = number_get(world_name, &ranks->world, &has_world, error);
    if (status)
        return status;
    *found = has_rank && has_world;
    if (has_rank != has_world) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "%s is set but %s is not; set both or none, or give order.rank and "
                         "order.world",
                         has_rank ? rank_name : world_name, has_rank ? world_name : rank_name);
        fb_error_place(error, "%s", has_rank ? world_name : rank_name);
        return status;
    }
    if (!*found || ranks->rank < ranks->world)
        return FOREBAY_OK;
    status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s is %llu, but %s is %llu: ranks count from 0",
                     rank_name, (llu)ranks->rank, world_name, (llu)ranks->world);
    fb_error_place(error, "%s", rank_name);
    return status;
}

/* Which node, where ranks are numbered node by node with as many on each; else not known. */
static void nodes_guess(struct fb_ranks *ranks)
{
    uint64_t here = ranks->local_world;

    ranks->node = 0;
    ranks->nodes = 1;
    if (here && ranks->world % here == 0) {
        ranks->nodes = ranks->world / here;
        ranks->node = ranks->rank / here;
    }
}

static int launcher_get(const struct launcher *launcher, struct fb_ranks *ranks, bool *found,
                        forebay_error *error)
{
    uint64_t local_rank = 0, here = 0;
    bool has_local = false, has_here = false;
    int status = pair_get(launcher->rank, launcher->world, ranks, found, error);

    if (!status && *found)
        status = number_get(launcher->local_rank, &local_rank, &has_local, error);
    if (!status && *found)
        status = number_get(launcher->local_world, &here, &has_here, error);
    if (status || !*found)
        return status;
    /* Not told how many are here: all of them is the safe side, each then takes the least. */
    ranks->local_world = has_here ? here : ranks->world;
    ranks->launcher = launcher->name;
    if (!ranks->local_world || ranks->local_world > ranks->world ||
        (has_local && (local_rank >= ranks->local_world || local_rank > ranks->rank))) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "%s (%llu), %s (%llu), %s (%llu) and %s (%llu) contradict each other",
                         launcher->rank, (llu)ranks->rank, launcher->world, (llu)ranks->world,
                         launcher->local_rank, (llu)local_rank, launcher->local_world,
                         (llu)ranks->local_world);
        fb_error_place(error, "%s", launcher->local_world);
        return status;
    }
    nodes_guess(ranks);
    return FOREBAY_OK;
}

/* Digits at *text, moved behind them; false if there are none or too many. */
static bool digits_take(const char **text, uint64_t *number)
{
    const char *from = *text;

    for (*number = 0; **text >= '0' && **text <= '9'; ++*text) {
        if (*number > MOST_RANKS)
            return false;
        *number = *number * 10 + (uint64_t)(**text - '0');
    }
    return *text > from;
}

/* Slurm's list of tasks by node, e.g. "4(x2),3" = 4, 4, 3. */
struct tasks {
    uint64_t nodes, total;
    uint64_t here; /* of the node asked for; 0 if the list has fewer */
};

static bool tasks_parse(const char *text, uint64_t node, struct tasks *tasks)
{
    *tasks = (struct tasks){ 0 };
    for (;;) {
        uint64_t each, times = 1, all;

        if (!digits_take(&text, &each))
            return false;
        if (text[0] == '(' && text[1] == 'x') {
            text += 2;
            if (!digits_take(&text, &times) || *text++ != ')')
                return false;
        }
        if (!each || !fb_mul(each, times, &all) || !all || all > MOST_RANKS)
            return false;
        if (node >= tasks->nodes && node - tasks->nodes < times)
            tasks->here = each;
        tasks->nodes += times;
        tasks->total += all;
        if (tasks->total > MOST_RANKS)
            return false;
        if (!*text)
            return true;
        if (*text++ != ',')
            return false;
    }
}

/* The list's node and its number of tasks. */
static int slurm_list_use(const char *name, const char *list, struct fb_ranks *ranks,
                          forebay_error *error)
{
    struct tasks tasks;
    bool has_node;
    int status = number_get("SLURM_NODEID", &ranks->node, &has_node, error);

    if (status)
        return status;
    if (!has_node)
        ranks->node = 0;
    if (!tasks_parse(list, ranks->node, &tasks)) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s is '%.64s', expected a list like 4(x2),3",
                         name, list);
    } else if (tasks.total != ranks->world) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s is '%.64s', %llu tasks, but there are %llu",
                         name, list, (llu)tasks.total, (llu)ranks->world);
    } else if (!tasks.here) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "%s is '%.64s', %llu nodes, but SLURM_NODEID is "
                         "%llu",
                         name, list, (llu)tasks.nodes, (llu)ranks->node);
    } else if (!has_node && tasks.nodes > 1) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s is '%.64s', but SLURM_NODEID is not set",
                         name, list);
    }
    if (status) {
        fb_error_place(error, "%s", name);
        return status;
    }
    ranks->nodes = tasks.nodes;
    ranks->local_world = tasks.here;
    return FOREBAY_OK;
}

/* Without a list: as many tasks on each of SLURM_NNODES nodes, if that can be. */
static int slurm_nodes_use(struct fb_ranks *ranks, forebay_error *error)
{
    bool has_node, has_nodes;
    int status = number_get("SLURM_NODEID", &ranks->node, &has_node, error);

    if (!status)
        status = number_get("SLURM_NNODES", &ranks->nodes, &has_nodes, error);
    if (status)
        return status;
    if (!has_nodes || ranks->nodes == 1) {
        ranks->node = 0;
        ranks->nodes = 1;
        ranks->local_world = ranks->world;
        return FOREBAY_OK;
    }
    if (!has_node || !ranks->nodes || ranks->node >= ranks->nodes ||
        ranks->world % ranks->nodes != 0)
        return refuse(error, "SLURM_NNODES",
                      "cannot tell how many ranks are on this node from SLURM_NTASKS, SLURM_NNODES "
                      "and SLURM_NODEID; start with srun, or set memory.ranks_here");
    ranks->local_world = ranks->world / ranks->nodes;
    return FOREBAY_OK;
}

static const char *text_get(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

static int slurm_get(struct fb_ranks *ranks, bool *found, forebay_error *error)
{
    const char *step = text_get("SLURM_STEP_TASKS_PER_NODE");
    const char *world = text_get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const char *job = text_get("SLURM_TASKS_PER_NODE");
    int status;

    *found = false;
    /* A batch script's own commands see SLURM_NTASKS, too, but are one process: only what srun
     * started has the step's variables. An allocation without PROCID is no rank either. */
    if (!text_get("SLURM_PROCID") ||
        (text_get("SLURM_JOB_ID") && !step && !text_get("SLURM_STEP_NUM_TASKS")))
        return FOREBAY_OK;
    status = pair_get("SLURM_PROCID", world, ranks, found, error);
    if (status || !*found)
        return status;
    ranks->launcher = "slurm";
    if (step)
        return slurm_list_use("SLURM_STEP_TASKS_PER_NODE", step, ranks, error);
    if (job)
        return slurm_list_use("SLURM_TASKS_PER_NODE", job, ranks, error);
    return slurm_nodes_use(ranks, error);
}

static int launched_get(struct fb_ranks *ranks, bool *found, forebay_error *error)
{
    int status = FOREBAY_OK;

    *found = false;
    for (size_t i = 0; !status && !*found && i < sizeof(launchers) / sizeof(launchers[0]); i++)
        status = launcher_get(&launchers[i], ranks, found, error);
    if (status)
        return status;
    if (*found && ranks->launcher == launchers[2].name && !text_get("MPI_LOCALNRANKS")) {
        struct fb_ranks step = { 0 };
        bool is_step = false;

        /* srun sets PMI's variables as well, but says only in its own how many are here. */
        if (!slurm_get(&step, &is_step, NULL) && is_step && step.rank == ranks->rank &&
            step.world == ranks->world)
            *ranks = step;
        return FOREBAY_OK;
    }
    return *found ? FOREBAY_OK : slurm_get(ranks, found, error);
}

/* order.rank and order.world, both or none; they win over any launcher's. */
static int given_get(const struct fb_config *config, struct fb_ranks *ranks, bool *found,
                     forebay_error *error)
{
    int status;

    *found = !config->order_rank.is_auto && !config->order_world.is_auto;
    if (config->order_rank.is_auto != config->order_world.is_auto)
        return config->order_rank.is_auto
                   ? refuse(error, "order.world", "order.world is given but order.rank is not")
                   : refuse(error, "order.rank", "order.rank is given but order.world is not");
    if (!*found)
        return FOREBAY_OK;
    if (config->order_rank.value >= config->order_world.value ||
        config->order_world.value > MOST_RANKS) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "order.rank is %llu, but order.world is %llu: ranks count from 0",
                         (llu)config->order_rank.value, (llu)config->order_world.value);
        fb_error_place(error, "order.rank");
        return status;
    }
    ranks->rank = config->order_rank.value;
    ranks->world = config->order_world.value;
    ranks->local_world = ranks->world;
    ranks->launcher = "given";
    nodes_guess(ranks);
    return FOREBAY_OK;
}

static int ranks_here_use(const struct fb_config *config, struct fb_ranks *ranks,
                          forebay_error *error)
{
    uint64_t here = config->memory_ranks_here.value;
    int status;

    if (config->memory_ranks_here.is_auto)
        return FOREBAY_OK;
    if (!here || here > MOST_RANKS)
        return refuse(error, "memory.ranks_here", "memory.ranks_here must be at least 1");
    if (here == ranks->local_world)
        return FOREBAY_OK;
    /* Several processes may share a budget without being ranks of one job: world is 1 then. */
    if (ranks->world > 1 && here > ranks->world) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "memory.ranks_here is %llu, but there are %llu ranks in all", (llu)here,
                         (llu)ranks->world);
        fb_error_place(error, "memory.ranks_here");
        return status;
    }
    ranks->local_world = here;
    nodes_guess(ranks);
    return FOREBAY_OK;
}

int fb_ranks_find(struct fb_ranks *ranks, const struct fb_config *config, forebay_error *error)
{
    struct fb_ranks found = { 0 }, launched = { 0 };
    bool is_given, is_launched = false;
    int status = given_get(config, &found, &is_given, error);

    if (status)
        return status;
    /* What a launcher says is not looked at for errors when the user has said it all. */
    status = launched_get(&launched, &is_launched, is_given ? NULL : error);
    if (status && !is_given)
        return status;
    if (is_given && !status && is_launched && launched.rank == found.rank &&
        launched.world == found.world) {
        launched.launcher = "given";
        found = launched;
    } else if (!is_given) {
        found =
            is_launched
                ? launched
                : (struct fb_ranks){ .world = 1, .local_world = 1, .nodes = 1, .launcher = "none" };
    }
    status = ranks_here_use(config, &found, error);
    if (!status)
        *ranks = found;
    return status;
}
