#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <signal.h>

#include "generate/checksum.h"
#include "generate/generate.h"
#include "base/new_file.h"
#include "generate/generate_noise.h"

static char folder[PATH_MAX];

static int folder_new(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/forebay-generate-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    char command[PATH_MAX + 16];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

static unsigned char *file_read(const char *name, size_t *bytes)
{
    char path[PATH_MAX + 64];
    struct stat now;
    unsigned char *data;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &now), 0);
    *bytes = (size_t)now.st_size;
    data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(read(fd, data, *bytes), *bytes);
    data[*bytes] = 0;
    close(fd);
    return data;
}

static unsigned files_in(const char *path)
{
    DIR *directory = opendir(path);
    unsigned count = 0;

    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static struct fb_generate_result made(struct fb_generate_options options)
{
    struct fb_generate_result result;
    forebay_error error;

    options.folder = folder;
    if (fb_generate(&result, &options, NULL, &error))
        fail_msg("%s", error.message);
    return result;
}

static void the_checksum_of_pieces_is_that_of_the_whole(void **state)
{
    static unsigned char data[20001];
    uint64_t sum = 0, pieces = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)fb_mix(i);
    for (size_t i = 0; i < sizeof(data); i += 4096)
        sum += data[i];
    sum += data[sizeof(data) - 1];
    assert_int_equal(fb_checksum(data, sizeof(data)), sum);
    for (size_t at = 0; at < sizeof(data);) {
        size_t bytes = 1 + at % 3000;

        if (bytes > sizeof(data) - at)
            bytes = sizeof(data) - at;
        pieces += fb_checksum_piece(data + at, at, bytes, sizeof(data));
        at += bytes;
    }
    assert_int_equal(pieces, sum);
    assert_int_equal(fb_checksum(data, 0), 0);
    assert_int_equal(fb_checksum(data, 1), 2 * data[0]);
}

/* If these change, every set that somebody keeps and its checksum change. */
static void the_numbers_are_the_same_on_every_machine(void **state)
{
    static const uint32_t bits[8] = { 0x412a65c2, 0x40b42f30, 0x421d4ce0, 0x3ecb1dd8,
                                      0x3ea4b574, 0x3ffc1ce5, 0x3f110a2d, 0x3f09025c };
    float values[8];

    (void)state;
    fb_noise_points(values, 1, 0, 4);
    fb_noise_normal(values + 4, 1, 0, 2);
    fb_noise_unit(values + 6, 1, 0, 2);
    assert_memory_equal(values, bits, sizeof(bits));
}

static void bell_has_mean_zero_and_its_sigma(void **state)
{
    double sum = 0, squares = 0;
    const unsigned count = 100000;

    (void)state;
    for (unsigned i = 0; i < count; i++) {
        double value = (double)fb_noise_bell(7, i) / FB_BELL_SIGMA;

        sum += value;
        squares += value * value;
    }
    assert_true(sum / count > -0.02 && sum / count < 0.02);
    assert_true(squares / count > 0.98 && squares / count < 1.02);
}

static void lidar_is_in_range_and_its_checksum_is_the_files(void **state)
{
    struct fb_generate_result result =
        made((struct fb_generate_options){ .kind = "lidar", .files = 5, .bytes = 700001 });
    uint64_t sum = 0;

    (void)state;
    assert_int_equal(result.samples, 5);
    assert_int_equal(result.written, 5);
    assert_int_equal(result.bytes, 5 * 700000);
    for (unsigned i = 0; i < 5; i++) {
        char name[32];
        size_t bytes;
        unsigned char *data;
        const float *point;

        snprintf(name, sizeof(name), "%06u.bin", i);
        data = file_read(name, &bytes);
        point = (const float *)(const void *)data;
        assert_int_equal(bytes, 700000);
        for (size_t k = 0; k < bytes / 16; k++, point += 4) {
            for (unsigned axis = 0; axis < 3; axis++)
                assert_true(point[axis] >= -80 && point[axis] < 80);
            assert_true(point[3] >= 0 && point[3] < 1);
        }
        sum += fb_checksum(data, bytes);
        free(data);
    }
    assert_int_equal(result.checksum, sum);
}

static const struct fb_generate_options small[] = {
    { .kind = "lidar", .files = 3, .bytes = 1600 },
    { .kind = "frames", .files = 2, .bytes = 152 * 9 * 16 },
    { .kind = "windows", .files = 3, .bytes = 9600 },
    { .kind = "images", .files = 12, .bytes = 3000 },
    { .kind = "audio", .files = 4, .bytes = 8000 },
    { .kind = "table", .files = 2, .rows = 50 },
};

static void the_same_seed_makes_the_same_set_whatever_the_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
        struct fb_generate_options options = small[i];
        struct fb_generate_result first, again, other;

        options.threads = 1;
        first = made(options);
        assert_int_equal(first.kept, 0);
        options.threads = 3;
        again = made(options);
        assert_int_equal(again.written, 0);
        assert_int_equal(again.kept, first.written);
        assert_int_equal(again.bytes, first.bytes);
        assert_int_equal(again.checksum, first.checksum);
        options.seed = 1;
        options.force = true;
        other = made(options);
        assert_int_equal(other.written, first.written);
        assert_int_not_equal(other.checksum, first.checksum);
    }
}

static void a_file_that_holds_something_else_is_not_touched(void **state)
{
    struct fb_generate_options options = { .kind = "lidar", .files = 3, .bytes = 1600,
                                           .folder = folder };
    struct fb_generate_result result;
    forebay_error error;
    unsigned char *before, *after;
    size_t bytes;

    (void)state;
    made(options);
    before = file_read("000001.bin", &bytes);
    options.seed = 9;
    assert_int_equal(fb_generate(&result, &options, NULL, &error), FOREBAY_BAD_USE);
    assert_non_null(strstr(error.message, "--force"));
    after = file_read("000001.bin", &bytes);
    assert_memory_equal(before, after, bytes);
    options.seed = 0;
    options.bytes = 3200; /* begins like the file, but is longer */
    assert_int_equal(fb_generate(&result, &options, NULL, &error), FOREBAY_BAD_USE);
    options.bytes = 160;
    assert_int_equal(fb_generate(&result, &options, NULL, &error), FOREBAY_BAD_USE);
    assert_int_equal(files_in(folder), 3);
    free(before);
    free(after);
}

static void a_write_that_fails_leaves_no_half_file(void **state)
{
    struct fb_generate_options options = { .kind = "lidar", .files = 4, .bytes = 4000000,
                                           .folder = folder };
    struct fb_generate_result result;
    struct rlimit old, low;
    forebay_error error;
    int status;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 1000000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    status = fb_generate(&result, &options, NULL, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, FOREBAY_IO);
    assert_non_null(strstr(error.message, ".bin"));
    assert_int_equal(files_in(folder), 0);
}

static int stop_half_way(void *data, const char *what, uint64_t done, uint64_t total)
{
    (void)data;
    (void)what;
    return done > total / 2;
}

static void stopping_half_way_leaves_whole_files_only(void **state)
{
    struct fb_generate_options options = { .kind = "lidar", .files = 20, .bytes = 1000000,
                                           .folder = folder };
    struct fb_log log = { .progress = stop_half_way };
    struct fb_generate_result result;
    forebay_error error;

    (void)state;
    assert_int_equal(fb_generate(&result, &options, &log, &error), FOREBAY_STOPPED);
    assert_true(files_in(folder) < 20);
    result = made(options);
    assert_int_equal(result.kept + result.written, 20);
}

static void npy_headers_are_numpys(void **state)
{
    size_t bytes;
    unsigned char *data;

    (void)state;
    made((struct fb_generate_options){ .kind = "windows", .files = 1, .bytes = 96 * 4 * 7 });
    data = file_read("0000.npy", &bytes);
    assert_memory_equal(data, "\x93NUMPY\x01\x00\x76\x00", 10);
    assert_int_equal(bytes, 128 + 96 * 4 * 7);
    assert_int_equal(data[127], '\n');
    assert_non_null(strstr((const char *)data + 10, "'shape': (7, 96), }"));
    free(data);
}

static void nonsense_is_refused_in_words(void **state)
{
    static const struct {
        struct fb_generate_options options;
        const char *says;
    } cases[] = {
        { { .kind = "lidars" }, "lidar, frames" },
        { { .kind = "lidar", .bytes = 15 }, "at least 16" },
        { { .kind = "frames", .bytes = 100 }, "at least 304" },
        { { .kind = "windows", .bytes = 100 }, "at least 384" },
        { { .kind = "lidar", .rows = 5 }, "only tables" },
        { { .kind = "lidar", .files = UINT64_MAX, .bytes = 16 }, "more than any disk" },
        { { .kind = "images", .bytes = 1000000000 }, "at most 100MB" },
        { { .kind = "audio", .bytes = 1000000000 }, "an hour" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fb_generate_options options = cases[i].options;
        struct fb_generate_result result;
        forebay_error error;

        options.folder = folder;
        assert_int_equal(fb_generate(&result, &options, NULL, &error), FOREBAY_BAD_USE);
        if (!strstr(error.message, cases[i].says))
            fail_msg("'%s' should say '%s'", error.message, cases[i].says);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, folder_new, folder_remove)
    const struct CMUnitTest tests[] = {
        T(the_checksum_of_pieces_is_that_of_the_whole),
        T(the_numbers_are_the_same_on_every_machine),
        T(bell_has_mean_zero_and_its_sigma),
        T(lidar_is_in_range_and_its_checksum_is_the_files),
        T(the_same_seed_makes_the_same_set_whatever_the_threads),
        T(a_file_that_holds_something_else_is_not_touched),
        T(a_write_that_fails_leaves_no_half_file),
        T(stopping_half_way_leaves_whole_files_only),
        T(npy_headers_are_numpys),
        T(nonsense_is_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
