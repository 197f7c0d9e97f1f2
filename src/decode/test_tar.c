#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "decode/test_tar_files.h"

static struct archive archive;
static struct fb_tar_member member;
static forebay_error error;

static int begin(void **state)
{
    (void)state;
    archive.used = 0;
    return 0;
}

/* The names of all regular members, with their sizes; fails if it does not end well. */
static const char *listed(void)
{
    static char text[8192];
    struct fb_input input = archive_input(&archive);
    struct fb_tar tar;
    bool end = false;

    text[0] = '\0';
    fb_tar_init(&tar, &input);
    for (;;) {
        if (fb_tar_next(&tar, &member, &end, &error))
            return error.message;
        if (end)
            return text;
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s=%d%s%s",
                 text[0] ? " " : "", member.name, (int)member.bytes, member.regular ? "" : "!",
                 member.sparse ? "~" : "");
    }
}

static void members_are_found_in_order(void **state)
{
    (void)state;
    archive_add(&archive, "a.txt", '0', "abc", 3);
    archive_add(&archive, "folder/", '5', NULL, 0);
    archive_add(&archive, "old", '\0', "x", 1);
    archive_add(&archive, "old/", '\0', NULL, 0);
    archive_add(&archive, "contiguous", '7', "xy", 2);
    archive_add(&archive, "empty", '0', NULL, 0);
    archive_add(&archive, "link", '1', NULL, 0);
    archive_end(&archive);
    archive_add(&archive, "behind", '0', NULL, 0);
    assert_string_equal(listed(), "a.txt=3 folder/=0! old=1 old/=0! contiguous=2 empty=0 link=0!");
}

static void an_archive_may_end_without_a_block_of_zeros(void **state)
{
    (void)state;
    archive_add(&archive, "a", '0', "abc", 3);
    assert_string_equal(listed(), "a=3");
    archive.used = 515; /* not even filled up */
    assert_string_equal(listed(), "a=3");
}

static void links_have_no_data_whatever_they_say(void **state)
{
    unsigned char *header;

    (void)state;
    header = archive_add(&archive, "link", '1', NULL, 0);
    memcpy(header + 124, "00000001000", 12);
    archive_seal(header);
    archive_add(&archive, "a", '0', "abc", 3);
    assert_string_equal(listed(), "link=0! a=3");
}

static void ustar_names_have_a_prefix_and_gnu_names_have_not(void **state)
{
    unsigned char *header;

    (void)state;
    header = archive_add(&archive, "name.txt", '0', NULL, 0);
    memcpy(header + 345, "some/folder", 11);
    archive_seal(header);
    header = archive_add(&archive, "name.txt", '0', NULL, 0);
    memcpy(header + 257, "ustar  ", 8);
    memcpy(header + 345, "12345670123", 11);
    archive_seal(header);
    assert_string_equal(listed(), "some/folder/name.txt=0 name.txt=0");
}

static void long_names_come_before_their_member(void **state)
{
    char name[300], pax[400], wanted[700];

    (void)state;
    memset(name, 'n', 299);
    name[299] = '\0';
    archive_add(&archive, "././@LongLink", 'L', name, 300);
    archive_add(&archive, "cut", '0', "abc", 3);
    archive_add(&archive, "PaxHeaders/x", 'x', pax,
                (size_t)snprintf(pax, sizeof(pax), "19 comment=a=b c d\n309 path=%s\n", name));
    archive_add(&archive, "cut", '0', "abcd", 4);
    archive_add(&archive, "next", '0', NULL, 0);
    snprintf(wanted, sizeof(wanted), "%s=3 %s=4 next=0", name, name);
    assert_string_equal(listed(), wanted);
}

static void sizes_may_be_in_base_256_or_pax(void **state)
{
    unsigned char *header;

    (void)state;
    header = archive_add(&archive, "a", '0', "abc", 3);
    memset(header + 124, 0, 12);
    header[124] = 0x80;
    header[135] = 3;
    archive_seal(header);
    archive_add(&archive, "x", 'x', "9 size=3\n", 9);
    header = archive_add(&archive, "b", '0', "abc", 3);
    memset(header + 124, '0', 11);
    archive_seal(header);
    archive_add(&archive, "c", '0', NULL, 0);
    assert_string_equal(listed(), "a=3 b=3 c=0");
}

static void sparse_members_are_told_apart(void **state)
{
    unsigned char *header, map[512] = { 0 };

    (void)state;
    header = archive_add(&archive, "old", 'S', NULL, 0);
    header[482] = 1;
    archive_seal(header);
    memcpy(archive.bytes + archive.used, map, 512);
    archive.used += 512;
    archive_add(&archive, "x", 'x', "22 GNU.sparse.major=1\n27 GNU.sparse.name=new.npy\n", 49);
    archive_add(&archive, "GNUSparseFile.0/new.npy", '0', "abc", 3);
    archive_add(&archive, "x", 'x', "22 GNU.sparse.size=99\n22 GNU.sparse.map=0,3\n"
                "28 GNU.sparse.name=real.npy\n24 path=GNUSparseFile.0\n", 96);
    archive_add(&archive, "GNUSparseFile.0/real.npy", '0', "abc", 3);
    archive_add(&archive, "plain", '0', NULL, 0);
    assert_string_equal(listed(), "old=0~ new.npy=3~ real.npy=99~ plain=0");
}

static void what_is_wrong_is_said_with_its_place(void **state)
{
    static const struct {
        const char *what, *says;
    } rows[] = {
        { "checksum", "byte 1024: the checksum" },
        { "size", "a size that is no number" },
        { "negative", "a size that is no number" },
        { "beyond", "behind the archive's end" },
        { "huge", "behind the archive's end" },
        { "nul", "a NUL in it" },
        { "long", "more than 4095" },
        { "pax", "pax record whose length" },
        { "key", "pax record without a key" },
        { "line", "pax record whose length" },
        { "many", "64 extended headers" },
        { "header", "ends within a header" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *what = rows[i].what;
        unsigned char *header;

        archive.used = 0;
        archive_add(&archive, "first", '0', "x", 1);
        if (strcmp(what, "nul") == 0)
            archive_add(&archive, "x", 'x', "14 path=ab\0cd\n", 14);
        if (strcmp(what, "pax") == 0)
            archive_add(&archive, "x", 'x', "99 path=ab\n", 11);
        if (strcmp(what, "line") == 0)
            archive_add(&archive, "x", 'x', "10 path=ab\n", 11);
        if (strcmp(what, "key") == 0)
            archive_add(&archive, "x", 'x', "11 pathxab\n", 11);
        if (strcmp(what, "long") == 0)
            archive_add(&archive, "x", 'L', archive.bytes + 30000, 4097);
        for (int n = 0; strcmp(what, "many") == 0 && n < 64; n++)
            archive_add(&archive, "x", 'g', NULL, 0);
        header = archive_add(&archive, "second", '0', "abc", 3);
        if (strcmp(what, "checksum") == 0)
            header[0] ^= 1;
        if (strcmp(what, "size") == 0)
            memcpy(header + 124, "00000z", 6);
        if (strcmp(what, "negative") == 0)
            memset(header + 124, 0xff, 12);
        if (strcmp(what, "beyond") == 0)
            memcpy(header + 124, "00001000000", 11);
        if (strcmp(what, "huge") == 0) {
            memset(header + 124, 0xff, 12);
            memset(header + 124, 0, 5);
            header[124] = 0x80;
        }
        if (strcmp(what, "checksum") != 0)
            archive_seal(header);
        if (strcmp(what, "header") == 0)
            archive.used -= 600;
        if (!strstr(listed(), rows[i].says))
            fail_msg("%s: '%s' does not say '%s'", what, listed(), rows[i].says);
    }
    archive.used = 4096;
    memset(archive.bytes, 'x', 4096);
    assert_non_null(strstr(listed(), "no tar archive"));
}

static void names_are_split_as_webdataset_does(void **state)
{
    /* What re.match("^((?:.*" "/|)[^.]+)[.]([^/]*)$", name) gives, and the rule for meta data. */
    static const struct {
        const char *name, *key, *extension;
    } rows[] = {
        { "a.jpg", "a", "jpg" },
        { "a/b.seg.png", "a/b", "seg.png" },
        { "a.b/c.JPG", "a.b/c", "jpg" },
        { "./a.cls", "./a", "cls" },
        { "../../etc/x.npy", "../../etc/x", "npy" },
        { "/etc/passwd.txt", "/etc/passwd", "txt" },
        { "x/.hidden", "x/", "hidden" },
        { "a.b/.hidden", NULL, NULL },
        { ".hidden", NULL, NULL },
        { "noext", NULL, NULL },
        { "a.b/noext", NULL, NULL },
        { "a.", NULL, NULL },
        { "__meta__", NULL, NULL },
        { "__meta__/a.txt", NULL, NULL },
        { "__a.b__/a.txt", NULL, NULL },
        { "__meta__x/a.txt", "__meta__x/a", "txt" },
        { "x/__meta__/a.txt", "x/__meta__/a", "txt" },
        { "a b.c d", NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char extension[64];
        size_t key;
        bool split = fb_tar_split(rows[i].name, &key, extension, sizeof(extension));

        if (split != (rows[i].key != NULL))
            fail_msg("%s", rows[i].name);
        if (!split)
            continue;
        assert_int_equal(key, strlen(rows[i].key));
        assert_memory_equal(rows[i].name, rows[i].key, key);
        assert_string_equal(extension, rows[i].extension);
    }
}

static void an_extension_that_is_too_long_is_passed_over(void **state)
{
    char extension[4];
    size_t key;

    (void)state;
    assert_true(fb_tar_split("a.npy", &key, extension, sizeof(extension)));
    assert_false(fb_tar_split("a.jpeg", &key, extension, sizeof(extension)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(members_are_found_in_order, begin),
        cmocka_unit_test_setup(an_archive_may_end_without_a_block_of_zeros, begin),
        cmocka_unit_test_setup(links_have_no_data_whatever_they_say, begin),
        cmocka_unit_test_setup(ustar_names_have_a_prefix_and_gnu_names_have_not, begin),
        cmocka_unit_test_setup(long_names_come_before_their_member, begin),
        cmocka_unit_test_setup(sizes_may_be_in_base_256_or_pax, begin),
        cmocka_unit_test_setup(sparse_members_are_told_apart, begin),
        cmocka_unit_test_setup(what_is_wrong_is_said_with_its_place, begin),
        cmocka_unit_test(names_are_split_as_webdataset_does),
        cmocka_unit_test(an_extension_that_is_too_long_is_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
