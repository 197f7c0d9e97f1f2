#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>
#include <zstd.h>

#include "base/size.h"
#include "decode/unpack.h"

#define BYTES 700000u

static struct fb_budget *budget;
static struct fb_unpack *unpack;
static unsigned char *plain, *packed, *out;
static struct fb_input input;
static forebay_error error;

static int read_memory(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *e)
{
    (void)e;
    memcpy(into, (const unsigned char *)data + offset, bytes);
    return FOREBAY_OK;
}

static int begin(void **state)
{
    (void)state;
    plain = malloc(BYTES);
    out = malloc(2 * BYTES);
    packed = malloc(4 * BYTES);
    for (unsigned i = 0; i < BYTES; i++)
        plain[i] = (unsigned char)(i * 2654435761u >> (i / 100 % 2 ? 24 : 30));
    input = (struct fb_input){ read_memory, packed, 0 };
    return fb_budget_new(&budget, 256 * FB_MIB, &error) ||
           fb_unpack_new(&unpack, 8 * FB_MIB, budget, FB_STAGE_SCRATCH, &error);
}

static int end(void **state)
{
    struct fb_budget_report report;

    (void)state;
    fb_unpack_free(unpack);
    fb_budget_read(budget, &report);
    fb_budget_free(budget);
    free(plain);
    free(out);
    free(packed);
    return report.used != 0;
}

static void add_gzip(uint64_t from, uint64_t bytes)
{
    z_stream gzip = { .next_in = plain + from, .avail_in = (uInt)bytes };

    assert_int_equal(deflateInit2(&gzip, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    gzip.next_out = packed + input.bytes;
    gzip.avail_out = 2 * BYTES;
    assert_int_equal(deflate(&gzip, Z_FINISH), Z_STREAM_END);
    input.bytes += gzip.total_out;
    deflateEnd(&gzip);
}

static void add_zstd(uint64_t from, uint64_t bytes, int window_log, bool told)
{
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    ZSTD_inBuffer in = { plain + from, bytes, 0 };
    ZSTD_outBuffer to = { packed + input.bytes, 2 * BYTES, 0 };

    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, window_log);
    if (told)
        ZSTD_CCtx_setPledgedSrcSize(zstd, bytes);
    else /* what comes all at once, zstd knows the size of */
        ZSTD_compressStream2(zstd, &to, &in, ZSTD_e_continue);
    while (ZSTD_compressStream2(zstd, &to, &in, ZSTD_e_end) != 0)
        ;
    input.bytes += to.pos;
    ZSTD_freeCCtx(zstd);
}

/* All of it, in pieces of `step`; the number of bytes, or UINT64_MAX. */
static uint64_t unpacked(uint64_t step)
{
    enum fb_packing packing;
    uint64_t done = 0, made = 0;

    if (fb_packing_find(&input, &packing, &error) ||
        fb_unpack_begin(unpack, packing, &input, &error))
        return UINT64_MAX;
    do {
        assert_true(done + step <= 2 * BYTES);
        if (fb_unpack_read(unpack, out + done, step, &made, &error))
            return UINT64_MAX;
        done += made;
    } while (made == step);
    return done;
}

static void check_all(void)
{
    static const uint64_t steps[] = { 1000, 65536, BYTES - 1, BYTES + 1 };

    for (unsigned i = 0; i < 4; i++) {
        memset(out, 0, BYTES);
        assert_int_equal(unpacked(steps[i]), BYTES);
        assert_memory_equal(out, plain, BYTES);
    }
}

static void members_and_frames_follow_each_other(void **state)
{
    (void)state;
    add_gzip(0, BYTES / 3);
    add_gzip(BYTES / 3, 0);
    add_gzip(BYTES / 3, BYTES - BYTES / 3);
    check_all();
    memset(packed + input.bytes, 0, 3000); /* as a tape fills up its last block */
    input.bytes += 3000;
    check_all();
    input.bytes = 0;
    add_zstd(0, BYTES / 3, 20, true);
    add_zstd(BYTES / 3, BYTES - BYTES / 3, 18, false);
    check_all();
    input.bytes = 0;
    memcpy(packed, "\x50\x2a\x4d\x18\4\0\0\0none", 12); /* a frame to be passed over */
    input.bytes = 12;
    add_zstd(0, BYTES, 17, false);
    check_all();
    input.bytes = BYTES;
    memcpy(packed, plain, BYTES);
    packed[0] = 'x';
    assert_int_equal(unpacked(4096), BYTES);
}

static void what_is_cut_or_changed_is_noticed_with_its_place(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        uint64_t whole;

        input.bytes = 0;
        if (kind)
            add_zstd(0, BYTES, 20, true);
        else
            add_gzip(0, BYTES);
        whole = input.bytes;
        for (uint64_t cut = 7; cut < whole; cut += whole / 17) {
            input.bytes = cut;
            assert_int_equal(unpacked(65536), UINT64_MAX);
            assert_int_equal(error.status, FOREBAY_BAD_DATA);
            assert_non_null(strstr(error.message, "of the packed file"));
        }
        input.bytes = whole;
        for (uint64_t at = 20; at < whole; at += whole / 17) {
            packed[at] ^= 0x55;
            assert_true(unpacked(65536) == UINT64_MAX);
            packed[at] ^= 0x55;
        }
        memcpy(packed + whole, "garbage", 7);
        input.bytes = whole + 7;
        assert_int_equal(unpacked(65536), UINT64_MAX);
        assert_non_null(strstr(error.message, "something else follows"));
    }
}

static void a_window_above_the_allowance_is_refused_with_the_number(void **state)
{
    (void)state;
    add_zstd(0, 1000, 24, false); /* 16 MiB, for 1000 bytes */
    assert_int_equal(unpacked(65536), UINT64_MAX);
    assert_non_null(strstr(error.message, "a window of 16777216 bytes"));
    assert_non_null(strstr(error.message, "source.decode_memory allows 8388608"));
    input.bytes = 0;
    add_zstd(0, 1000, 20, false);
    add_zstd(0, 1000, 24, false); /* not the first frame */
    assert_int_equal(unpacked(65536), UINT64_MAX);
    /* In one piece, of 2^63 bytes. */
    memcpy(packed, "\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\0\0\x80\0\0\0", 16);
    input.bytes = 16;
    assert_int_equal(unpacked(65536), UINT64_MAX);
    assert_non_null(strstr(error.message, "a window of 9223372036854775808 bytes"));
}

static void other_packings_are_named(void **state)
{
    (void)state;
    memcpy(packed, "BZh91AY&SY", 10);
    input.bytes = 10;
    assert_int_equal(unpacked(65536), UINT64_MAX);
    assert_int_equal(error.status, FOREBAY_NOT_BUILT);
    assert_non_null(strstr(error.message, "bzip2"));
}

/* The allowance against what malloc really gave, for the largest window that is allowed. */
static void libraries_take_no_more_than_was_reserved(void **state)
{
    struct mallinfo2 before, after;
    uint64_t took, made;
    enum fb_packing packing;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        input.bytes = 0;
        if (kind)
            add_zstd(0, BYTES, 23, false);
        else
            add_gzip(0, BYTES);
        before = mallinfo2();
        assert_int_equal(fb_packing_find(&input, &packing, &error), 0);
        assert_int_equal(fb_unpack_begin(unpack, packing, &input, &error), 0);
        assert_int_equal(fb_unpack_read(unpack, out, BYTES, &made, &error), 0);
        after = mallinfo2();
        took = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        if (after.uordblks + after.hblkhd < before.uordblks + before.hblkhd)
            skip(); /* another allocator: nothing to compare with */
        assert_true(took <= fb_unpack_bytes(kind ? 8 * FB_MIB : 0) - 131072);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_and_frames_follow_each_other, begin, end),
        cmocka_unit_test_setup_teardown(what_is_cut_or_changed_is_noticed_with_its_place, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_window_above_the_allowance_is_refused_with_the_number,
                                        begin, end),
        cmocka_unit_test_setup_teardown(other_packings_are_named, begin, end),
        cmocka_unit_test_setup_teardown(libraries_take_no_more_than_was_reserved, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
