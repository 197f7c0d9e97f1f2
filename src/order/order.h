/*
 * order.h -- which sample comes when: (epoch, position) <-> sample, O(1) both ways.
 *
 * There is one global order per epoch, of `length` positions. It is cut by rank: with `start` the
 * global position an epoch (or a resumed rest of one) begins at, rank r of W takes
 *
 *     global(p) = start + p * W + r          p = 0, 1, ... the rank's local positions
 *
 * Uneven ends: `pad` wraps positions >= length to the epoch's beginning (repeats), `drop` leaves
 * them out. Shuffled orders use a keyed permutation (six-round Feistel network over a mixed radix
 * domain, caching.md 16-17): no table of N entries. Everything that is kept is in the budget.
 * Immutable after open: any thread, no lock.
 */
#ifndef FB_ORDER_ORDER_H
#define FB_ORDER_ORDER_H
#include "base/error.h"
#include "base/log.h"
#include "base/mix.h"
#include "config/config.h"
#include "memory/budget.h"

#define FB_MAX_SAMPLES ((uint64_t)1 << 40)
/* Epochs of weighted draws that are looked at for next uses, at most: a cache of 0.8 of the data
 * needs three whole ones behind the present for what can be had (docs/cache.md). */
#define FB_DRAWS_HORIZON 4
/* The same of epochs that each draw a part of the data: about 20 ns each. */
#define FB_PART_HORIZON 64

/* Where this process stands among those of its job. */
struct fb_ranks {
    uint64_t rank, world;        /* of all */
    uint64_t local_world;        /* on this node */
    uint64_t node, nodes;        /* this node among all; 0 of 1 if not known */
    const char *launcher;        /* "torchrun", "slurm", "openmpi", "pmi", "given", "none" */
};
/* From config (order.rank, order.world, memory.ranks_here) or the launcher's variables. */
int fb_ranks_find(struct fb_ranks *ranks, const struct fb_config *config, forebay_error *error);

struct fb_order_options {
    uint64_t samples;              /* of the source, 1 .. FB_MAX_SAMPLES */
    uint64_t seed;
    bool shuffle;
    int group;                     /* FB_GROUP_* */
    uint64_t group_count;          /* FB_GROUP_SEQUENCE: as in struct fb_source */
    const uint64_t *group_ends;    /* borrowed; must outlive the order */
    uint64_t stretch;              /* FB_GROUP_SEQUENCE: then mix so many positions; 0: do not */
    uint64_t block, window;        /* FB_GROUP_BLOCK: samples in a block, blocks that are mixed */
    int sticky;                    /* FB_STICKY_* */
    int ends;                      /* FB_ENDS_* */
    const char *subset_file;       /* or NULL */
    const char *weights_file;      /* or NULL; not with subset */
    uint64_t draws;                /* positions in an epoch, without weights of different samples;
                                    * 0: as many as there are samples */
    uint64_t look_ahead_bytes;     /* that may be spent to know the next uses of weighted draws */
    uint64_t bucket_batch;         /* samples in a batch: those of like length share one; 0: no */
    float (*length)(const void *data, uint64_t sample); /* for that; any thread */
    const void *length_data;
    uint64_t fingerprint;          /* of the data, as in struct fb_source: states carry it */
    struct fb_ranks ranks;
};

struct fb_order;

int fb_order_open(struct fb_order **out, const struct fb_order_options *options,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
void fb_order_close(struct fb_order *order);

/* Where in the run: the epoch and the global position its present stretch began at (0, or where a
 * resumed run went on). `world` and `nodes` are the ranks and nodes the epoch's global order was
 * made for: only sticky orders depend on them, and only until the epoch ends. */
struct fb_cursor {
    uint64_t epoch;
    uint64_t start;
    uint64_t world;
    uint64_t nodes;
};
struct fb_cursor fb_order_begin(const struct fb_order *order, uint64_t epoch);

/* Global positions in an epoch (N, the subset's size, or the draws). */
uint64_t fb_order_length(const struct fb_order *order);
/* Samples that epochs draw from: all, or those of the subset. */
uint64_t fb_order_entries(const struct fb_order *order);
/* The same for all ranks of one order, another for another order: times of next uses can be compared
 * only within one. */
uint64_t fb_order_identity(const struct fb_order *order);
/* Does this node use each of its samples exactly once in every epoch? */
bool fb_order_once(const struct fb_order *order);
/* order.subset: the place of a sample in its list (UINT64_MAX: it is not there), the sample at a
 * place below fb_order_entries, and which list it is. Without a subset they are all samples; 0. */
uint64_t fb_order_entry_of(const struct fb_order *order, uint64_t sample);
uint64_t fb_order_entry_sample(const struct fb_order *order, uint64_t entry);
uint64_t fb_order_list(const struct fb_order *order);
/* Any sample that epochs may take, by chance: of the subset, by its weight. The same for all ranks. */
uint64_t fb_order_any(const struct fb_order *order, struct fb_random *random);
/* May an epoch take the sample on this node? */
bool fb_order_uses(const struct fb_order *order, uint64_t sample);
/* Local positions this rank has from `at` to the epoch's end, ends padded or dropped. */
uint64_t fb_order_count(const struct fb_order *order, struct fb_cursor at);
/* How many of all ranks' positions from `at` on are repeats (pad) or left out (drop). */
uint64_t fb_order_uneven(const struct fb_order *order, struct fb_cursor at);
/* The sample at local position p < fb_order_count(order, at). */
uint64_t fb_order_sample(const struct fb_order *order, struct fb_cursor at, uint64_t p);
/* The same for many: samples[i] = sample at p + i. Faster for small samples. */
void fb_order_samples(const struct fb_order *order, struct fb_cursor at, uint64_t p, uint64_t count,
                      uint64_t *samples);
/* The global position of a sample in an epoch (the first, for weighted draws: O(draws) there);
 * UINT64_MAX if the epoch does not have it. */
uint64_t fb_order_position(const struct fb_order *order, uint64_t epoch, uint64_t sample);

/*
 * When the samples [first, first + count) that use a unit are needed next on this node, at global
 * position `from` of `epoch` or behind it: a time (epoch * length + global position), UINT64_MAX if not
 * within the horizon (two epochs of one node, 2 + nodes of several; four times as many as a sample
 * comes again after where epochs draw a part; of weighted draws as many of four as look_ahead_bytes
 * pays for, 8 bytes a sample each and one more). Smaller is sooner.
 * A hint for caches, never more: repeats of padded ends are not seen; the rest of an epoch that was
 * resumed on another number of ranks is taken as if it had begun on these; in buckets the answer may
 * be some batches off; and while one thread makes an epoch's table of weighted draws the others are
 * told UINT64_MAX.
 */
uint64_t fb_order_next_use(const struct fb_order *order, uint64_t first, uint64_t count,
                           uint64_t epoch, uint64_t from);

/* Epochs, the present one among them, that fb_order_next_use looks at; 0: it knows nothing. */
uint64_t fb_order_horizon(const struct fb_order *order);

/* State: everything needed to go on after `local` positions of stretch `at`, as one line of JSON
 * (seed, epoch, global position, world, length, hashes of the order's parameters and of the data's
 * relative names and sizes, and a checksum of all of it). */
int fb_order_save(const struct fb_order *order, struct fb_cursor at, uint64_t local, char *text,
                  size_t size, forebay_error *error);
/* From the states of one or more ranks: the smallest position counts; *repeated says how many
 * samples of other ranks that repeats. The number of ranks may differ from the saved one's. Fails
 * with BAD_STATE and says what differs (seed, samples, order parameters). An epoch that was
 * finished gives the next epoch's beginning. */
int fb_order_load(const struct fb_order *order, const char *const *texts, size_t count,
                  struct fb_cursor *at, uint64_t *repeated, forebay_error *error);
/* Was it saved by a forebay that did not write yet which data it belongs to? */
bool fb_order_state_is_old(const char *text);
#endif
