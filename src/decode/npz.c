#include "decode/npz.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "base/size.h"

/* Sizes and signatures of the zip format (APPNOTE 4.3). */
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define COMMENT_MAX 65535
#define IS_END "PK\5\6"
#define IS_END64 "PK\6\6"
#define IS_LOCATOR "PK\6\7"
#define IS_ENTRY "PK\1\2"
#define IS_LOCAL "PK\3\4"

_Static_assert(FB_NPZ_WORK_BYTES >= END_BYTES + COMMENT_MAX + LOCATOR_BYTES, "a tail fits");

static uint64_t number(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;

    while (bytes--)
        value = value << 8 | at[bytes];
    return value;
}

/* The central directory: where it lies and how many entries it has. */
struct directory {
    uint64_t offset, bytes, entries;
};

static int no_zip(forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_DATA, "it is no .npz file: a zip's directory is not at its "
                   "end (is the file cut off?)");
}

/* The zip64 form of what stands at `end`, if there is one. `tail` begins at `from` of the file. */
static int read_end64(const struct fb_npz_file *file, const unsigned char *tail, uint64_t end,
                      uint64_t from, struct directory *directory, forebay_error *error)
{
    const unsigned char *locator = tail + end - LOCATOR_BYTES;
    unsigned char record[END64_BYTES];
    uint64_t offset;
    int status;

    if (end < LOCATOR_BYTES || memcmp(locator, IS_LOCATOR, 4) != 0)
        return FOREBAY_OK;
    offset = number(locator + 8, 8);
    if (offset > from + end || from + end - offset < END64_BYTES + LOCATOR_BYTES)
        return no_zip(error);
    status = file->read(file->data, record, sizeof(record), offset, error);
    if (status)
        return status;
    if (memcmp(record, IS_END64, 4) != 0)
        return no_zip(error);
    *directory = (struct directory){ .offset = number(record + 48, 8),
                                     .bytes = number(record + 40, 8),
                                     .entries = number(record + 32, 8) };
    return FOREBAY_OK;
}

/* The last record in `tail` whose comment reaches exactly to the end; false if there is none. */
static bool find_end(const unsigned char *tail, uint64_t have, uint64_t *end)
{
    for (uint64_t at = have < END_BYTES ? 0 : have - END_BYTES + 1; at-- > 0;) {
        if (memcmp(tail + at, IS_END, 4) == 0 &&
            at + END_BYTES + number(tail + at + 20, 2) == have) {
            *end = at;
            return true;
        }
    }
    return false;
}

/* Read the end of the file into `work`: mostly there is no comment and a page is enough. */
static int read_tail(const struct fb_npz_file *file, unsigned char *work, uint64_t *have,
                     uint64_t *end, forebay_error *error)
{
    const uint64_t tries[] = { 4096, END_BYTES + COMMENT_MAX + LOCATOR_BYTES };

    for (unsigned i = 0; i < 2; i++) {
        uint64_t bytes = fb_min(file->bytes, tries[i]);
        int status = file->read(file->data, work, bytes, file->bytes - bytes, error);

        if (status)
            return status;
        if (find_end(work, bytes, end)) {
            *have = bytes;
            return FOREBAY_OK;
        }
    }
    return no_zip(error);
}

/* Find the directory, check what is said of it against the file's size, and read it. */
static int read_directory(const struct fb_npz_file *file, unsigned char *work,
                          struct directory *directory, forebay_error *error)
{
    uint64_t have = 0, end = 0, from;
    int status = read_tail(file, work, &have, &end, error);

    if (status)
        return status;
    from = file->bytes - have;
    *directory = (struct directory){ .offset = number(work + end + 16, 4),
                                     .bytes = number(work + end + 12, 4),
                                     .entries = number(work + end + 10, 2) };
    status = read_end64(file, work, end, from, directory, error);
    if (status)
        return status;
    if (directory->offset > from + end || directory->bytes > from + end - directory->offset)
        return no_zip(error);
    if (directory->bytes > FB_NPZ_WORK_BYTES)
        return fb_fail(error, FOREBAY_BAD_DATA, "the zip's directory is %" PRIu64 " bytes long; at "
                       "most %d are read", directory->bytes, FB_NPZ_WORK_BYTES);
    if (directory->offset < from)
        return file->read(file->data, work, directory->bytes, directory->offset, error);
    memmove(work, work + (directory->offset - from), directory->bytes);
    return FOREBAY_OK;
}

/* Sizes and offset of an entry that do not fit in 32 bits stand in extra field 1, in this order,
 * and only those. */
static bool read_extra64(const unsigned char *extra, uint64_t bytes, struct fb_npz_member *member)
{
    uint64_t *values[] = { &member->bytes, &member->packed_bytes, &member->header };

    while (bytes >= 4) {
        uint64_t length = number(extra + 2, 2), at = 4;

        if (length > bytes - 4)
            return false;
        if (number(extra, 2) == 1) {
            for (unsigned i = 0; i < 3; i++) {
                if (*values[i] != UINT32_MAX)
                    continue;
                if (at + 8 > 4 + length)
                    return false;
                *values[i] = number(extra + at, 8);
                at += 8;
            }
            return true;
        }
        extra += 4 + length;
        bytes -= 4 + length;
    }
    return member->bytes != UINT32_MAX && member->packed_bytes != UINT32_MAX &&
           member->header != UINT32_MAX;
}

static int check_member(const struct fb_npz_file *file, const struct fb_npz_member *member,
                        uint64_t flags, uint64_t method, forebay_error *error)
{
    if (flags & 1)
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' is encrypted", member->name);
    if (method != 0 && method != 8)
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' is packed with zip method %" PRIu64
                       "; only stored (0) and deflated (8) are read", member->name, method);
    if (member->header > file->bytes || member->packed_bytes > file->bytes - member->header)
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' is said to lie beyond the end of the "
                       "file", member->name);
    if (method == 0 && member->packed_bytes != member->bytes)
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' is stored in %" PRIu64 " bytes but "
                       "said to be %" PRIu64, member->name, member->packed_bytes, member->bytes);
    /* Deflate packs no more than 1032 to 1. */
    if (method == 8 && member->bytes / 1032 > member->packed_bytes)
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' is said to be %" PRIu64 " bytes, more "
                       "than %" PRIu64 " deflated bytes can hold", member->name, member->bytes,
                       member->packed_bytes);
    return FOREBAY_OK;
}

/* The entry at `at`, of which `left` bytes are there. *length is what it takes; a member that is
 * no array gets the name "". */
static int read_entry(const struct fb_npz_file *file, const unsigned char *at, uint64_t left,
                      struct fb_npz_member *member, uint64_t *length, forebay_error *error)
{
    const char *name = (const char *)at + ENTRY_BYTES;
    uint64_t name_bytes, extra_bytes, flags, method;

    if (left < ENTRY_BYTES || memcmp(at, IS_ENTRY, 4) != 0)
        return no_zip(error);
    name_bytes = number(at + 28, 2);
    extra_bytes = number(at + 30, 2);
    *length = ENTRY_BYTES + name_bytes + extra_bytes + number(at + 32, 2);
    if (*length > left)
        return no_zip(error);
    *member = (struct fb_npz_member){ .header = number(at + 42, 4), .bytes = number(at + 24, 4),
                                      .packed_bytes = number(at + 20, 4),
                                      .crc = (uint32_t)number(at + 16, 4) };
    if (name_bytes < 4 || memcmp(name + name_bytes - 4, ".npy", 4) != 0)
        return FOREBAY_OK;
    name_bytes -= 4;
    if (name_bytes == 0 || name_bytes >= sizeof(member->name) || memchr(name, '\0', name_bytes))
        return fb_fail(error, FOREBAY_BAD_DATA, "the name of a member is empty, has a NUL or more "
                       "than %zu bytes: '%.*s'", sizeof(member->name) - 1,
                       (int)fb_min(name_bytes, 80), name);
    memcpy(member->name, name, name_bytes);
    if (!read_extra64(at + ENTRY_BYTES + name_bytes + 4, extra_bytes, member))
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' lacks its 64-bit sizes", member->name);
    flags = number(at + 8, 2);
    method = number(at + 10, 2);
    member->deflated = method == 8;
    return check_member(file, member, flags, method, error);
}

typedef int (*visit_fn)(void *data, const struct fb_npz_member *member, forebay_error *error);

static int walk(const struct fb_npz_file *file, unsigned char *work, visit_fn visit, void *data,
                forebay_error *error)
{
    struct directory directory = { 0 };
    struct fb_npz_member member;
    uint64_t at = 0, length = 0;
    int status = read_directory(file, work, &directory, error);

    for (uint64_t i = 0; !status && i < directory.entries; i++, at += length) {
        status = read_entry(file, work + at, directory.bytes - at, &member, &length, error);
        if (!status && member.name[0])
            status = visit(data, &member, error);
    }
    return status;
}

struct listing {
    struct fb_npz_member *members;
    unsigned most, count;
};

static int list_member(void *data, const struct fb_npz_member *member, forebay_error *error)
{
    struct listing *listing = data;

    for (unsigned i = 0; i < listing->count; i++)
        if (strcmp(listing->members[i].name, member->name) == 0)
            return fb_fail(error, FOREBAY_BAD_DATA, "there are two members '%s'", member->name);
    if (listing->count == listing->most)
        return fb_fail(error, FOREBAY_BAD_DATA, "there are more than %u arrays in the file",
                       listing->most);
    listing->members[listing->count++] = *member;
    return FOREBAY_OK;
}

int fb_npz_list(const struct fb_npz_file *file, void *work, struct fb_npz_member *members,
                unsigned most, unsigned *count, forebay_error *error)
{
    struct listing listing = { members, most, 0 };
    int status = walk(file, work, list_member, &listing, error);

    if (!status)
        *count = listing.count;
    return status;
}

struct search {
    const char *name;
    struct fb_npz_member found;
};

static int match_member(void *data, const struct fb_npz_member *member, forebay_error *error)
{
    struct search *search = data;

    if (strcmp(member->name, search->name) != 0)
        return FOREBAY_OK;
    if (search->found.name[0])
        return fb_fail(error, FOREBAY_BAD_DATA, "there are two members '%s'", member->name);
    search->found = *member;
    return FOREBAY_OK;
}

int fb_npz_find(const struct fb_npz_file *file, void *work, const char *name,
                struct fb_npz_member *member, forebay_error *error)
{
    struct search search = { .name = name };
    int status = walk(file, work, match_member, &search, error);

    if (status)
        return status;
    if (!search.found.name[0])
        return fb_fail(error, FOREBAY_BAD_DATA, "there is no member '%s'", name);
    *member = search.found;
    return FOREBAY_OK;
}

struct fb_npz_stream {
    const struct fb_npz_file *file;
    char name[FB_NPZ_NAME_BYTES];
    uint64_t at, packed_left; /* what is still to be read of the file */
    uint64_t left;            /* what is still to come out */
    uint32_t crc, crc_wanted;
    bool deflated, skipped, ended;
    z_stream inflate;         /* in use if `deflated` */
    unsigned char input[];    /* the rest of `work` */
};
#define INPUT_BYTES (FB_NPZ_WORK_BYTES - sizeof(struct fb_npz_stream))

int fb_npz_stream_open(struct fb_npz_stream **out, const struct fb_npz_file *file,
                       const struct fb_npz_member *member, void *work, forebay_error *error)
{
    struct fb_npz_stream *stream = work;
    unsigned char local[LOCAL_BYTES];
    uint64_t data;
    int status;

    if (file->bytes - member->header < sizeof(local))
        return no_zip(error);
    status = file->read(file->data, local, sizeof(local), member->header, error);
    if (status)
        return status;
    data = member->header + sizeof(local) + number(local + 26, 2) + number(local + 28, 2);
    if (memcmp(local, IS_LOCAL, 4) != 0 || data > file->bytes ||
        member->packed_bytes > file->bytes - data)
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' is not where the zip's directory says",
                       member->name);
    *stream = (struct fb_npz_stream){ .file = file, .at = data, .left = member->bytes,
                                      .packed_left = member->packed_bytes,
                                      .crc_wanted = member->crc, .deflated = member->deflated };
    memcpy(stream->name, member->name, sizeof(stream->name));
    if (stream->deflated && inflateInit2(&stream->inflate, -MAX_WBITS) != Z_OK)
        return fb_fail(error, FOREBAY_NO_MEMORY, "zlib got no memory to inflate '%s'",
                       member->name);
    *out = stream;
    return FOREBAY_OK;
}

void fb_npz_stream_close(struct fb_npz_stream *stream)
{
    if (stream && stream->deflated)
        inflateEnd(&stream->inflate);
}

static int refill(struct fb_npz_stream *stream, forebay_error *error)
{
    uint64_t bytes = fb_min(stream->packed_left, INPUT_BYTES);
    int status = stream->file->read(stream->file->data, stream->input, bytes, stream->at, error);

    if (status)
        return status;
    stream->at += bytes;
    stream->packed_left -= bytes;
    stream->inflate.next_in = stream->input;
    stream->inflate.avail_in = (uInt)bytes;
    return FOREBAY_OK;
}

/* Inflate up to `bytes` (of at most 1 GiB) and say how many came: fewer only at the end. */
static int inflate_some(struct fb_npz_stream *stream, void *into, uint64_t bytes, uint64_t *got,
                        forebay_error *error)
{
    z_stream *zlib = &stream->inflate;
    int result = Z_OK, status;

    zlib->next_out = into;
    zlib->avail_out = (uInt)bytes;
    while (!stream->ended && zlib->avail_out) {
        if (zlib->avail_in == 0 && stream->packed_left) {
            status = refill(stream, error);
            if (status)
                return status;
        }
        result = inflate(zlib, Z_NO_FLUSH);
        stream->ended = result == Z_STREAM_END;
        if (result == Z_MEM_ERROR)
            return fb_fail(error, FOREBAY_NO_MEMORY, "zlib got no memory to inflate '%s'",
                           stream->name);
        if (result != Z_OK && result != Z_STREAM_END)
            return fb_fail(error, FOREBAY_BAD_DATA, "the deflated bytes of member '%s' are %s",
                           stream->name, result == Z_BUF_ERROR ? "cut off" : "malformed");
    }
    *got = bytes - zlib->avail_out;
    return FOREBAY_OK;
}

static int read_deflated(struct fb_npz_stream *stream, char *into, uint64_t bytes,
                         forebay_error *error)
{
    while (bytes) {
        uint64_t step = fb_min(bytes, FB_GIB), got; /* zlib counts in 32 bits */
        int status = inflate_some(stream, into, step, &got, error);

        if (status)
            return status;
        if (got < step)
            return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' inflates to fewer bytes than the "
                           "zip's directory says", stream->name);
        into += step;
        bytes -= step;
    }
    return FOREBAY_OK;
}

static int read_stored(struct fb_npz_stream *stream, void *into, uint64_t bytes,
                       forebay_error *error)
{
    int status = stream->file->read(stream->file->data, into, bytes, stream->at, error);

    if (!status)
        stream->at += bytes;
    return status;
}

static int too_short(const struct fb_npz_stream *stream, uint64_t bytes, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' ends %" PRIu64 " bytes early",
                   stream->name, bytes - stream->left);
}

int fb_npz_stream_read(struct fb_npz_stream *stream, void *into, uint64_t bytes,
                       forebay_error *error)
{
    int status;

    if (bytes > stream->left)
        return too_short(stream, bytes, error);
    status = stream->deflated ? read_deflated(stream, into, bytes, error)
                              : read_stored(stream, into, bytes, error);
    if (status)
        return status;
    stream->left -= bytes;
    if (bytes)
        stream->crc = (uint32_t)crc32_z(stream->crc, into, bytes);
    return FOREBAY_OK;
}

int fb_npz_stream_skip(struct fb_npz_stream *stream, uint64_t bytes, forebay_error *error)
{
    char passed[4096];

    if (bytes > stream->left)
        return too_short(stream, bytes, error);
    if (!stream->deflated) {
        stream->skipped |= bytes > 0;
        stream->at += bytes;
        stream->left -= bytes;
        return FOREBAY_OK;
    }
    while (bytes) {
        uint64_t step = fb_min(bytes, sizeof(passed));
        int status = fb_npz_stream_read(stream, passed, step, error);

        if (status)
            return status;
        bytes -= step;
    }
    return FOREBAY_OK;
}

int fb_npz_stream_finish(struct fb_npz_stream *stream, forebay_error *error)
{
    char more;
    uint64_t got = 0;
    int status = stream->deflated && !stream->ended ? inflate_some(stream, &more, 1, &got, error)
                                                    : FOREBAY_OK;

    if (status)
        return status;
    if (got || stream->left)
        return fb_fail(error, FOREBAY_BAD_DATA, "member '%s' has more bytes than its array",
                       stream->name);
    if (!stream->skipped && stream->crc != stream->crc_wanted)
        return fb_fail(error, FOREBAY_BAD_DATA, "the checksum of member '%s' is wrong: its bytes "
                       "are damaged", stream->name);
    return FOREBAY_OK;
}
