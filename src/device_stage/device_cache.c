/* device_cache.c -- places of samples or units in device memory, and the chunks they lie in. */
#include "device_stage/device_cache.h"

#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"

#define CHUNK_BYTES (64 * FB_MIB) /* a chunk is about this, or more where there would be too many */

static uint64_t bit_words(uint64_t bits)
{
    return bits / 64 + 1;
}

/* ---- Open and close ---- */

static int bits_open(struct fb_device_cache *cache, forebay_error *error)
{
    const struct fb_source *source = cache->source;
    uint64_t units = source->unit_count;

    cache->bit_count = units;
    if (source->sliced) {
        cache->first_bit = fb_block_new(cache->budget, FB_STAGE_INDEX, units + 1,
                                        sizeof(*cache->first_bit),
                                        "the index of the device's cache", error);
        if (!cache->first_bit)
            return error->status;
        for (uint64_t u = 0; u < units; u++) {
            struct fb_extent extent = source->ops->extent(source, u);
            uint64_t rows = extent.known == FB_EXTENT_EXACT ? extent.rows : 0;

            if (!fb_add(cache->first_bit[u], rows, &cache->first_bit[u + 1]))
                return fb_fail(error, FOREBAY_BAD_DATA, "the source has more rows than there are");
        }
        cache->bit_count = cache->first_bit[units];
    }
    cache->there = fb_block_new(cache->budget, FB_STAGE_INDEX, bit_words(cache->bit_count),
                                sizeof(*cache->there), "the index of the device's cache", error);
    for (unsigned i = 0; i < 2 && cache->there; i++) {
        cache->parts[i] = fb_block_new(cache->budget, FB_STAGE_OTHER, source->parts_max,
                                       sizeof(struct fb_part), "a sample's parts", error);
        if (!cache->parts[i])
            return error->status;
    }
    return cache->there ? FOREBAY_OK : error->status;
}

static void sizes_set(struct fb_device_cache *cache, uint64_t limit)
{
    cache->most = cache->limit = fb_min(fb_min(limit, cache->key_count), FB_PLACES_MAX);
    cache->chunk_entries = fb_max(1, CHUNK_BYTES / cache->entry_bytes);
    cache->chunk_entries = fb_max(cache->chunk_entries,
                                  (cache->limit + FB_DEVICE_CHUNKS - 1) / FB_DEVICE_CHUNKS);
    cache->chunk_entries = fb_max(1, fb_min(cache->chunk_entries, cache->limit));
}

int fb_device_cache_open(struct fb_device_cache **out,
                         const struct fb_device_cache_options *options, forebay_error *error)
{
    struct fb_device_cache *cache = fb_block_new(options->budget, FB_STAGE_OTHER, 1, sizeof(*cache),
                                                 "the device's cache", error);
    int status = FOREBAY_OK;

    if (!cache)
        return error->status;
    if (options->policy->swaps_equal) {
        fb_block_free(options->budget, FB_STAGE_OTHER, cache, 1, sizeof(*cache));
        return fb_fail(error, FOREBAY_BAD_USE,
                       "device cache: policy %s evicts, and the device cache never does",
                       options->policy->name);
    }
    cache->device = options->device;
    cache->stream = options->stream;
    cache->lock = options->lock;
    cache->budget = options->budget;
    cache->collation = options->collation;
    cache->source = options->source;
    cache->key_count = options->source ? options->source->unit_count : options->samples;
    cache->entry_bytes = options->entry_bytes;
    cache->zeroed = options->source && options->collation->collate == FB_COLLATE_PAD;
    sizes_set(cache, options->limit);
    cache->place_of = fb_block_new(options->budget, FB_STAGE_INDEX, cache->key_count,
                                   sizeof(*cache->place_of), "the index of the device's cache",
                                   error);
    if (!cache->place_of)
        status = error->status;
    if (!status && cache->source)
        status = bits_open(cache, error);
    if (status) {
        fb_device_cache_close(cache);
        return status;
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
                                 fb_device_cache_chunk_bytes(cache, c));
    for (unsigned i = 0; i < 2 && cache->source; i++)
        fb_block_free(budget, FB_STAGE_OTHER, cache->parts[i], cache->source->parts_max,
                      sizeof(struct fb_part));
    fb_block_free(budget, FB_STAGE_INDEX, cache->there, bit_words(cache->bit_count),
                  sizeof(*cache->there));
    fb_block_free(budget, FB_STAGE_INDEX, cache->first_bit, cache->key_count + 1,
                  sizeof(*cache->first_bit));
    fb_block_free(budget, FB_STAGE_INDEX, cache->place_of, cache->key_count,
                  sizeof(*cache->place_of));
    fb_block_free(budget, FB_STAGE_OTHER, cache, 1, sizeof(*cache));
}

/* ---- Units: which rows are there ---- */

/* The bits of what a part takes of its unit: [*first, return value). */
static uint64_t part_bits(const struct fb_device_cache *cache, const struct fb_part *part,
                          uint64_t *first)
{
    if (!cache->first_bit) {
        *first = part->unit;
        return part->unit + 1;
    }
    *first = cache->first_bit[part->unit];
    if (part->rows == FB_ALL_ROWS)
        return cache->first_bit[part->unit + 1];
    *first += part->first_row;
    return *first + part->rows;
}

static bool bits_are_set(const uint64_t *bits, uint64_t first, uint64_t end)
{
    for (; first < end && first % 64; first++)
        if (!(bits[first / 64] >> first % 64 & 1))
            return false;
    for (; first + 64 <= end; first += 64)
        if (~bits[first / 64])
            return false;
    for (; first < end; first++)
        if (!(bits[first / 64] >> first % 64 & 1))
            return false;
    return true;
}

static void bits_put(uint64_t *bits, uint64_t first, uint64_t end, bool on)
{
    for (; first < end; first++) {
        uint64_t bit = (uint64_t)1 << first % 64;

        bits[first / 64] = on ? bits[first / 64] | bit : bits[first / 64] & ~bit;
    }
}

static bool is_wanted(const struct fb_device_cache *cache, const struct fb_part *part)
{
    return cache->collation->columns[part->field].wanted;
}

/* A window beyond the end of its series is made of rows and zeros: it is never kept. */
static bool is_whole(const struct fb_device_cache *cache, const struct fb_part *part)
{
    const struct fb_field *field = &cache->source->fields[part->field];

    return part->rows == FB_ALL_ROWS || field->vary > 0 || part->rows == field->shape[0];
}

static bool units_are_there_locked(const struct fb_device_cache *cache, const struct fb_part *parts,
                                   unsigned count)
{
    for (unsigned p = 0; p < count; p++) {
        uint64_t first, end = part_bits(cache, &parts[p], &first);

        if (is_wanted(cache, &parts[p]) &&
            (!is_whole(cache, &parts[p]) || !cache->place_of[parts[p].unit] ||
             !bits_are_set(cache->there, first, end)))
            return false;
    }
    return true;
}

static bool units_have_room_locked(const struct fb_device_cache *cache, const struct fb_part *parts,
                                   unsigned count)
{
    for (unsigned p = 0; p < count; p++)
        if (is_wanted(cache, &parts[p]) &&
            (!is_whole(cache, &parts[p]) ||
             (!cache->place_of[parts[p].unit] && cache->used >= cache->limit)))
            return false;
    return true;
}

/* ---- A batch is opened ---- */

/* The batch counts on the chunk of this place. */
static void count_on_locked(struct fb_device_cache *cache, struct fb_batch *batch, uint64_t place)
{
    uint64_t chunk = place / cache->chunk_entries, bit = (uint64_t)1 << chunk % 64;

    if (batch->upload.chunks[chunk / 64] & bit)
        return;
    batch->upload.chunks[chunk / 64] |= bit;
    cache->users[chunk]++;
}

static void find_units(struct fb_device_cache *cache, struct fb_batch *batch, uint64_t at)
{
    struct fb_part *parts = cache->parts[0];
    unsigned count = cache->source->ops->parts(cache->source, batch->samples[at], parts);

    pthread_mutex_lock(cache->lock);
    if (units_are_there_locked(cache, parts, count)) {
        batch->places[at] = 0;
        for (unsigned p = 0; p < count; p++)
            if (is_wanted(cache, &parts[p]))
                count_on_locked(cache, batch, cache->place_of[parts[p].unit] - 1);
    } else if (units_have_room_locked(cache, parts, count)) {
        batch->places[at] = FB_PLACE_WANTED;
    }
    pthread_mutex_unlock(cache->lock);
}

static void find_samples(struct fb_device_cache *cache, struct fb_batch *batch)
{
    uint64_t room;

    pthread_mutex_lock(cache->lock);
    room = cache->limit - fb_min(cache->limit, cache->used);
    for (uint64_t at = 0; at < batch->count; at++) {
        uint32_t place = cache->place_of[batch->samples[at]];

        if (place) {
            batch->places[at] = place - 1;
            count_on_locked(cache, batch, place - 1);
        } else if (room > 0) {
            batch->places[at] = FB_PLACE_WANTED;
            room--;
        }
    }
    pthread_mutex_unlock(cache->lock);
}

void fb_device_cache_find(struct fb_device_cache *cache, struct fb_batch *batch)
{
    if (!cache->source)
        find_samples(cache, batch);
    for (uint64_t at = 0; at < batch->count && cache->source; at++)
        find_units(cache, batch, at);
}

void fb_device_cache_forget_locked(struct fb_device_cache *cache, struct fb_batch *batch)
{
    for (uint64_t c = 0; c < FB_DEVICE_CHUNKS; c++)
        cache->users[c] -= batch->upload.chunks[c / 64] >> c % 64 & 1;
    memset(batch->upload.chunks, 0, sizeof(batch->upload.chunks));
    memset(batch->places, 0xff, batch->count * sizeof(*batch->places)); /* FB_PLACE_NONE */
}

bool fb_device_cache_wants(struct fb_device_cache *cache, const uint64_t *samples, uint64_t count)
{
    struct fb_part *parts = cache->parts[1];
    bool wants = false;

    if (!cache->source)
        return cache->used < cache->limit;
    for (uint64_t i = 0; i < count && !wants; i++) {
        unsigned parts_count = cache->source->ops->parts(cache->source, samples[i], parts);

        pthread_mutex_lock(cache->lock);
        wants = !units_are_there_locked(cache, parts, parts_count) &&
                units_have_room_locked(cache, parts, parts_count);
        pthread_mutex_unlock(cache->lock);
    }
    return wants;
}

/* ---- A batch is copied ---- */

bool fb_device_cache_is_tight(const struct fb_device_cache *cache, uint64_t more)
{
    struct fb_device_info info;

    cache->device->ops->info(cache->device, &info);
    return info.free_bytes != UINT64_MAX && info.free_bytes < more + info.total_bytes / 10;
}

static int chunk_zero(struct fb_device_cache *cache, void *memory, forebay_error *error)
{
    static const char zeros[256 * 1024];
    uint64_t bytes = fb_device_cache_chunk_bytes(cache, cache->chunk_count);
    int status = FOREBAY_OK;

    for (uint64_t at = 0; at < bytes && cache->zeroed && !status; at += sizeof(zeros))
        status = cache->device->ops->upload_now(cache->device, cache->stream, memory, at, zeros,
                                                fb_min(sizeof(zeros), bytes - at), error);
    return status;
}

static int chunk_new(struct fb_device_cache *cache, void **out, forebay_error *error)
{
    struct fb_device *device = cache->device;
    uint64_t bytes = fb_device_cache_chunk_bytes(cache, cache->chunk_count);
    int status;

    if (fb_device_cache_is_tight(cache, bytes))
        return fb_fail(error, FOREBAY_NO_MEMORY, "%s:%u: a tenth of its memory stays free",
                       device->ops->kind, device->number);
    status = device->ops->alloc(device, bytes, out, error);
    if (status)
        return status;
    status = chunk_zero(cache, *out, error);
    if (status)
        device->ops->free(device, *out, bytes);
    return status;
}

/* Chunks until `more` further entries have room. */
static int grow(struct fb_device_cache *cache, uint64_t more, forebay_error *error)
{
    uint64_t wanted = fb_min(cache->limit, cache->used + more);
    int status = FOREBAY_OK;

    while (!status && cache->chunk_count * cache->chunk_entries < wanted) {
        void *memory = NULL;

        status = chunk_new(cache, &memory, error);
        pthread_mutex_lock(cache->lock);
        if (status)
            cache->limit = cache->chunk_count * cache->chunk_entries;
        else
            cache->chunks[cache->chunk_count++] = memory;
        pthread_mutex_unlock(cache->lock);
    }
    return status;
}

/* A place for every unit of these parts, as far as there is room. */
static int units_place(struct fb_device_cache *cache, const struct fb_part *parts, unsigned count,
                       forebay_error *error)
{
    int status = FOREBAY_OK;

    for (unsigned p = 0; p < count && !status; p++) {
        if (!is_wanted(cache, &parts[p]) || cache->place_of[parts[p].unit] ||
            cache->used >= cache->limit)
            continue;
        status = grow(cache, 1, error);
        pthread_mutex_lock(cache->lock);
        if (cache->used < cache->limit)
            cache->place_of[parts[p].unit] = (uint32_t)++cache->used;
        pthread_mutex_unlock(cache->lock);
    }
    return status;
}

static int plan_units(struct fb_device_cache *cache, struct fb_batch *batch, forebay_error *error)
{
    struct fb_part *parts = cache->parts[1];
    int status = FOREBAY_OK, worst = FOREBAY_OK;

    for (uint64_t at = 0; at < batch->count; at++) {
        unsigned count;
        bool room;

        if (!batch->kept[at] || batch->places[at] < FB_PLACE_WANTED)
            continue;
        count = cache->source->ops->parts(cache->source, batch->samples[at], parts);
        pthread_mutex_lock(cache->lock);
        room = units_have_room_locked(cache, parts, count);
        pthread_mutex_unlock(cache->lock);
        if (!room)
            continue;
        status = units_place(cache, parts, count, error);
        worst = status ? status : worst;
        batch->places[at] = FB_PLACE_KEEP;
        for (unsigned p = 0; p < count; p++)
            if (is_wanted(cache, &parts[p]) && !cache->place_of[parts[p].unit])
                batch->places[at] = FB_PLACE_NONE;
    }
    return worst;
}

static int plan_samples(struct fb_device_cache *cache, struct fb_batch *batch,
                        forebay_error *error)
{
    int status = grow(cache, batch->count, error);
    uint64_t room = fb_min(cache->limit, cache->chunk_count * cache->chunk_entries);
    uint64_t next = cache->used;

    for (uint64_t i = 0; i < batch->count && next < room; i++)
        if (batch->places[i] >= FB_PLACE_WANTED && batch->kept[i] &&
            !cache->place_of[batch->samples[i]])
            batch->places[i] = FB_PLACE_KEEP | (uint32_t)next++;
    return status;
}

int fb_device_cache_plan(struct fb_device_cache *cache, struct fb_batch *batch,
                         forebay_error *error)
{
    for (uint64_t at = 0; at < batch->count; at++) /* an earlier try may have left some */
        if (fb_place_is_kept(batch->places[at]))
            batch->places[at] = FB_PLACE_WANTED;
    return cache->source ? plan_units(cache, batch, error) : plan_samples(cache, batch, error);
}

static void commit_units(struct fb_device_cache *cache, const struct fb_batch *batch)
{
    struct fb_part *parts = cache->parts[1];

    for (uint64_t at = 0; at < batch->count; at++) {
        unsigned count;

        if (!fb_place_is_kept(batch->places[at]))
            continue;
        count = cache->source->ops->parts(cache->source, batch->samples[at], parts);
        pthread_mutex_lock(cache->lock);
        for (unsigned p = 0; p < count; p++) {
            uint64_t first, end = part_bits(cache, &parts[p], &first);

            if (is_wanted(cache, &parts[p]))
                bits_put(cache->there, first, end, true);
        }
        pthread_mutex_unlock(cache->lock);
    }
}

void fb_device_cache_commit(struct fb_device_cache *cache, struct fb_batch *batch)
{
    if (cache->source)
        commit_units(cache, batch);
    pthread_mutex_lock(cache->lock);
    for (uint64_t i = 0; i < batch->count; i++) {
        bool there = fb_place_is_there(batch->places[i]);

        cache->hits += there && batch->kept[i];
        cache->misses += !there && batch->kept[i];
        if (cache->source || !fb_place_is_kept(batch->places[i]))
            continue;
        cache->place_of[batch->samples[i]] = (batch->places[i] & ~FB_PLACE_KEEP) + 1;
        cache->used++;
    }
    fb_device_cache_forget_locked(cache, batch);
    pthread_mutex_unlock(cache->lock);
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
    for (uint64_t key = 0; key < cache->key_count; key++) {
        struct fb_part all = { .unit = key, .rows = FB_ALL_ROWS };
        uint64_t first, end;

        if (cache->place_of[key] <= first_gone)
            continue;
        cache->place_of[key] = 0;
        if (cache->source) {
            end = part_bits(cache, &all, &first);
            bits_put(cache->there, first, end, false);
        }
    }
    return memory;
}
