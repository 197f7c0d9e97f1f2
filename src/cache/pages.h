/*
 * pages.h -- who owns each page, and where a free one is.
 *
 * owner of a page:  0 free | unit + 1 | held by a member (it is giving the memory back)
 *
 * A page is taken and freed by one compare-and-swap of its owner. The bits ("used") only say where
 * to look: a set bit of a free page, left by a death, hides the page until the sweep clears it; a
 * clear bit of an owned page costs one failed swap. The limit is a page number: pages below it may
 * be used, so the bound needs no counter that a death could falsify.
 *
 * In a rack (rack.h) a page is looked for among those of its size only; in a mixed one from where
 * one was last found or freed, and after a few that are taken the answer is that there is none: then
 * something is evicted, which frees one, and the next search goes on behind.
 */
#ifndef FB_CACHE_PAGES_H
#define FB_CACHE_PAGES_H
#include "cache/segment.h"

#define FB_PAGE_HELD 0x80000000u /* then 8 bits of row and 23 of generation */
#define FB_PAGE_NONE UINT32_MAX

/* Take the lowest free page below `limit` for `owner`, a unit of `bytes`; in a rack one of its size,
 * or if `larger` of the next that may hold it. */
bool fb_page_take(struct fb_segment *segment, uint32_t owner, uint64_t bytes, bool larger,
                  uint64_t limit, uint32_t *page, bool *fresh);
/* Take exactly this one, if it is free. */
bool fb_page_take_at(struct fb_segment *segment, uint64_t page, uint32_t owner);
/* False if `owner` did not have it. */
bool fb_page_free(struct fb_segment *segment, uint64_t page, uint32_t owner);
/* Is there one, by the bits? */
bool fb_page_any(struct fb_segment *segment, uint64_t bytes, bool larger, uint64_t limit);
/* Bytes of the pages in use, by the bits, and of their tables. */
uint64_t fb_pages_used(const struct fb_segment *segment);
/* Clear the bits of free pages. */
void fb_pages_mend(struct fb_segment *segment);
/* Pages ever used and pages that may hold memory; clamped, whatever the area says. */
uint64_t fb_pages_reach(const struct fb_segment *segment);
uint64_t fb_pages_touched(const struct fb_segment *segment);

/* How many a unit needs; more than one where it must have but one: it cannot be kept. */
static inline uint64_t fb_pages_for(const struct fb_segment *segment, uint64_t bytes)
{
    const struct fb_rack *rack = &segment->geometry.rack;

    if (rack->sizes)
        return bytes ? 1 + (fb_rack_size_for(rack, bytes) == rack->sizes) : 0;
    return bytes / segment->geometry.page_bytes + (bytes % segment->geometry.page_bytes != 0);
}
#endif
