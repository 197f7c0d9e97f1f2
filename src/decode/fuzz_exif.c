/* EXIF, alone and inside a JPEG's segments. */
#include <stdlib.h>
#include <string.h>

#include "decode/exif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size ? size : 1);
    unsigned one, two;

    if (size)
        memcpy(bytes, data, size);
    one = fb_exif_orientation(bytes, size);
    two = fb_exif_jpeg_orientation(bytes, size);
    if (one < 1 || one > 8 || two < 1 || two > 8)
        abort();
    free(bytes);
    return 0;
}
