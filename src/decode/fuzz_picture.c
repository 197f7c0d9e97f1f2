/* A picture of any format that is decoded whole, with an allowance from the input. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decode/picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_picture_options options = { .limits = { .pixels = 1 << 18 } };
    uint32_t width, height;
    forebay_error error;
    uint8_t *file;

    if (size < 1)
        return 0;
    options.limits.bytes = (uint64_t)(1 + data[--size]) * 32 * FB_KIB;
    file = malloc(size ? size : 1);
    memcpy(file, data, size);
    if (fb_image_is_known(file, size) &&
        fb_picture_size(&options, file, size, &width, &height, &error) == FOREBAY_OK) {
        uint64_t bytes = (uint64_t)width * height * 3;
        uint8_t *rgb = malloc(bytes);
        void *memory = malloc(fb_picture_memory_bytes(&options));

        fb_picture_whole(&options, file, size, rgb, bytes, memory, &error);
        free(rgb);
        free(memory);
    }
    free(file);
    return 0;
}
