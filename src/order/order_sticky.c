/*
 * order_sticky.c -- each rank, or each node, keeps its slice of the entries in all epochs.
 *
 * Position g belongs to rank g % world. Ranks [k * each, (k + 1) * each) share slice k, which has
 * exactly as many entries as those ranks have positions, so every entry comes once in an epoch
 * however uneven the slices are. One permutation for all epochs lays the entries out slice after
 * slice; a permutation for each epoch and slice orders a slice.
 */
#include "base/size.h"
#include "order/order_internal.h"

void fb_slices_begin(struct fb_slices *at, const struct fb_permutation *all, uint64_t world,
                     uint64_t slices, uint64_t seed, uint64_t epoch)
{
    at->world = world;
    at->each = world / slices;
    at->rounds = all->n / world;
    at->rest = all->n % world;
    at->owners = fb_permutation_keyed(*all, fb_order_key(seed, FB_KEY_OWNERS, 0));
    at->key = fb_order_key(seed, FB_KEY_SLICES, epoch);
}

/* Where slice k begins among the owners' layout. */
static uint64_t slice_start(const struct fb_slices *at, uint64_t k)
{
    uint64_t ranks = k * at->each;

    return ranks * at->rounds + fb_min(ranks, at->rest);
}

static struct fb_permutation slice_order(const struct fb_slices *at, uint64_t k)
{
    return fb_permutation_make(slice_start(at, k + 1) - slice_start(at, k), fb_mix2(at->key, k));
}

uint64_t fb_slices_entry(const struct fb_slices *at, uint64_t position)
{
    uint64_t round = position / at->world, rank = position % at->world;
    uint64_t k = rank / at->each, inside = round * at->each + rank % at->each;
    struct fb_permutation order = slice_order(at, k);

    return fb_permutation_apply(&at->owners,
                                slice_start(at, k) + fb_permutation_apply(&order, inside));
}

/* The slice that covers place `y` of the owners' layout: full + 1 rounds first, then the one that
 * is cut, then full rounds only. */
static uint64_t slice_at(const struct fb_slices *at, uint64_t y)
{
    uint64_t large = (at->rounds + 1) * at->each, larges = at->rest / at->each;
    uint64_t cut_end = slice_start(at, larges + 1);

    if (y < larges * large)
        return y / large;
    if (y < cut_end)
        return larges;
    return larges + 1 + (y - cut_end) / (at->rounds * at->each);
}

uint64_t fb_slices_position(const struct fb_slices *at, uint64_t entry)
{
    uint64_t y = fb_permutation_invert(&at->owners, entry), k = slice_at(at, y);
    struct fb_permutation order = slice_order(at, k);
    uint64_t inside = fb_permutation_invert(&order, y - slice_start(at, k));

    return inside / at->each * at->world + k * at->each + inside % at->each;
}
