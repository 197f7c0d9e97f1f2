/*
 * fetch.h -- one sample into its place in a batch: from the cache, else read and decoded, straight
 * into the slot wherever nothing has to be converted. Touches its own sample only; no lock.
 */
#ifndef FB_PIPELINE_FETCH_H
#define FB_PIPELINE_FETCH_H
#include "pipeline/batch.h"

#define FB_CONVERT_BYTES ((uint64_t)256 * 1024) /* what is converted at once: stays in the L2 cache */

/* What all workers share; constant. */
struct fb_fetcher {
    struct fb_source *source;
    const struct fb_order *order;
    struct fb_cache *cache; /* NULL: none */
    const struct fb_collation *collation;
    struct fb_ranks ranks;
    uint64_t seed;
    int on_error;
    uint64_t epochs; /* how many will be run, UINT64_MAX if not known */
    bool next_use; /* the cache's policy asks when a unit is needed again */
};

/* One worker's own. */
struct fb_worker_state {
    struct fb_reader *reader;
    struct fb_scratch scratch; /* the source's */
    struct fb_scratch chunk;   /* for conversion, slices of units that are admitted, and units that
                                * finish() makes something of */
    struct fb_part *parts;     /* [parts_max] */
    bool device_keeps;              /* what is loaded will be kept on the device: not in RAM, too */
    bool preloading;           /* no batch is under way: the epoch's first use is still to come */
    uint64_t hits, misses;     /* of the run under way; the pipeline collects and clears them */
    uint64_t copy_ns;          /* the same: copying from and to the cache */
};

/* What one worker's chunk must hold for this source. */
uint64_t fb_fetch_chunk_bytes(const struct fb_source *source, const struct fb_collation *collation,
                              bool cached);

/* Fetch sample `at` of the batch into its place; error->place names the file that failed. */
int fb_fetch(const struct fb_fetcher *fetcher, struct fb_worker_state *state, struct fb_batch *batch,
             uint64_t at, forebay_error *error);

/* Can samples be fetched many at once? Then: samples [from, to) of the batch into their places. If
 * that fails nothing is known of any of them. */
bool fb_fetch_gathers(const struct fb_fetcher *fetcher);
int fb_fetch_many(const struct fb_fetcher *fetcher, struct fb_worker_state *state, struct fb_batch *batch,
                  uint64_t from, uint64_t to, forebay_error *error);

/* The extent of what a part takes of its unit; an unknown one is probed. BROKEN if it cannot be. */
struct fb_extent fb_fetch_extent(const struct fb_fetcher *fetcher, const struct fb_worker_state *state,
                                 const struct fb_part *part);
#endif
