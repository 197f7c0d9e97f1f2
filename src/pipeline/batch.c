#include "pipeline/batch.h"

#include <string.h>

#include "memory/block.h"

/* One heap block: the struct and its arrays, each aligned by its own size. */
struct parts_of_header {
    uint64_t samples, placed, fields, places, kept, bytes;
};

static struct parts_of_header header_parts(const struct fb_collation *collation)
{
    struct parts_of_header parts;
    uint64_t outputs = collation->output_count, size = collation->batch_size;

    parts.samples = (sizeof(struct fb_batch) + 15) & ~(uint64_t)15;
    parts.placed = parts.samples + size * sizeof(uint64_t);
    parts.fields = parts.placed + outputs * sizeof(struct fb_placed);
    parts.places = parts.fields + outputs * sizeof(forebay_field);
    parts.kept = parts.places + (collation->tail ? size * sizeof(uint32_t) : 0);
    parts.bytes = parts.kept + size * sizeof(bool);
    return parts;
}

uint64_t fb_batch_header_bytes(const struct fb_collation *collation)
{
    return header_parts(collation).bytes;
}

int fb_batch_new(struct fb_batch **out, struct fb_pipeline *pipeline,
                 const struct fb_collation *collation, struct fb_budget *budget,
                 forebay_error *error)
{
    struct parts_of_header parts = header_parts(collation);
    char *block = fb_block_new(budget, FB_STAGE_SLOTS, 1, parts.bytes, "a batch's header", error);
    struct fb_batch *batch = (struct fb_batch *)(void *)block;

    if (!batch)
        return error ? error->status : FOREBAY_NO_MEMORY;
    batch->pipeline = pipeline;
    batch->samples = (uint64_t *)(void *)(block + parts.samples);
    batch->placed = (struct fb_placed *)(void *)(block + parts.placed);
    batch->fields = (forebay_field *)(void *)(block + parts.fields);
    if (collation->tail)
        batch->places = (uint32_t *)(void *)(block + parts.places);
    batch->kept = (bool *)(block + parts.kept);
    *out = batch;
    return FOREBAY_OK;
}

void fb_batch_free(struct fb_batch *batch, const struct fb_collation *collation,
                   struct fb_budget *budget)
{
    if (batch)
        fb_block_free(budget, FB_STAGE_SLOTS, batch, 1, fb_batch_header_bytes(collation));
}

void fb_batch_begin(struct fb_batch *batch, struct fb_cursor at, uint64_t first, uint64_t count)
{
    batch->next = NULL;
    batch->at = at;
    batch->first = first;
    batch->count = count;
    batch->run = 1;
    batch->taken = batch->done = 0;
    batch->active = 0;
    batch->cancelled = batch->ready = batch->sealed = false;
    batch->hits = batch->misses = batch->bytes_read = batch->skipped = batch->replaced = 0;
    batch->error_at = UINT64_MAX;
    batch->failure_count = 0;
    batch->upload.state = FB_UPLOAD_NONE;
    batch->upload.stream_count = 0;
    memset(batch->kept, 1, count * sizeof(bool));
    if (batch->places)
        memset(batch->places, 0xff, count * sizeof(*batch->places)); /* FB_PLACE_NONE */
}

static void write_index(struct fb_batch *batch)
{
    int64_t *index = (int64_t *)(void *)((char *)batch->memory + batch->placed[0].offset);

    for (uint64_t at = 0; at < batch->count; at++)
        index[at] = (int64_t)batch->samples[at];
}

void fb_batch_seal(struct fb_batch *batch, const struct fb_collation *collation)
{
    uint64_t left = batch->count, world = batch->at.world ? batch->at.world : 1;

    write_index(batch);
    if (batch->skipped)
        left = fb_collation_compact(collation, batch->placed, batch->memory, batch->count,
                                    batch->kept);
    batch->bytes = 0;
    for (unsigned o = 0; o < collation->output_count; o++) {
        const struct fb_placed *placed = &batch->placed[o];

        batch->fields[o] = (forebay_field){ .name = collation->outputs[o].name,
                                            .dtype = collation->outputs[o].dtype,
                                            .ndim = placed->ndim,
                                            .shape = placed->shape,
                                            .data = (char *)batch->memory + placed->offset,
                                            .bytes = placed->bytes };
        batch->bytes += placed->bytes;
    }
    batch->shown = (forebay_batch){ .epoch = batch->at.epoch,
                                    .number = (batch->at.start / world + batch->first) /
                                              collation->batch_size,
                                    .samples = left,
                                    .bytes = batch->bytes,
                                    .field_count = collation->output_count,
                                    .fields = batch->fields,
                                    .device_type = 1 };
}
