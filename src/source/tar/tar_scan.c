/*
 * tar_scan.c -- the pass over a shard's headers. A plain shard is read where its headers are; one
 * that is packed must be unpacked from its beginning to its end, through the same window.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "decode/tar.h"
#include "source/source.h"
#include "source/tar/tar_index.h"

#define NEAR_BYTES 32768u /* members so small that the next header is read along */
#define FAR_BYTES 4096u
#define BOMB_BYTES FB_GIB /* from there on what is packed may not be */
#define BOMB_TIMES 512    /* times as large as its file: gzip makes at most 1032 of zeros */

/* Headers through a window that is large where members are small. */
struct headers {
    struct fb_reader *reader;
    const struct fb_tar_shard *shard;
    int fd;
    char *room;
    uint64_t from, have;
    struct fb_input file;     /* as it is */
    struct fb_input archive;  /* what is in it; of a packed one `bytes` is known at its end only */
    struct fb_unpack *unpack; /* NULL: it is plain */
};

static int read_file(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    struct headers *headers = data;

    return fb_reader_read(headers->reader, headers->fd, headers->shard->path, into, bytes, offset,
                          error);
}

static int read_headers(void *data, void *into, uint64_t bytes, uint64_t offset,
                        forebay_error *error)
{
    struct headers *headers = data;

    if (offset < headers->from || offset + bytes > headers->from + headers->have) {
        bool near = offset >= headers->from && offset - headers->from < 2 * NEAR_BYTES;
        uint64_t have =
            fb_min(near ? FB_TAR_ROOM_BYTES : FAR_BYTES, headers->shard->bytes - offset);
        int status;

        have = fb_max(have, bytes);
        status = read_file(headers, headers->room, have, offset, error);
        headers->have = status ? 0 : have;
        headers->from = offset;
        if (status)
            return status;
    }
    memcpy(into, headers->room + (offset - headers->from), bytes);
    return FOREBAY_OK;
}

/* ---- packed ---- */

/* Half of the window moves on. */
static int unpack_more(struct headers *headers, forebay_error *error)
{
    const uint64_t half = FB_TAR_ROOM_BYTES / 2;
    uint64_t made = 0, end;
    int status;

    if (headers->have > half) {
        uint64_t gone = headers->have - half;

        memmove(headers->room, headers->room + gone, half);
        headers->from += gone;
        headers->have = half;
    }
    status = fb_unpack_read(headers->unpack, headers->room + headers->have, half, &made, error);
    if (status)
        return status;
    headers->have += made;
    end = headers->from + headers->have;
    if (made < half)
        headers->archive.bytes = end;
    if (end / FB_TAR_BLOCK >= UINT32_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA, "an archive of 2 TiB or more");
    if (end > BOMB_BYTES && end / BOMB_TIMES > headers->shard->bytes)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "%" PRIu64 " bytes became more than %" PRIu64 " already: it is taken for a "
                       "bomb; unpack it if it is none",
                       headers->shard->bytes, end);
    return FOREBAY_OK;
}

static uint64_t unpacked_end(const struct headers *headers)
{
    return headers->from + headers->have;
}

/* Unpack up to byte `end`, or to the archive's end, which is known then. */
static int reach(struct headers *headers, uint64_t end, forebay_error *error)
{
    while (unpacked_end(headers) < end && headers->archive.bytes == UINT64_MAX) {
        int status = unpack_more(headers, error);

        if (status)
            return status;
    }
    return FOREBAY_OK;
}

static int read_packed(void *data, void *into, uint64_t bytes, uint64_t offset,
                       forebay_error *error)
{
    struct headers *headers = data;
    uint64_t end;
    int status;

    if (!fb_add(offset, bytes, &end))
        return fb_fail(error, FOREBAY_BAD_DATA, "a header beyond any archive's end");
    status = reach(headers, end, error);
    if (status)
        return status;
    if (offset < headers->from || end > unpacked_end(headers))
        return fb_fail(error, FOREBAY_BAD_DATA, "the archive ends at byte %" PRIu64 ", too early",
                       unpacked_end(headers));
    memcpy(into, headers->room + (offset - headers->from), bytes);
    return FOREBAY_OK;
}

/* Before a header is looked for: it may be that none is left. */
static int reach_header(struct headers *headers, uint64_t at, forebay_error *error)
{
    return headers->unpack ? reach(headers, at + FB_TAR_BLOCK, error) : FOREBAY_OK;
}

/* What fb_tar_next checks of a plain archive, whose end it knows. */
static int reach_data(struct headers *headers, const struct fb_tar_member *member,
                      forebay_error *error)
{
    uint64_t end = member->data + member->stored;
    int status = headers->unpack ? reach(headers, end, error) : FOREBAY_OK;

    if (!status && end > headers->archive.bytes)
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "tar: byte %" PRIu64 ": a member of %" PRIu64 " bytes reaches %" PRIu64
                         " bytes behind the archive's end",
                         member->header, member->stored, end - headers->archive.bytes);
    return status;
}

/* ---- members ---- */

/* The sample that the members belong to. */
struct current {
    bool begun;
    size_t key;
    char name[FB_TAR_NAME_BYTES];
};

static int add_member(struct fb_tar_index *index, struct current *current,
                      const struct fb_tar_member *member, forebay_error *error)
{
    struct fb_tar_record record = { .block = (uint32_t)(member->data / FB_TAR_BLOCK),
                                    .bytes = (uint32_t)member->bytes };
    char extension[FB_NAME_BYTES];
    unsigned number = 0;
    size_t key;
    int status;

    if (!member->regular || !fb_tar_split(member->name, &key, extension, sizeof(extension))) {
        index->passed_over++;
        return FOREBAY_OK;
    }
    record.first =
        !current->begun || current->key != key || memcmp(current->name, member->name, key) != 0;
    if (record.first) {
        current->begun = true;
        current->key = key;
        memcpy(current->name, member->name, key);
    }
    status = fb_tar_index_extension(index, extension, &number, error);
    if (status)
        return status;
    record.extension = (uint16_t)number;
    if (member->sparse || member->bytes >= UINT32_MAX) {
        record.fault = FB_TAR_SPECIAL;
        record.block = (uint32_t)(member->begin / FB_TAR_BLOCK);
        record.bytes = UINT32_MAX;
    }
    return fb_tar_index_record(index, &record, error);
}

static int scan_members(struct fb_tar_index *index, struct headers *headers, forebay_error *error)
{
    struct fb_tar_member member;
    struct current current = { .begun = false };
    struct fb_tar tar;
    bool end = false;
    int status = FOREBAY_OK;

    fb_tar_init(&tar, &headers->archive);
    while (!status && !end) {
        status = reach_header(headers, tar.at, error);
        if (!status)
            status = fb_tar_next(&tar, &member, &end, error);
        if (!status && !end)
            status = reach_data(headers, &member, error);
        if (!status && !end)
            status = add_member(index, &current, &member, error);
    }
    if (!status && headers->unpack) /* its sum stands at its end */
        status = reach(headers, UINT64_MAX, error);
    return status;
}

static int scan_packed(struct fb_tar_index *index, struct headers *headers,
                       struct fb_tar_content *content, forebay_error *error)
{
    uint64_t window = content->packing == FB_PACKING_ZSTD ? index->window_max : 0;
    int status = fb_unpack_new(&headers->unpack, window, index->records.budget, FB_STAGE_INDEX,
                               error);

    if (status)
        return status;
    headers->archive = (struct fb_input){ read_packed, headers, UINT64_MAX };
    status = fb_unpack_begin(headers->unpack, (enum fb_packing)content->packing, &headers->file,
                             error);
    if (!status)
        status = scan_members(index, headers, error);
    content->bytes = unpacked_end(headers);
    content->window = fb_unpack_window(headers->unpack);
    fb_unpack_free(headers->unpack);
    return status;
}

static int scan_open(struct fb_tar_index *index, struct headers *headers,
                     struct fb_tar_content *content, forebay_error *error)
{
    enum fb_packing packing = FB_PACKING_NONE;
    int status;

    if (headers->file.bytes != headers->shard->bytes)
        return fb_fail(error, FOREBAY_BAD_DATA, "it changes while it is read");
    if (headers->file.bytes / FB_TAR_BLOCK >= UINT32_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA, "an archive of 2 TiB or more");
    status = fb_packing_find(&headers->file, &packing, error);
    if (status)
        return status;
    content->packing = packing;
    if (packing != FB_PACKING_NONE)
        return scan_packed(index, headers, content, error);
    headers->archive = (struct fb_input){ read_headers, headers, headers->file.bytes };
    return scan_members(index, headers, error);
}

int fb_tar_scan(struct fb_tar_index *index, const struct fb_tar_shard *shard,
                struct fb_tar_content *content, struct fb_reader *reader, void *room,
                forebay_error *error)
{
    struct headers headers = { .reader = reader, .shard = shard, .room = room };
    int status = fb_reader_open(reader, shard->path, &headers.fd, &headers.file.bytes, error);

    if (status)
        return status;
    *content = (struct fb_tar_content){ .bytes = headers.file.bytes };
    headers.file.read = read_file;
    headers.file.data = &headers;
    status = scan_open(index, &headers, content, error);
    close(headers.fd);
    index->scanned++;
    return status;
}
