/* Tiny units in blocks: where each lies, and that no two lie in one place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "source/blocks.h"

#define NUMBERS 1000

/* Two fields: "a" of sizes that vary, every tenth broken; "b" all alike. */
static uint64_t rows_of(uint64_t unit)
{
    return unit % 2 ? 5 : 1 + unit * 7 % 90;
}

static struct fb_extent extent_of(const struct fb_source *source, uint64_t unit)
{
    (void)source;
    if (unit % 20 == 0)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = rows_of(unit), .columns = 1 };
}

static const struct fb_source_ops ops = { .kind = "test", .extent = extent_of };

static struct fb_source source_of(struct fb_field fields[2])
{
    fields[0] = (struct fb_field){ .ndim = 1, .vary = 1, .cell_bytes = 4, .bytes_max = 360 };
    fields[1] = (struct fb_field){ .ndim = 1, .shape = { 5 }, .cell_bytes = 8, .bytes_max = 40 };
    return (struct fb_source){ .ops = &ops,
                               .unit_count = 2 * NUMBERS,
                               .field_count = 2,
                               .fields = fields };
}

static void only_tiny_units_are_kept_together(void **state)
{
    (void)state;
    assert_int_equal(fb_blocks_together(1000, 1000 * FB_TINY_BYTES, FB_TINY_BYTES), 1);
    assert_int_equal(fb_blocks_together(1000, 1000 * FB_TINY_BYTES, 8000), 8);
    assert_int_equal(fb_blocks_together(1000, 1000 * FB_SMALL_BYTES, 9000), 1);
    assert_int_equal(fb_blocks_together(1000, 1000 * 1024, 8000), 32);
    assert_int_equal(fb_blocks_together(1000, 1000 * 1024, FB_BLOCK_UNIT_MAX + 1), 1);
    assert_int_equal(fb_blocks_together(1000, 8000, 8), FB_BLOCK_UNITS);
    assert_int_equal(fb_blocks_together(1000, 0, 0), FB_BLOCK_UNITS);
    assert_int_equal(fb_blocks_together(1, 10, 10), 1);
    assert_int_equal(fb_blocks_together(0, 0, 0), 1);
}

static void every_unit_has_a_place_of_its_own(void **state)
{
    static unsigned char taken[2 * NUMBERS][128 * 360];
    struct fb_field fields[2];
    struct fb_source source = source_of(fields);
    struct fb_blocks blocks;

    (void)state;
    fields[0].together = 64;
    fields[1].together = 128;
    assert_true(fb_blocks_any(&source));
    fb_blocks_measure(&source, &blocks);
    assert_int_equal(blocks.count, (NUMBERS + 63) / 64 + (NUMBERS + 127) / 128);
    assert_int_equal(blocks.bytes, 0);
    for (uint64_t unit = 0; unit < source.unit_count; unit++) {
        uint32_t field = unit % 2;
        uint64_t bytes = extent_of(&source, unit).rows * fields[field].cell_bytes;
        struct fb_block block;

        fb_block_find(&source, field, unit, &block);
        assert_true(block.number < blocks.count && block.bytes <= blocks.bytes_max);
        assert_true(block.offset + bytes <= block.bytes && block.bytes <= sizeof(taken[0]));
        assert_int_equal(block.first % 2, field);
        assert_true(block.first <= unit && unit < block.first + block.count * block.step);
        for (uint64_t at = block.offset; at < block.offset + bytes; at++)
            assert_int_equal(taken[block.number][at]++, 0);
    }
}

static void units_alone_are_blocks_of_one(void **state)
{
    struct fb_field fields[2];
    struct fb_source source = source_of(fields);
    struct fb_blocks blocks;
    struct fb_block block;

    (void)state;
    assert_false(fb_blocks_any(&source));
    fb_blocks_measure(&source, &blocks);
    assert_int_equal(blocks.count, source.unit_count);
    fb_block_find(&source, 1, 7, &block);
    assert_int_equal(block.number, NUMBERS + 3);
    assert_int_equal(block.count, 1);
    assert_int_equal(block.offset, 0);
    assert_int_equal(block.bytes, 40);
}

static void equal_units_make_equal_blocks(void **state)
{
    struct fb_field fields[2];
    struct fb_source source = source_of(fields);
    struct fb_blocks blocks;
    struct fb_block first, last;

    (void)state;
    source.fields = &fields[1];
    source.field_count = 1;
    source.unit_count = 100;
    fields[1].together = 64;
    fb_blocks_measure(&source, &blocks);
    assert_int_equal(blocks.bytes, 64 * 40);
    fb_block_find(&source, 0, 0, &first);
    fb_block_find(&source, 0, 99, &last);
    assert_int_equal(first.bytes, blocks.bytes);
    assert_int_equal(last.bytes, blocks.bytes);
    assert_int_equal(last.count, 36);
    assert_int_equal(last.offset, 35 * 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_tiny_units_are_kept_together),
        cmocka_unit_test(every_unit_has_a_place_of_its_own),
        cmocka_unit_test(units_alone_are_blocks_of_one),
        cmocka_unit_test(equal_units_make_equal_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
