/* A JPEG file, a box of it, and how it is reduced, all from the input. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decode/picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make(const struct fb_picture_options *options, const uint8_t *file, size_t bytes,
                 uint64_t seed)
{
    struct fb_random random = { seed };
    void *memory = malloc(fb_picture_memory_bytes(options));
    struct fb_picture picture;
    uint32_t width, height;
    forebay_error error;

    if (fb_picture_make(&picture, options, file, bytes, &random, memory, &error) == FOREBAY_OK) {
        struct fb_pixel_style style;
        static const double mean[3], std[3] = { 1, 1, 1 };
        float *out = malloc((size_t)options->width * options->height * 3 * sizeof(*out));

        fb_pixel_style_init(&style, FOREBAY_F32, seed & 1, mean, std);
        fb_pixels_write(&style, picture.pixels, 4, picture.view, options->width, options->height,
                        picture.row, out);
        free(out);
    }
    if (fb_picture_size(options, file, bytes, &width, &height, &error) == FOREBAY_OK) {
        uint64_t rgb_bytes = (uint64_t)width * height * 3;
        uint8_t *rgb = malloc(rgb_bytes);

        fb_picture_whole(options, file, bytes, rgb, rgb_bytes, memory, &error);
        free(rgb);
    }
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_picture_options options = { .limits = { .pixels = 1 << 20, .bytes = 8 * FB_MIB },
                                          .crop = FB_CROP_RANDOM };
    uint8_t knobs[4];
    uint8_t *file;

    if (size < sizeof(knobs))
        return 0;
    memcpy(knobs, data + size - sizeof(knobs), sizeof(knobs));
    size -= sizeof(knobs);
    options.width = 1 + knobs[0] % 64;
    options.height = 1 + knobs[1] % 64;
    options.filter = (enum fb_filter)(knobs[2] % 3);
    options.exact = knobs[2] & 128;
    file = malloc(size ? size : 1); /* of its own, so that a byte behind it is noticed */
    memcpy(file, data, size);
    make(&options, file, size, knobs[3]);
    free(file);
    return 0;
}
