/* cast.h -- numbers of one type to another, in the pass that copies them; vectorised by hand or by
 * the compiler, the same bits on every CPU. */
#ifndef FB_DECODE_CAST_H
#define FB_DECODE_CAST_H
#include "forebay.h"

/* What batch.dtype (FB_CAST_*) makes of a field of type `from`: floating point fields become the
 * wanted type, all others stay as they are. */
forebay_dtype fb_cast_target(int cast, forebay_dtype from);
/* Convert `count` numbers; `to` and `from` must not overlap and need no alignment. Rounds to
 * nearest even; overflow gives infinity, NaN stays a (quiet) NaN. Equal types are a copy. */
void fb_cast(void *to, forebay_dtype to_type, const void *from, forebay_dtype from_type,
             uint64_t count);
/* The same without what only some CPUs have: tests hold the two against each other. */
void fb_cast_plain(void *to, forebay_dtype to_type, const void *from, forebay_dtype from_type,
                   uint64_t count);
#endif
