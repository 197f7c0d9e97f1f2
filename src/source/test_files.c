#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mix.h"
#include "source/files.h"
#include "source/sort.h"

static struct fb_budget *budget;
static forebay_error error;
static char folder[64];

static void make_file(const char *path, size_t bytes)
{
    char whole[256], *slash;
    FILE *file;

    snprintf(whole, sizeof(whole), "%s/%s", folder, path);
    for (slash = whole + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(whole, 0755);
    }
    file = fopen(whole, "w");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++)
        fputc('x', file);
    fclose(file);
}

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/forebay-files-XXXXXX");
    return !mkdtemp(folder) || fb_budget_new(&budget, 8 << 20, &error);
}

static int end(void **state)
{
    struct fb_budget_report report;
    char command[128];

    (void)state;
    fb_budget_read(budget, &report);
    fb_budget_free(budget);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) != 0 || report.used != 0;
}

static int list(struct fb_files *files, const char *pattern)
{
    char copy[256], *patterns[] = { copy };

    snprintf(copy, sizeof(copy), "%s", pattern);
    return fb_files_list(files, "source.path", patterns, 1, folder, budget, NULL, &error);
}

/* All places without the test's folder, joined by spaces. */
static const char *listed(const char *pattern)
{
    static char text[2048];
    struct fb_files files;
    char place[FB_PATH_BYTES];

    text[0] = '\0';
    if (list(&files, pattern))
        return error.message;
    for (uint64_t i = 0; i < files.count; i++) {
        fb_files_place(&files, i, place, sizeof(place));
        strcat(strcat(text, i ? " " : ""), place + strlen(folder) + 1);
    }
    fb_files_release(&files);
    return text;
}

static void globs_find_what_they_name_in_natural_order(void **state)
{
    static const char *const names[] = {
        "part10.bin", "part2.bin", "part1.bin", "other.npy", ".hidden.bin", "a/1.bin", "a/b/2.bin",
        "a/b/c/3.bin", "x[1].bin", ".secret/9.bin", "a10/z.bin", "a9/z.bin",
    };
    static const struct {
        const char *pattern, *found;
    } rows[] = {
        { "part*.bin", "part1.bin part2.bin part10.bin" },
        { "*.bin", "part1.bin part2.bin part10.bin x[1].bin" },
        { "part?.bin", "part1.bin part2.bin" },
        { "part[2-9].bin", "part2.bin" },
        { "part[!2-9]*.bin", "part1.bin part10.bin" },
        { "{other.npy,part{1,10}.bin}", "other.npy part1.bin part10.bin" },
        { "part{2,2}.bin", "part2.bin" },
        { "part{1..2}.bin", "part1.bin part2.bin" },
        { "part{10..1..9}.bin", "part1.bin part10.bin" },
        { "{a{9..10}/z,part{01..02}}.bin", "part01.bin part02.bin a9/z.bin a10/z.bin" },
        { "part{08..10}.bin", "part08.bin part09.bin part10.bin" },
        { "**/*.bin", "part1.bin part2.bin part10.bin x[1].bin a/1.bin a/b/2.bin a/b/c/3.bin "
                      "a9/z.bin a10/z.bin" },
        { "a/**/*.bin", "a/1.bin a/b/2.bin a/b/c/3.bin" },
        { "a/**", "a/1.bin a/b/2.bin a/b/c/3.bin" },
        { "a/*", "a/1.bin" },
        { "a/**/b/**/*.bin", "a/b/2.bin a/b/c/3.bin" },
        { "*/*.bin", "a/1.bin a9/z.bin a10/z.bin" },
        { ".h*", ".hidden.bin" },
        { "x\\[1\\].bin", "x[1].bin" },
        { "./a//1.bin", "./a/1.bin" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        make_file(names[i], i);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(listed(rows[i].pattern), rows[i].found);
}

static void no_match_says_what_is_there(void **state)
{
    static const struct {
        const char *pattern, *says;
    } rows[] = {
        { "nowhere/*.bin", "there is no folder" },
        { "a/b/nowhere/c/*.bin", "b/nowhere/'" },
        { "empty/*.bin", "is empty" },
        { "a/*.bin", "has 2 entries, e.g. '" },
        { "a/1.bin", "nothing there is '1.bin'" },
        { "@none.txt", "cannot open the list" },
        { "a/1.npy/*.bin", "there is no folder" },
    };
    char path[128];

    (void)state;
    make_file("a/1.npy", 1);
    make_file("a/b/2.txt", 1);
    mkdir(strcat(strcpy(path, folder), "/empty"), 0755);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fb_files files;

        assert_int_equal(list(&files, rows[i].pattern), FOREBAY_MISSING);
        if (!strstr(error.message, rows[i].says))
            fail_msg("\"%s\" does not say \"%s\"", error.message, rows[i].says);
        assert_string_equal(error.place, "source.path");
    }
}

static void a_list_names_files_one_a_line(void **state)
{
    char path[128];
    struct fb_files files;
    FILE *file;

    (void)state;
    make_file("a/1.bin", 3);
    make_file("b [x]*.bin", 5);
    file = fopen(strcat(strcpy(path, folder), "/all.txt"), "w");
    fprintf(file, "b [x]*.bin\r\n\na/1.bin\na/gone.bin\n%s/a/1.bin", folder);
    fclose(file);
    assert_string_equal(listed("@all.txt"), "b [x]*.bin a/1.bin a/gone.bin");
    assert_int_equal(list(&files, "all.txt"), 0);
    assert_int_equal(files.count, 3);
    assert_int_equal(files.file[0].bytes, 5);
    assert_int_equal(files.file[1].fault, 0);
    assert_int_equal(files.file[2].fault, ENOENT);
    fb_files_release(&files);
}

static void what_is_no_file_is_kept_with_its_fault(void **state)
{
    char path[128];
    struct fb_files files;

    (void)state;
    make_file("1.npy", 4);
    mkdir(strcat(strcpy(path, folder), "/2.npy"), 0755);
    assert_int_equal(symlink("nowhere", strcat(strcpy(path, folder), "/3.npy")), 0);
    assert_int_equal(mkfifo(strcat(strcpy(path, folder), "/4.npy"), 0644), 0);
    assert_int_equal(symlink("5.npy", strcat(strcpy(path, folder), "/5.npy")), 0);
    assert_int_equal(symlink("1.npy", strcat(strcpy(path, folder), "/6.npy")), 0);
    assert_int_equal(list(&files, "*.npy"), 0);
    assert_int_equal(files.count, 6);
    assert_int_equal(files.file[0].fault, 0);
    assert_int_equal(files.file[1].fault, EISDIR);
    assert_int_equal(files.file[2].fault, ENOENT);
    assert_int_equal(files.file[3].fault, ENODEV);
    assert_int_equal(files.file[4].fault, ELOOP);
    assert_int_equal(files.file[5].bytes, 4);
    fb_files_release(&files);
}

static void links_that_go_round_end(void **state)
{
    char path[128];

    (void)state;
    make_file("a/b/1.bin", 1);
    assert_int_equal(symlink("..", strcat(strcpy(path, folder), "/a/b/up")), 0);
    assert_int_equal(symlink("../..", strcat(strcpy(path, folder), "/a/b/top")), 0);
    assert_int_equal(symlink(".", strcat(strcpy(path, folder), "/self")), 0);
    assert_string_equal(listed("**/*.bin"), "a/b/1.bin");
    assert_string_equal(listed("a/**/*.bin"), "a/b/1.bin");
}

static void folders_that_nest_too_deep_are_left(void **state)
{
    char path[512] = "";

    (void)state;
    for (int i = 0; i < 70; i++)
        strcat(path, "d/");
    make_file(strcat(path, "x.bin"), 1);
    make_file("d/y.bin", 1);
    assert_string_equal(listed("**/*.bin"), "d/y.bin");
}

static void a_file_costs_little_and_the_budget_ends_the_list(void **state)
{
    struct fb_budget_report report;
    struct fb_budget *small;
    struct fb_files files;
    char text[64], *patterns[] = { text };

    (void)state;
    for (int i = 0; i < 3000; i++) {
        snprintf(text, sizeof(text), "many/%06d.bin", i);
        make_file(text, 0);
    }
    assert_int_equal(list(&files, "many/*.bin"), 0);
    assert_int_equal(files.count, 3000);
    fb_budget_read(budget, &report);
    assert_true(report.used <= 3000 * 48 + 3 * 4096);
    fb_files_release(&files);

    assert_int_equal(fb_budget_new(&small, 65536, &error), 0);
    strcpy(text, "many/*.bin");
    assert_int_equal(fb_files_list(&files, "source.path", patterns, 1, folder, small, NULL, &error),
                     FOREBAY_OVER_BUDGET);
    fb_budget_read(small, &report);
    assert_int_equal(report.used, 0);
    assert_true(report.peak <= 65536);
    fb_budget_free(small);
}

static int note(void *data, const char *what, uint64_t done, uint64_t total)
{
    (void)what;
    (void)total;
    *(uint64_t *)data = done;
    return 1;
}

static void the_hash_knows_names_sizes_and_times(void **state)
{
    struct fb_files files;
    struct timespec times[2] = { { .tv_sec = 7 }, { .tv_sec = 7 } };
    uint64_t hashes[4];
    char path[128];

    (void)state;
    make_file("a/1.bin", 3);
    strcat(strcpy(path, folder), "/a/1.bin");
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            make_file("a/1.bin", 4);
        if (i == 2)
            times[1].tv_nsec = 1;
        if (i == 3)
            make_file("a/2.bin", 1);
        utimensat(AT_FDCWD, path, times, 0);
        assert_int_equal(list(&files, "a/*.bin"), 0);
        hashes[i] = fb_files_hash(&files, 1);
        assert_int_equal(fb_files_hash(&files, 1), hashes[i]);
        assert_int_not_equal(fb_files_hash(&files, 2), hashes[i]);
        fb_files_release(&files);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(hashes[k], hashes[i]);
    }
}

static void the_path_opens_from_anywhere(void **state)
{
    struct fb_files files;
    char here[FB_PATH_BYTES], path[FB_PATH_BYTES], pattern[] = "a/*.bin", *patterns[] = { pattern };

    (void)state;
    make_file("a/1.bin", 3);
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(fb_files_list(&files, "source.path", patterns, 1, "", budget, NULL, &error),
                     0);
    assert_int_equal(chdir(here), 0);
    fb_files_place(&files, 0, path, sizeof(path));
    assert_string_equal(path, "a/1.bin");
    fb_files_path(&files, 0, path, sizeof(path));
    assert_int_equal(access(path, R_OK), 0);
    fb_files_release(&files);
}

static void a_short_list_is_not_worth_a_word(void **state)
{
    uint64_t done = UINT64_MAX;
    struct fb_log log = { .progress = note, .data = &done };
    char pattern[] = "*.bin", *patterns[] = { pattern };
    struct fb_files files;
    int status;

    (void)state;
    make_file("1.bin", 0);
    status = fb_files_list(&files, "source.path", patterns, 1, folder, budget, &log, &error);
    assert_int_equal(status, 0);
    assert_int_equal(done, UINT64_MAX);
    fb_files_release(&files);
}

static void names_sort_as_people_expect(void **state)
{
    static const char *const names[] = {
        "", "1", "01", "2", "02a", "10", "99999999999999999999998", "99999999999999999999999",
        "A1", "a", "a1", "a1b", "a01c", "a2", "a10", "a10b2", "a10b10", "b",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            int order = fb_natural_compare(names[i], names[k]);

            if (strcmp(names[i], "1") == 0 && strcmp(names[k], "01") == 0)
                assert_true(order != 0);
            else if (strcmp(names[i], "01") == 0 && strcmp(names[k], "1") == 0)
                assert_true(order != 0);
            else
                assert_true(i < k ? order < 0 : i > k ? order > 0 : order == 0);
        }
}

static int compare_numbers(const void *a, const void *b, const void *data)
{
    uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;

    ++*(uint64_t *)(uintptr_t)data;
    return one < two ? -1 : one > two;
}

static void sorting_takes_n_log_n_whatever_comes(void **state)
{
    enum { N = 20000 };
    static uint64_t numbers[N];
    struct fb_random random = { 3 };

    (void)state;
    for (int form = 0; form < 6; form++) {
        uint64_t compared = 0, sum = 0;

        for (uint64_t i = 0; i < N; i++) {
            numbers[i] = form == 0   ? fb_random_next(&random)
                         : form == 1 ? i
                         : form == 2 ? N - i
                         : form == 3 ? 7
                         : form == 4 ? i % 3
                                     : (i < N / 2 ? i : N - i); /* an organ pipe */
            sum += numbers[i];
        }
        fb_sort(numbers, N, sizeof(numbers[0]), compare_numbers, &compared);
        for (uint64_t i = 0; i < N; i++) {
            assert_true(i == 0 || numbers[i - 1] <= numbers[i]);
            sum -= numbers[i];
        }
        assert_int_equal(sum, 0);
        assert_true(compared < (uint64_t)N * 15 * 6);
    }
}

static void wildcards_tell_what_they_stood_for(void **state)
{
    static const struct {
        const char *pattern, *path, *found; /* NULL: no match */
    } rows[] = {
        { "frames/*_blur.npy", "frames/0001_blur.npy", "0001/" },
        { "frames/*_blur.npy", "frames/0001_sharp.npy", NULL },
        { "*/blur/*.npy", "seq1/blur/7.npy", "seq1/7/" },
        { "a/**/*.npy", "a/7.npy", "/7/" },
        { "a/**/*.npy", "a/b/c/7.npy", "b/c//7/" },
        { "a?/[xy].npy", "a1/x.npy", "1/x/" },
        { "a?/[xy].npy", "a1/z.npy", NULL },
        { "a/*.npy", "a/b/7.npy", NULL },
        { "plain", "plain", "" },
    };
    char found[64];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool matches = fb_glob_capture(rows[i].pattern, rows[i].path, found, sizeof(found));

        assert_int_equal(matches, rows[i].found != NULL);
        if (matches)
            assert_string_equal(found, rows[i].found);
    }
    assert_false(fb_glob_capture("*", "longer than the room for it", found, 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(globs_find_what_they_name_in_natural_order, begin, end),
        cmocka_unit_test_setup_teardown(no_match_says_what_is_there, begin, end),
        cmocka_unit_test_setup_teardown(a_list_names_files_one_a_line, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_kept_with_its_fault, begin, end),
        cmocka_unit_test_setup_teardown(links_that_go_round_end, begin, end),
        cmocka_unit_test_setup_teardown(folders_that_nest_too_deep_are_left, begin, end),
        cmocka_unit_test_setup_teardown(a_file_costs_little_and_the_budget_ends_the_list, begin,
                                        end),
        cmocka_unit_test_setup_teardown(the_hash_knows_names_sizes_and_times, begin, end),
        cmocka_unit_test_setup_teardown(the_path_opens_from_anywhere, begin, end),
        cmocka_unit_test_setup_teardown(a_short_list_is_not_worth_a_word, begin, end),
        cmocka_unit_test(names_sort_as_people_expect),
        cmocka_unit_test(sorting_takes_n_log_n_whatever_comes),
        cmocka_unit_test(wildcards_tell_what_they_stood_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
