#include "cache/segment.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/size.h"
#include "config/config.h"

#define OS_PAGE ((uint64_t)4096)
#define PAGE_BYTES_MAX ((uint64_t)1 << 40)

_Static_assert(sizeof(struct fb_entry) == FB_ENTRY_BYTES, "an index of at most 48 bytes per unit");
_Static_assert(sizeof(struct fb_row) == 128, "rows do not share cache lines");
_Static_assert(sizeof(struct fb_header) <= 4096, "the header is one page");

static uint64_t memory_of_host(void)
{
    struct sysinfo info;

    return sysinfo(&info) ? FB_GIB : (uint64_t)info.totalram * info.mem_unit;
}

static uint64_t pages_wanted(const struct fb_geometry *geometry,
                             const struct fb_cache_options *options)
{
    uint64_t bytes = fb_max(memory_of_host(), options->limit_bytes);
    uint64_t most = fb_min(bytes / geometry->page_bytes + 1, FB_UNITS_MAX), each = 1, all;

    if (geometry->chained)
        each =
            fb_max(options->unit_bytes_max, options->unit_bytes_median) / geometry->page_bytes + 1;
    return fb_mul(geometry->entries, each, &all) ? fb_min(all, most) : most;
}

int fb_geometry_choose(struct fb_geometry *geometry, const struct fb_cache_options *options,
                       bool shared, forebay_error *error)
{
    struct fb_unit_census census = { .count = options->unit_count,
                                     .bytes = options->unit_bytes,
                                     .bytes_median = options->unit_bytes_median,
                                     .page_bytes = options->page_bytes };
    struct fb_page_layout pages = fb_page_layout_choose(&census, options->limit_bytes);
    struct fb_geometry chosen = {
        .entries = pages.entries,
        .page_bytes = pages.page_bytes,
        .rows = shared ? FB_ROWS_MAX : 1,
        .pins = (uint32_t)fb_min(fb_max(options->pins_max, shared ? 64 : 1), FB_PINS_MAX),
        .chained = pages.chained,
        .policy = (uint32_t)options->policy->number,
    };
    struct fb_layout layout;

    if (!options->unit_count)
        return fb_fail(error, FOREBAY_BAD_USE, "cache: there are no units to keep");
    if (chosen.page_bytes > PAGE_BYTES_MAX)
        return fb_fail(error, FOREBAY_OVER_BUDGET, "cache: units of %llu bytes are too large",
                       (unsigned long long)chosen.page_bytes);
    chosen.pages = pages_wanted(&chosen, options);
    if (!fb_geometry_layout(&chosen, &layout))
        return fb_fail(error, FOREBAY_OVER_BUDGET,
                       "cache: %llu units with pages of %llu bytes are more than can be addressed",
                       (unsigned long long)chosen.entries, (unsigned long long)chosen.page_bytes);
    *geometry = chosen;
    return FOREBAY_OK;
}

/* All sums stay far below 2^64: every factor was checked against its maximum. */
bool fb_geometry_layout(const struct fb_geometry *geometry, struct fb_layout *layout)
{
    uint64_t words = (geometry->pages + 63) / 64, at, data_bytes;

    if (!geometry->entries || geometry->entries > FB_UNITS_MAX || !geometry->pages ||
        geometry->pages > FB_UNITS_MAX || !geometry->page_bytes ||
        geometry->page_bytes > PAGE_BYTES_MAX || !geometry->rows || geometry->rows > FB_ROWS_MAX ||
        !geometry->pins || geometry->pins > FB_PINS_MAX || geometry->chained > 1 ||
        !fb_mul(geometry->pages, geometry->page_bytes, &data_bytes) || data_bytes >> 62)
        return false;
    layout->rows_at = fb_round_up(sizeof(struct fb_header), 128);
    layout->pins_at = layout->rows_at + geometry->rows * sizeof(struct fb_row);
    layout->entries_at = fb_round_up(
        layout->pins_at + (uint64_t)geometry->rows * geometry->pins * sizeof(uint64_t), 64);
    at = fb_round_up(layout->entries_at + geometry->entries * sizeof(struct fb_entry), OS_PAGE);
    layout->owners_at = at;
    at = fb_round_up(at + geometry->pages * sizeof(uint32_t), OS_PAGE);
    layout->links_at = at;
    if (geometry->chained)
        at = fb_round_up(at + geometry->pages * sizeof(uint32_t), OS_PAGE);
    layout->bits_at = at;
    at = fb_round_up(at + words * sizeof(uint64_t), OS_PAGE);
    layout->summary_at = at;
    at = fb_round_up(at + (words + 63) / 64 * sizeof(uint64_t), OS_PAGE);
    layout->data_at = fb_round_up(at, 2 * FB_MIB);
    layout->total = layout->data_at + fb_round_up(data_bytes, OS_PAGE);
    /* Each of the four tables of pages ends somewhere inside a page of the system. */
    layout->fixed_bytes = layout->owners_at + 4 * OS_PAGE;
    layout->table_cost = sizeof(uint32_t) * (1 + geometry->chained) + 1;
    return true;
}

/* Pages that do not divide the system's end inside one. */
static uint64_t ragged(const struct fb_segment *segment)
{
    return segment->geometry.page_bytes % segment->grain == 0 ? 0 : segment->grain - 1;
}

uint64_t fb_segment_pages_in(const struct fb_segment *segment, uint64_t bytes)
{
    uint64_t fixed = segment->layout.fixed_bytes + ragged(segment);
    uint64_t each = segment->geometry.page_bytes + segment->layout.table_cost;

    if (bytes <= fixed)
        return 0;
    bytes -= fixed;
    return fb_min(bytes / each, segment->geometry.pages);
}

uint64_t fb_segment_bytes_for(const struct fb_segment *segment, uint64_t pages)
{
    return segment->layout.fixed_bytes + ragged(segment) + fb_page_at(segment, pages) +
           pages * segment->layout.table_cost;
}

void fb_segment_aim(struct fb_segment *segment)
{
    char *base = segment->base;
    const struct fb_layout *layout = &segment->layout;

    segment->header = (struct fb_header *)(void *)base;
    segment->rows = (struct fb_row *)(void *)(base + layout->rows_at);
    segment->pins = (_Atomic uint64_t *)(void *)(base + layout->pins_at);
    segment->entries = (struct fb_entry *)(void *)(base + layout->entries_at);
    segment->owners = (_Atomic uint32_t *)(void *)(base + layout->owners_at);
    segment->links = (_Atomic uint32_t *)(void *)(base + layout->links_at);
    segment->bits = (_Atomic uint64_t *)(void *)(base + layout->bits_at);
    segment->summary = (_Atomic uint64_t *)(void *)(base + layout->summary_at);
    segment->data = base + layout->data_at;
}

/* A new area is zero: all rows, entries and pages are free already. Bits say "used", so that a
 * zero bit of a page never touched costs no memory: see pages.c. */
void fb_segment_format(struct fb_segment *segment, uint64_t id)
{
    struct fb_header *header = segment->header;

    header->magic = FB_SEGMENT_MAGIC;
    header->version = FB_SEGMENT_VERSION;
    header->id = segment->id = id;
    header->geometry = segment->geometry;
    header->ready = 1;
}

void fb_segment_release(struct fb_segment *segment, bool forked)
{
    if (segment->base && !forked)
        munmap(segment->base, segment->layout.total);
    if (segment->fd >= 0)
        close(segment->fd);
    segment->base = NULL;
    segment->fd = -1;
}

void fb_segment_get(const struct fb_segment *segment, uint64_t at, void *to, uint64_t bytes)
{
    fb_copy_past(to, segment->data + at, bytes);
}

void fb_segment_put(struct fb_segment *segment, uint64_t at, const void *from, uint64_t bytes,
                    bool fresh)
{
    uint64_t offset = segment->layout.data_at + at, done = 0;

    /* Writing makes the pages without a fault each: twice as fast as through the mapping. What a
     * write cannot do (no memory, a signal) the mapping does. */
    while (fresh && segment->fd >= 0 && done < bytes) {
        ssize_t wrote =
            pwrite(segment->fd, (const char *)from + done, bytes - done, (off_t)(offset + done));

        if (wrote <= 0)
            break;
        done += (uint64_t)wrote;
    }
    memcpy(segment->data + at + done, (const char *)from + done, bytes - done);
}
