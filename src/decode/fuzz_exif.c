/* EXIF alone, and EXIF and XMP inside a JPEG's segments and a PNG's chunks. */
#include <stdlib.h>
#include <string.h>

#include "decode/exif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size ? size : 1);
    unsigned one, two, three;
    bool cut;

    if (size)
        memcpy(bytes, data, size);
    one = fb_exif_orientation(bytes, size);
    two = fb_exif_jpeg_orientation(bytes, size);
    three = fb_exif_png_orientation(bytes, size, &cut);
    if (one < 1 || one > 8 || two < 1 || two > 8 || three < 1 || three > 8)
        abort();
    free(bytes);
    return 0;
}
