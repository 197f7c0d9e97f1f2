/*
 * segment.h -- the memory of a cache: one area, private or shared, in which everything is found
 * by offsets that follow from a few numbers (struct fb_geometry).
 *
 *   header | member rows | pins | entries | page owners | page links | free bits | data pages
 *
 * A process copies those numbers when it attaches, checks them against the area's size and
 * never looks at them again: whatever is scribbled into the area later, no address can leave it.
 * Every other number read from the area is copied, checked, then used.
 */
#ifndef FB_CACHE_SEGMENT_H
#define FB_CACHE_SEGMENT_H
#include <stdatomic.h>

#include "base/error.h"
#include "cache/cache.h"
#include "cache/page_layout.h"

#define FB_SEGMENT_MAGIC 0x6568636165626f66u
#define FB_SEGMENT_VERSION 5u
#define FB_ROWS_MAX 256u /* members of one cache: a row number is eight bits */
#define FB_PINS_MAX 1024u
#define FB_PUNCH_STEP ((uint64_t)64 << 20)

/* What decides where everything lies. */
struct fb_geometry {
    uint64_t entries;    /* units 0 .. entries - 1 can be kept */
    uint64_t page_bytes; /* one unit's, if all are equal; else a part of one */
    uint64_t pages;      /* that the area has room for; the limit decides how many are used */
    uint32_t rows, pins; /* members; pins of each */
    uint32_t chained;    /* 1: a unit may have several pages */
    uint32_t policy;
};

/* Where it lies: made from the geometry, never stored. */
struct fb_layout {
    uint64_t rows_at, pins_at, entries_at, owners_at, links_at, bits_at, summary_at, data_at;
    uint64_t total;
    uint64_t fixed_bytes; /* taken whatever the limit: header, rows, pins, entries, ragged ends */
    uint64_t table_cost;  /* of a page: its owner, link and bits */
};

struct fb_header {
    uint64_t magic;
    uint32_t version;
    uint32_t ready; /* written last by whoever made the segment */
    uint64_t id;    /* random: tells two segments of one name apart */
    struct fb_geometry geometry;
    _Atomic uint64_t rows_high;  /* rows ever used: nobody looks further */
    _Atomic uint64_t reach;      /* pages ever used: nobody looks further */
    _Atomic uint64_t touched;    /* pages from here on hold no memory: never written, or punched */
    _Atomic uint64_t items_lost; /* correction of the rows' counters after deaths */
    _Atomic uint64_t giver;      /* `together`: token of the member that gives for all, | 1 */
    _Atomic uint64_t wanted;     /* `together`: the limit as it was last set */
    _Atomic uint64_t uses;       /* fb_cache_look: of all members */
    _Atomic uint64_t lap_hits, lap_misses; /* fb_cache_read_lap: the counts at the last one */
};

/* Counters of a row. They go on counting through all members that have the row one after the
 * other: the sum over all rows is that of all members, living and dead. */
enum {
    FB_COUNT_HITS,
    FB_COUNT_MISSES,
    FB_COUNT_BYPASSES,
    FB_COUNT_EVICTIONS,
    FB_COUNT_WAITS,
    FB_COUNT_ITEMS_IN,
    FB_COUNT_ITEMS_OUT,
    FB_COUNT_BEGUN, /* units that someone began to put in or out, ended or not: members.h */
    FB_COUNT_ENDED,
    FB_COUNTS
};

/* One member (members.h). */
struct fb_row {
    _Atomic uint64_t life; /* generation and pid of the member; one word, so one CAS takes it */
    /* Each of these with the generation, so that an earlier member's is not taken for it: */
    _Atomic uint64_t born;  /* its start time: a pid that was given again is somebody else */
    _Atomic uint64_t given; /* what it has in its ledger for this cache */
    _Atomic uint64_t share; /* what it would give at most */
    _Atomic uint64_t job;
    _Atomic uint64_t counts[FB_COUNTS];
    uint64_t spare[2];
};

/* One unit (entries.h): 32 bytes. */
struct fb_entry {
    _Atomic uint64_t state;
    _Atomic uint64_t when; /* lru: last use; next-use: next use */
    _Atomic uint64_t bytes;
    _Atomic uint32_t head; /* its first page */
    uint32_t spare;
};

/* This process's view. */
struct fb_segment {
    struct fb_geometry geometry;
    struct fb_layout layout;
    char *base;
    int fd;         /* -1: private */
    uint64_t grain; /* memory comes in such steps: 4 KiB, or huge pages */
    uint64_t id;
    struct fb_header *header;
    struct fb_row *rows;
    _Atomic uint64_t *pins; /* rows x pins */
    struct fb_entry *entries;
    _Atomic uint32_t *owners, *links;
    _Atomic uint64_t *bits, *summary;
    char *data;
};

/* Where a page's data begin. */
static inline uint64_t fb_page_at(const struct fb_segment *segment, uint64_t page)
{
    return page * segment->geometry.page_bytes;
}

/* The geometry for these options; `shared` has rows for many members. */
int fb_geometry_choose(struct fb_geometry *geometry, const struct fb_cache_options *options,
                       bool shared, forebay_error *error);
/* Are these numbers possible, and where does everything lie? False for garbage. */
bool fb_geometry_layout(const struct fb_geometry *geometry, struct fb_layout *layout);
/* Pages that fit if the members together give `bytes`. */
uint64_t fb_segment_pages_in(const struct fb_segment *segment, uint64_t bytes);
uint64_t fb_segment_bytes_for(const struct fb_segment *segment, uint64_t pages);
/* Set the pointers from base and layout. */
void fb_segment_aim(struct fb_segment *segment);
/* A fresh segment's header, rows and bits. */
void fb_segment_format(struct fb_segment *segment, uint64_t id);

int fb_segment_private_new(struct fb_segment *segment, const struct fb_geometry *geometry,
                           const struct fb_cache_options *options, forebay_error *error);
int fb_segment_shared_new(struct fb_segment *segment, const struct fb_geometry *geometry,
                          forebay_error *error);
/* Map what somebody sent; takes `fd` on success. BAD_DATA if it is not one of ours. */
int fb_segment_shared_attach(struct fb_segment *segment, int fd, forebay_error *error);
/* Unmap and close; safe on a zeroed struct with fd = -1 and in a forked child (`forked`), where
 * the mapping was not inherited. */
void fb_segment_release(struct fb_segment *segment, bool forked);

/* Give the memory of data bytes [from, to) back to the system. */
void fb_segment_punch(struct fb_segment *segment, uint64_t from, uint64_t to);
/* Copy into and out of the data area; `fresh`: never written since it was punched. */
void fb_segment_put(struct fb_segment *segment, uint64_t at, const void *from, uint64_t bytes,
                    bool fresh);
void fb_segment_get(const struct fb_segment *segment, uint64_t at, void *to, uint64_t bytes);
#endif
