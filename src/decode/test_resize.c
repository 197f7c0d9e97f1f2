/* Resizing: the same bits with and without SIMD, and what must be true of any filter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mix.h"
#include "base/size.h"
#include "decode/image.h"
#include "decode/resize.h"

#define SIDE 400

static uint8_t *picture_new(uint32_t width, uint32_t height, int value)
{
    uint64_t bytes = (uint64_t)width * height * 4;
    uint8_t *pixels = malloc(bytes + FB_ROW_PADDING);

    for (uint64_t i = 0; i < bytes + FB_ROW_PADDING; i++)
        pixels[i] = (uint8_t)(value >= 0 ? (uint64_t)value : fb_mix(i));
    return pixels;
}

/* The caller frees what it returns: memory of exactly the bytes that were asked for is enough. */
static uint32_t *resize(const uint8_t *pixels, struct fb_span across, struct fb_span down,
                        enum fb_filter filter, bool plain)
{
    uint64_t bytes = fb_resize_bytes(SIDE, across.out, down.out, filter);
    uint32_t *to = malloc((uint64_t)across.out * down.out * 4 + FB_RESIZE_PADDING);
    void *memory = malloc(bytes);
    struct fb_resize job;

    memset(memory, 0xaa, bytes); /* nothing may count on zeros */
    assert_true(fb_resize_begin(&job, across, down, filter, memory, bytes, to, plain));
    for (uint32_t y = 0; y < down.in; y++)
        fb_resize_row(&job, pixels + (uint64_t)y * across.in * 4);
    assert_int_equal(job.done, down.out);
    free(memory);
    return to;
}

static struct fb_span whole(uint32_t in, uint32_t out)
{
    return (struct fb_span){ .size = in, .in = in, .out = out };
}

static const uint32_t ins[] = { 1, 2, 3, 5, 64, 97, 223, SIDE };
static const uint32_t outs[] = { 1, 2, 3, 7, 32, 97, 224 };
#define INS (sizeof(ins) / sizeof(ins[0]))
#define OUTS (sizeof(outs) / sizeof(outs[0]))

static void simd_and_plain_give_the_same_bits(void **state)
{
    (void)state;
    for (int filter = 0; filter < 3; filter++)
        for (size_t i = 0; i < INS * OUTS; i++) {
            struct fb_span across = whole(ins[i % INS], outs[i / INS]);
            struct fb_span down = whole(ins[(i * 5 + 3) % INS], outs[(i * 3 + 1) % OUTS]);
            uint8_t *pixels = picture_new(across.in, down.in, -1);
            uint32_t *one, *two;

            if (across.in > 2) { /* a box that begins and ends inside a pixel */
                across.start = 0.375;
                across.size = across.in - 1.25;
            }
            one = resize(pixels, across, down, (enum fb_filter)filter, true);
            two = resize(pixels, across, down, (enum fb_filter)filter, false);
            assert_memory_equal(one, two, (size_t)across.out * down.out * 4);
            free(pixels);
            free(one);
            free(two);
        }
}

static void a_plain_colour_stays_what_it_is(void **state)
{
    static const int values[] = { 0, 1, 127, 254, 255 };

    (void)state;
    for (int filter = 0; filter < 3; filter++)
        for (size_t i = 0; i < INS * OUTS; i++) {
            struct fb_span across = whole(ins[i % INS], outs[i / INS]);
            struct fb_span down = whole(ins[(i + 2) % INS], outs[(i + 3) % OUTS]);
            int value = values[i % 5];
            uint8_t *pixels = picture_new(across.in, down.in, value);
            uint8_t *made = (uint8_t *)resize(pixels, across, down, (enum fb_filter)filter, false);

            for (uint64_t at = 0; at < (uint64_t)across.out * down.out * 4; at++)
                assert_int_equal(made[at], value);
            free(pixels);
            free(made);
        }
}

static void the_same_size_is_a_copy(void **state)
{
    (void)state;
    for (int filter = 0; filter < 3; filter++)
        for (size_t i = 0; i < OUTS; i++) {
            uint8_t *pixels = picture_new(outs[i], outs[OUTS - 1 - i], -1);
            uint32_t *made = resize(pixels, whole(outs[i], outs[i]),
                                    whole(outs[OUTS - 1 - i], outs[OUTS - 1 - i]),
                                    (enum fb_filter)filter, false);

            assert_memory_equal(made, pixels, (size_t)outs[i] * outs[OUTS - 1 - i] * 4);
            free(pixels);
            free(made);
        }
}

static void too_little_memory_is_refused(void **state)
{
    char memory[4096];
    uint32_t to[64 + FB_RESIZE_PADDING];
    struct fb_resize job;

    (void)state;
    assert_false(fb_resize_begin(&job, whole(100, 8), whole(100, 8), FB_FILTER_BILINEAR, memory,
                                 100, to, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simd_and_plain_give_the_same_bits),
        cmocka_unit_test(a_plain_colour_stays_what_it_is),
        cmocka_unit_test(the_same_size_is_a_copy),
        cmocka_unit_test(too_little_memory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
