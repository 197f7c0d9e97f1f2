#include "memory/block.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/size.h"

#define PAGE ((uint64_t)4096)
#define HUGE_PAGE (2 * FB_MIB)

void *fb_block_new(struct fb_budget *budget, enum fb_stage stage, uint64_t count, uint64_t size,
                   const char *what, forebay_error *error)
{
    uint64_t bytes;
    void *block;

    if (!fb_mul(count, size, &bytes) || bytes > PTRDIFF_MAX) {
        fb_fail(error, FOREBAY_OVER_BUDGET, "%s: %llu x %llu bytes is more than any memory", what,
                (unsigned long long)count, (unsigned long long)size);
        return NULL;
    }
    if (fb_budget_reserve(budget, stage, bytes, what, error))
        return NULL;
    block = calloc(1, bytes ? bytes : 1);
    if (!block) {
        fb_budget_refund(budget, stage, bytes);
        fb_fail(error, FOREBAY_NO_MEMORY, "%s: the system refused %llu bytes", what,
                (unsigned long long)bytes);
    }
    return block;
}

void *fb_block_grow(struct fb_budget *budget, enum fb_stage stage, void *block, uint64_t old_count,
                    uint64_t count, uint64_t size, const char *what, forebay_error *error)
{
    /* Both are reserved while the bytes are copied: realloc may hold both, too. */
    void *grown = fb_block_new(budget, stage, count, size, what, error);

    if (!grown)
        return NULL;
    if (block) {
        memcpy(grown, block, fb_min(old_count, count) * size);
        fb_block_free(budget, stage, block, old_count, size);
    }
    return grown;
}

void fb_block_free(struct fb_budget *budget, enum fb_stage stage, void *block, uint64_t count,
                   uint64_t size)
{
    if (!block)
        return;
    free(block);
    fb_budget_refund(budget, stage, count * size);
}

uint64_t fb_map_bytes(uint64_t bytes)
{
    return fb_round_up(bytes ? bytes : 1, bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE);
}

void *fb_map_reserved(uint64_t bytes, forebay_error *error)
{
    uint64_t mapped = fb_map_bytes(bytes), slack = mapped >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *area, *aligned;

    area = mmap(NULL, mapped + slack, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        fb_fail_errno(error, FOREBAY_NO_MEMORY, "the system refused to map %llu bytes",
                      (unsigned long long)mapped);
        return NULL;
    }
    if (slack) { /* huge pages need their alignment: cut the ends off */
        aligned = (char *)fb_round_up((uint64_t)(uintptr_t)area, HUGE_PAGE);
        if (aligned > area)
            munmap(area, (size_t)(aligned - area));
        if (aligned + mapped < area + mapped + slack)
            munmap(aligned + mapped, (size_t)(area + slack - aligned));
        area = aligned;
        madvise(area, mapped, MADV_HUGEPAGE);
    }
    madvise(area, mapped, MADV_DONTFORK);
    return area;
}

void fb_unmap_reserved(void *area, uint64_t bytes)
{
    if (area)
        munmap(area, fb_map_bytes(bytes));
}

void fb_map_populate(void *area, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    madvise(area, fb_map_bytes(bytes), MADV_POPULATE_WRITE);
#else
    (void)area;
    (void)bytes;
#endif
}

void fb_map_inherit(void *area, uint64_t bytes, bool inherit)
{
    madvise(area, fb_map_bytes(bytes), inherit ? MADV_DOFORK : MADV_DONTFORK);
}
