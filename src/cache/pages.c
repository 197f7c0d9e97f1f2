#include "cache/pages.h"

#include "base/size.h"

#define PROBES 32 /* pages of a size that are looked at before there is none */

static void raise_to(_Atomic uint64_t *mark, uint64_t to)
{
    uint64_t now = atomic_load(mark);

    while (now < to && !atomic_compare_exchange_weak(mark, &now, to))
        continue;
}

static void bit_set(struct fb_segment *segment, uint64_t page)
{
    uint64_t word = page / 64, mask = (uint64_t)1 << page % 64, above = (uint64_t)1 << word % 64;

    if ((atomic_fetch_or(&segment->bits[word], mask) | mask) != UINT64_MAX)
        return;
    atomic_fetch_or(&segment->summary[word / 64], above);
    /* One may have been freed in between, before the summary said "full". */
    if (atomic_load(&segment->bits[word]) != UINT64_MAX)
        atomic_fetch_and(&segment->summary[word / 64], ~above);
}

static void bit_clear(struct fb_segment *segment, uint64_t page)
{
    uint64_t word = page / 64;

    atomic_fetch_and(&segment->bits[word], ~((uint64_t)1 << page % 64));
    atomic_fetch_and(&segment->summary[word / 64], ~((uint64_t)1 << word % 64));
}

/* The lowest page of [from, limit) whose bit is clear; `limit` if there is none. */
static uint64_t find_clear(const struct fb_segment *segment, uint64_t from, uint64_t limit)
{
    for (uint64_t group = from / 4096; group * 4096 < limit; group++) {
        uint64_t open = ~atomic_load(&segment->summary[group]);

        while (open) {
            uint64_t word = group * 64 + (uint64_t)__builtin_ctzll(open), clear;

            if (word * 64 >= limit)
                return limit;
            clear = ~atomic_load(&segment->bits[word]);
            if (word * 64 < from)
                clear = from - word * 64 < 64 ? clear >> from % 64 << from % 64 : 0;
            if (clear)
                return fb_min(word * 64 + (uint64_t)__builtin_ctzll(clear), limit);
            open &= open - 1;
        }
    }
    return limit;
}

/* A page of a size below `limit` whose bit is clear; `limit` if there is none. */
static uint64_t find_rising(const struct fb_segment *segment, uint32_t size, uint64_t limit)
{
    const struct fb_rack_map *map = &segment->layout.rack;
    uint64_t begin = fb_rack_page(map, size, 0), end = begin + fb_rack_below(map, size, limit);
    uint64_t page = find_clear(segment, begin, end);

    return page < end ? page : limit;
}

/* The same, where pages of a size lie here and there: some of them are looked at. */
static uint64_t find_mixed(struct fb_segment *segment, uint32_t size, uint64_t limit)
{
    const struct fb_rack_map *map = &segment->layout.rack;
    uint64_t count = fb_rack_below(map, size, limit), page = limit;
    uint64_t n = fb_rack_below(map, size, atomic_load_explicit(&segment->free_hints[size],
                                                               memory_order_relaxed));
    bool found = false;

    for (unsigned probe = 0; probe < PROBES && probe < count && !found; probe++) {
        n = n < count ? n : 0;
        page = fb_rack_page(map, size, n++);
        found = !(atomic_load(&segment->bits[page / 64]) >> page % 64 & 1);
    }
    atomic_store_explicit(&segment->free_hints[size], page, memory_order_relaxed);
    return found ? page : limit;
}

static uint64_t find_of_size(struct fb_segment *segment, uint32_t size, uint64_t limit)
{
    return segment->geometry.rack.rising ? find_rising(segment, size, limit)
                                         : find_mixed(segment, size, limit);
}

static uint64_t find_free(struct fb_segment *segment, uint64_t bytes, bool larger, uint64_t limit)
{
    const struct fb_rack *rack = &segment->geometry.rack;
    uint32_t size = fb_rack_size_for(rack, bytes);
    uint64_t page = limit;

    if (!rack->sizes)
        return find_clear(segment, 0, limit);
    if (size < rack->sizes)
        page = find_of_size(segment, size, limit);
    while (larger && page == limit && fb_rack_may_hold(rack, ++size, bytes))
        page = find_of_size(segment, size, limit);
    return page;
}

bool fb_page_take_at(struct fb_segment *segment, uint64_t page, uint32_t owner)
{
    uint32_t free_page = 0;

    /* First of all, so that a sweep looks far enough whatever happens next. */
    raise_to(&segment->header->reach, page + 1);
    bit_set(segment, page);
    return atomic_compare_exchange_strong(&segment->owners[page], &free_page, owner);
}

bool fb_page_take(struct fb_segment *segment, uint32_t owner, uint64_t bytes, bool larger,
                  uint64_t limit, uint32_t *page, bool *fresh)
{
    uint64_t found;

    limit = fb_min(limit, segment->geometry.pages);
    while ((found = find_free(segment, bytes, larger, limit)) < limit) {
        if (!fb_page_take_at(segment, found, owner))
            continue; /* somebody was faster; its bit is set now */
        *fresh = found >= atomic_load(&segment->header->touched);
        raise_to(&segment->header->touched, found + 1);
        *page = (uint32_t)found;
        return true;
    }
    return false;
}

bool fb_page_free(struct fb_segment *segment, uint64_t page, uint32_t owner)
{
    if (!atomic_compare_exchange_strong(&segment->owners[page], &owner, 0))
        return false;
    bit_clear(segment, page);
    if (segment->geometry.rack.sizes && !segment->geometry.rack.rising) {
        uint32_t size = fb_rack_size_at(&segment->layout.rack, page);

        atomic_store_explicit(&segment->free_hints[size], page, memory_order_relaxed);
    }
    return true;
}

bool fb_page_any(struct fb_segment *segment, uint64_t bytes, bool larger, uint64_t limit)
{
    limit = fb_min(limit, segment->geometry.pages);
    return find_free(segment, bytes, larger, limit) < limit;
}

uint64_t fb_pages_reach(const struct fb_segment *segment)
{
    return fb_min(atomic_load(&segment->header->reach), segment->geometry.pages);
}

uint64_t fb_pages_touched(const struct fb_segment *segment)
{
    return fb_min(atomic_load(&segment->header->touched), segment->geometry.pages);
}

uint64_t fb_pages_used(const struct fb_segment *segment)
{
    uint64_t reach = fb_pages_reach(segment), pages = 0, bytes = 0;

    for (uint64_t word = 0; word * 64 < reach; word++) {
        uint64_t used = atomic_load(&segment->bits[word]);

        pages += (uint64_t)__builtin_popcountll(used);
        if (used == UINT64_MAX)
            bytes += fb_page_at(segment, word * 64 + 64) - fb_page_at(segment, word * 64);
        for (; used && used != UINT64_MAX; used &= used - 1)
            bytes += fb_page_bytes(segment, word * 64 + (uint64_t)__builtin_ctzll(used));
    }
    return bytes + pages * segment->layout.table_cost;
}

void fb_pages_mend(struct fb_segment *segment)
{
    uint64_t reach = fb_pages_reach(segment);

    for (uint64_t page = 0; page < reach; page++)
        if (!atomic_load(&segment->owners[page]))
            bit_clear(segment, page);
}
