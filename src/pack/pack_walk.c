#include "base/size.h"
#include "memory/block.h"
#include "pack/pack_inside.h"

static uint64_t seen_words(const struct fb_pack_walk *walk)
{
    return walk->source->unit_count / 64 + 1;
}

int fb_pack_walk_open(struct fb_pack_walk *walk, struct fb_source *source, bool skip,
                      struct fb_budget *budget, forebay_error *error)
{
    *walk = (struct fb_pack_walk){ .source = source, .budget = budget, .skip = skip };
    for (unsigned i = 0; i < source->field_count; i++)
        walk->by_unit = walk->by_unit || source->fields[i].items > 1;
    walk->once = walk->by_unit || source->sliced || source->shared_units;
    walk->parts = fb_block_new(budget, FB_STAGE_OTHER, source->parts_max, sizeof(*walk->parts),
                               "a sample's parts", error);
    walk->seen = fb_block_new(budget, FB_STAGE_INDEX, seen_words(walk), sizeof(uint64_t),
                              "which units were packed", error);
    return walk->parts && walk->seen ? FOREBAY_OK : error->status;
}

void fb_pack_walk_close(struct fb_pack_walk *walk)
{
    if (!walk->source)
        return;
    fb_block_free(walk->budget, FB_STAGE_OTHER, walk->parts, walk->source->parts_max,
                  sizeof(*walk->parts));
    fb_block_free(walk->budget, FB_STAGE_INDEX, walk->seen, seen_words(walk), sizeof(uint64_t));
    *walk = (struct fb_pack_walk){ 0 };
}

void fb_pack_walk_rewind(struct fb_pack_walk *walk)
{
    for (uint64_t i = 0; i < seen_words(walk); i++)
        walk->seen[i] = 0;
    walk->sample = walk->number = walk->skipped = 0;
    walk->at = walk->count = 0;
}

/* True the first time. Numbers behind unit_count are made from the index, one a sample. */
static bool see(struct fb_pack_walk *walk, uint64_t unit)
{
    uint64_t bit = (uint64_t)1 << unit % 64;

    if (unit >= walk->source->unit_count || !walk->once)
        return true;
    if (walk->seen[unit / 64] & bit)
        return false;
    walk->seen[unit / 64] |= bit;
    return true;
}

/* The next part, or the next sample's parts, that nobody had before. */
static bool next_new(struct fb_pack_walk *walk, struct fb_pack_group *group)
{
    const struct fb_source *source = walk->source;

    for (;;) {
        while (walk->by_unit && walk->at < walk->count) {
            struct fb_part *part = &walk->parts[walk->at++];

            *group = (struct fb_pack_group){ .number = walk->number, .sample = walk->sample - 1,
                                             .count = 1, .parts = part };
            if (see(walk, part->unit))
                return true;
        }
        if (walk->sample == source->sample_count)
            return false;
        walk->count = source->ops->parts(source, walk->sample++, walk->parts);
        walk->at = 0;
        *group = (struct fb_pack_group){ .number = walk->number, .sample = walk->sample - 1,
                                         .count = walk->count, .parts = walk->parts };
        if (!walk->by_unit && walk->count && see(walk, walk->parts[0].unit))
            return true;
    }
}

/* The first part whose unit is broken, or NULL. */
static struct fb_part *broken_part(const struct fb_pack_walk *walk,
                                   const struct fb_pack_group *group)
{
    for (unsigned i = 0; i < group->count; i++)
        if (walk->source->ops->extent(walk->source, group->parts[i].unit).known !=
            FB_EXTENT_EXACT)
            return &group->parts[i];
    return NULL;
}

int fb_pack_walk_next(struct fb_pack_walk *walk, struct fb_pack_group *group)
{
    while (next_new(walk, group)) {
        struct fb_part *broken = broken_part(walk, group);

        if (!broken) {
            walk->number++;
            return FOREBAY_OK;
        }
        if (!walk->skip) {
            group->parts = broken;
            group->count = 1;
            return FOREBAY_BAD_DATA;
        }
        walk->skipped++;
    }
    return FOREBAY_END;
}
