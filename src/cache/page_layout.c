/* page_layout.c -- the size of a page, and how many units the index covers. */
#include "cache/page_layout.h"

#include "base/size.h"
#include "cache/cache.h"

#define OS_PAGE ((uint64_t)4096)
#define CHAIN 16 /* pages in a median unit: half a page of waste is then 3 % of it */
#define PAGE_STEP ((uint64_t)64) /* pages below the system's are multiples of this */

uint64_t fb_cache_units_covered(uint64_t units, uint64_t limit)
{
    uint64_t affordable = limit / 2 / FB_ENTRY_BYTES;

    return fb_min(fb_min(units, fb_max(affordable, 1)), FB_UNITS_MAX);
}

/* A sixteenth of the median. Small units have smaller pages than the system's, because half a page
 * is lost at the end of each; but a page has 9 bytes of tables, and page / 2 + 9 x unit / page is
 * least for a page of sqrt(18 x unit). */
static uint64_t page_for(uint64_t median)
{
    uint64_t sixteenth = median / CHAIN, page = PAGE_STEP;

    if (sixteenth >= OS_PAGE)
        return sixteenth & ~(OS_PAGE - 1);
    while (page + PAGE_STEP <= sixteenth || (page + PAGE_STEP) * (page + PAGE_STEP) <= 18 * median)
        page += PAGE_STEP;
    return page;
}

struct fb_page_layout fb_page_layout_choose(const struct fb_unit_census *census, uint64_t limit)
{
    return (struct fb_page_layout){
        .entries = fb_cache_units_covered(census->count, limit),
        .page_bytes = census->bytes        ? census->bytes
                      : census->page_bytes ? census->page_bytes
                                           : page_for(census->bytes_median),
        .chained = census->bytes == 0,
    };
}
