#include "memory/block.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/size.h"

#define PAGE ((uint64_t)4096)
#define HUGE_PAGE (2 * FB_MIB)
#define LARGE_BYTES (128 * FB_KIB)

/* malloc keeps what is freed below its own threshold, and raises that as it goes: a large block
 * would stay ours after its refund. So large ones are mapped here. */
static bool is_mapped(uint64_t bytes)
{
    return bytes >= LARGE_BYTES;
}

static uint64_t charge(uint64_t bytes)
{
    return is_mapped(bytes) ? fb_round_up(bytes, PAGE) : bytes;
}

static bool block_bytes(uint64_t count, uint64_t size, uint64_t *bytes, const char *what,
                        forebay_error *error)
{
    if (fb_mul(count, size, bytes) && *bytes <= PTRDIFF_MAX - PAGE)
        return true;
    fb_fail(error, FOREBAY_OVER_BUDGET, "%s: %llu x %llu bytes is more than any memory", what,
            (unsigned long long)count, (unsigned long long)size);
    return false;
}

static void *allocate(uint64_t bytes)
{
    void *block;

    if (!is_mapped(bytes))
        return calloc(1, bytes ? bytes : 1);
    block = mmap(NULL, charge(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

static void fail_refused(const char *what, uint64_t bytes, forebay_error *error)
{
    fb_fail(error, FOREBAY_NO_MEMORY, "%s: the system refused %llu bytes", what,
            (unsigned long long)bytes);
}

void *fb_block_new(struct fb_budget *budget, enum fb_stage stage, uint64_t count, uint64_t size,
                   const char *what, forebay_error *error)
{
    uint64_t bytes;
    void *block;

    if (!block_bytes(count, size, &bytes, what, error) ||
        fb_budget_reserve(budget, stage, charge(bytes), what, error))
        return NULL;
    block = allocate(bytes);
    if (!block) {
        fb_budget_refund(budget, stage, charge(bytes));
        fail_refused(what, bytes, error);
    }
    return block;
}

/* Pages are moved, not copied: only what is added has to be reserved. */
static void *grow_mapped(struct fb_budget *budget, enum fb_stage stage, void *block, uint64_t old,
                         uint64_t bytes, const char *what, forebay_error *error)
{
    uint64_t added = charge(bytes) - charge(old);
    void *grown;

    if (fb_budget_reserve(budget, stage, added, what, error))
        return NULL;
    grown = mremap(block, charge(old), charge(bytes), MREMAP_MAYMOVE);
    if (grown != MAP_FAILED)
        return grown;
    fb_budget_refund(budget, stage, added);
    fail_refused(what, bytes, error);
    return NULL;
}

void *fb_block_grow(struct fb_budget *budget, enum fb_stage stage, void *block, uint64_t old_count,
                    uint64_t count, uint64_t size, const char *what, forebay_error *error)
{
    uint64_t old = block ? old_count * size : 0, bytes;
    void *grown;

    if (!block_bytes(count, size, &bytes, what, error))
        return NULL;
    if (block && is_mapped(old) && bytes >= old)
        return grow_mapped(budget, stage, block, old, bytes, what, error);
    /* Both are reserved while the bytes are copied. */
    grown = fb_block_new(budget, stage, count, size, what, error);
    if (grown && block) {
        memcpy(grown, block, fb_min(old, bytes));
        fb_block_free(budget, stage, block, old_count, size);
    }
    return grown;
}

void fb_block_free(struct fb_budget *budget, enum fb_stage stage, void *block, uint64_t count,
                   uint64_t size)
{
    uint64_t bytes = count * size;

    if (!block)
        return;
    if (is_mapped(bytes))
        munmap(block, charge(bytes));
    else
        free(block);
    fb_budget_refund(budget, stage, charge(bytes));
}

uint64_t fb_map_bytes(uint64_t bytes)
{
    return fb_round_up(bytes ? bytes : 1, bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE);
}

void *fb_map_reserved(uint64_t bytes, forebay_error *error)
{
    uint64_t mapped = fb_map_bytes(bytes), slack = mapped >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *area, *aligned;

    if (mapped > PTRDIFF_MAX - HUGE_PAGE) {
        fb_fail(error, FOREBAY_NO_MEMORY, "%llu bytes are more than any memory",
                (unsigned long long)bytes);
        return NULL;
    }
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
