/*
 * tar_sparse.c -- members with holes: a map says which stretches of the file are in the archive,
 * one behind the other; all else is zeros.
 *
 * GNU's map is numbers in the header (four stretches) and in blocks behind it (21 each). That of
 * pax 1.0 is text before the data: how many stretches, then offset and length of each, a line
 * a number, filled up to a whole block. Those of pax 0.1 and 0.0 stand in the extended header: as
 * "offset,bytes,offset,bytes" in one record, or in a record for each number. The map is walked for
 * every read, a block at a time.
 */
#include <string.h>

#include "base/size.h"
#include "decode/tar.h"

#define STRETCHES_MAX 1000000u
enum { FIRST_AT = 386, FIRST_COUNT = 4, MORE_AT = 482, NEXT_COUNT = 21, NEXT_MORE_AT = 504 };

struct map {
    const struct fb_input *archive;
    const struct fb_tar_member *member;
    unsigned char block[FB_TAR_BLOCK];
    uint64_t next;    /* the block of the map that is read next */
    unsigned at;      /* in the block */
    unsigned left;    /* GNU: stretches in this block */
    bool more;        /* GNU: another block follows */
    uint64_t count;   /* pax 1.0: stretches that are left */
    uint64_t end;     /* pax 0.x: of the map in the archive, of which `next` is read next */
    uint64_t data;    /* where the present stretch lies in the archive */
    uint64_t offset, bytes; /* of the present stretch, in the file */
};

static int fail(const struct map *map, const char *what, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_DATA, "tar: byte %" PRIu64 ": the map of a sparse file %s",
                   map->member->header, what);
}

static int next_block(struct map *map, forebay_error *error)
{
    int status = fb_input_read(map->archive, map->block, FB_TAR_BLOCK, map->next, error);

    map->next += FB_TAR_BLOCK;
    map->at = 0;
    return status;
}

/* ---- GNU ---- */

static int begin_gnu(struct map *map, forebay_error *error)
{
    int status;

    map->next = map->member->header;
    status = next_block(map, error);
    map->at = FIRST_AT;
    map->left = FIRST_COUNT;
    map->more = map->block[MORE_AT];
    map->data = map->member->data;
    return status;
}

static int next_gnu(struct map *map, bool *end, forebay_error *error)
{
    if (map->left == 0 && map->more) {
        int status = next_block(map, error);

        if (status)
            return status;
        map->left = NEXT_COUNT;
        map->more = map->block[NEXT_MORE_AT];
    }
    *end = map->left == 0 || map->block[map->at] == '\0';
    if (*end)
        return FOREBAY_OK;
    if (!fb_tar_number(map->block + map->at, 12, &map->offset) ||
        !fb_tar_number(map->block + map->at + 12, 12, &map->bytes))
        return fail(map, "has something else than numbers", error);
    map->at += 24;
    map->left--;
    return FOREBAY_OK;
}

/* ---- pax 1.0 ---- */

static int take_line(struct map *map, uint64_t *number, forebay_error *error)
{
    *number = 0;
    for (unsigned digits = 0;; digits++) {
        int status = map->at == FB_TAR_BLOCK ? next_block(map, error) : FOREBAY_OK;
        unsigned char c = map->block[map->at];

        if (status)
            return status;
        map->at++;
        if (c == '\n' && digits)
            return FOREBAY_OK;
        if (c < '0' || c > '9' || *number > UINT64_MAX / 16 ||
            map->next > map->member->data + map->member->stored + FB_TAR_BLOCK)
            return fail(map, "has something else than numbers", error);
        *number = *number * 10 + (uint64_t)(c - '0');
    }
}

/* The data begins in the block behind the map, so all of it is walked over first. */
static int begin_pax(struct map *map, forebay_error *error)
{
    uint64_t count = 0, number;
    int status;

    map->next = map->member->data;
    status = next_block(map, error);
    if (!status)
        status = take_line(map, &count, error);
    if (!status && count > STRETCHES_MAX)
        return fail(map, "has more than 1000000 stretches", error);
    for (uint64_t i = 0; i < 2 * count && !status; i++)
        status = take_line(map, &number, error);
    if (status)
        return status;
    map->data = map->next;
    map->next = map->member->data;
    map->count = count;
    status = next_block(map, error);
    return status ? status : take_line(map, &count, error);
}

static int next_pax(struct map *map, bool *end, forebay_error *error)
{
    int status;

    *end = map->count == 0;
    if (*end)
        return FOREBAY_OK;
    map->count--;
    status = take_line(map, &map->offset, error);
    return status ? status : take_line(map, &map->bytes, error);
}

/* ---- pax 0.1: numbers and commas ---- */

static int begin_text(struct map *map, forebay_error *error)
{
    (void)error;
    map->next = map->member->map;
    map->end = map->next + map->member->map_bytes;
    map->data = map->member->data;
    return FOREBAY_OK;
}

/* How much of the text is in the block is in `left`. */
static int take_item(struct map *map, uint64_t *number, forebay_error *error)
{
    *number = 0;
    for (unsigned digits = 0;; digits++) {
        unsigned char c;

        if (map->at == map->left && map->next == map->end && digits)
            return FOREBAY_OK;
        if (map->at == map->left) {
            uint64_t bytes = fb_min(FB_TAR_BLOCK, map->end - map->next);
            int status = fb_input_read(map->archive, map->block, bytes, map->next, error);

            if (status)
                return status;
            map->next += bytes;
            map->left = (unsigned)bytes;
            map->at = 0;
        }
        c = map->at < map->left ? map->block[map->at++] : 0;
        if (c == ',' && digits)
            return FOREBAY_OK;
        if (c < '0' || c > '9' || *number > UINT64_MAX / 16)
            return fail(map, "has something else than numbers", error);
        *number = *number * 10 + (uint64_t)(c - '0');
    }
}

static int next_list(struct map *map, bool *end, forebay_error *error)
{
    int status;

    *end = map->at == map->left && map->next == map->end;
    if (*end)
        return FOREBAY_OK;
    status = take_item(map, &map->offset, error);
    return status ? status : take_item(map, &map->bytes, error);
}

/* ---- pax 0.0: "length GNU.sparse.offset=number", then the same with numbytes ---- */

/* The number of the next record that is called `key`; *end if there is none. */
static int take_record(struct map *map, const char *key, uint64_t *number, bool *end,
                       forebay_error *error)
{
    size_t key_bytes = strlen(key);

    for (;;) {
        uint64_t have = fb_min(64, map->end - map->next), length = 0, i = 0;
        const char *text = (const char *)map->block;
        int status = fb_input_read(map->archive, map->block, have, map->next, error);

        *end = have == 0;
        if (status || *end)
            return status;
        for (; i < have && text[i] >= '0' && text[i] <= '9'; i++)
            length = length * 10 + (uint64_t)(text[i] - '0');
        if (i > 8 || length <= i || length > map->end - map->next)
            return fail(map, "is in a record whose length is wrong", error);
        map->next += length;
        if (i + 1 + key_bytes >= have || memcmp(text + i + 1, key, key_bytes) != 0)
            continue;
        *number = 0;
        for (i += 1 + key_bytes; i + 1 < fb_min(have, length); i++) {
            if (text[i] < '0' || text[i] > '9' || *number > UINT64_MAX / 16)
                return fail(map, "has something else than numbers", error);
            *number = *number * 10 + (uint64_t)(text[i] - '0');
        }
        return FOREBAY_OK;
    }
}

static int next_records(struct map *map, bool *end, forebay_error *error)
{
    bool missing = false;
    int status = take_record(map, "GNU.sparse.offset=", &map->offset, end, error);

    if (status || *end)
        return status;
    status = take_record(map, "GNU.sparse.numbytes=", &map->bytes, &missing, error);
    return status || !missing ? status : fail(map, "has an offset without a length", error);
}

/* ---- all of them ---- */

static const struct {
    int (*begin)(struct map *map, forebay_error *error);
    int (*next)(struct map *map, bool *end, forebay_error *error); /* sets offset and bytes */
} forms[] = {
    [FB_TAR_HOLES_GNU] = { begin_gnu, next_gnu },
    [FB_TAR_HOLES_PAX] = { begin_pax, next_pax },
    [FB_TAR_HOLES_LIST] = { begin_text, next_list },
    [FB_TAR_HOLES_RECORDS] = { begin_text, next_records },
};

/* The next stretch; behind the one before it, and inside both the file and the archive. */
static int next_stretch(struct map *map, bool *end, forebay_error *error)
{
    uint64_t before = map->offset + map->bytes, data = map->data + map->bytes, last;
    int status = forms[map->member->sparse].next(map, end, error);

    if (status || *end)
        return status;
    map->data = data;
    if (map->offset < before || !fb_add(map->offset, map->bytes, &last) ||
        last > map->member->bytes)
        return fail(map, "reaches outside of the file, or goes back", error);
    if (map->bytes > map->member->data + map->member->stored - fb_min(
            data, map->member->data + map->member->stored))
        return fail(map, "has more bytes than the archive has of it", error);
    return FOREBAY_OK;
}

/* What of the present stretch lies within [offset, offset + bytes). */
static int copy_stretch(const struct map *map, char *into, uint64_t bytes, uint64_t offset,
                        forebay_error *error)
{
    uint64_t from = fb_max(map->offset, offset);
    uint64_t to = fb_min(map->offset + map->bytes, offset + bytes);

    if (from >= to)
        return FOREBAY_OK;
    return fb_input_read(map->archive, into + (from - offset), to - from,
                         map->data + (from - map->offset), error);
}

int fb_tar_read_sparse(const struct fb_input *archive, const struct fb_tar_member *member,
                       void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    struct map map = { .archive = archive, .member = member };
    bool end = false;
    uint64_t stretches = 0;
    int status = forms[member->sparse].begin(&map, error);

    memset(into, 0, bytes);
    while (!status) {
        status = next_stretch(&map, &end, error);
        if (status || end || map.offset >= offset + bytes)
            break;
        if (++stretches > STRETCHES_MAX)
            return fail(&map, "has more than 1000000 stretches", error);
        status = copy_stretch(&map, into, bytes, offset, error);
    }
    return status;
}
