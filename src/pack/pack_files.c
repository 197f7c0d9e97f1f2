#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/size.h"
#include "memory/block.h"
#include "base/new_file.h"
#include "pack/pack_inside.h"

#define PIECE_BYTES (1 * FB_MIB)
#define INDEX_BYTES_MAX (256 * FB_MIB)
#define LINE_BYTES 128

void fb_pack_shard_path(const struct fb_pack_plan *plan, uint64_t number, const char *suffix,
                        char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s-%06" PRIu64 ".tar%s", plan->prefix, number, suffix);
}

static void beside_path(const struct fb_pack_plan *plan, const char *suffix, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s%s", plan->prefix, suffix);
}

int fb_pack_write_failed(const char *path, forebay_error *error)
{
    if (errno == ENOSPC || errno == EDQUOT)
        fb_fail_errno(error, FOREBAY_IO, "cannot write '%s': the disk is full (shards that were "
                      "finished stay; make room and run it again)", path);
    else
        fb_fail_errno(error, FOREBAY_IO, "cannot write '%s'", path);
    fb_error_place(error, "%s", path);
    return FOREBAY_IO;
}

/* ---- What is there already ---- */

/* The number of "out-000012.tar" or "out-000012.tar.tmp"; false for other names. */
static bool is_shard(const char *name, const char *base)
{
    size_t length = strlen(base), digits;

    if (strncmp(name, base, length) != 0 || name[length] != '-')
        return false;
    name += length + 1;
    digits = strspn(name, "0123456789");
    return digits >= 6 && (!strcmp(name + digits, ".tar") || !strcmp(name + digits, ".tar.tmp"));
}

/* Shards of this name: how many there are; with `remove` none afterwards. */
static uint64_t shards_there(const struct fb_pack_plan *plan, bool remove)
{
    const char *slash = strrchr(plan->prefix, '/'), *base = slash ? slash + 1 : plan->prefix;
    char folder[PATH_MAX] = ".";
    uint64_t count = 0;
    DIR *list;

    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - plan->prefix + 1), plan->prefix);
    list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (is_shard(entry->d_name, base)) {
            count++;
            if (remove)
                unlinkat(dirfd(list), entry->d_name, 0);
        }
    if (list)
        closedir(list);
    return count;
}

/* Is the shard there, as long as it should be, and with this checksum? */
static bool shard_is_whole(const struct fb_pack_plan *plan, uint64_t number, uint32_t crc,
                           char *piece)
{
    char path[PATH_MAX];
    struct stat about;
    uLong sum = crc32(0, NULL, 0);
    bool whole;
    ssize_t got = 0;
    int fd;

    fb_pack_shard_path(plan, number, "", path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    whole = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
            (uint64_t)about.st_size == plan->shards[number].bytes;
    while (whole && (got = read(fd, piece, PIECE_BYTES)) > 0)
        sum = crc32(sum, (const Bytef *)piece, (uInt)got);
    close(fd);
    return whole && got == 0 && (uint32_t)sum == crc;
}

/* One shard that an earlier run says it finished. */
static void shard_claim(struct fb_pack_plan *plan, uint64_t number, uint64_t bytes, uint32_t crc)
{
    if (number >= plan->shard_count || bytes != plan->shards[number].bytes)
        return;
    plan->shards[number].crc = crc;
    plan->shards[number].whole = true;
}

/* ---- The journal: "forebay-pack 1 HASH", then "NUMBER BYTES CRC" a line ---- */

/* True if it is of the same data and options (or new); its claims are taken over. */
static bool journal_read(struct fb_pack_plan *plan, int fd, bool *empty)
{
    FILE *file = fdopen(dup(fd), "r");
    char line[LINE_BYTES], want[LINE_BYTES];
    uint64_t number, bytes;
    uint32_t crc;
    bool same;

    snprintf(want, sizeof(want), "forebay-pack %d %016" PRIx64 "\n", FB_PACK_VERSION, plan->hash);
    /* A first line that was cut short is as good as none: no shard was noted behind it. */
    *empty = !file || !fgets(line, sizeof(line), file) ||
             (!strchr(line, '\n') && strncmp(line, want, strlen(line)) == 0);
    same = !*empty && strcmp(line, want) == 0;
    /* A line that was cut short by a kill has no newline: its shard is made again. */
    while (same && fgets(line, sizeof(line), file) && strchr(line, '\n'))
        if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNx32, &number, &bytes, &crc) == 3)
            shard_claim(plan, number, bytes, crc);
    if (file)
        fclose(file);
    return same;
}

static bool index_read(struct fb_pack_plan *plan, const char *path)
{
    json_t *index = NULL, *shards, *shard;
    struct stat about;
    char hash[20];
    bool same = false;
    size_t i;

    snprintf(hash, sizeof(hash), "%016" PRIx64, plan->hash);
    if (stat(path, &about) == 0 && (uint64_t)about.st_size <= INDEX_BYTES_MAX)
        index = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (index && json_is_string(json_object_get(index, "hash")))
        same = strcmp(json_string_value(json_object_get(index, "hash")), hash) == 0;
    shards = same ? json_object_get(index, "shards") : NULL;
    json_array_foreach(shards, i, shard)
    {
        const char *crc = json_string_value(json_object_get(shard, "crc32"));

        if (crc)
            shard_claim(plan, i,
                        (uint64_t)json_integer_value(json_object_get(shard, "bytes")),
                        (uint32_t)strtoul(crc, NULL, 16));
    }
    json_decref(index);
    return same;
}

static int journal_line(int fd, const char *path, const char *line, forebay_error *error)
{
    ssize_t length = (ssize_t)strlen(line);

    return write(fd, line, (size_t)length) == length ? FOREBAY_OK
                                                     : fb_pack_write_failed(path, error);
}

int fb_pack_journal_add(const struct fb_pack_plan *plan, int fd, uint64_t number,
                        forebay_error *error)
{
    char line[LINE_BYTES], path[PATH_MAX];

    beside_path(plan, ".progress", path);
    snprintf(line, sizeof(line), "%" PRIu64 " %" PRIu64 " %08" PRIx32 "\n", number,
             plan->shards[number].bytes, plan->shards[number].crc);
    return journal_line(fd, path, line, error);
}

/* Begin it, or go on behind what it says, and find out which shards are really whole. One that goes
 * on is never emptied: killed at that moment, nobody would know whose the shards are. */
static int journal_begin(struct fb_pack_plan *plan, int fd, const char *path, bool goes_on,
                         const struct fb_log *log, forebay_error *error)
{
    char line[LINE_BYTES];
    char *piece = fb_block_new(plan->budget, FB_STAGE_OTHER, PIECE_BYTES, 1, "reading", error);
    int status = piece ? FOREBAY_OK : error->status;

    snprintf(line, sizeof(line), "forebay-pack %d %016" PRIx64 "\n", FB_PACK_VERSION, plan->hash);
    if (!status && !goes_on && ftruncate(fd, 0) != 0)
        status = fb_pack_write_failed(path, error);
    if (!status) /* the last line may have been cut short */
        status = journal_line(fd, path, goes_on ? "\n" : line, error);
    for (uint64_t i = 0; i < plan->shard_count && !status; i++) {
        if (!plan->shards[i].whole)
            continue;
        status = fb_progress(log, "checking shards", i, plan->shard_count, error);
        plan->shards[i].whole = shard_is_whole(plan, i, plan->shards[i].crc, piece);
        if (!status && plan->shards[i].whole && !goes_on)
            status = fb_pack_journal_add(plan, fd, i, error);
    }
    fb_block_free(plan->budget, FB_STAGE_OTHER, piece, PIECE_BYTES, 1);
    return status;
}

static int journal_lock(const char *path, int *out, forebay_error *error)
{
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd < 0)
        return fb_pack_write_failed(path, error);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return fb_fail(error, FOREBAY_BAD_USE, "'%s' is locked: another `forebay pack` is writing "
                       "there", path);
    }
    *out = fd;
    return FOREBAY_OK;
}

static int fail_other(const struct fb_pack_plan *plan, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_USE, "'%s-*.tar' is there already, made from other data or "
                   "with other options; choose another name, or overwrite it with --force",
                   plan->prefix);
}

int fb_pack_journal_open(struct fb_pack_plan *plan, int *out, const struct fb_log *log,
                         forebay_error *error)
{
    char path[PATH_MAX], index[PATH_MAX];
    bool empty = true, same;
    int fd = -1, status;

    beside_path(plan, ".progress", path);
    beside_path(plan, ".json", index);
    status = journal_lock(path, &fd, error);
    if (status)
        return status;
    same = journal_read(plan, fd, &empty) || (empty && index_read(plan, index));
    if (!same && plan->options->force) {
        unlink(index);
        shards_there(plan, true);
    } else if (!same && (!empty || access(index, F_OK) == 0 || shards_there(plan, false))) {
        status = fail_other(plan, error);
        if (empty)
            unlink(path);
    }
    if (!status)
        status = journal_begin(plan, fd, path, same && !empty, log, error);
    if (status)
        close(fd);
    else
        *out = fd;
    return status;
}

/* ---- The index ---- */

static json_t *field_json(const struct fb_pack_plan *plan, unsigned i)
{
    const struct fb_field *field = &plan->source->fields[i];
    bool original = plan->options->keep && plan->source->ops->file && !field->indexed;
    json_t *object = json_pack("{s:s}", "name", field->name);
    char member[FB_NAME_BYTES + 8];

    if (original) {
        json_object_set_new(object, "original", json_true());
        return object;
    }
    snprintf(member, sizeof(member), "%s.npy", plan->names[i]);
    json_object_set_new(object, "member", json_string(member));
    return object;
}

static json_t *shards_json(const struct fb_pack_plan *plan)
{
    json_t *shards = json_array();

    for (uint64_t i = 0; i < plan->shard_count; i++) {
        char path[PATH_MAX], crc[16];

        fb_pack_shard_path(plan, i, "", path);
        snprintf(crc, sizeof(crc), "%08" PRIx32, plan->shards[i].crc);
        json_array_append_new(
            shards, json_pack("{s:s, s:I, s:s, s:I, s:I}", "name",
                              strrchr(path, '/') ? strrchr(path, '/') + 1 : path, "bytes",
                              (json_int_t)plan->shards[i].bytes, "crc32", crc, "first",
                              (json_int_t)plan->shards[i].first_group, "units",
                              (json_int_t)plan->shards[i].groups));
    }
    return shards;
}

/* With the samples of each folder, without which nobody can tell where one ends: unless units are
 * missing, or there are so many folders that the index's head would not be read. */
static json_t *sequences_json(const struct fb_pack_plan *plan)
{
    const struct fb_source *source = plan->source;
    json_t *object = json_pack("{s:s, s:I, s:I}", "each", "sequence", "sequence",
                               (json_int_t)plan->config->source_sequence.value, "stride",
                               (json_int_t)plan->config->source_stride.value);
    json_t *groups = json_array();

    for (uint64_t g = 0; g < source->group_count; g++)
        json_array_append_new(groups, json_integer((json_int_t)(source->group_ends[g] -
                                                                (g ? source->group_ends[g - 1]
                                                                   : 0))));
    if (object && !plan->skipped && source->group_count <= FB_PACK_GROUPS_TOLD)
        json_object_set(object, "groups", groups);
    json_decref(groups);
    return object;
}

/* How samples are made of the units, where a unit is not a sample. */
static json_t *samples_json(const struct fb_pack_plan *plan)
{
    const struct fb_config *config = plan->config;

    if (plan->source->block_samples)
        return json_pack("{s:s}", "each", "row");
    if (config->source_kind == FB_KIND_WINDOWS)
        return json_pack("{s:s, s:I, s:I, s:s}", "each", "window", "window",
                         (json_int_t)config->source_window.value, "stride",
                         (json_int_t)config->source_stride.value, "tail",
                         fb_config_word("source.tail", config->source_tail));
    if (config->source_kind == FB_KIND_BIN && plan->walk.by_unit)
        return sequences_json(plan);
    return json_pack("{s:s}", "each", "unit");
}

static json_t *index_json(const struct fb_pack_plan *plan)
{
    json_t *fields = json_array();
    char hash[20];

    snprintf(hash, sizeof(hash), "%016" PRIx64, plan->hash);
    for (unsigned i = 0; i < plan->source->field_count; i++)
        json_array_append_new(fields, field_json(plan, i));
    return json_pack("{s:s, s:i, s:s, s:s, s:I, s:o, s:I, s:I, s:I, s:o, s:o}", "format",
                     "forebay-pack", "version", FB_PACK_VERSION, "hash", hash, "kind",
                     plan->source->ops->kind, "samples", (json_int_t)plan->source->sample_count,
                     "made_of", samples_json(plan), "units", (json_int_t)plan->groups, "members",
                     (json_int_t)plan->members, "skipped", (json_int_t)plan->skipped, "fields",
                     fields, "shards", shards_json(plan));
}

int fb_pack_index_write(const struct fb_pack_plan *plan, forebay_error *error)
{
    const char *slash = strrchr(plan->prefix, '/');
    char folder[PATH_MAX] = ".", name[PATH_MAX], path[PATH_MAX];
    json_t *index = index_json(plan);
    char *text = index ? json_dumps(index, JSON_INDENT(1)) : NULL;
    struct fb_new_file file;
    bool kept;
    int status = text ? FOREBAY_OK : fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the index");

    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - plan->prefix + 1), plan->prefix);
    snprintf(name, sizeof(name), "%.*s.json", PATH_MAX - 128, slash ? slash + 1 : plan->prefix);
    if (!status)
        status = fb_new_file_open(&file, folder, name, true, error);
    if (!status) {
        if ((status = fb_new_file_put(&file, text, strlen(text), error)) ||
            (status = fb_new_file_put(&file, "\n", 1, error)))
            fb_new_file_give_up(&file);
        else
            status = fb_new_file_commit(&file, &kept, error);
    }
    beside_path(plan, ".progress", path);
    if (!status)
        unlink(path);
    free(text);
    json_decref(index);
    return status;
}
