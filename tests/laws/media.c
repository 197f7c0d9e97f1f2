#include "media.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "generate/generate.h"

#define SHARDS 3
#define SETTINGS_MAX 24
#define SHARD_BYTES (8u << 20)

const struct media_kind media_kinds[] = {
    { "images", "images", "images/**/*.jpg", { "source.size=48", "source.crop=center" } },
    { "images, random crop", "images", "images/**/*.jpg",
      { "source.size=48", "source.crop=random", "source.flip=true", "source.layout=chw" } },
    { "tar", "tar", "shards/*.tar", { "source.size=48", "source.crop=random" } },
    { "tar in order", "tar", "shards/*.tar",
      { "source.size=48", "source.access=sequential", "order.window=25" } },
    { "tar.gz", "tar", "packed/*.gz", { "source.size=48", "order.window=25" } },
    { "tar.zst", "tar", "packed/*.zst", { "source.size=48", "order.window=25" } },
    { "audio", "audio", "speech/manifest.jsonl", { "source.rate=16000" } },
    { "audio in buckets", "audio", "speech/manifest.jsonl",
      { "source.rate=8000", "source.buckets=true", "source.max_duration=2" } },
};
const unsigned media_kind_count = sizeof(media_kinds) / sizeof(media_kinds[0]);

static void die(const char *what)
{
    fprintf(stderr, "media: %s\n", what);
    abort();
}

static void generate(const char *kind, const char *name, uint64_t bytes)
{
    struct fb_generate_result result;
    forebay_error error;
    char path[700];
    struct fb_generate_options options = {
        .kind = kind, .folder = path, .files = MEDIA_SAMPLES, .bytes = bytes, .seed = 5
    };

    snprintf(path, sizeof(path), "%s/%s", law_folder(), name);
    if (fb_generate(&result, &options, NULL, &error))
        die(error.message);
}

/* ---- shards ---- */

static unsigned char *shard; /* SHARD_BYTES */
static size_t shard_used;

static void add_member(const char *name, const void *data, size_t bytes)
{
    unsigned char *header = shard + shard_used;
    unsigned sum = 0;

    memset(header, 0, 512);
    snprintf((char *)header, 100, "%s", name);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)bytes);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    memset(header + 148, ' ', 8);
    for (unsigned i = 0; i < 512; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    memset(header + 512, 0, (bytes + 511) / 512 * 512);
    memcpy(header + 512, data, bytes);
    shard_used += 512 + (bytes + 511) / 512 * 512;
}

static void add_sample(unsigned number)
{
    static unsigned char data[1 << 20];
    char path[800], name[64];
    FILE *file, *list;
    size_t bytes;

    snprintf(path, sizeof(path), "find %s/images -name '*.jpg' | sort | sed -n %up", law_folder(),
             number + 1);
    list = popen(path, "r");
    if (!list || !fgets(path, sizeof(path), list))
        die("no image");
    pclose(list);
    path[strcspn(path, "\n")] = '\0';
    file = fopen(path, "rb");
    if (!file)
        die(path);
    bytes = fread(data, 1, sizeof(data), file);
    fclose(file);
    snprintf(name, sizeof(name), "%04u.jpg", number);
    add_member(name, data, bytes);
    snprintf(name, sizeof(name), "%04u.cls", number);
    bytes = (size_t)snprintf((char *)data, sizeof(data), "%u", number);
    add_member(name, data, bytes);
}

static void write_bytes(const char *name, const void *bytes, size_t count)
{
    char path[1600];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", law_folder(), name);
    file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, count, file) != count || fclose(file))
        die(path);
}

static void write_packed(unsigned number)
{
    char path[800], name[64];
    void *packed = malloc(SHARD_BYTES);
    gzFile file;

    snprintf(path, sizeof(path), "%s/packed/%u.tar.gz", law_folder(), number);
    file = gzopen(path, "wb1");
    if (!packed || !file || gzwrite(file, shard, (unsigned)shard_used) != (int)shard_used ||
        gzclose(file) != Z_OK)
        die(path);
    snprintf(name, sizeof(name), "packed/%u.tar.zst", number);
    write_bytes(name, packed, ZSTD_compress(packed, SHARD_BYTES, shard, shard_used, 1));
    free(packed);
}

static void make_shards(void)
{
    char path[64];

    shard = malloc(SHARD_BYTES);
    if (!shard)
        die("no memory");
    snprintf(path, sizeof(path), "%s/shards", law_folder());
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/packed", law_folder());
    mkdir(path, 0700);
    for (unsigned i = 0; i < SHARDS; i++) {
        shard_used = 0;
        for (unsigned s = i * MEDIA_SAMPLES / SHARDS; s < (i + 1) * MEDIA_SAMPLES / SHARDS; s++)
            add_sample(s);
        memset(shard + shard_used, 0, 1024);
        shard_used += 1024;
        snprintf(path, sizeof(path), "shards/%u.tar", i);
        write_bytes(path, shard, shard_used);
        write_packed(i);
    }
    free(shard);
}

static void make_all(void)
{
    static bool made;
    char path[700];

    if (made)
        return;
    made = true;
    snprintf(path, sizeof(path), "%s/cache", law_folder()); /* indexes are kept there */
    setenv("XDG_CACHE_HOME", path, 1);
    generate("images", "images", 12000);
    generate("audio", "speech", 20000);
    make_shards();
}

int media_open(forebay_loader **out, const struct media_kind *kind, forebay_error *error, ...)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    const char *settings[SETTINGS_MAX];
    char kind_text[64], path[700];
    size_t count = 0;
    va_list rest;

    make_all();
    snprintf(kind_text, sizeof(kind_text), "source.kind=%s", kind->kind);
    snprintf(path, sizeof(path), "source.path=%s/%s", law_folder(), kind->glob);
    settings[count++] = kind_text;
    settings[count++] = path;
    settings[count++] = "memory.share=off";
    settings[count++] = "batch.collate=pad";
    for (unsigned i = 0; i < 4 && kind->settings[i]; i++)
        settings[count++] = kind->settings[i];
    va_start(rest, error);
    for (const char *next = va_arg(rest, const char *); next; next = va_arg(rest, const char *)) {
        assert_true(count < SETTINGS_MAX);
        settings[count++] = next;
    }
    va_end(rest);
    options.settings = settings;
    options.setting_count = count;
    return forebay_open(out, &options, error);
}
