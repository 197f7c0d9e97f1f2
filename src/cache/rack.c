#include "cache/rack.h"

#include <string.h>

#include "base/size.h"

#define LOST_PART 40 /* of the bytes: lost to a page larger than its unit, if that makes sizes fewer */

static unsigned step_of(uint64_t bytes)
{
    unsigned octave;

    if (bytes < 64)
        return (unsigned)bytes;
    octave = 63 - (unsigned)__builtin_clzll(bytes) - 6;
    return 64 + octave * 64 + (unsigned)(bytes >> octave) - 64;
}

void fb_census_add(struct fb_census *census, uint64_t bytes)
{
    struct fb_census_step *step = &census->steps[step_of(bytes)];

    step->units++;
    step->most = (uint32_t)fb_max(step->most, bytes);
}

/* Move what is there to the front; returns how many. */
static unsigned close_up(struct fb_census_step *steps, unsigned count)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++)
        if (steps[i].units)
            steps[kept++] = steps[i];
    return kept;
}

/* The step whose units lose least by having pages of the next one's size. */
static unsigned cheapest(const struct fb_census_step *steps, unsigned count, uint64_t *cost)
{
    unsigned best = 0;

    *cost = UINT64_MAX;
    for (unsigned i = 0; i + 1 < count; i++) {
        uint64_t lost = steps[i].units * (steps[i + 1].most - steps[i].most);

        if (lost < *cost) {
            *cost = lost;
            best = i;
        }
    }
    return best;
}

/* Two neighbours become one until there are few enough, and as long as little is lost: the fewer
 * sizes there are, the less does one of them want pages while another has too many. */
static unsigned merge(struct fb_census_step *steps, unsigned count)
{
    uint64_t may_lose = 0, cost;

    for (unsigned i = 0; i < count; i++)
        may_lose += steps[i].units * steps[i].most / LOST_PART;
    while (count > 1) {
        unsigned i = cheapest(steps, count, &cost);

        if (count <= FB_RACK_SIZES && cost > may_lose)
            break;
        may_lose -= fb_min(may_lose, cost);
        steps[i + 1].units += steps[i].units;
        memmove(&steps[i], &steps[i + 1], (count - i - 1) * sizeof(*steps));
        count--;
    }
    return count;
}

/* Those so rare that half a page of a rack is theirs, if they are the largest: one such page would
 * cost more than all of them are worth. */
static unsigned without_giants(const struct fb_census_step *steps, unsigned count)
{
    uint64_t total = 0, above = 0;

    for (unsigned i = 0; i < count; i++)
        total += steps[i].units;
    while (count && (above + steps[count - 1].units) * 2 * FB_RACK_PAGES < total)
        above += steps[--count].units;
    return count;
}

/* Of FB_RACK_PAGES each its part, in place of its units. From the largest down they have at least
 * their part together: so what finds no page of its size may find a larger one, and all have room
 * where there are as many pages as units. */
static void share_pages(struct fb_census_step *steps, unsigned count)
{
    uint64_t total = 0, units = 0, pages = 0;

    for (unsigned i = 0; i < count; i++)
        total += steps[i].units;
    for (unsigned i = count; i-- > 0;) {
        uint64_t until;

        units += steps[i].units; /* there are at most 2^31 */
        until = (units * FB_RACK_PAGES + total - 1) / total;
        steps[i].units = until - pages;
        pages = until;
    }
}

/* At every place the size that is most behind its part. */
static void mix(struct fb_rack *rack, const struct fb_census_step *steps)
{
    uint64_t placed[FB_RACK_SIZES] = { 0 };

    for (unsigned place = 0; place < FB_RACK_PAGES; place++) {
        int64_t most = INT64_MIN;
        unsigned best = 0;

        for (unsigned i = 0; i < rack->sizes; i++) {
            int64_t behind = (int64_t)((place + 1) * steps[i].units) -
                             (int64_t)(placed[i] * FB_RACK_PAGES);

            if (behind > most) {
                most = behind;
                best = i;
            }
        }
        placed[best]++;
        rack->size_of[place] = (uint8_t)best;
    }
}

void fb_rack_choose(struct fb_rack *rack, struct fb_census *census)
{
    struct fb_census_step *steps = census->steps;
    unsigned count = close_up(steps, FB_CENSUS_STEPS);

    *rack = (struct fb_rack){ .sizes = 0 };
    if (!count)
        return;
    count = merge(steps, without_giants(steps, count));
    share_pages(steps, count);
    rack->sizes = close_up(steps, count);
    for (unsigned i = 0; i < rack->sizes; i++)
        rack->bytes[i] = steps[i].most;
    mix(rack, steps);
}

bool fb_rack_map_make(const struct fb_rack *rack, struct fb_rack_map *map)
{
    unsigned filled = 0;

    *map = (struct fb_rack_map){ .at = { 0 } };
    if (!rack->sizes || rack->sizes > FB_RACK_SIZES)
        return false;
    for (unsigned place = 0; place < FB_RACK_PAGES; place++) {
        unsigned size = rack->size_of[place];

        if (size >= rack->sizes || !rack->bytes[size] || rack->bytes[size] > FB_RACK_BYTES_MAX)
            return false;
        map->at[place + 1] = map->at[place] + rack->bytes[size];
    }
    for (unsigned size = 0; size < rack->sizes; size++) {
        map->first[size] = (uint16_t)filled;
        for (unsigned place = 0; place < FB_RACK_PAGES; place++)
            if (rack->size_of[place] == size)
                map->places[filled++] = (uint16_t)place;
        map->first[size + 1] = (uint16_t)filled;
    }
    return true;
}

uint32_t fb_rack_size_for(const struct fb_rack *rack, uint64_t bytes)
{
    uint32_t size = 0;

    while (size < rack->sizes && rack->bytes[size] < bytes)
        size++;
    return size;
}

bool fb_rack_may_hold(const struct fb_rack *rack, uint32_t size, uint64_t bytes)
{
    return size < rack->sizes && rack->bytes[size] >= bytes &&
           (rack->bytes[size] <= bytes + fb_max(bytes, 64) || size == fb_rack_size_for(rack, bytes));
}

uint64_t fb_rack_below(const struct fb_rack_map *map, uint32_t size, uint64_t limit)
{
    unsigned first = map->first[size], end = map->first[size + 1], low = first, high = end;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (map->places[middle] < limit % FB_RACK_PAGES)
            low = middle + 1;
        else
            high = middle;
    }
    return limit / FB_RACK_PAGES * (end - first) + (low - first);
}

uint64_t fb_rack_page(const struct fb_rack_map *map, uint32_t size, uint64_t n)
{
    unsigned first = map->first[size], each = map->first[size + 1] - first;

    return n / each * FB_RACK_PAGES + map->places[first + n % each];
}
