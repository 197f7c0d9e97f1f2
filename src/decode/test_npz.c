#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "decode/npz.h"

#define BIG 300000 /* bytes of a member: several refills, and its deflated form too */

static forebay_error error;
static _Alignas(16) char work[FB_NPZ_WORK_BYTES];

/* A zip that is being written, and what may be wrong or special about it. */
struct zip {
    unsigned char bytes[2 * BIG + 200000];
    size_t size, directory;
    unsigned char entries[65536];
    size_t entries_bytes;
    unsigned count;
};
enum { PLAIN = 0, DEFLATED = 1, DESCRIPTOR = 2, ZIP64 = 4, ENCRYPTED = 8, BZIP = 16, COMMENT = 32,
       LIES_LONG = 64, BAD_CRC = 128 };

static struct zip zip;
static unsigned char content[BIG];

static size_t put(unsigned char *to, size_t at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[at + i] = (unsigned char)(i < 8 ? value >> 8 * i : 0);
    return at + bytes;
}

static size_t put_text(unsigned char *to, size_t at, const char *text)
{
    memcpy(to + at, text, strlen(text));
    return at + strlen(text);
}

static size_t pack(unsigned char *to, size_t bytes, unsigned how)
{
    z_stream stream = { .next_in = content, .avail_in = (uInt)bytes, .next_out = to,
                        .avail_out = BIG };

    if (!(how & DEFLATED)) {
        memcpy(to, content, bytes);
        return bytes;
    }
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return stream.total_out;
}

/* The numbers that local header and entry have in common: version, flags, method, time, crc. */
static size_t put_common(unsigned char *to, size_t at, unsigned how, uint64_t crc)
{
    at = put(to, at, 45, 2);
    at = put(to, at, (how & ENCRYPTED ? 1u : 0u) | (how & DESCRIPTOR ? 8u : 0u), 2);
    at = put(to, at, how & DEFLATED ? 8 : how & BZIP ? 12 : 0, 2);
    at = put(to, at, 0, 4);
    return put(to, at, crc, 4);
}

static void add(const char *name, size_t bytes, unsigned how)
{
    size_t header = zip.size, packed, at = zip.entries_bytes;
    uint64_t crc = crc32(0, content, (uInt)bytes) ^ (how & BAD_CRC ? 1u : 0u);
    uint64_t said = bytes + (how & LIES_LONG ? 7 : 0), extra = how & ZIP64 ? 28 : 0;

    zip.size = put_text(zip.bytes, zip.size, "PK\3\4");
    zip.size = put_common(zip.bytes, zip.size, how, how & DESCRIPTOR ? 0 : crc);
    zip.size = put(zip.bytes, zip.size, 0, 8); /* sizes: only the directory's count */
    zip.size = put(zip.bytes, zip.size, strlen(name), 2);
    zip.size = put(zip.bytes, zip.size, 5, 2); /* an extra field of its own */
    zip.size = put_text(zip.bytes, zip.size, name);
    zip.size = put_text(zip.bytes, zip.size, "extra");
    packed = pack(zip.bytes + zip.size, bytes, how);
    zip.size += packed;
    if (how & DESCRIPTOR)
        zip.size = put(zip.bytes, zip.size, 0x08074b50, 16);
    at = put_text(zip.entries, at, "PK\1\2");
    at = put(zip.entries, at, 45, 2);
    at = put_common(zip.entries, at, how, crc);
    at = put(zip.entries, at, extra ? UINT32_MAX : packed, 4);
    at = put(zip.entries, at, extra ? UINT32_MAX : said, 4);
    at = put(zip.entries, at, strlen(name), 2);
    at = put(zip.entries, at, extra, 2);
    at = put(zip.entries, at, 0, 10);
    at = put(zip.entries, at, extra ? UINT32_MAX : header, 4);
    at = put_text(zip.entries, at, name);
    if (extra) {
        at = put(zip.entries, at, 1 | 24 << 16, 4);
        at = put(zip.entries, at, said, 8);
        at = put(zip.entries, put(zip.entries, at, packed, 8), header, 8);
    }
    zip.entries_bytes = at;
    zip.count++;
}

static void finish(unsigned how)
{
    size_t directory = zip.size, end64, comment = how & COMMENT ? 60000 : 0;
    bool large = how & ZIP64;

    memcpy(zip.bytes + zip.size, zip.entries, zip.entries_bytes);
    zip.size += zip.entries_bytes;
    end64 = zip.size;
    if (large) {
        zip.size = put(zip.bytes, put_text(zip.bytes, zip.size, "PK\6\6"), 44, 8);
        zip.size = put(zip.bytes, put(zip.bytes, zip.size, 0, 12), zip.count, 8);
        zip.size = put(zip.bytes, put(zip.bytes, zip.size, zip.count, 8), zip.entries_bytes, 8);
        zip.size = put(zip.bytes, zip.size, directory, 8);
        zip.size = put(zip.bytes, put_text(zip.bytes, zip.size, "PK\6\7"), 0, 4);
        zip.size = put(zip.bytes, put(zip.bytes, zip.size, end64, 8), 1, 4);
    }
    zip.size = put(zip.bytes, put_text(zip.bytes, zip.size, "PK\5\6"), 0, 4);
    zip.size = put(zip.bytes, zip.size, large ? 0xffff : zip.count, 2);
    zip.size = put(zip.bytes, zip.size, large ? 0xffff : zip.count, 2);
    zip.size = put(zip.bytes, zip.size, large ? UINT32_MAX : zip.entries_bytes, 4);
    zip.size = put(zip.bytes, zip.size, large ? UINT32_MAX : directory, 4);
    zip.size = put(zip.bytes, zip.size, comment, 2);
    memset(zip.bytes + zip.size, 'c', comment);
    zip.size += comment;
    zip.directory = directory;
}

static int begin(void **state)
{
    (void)state;
    zip = (struct zip){ .size = 0 };
    for (size_t i = 0; i < BIG; i++)
        content[i] = (unsigned char)((i * 2654435761u >> 13) % 23);
    return 0;
}

static int read_zip(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *failure)
{
    (void)data;
    (void)failure;
    assert_true(offset <= zip.size && bytes <= zip.size - offset);
    memcpy(into, zip.bytes + offset, bytes);
    return FOREBAY_OK;
}

static int read_all(const char *name, uint64_t bytes, unsigned char *to)
{
    struct fb_npz_file file = { read_zip, NULL, zip.size };
    struct fb_npz_stream *stream = NULL;
    struct fb_npz_member member;
    int status = fb_npz_find(&file, work, name, &member, &error);

    if (!status)
        status = fb_npz_stream_open(&stream, &file, &member, work, &error);
    if (!status)
        status = fb_npz_stream_read(stream, to, bytes / 3, &error);
    if (!status)
        status = fb_npz_stream_read(stream, to + bytes / 3, bytes - bytes / 3, &error);
    if (!status)
        status = fb_npz_stream_finish(stream, &error);
    fb_npz_stream_close(stream);
    return status;
}

static void every_form_of_a_zip_gives_the_same_bytes(void **state)
{
    static const unsigned forms[] = { PLAIN, DEFLATED, DESCRIPTOR, DEFLATED | DESCRIPTOR, ZIP64,
                                      ZIP64 | DEFLATED, COMMENT, COMMENT | ZIP64 | DEFLATED };
    static unsigned char got[BIG];
    struct fb_npz_member members[4];
    unsigned count;

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct fb_npz_file file = { read_zip, NULL, 0 };

        begin(NULL);
        add("small.npy", 10, forms[i]);
        add("readme.txt", 100, forms[i]);
        add("folder/big.npy", BIG, forms[i]);
        add("empty.npy", 0, forms[i]);
        finish(forms[i]);
        file.bytes = zip.size;
        assert_int_equal(fb_npz_list(&file, work, members, 4, &count, &error), 0);
        assert_int_equal(count, 3);
        assert_string_equal(members[1].name, "folder/big");
        assert_int_equal(members[1].bytes, BIG);
        assert_int_equal(read_all("folder/big", BIG, got), 0);
        assert_memory_equal(got, content, BIG);
        assert_int_equal(read_all("small", 10, got), 0);
        assert_int_equal(read_all("empty", 0, got), 0);
        assert_int_equal(read_all("none", 0, got), FOREBAY_BAD_DATA);
    }
}

static void bytes_may_be_passed_over(void **state)
{
    unsigned char got[100];

    (void)state;
    for (unsigned how = PLAIN; how <= DEFLATED; how++) {
        struct fb_npz_file file = { read_zip, NULL, 0 };
        struct fb_npz_stream *stream;
        struct fb_npz_member member;

        begin(NULL);
        add("a.npy", BIG, how);
        finish(how);
        file.bytes = zip.size;
        assert_int_equal(fb_npz_find(&file, work, "a", &member, &error), 0);
        assert_int_equal(fb_npz_stream_open(&stream, &file, &member, work, &error), 0);
        assert_int_equal(fb_npz_stream_skip(stream, 123456, &error), 0);
        assert_int_equal(fb_npz_stream_read(stream, got, 100, &error), 0);
        assert_memory_equal(got, content + 123456, 100);
        assert_int_equal(fb_npz_stream_skip(stream, BIG, &error), FOREBAY_BAD_DATA);
        fb_npz_stream_close(stream);
    }
}

static void what_is_wrong_is_said(void **state)
{
    static const struct {
        unsigned how;
        const char *says;
    } rows[] = {
        { ENCRYPTED, "encrypted" },
        { BZIP, "zip method 12" },
        { BAD_CRC, "checksum" },
        { BAD_CRC | DEFLATED, "checksum" },
        { LIES_LONG, "said to be 5007" },
    };
    static unsigned char got[5007];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin(NULL);
        add("a.npy", 5000, rows[i].how);
        finish(PLAIN);
        assert_int_equal(read_all("a", 5000, got), FOREBAY_BAD_DATA);
        assert_non_null(strstr(error.message, rows[i].says));
    }
    begin(NULL);
    add("a.npy", 5000, LIES_LONG | DEFLATED);
    finish(PLAIN);
    assert_int_equal(read_all("a", 5007, got), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "fewer bytes"));
    assert_int_equal(read_all("a", 5008, got), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "1 bytes early"));
}

static void a_bomb_is_refused_by_its_directory(void **state)
{
    unsigned char got[1];

    (void)state;
    add("a.npy", 5000, ZIP64 | DEFLATED);
    put(zip.entries, zip.entries_bytes - 24, (uint64_t)1 << 50, 8);
    finish(PLAIN);
    assert_int_equal(read_all("a", 1, got), FOREBAY_BAD_DATA);
    assert_non_null(strstr(error.message, "deflated bytes can hold"));
}

static void two_members_of_one_name_are_refused(void **state)
{
    struct fb_npz_file file = { read_zip, NULL, 0 };
    struct fb_npz_member members[4];
    unsigned char got[10];
    unsigned count = 77;

    (void)state;
    add("a.npy", 10, PLAIN);
    add("a.npy", 10, PLAIN);
    finish(PLAIN);
    file.bytes = zip.size;
    assert_int_equal(fb_npz_list(&file, work, members, 4, &count, &error), FOREBAY_BAD_DATA);
    assert_int_equal(count, 77);
    assert_int_equal(read_all("a", 10, got), FOREBAY_BAD_DATA);
}

static void more_members_than_asked_for_are_refused(void **state)
{
    struct fb_npz_file file = { read_zip, NULL, 0 };
    struct fb_npz_member members[2];
    unsigned count;

    (void)state;
    add("a.npy", 10, PLAIN);
    add("b.npy", 10, PLAIN);
    add("c.npy", 10, PLAIN);
    finish(PLAIN);
    file.bytes = zip.size;
    assert_int_equal(fb_npz_list(&file, work, members, 2, &count, &error), FOREBAY_BAD_DATA);
}

/* Cut anywhere, or with any one byte of the directory changed: never a crash (the reader asserts
 * that it is asked for nothing beyond the end), and a cut is always noticed. */
static void cuts_and_changed_bytes_do_no_harm(void **state)
{
    static unsigned char got[2000];
    size_t whole;

    (void)state;
    add("a.npy", 2000, ZIP64 | DEFLATED);
    add("b.npy", 50, PLAIN);
    finish(ZIP64);
    whole = zip.size;
    for (size_t size = 0; size < whole; size++) {
        zip.size = size;
        assert_int_equal(read_all("a", 2000, got), FOREBAY_BAD_DATA);
    }
    zip.size = whole;
    for (size_t at = zip.directory; at < whole; at++) {
        unsigned char kept = zip.bytes[at];

        for (unsigned bit = 0; bit < 8; bit++) {
            zip.bytes[at] = (unsigned char)(kept ^ 1u << bit);
            read_all("a", 2000, got);
        }
        zip.bytes[at] = kept;
    }
    assert_int_equal(read_all("a", 2000, got), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_form_of_a_zip_gives_the_same_bytes, begin),
        cmocka_unit_test_setup(bytes_may_be_passed_over, begin),
        cmocka_unit_test_setup(what_is_wrong_is_said, begin),
        cmocka_unit_test_setup(a_bomb_is_refused_by_its_directory, begin),
        cmocka_unit_test_setup(two_members_of_one_name_are_refused, begin),
        cmocka_unit_test_setup(more_members_than_asked_for_are_refused, begin),
        cmocka_unit_test_setup(cuts_and_changed_bytes_do_no_harm, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
