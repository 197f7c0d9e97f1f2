/*
 * device_cache.h -- samples that stay in device memory: what came first is kept (`fill`), until the
 * limit is reached; nothing is evicted, because where every sample is used once an epoch nothing
 * else is better.
 *
 *     open a batch:  find    which of its samples are there: those are not loaded
 *     copy a batch:  plan    room for those that are not
 *                    (upload.c copies the others, gathers what is there, and keeps what has room)
 *                    commit  what was kept can be found from now on
 *
 * Samples are all of one size, so an entry is a place in a chunk of device memory. Chunks are
 * allocated when the first sample comes, and given back from the last one on when the device is
 * short of memory. A chunk that a batch in flight counts on is not given back.
 *
 * All of it is guarded by the pipeline's lock, except where the one who uploads is named.
 */
#ifndef FB_PIPELINE_DEVICE_CACHE_H
#define FB_PIPELINE_DEVICE_CACHE_H
#include <pthread.h>

#include "device/device.h"
#include "memory/budget.h"

#define FB_DEVICE_CHUNKS 256
#define FB_PLACE_NONE UINT32_MAX
#define FB_PLACE_KEEP ((uint32_t)1 << 31) /* it will be there after this copy */
#define FB_PLACES_MAX (FB_PLACE_KEEP - 1)

struct fb_device_cache {
    /* Constant after open: */
    struct fb_device *device; /* borrowed */
    pthread_mutex_t *lock;    /* the pipeline's */
    struct fb_budget *budget;
    uint64_t sample_count;
    uint64_t entry_bytes, chunk_entries;

    /* Guarded by the pipeline's lock: */
    uint32_t *place_of; /* [samples]: place + 1, 0 if it is not there */
    uint64_t limit;     /* places, at most */
    uint64_t used;
    void *chunks[FB_DEVICE_CHUNKS];
    uint64_t users[FB_DEVICE_CHUNKS]; /* samples of batches in flight that count on it */
    uint64_t chunk_count;             /* written by the one who uploads, with the lock */
    uint64_t hits, misses;
};

/* `limit` samples of `entry_bytes` each. */
int fb_device_cache_open(struct fb_device_cache **out, struct fb_device *device,
                         pthread_mutex_t *lock, struct fb_budget *budget, uint64_t samples,
                         uint64_t entry_bytes, uint64_t limit, forebay_error *error);
/* Nothing on the device uses it any more. */
void fb_device_cache_close(struct fb_device_cache *cache);

/* places[i] is where samples[i] is, or FB_PLACE_NONE. */
void fb_device_cache_find_locked(struct fb_device_cache *cache, const uint64_t *samples,
                                 uint64_t count, uint32_t *places);
/* A batch with these places is copied or dropped: it counts on nothing any more. */
void fb_device_cache_forget_locked(struct fb_device_cache *cache, uint32_t *places,
                                   uint64_t count);

/* The one who uploads, without the lock: allocate chunks until `more` further samples have room.
 * NO_MEMORY if the device has none, or would have less than a tenth left: then the limit is what
 * there is. */
int fb_device_cache_grow(struct fb_device_cache *cache, uint64_t more, forebay_error *error);
/* The one who uploads: places for the samples that have none, as long as there is room and where
 * kept[i]; marked FB_PLACE_KEEP. commit makes them known. */
void fb_device_cache_plan_locked(struct fb_device_cache *cache, const uint64_t *samples,
                                 const bool *kept, uint64_t count, uint32_t *places);
void fb_device_cache_commit_locked(struct fb_device_cache *cache, const uint64_t *samples,
                                   const bool *kept, uint64_t count, uint32_t *places);
/* The one who uploads: take the last chunk out and shrink the limit to what is left; NULL if there
 * is none or it is counted on. The caller frees it when nothing on the device uses it. */
void *fb_device_cache_drop_locked(struct fb_device_cache *cache);

/* Is less than a tenth of the device's memory left? False where that is not known. */
bool fb_device_cache_is_tight(const struct fb_device_cache *cache, uint64_t more);

static inline uint64_t fb_device_cache_chunk_bytes(const struct fb_device_cache *cache)
{
    return cache->chunk_entries * cache->entry_bytes;
}
#endif
