#include "pipeline/assemble.h"

#include <string.h>

#include "base/size.h"

#define ENTRY_ALIGN 16 /* of a field's part in an entry: what a work item moves */

/* Which samples a list is of. */
enum which { CACHED, KEPT };

static bool is_data(const struct fb_collation *collation, unsigned o)
{
    return collation->outputs[o].role == FB_OUTPUT_DATA;
}

uint64_t fb_assembly_entry_bytes(const struct fb_collation *collation,
                                 const struct fb_placed *placed, uint64_t samples)
{
    uint64_t bytes = 0;

    for (unsigned o = 0; o < collation->output_count; o++)
        if (is_data(collation, o))
            bytes += fb_round_up(placed[o].bytes / samples, ENTRY_ALIGN);
    return bytes;
}

static bool is_cached(const struct fb_batch *batch, uint64_t at)
{
    return batch->places[at] < FB_PLACE_KEEP;
}

/* ---- What crosses the bus ---- */

static int upload(struct fb_assembly *assembly, uint64_t offset, uint64_t bytes,
                  forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    const struct fb_device_ops *ops = assembly->device->ops;

    assembly->copied += bytes;
    return (batch->staging.pinned.memory ? ops->upload : ops->upload_now)(
        assembly->device, assembly->stream, batch->upload.buffer.memory, offset,
        (const char *)batch->memory + offset, bytes, error);
}

/* Runs of samples that are not cached, of one field. */
static int upload_field(struct fb_assembly *assembly, unsigned o, forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    uint64_t item = batch->placed[o].bytes / batch->shown.samples, position = 0, from = 0;
    int status = FOREBAY_OK;

    for (uint64_t at = 0; at < batch->count && !status; at++) {
        if (!batch->kept[at])
            continue;
        if (is_cached(batch, at)) {
            status = upload(assembly, batch->placed[o].offset + from * item,
                            (position - from) * item, error);
            from = position + 1;
        }
        position++;
    }
    if (!status)
        status = upload(assembly, batch->placed[o].offset + from * item, (position - from) * item,
                        error);
    return status;
}

/* ---- What stays on the device ---- */

/* One list: samples of `which` in one chunk, one field of them. */
struct list {
    enum which which;
    uint64_t chunk;
    unsigned output;
    uint64_t item;   /* bytes of each */
    uint64_t part;   /* where the field begins in an entry */
    uint64_t *pairs; /* in the slot: from, to */
    uint64_t count;
};

/* The place of sample `at`, if the list is of such and it is in its chunk; else NONE. */
static uint32_t place_in(const struct fb_assembly *assembly, const struct list *list, uint64_t at)
{
    const struct fb_batch *batch = assembly->batch;
    uint32_t place = batch->places[at];

    if (place == FB_PLACE_NONE || !batch->kept[at] ||
        (list->which == CACHED) != is_cached(batch, at))
        return FB_PLACE_NONE;
    place &= ~FB_PLACE_KEEP;
    return place / assembly->cache->chunk_entries == list->chunk ? place : FB_PLACE_NONE;
}

/* Count what is in the list and, with `write`, write it into the slot. */
static void list_fill(const struct fb_assembly *assembly, struct list *list, bool write)
{
    const struct fb_device_cache *cache = assembly->cache;
    const struct fb_batch *batch = assembly->batch;
    uint64_t position = 0;

    list->count = 0;
    for (uint64_t at = 0; at < batch->count; at++) {
        uint32_t place = place_in(assembly, list, at);
        uint64_t *pair = list->pairs + 2 * list->count;

        if (place != FB_PLACE_NONE && write) {
            uint64_t entry = place % cache->chunk_entries * cache->entry_bytes + list->part;
            uint64_t there = batch->placed[list->output].offset + position * list->item;

            pair[0] = list->which == CACHED ? entry : there;
            pair[1] = list->which == CACHED ? there : entry;
        }
        list->count += place != FB_PLACE_NONE;
        position += batch->kept[at];
    }
}

/* A kernel does all moves of a list at once; without one they are made one by one. */
static int list_run(const struct fb_assembly *assembly, const struct list *list,
                    forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    const struct fb_device_ops *ops = assembly->device->ops;
    void *buffer = batch->upload.buffer.memory, *chunk = assembly->cache->chunks[list->chunk];
    void *to = list->which == CACHED ? buffer : chunk;
    void *from = list->which == CACHED ? chunk : buffer;
    struct fb_launch launch = {
        .kernel = FB_KERNEL_GATHER,
        .memories = { to, from, buffer },
        .memory_count = 3,
        .numbers = { (uint64_t)((const char *)list->pairs - (const char *)batch->memory),
                     list->count, list->item },
        .number_count = 3,
        .items = list->count * ((list->item + 15) / 16),
    };
    int status = ops->launch(assembly->device, assembly->stream, &launch, error);

    if (status != FOREBAY_NOT_BUILT)
        return status;
    status = FOREBAY_OK;
    for (uint64_t i = 0; i < list->count && !status; i++)
        status = ops->move(assembly->device, assembly->stream, to, list->pairs[2 * i + 1], from,
                           list->pairs[2 * i], list->item, error);
    return status;
}

/* All lists of the batch, one behind the other: written into the slot, or run. `end` is where the
 * last one ends. */
static int lists_walk(const struct fb_assembly *assembly, bool run, uint64_t **end,
                      forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    uint64_t tail = batch->span - assembly->collation->tail;
    struct list list = { .pairs = (uint64_t *)(void *)((char *)batch->memory + tail) };
    int status = FOREBAY_OK;

    for (list.chunk = 0; list.chunk < assembly->cache->chunk_count; list.chunk++)
        for (list.which = CACHED; list.which <= KEPT; list.which++) {
            list.part = 0;
            for (list.output = 0; list.output < assembly->collation->output_count; list.output++) {
                if (!is_data(assembly->collation, list.output))
                    continue;
                list.item = batch->placed[list.output].bytes / batch->shown.samples;
                list_fill(assembly, &list, !run); /* the slot is being copied when they run */
                if (run && list.count && list.item)
                    status = list_run(assembly, &list, error);
                if (status)
                    return status;
                list.part += fb_round_up(list.item, ENTRY_ALIGN);
                list.pairs += 2 * list.count;
            }
        }
    *end = list.pairs;
    return FOREBAY_OK;
}

int fb_assembly_start(struct fb_assembly *assembly, forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    uint64_t tail = batch->span - assembly->collation->tail, *end;
    int status = FOREBAY_OK;

    for (unsigned o = 0; o < assembly->collation->output_count && !status; o++)
        status = is_data(assembly->collation, o)
                     ? upload_field(assembly, o, error)
                     : upload(assembly, batch->placed[o].offset, batch->placed[o].bytes, error);
    if (!status)
        status = lists_walk(assembly, false, &end, error);
    if (!status)
        status = upload(assembly, tail, (uint64_t)((char *)end - (char *)batch->memory) - tail,
                        error);
    if (!status)
        status = lists_walk(assembly, true, &end, error);
    return status;
}

int fb_assembly_bring_back(const struct fb_assembly *assembly, forebay_error *error)
{
    const struct fb_device_cache *cache = assembly->cache;
    const struct fb_batch *batch = assembly->batch;
    uint64_t part = 0;
    int status = FOREBAY_OK;

    for (unsigned o = 0; o < assembly->collation->output_count; o++) {
        uint64_t item = batch->placed[o].bytes / batch->shown.samples, position = 0;

        if (!is_data(assembly->collation, o))
            continue;
        for (uint64_t at = 0; at < batch->count && !status; at++) {
            uint32_t place = batch->places[at];

            if (batch->kept[at] && is_cached(batch, at))
                status = assembly->device->ops->download(
                    assembly->device, assembly->stream,
                    (char *)batch->memory + batch->placed[o].offset + position * item,
                    cache->chunks[place / cache->chunk_entries],
                    place % cache->chunk_entries * cache->entry_bytes + part, item, error);
            position += batch->kept[at];
        }
        part += fb_round_up(item, ENTRY_ALIGN);
    }
    return status;
}
