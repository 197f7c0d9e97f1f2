/*
 * pages.h -- who owns each page, and where a free one is.
 *
 * owner of a page:  0 free | unit + 1 | held by a member (it is giving the memory back)
 *
 * A page is taken and freed by one compare-and-swap of its owner. The bits ("used") only say where
 * to look: a set bit of a free page, left by a death, hides the page until the sweep clears it; a
 * clear bit of an owned page costs one failed swap. The limit is a page number: pages below it may
 * be used, so the bound needs no counter that a death could falsify.
 */
#ifndef FB_CACHE_PAGES_H
#define FB_CACHE_PAGES_H
#include "cache/segment.h"

#define FB_PAGE_HELD 0x80000000u /* then 8 bits of row and 23 of generation */
#define FB_PAGE_NONE UINT32_MAX

/* Take the lowest free page below `limit` for `owner`. */
bool fb_page_take(struct fb_segment *segment, uint32_t owner, uint64_t limit, uint32_t *page,
                  bool *fresh);
/* Take exactly this one, if it is free. */
bool fb_page_take_at(struct fb_segment *segment, uint64_t page, uint32_t owner);
/* False if `owner` did not have it. */
bool fb_page_free(struct fb_segment *segment, uint64_t page, uint32_t owner);
/* Is there one, by the bits? */
bool fb_page_any(const struct fb_segment *segment, uint64_t limit);
/* Bytes of the pages in use, by the bits, and of their tables. */
uint64_t fb_pages_used(const struct fb_segment *segment);
/* Clear the bits of free pages. */
void fb_pages_mend(struct fb_segment *segment);
/* Pages ever used and pages that may hold memory; clamped, whatever the area says. */
uint64_t fb_pages_reach(const struct fb_segment *segment);
uint64_t fb_pages_touched(const struct fb_segment *segment);

/* How many a unit needs; if more than one in a segment without chains, it cannot be kept. */
static inline uint64_t fb_pages_for(const struct fb_segment *segment, uint64_t bytes)
{
    return bytes / segment->geometry.page_bytes + (bytes % segment->geometry.page_bytes != 0);
}
#endif
