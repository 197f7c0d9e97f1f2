#include "pipeline/device_cache.h"

#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"

#define CHUNK_BYTES (64 * FB_MIB) /* a chunk is about this, or more where there would be too many */

int fb_device_cache_open(struct fb_device_cache **out, struct fb_device *device,
                         pthread_mutex_t *lock, struct fb_budget *budget, uint64_t samples,
                         uint64_t entry_bytes, uint64_t limit, forebay_error *error)
{
    struct fb_device_cache *cache = fb_block_new(budget, FB_STAGE_OTHER, 1, sizeof(*cache),
                                                 "the device's cache", error);

    if (!cache)
        return error ? error->status : FOREBAY_NO_MEMORY;
    cache->device = device;
    cache->lock = lock;
    cache->budget = budget;
    cache->sample_count = samples;
    cache->entry_bytes = entry_bytes;
    cache->limit = fb_min(fb_min(limit, samples), FB_PLACES_MAX);
    cache->chunk_entries = fb_max(1, CHUNK_BYTES / entry_bytes);
    cache->chunk_entries = fb_max(cache->chunk_entries,
                                  (cache->limit + FB_DEVICE_CHUNKS - 1) / FB_DEVICE_CHUNKS);
    cache->chunk_entries = fb_max(1, fb_min(cache->chunk_entries, cache->limit));
    cache->place_of = fb_block_new(budget, FB_STAGE_INDEX, samples, sizeof(*cache->place_of),
                                   "the index of the device's cache", error);
    if (!cache->place_of) {
        fb_device_cache_close(cache);
        return error ? error->status : FOREBAY_NO_MEMORY;
    }
    *out = cache;
    return FOREBAY_OK;
}

void fb_device_cache_close(struct fb_device_cache *cache)
{
    struct fb_budget *budget;

    if (!cache)
        return;
    budget = cache->budget;
    for (uint64_t c = 0; c < cache->chunk_count; c++)
        cache->device->ops->free(cache->device, cache->chunks[c],
                                 fb_device_cache_chunk_bytes(cache));
    fb_block_free(budget, FB_STAGE_INDEX, cache->place_of, cache->sample_count,
                  sizeof(*cache->place_of));
    fb_block_free(budget, FB_STAGE_OTHER, cache, 1, sizeof(*cache));
}

void fb_device_cache_find_locked(struct fb_device_cache *cache, const uint64_t *samples,
                                 uint64_t count, uint32_t *places)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t place = cache->place_of[samples[i]];

        places[i] = place ? place - 1 : FB_PLACE_NONE;
        if (place)
            cache->users[(place - 1) / cache->chunk_entries]++;
    }
}

void fb_device_cache_forget_locked(struct fb_device_cache *cache, uint32_t *places,
                                   uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (places[i] < FB_PLACE_KEEP)
            cache->users[places[i] / cache->chunk_entries]--;
        places[i] = FB_PLACE_NONE;
    }
}

bool fb_device_cache_is_tight(const struct fb_device_cache *cache, uint64_t more)
{
    struct fb_device_info info;

    cache->device->ops->info(cache->device, &info);
    return info.free_bytes != UINT64_MAX && info.free_bytes < more + info.total_bytes / 10;
}

int fb_device_cache_grow(struct fb_device_cache *cache, uint64_t more, forebay_error *error)
{
    struct fb_device *device = cache->device;
    uint64_t bytes = fb_device_cache_chunk_bytes(cache);
    uint64_t wanted = fb_min(cache->limit, cache->used + more);
    int status = FOREBAY_OK;

    while (!status && cache->chunk_count * cache->chunk_entries < wanted) {
        void *memory = NULL;

        if (fb_device_cache_is_tight(cache, bytes))
            status = fb_fail(error, FOREBAY_NO_MEMORY, "%s:%u: a tenth of its memory stays free",
                             device->ops->kind, device->number);
        else
            status = device->ops->alloc(device, bytes, &memory, error);
        pthread_mutex_lock(cache->lock);
        if (status)
            cache->limit = cache->chunk_count * cache->chunk_entries;
        else
            cache->chunks[cache->chunk_count++] = memory;
        pthread_mutex_unlock(cache->lock);
    }
    return status;
}

void fb_device_cache_plan_locked(struct fb_device_cache *cache, const uint64_t *samples,
                                 const bool *kept, uint64_t count, uint32_t *places)
{
    uint64_t room = fb_min(cache->limit, cache->chunk_count * cache->chunk_entries);
    uint64_t next = cache->used;

    for (uint64_t i = 0; i < count && next < room; i++)
        if (places[i] == FB_PLACE_NONE && kept[i] && !cache->place_of[samples[i]])
            places[i] = FB_PLACE_KEEP | (uint32_t)next++;
}

void fb_device_cache_commit_locked(struct fb_device_cache *cache, const uint64_t *samples,
                                   const bool *kept, uint64_t count, uint32_t *places)
{
    for (uint64_t i = 0; i < count; i++) {
        bool there = places[i] < FB_PLACE_KEEP;

        cache->hits += there && kept[i];
        cache->misses += !there && kept[i];
        if (there || places[i] == FB_PLACE_NONE)
            continue;
        cache->place_of[samples[i]] = (places[i] & ~FB_PLACE_KEEP) + 1;
        cache->used++;
    }
    fb_device_cache_forget_locked(cache, places, count);
}

void *fb_device_cache_drop_locked(struct fb_device_cache *cache)
{
    uint64_t last = cache->chunk_count - 1, first_gone = last * cache->chunk_entries;
    void *memory;

    if (cache->chunk_count == 0 || cache->users[last])
        return NULL;
    memory = cache->chunks[last];
    cache->chunk_count = last;
    cache->limit = fb_min(cache->limit, first_gone);
    cache->used = fb_min(cache->used, first_gone);
    for (uint64_t s = 0; s < cache->sample_count; s++)
        if (cache->place_of[s] > first_gone)
            cache->place_of[s] = 0;
    return memory;
}
