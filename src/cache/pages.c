#include "cache/pages.h"

#include "base/size.h"

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

/* The lowest page below `limit` whose bit is clear; `limit` if there is none. */
static uint64_t find_free(const struct fb_segment *segment, uint64_t limit)
{
    for (uint64_t group = 0; group * 4096 < limit; group++) {
        uint64_t open = ~atomic_load(&segment->summary[group]);

        while (open) {
            uint64_t word = group * 64 + (uint64_t)__builtin_ctzll(open), clear;

            if (word * 64 >= limit)
                return limit;
            clear = ~atomic_load(&segment->bits[word]);
            if (clear)
                return fb_min(word * 64 + (uint64_t)__builtin_ctzll(clear), limit);
            open &= open - 1;
        }
    }
    return limit;
}

bool fb_page_take_at(struct fb_segment *segment, uint64_t page, uint32_t owner)
{
    uint32_t free_page = 0;

    /* First of all, so that a sweep looks far enough whatever happens next. */
    raise_to(&segment->header->reach, page + 1);
    bit_set(segment, page);
    return atomic_compare_exchange_strong(&segment->owners[page], &free_page, owner);
}

bool fb_page_take(struct fb_segment *segment, uint32_t owner, uint64_t limit, uint32_t *page,
                  bool *fresh)
{
    uint64_t found;

    limit = fb_min(limit, segment->geometry.pages);
    while ((found = find_free(segment, limit)) < limit) {
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
    return true;
}

bool fb_page_any(const struct fb_segment *segment, uint64_t limit)
{
    limit = fb_min(limit, segment->geometry.pages);
    return find_free(segment, limit) < limit;
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
    uint64_t reach = fb_pages_reach(segment), pages = 0;

    for (uint64_t word = 0; word * 64 < reach; word++)
        pages += (uint64_t)__builtin_popcountll(atomic_load(&segment->bits[word]));
    return pages * (segment->geometry.page_bytes + segment->layout.table_cost);
}

void fb_pages_mend(struct fb_segment *segment)
{
    uint64_t reach = fb_pages_reach(segment);

    for (uint64_t page = 0; page < reach; page++)
        if (!atomic_load(&segment->owners[page]))
            bit_clear(segment, page);
}
