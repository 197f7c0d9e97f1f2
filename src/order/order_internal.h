/*
 * order_internal.h -- what the files of src/order share.
 *
 * An order is a bijection between positions and entries (samples, or places in the subset's list),
 * one for each epoch, in one of five forms; or draws with replacement. Each form is a pair of pure
 * functions. Only groups keep something that depends on the epoch: see order_group.c.
 * In here `error` is never NULL: fb_order_open sees to it.
 */
#ifndef FB_ORDER_INTERNAL_H
#define FB_ORDER_INTERNAL_H
#include "base/mix.h"
#include "order/order.h"
#include "order/permutation.h"

#define FB_NOWHERE UINT64_MAX

/* What a key is for, so that no two uses of (seed, epoch) see the same numbers. */
enum fb_key_use {
    FB_KEY_SAMPLES = 1,
    FB_KEY_GROUPS,
    FB_KEY_BLOCKS,
    FB_KEY_WINDOWS,
    FB_KEY_OWNERS,
    FB_KEY_SLICES,
    FB_KEY_DRAWS,
    FB_KEY_BUCKETS,
    FB_KEY_STRETCHES,
};
static inline uint64_t fb_order_key(uint64_t seed, enum fb_key_use use, uint64_t epoch)
{
    return fb_mix2(fb_mix2(seed, use), epoch);
}

/* ---- blocks: order_block.c */
struct fb_block_shuffle {
    uint64_t size;              /* entries in a block */
    uint64_t count;             /* blocks */
    uint64_t window;            /* blocks that are mixed */
    uint64_t missing;           /* entries the last block has too few */
    struct fb_permutation all;  /* of the blocks */
    struct fb_permutation full; /* of the entries of a full window */
};
struct fb_block_shuffle_epoch {
    const struct fb_block_shuffle *blocks;
    struct fb_permutation all;
    uint64_t key;      /* of the windows */
    uint64_t short_at; /* where among the shuffled blocks the last, short one is */
};
void fb_block_shuffle_init(struct fb_block_shuffle *blocks, uint64_t entries, uint64_t block, uint64_t window);
void fb_block_shuffle_begin(struct fb_block_shuffle_epoch *at, const struct fb_block_shuffle *blocks, uint64_t seed,
                     uint64_t epoch);
uint64_t fb_block_shuffle_entry(const struct fb_block_shuffle_epoch *at, uint64_t position);
uint64_t fb_block_shuffle_position(const struct fb_block_shuffle_epoch *at, uint64_t entry);

/* ---- groups: order_group.c */
struct fb_groups;
/* `ends` is borrowed and was checked: never falling, the last one is the number of entries.
 * `epochs` tables are kept. */
int fb_groups_open(struct fb_groups **out, uint64_t count, const uint64_t *ends, uint64_t seed,
                   uint64_t epochs, struct fb_budget *budget, forebay_error *error);
void fb_groups_close(struct fb_groups *groups);
uint64_t fb_groups_entry(struct fb_groups *groups, uint64_t epoch, uint64_t position);
uint64_t fb_groups_position(struct fb_groups *groups, uint64_t epoch, uint64_t entry);

/* ---- sticky slices: order_sticky.c */
struct fb_slices {
    uint64_t world;               /* ranks */
    uint64_t each;                /* ranks that share a slice */
    uint64_t rounds;              /* positions that every rank has */
    uint64_t rest;                /* ranks that have one more */
    struct fb_permutation owners; /* entries in the order of their slices, in all epochs */
    uint64_t key;                 /* of this epoch's order inside the slices */
};
/* `slices` divides `world`. */
void fb_slices_begin(struct fb_slices *at, const struct fb_permutation *all, uint64_t world,
                     uint64_t slices, uint64_t seed, uint64_t epoch);
uint64_t fb_slices_entry(const struct fb_slices *at, uint64_t position);
uint64_t fb_slices_position(const struct fb_slices *at, uint64_t entry);

/* ---- a file of sample numbers: order_subset.c */
struct fb_subset {
    uint64_t count;
    uint64_t *list;     /* of samples: ascending if shuffled, else as in the file */
    uint64_t *by_value; /* places in `list`, ascending by sample; NULL if the list itself is */
    uint64_t hash;
};
/* Safe to release however far read came; a zeroed one too. */
int fb_subset_read(struct fb_subset *subset, const char *path, uint64_t samples, bool keep_order,
                   struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
void fb_subset_release(struct fb_subset *subset, struct fb_budget *budget);
/* The first place, in ascending order of samples, whose sample is not below `sample`. */
uint64_t fb_subset_below(const struct fb_subset *subset, uint64_t sample);
/* Where in the list the sample stands, or FB_NOWHERE. */
uint64_t fb_subset_find(const struct fb_subset *subset, uint64_t sample);

/* Ascending, in place: by one bit after the other from `bit` down, so it never goes deeper than the
 * numbers have bits and needs no memory. With `values` it sorts places by what stands there. */
void fb_sort_by_bits(uint64_t *items, uint64_t count, const uint64_t *values, int bit);

/* ---- samples of like length in one batch: order_bucket.c */
struct fb_buckets;
/* What is under the buckets: an order of entries, and how long each is. */
struct fb_bucket_view {
    const void *data;
    uint64_t (*entry)(const void *data, uint64_t position); /* below 2^32 */
    float (*length)(const void *data, uint64_t entry);
    uint64_t epoch, world;
};
int fb_buckets_open(struct fb_buckets **out, uint64_t batch, uint64_t length, uint64_t world,
                    uint64_t seed, struct fb_budget *budget, forebay_error *error);
void fb_buckets_close(struct fb_buckets *buckets);
/* Positions in a stretch of an epoch that `world` ranks began; and is there memory for it? */
uint64_t fb_buckets_stretch(const struct fb_buckets *buckets, uint64_t world);
bool fb_buckets_can(const struct fb_buckets *buckets, uint64_t world);
uint64_t fb_buckets_entry(struct fb_buckets *buckets, const struct fb_bucket_view *view,
                          uint64_t position);
/* `before` is the entry's position in the order underneath. */
uint64_t fb_buckets_position(struct fb_buckets *buckets, const struct fb_bucket_view *view,
                             uint64_t before, uint64_t entry);

/* ---- a file of weights: order_weights.c. An alias table: 12 bytes a sample. */
struct fb_draws {
    uint64_t count;
    double *keep; /* below this the sample itself is drawn, else its alias */
    uint32_t *alias;
    uint64_t hash;
};
int fb_draws_read(struct fb_draws *draws, const char *path, uint64_t samples,
                  struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
void fb_draws_release(struct fb_draws *draws, struct fb_budget *budget);
/* The sample drawn at a position of the epoch that `key` is of. */
uint64_t fb_draws_at(const struct fb_draws *draws, uint64_t key, uint64_t position);

/* ---- where an epoch of draws takes each sample: order_uses.c */
struct fb_uses;
struct fb_uses_query {
    uint64_t epoch;
    uint64_t first, end; /* any of these samples */
    uint64_t from;       /* at this position or behind it */
    bool (*wanted)(const void *data, uint64_t position);
    const void *data;
};
uint64_t fb_uses_bytes(uint64_t samples, uint64_t length); /* of one epoch */
/* `draws` is borrowed; `length` is below 2^32; `epochs` tables are kept. */
int fb_uses_open(struct fb_uses **out, const struct fb_draws *draws, uint64_t length, uint64_t seed,
                 uint64_t epochs, struct fb_budget *budget, forebay_error *error);
void fb_uses_close(struct fb_uses *uses);
/* The first such position, or FB_NOWHERE: there is none, or another thread is finding out. */
uint64_t fb_uses_next(struct fb_uses *uses, const struct fb_uses_query *query);

/* ---- the order itself: order.c */
enum fb_order_form {
    FB_FORM_SEQUENTIAL,
    FB_FORM_SHUFFLED,
    FB_FORM_GROUPS,
    FB_FORM_BLOCKS,
    FB_FORM_STICKY,
    FB_FORM_DRAWS,
};

struct fb_order {
    struct fb_budget *budget;
    enum fb_order_form form;
    uint64_t samples, seed;
    uint64_t entries; /* samples, or those of the subset */
    uint64_t length;  /* positions: the entries, or the draws */
    int ends, sticky;
    struct fb_ranks ranks;
    uint64_t first_here; /* the lowest rank on this node */
    uint64_t horizon;    /* epochs that next_use looks at */
    struct fb_permutation all;
    struct fb_subset subset; /* count 0: none */
    uint64_t *group_ends;    /* of the subset's entries, if there are both; else NULL */
    uint64_t group_count;
    struct fb_groups *groups;
    uint64_t stretch; /* positions that are mixed behind the groups; 0 or 1: none */
    struct fb_block_shuffle blocks;
    struct fb_draws draws;
    struct fb_uses *uses;       /* of the draws; NULL: next uses are not known */
    struct fb_buckets *buckets; /* NULL: none */
    float (*length_of)(const void *data, uint64_t sample);
    const void *length_data;
    uint64_t hash;  /* of everything the order depends on but seed and samples */
    uint64_t fingerprint; /* of the data; 0: not known */
    char text[128]; /* the order's parameters for people */
};

/* Positions that each of `world` ranks has from `start` to the epoch's end. */
uint64_t fb_order_share(const struct fb_order *order, int ends, uint64_t start, uint64_t world);
/* How many slices a sticky order for these ranks and nodes has; 0 if that cannot be. */
uint64_t fb_order_slices(const struct fb_order *order, uint64_t world, uint64_t nodes);
#endif
