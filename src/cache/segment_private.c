#include "cache/segment.h"

#include <sys/mman.h>

#include "base/size.h"
#include "memory/block.h"

/* Huge pages make the last step of a cache up to 2 MiB too large: not for small ones. */
#define HUGE_FROM (256 * FB_MIB)

int fb_segment_private_new(struct fb_segment *segment, const struct fb_geometry *geometry,
                           const struct fb_cache_options *options, forebay_error *error)
{
    bool huge = options->limit_bytes >= HUGE_FROM;

    *segment = (struct fb_segment){ .geometry = *geometry, .fd = -1 };
    fb_geometry_layout(geometry, &segment->layout);
    segment->base = fb_map_reserved(segment->layout.total, error);
    /* Where the system promises no more than it has, room to grow cannot be had. */
    if (!segment->base) {
        segment->geometry.pages =
            fb_min(geometry->pages, options->limit_bytes / geometry->page_bytes + 1);
        fb_geometry_layout(&segment->geometry, &segment->layout);
        segment->base = fb_map_reserved(segment->layout.total, error);
    }
    if (!segment->base)
        return FOREBAY_NO_MEMORY;
    /* What munmap is given later must be what was mapped. */
    segment->layout.total = fb_map_bytes(segment->layout.total);
    segment->grain = huge ? 2 * FB_MIB : 4 * FB_KIB;
    madvise(segment->base, huge ? segment->layout.data_at : segment->layout.total, MADV_NOHUGEPAGE);
    fb_segment_aim(segment);
    fb_segment_format(segment, 0);
    return FOREBAY_OK;
}
