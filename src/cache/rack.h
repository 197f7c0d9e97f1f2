/*
 * rack.h -- pages of several sizes, for tiny units that are not alike: half a page and the tables of
 * a chain would cost each an eighth of itself or more. Here a unit has one page, of the next larger
 * of a few sizes that were chosen for these units. Where a page lies follows from its number, so
 * that a limit is a page number as ever and nothing fragments. There are two ways to arrange them:
 *
 *   mixed     for policies that put one unit in the place of another: one rack behind the other,
 *             each with the same pages in the same order, as many of a size as there are units of
 *             it, well mixed. So every size has its part of whatever limit there is.
 *
 *     | 640 | 96 | 1216 | 640 | 160 | ...          | 640 | 96 | 1216 | 640 | 160 | ...
 *     page 0   1    2      3     4                 FB_RACK_PAGES    + 1    + 2
 *
 *   rising    for fill, and where else no unit takes another's place: a page for each unit, the
 *             smallest first. They save most time per byte, and are below whatever limit there is.
 *
 *     | 96 | 96 | ... | 160 | 160 | ...            | 640 | 640 | ...            | 1216 | ...
 *     page 0  1        ends[0]                     ends[1]
 *
 * A unit that finds no free page of its size takes one that is a little larger.
 */
#ifndef FB_CACHE_RACK_H
#define FB_CACHE_RACK_H
#include <stdbool.h>
#include <stdint.h>

#define FB_RACK_PAGES 512u
#define FB_RACK_SIZES 128u
#define FB_RACK_BYTES_MAX (4u << 20) /* of a page */

/* Part of a segment's geometry; may be garbage until fb_rack_map_make has looked at it. */
struct fb_rack {
    uint32_t sizes; /* 0: there is no rack, all pages are alike */
    uint32_t rising; /* 1, or 0: mixed */
    uint32_t bytes[FB_RACK_SIZES]; /* of a page of each size, ascending */
    union {
        uint8_t size_of[FB_RACK_PAGES]; /* mixed */
        uint32_t ends[FB_RACK_SIZES];   /* rising: the page behind the last of each size */
    };
};

/* Made from it: where its pages lie. */
struct fb_rack_map {
    struct fb_rack rack; /* as it was when it was looked at */
    union {
        struct {
            uint32_t at[FB_RACK_PAGES + 1];    /* byte in the rack */
            uint16_t first[FB_RACK_SIZES + 1]; /* those of a size in `places` */
            uint16_t places[FB_RACK_PAGES];    /* of the first size, ascending, then the second */
        } mixed;
        struct {
            uint64_t ends[FB_RACK_SIZES];  /* the page behind the last of each size */
            uint64_t stops[FB_RACK_SIZES]; /* the byte behind it */
        } rising;
    };
};

/* How many units there are of each size: exactly below 64 bytes, then in steps of a 64th. */
#define FB_CENSUS_STEPS (64u + 16 * 64 + 1)
struct fb_census {
    struct fb_census_step {
        uint64_t units;
        uint32_t most; /* bytes of the largest */
    } steps[FB_CENSUS_STEPS];
};
/* 0 < bytes <= FB_RACK_BYTES_MAX. */
void fb_census_add(struct fb_census *census, uint64_t bytes);

/* The rack in which these units waste least; spoils the census. Without units there is none (sizes
 * is 0). Mixed, the largest have no page if fewer than one in 1024 is among them. */
void fb_rack_choose(struct fb_rack *rack, struct fb_census *census, bool rising);
/* False for garbage. */
bool fb_rack_map_make(const struct fb_rack *rack, struct fb_rack_map *map);

/* The smallest size that holds `bytes`; rack->sizes: none does. */
uint32_t fb_rack_size_for(const struct fb_rack *rack, uint64_t bytes);
/* May a unit of `bytes` have a page of this size? That of its own, and where none is free one of up
 * to twice its bytes, or 64 more. */
bool fb_rack_may_hold(const struct fb_rack *rack, uint32_t size, uint64_t bytes);

/* Where a page begins, and which size it has. */
uint64_t fb_rack_at(const struct fb_rack_map *map, uint64_t page);
uint32_t fb_rack_size_at(const struct fb_rack_map *map, uint64_t page);
/* Pages of this size below page `limit`, and number n of them. */
uint64_t fb_rack_below(const struct fb_rack_map *map, uint32_t size, uint64_t limit);
uint64_t fb_rack_page(const struct fb_rack_map *map, uint32_t size, uint64_t n);
/* The first page of this size that is not below `limit`; UINT64_MAX if there is none. */
uint64_t fb_rack_next(const struct fb_rack_map *map, uint32_t size, uint64_t limit);
/* Pages that fit in so many bytes, if each costs `tables` more. */
uint64_t fb_rack_pages_in(const struct fb_rack_map *map, uint64_t bytes, uint64_t tables);
/* Mean bytes of a page. */
uint64_t fb_rack_mean(const struct fb_rack_map *map);
#endif
