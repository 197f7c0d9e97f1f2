/* generate_arrays.c -- lidar, frames, windows: float32 arrays, made and written piece by piece. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "generate/checksum.h"
#include "generate/generate_maker.h"
#include "generate/generate_noise.h"

typedef void (*fill_fn)(float *out, uint64_t key, uint64_t first, uint64_t count);

struct array {
    const char *name;
    fill_fn fill;
    uint64_t key;
    uint64_t floats;
    char header[256]; /* of .npy; "" for none */
};

/* A .npy header of version 1, padded so that the data begins at a multiple of 64. */
static void header_set(struct array *array, const char *shape)
{
    char dict[160];
    int length = snprintf(dict, sizeof(dict),
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", shape);
    unsigned total = (unsigned)fb_round_up(10 + (uint64_t)length + 1, 64), stated = total - 10;

    memset(array->header, ' ', total);
    memcpy(array->header, "\x93NUMPY\x01\x00", 8);
    array->header[8] = (char)(stated & 255);
    array->header[9] = (char)(stated >> 8);
    memcpy(array->header + 10, dict, (size_t)length);
    array->header[total - 1] = '\n';
    array->header[total] = '\0';
}

static uint64_t header_bytes(const struct array *array)
{
    const unsigned char *header = (const unsigned char *)array->header;

    return header[0] ? 10u + header[8] + 256u * header[9] : 0;
}

static int data_put(struct fb_maker *maker, struct fb_new_file *file, const struct array *array,
                    forebay_error *error)
{
    const uint64_t most = FB_PIECE_BYTES / sizeof(float);
    uint64_t sum = 0;

    for (uint64_t first = 0; first < array->floats; first += most) {
        uint64_t count = fb_min(most, array->floats - first);
        int status;

        array->fill((float *)(void *)maker->piece, array->key, first, count);
        sum += fb_checksum_piece(maker->piece, first * 4, count * 4, array->floats * 4);
        status = fb_maker_put(maker, file, maker->piece, count * 4, error);
        if (status)
            return status;
    }
    maker->made.checksum += sum;
    return FOREBAY_OK;
}

static int array_make(struct fb_maker *maker, const struct array *array, forebay_error *error)
{
    struct fb_new_file file;
    int status = fb_maker_open(maker, &file, array->name, error);

    if (status)
        return status;
    status = fb_new_file_put(&file, array->header, header_bytes(array), error);
    if (!status)
        status = data_put(maker, &file, array, error);
    if (status) {
        fb_new_file_give_up(&file);
        return status;
    }
    return fb_maker_commit(maker, &file, error);
}

static int too_small(const struct fb_maker *maker, uint64_t least, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_USE, "--bytes %" PRIu64 " is too small for %s: at least %"
                   PRIu64, maker->job->bytes, maker->job->options->kind, least);
}

static int lidar_make(struct fb_maker *maker, uint64_t number, forebay_error *error)
{
    char name[32];
    struct array array = { .name = name, .fill = fb_noise_points,
                           .key = fb_maker_key(maker, number, 0),
                           .floats = maker->job->bytes / 16 * 4 };

    if (!array.floats)
        return too_small(maker, 16, error);
    snprintf(name, sizeof(name), "%06" PRIu64 ".bin", number);
    return array_make(maker, &array, error);
}

static int windows_make(struct fb_maker *maker, uint64_t number, forebay_error *error)
{
    char name[32], shape[48];
    uint64_t rows = maker->job->bytes / (96 * 4);
    struct array array = { .name = name, .fill = fb_noise_normal,
                           .key = fb_maker_key(maker, number, 0), .floats = rows * 96 };

    if (!rows)
        return too_small(maker, 96 * 4, error);
    snprintf(name, sizeof(name), "%04" PRIu64 ".npy", number);
    snprintf(shape, sizeof(shape), "%" PRIu64 ", 96", rows);
    header_set(&array, shape);
    return array_make(maker, &array, error);
}

static uint64_t square_root(uint64_t x)
{
    uint64_t root = 0;

    for (uint64_t bit = (uint64_t)1 << 31; bit; bit >>= 1)
        if ((root + bit) * (root + bit) <= x)
            root += bit;
    return root;
}

/* Blur and sharp [h, w, 3] and voxel [32, h, w]: 38 floats a pixel, 9 to 16 as in 720 x 1280. */
static int frames_make(struct fb_maker *maker, uint64_t number, forebay_error *error)
{
    static const struct {
        const char *suffix;
        uint64_t planes;
    } parts[] = { { "blur", 3 }, { "sharp", 3 }, { "voxel", 32 } };
    uint64_t pixels = maker->job->bytes / (38 * 4);
    uint64_t height = square_root(pixels / 16 * 9 + pixels % 16 * 9 / 16);
    uint64_t width = height ? pixels / height : 0;

    if (!height || !width)
        return too_small(maker, 38 * 4 * 2, error);
    for (unsigned i = 0; i < 3; i++) {
        char name[48], shape[96];
        struct array array = { .name = name, .fill = fb_noise_unit,
                               .key = fb_maker_key(maker, number, i),
                               .floats = parts[i].planes * height * width };
        int status;

        snprintf(name, sizeof(name), "%03" PRIu64 "_%s.npy", number, parts[i].suffix);
        snprintf(shape, sizeof(shape), i < 2 ? "%llu, %llu, 3" : "32, %llu, %llu",
                 (unsigned long long)height, (unsigned long long)width);
        header_set(&array, shape);
        status = array_make(maker, &array, error);
        if (status)
            return status;
    }
    return FOREBAY_OK;
}

const struct fb_generator_ops fb_generate_lidar = { .checksum_of_data = true, .make = lidar_make };
const struct fb_generator_ops fb_generate_frames = { .checksum_of_data = true,
                                                     .make = frames_make };
const struct fb_generator_ops fb_generate_windows = { .checksum_of_data = true,
                                                      .make = windows_make };
