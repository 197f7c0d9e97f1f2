/*
 * generate_images.c -- JPEG files with a photograph's spectrum: octaves of smooth noise whose
 * amplitude falls with frequency, fine grain, and a few hard-edged objects. Rows are made one by
 * one in integers and go straight to the encoder.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>

#include "base/size.h"
#include "generate/generate_maker.h"
#include "generate/generate_noise.h"

#define CLASSES 10
#define OCTAVES 8
#define GRID_MOST (3 << (OCTAVES - 1))
#define OBJECTS_MOST 6
#define BYTES_MOST 100000000u /* about 15000 x 12000 pixels */

/* One octave: a grid of random colours, of which two rows are kept. Values in 1/256 grey level. */
struct octave {
    uint64_t key;
    int64_t amplitude; /* 1/256 grey level for one sigma */
    uint64_t cells;    /* along each side */
    uint64_t upper;    /* the grid row in rows[0]; the next is in rows[1] */
    int32_t rows[2][(GRID_MOST + 1) * 3];
    int32_t line[(GRID_MOST + 1) * 3]; /* interpolated for the present image row */
};

struct object {
    int64_t x, y, wide, high; /* an ellipse: centre and half axes */
    int32_t colour[3];
};

struct picture {
    uint64_t key;
    uint64_t width, height;
    struct octave octaves[OCTAVES];
    unsigned object_count;
    struct object objects[OBJECTS_MOST];
    int32_t *sums;       /* one row, 1/256 grey level */
    unsigned char *row;  /* the same, clipped */
};

static void grid_row(struct octave *octave, uint64_t y, int32_t *row)
{
    for (uint64_t x = 0; x <= octave->cells; x++) {
        uint64_t at = (y * (octave->cells + 1) + x) * 4;
        int64_t light = (int64_t)fb_noise_bell(octave->key, at) * 100;

        for (unsigned c = 0; c < 3; c++) {
            int64_t tint = (int64_t)fb_noise_bell(octave->key, at + 1 + c) * 35;

            row[x * 3 + c] =
                (int32_t)((light + tint) * octave->amplitude / (100 * FB_BELL_SIGMA));
        }
    }
}

/* Bring the two grid rows around image row y, and interpolate between them. */
static void octave_line(struct octave *octave, uint64_t y, uint64_t height)
{
    uint64_t at = y * octave->cells * 256 / height, upper = at / 256;
    int32_t weight = (int32_t)(at % 256);

    if (upper != octave->upper) {
        if (upper == octave->upper + 1)
            memcpy(octave->rows[0], octave->rows[1], sizeof(octave->rows[0]));
        else
            grid_row(octave, upper, octave->rows[0]);
        grid_row(octave, upper + 1, octave->rows[1]);
        octave->upper = upper;
    }
    for (uint64_t i = 0; i < (octave->cells + 1) * 3; i++)
        octave->line[i] = (octave->rows[0][i] * (256 - weight) + octave->rows[1][i] * weight) / 256;
}

/* What is linear between the points of a coarse grid is so between those of one twice as fine:
 * the coarse octave is added there, and only the finest is interpolated for every pixel. */
static void octave_refine(const struct octave *coarse, struct octave *fine)
{
    for (uint64_t x = 0; x <= fine->cells; x++)
        for (unsigned c = 0; c < 3; c++)
            fine->line[x * 3 + c] +=
                (coarse->line[x / 2 * 3 + c] + coarse->line[(x + 1) / 2 * 3 + c]) / 2;
}

static void octave_add(const struct octave *octave, int32_t *sums, uint64_t width)
{
    uint64_t step = octave->cells * 65536 / width;

    for (uint64_t x = 0; x < width; x++) {
        uint64_t at = x * step;
        const int32_t *cell = octave->line + (at >> 16) * 3;
        int32_t weight = (int32_t)(at >> 8 & 255);

        for (unsigned c = 0; c < 3; c++)
            sums[x * 3 + c] += (cell[c] * (256 - weight) + cell[c + 3] * weight) / 256;
    }
}

static void object_add(const struct object *object, int64_t y, int32_t *sums, uint64_t width)
{
    int64_t wide2 = object->wide * object->wide, high2 = object->high * object->high;
    int64_t left = object->x - object->wide, right = object->x + object->wide;
    int64_t dy2 = (y - object->y) * (y - object->y);

    if (dy2 > high2)
        return;
    for (int64_t x = left < 0 ? 0 : left; x <= right && x < (int64_t)width; x++) {
        int64_t dx2 = (x - object->x) * (x - object->x);

        for (unsigned c = 0; c < 3 && dx2 * high2 + dy2 * wide2 <= wide2 * high2; c++)
            sums[x * 3 + (int64_t)c] += object->colour[c];
    }
}

static void grain_add(const struct picture *picture, uint64_t y, int32_t *sums)
{
    uint64_t first = y * picture->width;

    for (uint64_t x = 0; x < picture->width; x++) {
        int32_t grain = fb_noise_bell(picture->key, first + x) * 15 / (FB_BELL_SIGMA / 256);

        for (unsigned c = 0; c < 3; c++)
            sums[x * 3 + c] += grain;
    }
}

static void picture_row(struct picture *picture, uint64_t y)
{
    uint64_t count = picture->width * 3;

    for (uint64_t i = 0; i < count; i++)
        picture->sums[i] = 120 * 256;
    for (unsigned i = 0; i < OCTAVES; i++) {
        octave_line(&picture->octaves[i], y, picture->height);
        if (i)
            octave_refine(&picture->octaves[i - 1], &picture->octaves[i]);
    }
    octave_add(&picture->octaves[OCTAVES - 1], picture->sums, picture->width);
    for (unsigned i = 0; i < picture->object_count; i++)
        object_add(&picture->objects[i], (int64_t)y, picture->sums, picture->width);
    grain_add(picture, y, picture->sums);
    for (uint64_t i = 0; i < count; i++) {
        int32_t level = picture->sums[i] / 256;

        picture->row[i] = (unsigned char)(level < 0 ? 0 : level > 255 ? 255 : level);
    }
}

static void objects_init(struct picture *picture, struct fb_random *random)
{
    picture->object_count = 2 + (unsigned)fb_random_below(random, OBJECTS_MOST - 1);
    for (unsigned i = 0; i < picture->object_count; i++) {
        struct object *object = &picture->objects[i];

        object->x = (int64_t)fb_random_below(random, picture->width);
        object->y = (int64_t)fb_random_below(random, picture->height);
        object->wide = 1 + (int64_t)fb_random_below(random, picture->width / 5 + 1);
        object->high = 1 + (int64_t)fb_random_below(random, picture->height / 5 + 1);
        for (unsigned c = 0; c < 3; c++)
            object->colour[c] = (int32_t)fb_random_below(random, 200 * 256) - 100 * 256;
    }
}

/* About 500 x 400 for the default of 100 kB; area grows with the bytes asked for. */
static void picture_init(struct picture *picture, const struct fb_maker *maker, uint64_t number)
{
    struct fb_random random = { fb_maker_key(maker, number, 0) };
    uint64_t scale = 1, wide = 470 + fb_random_below(&random, 61),
             high = 370 + fb_random_below(&random, 61);
    int64_t amplitude = 70 * 256;

    while ((scale + 1) * (scale + 1) <= maker->job->bytes * 10)
        scale++;
    wide = fb_max(wide * scale / 1000, 1);
    high = fb_max(high * scale / 1000, 1);
    picture->key = fb_maker_key(maker, number, 1);
    picture->width = fb_random_below(&random, 4) ? wide : high;
    picture->height = picture->width == wide ? high : wide;
    for (unsigned i = 0; i < OCTAVES; i++) {
        struct octave *octave = &picture->octaves[i];

        octave->key = fb_maker_key(maker, number, 2 + i);
        octave->amplitude = amplitude;
        octave->cells = (uint64_t)3 << i;
        octave->upper = UINT64_MAX - 1; /* none yet */
        amplitude = amplitude * 62 / 100;
    }
    objects_init(picture, &random);
}

struct encoder {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    unsigned char *data;
    unsigned long bytes;
    char message[JMSG_LENGTH_MAX];
};

static void encoder_fail(j_common_ptr jpeg)
{
    struct encoder *encoder = (struct encoder *)jpeg->client_data;

    jpeg->err->format_message(jpeg, encoder->message);
    longjmp(encoder->failed, 1);
}

/* Quality 90, the usual halved chroma; the slow integer DCT gives the same bits on every CPU. */
static int encode(struct encoder *encoder, struct picture *picture, forebay_error *error)
{
    struct jpeg_compress_struct *jpeg = &encoder->jpeg;

    jpeg->err = jpeg_std_error(&encoder->errors);
    jpeg->client_data = encoder;
    encoder->errors.error_exit = encoder_fail;
    if (setjmp(encoder->failed)) {
        jpeg_destroy_compress(jpeg);
        return fb_fail(error, FOREBAY_NO_MEMORY, "libjpeg: %s", encoder->message);
    }
    jpeg_create_compress(jpeg);
    jpeg_mem_dest(jpeg, &encoder->data, &encoder->bytes);
    jpeg->image_width = (JDIMENSION)picture->width;
    jpeg->image_height = (JDIMENSION)picture->height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg->dct_method = JDCT_ISLOW;
    jpeg_set_quality(jpeg, 90, TRUE);
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = picture->row;

        picture_row(picture, jpeg->next_scanline);
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
    jpeg_destroy_compress(jpeg);
    return FOREBAY_OK;
}

static void image_name(char *name, size_t size, uint64_t number)
{
    snprintf(name, size, "class_%u/%05" PRIu64 ".jpg", (unsigned)(number % CLASSES), number);
}

static int images_make(struct fb_maker *maker, uint64_t number, forebay_error *error)
{
    struct picture *picture = calloc(1, sizeof(*picture));
    struct encoder *encoder = calloc(1, sizeof(*encoder));
    char name[48];
    int status = FOREBAY_NO_MEMORY;

    if (picture && encoder) {
        picture_init(picture, maker, number);
        picture->sums = malloc(picture->width * 3 * sizeof(*picture->sums));
        picture->row = malloc(picture->width * 3);
    }
    if (!picture || !encoder || !picture->sums || !picture->row)
        fb_fail(error, FOREBAY_NO_MEMORY, "no memory to make an image");
    else
        status = encode(encoder, picture, error);
    image_name(name, sizeof(name), number);
    if (!status)
        status = fb_maker_file(maker, name, encoder->data, encoder->bytes, error);
    if (encoder)
        free(encoder->data);
    if (picture) {
        free(picture->sums);
        free(picture->row);
    }
    free(encoder);
    free(picture);
    return status;
}

static int images_prepare(struct fb_maker *maker, forebay_error *error)
{
    char path[PATH_MAX];
    int status = FOREBAY_OK;

    if (maker->job->bytes > BYTES_MOST)
        return fb_fail(error, FOREBAY_BAD_USE, "--bytes %" PRIu64 " is too much for one image: at "
                       "most 100MB", maker->job->bytes);
    for (unsigned i = 0; i < CLASSES && i < maker->job->files && !status; i++) {
        snprintf(path, sizeof(path), "%s/class_%u", maker->job->options->folder, i);
        status = fb_folder_make(path, error);
    }
    return status;
}

/* labels.csv, in the order of the numbers. */
static int images_finish(struct fb_maker *maker, forebay_error *error)
{
    struct fb_new_file file;
    char *text = (char *)maker->piece, name[48];
    size_t used = (size_t)snprintf(text, FB_PIECE_BYTES, "path,label\n");
    int status = fb_maker_open(maker, &file, "labels.csv", error);

    if (status)
        return status;
    for (uint64_t i = 0; i < maker->job->files && !status; i++) {
        image_name(name, sizeof(name), i);
        used += (size_t)snprintf(text + used, FB_PIECE_BYTES - used, "%s,%u\n", name,
                                 (unsigned)(i % CLASSES));
        if (used > FB_PIECE_BYTES - 128 || i + 1 == maker->job->files) {
            status = fb_new_file_put(&file, text, used, error);
            used = 0;
        }
    }
    if (status) {
        fb_new_file_give_up(&file);
        return status;
    }
    return fb_maker_commit(maker, &file, error);
}

const struct fb_generator_ops fb_generate_images = { .prepare = images_prepare,
                                                     .make = images_make,
                                                     .finish = images_finish };
