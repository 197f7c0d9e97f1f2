/* The tar source through its seam; values against WebDataset are in tests/python/test_tar.py. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "decode/test_tar_files.h"
#include "memory/block.h"
#include "source/source.h"
#include "source/tar/tar_source.h"
#include "source/test_source.h"

static struct archive archive;
static struct fb_config config;
static char path[128], *paths[] = { path };

static int begin(void **state)
{
    (void)state;
    if (stand_begin("tar", 64 * FB_MIB))
        return -1;
    memset(&config, 0, sizeof(config));
    setenv("XDG_CACHE_HOME", folder, 1);
    snprintf(path, sizeof(path), "%s/a.tar", folder);
    config.source_kind = FB_KIND_TAR;
    config.source_path = (struct fb_texts){ 1, paths };
    config.source_rate.is_auto = true;
    config.source_max_pixels.value = 1000000;
    archive.used = 0;
    return 0;
}

static void write_archive(void)
{
    write_bytes("a.tar", archive.bytes, archive.used);
}

static int open_it(void)
{
    write_archive();
    return fb_source_open(&source, &config, budget, NULL, &error);
}

/* Unit (sample, field) as text. */
static const char *loaded(uint64_t sample, unsigned field)
{
    static char text[256], memory[1 << 20];
    uint64_t unit = sample * source->field_count + field;
    struct fb_extent extent = source->ops->extent(source, unit);
    struct fb_load load = {
        .unit = unit, .to = text, .reader = reader, .scratch = { memory, sizeof(memory) }
    };

    if (extent.known == FB_EXTENT_UNKNOWN && source->ops->probe(source, unit, &load, &error) == 0)
        extent = source->ops->extent(source, unit);
    load.rows = extent.known == FB_EXTENT_EXACT ? extent.rows : 0;
    load.bytes = load.rows * source->fields[field].cell_bytes;
    assert_true(load.bytes < sizeof(text));
    memset(text, 0, sizeof(text));
    return source->ops->load(source, &load, &error) ? error.message : text;
}

static void samples_are_members_of_one_key(void **state)
{
    (void)state;
    archive_add(&archive, "a.txt", '0', "one", 3);
    archive_add(&archive, "a.CLS", '0', "-5\n", 3);
    archive_add(&archive, "d/b.txt", '0', "two", 3);
    archive_add(&archive, "d/b.cls", '0', "6", 1);
    archive_end(&archive);
    assert_int_equal(open_it(), 0);
    assert_int_equal(source->sample_count, 2);
    assert_int_equal(source->field_count, 2);
    assert_string_equal(source->fields[0].name, "txt");
    assert_true(source->fields[0].always_ragged);
    assert_string_equal(source->fields[1].name, "cls");
    assert_int_equal(source->fields[1].ndim, 0);
    assert_string_equal(loaded(0, 0), "one");
    assert_string_equal(loaded(1, 0), "two");
    assert_int_equal(*(const int64_t *)(const void *)loaded(0, 1), -5);
    assert_int_equal(*(const int64_t *)(const void *)loaded(1, 1), 6);
    assert_int_equal(source->broken_count, 0);
}

static void what_cannot_be_read_says_why_with_key_and_extension(void **state)
{
    unsigned char *sparse;

    (void)state;
    archive_add(&archive, "a.cls", '0', "1", 1);
    archive_add(&archive, "a.txt", '0', "x", 1);
    archive_add(&archive, "b.cls", '0', "one", 3);
    sparse = archive_add(&archive, "b.txt", 'S', NULL, 0);
    memcpy(sparse + 386, "x", 1);
    memcpy(sparse + 483, "00000000010", 11);
    archive_seal(sparse);
    archive_add(&archive, "c.txt", '0', "x", 1);
    archive_add(&archive, "d.cls", '0', "1", 1);
    archive_add(&archive, "d.txt", '0', "x", 1);
    archive_add(&archive, "d.txt", '0', "y", 1);
    archive_end(&archive);
    assert_int_equal(open_it(), 0);
    assert_int_equal(source->broken_count, 2);
    assert_non_null(strstr(loaded(1, 0), "sample 'b', .cls': 'one' is no whole number"));
    assert_non_null(strstr(loaded(1, 1), "sample 'b', .txt': tar: byte 3072: the map of a sparse"));
    assert_non_null(strstr(loaded(2, 0), "sample 'c', .cls': its sample does not have it"));
    assert_non_null(strstr(loaded(3, 1), "sample 'd', .txt': its sample has it twice"));
    assert_string_equal(loaded(0, 1), "x");
}

static void rare_extensions_are_fields_only_if_named(void **state)
{
    static char name[] = "rare", *names[] = { name };

    (void)state;
    for (int i = 0; i < 5; i++) {
        char member[16];

        snprintf(member, sizeof(member), "%d.txt", i);
        archive_add(&archive, member, '0', "x", 1);
    }
    archive_add(&archive, "4.rare", '0', "r", 1);
    archive_end(&archive);
    assert_int_equal(open_it(), 0);
    assert_int_equal(source->field_count, 1);
    fb_source_close(source);
    source = NULL;
    config.batch_fields = (struct fb_texts){ 1, names };
    assert_int_equal(open_it(), 0);
    assert_int_equal(source->field_count, 1);
    assert_string_equal(source->fields[0].name, "rare");
    assert_int_equal(source->broken_count, 4);
    assert_string_equal(loaded(4, 0), "r");
}

static void a_class_is_any_number_of_64_bits(void **state)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } rows[] = {
        { "0", true, 0 },
        { " +7 \n", true, 7 },
        { "9223372036854775807", true, INT64_MAX },
        { "-9223372036854775808", true, INT64_MIN },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775809", false, 0 },
        { "", false, 0 },
        { "-", false, 0 },
        { "1 2", false, 0 },
        { "0x10", false, 0 },
        { "1.0", false, 0 },
        { "000000000000000000000000000000000000000000000000000000000000000000001", false, 0 },
    };

    (void)state;
    archive_add(&archive, "first.cls", '0', "1", 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char member[16];

        snprintf(member, sizeof(member), "%d.cls", (int)i);
        archive_add(&archive, member, '0', rows[i].text, strlen(rows[i].text));
    }
    archive_end(&archive);
    assert_int_equal(open_it(), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *text = loaded(1 + i, 0);

        if (rows[i].good)
            assert_int_equal(*(const int64_t *)(const void *)text, rows[i].value);
        else if (!strstr(text, "whole number"))
            fail_msg("'%s' was taken for a number", rows[i].text);
    }
}

static void the_index_is_remembered_and_checked(void **state)
{
    struct stat before, after;
    char kept[256];
    FILE *list;

    (void)state;
    archive_add(&archive, "a.txt", '0', "one", 3);
    archive_end(&archive);
    assert_int_equal(open_it(), 0);
    snprintf(kept, sizeof(kept), "ls %s/forebay/tar-*.fbt", folder);
    list = popen(kept, "r");
    assert_non_null(fgets(kept, sizeof(kept), list));
    pclose(list);
    kept[strcspn(kept, "\n")] = '\0';
    assert_int_equal(stat(kept, &before), 0);
    fb_source_close(source);
    source = NULL;
    archive.used = 0;
    archive_add(&archive, "b.txt", '0', "second", 6);
    archive_add(&archive, "c.txt", '0', "third", 5);
    archive_end(&archive);
    assert_int_equal(open_it(), 0); /* another size: not the remembered one */
    assert_int_equal(source->sample_count, 2);
    assert_string_equal(loaded(1, 0), "third");
    assert_int_equal(stat(kept, &after), 0);
    assert_true(after.st_size > before.st_size);
}

static void a_shard_that_shrinks_while_open_is_an_error(void **state)
{
    (void)state;
    archive_add(&archive, "a.txt", '0', "one", 3);
    archive_end(&archive);
    assert_int_equal(open_it(), 0);
    assert_int_equal(truncate(path, 600), 0);
    assert_non_null(strstr(loaded(0, 0), "changed since it was indexed"));
}

static void a_member_of_4_gib_or_more_is_read_at_its_end(void **state)
{
    const uint64_t bytes = 4 * FB_GIB + 7;
    struct fb_budget *large;
    struct fb_tar_extract from;
    unsigned char *header;
    char last[4] = "";
    int fd;

    (void)state;
    header = archive_add(&archive, "a.bin", '0', NULL, 0);
    header[124] = 0x80;
    for (int i = 0; i < 11; i++)
        header[125 + i] = (unsigned char)(i < 3 ? 0 : bytes >> 8 * (10 - i));
    archive_seal(header);
    write_archive();
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "end", 3, (off_t)(512 + bytes - 3)), 3);
    archive.used = 0; /* a second member behind it */
    archive_add(&archive, "b.bin", '0', "small", 5);
    archive_end(&archive);
    assert_int_equal(pwrite(fd, archive.bytes, archive.used, (off_t)(1024 + 4 * FB_GIB)),
                     archive.used);
    close(fd);
    assert_int_equal(fb_source_open(&source, &config, budget, NULL, &error), 0);
    assert_int_equal(source->broken_count, 1); /* a budget of 64 MiB has no room for it */
    assert_non_null(strstr(loaded(0, 0), "more bytes than memory.budget"));
    assert_string_equal(loaded(1, 0), "small");
    fb_source_close(source);
    assert_int_equal(fb_budget_new(&large, 16 * FB_GIB, &error), 0);
    assert_int_equal(fb_source_open(&source, &config, large, NULL, &error), 0);
    assert_int_equal(source->broken_count, 0);
    assert_int_equal(source->ops->extent(source, 0).rows, bytes);
    assert_int_equal(source->unit_bytes_max, bytes);
    assert_int_equal(fb_tar_extract((const struct fb_tar_source *)source, 0, 0, reader, &from,
                                    &error), 0);
    assert_int_equal(fb_input_read(&from.extract.input, last, 3, bytes - 3, &error), 0);
    assert_string_equal(last, "end");
    fb_extract_close(&from.extract);
    fb_source_close(source);
    source = NULL;
    fb_budget_free(large);
}

static void too_many_extensions_are_an_error_that_explains_dots(void **state)
{
    (void)state;
    for (int i = 0; i < 65; i++) {
        char member[32];

        snprintf(member, sizeof(member), "image.%d.jpg", i);
        archive_add(&archive, member, '0', "x", 1);
    }
    assert_int_equal(open_it(), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "keys must have no dots"));
}

static void a_small_budget_is_an_error_that_gives_all_back(void **state)
{
    (void)state;
    archive_add(&archive, "a.txt", '0', "one", 3);
    archive_end(&archive);
    write_archive();
    open_on_small_budgets(&config, 8 * FB_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(samples_are_members_of_one_key, begin, stand_end),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_says_why_with_key_and_extension, begin,
                                        stand_end),
        cmocka_unit_test_setup_teardown(rare_extensions_are_fields_only_if_named, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_class_is_any_number_of_64_bits, begin, stand_end),
        cmocka_unit_test_setup_teardown(the_index_is_remembered_and_checked, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_shard_that_shrinks_while_open_is_an_error, begin, stand_end),
        cmocka_unit_test_setup_teardown(a_member_of_4_gib_or_more_is_read_at_its_end, begin, stand_end),
        cmocka_unit_test_setup_teardown(too_many_extensions_are_an_error_that_explains_dots, begin,
                                        stand_end),
        cmocka_unit_test_setup_teardown(a_small_budget_is_an_error_that_gives_all_back, begin, stand_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
