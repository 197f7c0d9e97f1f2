#include "source/arena.h"

#include <sys/mman.h>

#include "base/size.h"

#define PAGE ((uint64_t)4096)

/* Move the mapping to another size; the budget knows already. */
static bool resize(struct fb_arena *arena, uint64_t mapped)
{
    void *memory = arena->memory
                       ? mremap(arena->memory, arena->mapped, mapped, MREMAP_MAYMOVE)
                       : mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);

    if (memory == MAP_FAILED)
        return false;
    arena->memory = memory;
    arena->mapped = mapped;
    return true;
}

static int grow(struct fb_arena *arena, uint64_t wanted, const char *what, forebay_error *error)
{
    /* An eighth more than is there: few calls, little left over. */
    uint64_t mapped = fb_round_up(fb_max(wanted, arena->mapped + arena->mapped / 8), PAGE);
    uint64_t more = mapped - arena->mapped;
    int status = fb_budget_reserve(arena->budget, FB_STAGE_INDEX, more, what, error);

    if (status)
        return status;
    if (!resize(arena, mapped)) {
        fb_budget_refund(arena->budget, FB_STAGE_INDEX, more);
        return fb_fail_errno(error, FOREBAY_NO_MEMORY, "%s: the system refused %llu bytes", what,
                             (unsigned long long)more);
    }
    return FOREBAY_OK;
}

void *fb_arena_add(struct fb_arena *arena, uint64_t bytes, const char *what, forebay_error *error)
{
    uint64_t wanted;

    if (!fb_add(arena->used, bytes, &wanted) || wanted > PTRDIFF_MAX) {
        fb_fail(error, FOREBAY_OVER_BUDGET, "%s: more bytes than any memory has", what);
        return NULL;
    }
    if (wanted > arena->mapped && grow(arena, wanted, what, error))
        return NULL;
    arena->used = wanted;
    return arena->memory + (wanted - bytes);
}

void fb_arena_trim(struct fb_arena *arena)
{
    uint64_t mapped = fb_round_up(fb_max(arena->used, 1), PAGE), before = arena->mapped;

    if (mapped < before && resize(arena, mapped))
        fb_budget_refund(arena->budget, FB_STAGE_INDEX, before - mapped);
}

void fb_arena_release(struct fb_arena *arena)
{
    if (arena->memory) {
        munmap(arena->memory, arena->mapped);
        fb_budget_refund(arena->budget, FB_STAGE_INDEX, arena->mapped);
    }
    *arena = (struct fb_arena){ .budget = arena->budget };
}
