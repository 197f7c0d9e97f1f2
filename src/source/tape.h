/*
 * tape.h -- an array that grows in place while an index is made.
 *
 * Mapped memory whose pages are moved, never copied: while it grows there is never a second copy
 * to pay for. Every page is reserved in the budget before it is mapped; the array ends where the
 * budget does.
 */
#ifndef FB_SOURCE_TAPE_H
#define FB_SOURCE_TAPE_H
#include "base/error.h"
#include "memory/budget.h"

struct fb_tape {
    struct fb_budget *budget;
    char *memory;
    uint64_t used;   /* bytes */
    uint64_t mapped; /* bytes, reserved */
};

/* Room for `bytes` more behind `used`, zeroed; NULL with the error filled if there is none. They
 * count as used from then on. Pointers into the tape are valid until the next call. */
void *fb_tape_add(struct fb_tape *tape, uint64_t bytes, const char *what, forebay_error *error);
/* Give back the pages behind `used`. */
void fb_tape_trim(struct fb_tape *tape);
void fb_tape_release(struct fb_tape *tape);
#endif
