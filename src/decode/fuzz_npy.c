/* Any bytes as a .npy header: no crash, and what is accepted keeps its promises. */
#include <stdlib.h>
#include <string.h>

#include "decode/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_npy npy;
    forebay_error error;
    char text[256];
    uint64_t bytes;

    if (fb_npy_parse(&npy, data, size, &error))
        return 0;
    if (npy.ndim > FB_NPY_DIMS || npy.header_bytes > size || npy.data_bytes > INT64_MAX)
        abort();
    bytes = forebay_dtype_bytes(npy.dtype);
    for (unsigned i = 0; i < npy.ndim; i++)
        bytes *= npy.shape[i];
    if (bytes != npy.data_bytes || strlen(fb_npy_text(&npy, text)) >= sizeof(text))
        abort();
    if (npy.data_bytes <= size - npy.header_bytes && npy.data_bytes) {
        void *to = malloc(npy.data_bytes);
        uint64_t count = npy.data_bytes / forebay_dtype_bytes(npy.dtype);

        if (npy.fortran)
            fb_npy_place(&npy, to, 0, npy.shape[0], data + npy.header_bytes, 0, count);
        else
            memcpy(to, data + npy.header_bytes, npy.data_bytes);
        if (npy.swapped)
            fb_npy_swap(to, npy.dtype, count);
        free(to);
    }
    return 0;
}
