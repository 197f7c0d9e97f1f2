/* transport.c -- forebay_transport_*: the arena of batches from worker processes, for clients. */
#include <malloc.h>

#include "base/size.h"
#include "memory/host.h"
#include "transport/arena.h"
#include "transport/watch.h"

#define AUTO_SHARE 4           /* of the free memory */
#define AUTO_MIN (64 * FB_MIB) /* where nothing is known, or little is free */

static struct fb_arena *arena_of(forebay_transport *transport)
{
    return (struct fb_arena *)transport;
}

static struct fb_range inner(const forebay_range *range)
{
    return (struct fb_range){ range->data, range->bytes, range->offset, range->inside };
}

static forebay_range outer(const struct fb_range *range)
{
    return (forebay_range){ range->data, range->bytes, range->offset, range->word };
}

int forebay_transport_open(forebay_transport **out, uint64_t limit_bytes, forebay_error *error)
{
    struct fb_host_memory memory;

    if (!limit_bytes) {
        fb_host_memory_read(&memory, "");
        limit_bytes = memory.left_bytes == FB_UNKNOWN ? AUTO_MIN
                                                      : fb_max(memory.left_bytes / AUTO_SHARE,
                                                               AUTO_MIN);
    }
    return fb_arena_open((struct fb_arena **)out, limit_bytes, NULL, error);
}

int forebay_transport_attach(forebay_transport **out, int fd, forebay_error *error)
{
    return fb_arena_attach((struct fb_arena **)out, fd, error);
}

int forebay_transport_fd(const forebay_transport *transport)
{
    return fb_arena_fd((const struct fb_arena *)transport);
}

void forebay_transport_close(forebay_transport *transport)
{
    fb_arena_close(arena_of(transport));
}

forebay_transport *forebay_transport_share(forebay_transport *transport)
{
    return (forebay_transport *)fb_arena_share(arena_of(transport));
}

int forebay_transport_take(forebay_transport *transport, uint64_t bytes, forebay_range *range)
{
    struct fb_range taken;

    if (!fb_arena_take(arena_of(transport), bytes, &taken))
        return FOREBAY_MISS;
    *range = outer(&taken);
    return FOREBAY_OK;
}

uint64_t forebay_transport_send(forebay_transport *transport, const forebay_range *range)
{
    struct fb_range sent = inner(range);

    return fb_arena_send(arena_of(transport), &sent);
}

int forebay_transport_adopt(forebay_transport *transport, uint64_t offset, uint64_t bytes,
                            uint64_t ticket, forebay_range *range, forebay_error *error)
{
    struct fb_range adopted;
    int status = fb_arena_adopt(arena_of(transport), offset, bytes, ticket, &adopted, error);

    if (!status)
        *range = outer(&adopted);
    return status;
}

void forebay_transport_release(forebay_transport *transport, const forebay_range *range)
{
    struct fb_range released = inner(range);

    fb_arena_release(arena_of(transport), &released);
}

uint64_t forebay_transport_reclaim(forebay_transport *transport, int pid)
{
    return fb_arena_reclaim(arena_of(transport), pid);
}

int forebay_transport_set_limit(forebay_transport *transport, uint64_t limit_bytes,
                                forebay_error *error)
{
    return fb_arena_set_limit(arena_of(transport), limit_bytes, error);
}

void forebay_transport_read_stats(forebay_transport *transport, forebay_transport_stats *stats)
{
    struct fb_arena_stats read;

    fb_arena_read(arena_of(transport), &read);
    *stats = (forebay_transport_stats){ read.limit_bytes, read.used_bytes,     read.own_bytes,
                                        read.own_ranges,  read.resident_bytes, read.refused };
}

int forebay_worker_watch(forebay_error *error)
{
    return fb_watch_parent(error);
}

/* From the heap instead of a mapping of its own, and never trimmed: the pages stay with us. */
void forebay_worker_keep_heap(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
}
