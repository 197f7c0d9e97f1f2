/* dtype.h -- element types by name. */
#ifndef FB_BASE_DTYPE_H
#define FB_BASE_DTYPE_H
#include "forebay.h"

/* "f32", or NumPy's "float32" (also its "half", "single", "double", "float", "int", "long": on
 * Linux the last three are 64 bits wide). False if there is no such type. */
bool fb_dtype_parse(const char *text, forebay_dtype *dtype);
#endif
