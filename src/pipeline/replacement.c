#include "pipeline/replacement.h"

#include <string.h>

/* One of the order's own samples: validation must not stand in for training. */
static uint64_t draw(const struct fb_fetcher *fetcher, uint64_t epoch, uint64_t sample, unsigned k)
{
    struct fb_random random = { fb_mix2(fb_mix2(fetcher->seed, epoch), sample) };

    random.state += k * 0x9e3779b97f4a7c15u; /* the k-th of that sample's own stream */
    return fb_order_any(fetcher->order, &random);
}

/* Only load() knows why a unit is broken; of such a one it reads nothing. */
static void say_why(const struct fb_fetcher *fetcher, struct fb_worker_state *state, uint64_t unit,
                    forebay_error *error)
{
    struct fb_load load = { .unit = unit, .to = state->parts, .scratch = state->scratch,
                            .reader = state->reader };

    if (!fetcher->source->ops->load(fetcher->source, &load, error))
        fb_fail(error, FOREBAY_BAD_DATA, "it was broken when the source was opened");
}

bool fb_sample_is_broken(const struct fb_fetcher *fetcher, struct fb_worker_state *state, uint64_t sample,
                         forebay_error *error)
{
    unsigned count = fetcher->source->ops->parts(fetcher->source, sample, state->parts);

    for (unsigned p = 0; p < count; p++) {
        const struct fb_part *part = &state->parts[p];

        if (!fetcher->collation->columns[part->field].wanted ||
            fb_fetch_extent(fetcher, state, part).known != FB_EXTENT_BROKEN)
            continue;
        if (error)
            say_why(fetcher, state, part->unit, error);
        return true;
    }
    return false;
}

uint64_t fb_replacement_for_broken(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                                uint64_t epoch, uint64_t sample)
{
    for (unsigned k = 0; k < FB_REPLACEMENT_TRIES; k++) {
        uint64_t other = draw(fetcher, epoch, sample, k);

        if (!fb_sample_is_broken(fetcher, state, other, NULL))
            return other;
    }
    return sample;
}

/* Would this part fit in the place the batch has for sample `at`? */
static bool part_fits(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                      struct fb_batch *batch, uint64_t at, const struct fb_part *part)
{
    const struct fb_collation *collation = fetcher->collation;
    const struct fb_column *column = &collation->columns[part->field];
    const struct fb_placed *data = &batch->placed[column->data];
    struct fb_extent extent;
    uint64_t room;

    if (!column->wanted)
        return true;
    extent = fb_fetch_extent(fetcher, state, part);
    if (extent.known == FB_EXTENT_BROKEN)
        return false;
    if (column->collate == FB_COLLATE_STACK)
        return extent.rows == data->rows && extent.columns == data->columns;
    if (column->collate == FB_COLLATE_PAD)
        return extent.rows <= data->rows && extent.columns <= data->columns;
    fb_collation_item(collation, batch->placed, batch->memory, part->field, at, part->item, &room);
    return extent.columns == data->columns &&
           extent.rows * extent.columns * column->cell_out <= room;
}

static bool sample_fits(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                        struct fb_batch *batch, uint64_t at, uint64_t sample)
{
    unsigned count = fetcher->source->ops->parts(fetcher->source, sample, state->parts);

    for (unsigned p = 0; p < count; p++)
        if (!part_fits(fetcher, state, batch, at, &state->parts[p]))
            return false;
    return true;
}

/* The lengths of padded fields are now those of the replacement. Each is one sample's own entry. */
static void note_lengths(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                         struct fb_batch *batch, uint64_t at)
{
    unsigned count = fetcher->source->ops->parts(fetcher->source, batch->samples[at], state->parts);

    for (unsigned p = 0; p < count; p++) {
        const struct fb_part *part = &state->parts[p];
        const struct fb_column *column = &fetcher->collation->columns[part->field];

        if (column->wanted && column->collate == FB_COLLATE_PAD)
            fb_collation_note(fetcher->collation, batch->placed, batch->memory, part->field, at,
                              part->item, fb_fetch_extent(fetcher, state, part));
    }
}

int fb_replacement_fetch(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                      struct fb_batch *batch, uint64_t at, forebay_error *error)
{
    uint64_t sample = batch->samples[at];
    int status = FOREBAY_BAD_DATA;

    for (unsigned k = 0; k < FB_REPLACEMENT_TRIES; k++) {
        uint64_t other = draw(fetcher, batch->at.epoch, sample, k);

        if (other == sample || !sample_fits(fetcher, state, batch, at, other))
            continue;
        batch->samples[at] = other;
        status = fb_fetch(fetcher, state, batch, at, error);
        if (!status)
            note_lengths(fetcher, state, batch, at);
        if (!status || !fb_status_is_data(status))
            return status;
    }
    batch->samples[at] = sample;
    return status;
}

/* Rows of one item as they are now, which its offsets may not say. */
static uint64_t rows_now(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                         const struct fb_batch *batch, uint64_t at, unsigned field, unsigned item)
{
    unsigned count = fetcher->source->ops->parts(fetcher->source, batch->samples[at], state->parts);

    for (unsigned p = 0; p < count && batch->kept[at]; p++) {
        const struct fb_part *part = &state->parts[p];

        if (part->field == field && part->item == item)
            return fb_fetch_extent(fetcher, state, part).rows;
    }
    return 0;
}

static void commit_field(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                         struct fb_batch *batch, unsigned field)
{
    const struct fb_column *column = &fetcher->collation->columns[field];
    struct fb_placed *data = &batch->placed[column->data];
    char *base = (char *)batch->memory + data->offset;
    int64_t *offsets = (int64_t *)(void *)((char *)batch->memory +
                                           batch->placed[column->extra].offset);
    uint64_t row = data->columns * column->cell_out;
    unsigned items = fetcher->source->fields[field].items;
    int64_t begin = offsets[0], end = 0;

    for (uint64_t number = 0; number < batch->count * items; number++) {
        int64_t next = offsets[number + 1];
        uint64_t rows = rows_now(fetcher, state, batch, number / items, field,
                                 (unsigned)(number % items));

        memmove(base + (uint64_t)end * row, base + (uint64_t)begin * row, rows * row);
        end += (int64_t)rows;
        offsets[number + 1] = end;
        begin = next;
    }
    data->rows = (uint64_t)end;
    data->shape[0] = end;
    data->bytes = (uint64_t)end * row;
}

void fb_replacement_commit(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                        struct fb_batch *batch)
{
    for (unsigned f = 0; f < fetcher->collation->field_count; f++) {
        const struct fb_column *column = &fetcher->collation->columns[f];

        if (column->wanted && column->extra && column->collate == FB_COLLATE_RAGGED)
            commit_field(fetcher, state, batch, f);
    }
}
