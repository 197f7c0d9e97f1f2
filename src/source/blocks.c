#include "source/blocks.h"

#include "base/size.h"

uint32_t fb_blocks_together(uint64_t count, uint64_t total, uint64_t most)
{
    uint64_t mean = total / fb_max(1, count);
    uint64_t least = mean == most ? FB_TINY_BYTES : FB_SMALL_BYTES;

    if (count < 2 || mean >= least || most > FB_BLOCK_UNIT_MAX)
        return 1;
    return (uint32_t)fb_min(FB_BLOCK_BYTES / fb_max(1, mean), FB_BLOCK_UNITS);
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

static uint64_t blocks_of(const struct fb_source *source, uint32_t field)
{
    uint64_t each = together(&source->fields[field]);

    return numbers(source) / each + (numbers(source) % each != 0);
}

/* Of every unit of the field that is whole, if all are alike; else 0. */
static uint64_t equal_bytes(const struct fb_field *field)
{
    if (field->vary || field->finished)
        return 0;
    return (field->ndim ? field->shape[0] : 1) * field->cell_bytes;
}

bool fb_blocks_any(const struct fb_source *source)
{
    for (unsigned f = 0; f < source->field_count; f++)
        if (source->fields[f].together > 1)
            return true;
    return false;
}

/* Bytes of a unit, 0 if it is broken. */
static uint64_t unit_bytes(const struct fb_source *source, uint32_t field, uint64_t unit)
{
    struct fb_extent extent = source->ops->extent(source, unit);

    return extent.known == FB_EXTENT_EXACT ? fb_extent_bytes(&source->fields[field], extent) : 0;
}

/* Equal ones have each its place, whole or broken, and the last block is as large as all. */
static void add_up(const struct fb_source *source, uint32_t field, uint64_t at,
                   struct fb_block *block)
{
    block->equal = equal_bytes(&source->fields[field]);
    block->offset = at * block->equal;
    block->bytes = together(&source->fields[field]) * block->equal;
    if (block->equal)
        return;
    for (uint64_t i = 0; i < block->count; i++) {
        uint64_t bytes = unit_bytes(source, field, block->first + i * block->step);

        block->bytes += bytes;
        block->offset += i < at ? bytes : 0;
    }
}

void fb_block_find(const struct fb_source *source, uint32_t field, uint64_t unit,
                   struct fb_block *block)
{
    uint64_t each = together(&source->fields[field]), number = unit / source->field_count;
    uint64_t begin = number / each * each;

    *block = (struct fb_block){ .number = number / each,
                                .first = begin * source->field_count + field,
                                .step = source->field_count,
                                .count = fb_min(each, numbers(source) - begin) };
    for (uint32_t f = 0; f < field; f++)
        block->number += blocks_of(source, f);
    add_up(source, field, number - begin, block);
}

void fb_blocks_measure(const struct fb_source *source, struct fb_blocks *blocks)
{
    bool alike = true;

    *blocks = (struct fb_blocks){ 0 };
    for (uint32_t f = 0; f < source->field_count; f++) {
        const struct fb_field *field = &source->fields[f];
        uint64_t equal = together(field) * equal_bytes(field);

        blocks->count += blocks_of(source, f);
        blocks->bytes_max = fb_max(blocks->bytes_max,
                                   together(field) * fb_field_bytes_max(source, field));
        alike = alike && equal && (f == 0 || equal == blocks->bytes);
        blocks->bytes = equal;
    }
    if (!alike)
        blocks->bytes = 0;
}
