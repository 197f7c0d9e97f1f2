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
                               .sample_count = NUMBERS,
                               .unit_count = 2 * NUMBERS,
                               .unit_bytes_total = NUMBERS * 222,
                               .field_count = 2,
                               .fields = fields };
}

static void only_tiny_units_are_kept_together(void **state)
{
    (void)state;
    assert_int_equal(fb_blocks_together(1000, 1000 * FB_TINY_BYTES, FB_TINY_BYTES), 1);
    assert_int_equal(fb_blocks_together(10000, 10000 * FB_TINY_BYTES, 8000), 8);
    assert_int_equal(fb_blocks_together(1000, 1000 * FB_SMALL_BYTES, 9000), 1);
    assert_int_equal(fb_blocks_together(1000, 1000 * 8000, 9000), 2);
    assert_int_equal(fb_blocks_together(100000, 100000 * 1024, 8000), 32);
    assert_int_equal(fb_blocks_together(10000, 10000 * 1024, 8000), 20); /* a 512th of all */
    assert_int_equal(fb_blocks_together(1000, 1000 * 1024, 8000), 8);
    assert_int_equal(fb_blocks_together(1000, 1000 * 1024, 1024), 8);
    assert_int_equal(fb_blocks_together(1000, 1000 * 1024, FB_BLOCK_UNIT_MAX + 1), 1);
    assert_int_equal(fb_blocks_together(1000, 8000, 8), FB_BLOCK_UNITS);
    assert_int_equal(fb_blocks_together(1000, 0, 0), FB_BLOCK_UNITS);
    assert_int_equal(fb_blocks_together(1, 10, 10), 1);
    assert_int_equal(fb_blocks_together(0, 0, 0), 1);
}

static const struct fb_choice all = { .count = 0 };

/* A list: every third number, from the last one down. */
#define CHOSEN (NUMBERS / 3)

static uint64_t place_of(const void *list, uint64_t sample)
{
    (void)list;
    return sample % 3 || sample / 3 >= CHOSEN ? UINT64_MAX : CHOSEN - 1 - sample / 3;
}

static uint64_t sample_at(const void *list, uint64_t place)
{
    (void)list;
    return 3 * (CHOSEN - 1 - place);
}

static const struct fb_choice some = { .count = CHOSEN, .place = place_of, .sample = sample_at };

static bool is_in(const struct fb_source *source, const struct fb_blocks *blocks, uint32_t field,
                  const struct fb_block *block, uint64_t unit)
{
    unsigned found = 0;

    for (uint64_t i = 0; i < block->count; i++)
        found += fb_block_unit(source, blocks, field, block, i) == unit;
    return found == 1;
}

/* Units that are kept; no two in one place, none outside of its block. */
static uint64_t lay_out(const struct fb_source *source, const struct fb_blocks *blocks)
{
    static unsigned char taken[2 * NUMBERS][128 * 360];
    uint64_t kept = 0;

    memset(taken, 0, sizeof(taken));
    for (uint64_t unit = 0; unit < source->unit_count; unit++) {
        uint32_t field = unit % 2;
        uint64_t bytes = extent_of(source, unit).rows * source->fields[field].cell_bytes;
        struct fb_block block;

        fb_block_find(source, blocks, field, unit, &block);
        if (!block.count)
            continue;
        kept++;
        assert_true(block.number < blocks->count && block.bytes <= blocks->bytes_max);
        assert_true(block.offset + bytes <= block.bytes && block.bytes <= sizeof(taken[0]));
        assert_true(is_in(source, blocks, field, &block, unit));
        for (uint64_t at = block.offset; at < block.offset + bytes; at++)
            assert_int_equal(taken[block.number][at]++, 0);
    }
    return kept;
}

static struct fb_source source_in_blocks(struct fb_field fields[2], struct fb_choice choice,
                                         struct fb_blocks *blocks)
{
    struct fb_source source = source_of(fields);

    fields[0].together = 64;
    fields[1].together = 128;
    fb_blocks_measure(&source, choice, blocks);
    return source;
}

static void every_unit_has_a_place_of_its_own(void **state)
{
    struct fb_field fields[2];
    struct fb_blocks blocks;
    struct fb_source source = source_in_blocks(fields, all, &blocks);

    (void)state;
    assert_true(fb_blocks_any(&source));
    assert_int_equal(blocks.count, (NUMBERS + 63) / 64 + (NUMBERS + 127) / 128);
    assert_int_equal(blocks.bytes, 0);
    assert_int_equal(blocks.bytes_total, source.unit_bytes_total);
    assert_int_equal(lay_out(&source, &blocks), source.unit_count);
}

static void what_is_not_chosen_has_no_place(void **state)
{
    struct fb_field fields[2];
    struct fb_blocks blocks;
    struct fb_source source = source_in_blocks(fields, some, &blocks);

    (void)state;
    assert_int_equal(blocks.count, (CHOSEN + 63) / 64 + (CHOSEN + 127) / 128);
    assert_int_equal(blocks.bytes_total, source.unit_bytes_total * CHOSEN / NUMBERS);
    assert_int_equal(lay_out(&source, &blocks), 2 * CHOSEN);
    assert_true(fb_blocks_can_choose(&source));
    source.sample_count--; /* a sequence of two */
    assert_false(fb_blocks_can_choose(&source));
    source.sample_count++;
    source.shared_units = true;
    assert_false(fb_blocks_can_choose(&source));
}

static void units_alone_are_blocks_of_one(void **state)
{
    struct fb_field fields[2];
    struct fb_source source = source_of(fields);
    struct fb_blocks blocks;
    struct fb_block block;

    (void)state;
    assert_false(fb_blocks_any(&source));
    fb_blocks_measure(&source, all, &blocks);
    assert_int_equal(blocks.count, source.unit_count);
    fb_block_find(&source, &blocks, 1, 7, &block);
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
    fb_blocks_measure(&source, all, &blocks);
    assert_int_equal(blocks.bytes, 64 * 40);
    fb_block_find(&source, &blocks, 0, 0, &first);
    fb_block_find(&source, &blocks, 0, 99, &last);
    assert_int_equal(first.bytes, blocks.bytes);
    assert_int_equal(last.bytes, blocks.bytes);
    assert_int_equal(last.count, 36);
    assert_int_equal(last.offset, 35 * 40);
    fields[1].vary = 1; /* as flat files do, whether or not these differ */
    source.unit_bytes_max = 40;
    for (source.unit_bytes_total = 3999; source.unit_bytes_total <= 4000;
         source.unit_bytes_total++) {
        fb_blocks_measure(&source, all, &blocks);
        assert_int_equal(blocks.bytes, source.unit_bytes_total == 4000 ? 64 * 40 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_tiny_units_are_kept_together),
        cmocka_unit_test(every_unit_has_a_place_of_its_own),
        cmocka_unit_test(what_is_not_chosen_has_no_place),
        cmocka_unit_test(units_alone_are_blocks_of_one),
        cmocka_unit_test(equal_units_make_equal_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
