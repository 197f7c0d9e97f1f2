/* Pictures: a box is what the whole picture has there; memory stays within the allowance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <spng.h>

#include <cmocka.h>

#include "base/mix.h"
#include "base/size.h"
#include "decode/exif.h"
#include "decode/picture.h"

static const struct fb_image_limits roomy = { .pixels = 200000000, .bytes = 1 << 30 };

/* What the libraries hold now, and held at most: malloc and free are the test's own. */
static _Thread_local int64_t held, held_most;
static _Thread_local bool counting;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define COUNTS 1
#include <malloc.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void __libc_free(void *block);
#define SEEN_BY_LIBRARIES __attribute__((visibility("default")))

static void *count(void *block)
{
    if (counting && block) {
        held += (int64_t)malloc_usable_size(block) + 8;
        held_most = held > held_most ? held : held_most;
    }
    return block;
}

SEEN_BY_LIBRARIES void *malloc(size_t bytes)
{
    return count(__libc_malloc(bytes));
}

SEEN_BY_LIBRARIES void *calloc(size_t number, size_t size)
{
    return count(__libc_calloc(number, size));
}

SEEN_BY_LIBRARIES void free(void *block)
{
    if (counting && block)
        held -= (int64_t)malloc_usable_size(block) + 8;
    __libc_free(block);
}
#endif

/* ---- Making files ---- */

struct file {
    unsigned char *bytes;
    unsigned long size;
};

struct form {
    const char *name;
    int components, h, v; /* sampling of the first */
    bool progressive, separate;
};

static const struct form forms[] = {
    { "4:4:4", 3, 1, 1, false, false },       { "4:2:2", 3, 2, 1, false, false },
    { "4:2:0", 3, 2, 2, false, false },       { "4:4:0", 3, 1, 2, false, false },
    { "4:1:1", 3, 4, 1, false, false },       { "grey", 1, 1, 1, false, false },
    { "CMYK", 4, 1, 1, false, false },        { "4:2:0 progressive", 3, 2, 2, true, false },
    { "4:4:4 progressive", 3, 1, 1, true, false }, { "CMYK progressive", 4, 1, 1, true, false },
    { "a scan for each", 3, 2, 2, false, true },
};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

static void jpeg_row(unsigned char *row, uint32_t width, int components, uint32_t y)
{
    for (uint32_t x = 0; x < width; x++)
        for (int c = 0; c < components; c++)
            row[x * (uint32_t)components + (uint32_t)c] =
                (unsigned char)(fb_mix2(y / 3, x / 3 + 1000u * (uint32_t)c) % 200 + x % 50);
}

static struct file jpeg_make(const struct form *form, uint32_t width, uint32_t height)
{
    static const jpeg_scan_info scans[3] = { { 1, { 0 }, 0, 63, 0, 0 }, { 1, { 1 }, 0, 63, 0, 0 },
                                             { 1, { 2 }, 0, 63, 0, 0 } };
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    struct file file = { NULL, 0 };
    JSAMPROW row = malloc((size_t)width * 4);

    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &file.bytes, &file.size);
    info.image_width = width;
    info.image_height = height;
    info.input_components = form->components;
    info.in_color_space = form->components == 1   ? JCS_GRAYSCALE
                          : form->components == 3 ? JCS_RGB
                                                  : JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 90, TRUE);
    info.comp_info[0].h_samp_factor = form->h;
    info.comp_info[0].v_samp_factor = form->v;
    if (form->progressive)
        jpeg_simple_progression(&info);
    if (form->separate) {
        info.scan_info = scans;
        info.num_scans = 3;
    }
    jpeg_start_compress(&info, TRUE);
    for (uint32_t y = 0; y < height; y++) {
        jpeg_row(row, width, form->components, y);
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    free(row);
    return file;
}

static struct file png_make(uint32_t width, uint32_t height, bool deep, bool interlaced)
{
    struct spng_ihdr header = { .width = width, .height = height, .bit_depth = deep ? 16 : 8,
                                .color_type = SPNG_COLOR_TYPE_TRUECOLOR_ALPHA,
                                .interlace_method = interlaced };
    size_t bytes = (size_t)width * height * (deep ? 8 : 4), size;
    unsigned char *pixels = malloc(bytes);
    spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
    struct file file;
    int error = 0;

    for (size_t i = 0; i < bytes; i++)
        pixels[i] = (unsigned char)(i / 7 * 13);
    spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    spng_set_option(context, SPNG_IMG_COMPRESSION_LEVEL, 1);
    assert_int_equal(spng_set_ihdr(context, &header), 0);
    assert_int_equal(spng_encode_image(context, pixels, bytes, SPNG_FMT_PNG,
                                       SPNG_ENCODE_FINALIZE), 0);
    file.bytes = spng_get_png_buffer(context, &size, &error);
    file.size = size;
    assert_int_equal(error, 0);
    spng_ctx_free(context);
    free(pixels);
    return file;
}

/* Uncompressed: a BMP of 24 bits, or a PPM. */
static struct file plain_make(uint32_t width, uint32_t height, bool bmp)
{
    uint64_t stride = bmp ? ((uint64_t)width * 3 + 3) / 4 * 4 : (uint64_t)width * 3;
    struct file file = { calloc(1, 64 + stride * height), 0 };
    uint32_t head[13] = { 0, 0, 54, 40, width, height, 24u << 16 | 1 };
    unsigned long start;

    if (bmp) {
        memcpy(file.bytes, "BM", 2);
        memcpy(file.bytes + 2, head, sizeof(head));
        start = 54;
    } else {
        start = (unsigned long)snprintf((char *)file.bytes, 64, "P6 %u %u 255\n", width, height);
    }
    file.size = start + stride * height;
    for (unsigned long i = start; i < file.size; i++)
        file.bytes[i] = (unsigned char)(i / 7 * 13);
    return file;
}

/* ---- Taking rows ---- */

struct taken {
    uint8_t *pixels; /* RGB */
    struct fb_box box;
    uint32_t rows;
};

static void take(void *data, const uint8_t *rgbx, uint32_t y)
{
    struct taken *taken = data;

    assert_int_equal(y, taken->box.y + taken->rows);
    for (uint32_t x = 0; x < taken->box.width; x++)
        memcpy(taken->pixels + ((size_t)taken->rows * taken->box.width + x) * 3, rgbx + x * 4, 3);
    taken->rows++;
}

static int box_decode(struct file file, struct fb_box box, unsigned reduce, bool exact,
                      const struct fb_image_limits *limits, struct taken *taken,
                      forebay_error *error)
{
    struct fb_image image;
    int status = fb_image_open(&image, file.bytes, file.size, limits, error);
    struct fb_image_job job = { .box = box, .reduce = reduce, .exact = exact, .take = take,
                                .data = taken };

    if (status)
        return status;
    taken->box = fb_box_reduced(box, reduce);
    taken->rows = 0;
    job.row = malloc(fb_image_row_bytes(image.width));
    status = fb_image_rows(&image, &job, error);
    free(job.row);
    fb_image_close(&image);
    return status;
}

static void check_box(const struct taken *whole, struct file file, struct fb_box box)
{
    struct taken part = { .pixels = malloc((size_t)box.width * box.height * 3) };
    forebay_error error;

    if (box_decode(file, box, 1, true, &roomy, &part, &error))
        fail_msg("%s", error.message);
    assert_int_equal(part.rows, box.height);
    for (uint32_t y = 0; y < box.height; y++)
        assert_memory_equal(part.pixels + (size_t)y * box.width * 3,
                            whole->pixels + ((size_t)(box.y + y) * whole->box.width + box.x) * 3,
                            (size_t)box.width * 3);
    free(part.pixels);
}

static void check_boxes(struct file file, uint32_t width, uint32_t height)
{
    struct taken whole = { .pixels = malloc((size_t)width * height * 3) };
    struct fb_box all = { .width = width, .height = height };
    struct fb_random random = { width * 7919 + height };

    assert_int_equal(box_decode(file, all, 1, true, &roomy, &whole, NULL), 0);
    for (unsigned i = 0; i < 60; i++) {
        struct fb_box box = { .x = (uint32_t)fb_random_below(&random, width),
                              .y = (uint32_t)fb_random_below(&random, height) };

        box.width = 1 + (uint32_t)fb_random_below(&random, width - box.x);
        box.height = 1 + (uint32_t)fb_random_below(&random, height - box.y);
        check_box(&whole, file, box);
    }
    free(whole.pixels);
}

static void a_box_has_the_pixels_of_the_whole_picture(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        struct file file = jpeg_make(&forms[i], 151, 117);

        check_boxes(file, 151, 117);
        free(file.bytes);
    }
    for (unsigned i = 0; i < 4; i++) {
        struct file file = png_make(61, 47, i & 1, i & 2);

        check_boxes(file, 61, 47);
        free(file.bytes);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct file file = plain_make(61, 47, i);

        check_boxes(file, 61, 47);
        free(file.bytes);
    }
}

static void reduced_boxes_have_the_rows_they_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        struct file file = jpeg_make(&forms[i], 203, 155);
        struct taken taken = { .pixels = malloc(203 * 155 * 3) };

        for (unsigned reduce = 1; reduce <= 8; reduce *= 2)
            for (uint32_t at = 0; at < 100; at += 7) {
                struct fb_box box = { .x = at, .y = at / 2, .width = 103 - at / 3,
                                      .height = 155 - at };

                assert_int_equal(box_decode(file, box, reduce, false, &roomy, &taken, NULL), 0);
                assert_int_equal(taken.rows, taken.box.height);
            }
        free(taken.pixels);
        free(file.bytes);
    }
}

/* ---- Memory ---- */

/* What decoding really took, against what the header said it would. */
static void check_need(struct file file, uint32_t width, uint32_t height, const char *name)
{
    struct taken taken = { .pixels = malloc((size_t)width * height * 3) };
    struct fb_image_job job = { .reduce = 1, .box = { .width = width, .height = height },
                                .row = malloc(fb_image_row_bytes(width)), .take = take,
                                .data = &taken };
    struct fb_image image;
    struct fb_image_limits tight = roomy;
    forebay_error error;
    uint64_t need;

    taken.box = job.box;
    held = held_most = 0;
    counting = true;
    assert_int_equal(fb_image_open(&image, file.bytes, file.size, &roomy, NULL), 0);
    assert_int_equal(fb_image_rows(&image, &job, NULL), 0);
    need = image.need;
    fb_image_close(&image);
    counting = false;
#if COUNTS
    if (held_most < 1 || (uint64_t)held_most > need)
        fail_msg("%s, %u x %u: %llu bytes foreseen, %lld taken", name, width, height,
                 (unsigned long long)need, (long long)held_most);
    assert_true(need <= 3 * (uint64_t)held_most + 256 * FB_KIB);
#endif
    tight.bytes = need - 1;
    assert_int_equal(fb_image_open(&image, file.bytes, file.size, &tight, &error),
                     FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "source.decode_memory"));
    tight.bytes = need; /* and that much is enough, though libjpeg holds itself to it */
    taken.rows = 0;
    assert_int_equal(box_decode(file, job.box, 1, true, &tight, &taken, NULL), 0);
    (void)name;
    free(job.row);
    free(taken.pixels);
}

static void decoding_takes_no_more_than_the_header_says(void **state)
{
    static const struct { uint32_t width, height; } sizes[] = { { 1, 1 }, { 700, 500 },
                                                                { 1500, 1000 }, { 65500, 3 } };

    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t i = 0; i < FORMS; i++) {
            struct file file = jpeg_make(&forms[i], sizes[s].width, sizes[s].height);

            check_need(file, sizes[s].width, sizes[s].height, forms[i].name);
            free(file.bytes);
        }
        for (unsigned i = 0; i < 4; i++) {
            struct file file = png_make(sizes[s].width, sizes[s].height, i & 1, i & 2);

            check_need(file, sizes[s].width, sizes[s].height, i & 2 ? "interlaced" : "PNG");
            free(file.bytes);
        }
        for (unsigned i = 0; i < 2; i++) {
            struct file file = plain_make(sizes[s].width, sizes[s].height, i);

            check_need(file, sizes[s].width, sizes[s].height, i ? "BMP" : "PPM");
            free(file.bytes);
        }
    }
}

static void a_picture_with_more_pixels_than_allowed_is_refused(void **state)
{
    struct fb_image_limits limits = { .pixels = 9999, .bytes = FB_MIB };
    struct file file = jpeg_make(&forms[0], 100, 100);
    struct fb_image image;
    forebay_error error;

    (void)state;
    assert_int_equal(fb_image_open(&image, file.bytes, file.size, &limits, &error),
                     FOREBAY_BAD_DATA);
    assert_non_null(
        strstr(error.message, "100 x 100 = 10000 pixels; source.max_pixels allows 9999"));
    free(file.bytes);
}

static void every_cut_of_a_file_fails_or_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        struct file file = jpeg_make(&forms[i], 40, 30), cut = file;
        struct taken taken = { .pixels = malloc(40 * 30 * 3) };
        struct fb_box all = { .width = 40, .height = 30 };

        for (cut.size = 0; cut.size < file.size; cut.size++) {
            forebay_error error;
            struct file copy = { malloc(cut.size + 1), cut.size }; /* ends where it says */
            int status;

            memcpy(copy.bytes, file.bytes, cut.size);
            status = box_decode(copy, all, 1, true, &roomy, &taken, &error);
            if (status)
                assert_int_equal(status, FOREBAY_BAD_DATA);
            else
                assert_true(cut.size + 4 >= file.size); /* only the end marker is missing */
            free(copy.bytes);
        }
        free(taken.pixels);
        free(file.bytes);
    }
}

/* ---- EXIF ---- */

static void orientations_are_read_in_both_byte_orders(void **state)
{
    uint8_t little[] = {
        'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0
    };
    uint8_t big[] = { 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 8, 0, 0 };

    (void)state;
    assert_int_equal(fb_exif_orientation(little, sizeof(little)), 6);
    assert_int_equal(fb_exif_orientation(big, sizeof(big)), 8);
    for (size_t cut = 0; cut < sizeof(little); cut++)
        assert_int_equal(fb_exif_orientation(little, cut), 1);
    little[18] = 9;
    assert_int_equal(fb_exif_orientation(little, sizeof(little)), 1);
    little[4] = 255; /* the directory lies outside */
    assert_int_equal(fb_exif_orientation(little, sizeof(little)), 1);
}

static void a_box_is_turned_with_its_picture(void **state)
{
    struct fb_box seen = { .x = 3, .y = 5, .width = 20, .height = 11 };

    (void)state;
    for (unsigned orientation = 1; orientation <= 8; orientation++) {
        bool turns = fb_orientation_turns(orientation);
        uint32_t wide = 60, high = 40, width = turns ? high : wide, height = turns ? wide : high;
        struct fb_pixel_view view = fb_view_oriented(orientation, width, height);
        struct fb_box stored = fb_box_stored(seen, orientation, wide, high);

        for (uint32_t y = 0; y < high; y++)
            for (uint32_t x = 0; x < wide; x++) {
                int64_t at = view.first + y * view.row_step + x * view.column_step;
                uint32_t sx = (uint32_t)(at % width), sy = (uint32_t)(at / width);
                bool inside = x - seen.x < seen.width && y - seen.y < seen.height;

                assert_in_range(at, 0, (uint64_t)width * height - 1);
                assert_int_equal(inside, sx - stored.x < stored.width &&
                                             sy - stored.y < stored.height);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_box_has_the_pixels_of_the_whole_picture),
        cmocka_unit_test(reduced_boxes_have_the_rows_they_say),
        cmocka_unit_test(decoding_takes_no_more_than_the_header_says),
        cmocka_unit_test(a_picture_with_more_pixels_than_allowed_is_refused),
        cmocka_unit_test(every_cut_of_a_file_fails_or_is_whole),
        cmocka_unit_test(orientations_are_read_in_both_byte_orders),
        cmocka_unit_test(a_box_is_turned_with_its_picture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
