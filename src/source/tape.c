#include "source/tape.h"

#include <sys/mman.h>

#include "base/size.h"

#define PAGE ((uint64_t)4096)

/* Move the mapping to another size; the budget knows already. */
static bool resize(struct fb_tape *tape, uint64_t mapped)
{
    void *memory = tape->memory
                       ? mremap(tape->memory, tape->mapped, mapped, MREMAP_MAYMOVE)
                       : mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);

    if (memory == MAP_FAILED)
        return false;
    tape->memory = memory;
    tape->mapped = mapped;
    return true;
}

static int grow(struct fb_tape *tape, uint64_t wanted, const char *what, forebay_error *error)
{
    /* An eighth more than is there: few calls, little left over. */
    uint64_t mapped = fb_round_up(fb_max(wanted, tape->mapped + tape->mapped / 8), PAGE);
    uint64_t more = mapped - tape->mapped;
    int status = fb_budget_reserve(tape->budget, FB_STAGE_INDEX, more, what, error);

    if (status)
        return status;
    if (!resize(tape, mapped)) {
        fb_budget_refund(tape->budget, FB_STAGE_INDEX, more);
        return fb_fail_errno(error, FOREBAY_NO_MEMORY, "%s: the system refused %llu bytes", what,
                             (unsigned long long)more);
    }
    return FOREBAY_OK;
}

void *fb_tape_add(struct fb_tape *tape, uint64_t bytes, const char *what, forebay_error *error)
{
    uint64_t wanted;

    if (!fb_add(tape->used, bytes, &wanted) || wanted > PTRDIFF_MAX) {
        fb_fail(error, FOREBAY_OVER_BUDGET, "%s: more bytes than any memory has", what);
        return NULL;
    }
    if (wanted > tape->mapped && grow(tape, wanted, what, error))
        return NULL;
    tape->used = wanted;
    return tape->memory + (wanted - bytes);
}

void fb_tape_trim(struct fb_tape *tape)
{
    uint64_t mapped = fb_round_up(fb_max(tape->used, 1), PAGE), before = tape->mapped;

    if (mapped < before && resize(tape, mapped))
        fb_budget_refund(tape->budget, FB_STAGE_INDEX, before - mapped);
}

void fb_tape_release(struct fb_tape *tape)
{
    if (tape->memory) {
        munmap(tape->memory, tape->mapped);
        fb_budget_refund(tape->budget, FB_STAGE_INDEX, tape->mapped);
    }
    *tape = (struct fb_tape){ .budget = tape->budget };
}
