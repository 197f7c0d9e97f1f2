#include "law.h"

#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mix.h"

#define SETTINGS_MAX 24

static char folder[512];
static pid_t folder_owner;

unsigned law_count(unsigned usual, unsigned soak)
{
    const char *set = getenv("FOREBAY_SOAK");

    return set && set[0] && strcmp(set, "0") ? soak : usual;
}

static void remove_folder(void)
{
    char command[600];

    if (getpid() != folder_owner) /* a forked child leaves it to its parent */
        return;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "could not remove %s\n", folder);
}

static void write_file(const char *path, const void *head, size_t head_bytes, const void *body,
                       size_t body_bytes)
{
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(head, 1, head_bytes, file) != head_bytes ||
        fwrite(body, 1, body_bytes, file) != body_bytes || fclose(file)) {
        fprintf(stderr, "could not write %s\n", path);
        abort();
    }
}

static void write_scan(unsigned number)
{
    static float rows[400][4];
    struct fb_random random = { fb_mix2(1, number) };
    size_t count = 100 + fb_random_below(&random, 301);
    char path[600];

    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < 4; j++)
            rows[i][j] = (float)fb_random_unit(&random);
    snprintf(path, sizeof(path), "%s/scans/%06u.bin", folder, number);
    write_file(path, "", 0, rows, count * sizeof(rows[0]));
}

static void write_frame(unsigned number)
{
    static uint8_t pixels[256 * 512];
    char head[128], path[600];
    int length;

    memset(pixels, (int)number, sizeof(pixels));
    for (size_t i = 0; i < sizeof(pixels); i += 4096)
        pixels[i] = (uint8_t)fb_mix2(number, i);
    /* Version 1.0: magic, the length of the text as u16, text padded to 128 bytes in all. */
    length = snprintf(head + 10, sizeof(head) - 10,
                      "{'descr': '|u1', 'fortran_order': False, 'shape': (256, 512), }");
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(head + 10 + length, ' ', sizeof(head) - 10 - (size_t)length);
    head[127] = '\n';
    snprintf(path, sizeof(path), "%s/frames/%03u.npy", folder, number);
    write_file(path, head, sizeof(head), pixels, sizeof(pixels));
}

const char *law_folder(void)
{
    const char *parent = getenv("TMPDIR");
    char path[600];

    if (folder[0])
        return folder;
    if (!parent || !parent[0])
        parent = "/tmp";
    snprintf(folder, sizeof(folder), "%s/forebay-law-XXXXXX", parent);
    if (!mkdtemp(folder))
        abort();
    folder_owner = getpid();
    atexit(remove_folder);
    snprintf(path, sizeof(path), "%s/scans", folder);
    mkdir(path, 0700);
    for (unsigned i = 0; i < LAW_SCANS; i++)
        write_scan(i);
    snprintf(path, sizeof(path), "%s/frames", folder);
    mkdir(path, 0700);
    for (unsigned i = 0; i < LAW_FRAMES; i++)
        write_frame(i);
    return folder;
}

static int open_with(forebay_loader **out, forebay_budget *budget, const char *kind,
                     const char *glob, va_list rest, forebay_error *error)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    const char *settings[SETTINGS_MAX];
    char kind_text[64], path[700];
    size_t count = 0;

    snprintf(kind_text, sizeof(kind_text), "source.kind=%s", kind);
    snprintf(path, sizeof(path), "source.path=%s/%s", law_folder(), glob);
    settings[count++] = kind_text;
    settings[count++] = path;
    for (const char *next = va_arg(rest, const char *); next; next = va_arg(rest, const char *)) {
        assert_true(count < SETTINGS_MAX);
        settings[count++] = next;
    }
    options.settings = settings;
    options.setting_count = count;
    options.budget = budget;
    return forebay_open(out, &options, error);
}

int law_open_scans(forebay_loader **out, forebay_budget *budget, forebay_error *error, ...)
{
    va_list rest;
    int status;

    va_start(rest, error);
    status = open_with(out, budget, "bin", "scans/*.bin", rest, error);
    va_end(rest);
    return status;
}

int law_open_frames(forebay_loader **out, forebay_budget *budget, forebay_error *error, ...)
{
    va_list rest;
    int status;

    va_start(rest, error);
    status = open_with(out, budget, "npy", "frames/*.npy", rest, error);
    va_end(rest);
    return status;
}

static uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t word;

    for (; count >= sizeof(word); at += sizeof(word), count -= sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
        digest ^= digest >> 29;
    }
    word = 0;
    memcpy(&word, at, count);
    return fb_mix2(digest, word);
}

/* Its bytes where we can read them: as they are, or copied back from the device into *copy. */
static const void *field_bytes(const forebay_batch *batch, const forebay_field *field, void **copy)
{
    forebay_error error;

    *copy = NULL;
    if (batch->device_type == 1 || field->bytes == 0)
        return field->data;
    *copy = malloc(field->bytes);
    if (!*copy || forebay_batch_read(batch, field, *copy, &error))
        fail_msg("forebay_batch_read: %s", *copy ? error.message : "no memory");
    return *copy;
}

uint64_t law_digest(uint64_t digest, const forebay_batch *batch)
{
    void *copy;

    digest = fb_mix2(digest, batch->epoch);
    digest = fb_mix2(digest, batch->number);
    digest = fb_mix2(digest, batch->samples);
    for (size_t i = 0; i < batch->field_count; i++) {
        const forebay_field *field = &batch->fields[i];

        digest = digest_bytes(digest, field->name, strlen(field->name));
        digest = fb_mix2(digest, (uint64_t)field->dtype);
        digest = digest_bytes(digest, field->shape, field->ndim * sizeof(field->shape[0]));
        digest = digest_bytes(digest, field_bytes(batch, field, &copy), field->bytes);
        free(copy);
    }
    return digest;
}

uint64_t law_run_epoch(uint64_t digest, forebay_loader *loader)
{
    forebay_batch *batch;
    forebay_error error;
    int status;

    while ((status = forebay_next(&batch, loader, &error)) == FOREBAY_OK) {
        digest = law_digest(digest, batch);
        forebay_batch_release(batch);
    }
    if (status != FOREBAY_END)
        fail_msg("forebay_next: %s", error.message);
    return digest;
}

uint64_t law_stat(forebay_loader *loader, const char *group, const char *name)
{
    static char text[1 << 20];
    json_t *all;
    uint64_t value;

    assert_true(forebay_stats_json(loader, text, sizeof(text)) < sizeof(text));
    all = json_loads(text, 0, NULL);
    assert_non_null(all);
    assert_true(json_is_integer(json_object_get(json_object_get(all, group), name)));
    value = (uint64_t)json_integer_value(json_object_get(json_object_get(all, group), name));
    json_decref(all);
    return value;
}

static unsigned count_entries(const char *path)
{
    DIR *entries = opendir(path);
    unsigned count = 0;

    assert_non_null(entries);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count - 2; /* "." and ".." */
}

unsigned law_fds(void)
{
    return count_entries("/proc/self/fd") - 1; /* less the one that looks */
}

unsigned law_threads(void)
{
    return count_entries("/proc/self/task");
}

static void *do_nothing(void *argument)
{
    return argument;
}

unsigned law_threads_alone(void)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, do_nothing, NULL), 0);
    pthread_join(thread, NULL);
    usleep(200000); /* until the kernel lists it no more */
    return law_threads();
}

bool law_threads_become(unsigned count)
{
    for (int tries = 0; tries < 1000; tries++) {
        if (law_threads() == count)
            return true;
        usleep(10000);
    }
    return false;
}

uint64_t law_rss_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long size, resident;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}
