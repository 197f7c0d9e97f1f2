/*
 * unpack.h -- what is inside a gzip or zstd file, from its beginning to its end.
 *
 * There is no way into the middle: whoever wants a later byte unpacks all before it. One object
 * unpacks file after file in memory that was reserved once. Every file is hostile: a zstd frame
 * that asks for a larger window than `window_max` is refused with the number before anything is
 * allocated, and what comes out is checked by the formats' own sums.
 */
#ifndef FB_DECODE_UNPACK_H
#define FB_DECODE_UNPACK_H
#include "decode/input.h"
#include "memory/budget.h"

enum fb_packing { FB_PACKING_NONE, FB_PACKING_GZIP, FB_PACKING_ZSTD, FB_PACKING_COUNT };

struct fb_unpack;

/* By its first bytes, whatever its name. NOT_BUILT if it is packed in a way that is not read. */
int fb_packing_find(const struct fb_input *input, enum fb_packing *packing, forebay_error *error);
const char *fb_packing_name(enum fb_packing packing); /* "gzip" */

/* What an object takes; it reserves that itself, as `stage`. window_max 0: no zstd. */
uint64_t fb_unpack_bytes(uint64_t window_max);
int fb_unpack_new(struct fb_unpack **out, uint64_t window_max, struct fb_budget *budget,
                  enum fb_stage stage, forebay_error *error);
void fb_unpack_free(struct fb_unpack *unpack);

/* Begin with a file; `input` is borrowed and asked for one piece behind the other. */
int fb_unpack_begin(struct fb_unpack *unpack, enum fb_packing packing, const struct fb_input *input,
                    forebay_error *error);
/* The next `bytes`; fewer (*made) only at the end. After a failure only begin helps. */
int fb_unpack_read(struct fb_unpack *unpack, void *into, uint64_t bytes, uint64_t *made,
                   forebay_error *error);
/* Of a plain file only: go on at `offset`. */
void fb_unpack_jump(struct fb_unpack *unpack, uint64_t offset);
/* Where in the file it is, and the largest window that a frame wanted since begin. */
uint64_t fb_unpack_at(const struct fb_unpack *unpack);
uint64_t fb_unpack_window(const struct fb_unpack *unpack);
#endif
