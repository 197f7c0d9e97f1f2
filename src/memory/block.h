/*
 * block.h -- memory that is in the ledger: small structures (heap) and large areas (mapped).
 *
 * Each call reserves before it allocates and refunds after it frees, so that nobody has to do
 * the two steps by hand. Mapped areas are private, anonymous, 2 MiB aligned with huge pages
 * where they are large enough, zero, and not inherited by a fork.
 */
#ifndef FB_MEMORY_BLOCK_H
#define FB_MEMORY_BLOCK_H
#include "memory/budget.h"

/* `count` zeroed elements of `size` bytes; from 128 KiB on they are mapped and charged in whole
 * pages, so that freeing them gives them back to the system at once. NULL with the error filled
 * on failure (an overflowing product included). `what` names it in the message. */
void *fb_block_new(struct fb_budget *budget, enum fb_stage stage, uint64_t count, uint64_t size,
                   const char *what, forebay_error *error);
/* Grow to `count` elements, the new ones zero; the old block stays valid (and reserved) on
 * failure. */
void *fb_block_grow(struct fb_budget *budget, enum fb_stage stage, void *block, uint64_t old_count,
                    uint64_t count, uint64_t size, const char *what, forebay_error *error);
void fb_block_free(struct fb_budget *budget, enum fb_stage stage, void *block, uint64_t count,
                   uint64_t size);

/* What a mapping of `bytes` really takes: whole pages (huge ones from 2 MiB on). */
uint64_t fb_map_bytes(uint64_t bytes);
/* Map without touching the ledger: the caller has reserved fb_map_bytes(bytes). */
void *fb_map_reserved(uint64_t bytes, forebay_error *error);
void fb_unmap_reserved(void *area, uint64_t bytes);
/* Fault all pages now, writable. Failure is not an error: they will be faulted at first use. */
void fb_map_populate(void *area, uint64_t bytes);
/* Whether children inherit it: a batch in the caller's hands yes, a free slot no. */
void fb_map_inherit(void *area, uint64_t bytes, bool inherit);
#endif
