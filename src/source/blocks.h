/*
 * blocks.h -- tiny units that the cache keeps together. An entry of its index and the rest of a last
 * page cost as much as a unit of some hundred bytes itself; so a source whose units are tiny says in
 * its field how many neighbours make a block (field->together), and the cache then keeps blocks.
 * Everybody else goes on with units.
 *
 *     field 0, 3 together:  units 0 2 4 | 6 8 10 | ...     unit = number x fields + field
 *     field 1, alone:       units 1 | 3 | 5 | ...
 *
 * Only where nothing is evicted that came first (policy fill): a block is read whole once, when it is
 * admitted. Any other miss reads its own unit alone.
 */
#ifndef FB_SOURCE_BLOCKS_H
#define FB_SOURCE_BLOCKS_H
#include "source/source.h"

#define FB_TINY_BYTES ((uint64_t)4096)     /* units of this mean size are kept alone if all are */
#define FB_SMALL_BYTES ((uint64_t)8192)    /* equal, else those of this: 5 % are lost of a chain */
#define FB_BLOCK_BYTES ((uint64_t)32768)   /* about so many make a block, of at most so many units: */
#define FB_BLOCK_UNITS 128u                /* their sizes are added up at each use */
#define FB_BLOCK_UNIT_MAX ((uint64_t)65536) /* bytes: with a larger one there are no blocks */

/* How many units to keep together, for a source that has `count` units of a field with `total` bytes,
 * the largest of `most`, and knows all their extents. */
uint32_t fb_blocks_together(uint64_t count, uint64_t total, uint64_t most);

struct fb_block {
    uint64_t number; /* the cache's */
    uint64_t first;  /* unit; the next one is first + step */
    uint64_t step, count;
    uint64_t bytes;  /* of all */
    uint64_t offset; /* of the unit that was asked for */
    uint64_t equal;  /* bytes of each, broken ones too; 0: one lies right behind the other */
};

/* Does any field have blocks? */
bool fb_blocks_any(const struct fb_source *source);
/* The block of a unit of `field`; no I/O. */
void fb_block_find(const struct fb_source *source, uint32_t field, uint64_t unit,
                   struct fb_block *block);
/* What a cache of blocks has to know, beside unit_bytes_total. */
struct fb_blocks {
    uint64_t count;
    uint64_t bytes; /* of each if all are equal, else 0 */
    uint64_t bytes_max;
};
void fb_blocks_measure(const struct fb_source *source, struct fb_blocks *blocks);
#endif
