#include "cache/rack.h"

#include <math.h>
#include <string.h>

#include "base/search.h"
#include "base/size.h"

#define LOST_PART 40 /* of the bytes: lost to a page larger than its unit, if that makes sizes fewer */
#define MIXED_SIZES 64u
#define LITTLE_PART 32 /* of the bytes: a cache for fewer is not thought of */

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

/* The step whose units lose least by having pages of the next one's size: in bytes, or `rising`,
 * where only the smallest may be kept, beside the bytes up to there. */
static unsigned cheapest(const struct fb_census_step *steps, unsigned count, uint64_t total,
                         bool rising, uint64_t *cost)
{
    double least = INFINITY;
    unsigned best = 0;
    uint64_t until = 0;

    for (unsigned i = 0; i + 1 < count; i++) {
        uint64_t lost = steps[i].units * (steps[i + 1].most - steps[i].most);
        double beside = 1;

        until += steps[i].units * steps[i].most;
        if (rising)
            beside = (double)fb_max(until, total / LITTLE_PART);
        if ((double)lost / beside < least) {
            least = (double)lost / beside;
            *cost = lost;
            best = i;
        }
    }
    return best;
}

/* Two neighbours become one until there are few enough. Mixed, also as long as little is lost: the
 * fewer sizes there are, the less does one of them want pages while another has too many. */
static unsigned merge(struct fb_census_step *steps, unsigned count, bool rising)
{
    uint64_t total = 0, may_lose, cost = 0;

    for (unsigned i = 0; i < count; i++)
        total += steps[i].units * steps[i].most;
    may_lose = rising ? 0 : total / LOST_PART;
    while (count > 1) {
        unsigned i = cheapest(steps, count, total, rising, &cost);

        if (count <= (rising ? FB_RACK_SIZES : MIXED_SIZES) && cost > may_lose)
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

static void choose_mixed(struct fb_rack *rack, struct fb_census_step *steps, unsigned count)
{
    count = merge(steps, without_giants(steps, count), false);
    share_pages(steps, count);
    rack->sizes = close_up(steps, count);
    mix(rack, steps);
}

static void choose_rising(struct fb_rack *rack, struct fb_census_step *steps, unsigned count)
{
    uint64_t pages = 0;

    rack->rising = 1;
    rack->sizes = merge(steps, count, true);
    for (unsigned i = 0; i < rack->sizes; i++) {
        pages += steps[i].units; /* there are at most 2^31 */
        rack->ends[i] = (uint32_t)pages;
    }
}

void fb_rack_choose(struct fb_rack *rack, struct fb_census *census, bool rising)
{
    struct fb_census_step *steps = census->steps;
    unsigned count = close_up(steps, FB_CENSUS_STEPS);

    *rack = (struct fb_rack){ .sizes = 0 };
    if (!count)
        return;
    if (rising)
        choose_rising(rack, steps, count);
    else
        choose_mixed(rack, steps, count);
    for (unsigned i = 0; i < rack->sizes; i++)
        rack->bytes[i] = steps[i].most;
}

static bool map_mixed(const struct fb_rack *rack, struct fb_rack_map *map)
{
    unsigned filled = 0;

    for (unsigned place = 0; place < FB_RACK_PAGES; place++) {
        if (rack->size_of[place] >= rack->sizes)
            return false;
        map->mixed.at[place + 1] = map->mixed.at[place] + rack->bytes[rack->size_of[place]];
    }
    for (unsigned size = 0; size < rack->sizes; size++) {
        map->mixed.first[size] = (uint16_t)filled;
        for (unsigned place = 0; place < FB_RACK_PAGES; place++)
            if (rack->size_of[place] == size)
                map->mixed.places[filled++] = (uint16_t)place;
        map->mixed.first[size + 1] = (uint16_t)filled;
        if (filled == map->mixed.first[size])
            return false;
    }
    return true;
}

static bool map_rising(const struct fb_rack *rack, struct fb_rack_map *map)
{
    uint64_t at = 0, page = 0; /* at most 2^32 of 2^22 bytes */

    for (unsigned size = 0; size < rack->sizes; size++) {
        if (rack->ends[size] <= page)
            return false;
        at += (rack->ends[size] - page) * rack->bytes[size];
        page = rack->ends[size];
        map->rising.ends[size] = page;
        map->rising.stops[size] = at;
    }
    return true;
}

bool fb_rack_map_make(const struct fb_rack *rack, struct fb_rack_map *map)
{
    *map = (struct fb_rack_map){ .rack = *rack };
    rack = &map->rack; /* it may be anybody's memory, and is looked at once */
    if (!rack->sizes || rack->sizes > FB_RACK_SIZES || rack->rising > 1)
        return false;
    for (unsigned size = 0; size < rack->sizes; size++)
        if (!rack->bytes[size] || rack->bytes[size] > FB_RACK_BYTES_MAX ||
            (size && rack->bytes[size] <= rack->bytes[size - 1]))
            return false;
    return rack->rising ? map_rising(rack, map) : map_mixed(rack, map);
}

uint32_t fb_rack_size_for(const struct fb_rack *rack, uint64_t bytes)
{
    uint32_t low = 0, high = rack->sizes;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (rack->bytes[middle] < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool fb_rack_may_hold(const struct fb_rack *rack, uint32_t size, uint64_t bytes)
{
    return size < rack->sizes && rack->bytes[size] >= bytes &&
           (rack->bytes[size] <= bytes + fb_max(bytes, 64) || size == fb_rack_size_for(rack, bytes));
}

/* Where the pages of a size begin, rising: at which page, and at which byte. */
static uint64_t first_page(const struct fb_rack_map *map, uint32_t size)
{
    return size ? map->rising.ends[size - 1] : 0;
}

static uint64_t first_byte(const struct fb_rack_map *map, uint32_t size)
{
    return size ? map->rising.stops[size - 1] : 0;
}

uint32_t fb_rack_size_at(const struct fb_rack_map *map, uint64_t page)
{
    return map->rack.rising ? (uint32_t)fb_range_of(map->rising.ends, map->rack.sizes, page)
                            : map->rack.size_of[page % FB_RACK_PAGES];
}

uint64_t fb_rack_at(const struct fb_rack_map *map, uint64_t page)
{
    uint32_t size;

    if (!map->rack.rising)
        return page / FB_RACK_PAGES * map->mixed.at[FB_RACK_PAGES] +
               map->mixed.at[page % FB_RACK_PAGES];
    size = fb_rack_size_at(map, page);
    return first_byte(map, size) + (page - first_page(map, size)) * map->rack.bytes[size];
}

static uint64_t mixed_below(const struct fb_rack_map *map, uint32_t size, uint64_t limit)
{
    unsigned first = map->mixed.first[size], end = map->mixed.first[size + 1];
    unsigned low = first, high = end;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (map->mixed.places[middle] < limit % FB_RACK_PAGES)
            low = middle + 1;
        else
            high = middle;
    }
    return limit / FB_RACK_PAGES * (end - first) + (low - first);
}

static uint64_t rising_below(const struct fb_rack_map *map, uint32_t size, uint64_t limit)
{
    uint64_t first = first_page(map, size);

    return fb_max(fb_min(limit, map->rising.ends[size]), first) - first;
}

uint64_t fb_rack_below(const struct fb_rack_map *map, uint32_t size, uint64_t limit)
{
    return map->rack.rising ? rising_below(map, size, limit) : mixed_below(map, size, limit);
}

uint64_t fb_rack_page(const struct fb_rack_map *map, uint32_t size, uint64_t n)
{
    unsigned first, each;

    if (map->rack.rising)
        return first_page(map, size) + n;
    first = map->mixed.first[size];
    each = map->mixed.first[size + 1] - first;
    return n / each * FB_RACK_PAGES + map->mixed.places[first + n % each];
}

uint64_t fb_rack_next(const struct fb_rack_map *map, uint32_t size, uint64_t limit)
{
    uint64_t page = fb_rack_page(map, size, fb_rack_below(map, size, limit));

    return map->rack.rising && page >= map->rising.ends[size] ? UINT64_MAX : page;
}

/* For every page that is taken the limit is asked for: one division, not one for each size. */
static uint64_t rising_pages_in(const struct fb_rack_map *map, uint64_t bytes, uint64_t tables)
{
    uint32_t size = 0, last = map->rack.sizes - 1;
    uint64_t first;

    while (size < last && map->rising.stops[size] + map->rising.ends[size] * tables <= bytes)
        size++;
    first = first_page(map, size);
    bytes -= first_byte(map, size) + first * tables;
    return fb_min(first + bytes / (map->rack.bytes[size] + tables), map->rising.ends[size]);
}

static uint64_t mixed_pages_in(const uint32_t *at, uint64_t bytes, uint64_t tables)
{
    uint64_t whole = at[FB_RACK_PAGES] + FB_RACK_PAGES * tables, low = 0, high = FB_RACK_PAGES;

    while (low + 1 < high) {
        uint64_t middle = (low + high) / 2;

        if (at[middle] + middle * tables <= bytes % whole)
            low = middle;
        else
            high = middle;
    }
    return bytes / whole * FB_RACK_PAGES + low;
}

uint64_t fb_rack_pages_in(const struct fb_rack_map *map, uint64_t bytes, uint64_t tables)
{
    return map->rack.rising ? rising_pages_in(map, bytes, tables)
                            : mixed_pages_in(map->mixed.at, bytes, tables);
}

uint64_t fb_rack_mean(const struct fb_rack_map *map)
{
    const struct fb_rack *rack = &map->rack;
    uint64_t pages = rack->rising ? rack->ends[rack->sizes - 1] : FB_RACK_PAGES;

    return fb_max(1, fb_rack_at(map, pages) / pages);
}
