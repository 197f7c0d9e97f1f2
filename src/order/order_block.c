/* order_block.c -- blocks are shuffled, then the entries inside windows of consecutive blocks. */
#include "base/size.h"
#include "order/order_internal.h"

void fb_block_shuffle_init(struct fb_block_shuffle *blocks, uint64_t entries, uint64_t block, uint64_t window)
{
    blocks->size = fb_min(block, entries);
    blocks->count = (entries + blocks->size - 1) / blocks->size;
    blocks->window = fb_min(window, blocks->count);
    blocks->missing = blocks->count * blocks->size - entries;
    blocks->all = fb_permutation_make(blocks->count, 0);
    blocks->full = fb_permutation_make(fb_min(blocks->window * blocks->size, entries), 0);
}

void fb_block_shuffle_begin(struct fb_block_shuffle_epoch *at, const struct fb_block_shuffle *blocks, uint64_t seed,
                     uint64_t epoch)
{
    at->blocks = blocks;
    at->all = fb_permutation_keyed(blocks->all, fb_order_key(seed, FB_KEY_BLOCKS, epoch));
    at->key = fb_order_key(seed, FB_KEY_WINDOWS, epoch);
    at->short_at = fb_permutation_invert(&at->all, blocks->count - 1);
}

/* Where the block at place k begins: all before it are full but, perhaps, the short one. */
static uint64_t block_start(const struct fb_block_shuffle_epoch *at, uint64_t k)
{
    return k * at->blocks->size - (k > at->short_at ? at->blocks->missing : 0);
}

/* The place of the block that covers `position`. */
static uint64_t block_at(const struct fb_block_shuffle_epoch *at, uint64_t position)
{
    const struct fb_block_shuffle *blocks = at->blocks;
    uint64_t short_end = (at->short_at + 1) * blocks->size - blocks->missing;

    return (position < short_end ? position : position + blocks->missing) / blocks->size;
}

/* The window that block k is in: where it begins, and how its entries are mixed. */
static uint64_t window_of(const struct fb_block_shuffle_epoch *at, uint64_t k, struct fb_permutation *mix)
{
    const struct fb_block_shuffle *blocks = at->blocks;
    uint64_t window = k / blocks->window;
    uint64_t first = block_start(at, window * blocks->window);
    uint64_t end = block_start(at, fb_min((window + 1) * blocks->window, blocks->count));
    uint64_t key = fb_mix2(at->key, window);

    *mix = end - first == blocks->full.n ? fb_permutation_keyed(blocks->full, key)
                                         : fb_permutation_make(end - first, key);
    return first;
}

uint64_t fb_block_shuffle_entry(const struct fb_block_shuffle_epoch *at, uint64_t position)
{
    struct fb_permutation mix;
    uint64_t first = window_of(at, block_at(at, position), &mix);
    uint64_t unmixed = first + fb_permutation_apply(&mix, position - first);
    uint64_t k = block_at(at, unmixed);

    return fb_permutation_apply(&at->all, k) * at->blocks->size + unmixed - block_start(at, k);
}

uint64_t fb_block_shuffle_position(const struct fb_block_shuffle_epoch *at, uint64_t entry)
{
    struct fb_permutation mix;
    uint64_t block = entry / at->blocks->size, k = fb_permutation_invert(&at->all, block);
    uint64_t unmixed = block_start(at, k) + entry - block * at->blocks->size;
    uint64_t first = window_of(at, k, &mix);

    return first + fb_permutation_invert(&mix, unmixed - first);
}
