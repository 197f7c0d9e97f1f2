/*
 * device_cache.h -- what stays in device memory: what came first is kept (`fill`), until the limit
 * is reached; nothing is evicted, because where every sample is used once an epoch nothing else is
 * better.
 *
 *     open a batch:  find    which of its samples are there: those are not loaded
 *     copy a batch:  plan    room for those that are not
 *                    (assemble.c copies the others, gathers what is there, keeps what has room)
 *                    commit  what was kept can be found from now on
 *
 * An entry is a sample with all its fields, or a unit: a series that windows are cut from, a scan
 * that several sequences share, or whatever differs in size. So what samples share is there once.
 * All entries have the size of the largest, so that an entry is a place in a chunk of device memory
 * and what follows a shorter unit is zeros, which is what `pad` wants. Of a series that samples
 * take parts of, those rows are there that some sample brought: a bit for each says so.
 *
 * Chunks are allocated when the first entry comes, and given back from the last one on when the
 * device is short of memory. A chunk that a batch in flight counts on is not given back.
 *
 * All of it is guarded by the pipeline's lock, which is never held while the source is asked; only
 * the one who uploads changes places and chunks.
 */
#ifndef FB_DEVICE_STAGE_DEVICE_CACHE_H
#define FB_DEVICE_STAGE_DEVICE_CACHE_H
#include <pthread.h>

#include "cache/policy.h"
#include "pipeline/batch.h"

#define FB_DEVICE_CHUNKS 256
#define FB_PLACE_KEEP ((uint32_t)1 << 31) /* it will be there after this copy */
#define FB_PLACES_MAX (FB_PLACE_KEEP - 2)

/* One list of moves for each chunk, from it (0: what is there) and to it (1: what is kept). */
struct fb_moves {
    uint64_t count[2][FB_DEVICE_CHUNKS], next[2][FB_DEVICE_CHUNKS];
    uint64_t most[2][FB_DEVICE_CHUNKS]; /* bytes of the longest move */
};

struct fb_device_cache {
    /* Constant after open: */
    struct fb_device *device; /* borrowed */
    void *stream;             /* borrowed: of the one who uploads */
    pthread_mutex_t *lock;    /* the pipeline's */
    struct fb_budget *budget;
    const struct fb_collation *collation;
    const struct fb_source *source; /* entries are its units; NULL: they are samples */
    uint64_t key_count;             /* samples or units */
    uint64_t entry_bytes, chunk_entries;
    uint64_t most; /* entries, as asked for at open */
    bool zeroed;                    /* what no move wrote must be zeros */
    uint64_t *first_bit; /* [units + 1] of `there`, where samples take parts of units; else NULL */
    uint64_t bit_count;
    struct fb_part *parts[2]; /* [parts_max]: whoever opens a batch, whoever uploads one */
    struct fb_moves moves;    /* of the one who uploads */

    /* Guarded by the pipeline's lock: */
    uint32_t *place_of; /* [keys]: place + 1, 0 if it has none */
    uint64_t *there;    /* units: bits; of a sample or unit that is used whole: it is there */
    uint64_t limit;     /* places, at most */
    uint64_t used;
    void *chunks[FB_DEVICE_CHUNKS];
    uint64_t users[FB_DEVICE_CHUNKS]; /* batches in flight that count on it */
    uint64_t chunk_count;
    uint64_t hits, misses; /* samples */
};

struct fb_device_cache_options {
    struct fb_device *device;
    void *stream;
    pthread_mutex_t *lock;
    struct fb_budget *budget;
    const struct fb_collation *collation;
    const struct fb_source *source; /* NULL: entries are samples */
    const struct fb_policy *policy; /* one that evicts no entry for another of the same size */
    uint64_t samples;
    uint64_t entry_bytes, limit; /* limit: entries */
};
int fb_device_cache_open(struct fb_device_cache **out,
                         const struct fb_device_cache_options *options, forebay_error *error);
/* Nothing on the device uses it any more. */
void fb_device_cache_close(struct fb_device_cache *cache);

/* Whoever opens the batch: batch->places[i] is a place below KEEP if sample i is there (units: 0),
 * WANTED or NONE if not. */
void fb_device_cache_find(struct fb_device_cache *cache, struct fb_batch *batch);
/* The batch is copied or dropped: it counts on nothing any more. */
void fb_device_cache_forget_locked(struct fb_device_cache *cache, struct fb_batch *batch);

/* The rest is for the one who uploads. plan: places for samples that are not there and have room
 * are marked KEEP. NO_MEMORY if the device had no room for more chunks, or would have less than a
 * tenth left: then the limit is what there is, and the plan made for that. */
int fb_device_cache_plan(struct fb_device_cache *cache, struct fb_batch *batch,
                         forebay_error *error);
void fb_device_cache_commit(struct fb_device_cache *cache, struct fb_batch *batch);
/* Would anything of these samples be kept that is not there yet? */
bool fb_device_cache_wants(struct fb_device_cache *cache, const uint64_t *samples, uint64_t count);
/* Take the last chunk out and shrink the limit to what is left; NULL if there is none or it is
 * counted on. The caller frees it when nothing on the device uses it. */
void *fb_device_cache_drop_locked(struct fb_device_cache *cache);

/* Is less than a tenth of the device's memory left? False where that is not known. */
bool fb_device_cache_is_tight(const struct fb_device_cache *cache, uint64_t more);

/* The last of all has only the entries that are left of the limit: not a byte above it is taken. */
static inline uint64_t fb_device_cache_chunk_bytes(const struct fb_device_cache *cache,
                                                   uint64_t chunk)
{
    uint64_t left = cache->most - chunk * cache->chunk_entries;

    return (left < cache->chunk_entries ? left : cache->chunk_entries) * cache->entry_bytes;
}

static inline bool fb_place_is_there(uint32_t place)
{
    return place < FB_PLACE_KEEP;
}
static inline bool fb_place_is_kept(uint32_t place)
{
    return place >= FB_PLACE_KEEP && place < FB_PLACE_WANTED;
}
#endif
