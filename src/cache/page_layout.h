/*
 * page_layout.h -- how a cache divides its memory, from what is known of its units: a pure function,
 * no memory, no clock, no file.
 */
#ifndef FB_CACHE_PAGE_LAYOUT_H
#define FB_CACHE_PAGE_LAYOUT_H
#include <stdbool.h>
#include <stdint.h>

#define FB_UNITS_MAX ((uint64_t)1 << 31)
#define FB_ENTRY_BYTES 32 /* of index for each unit */

/* What is known of the units. */
struct fb_unit_census {
    uint64_t count;
    uint64_t bytes;        /* of every unit if all are equal, else 0 */
    uint64_t bytes_median; /* of unequal ones */
    uint64_t page_bytes;   /* asked for by the caller, for unequal ones; 0: choose */
};

struct fb_page_layout {
    uint64_t entries;    /* units 0 .. entries - 1 have an entry in the index */
    uint64_t page_bytes; /* the unit's own if all are equal: one page each, no waste */
    bool chained;        /* unequal units: a unit has as many pages as it needs */
};

struct fb_page_layout fb_page_layout_choose(const struct fb_unit_census *census, uint64_t limit);
#endif
