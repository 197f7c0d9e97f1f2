/*
 * arena.h -- an array that grows in place while an index is made.
 *
 * Mapped memory whose pages are moved, never copied: while it grows there is never a second copy
 * to pay for. Every page is reserved in the budget before it is mapped; the array ends where the
 * budget does.
 */
#ifndef FB_SOURCE_ARENA_H
#define FB_SOURCE_ARENA_H
#include "base/error.h"
#include "memory/budget.h"

struct fb_arena {
    struct fb_budget *budget;
    char *memory;
    uint64_t used;   /* bytes */
    uint64_t mapped; /* bytes, reserved */
};

/* Room for `bytes` more behind `used`, zeroed; NULL with the error filled if there is none. They
 * count as used from then on. Pointers into the arena are valid until the next call. */
void *fb_arena_add(struct fb_arena *arena, uint64_t bytes, const char *what, forebay_error *error);
/* Give back the pages behind `used`. */
void fb_arena_trim(struct fb_arena *arena);
void fb_arena_release(struct fb_arena *arena);
#endif
