/* check_cuda.c -- the CUDA back end's declarations, held against the toolkit's own. It does nothing
 * but compile: a parameter of another type, or a constant of another value, does not. */
#include "device/cuda_driver.h"

#define FB_X(name, value) _Static_assert((int)(name) == (value), #name);
FB_CUDA_CONSTANTS(FB_X)
#undef FB_X

int main(void)
{
#define FB_X(name, symbol, parameters)                                                      \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) parameters), \
                   symbol);
    FB_CUDA_SYMBOLS(FB_X)
#undef FB_X
    return 0;
}
