#include "source/tar/tar_index.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mix.h"
#include "base/size.h"
#include "decode/tar.h"
#include "source/source.h"
#include "source/store.h"

#define SUFFIX ".index"
#define ROOM_FOR 256 /* shards */

const char *fb_tar_fault_text(enum fb_tar_fault fault)
{
    static const char *const texts[] = {
        [FB_TAR_GOOD] = "nothing is wrong",
        [FB_TAR_SPECIAL] = "its header was not looked at",
        [FB_TAR_SPARSE] = "its sparse map is malformed: pack it without --sparse",
        [FB_TAR_TOO_LARGE] = "it has more bytes than memory.budget",
        [FB_TAR_TWICE] = "its sample has it twice",
        [FB_TAR_MISSING] = "its sample does not have it",
    };

    return texts[fault];
}

void fb_tar_index_release(struct fb_tar_index *index)
{
    fb_tape_release(&index->records);
}

int fb_tar_index_extension(struct fb_tar_index *index, const char *name, unsigned *number,
                           forebay_error *error)
{
    for (unsigned i = 0; i < index->extension_count; i++) {
        if (strcmp(index->extensions[i].name, name) == 0) {
            *number = i;
            return FOREBAY_OK;
        }
    }
    if (index->extension_count == FB_TAR_EXTENSIONS)
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       "more than %d extensions, '%s' among them; all "
                       "behind the first dot of a name is its extension, so keys must have no dots",
                       FB_TAR_EXTENSIONS, name);
    *number = index->extension_count++;
    strcpy(index->extensions[*number].name, name);
    return FOREBAY_OK;
}

static struct fb_tar_record *records_of(const struct fb_tar_index *index)
{
    return (struct fb_tar_record *)(void *)index->records.memory;
}

static uint64_t record_count(const struct fb_tar_index *index)
{
    return index->records.used / sizeof(struct fb_tar_record);
}

/* Does the sample under way have this extension already? */
static bool is_twice(const struct fb_tar_index *index, uint16_t extension)
{
    const struct fb_tar_record *records = records_of(index);

    for (uint64_t i = record_count(index) - 1; i-- > 0;) {
        if (records[i].extension == extension)
            return true;
        if (records[i].first)
            break;
    }
    return false;
}

int fb_tar_index_record(struct fb_tar_index *index, const struct fb_tar_record *record,
                        forebay_error *error)
{
    struct fb_tar_record *kept =
        fb_tape_add(&index->records, sizeof(*kept), "members of the shards", error);

    if (!kept)
        return fb_failed(error);
    *kept = *record;
    index->samples += record->first;
    if (!record->first && is_twice(index, record->extension))
        kept->fault = FB_TAR_TWICE;
    else
        index->extensions[record->extension].samples++;
    return FOREBAY_OK;
}

/* ---- saved ---- */

/* The file: this, then the names of the extensions, then the records, which name those by number.
 */
struct saved {
    char magic[8];
    uint64_t bytes; /* of the shard */
    int64_t mtime_ns;
    struct fb_tar_content content;
    uint64_t records, passed_over;
    uint64_t extensions;
    uint64_t hash; /* of all behind this */
};
static const char magic[8] = "fbtar\2\n";

static uint64_t hash_bytes(uint64_t hash, const void *bytes, uint64_t count)
{
    for (const char *at = bytes; count;) {
        uint64_t step = fb_min(count, 8), word = 0;

        memcpy(&word, at, step);
        hash = fb_mix2(hash, word);
        at += step;
        count -= step;
    }
    return hash;
}

static bool is_for(const struct saved *saved, const struct fb_tar_shard *shard)
{
    return memcmp(saved->magic, magic, sizeof(magic)) == 0 && saved->bytes == shard->bytes &&
           saved->mtime_ns == shard->mtime_ns && saved->extensions <= FB_TAR_EXTENSIONS &&
           saved->content.packing < FB_PACKING_COUNT &&
           (saved->content.packing || saved->content.bytes == shard->bytes) &&
           saved->content.bytes / FB_TAR_BLOCK < UINT32_MAX &&
           saved->records <= saved->content.bytes / FB_TAR_BLOCK;
}

/* The names, as numbers of ours. */
static bool load_extensions(struct fb_tar_index *index, int fd, const struct saved *saved,
                            unsigned *numbers, uint64_t *hash)
{
    for (uint64_t i = 0; i < saved->extensions; i++) {
        char name[FB_NAME_BYTES];

        if (fb_read_exactly(fd, name, sizeof(name), sizeof(*saved) + i * sizeof(name), NULL) ||
            !memchr(name, '\0', sizeof(name)) || name[0] == '\0' ||
            fb_tar_index_extension(index, name, &numbers[i], NULL))
            return false;
        *hash = hash_bytes(*hash, name, sizeof(name));
    }
    return true;
}

static bool is_sound_record(const struct fb_tar_record *record, const struct saved *saved,
                            bool is_first)
{
    uint64_t bytes = saved->content.bytes, at = (uint64_t)record->block * FB_TAR_BLOCK;
    bool special = record->fault == FB_TAR_SPECIAL;

    return record->extension < saved->extensions && record->first <= 1 &&
           (special || record->fault == FB_TAR_GOOD || record->fault == FB_TAR_TWICE) &&
           (special || record->block > 0) && at <= bytes &&
           (special ? record->bytes == UINT32_MAX
                    : record->bytes < UINT32_MAX && record->bytes <= bytes - at) &&
           (record->first || !is_first);
}

static bool load_records(struct fb_tar_index *index, int fd, const struct saved *saved,
                         const unsigned *numbers, void *room, uint64_t hash)
{
    uint64_t at = sizeof(*saved) + saved->extensions * FB_NAME_BYTES;
    const uint64_t step = FB_TAR_ROOM_BYTES / sizeof(struct fb_tar_record);

    for (uint64_t done = 0, count; done < saved->records; done += count) {
        struct fb_tar_record *records = room;

        count = fb_min(step, saved->records - done);
        if (fb_read_exactly(fd, room, count * sizeof(*records), at, NULL))
            return false;
        at += count * sizeof(*records);
        hash = hash_bytes(hash, room, count * sizeof(*records));
        for (uint64_t i = 0; i < count; i++) {
            if (!is_sound_record(&records[i], saved, done + i == 0))
                return false;
            records[i].extension = (uint16_t)numbers[records[i].extension];
            if (fb_tar_index_record(index, &records[i], NULL))
                return false;
        }
    }
    index->passed_over += saved->passed_over;
    return hash == saved->hash;
}

/* True if the shard's part was found there and is right; else the index is as before. */
static bool load(struct fb_tar_index *index, const struct fb_tar_shard *shard,
                 struct fb_tar_content *content, const char *path, bool is_ours, void *room)
{
    struct fb_tar_index before = *index;
    unsigned numbers[FB_TAR_EXTENSIONS];
    struct saved saved;
    uint64_t hash = 0;
    bool loaded;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return false;
    loaded = !fb_read_exactly(fd, &saved, sizeof(saved), 0, NULL) && is_for(&saved, shard) &&
             saved.content.window <= index->window_max && /* else the scan says so */
             load_extensions(index, fd, &saved, numbers, &hash) &&
             load_records(index, fd, &saved, numbers, room, hash);
    if (loaded && is_ours)
        fb_store_touch(fd);
    close(fd);
    if (!loaded) { /* the tape may have moved; what was added to it is forgotten */
        uint64_t used = before.records.used;

        before.records = index->records;
        before.records.used = used;
        *index = before;
    } else {
        *content = saved.content;
    }
    return loaded;
}

static bool put(FILE *file, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, file) == count;
}

int fb_tar_index_save(const struct fb_tar_index *index, const struct fb_tar_shard *shard,
                      const struct fb_tar_content *content, uint64_t first, const char *path,
                      forebay_error *error)
{
    const struct fb_tar_record *records = records_of(index) + first;
    uint64_t count = record_count(index) - first;
    struct saved saved = { .bytes = shard->bytes,
                           .mtime_ns = shard->mtime_ns,
                           .content = *content,
                           .records = count,
                           .extensions = index->extension_count,
                           .passed_over = index->passed_over - index->passed_before };
    char half[FB_PATH_BYTES];
    FILE *file;
    bool whole;

    memcpy(saved.magic, magic, sizeof(magic));
    for (unsigned i = 0; i < index->extension_count; i++)
        saved.hash = hash_bytes(saved.hash, index->extensions[i].name, FB_NAME_BYTES);
    saved.hash = hash_bytes(saved.hash, records, count * sizeof(*records));
    if (snprintf(half, sizeof(half), "%s.tmp%ld", path, (long)getpid()) >= (int)sizeof(half))
        return fb_fail(error, FOREBAY_IO, "the path is too long: '%.60s...'", path);
    file = fopen(half, "wbe");
    if (!file)
        return fb_fail_errno(error, FOREBAY_IO, "cannot write '%s'", half);
    whole = put(file, &saved, sizeof(saved));
    for (unsigned i = 0; i < index->extension_count && whole; i++)
        whole = put(file, index->extensions[i].name, FB_NAME_BYTES);
    whole = whole && put(file, records, count * sizeof(*records));
    whole = fclose(file) == 0 && whole;
    if (!whole || rename(half, path)) {
        unlink(half);
        return fb_fail_errno(error, FOREBAY_IO, "cannot write '%s'", path);
    }
    return FOREBAY_OK;
}

/* In the user's cache folder, by the hash of the shard's whole path. */
static bool kept_path(const struct fb_tar_shard *shard, char *path, size_t size)
{
    return !fb_store_path(path, size, "tar", hash_bytes(0, shard->path, strlen(shard->path)), NULL);
}

/* If it cannot be kept, it is looked for again the next time. */
static void keep(const struct fb_tar_index *index, const struct fb_tar_shard *shard,
                 const struct fb_tar_content *content, uint64_t first, const char *path)
{
    uint64_t bytes = (record_count(index) - first) * sizeof(struct fb_tar_record);

    /* Looking through the folder takes time: once for some shards, for all of them. */
    if (index->scanned % ROOM_FOR == 1 && fb_store_make_room(path, bytes * ROOM_FOR, NULL))
        return;
    fb_tar_index_save(index, shard, content, first, path, NULL);
}

int fb_tar_index_add(struct fb_tar_index *index, const struct fb_tar_shard *shard,
                     struct fb_tar_content *content, struct fb_reader *reader, void *room,
                     forebay_error *error)
{
    char beside[FB_PATH_BYTES], kept[FB_PATH_BYTES] = "";
    uint64_t first = record_count(index);
    int status;

    index->passed_before = index->passed_over;
    if (snprintf(beside, sizeof(beside), "%s" SUFFIX, shard->path) >= (int)sizeof(beside) ||
        !load(index, shard, content, beside, false, room)) {
        if (!kept_path(shard, kept, sizeof(kept)))
            kept[0] = '\0';
        if (!kept[0] || !load(index, shard, content, kept, true, room)) {
            status = fb_tar_scan(index, shard, content, reader, room, error);
            if (!status && kept[0])
                keep(index, shard, content, first, kept);
            return status;
        }
    }
    index->remembered++;
    return FOREBAY_OK;
}
