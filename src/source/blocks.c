#include "source/blocks.h"

#include "base/size.h"

uint32_t fb_blocks_together(uint64_t count, uint64_t total, uint64_t most)
{
    uint64_t mean = total / fb_max(1, count);
    uint64_t least = mean == most ? FB_TINY_BYTES : FB_SMALL_BYTES;

    uint64_t bytes = fb_min(fb_max(total / FB_BLOCK_PART, FB_SMALL_BYTES), FB_BLOCK_BYTES);

    if (count < 2 || mean >= least || most > FB_BLOCK_UNIT_MAX)
        return 1;
    return (uint32_t)fb_min((bytes - 1) / fb_max(1, mean) + 1, FB_BLOCK_UNITS);
}

static uint64_t together(const struct fb_field *field)
{
    return fb_max(1, field->together);
}

/* Units of one field. */
static uint64_t numbers(const struct fb_source *source)
{
    return source->unit_count / fb_max(1, source->field_count);
}

/* Those of them that are kept. */
static uint64_t places(const struct fb_source *source, const struct fb_choice *choice)
{
    return choice->count ? choice->count : numbers(source);
}

static uint64_t blocks_of(const struct fb_source *source, const struct fb_choice *choice,
                          uint32_t field)
{
    uint64_t each = together(&source->fields[field]), all = places(source, choice);

    return all / each + (all % each != 0);
}

/* Of every unit of the field that is whole, if all are alike; else 0. */
static uint64_t equal_bytes(const struct fb_source *source, const struct fb_field *field)
{
    if (field->finished)
        return 0;
    if (field->vary) /* they may, but perhaps they do not */
        return source->field_count == 1 ? fb_source_unit_bytes(source) : 0;
    return (field->ndim ? field->shape[0] : 1) * field->cell_bytes;
}

bool fb_blocks_any(const struct fb_source *source)
{
    for (unsigned f = 0; f < source->field_count; f++)
        if (source->fields[f].together > 1)
            return true;
    return false;
}

bool fb_blocks_can_choose(const struct fb_source *source)
{
    return !source->shared_units && source->sample_count == numbers(source);
}

uint64_t fb_block_unit(const struct fb_source *source, const struct fb_blocks *blocks,
                       uint32_t field, const struct fb_block *block, uint64_t i)
{
    const struct fb_choice *choice = &blocks->choice;
    uint64_t place = block->begin + i;
    uint64_t number = choice->count ? choice->sample(choice->list, place) : place;

    return number * source->field_count + field;
}

/* Bytes of a unit, 0 if it is broken. */
static uint64_t unit_bytes(const struct fb_source *source, uint32_t field, uint64_t unit)
{
    struct fb_extent extent = source->ops->extent(source, unit);

    return extent.known == FB_EXTENT_EXACT ? fb_extent_bytes(&source->fields[field], extent) : 0;
}

/* Equal ones have each its place, whole or broken, and the last block is as large as all. */
static void add_up(const struct fb_source *source, const struct fb_blocks *blocks, uint32_t field,
                   uint64_t at, struct fb_block *block)
{
    block->equal = equal_bytes(source, &source->fields[field]);
    block->offset = at * block->equal;
    block->bytes = together(&source->fields[field]) * block->equal;
    if (block->equal)
        return;
    for (uint64_t i = 0; i < block->count; i++) {
        uint64_t bytes = unit_bytes(source, field, fb_block_unit(source, blocks, field, block, i));

        block->bytes += bytes;
        block->offset += i < at ? bytes : 0;
    }
}

void fb_block_find(const struct fb_source *source, const struct fb_blocks *blocks, uint32_t field,
                   uint64_t unit, struct fb_block *block)
{
    const struct fb_choice *choice = &blocks->choice;
    uint64_t each = together(&source->fields[field]), place = unit / source->field_count;

    *block = (struct fb_block){ .count = 0 };
    if (choice->count)
        place = choice->place(choice->list, place);
    if (place >= places(source, choice))
        return;
    block->number = place / each;
    block->begin = place / each * each;
    block->count = fb_min(each, places(source, choice) - block->begin);
    for (uint32_t f = 0; f < field; f++)
        block->number += blocks_of(source, choice, f);
    add_up(source, blocks, field, place - block->begin, block);
}

void fb_blocks_measure(const struct fb_source *source, struct fb_choice choice,
                       struct fb_blocks *blocks)
{
    uint64_t all = fb_max(1, numbers(source));
    bool alike = true;

    *blocks = (struct fb_blocks){ .choice = choice };
    for (uint32_t f = 0; f < source->field_count; f++) {
        const struct fb_field *field = &source->fields[f];
        uint64_t equal = together(field) * equal_bytes(source, field);

        blocks->count += blocks_of(source, &choice, f);
        blocks->bytes_max = fb_max(blocks->bytes_max,
                                   together(field) * fb_field_bytes_max(source, field));
        alike = alike && equal && (f == 0 || equal == blocks->bytes);
        blocks->bytes = equal;
    }
    if (!alike)
        blocks->bytes = 0;
    blocks->bytes_total = (uint64_t)((fb_u128)source->unit_bytes_total * places(source, &choice) /
                                     all);
}
