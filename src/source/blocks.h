/*
 * blocks.h -- tiny units that the cache keeps together. An entry of its index and the rest of a last
 * page cost as much as a unit of some hundred bytes itself; so a source whose units are tiny says in
 * its field how many neighbours make a block (field->together), and the cache then keeps blocks.
 * Everybody else goes on with units.
 *
 *     field 0, 3 together:  units 0 2 4 | 6 8 10 | ...     unit = number x fields + field
 *     field 1, alone:       units 1 | 3 | 5 | ...
 *
 * Of a subset of the samples the neighbours in its list make a block; nothing else is kept.
 *
 * Only where nothing that is kept makes room for something else: a block is read whole once, when it
 * is admitted. Any other miss reads its own unit alone.
 */
#ifndef FB_SOURCE_BLOCKS_H
#define FB_SOURCE_BLOCKS_H
#include "source/source.h"

#define FB_TINY_BYTES ((uint64_t)4096)     /* units of this mean size are kept alone if all are */
#define FB_SMALL_BYTES ((uint64_t)8192)    /* equal, else those of this: 5 % are lost of a chain */
#define FB_BLOCK_BYTES ((uint64_t)32768)   /* so many make a block, of small data FB_SMALL_BYTES or a */
#define FB_BLOCK_PART ((uint64_t)512)      /* 512th of them: what fits in a cache shall not go in leaps */
#define FB_BLOCK_UNITS 128u                /* at most: their sizes are added up at each use */
#define FB_BLOCK_UNIT_MAX ((uint64_t)4 << 20) /* bytes: with a larger one there are no blocks */

/* How many units to keep together, for a source that has `count` units of a field with `total` bytes,
 * the largest of `most`, and knows all their extents. */
uint32_t fb_blocks_together(uint64_t count, uint64_t total, uint64_t most);

/* The samples that are used at all: those of a list, each by its place there. */
struct fb_choice {
    uint64_t count; /* 0: all of the source, a sample's place is its number */
    const void *list;
    uint64_t (*place)(const void *list, uint64_t sample); /* UINT64_MAX: it is not there */
    uint64_t (*sample)(const void *list, uint64_t place);
};

/* What a cache of blocks has to know. */
struct fb_blocks {
    struct fb_choice choice;
    uint64_t count; /* 0: units are kept one by one */
    uint64_t bytes; /* of each if all are equal, else 0 */
    uint64_t bytes_max;
    uint64_t bytes_total; /* about; of all of them */
};

struct fb_block {
    uint64_t number; /* the cache's */
    uint64_t begin;  /* place of its first unit */
    uint64_t count;  /* units; 0, and no bytes: the one that was asked for is not kept */
    uint64_t bytes;  /* of all */
    uint64_t offset; /* of the unit that was asked for */
    uint64_t equal;  /* bytes of each, broken ones too; 0: one lies right behind the other */
};

/* Entries that a cache of them has in its index: blocks, or units. */
static inline uint64_t fb_blocks_kept(const struct fb_source *source, const struct fb_blocks *blocks)
{
    return blocks->count ? blocks->count : source->unit_count;
}

/* Does any field have blocks? */
bool fb_blocks_any(const struct fb_source *source);
/* Can samples be chosen? Only where each has units of its own. */
bool fb_blocks_can_choose(const struct fb_source *source);
void fb_blocks_measure(const struct fb_source *source, struct fb_choice choice,
                       struct fb_blocks *blocks);
/* The block of a unit of `field`; no I/O. */
void fb_block_find(const struct fb_source *source, const struct fb_blocks *blocks, uint32_t field,
                   uint64_t unit, struct fb_block *block);
/* Unit i < block->count of it. */
uint64_t fb_block_unit(const struct fb_source *source, const struct fb_blocks *blocks,
                       uint32_t field, const struct fb_block *block, uint64_t i);
#endif
