/* assemble.c -- the copies and moves that put a batch together on the device. */
#include "device_stage/assemble.h"

#include <string.h>

#include "base/size.h"

#define ENTRY_ALIGN 16 /* of a field's part in an entry: what a work item moves */

/* Which way a move goes: from the cache, or to it. */
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

/* ---- What crosses the bus ---- */

static int upload(struct fb_assembly *assembly, uint64_t offset, uint64_t bytes,
                  forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    const struct fb_device_ops *ops = assembly->device->ops;

    if (bytes == 0)
        return FOREBAY_OK;
    assembly->copied += bytes;
    return (batch->staging.pinned.memory ? ops->upload : ops->upload_now)(
        assembly->device, assembly->stream, batch->upload.buffer.memory, offset,
        (const char *)batch->memory + offset, bytes, error);
}

/* Where item `item` of the sample at `position` begins in the batch. */
static uint64_t item_offset(const struct fb_assembly *assembly, unsigned field, uint64_t position,
                            unsigned item, uint64_t *room)
{
    const struct fb_batch *batch = assembly->batch;
    const char *at = fb_collation_item(assembly->collation, batch->placed, batch->memory, field,
                                       position, item, room);

    return (uint64_t)(at - (const char *)batch->memory);
}

/* Runs of samples that are not cached, of one field. */
static int upload_field(struct fb_assembly *assembly, unsigned o, forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    unsigned field = assembly->collation->outputs[o].field;
    unsigned items = assembly->collation->source->fields[field].items;
    uint64_t from = batch->placed[o].offset, position = 0, room;
    int status = FOREBAY_OK;

    for (uint64_t at = 0; at < batch->count && !status; at++) {
        if (!batch->kept[at])
            continue;
        if (fb_place_is_there(batch->places[at])) {
            uint64_t begin = item_offset(assembly, field, position, 0, &room);

            status = upload(assembly, from, begin - from, error);
            from = item_offset(assembly, field, position, items - 1, &room) + room;
        }
        position++;
    }
    if (!status)
        status = upload(assembly, from, batch->placed[o].offset + batch->placed[o].bytes - from,
                        error);
    return status;
}

/* ---- What stays on the device ---- */

/* One piece, in the cache and in the batch. */
struct move {
    enum which which;
    uint64_t chunk, entry; /* in the cache: which chunk, where in it */
    uint64_t there;        /* in the batch */
    uint64_t bytes;
};

typedef int (*move_fn)(const struct fb_assembly *assembly, const struct move *move,
                       forebay_error *error);

static struct move move_at(const struct fb_device_cache *cache, uint32_t what, uint64_t place)
{
    return (struct move){ .which = fb_place_is_there(what) ? CACHED : KEPT,
                          .chunk = place / cache->chunk_entries,
                          .entry = place % cache->chunk_entries * cache->entry_bytes };
}

static int sample_walk(const struct fb_assembly *assembly, uint64_t at, uint64_t position,
                       move_fn take, forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    uint32_t place = batch->places[at];
    struct move move = move_at(assembly->cache, place, place & ~FB_PLACE_KEEP);
    int status = FOREBAY_OK;

    for (unsigned o = 0; o < assembly->collation->output_count && !status; o++) {
        if (!is_data(assembly->collation, o))
            continue;
        move.bytes = batch->placed[o].bytes / batch->shown.samples;
        move.there = batch->placed[o].offset + position * move.bytes;
        if (move.bytes)
            status = take(assembly, &move, error);
        move.entry += fb_round_up(move.bytes, ENTRY_ALIGN);
    }
    return status;
}

static int units_walk(const struct fb_assembly *assembly, uint64_t at, uint64_t position,
                      move_fn take, forebay_error *error)
{
    const struct fb_device_cache *cache = assembly->cache;
    const struct fb_batch *batch = assembly->batch;
    struct fb_part *parts = cache->parts[1];
    unsigned count = cache->source->ops->parts(cache->source, batch->samples[at], parts);
    int status = FOREBAY_OK;

    for (unsigned p = 0; p < count && !status; p++) {
        const struct fb_column *column = &assembly->collation->columns[parts[p].field];
        uint64_t within = parts[p].rows == FB_ALL_ROWS ? 0 : parts[p].first_row * column->cell_out;
        struct move move;

        if (!column->wanted)
            continue;
        move = move_at(cache, batch->places[at], cache->place_of[parts[p].unit] - 1);
        move.entry += within;
        move.there = item_offset(assembly, parts[p].field, position, parts[p].item, &move.bytes);
        if (within + move.bytes > cache->entry_bytes)
            return fb_fail(error, FOREBAY_BAD_DATA,
                           "device.cache: a unit is larger than any was when the source opened");
        if (move.bytes)
            status = take(assembly, &move, error);
    }
    return status;
}

/* Every piece of the batch that is cached or will be. */
static int moves_walk(const struct fb_assembly *assembly, move_fn take, forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    uint64_t position = 0;
    int status = FOREBAY_OK;

    for (uint64_t at = 0; at < batch->count && !status; at++) {
        if (!batch->kept[at])
            continue;
        if (batch->places[at] < FB_PLACE_WANTED)
            status = (assembly->cache->source ? units_walk : sample_walk)(assembly, at, position,
                                                                          take, error);
        position++;
    }
    return status;
}

static int move_count(const struct fb_assembly *assembly, const struct move *move,
                      forebay_error *error)
{
    struct fb_moves *moves = &assembly->cache->moves;
    uint64_t *most = &moves->most[move->which][move->chunk];

    (void)error;
    moves->count[move->which][move->chunk]++;
    *most = fb_max(*most, move->bytes);
    return FOREBAY_OK;
}

static uint64_t *list_of(const struct fb_assembly *assembly)
{
    const struct fb_batch *batch = assembly->batch;

    return (uint64_t *)(void *)((char *)batch->memory + batch->span - assembly->collation->tail);
}

static int move_write(const struct fb_assembly *assembly, const struct move *move,
                      forebay_error *error)
{
    uint64_t number = assembly->cache->moves.next[move->which][move->chunk]++;
    uint64_t *triple = list_of(assembly) + 3 * number;

    (void)error;
    triple[0] = move->which == CACHED ? move->entry : move->there;
    triple[1] = move->which == CACHED ? move->there : move->entry;
    triple[2] = move->bytes;
    return FOREBAY_OK;
}

/* All lists, one behind the other in the slot's tail; *out: how many moves there are. */
static int lists_write(const struct fb_assembly *assembly, uint64_t *out, forebay_error *error)
{
    struct fb_moves *moves = &assembly->cache->moves;
    uint64_t total = 0;
    int status;

    memset(moves, 0, sizeof(*moves));
    status = moves_walk(assembly, move_count, error);
    if (status)
        return status;
    for (unsigned which = CACHED; which <= KEPT; which++)
        for (unsigned c = 0; c < FB_DEVICE_CHUNKS; c++) {
            moves->next[which][c] = total;
            total += moves->count[which][c];
        }
    *out = total;
    return moves_walk(assembly, move_write, error);
}

/* A kernel does all moves of a list at once; without one they are made one by one. */
static int list_run(const struct fb_assembly *assembly, enum which which, unsigned chunk,
                    forebay_error *error)
{
    const struct fb_moves *moves = &assembly->cache->moves;
    const struct fb_batch *batch = assembly->batch;
    const struct fb_device_ops *ops = assembly->device->ops;
    void *buffer = batch->upload.buffer.memory, *cached = assembly->cache->chunks[chunk];
    void *to = which == CACHED ? buffer : cached, *from = which == CACHED ? cached : buffer;
    uint64_t count = moves->count[which][chunk], most = moves->most[which][chunk];
    const uint64_t *list = list_of(assembly) + 3 * (moves->next[which][chunk] - count);
    struct fb_launch launch = {
        .kernel = FB_KERNEL_GATHER,
        .memories = { to, from, buffer },
        .memory_count = 3,
        .numbers = { (uint64_t)((const char *)list - (const char *)batch->memory), count, most },
        .number_count = 3,
        .items = count * ((most + 15) / 16),
    };
    int status = ops->launch(assembly->device, assembly->stream, &launch, error);

    if (status != FOREBAY_NOT_BUILT)
        return status;
    status = FOREBAY_OK;
    for (uint64_t i = 0; i < count && !status; i++)
        status = ops->move(assembly->device, assembly->stream, to, list[3 * i + 1], from,
                           list[3 * i], list[3 * i + 2], error);
    return status;
}

/* What is there is gathered before anything is kept: the two may touch the same rows. */
static int lists_run(const struct fb_assembly *assembly, forebay_error *error)
{
    int status = FOREBAY_OK;

    for (unsigned which = CACHED; which <= KEPT; which++)
        for (unsigned c = 0; c < FB_DEVICE_CHUNKS && !status; c++)
            if (assembly->cache->moves.count[which][c])
                status = list_run(assembly, which, c, error);
    return status;
}

int fb_assembly_start(struct fb_assembly *assembly, forebay_error *error)
{
    const struct fb_batch *batch = assembly->batch;
    uint64_t total = 0;
    int status = FOREBAY_OK;

    for (unsigned o = 0; o < assembly->collation->output_count && !status; o++)
        status = is_data(assembly->collation, o)
                     ? upload_field(assembly, o, error)
                     : upload(assembly, batch->placed[o].offset, batch->placed[o].bytes, error);
    if (!status)
        status = lists_write(assembly, &total, error);
    if (!status)
        status = upload(assembly, batch->span - assembly->collation->tail,
                        3 * total * sizeof(uint64_t), error);
    return status ? status : lists_run(assembly, error);
}

static int move_bring_back(const struct fb_assembly *assembly, const struct move *move,
                           forebay_error *error)
{
    if (move->which == KEPT)
        return FOREBAY_OK;
    return assembly->device->ops->download(assembly->device, assembly->stream,
                                           (char *)assembly->batch->memory + move->there,
                                           assembly->cache->chunks[move->chunk], move->entry,
                                           move->bytes, error);
}

int fb_assembly_bring_back(const struct fb_assembly *assembly, forebay_error *error)
{
    return moves_walk(assembly, move_bring_back, error);
}
