#include "decode/tar.h"

#include <string.h>

#include "base/size.h"

/* Where things stand in a header. */
enum { SIZE_AT = 124, CHECKSUM_AT = 148, TYPE_AT = 156, MAGIC_AT = 257, PREFIX_AT = 345 };
enum { SPARSE_MORE_AT = 482, SPARSE_SIZE_AT = 483, SPARSE_NEXT_MORE_AT = 504 };
#define NAME_SIZE 100u
#define PREFIX_SIZE 155u

#define PAX_BYTES_MAX FB_MIB /* of one extended header */
#define PAX_PIECE 4352u      /* of a record: its length, its key and a name */
#define EXTRAS_MAX 64        /* extended headers before one member */

/* What extended headers say of the member behind them. */
struct extras {
    bool has_name, has_sparse_name, has_size, has_real, has_list, sparse;
    uint64_t size, real, major;
    uint64_t list, list_bytes;       /* GNU.sparse.map */
    uint64_t records, records_bytes; /* the header itself */
};

/* One record of a pax header. */
struct record {
    const char *key, *value;
    size_t key_bytes;
    uint64_t value_bytes; /* that are in memory: all of any name or number */
    uint64_t at, bytes;   /* where all of the value lies */
};

void fb_tar_init(struct fb_tar *tar, const struct fb_input *input)
{
    *tar = (struct fb_tar){ .input = input };
}

static int fail_at(const struct fb_tar *tar, const char *what, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_DATA, "tar: byte %" PRIu64 ": %s", tar->at, what);
}

/* Octal digits among spaces and NULs, or a number of 8 bits a byte behind 0x80. */
bool fb_tar_number(const unsigned char *field, unsigned size, uint64_t *value)
{
    unsigned i = 0;

    *value = 0;
    if (field[0] == 0x80) {
        for (i = 1; i < size; i++) {
            if (*value >> 55)
                return false;
            *value = *value << 8 | field[i];
        }
        return true;
    }
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        *value = *value << 3 | (uint64_t)(field[i] - '0');
    return i == size || field[i] == ' ' || field[i] == '\0';
}

static bool is_zero(const unsigned char *block)
{
    for (unsigned i = 0; i < FB_TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

/* Some old programs took chars as signed: both sums are right. */
static bool checksum_is_right(const unsigned char *block)
{
    uint64_t wanted, plain = 8 * ' ';
    int64_t with_sign = 8 * ' ';

    for (unsigned i = 0; i < FB_TAR_BLOCK; i++) {
        if (i >= CHECKSUM_AT && i < CHECKSUM_AT + 8)
            continue;
        plain += block[i];
        with_sign += (signed char)block[i];
    }
    return fb_tar_number(block + CHECKSUM_AT, 8, &wanted) &&
           (wanted == plain || (int64_t)wanted == with_sign);
}

/* The block at tar->at. */
static int read_block(struct fb_tar *tar, bool *end, forebay_error *error)
{
    uint64_t left = tar->input->bytes - fb_min(tar->at, tar->input->bytes);
    int status;

    *end = left == 0;
    if (*end)
        return FOREBAY_OK;
    if (left < FB_TAR_BLOCK)
        return fail_at(tar, "the archive ends within a header", error);
    status = fb_input_read(tar->input, tar->block, FB_TAR_BLOCK, tar->at, error);
    if (status)
        return status;
    *end = is_zero(tar->block);
    if (!*end && !checksum_is_right(tar->block))
        return fail_at(
            tar, tar->at ? "the checksum of a header is wrong" : "this is no tar archive", error);
    return FOREBAY_OK;
}

/* Where the data of the header at tar->at ends: *next is the block behind it. */
static int measure(const struct fb_tar *tar, uint64_t data, uint64_t bytes, uint64_t *next,
                   forebay_error *error)
{
    uint64_t end;

    if (!fb_add(data, bytes, &end) || end > tar->input->bytes)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "tar: byte %" PRIu64 ": a member of %" PRIu64 " bytes reaches %" PRIu64
                       " bytes behind the archive's end",
                       tar->at, bytes, end - fb_min(end, tar->input->bytes));
    *next = fb_round_up(end, FB_TAR_BLOCK);
    return FOREBAY_OK;
}

/* ---- names ---- */

static size_t text_length(const unsigned char *field, size_t size)
{
    const unsigned char *end = memchr(field, '\0', size);

    return end ? (size_t)(end - field) : size;
}

static void take_plain_name(const unsigned char *block, struct fb_tar_member *member)
{
    size_t name = text_length(block, NAME_SIZE), prefix = 0;

    /* GNU's magic is "ustar  ": there the prefix is something else. */
    if (memcmp(block + MAGIC_AT, "ustar\0", 6) == 0)
        prefix = text_length(block + PREFIX_AT, PREFIX_SIZE);
    memcpy(member->name, block + PREFIX_AT, prefix);
    if (prefix)
        member->name[prefix++] = '/';
    memcpy(member->name + prefix, block, name);
    member->name[prefix + name] = '\0';
}

static int set_name(const struct fb_tar *tar, struct fb_tar_member *member, const void *name,
                    uint64_t bytes, forebay_error *error)
{
    if (bytes >= FB_TAR_NAME_BYTES)
        return fail_at(tar, "a name of more than 4095 bytes", error);
    if (memchr(name, '\0', bytes))
        return fail_at(tar, "a name with a NUL in it", error);
    memcpy(member->name, name, bytes);
    member->name[bytes] = '\0';
    return FOREBAY_OK;
}

/* GNU's 'L': the name is this header's data, mostly with a NUL behind. */
static int take_long_name(const struct fb_tar *tar, struct fb_tar_member *member, uint64_t bytes,
                          forebay_error *error)
{
    char name[FB_TAR_NAME_BYTES + 1];
    int status;

    if (bytes > FB_TAR_NAME_BYTES)
        return fail_at(tar, "a name of more than 4095 bytes", error);
    status = fb_input_read(tar->input, name, bytes, tar->at + FB_TAR_BLOCK, error);
    if (status)
        return status;
    while (bytes && name[bytes - 1] == '\0')
        bytes--;
    return set_name(tar, member, name, bytes, error);
}

/* ---- pax: records of "length key=value\n" ---- */

static bool is_key(const struct record *record, const char *wanted)
{
    return record->key_bytes == strlen(wanted) &&
           memcmp(record->key, wanted, record->key_bytes) == 0;
}

static int take_decimal(const struct fb_tar *tar, const struct record *record, uint64_t *number,
                        forebay_error *error)
{
    *number = 0;
    for (uint64_t i = 0; i < record->value_bytes; i++) {
        char c = record->value[i];

        if (c < '0' || c > '9' || *number > UINT64_MAX / 16)
            return fail_at(tar, "a pax size that is no number", error);
        *number = *number * 10 + (uint64_t)(c - '0');
    }
    return FOREBAY_OK;
}

/* The real name of a sparse member: that in `path` may be one that tar made up. */
static int take_path(const struct fb_tar *tar, struct fb_tar_member *member, struct extras *extras,
                     const struct record *record, bool sparse, forebay_error *error)
{
    if (extras->has_sparse_name && !sparse)
        return FOREBAY_OK;
    extras->has_name = true;
    extras->has_sparse_name = sparse;
    return set_name(tar, member, record->value, record->value_bytes, error);
}

static int take_record(const struct fb_tar *tar, struct fb_tar_member *member,
                       struct extras *extras, const struct record *record, forebay_error *error)
{
    static const char sparse[] = "GNU.sparse.";
    uint64_t *number = NULL;

    if (record->key_bytes >= sizeof(sparse) - 1 &&
        memcmp(record->key, sparse, sizeof(sparse) - 1) == 0)
        extras->sparse = true;
    if (is_key(record, "GNU.sparse.name") || is_key(record, "path"))
        return take_path(tar, member, extras, record, !is_key(record, "path"), error);
    if (is_key(record, "GNU.sparse.map")) {
        extras->has_list = true;
        extras->list = record->at;
        extras->list_bytes = record->bytes;
    } else if (is_key(record, "size")) {
        extras->has_size = true;
        number = &extras->size;
    } else if (is_key(record, "GNU.sparse.realsize") || is_key(record, "GNU.sparse.size")) {
        extras->has_real = true;
        number = &extras->real;
    } else if (is_key(record, "GNU.sparse.major")) {
        number = &extras->major;
    }
    return number ? take_decimal(tar, record, number, error) : FOREBAY_OK;
}

/* One record of at most `left` bytes at `at`; *bytes is how long it is. */
static int read_record(const struct fb_tar *tar, struct fb_tar_member *member,
                       struct extras *extras, uint64_t at, uint64_t left, uint64_t *bytes,
                       forebay_error *error)
{
    char piece[PAX_PIECE];
    uint64_t have = fb_min(left, sizeof(piece)), length = 0;
    struct record record;
    const char *equals;
    size_t i = 0;
    int status = fb_input_read(tar->input, piece, have, at, error);

    if (status)
        return status;
    for (; i < have && i < 8 && piece[i] >= '0' && piece[i] <= '9'; i++)
        length = length * 10 + (uint64_t)(piece[i] - '0');
    if (i == 0 || i == have || piece[i] != ' ' || length > left || length < i + 4)
        return fail_at(tar, "a pax record whose length is wrong", error);
    if (length <= have && piece[length - 1] != '\n')
        return fail_at(tar, "a pax record whose length is wrong", error);
    have = fb_min(have, length);
    equals = memchr(piece + i + 1, '=', have - i - 1);
    if (!equals)
        return fail_at(tar, "a pax record without a key", error);
    *bytes = length;
    record = (struct record){ .key = piece + i + 1,
                              .value = equals + 1,
                              .key_bytes = (size_t)(equals - piece) - i - 1,
                              .at = at + (uint64_t)(equals + 1 - piece) };
    record.bytes = length - (record.at - at) - 1; /* without its newline */
    record.value_bytes = fb_min(record.bytes, have - (record.at - at));
    return take_record(tar, member, extras, &record, error);
}

static int take_pax(const struct fb_tar *tar, struct fb_tar_member *member, struct extras *extras,
                    uint64_t bytes, forebay_error *error)
{
    uint64_t at = tar->at + FB_TAR_BLOCK;

    if (bytes > PAX_BYTES_MAX)
        return fail_at(tar, "a pax header of more than 1 MiB", error);
    extras->records = at;
    extras->records_bytes = bytes;
    for (uint64_t done = 0, step; done < bytes; done += step) {
        int status = read_record(tar, member, extras, at + done, bytes - done, &step, error);

        if (status)
            return status;
    }
    return FOREBAY_OK;
}

/* ---- members ---- */

/* GNU's 'S': the map of its holes may go on in blocks behind the header. */
static int skip_sparse_map(struct fb_tar *tar, uint64_t *data, forebay_error *error)
{
    bool more = tar->block[SPARSE_MORE_AT];

    while (more) {
        int status = fb_input_read(tar->input, tar->block, FB_TAR_BLOCK, *data, error);

        if (status)
            return status;
        *data += FB_TAR_BLOCK;
        more = tar->block[SPARSE_NEXT_MORE_AT];
    }
    return FOREBAY_OK;
}

/* Where its holes are, and how long it is with them. */
static int take_sparse(struct fb_tar *tar, struct fb_tar_member *member,
                       const struct extras *extras, char type, forebay_error *error)
{
    if (type == 'S') {
        member->sparse = FB_TAR_HOLES_GNU;
        if (!fb_tar_number(tar->block + SPARSE_SIZE_AT, 12, &member->bytes))
            return fail_at(tar, "a size that is no number", error);
        return skip_sparse_map(tar, &member->data, error);
    }
    if (!extras->sparse)
        return FOREBAY_OK;
    member->sparse = !extras->has_real     ? FB_TAR_HOLES_UNKNOWN
                     : extras->major == 1 ? FB_TAR_HOLES_PAX
                     : extras->has_list    ? FB_TAR_HOLES_LIST
                                           : FB_TAR_HOLES_RECORDS;
    member->map = extras->has_list ? extras->list : extras->records;
    member->map_bytes = extras->has_list ? extras->list_bytes : extras->records_bytes;
    if (extras->has_real)
        member->bytes = extras->real;
    return FOREBAY_OK;
}

static int take_member(struct fb_tar *tar, struct fb_tar_member *member,
                       const struct extras *extras, char type, uint64_t size, forebay_error *error)
{
    size_t length;
    int status;

    if (!extras->has_name)
        take_plain_name(tar->block, member);
    length = strlen(member->name);
    member->header = tar->at;
    member->data = tar->at + FB_TAR_BLOCK;
    member->regular = strchr("07S", type) || type == '\0';
    if (type == '\0' && length && member->name[length - 1] == '/')
        member->regular = false; /* how v7 says that it is a folder */
    if (extras->has_size)
        size = extras->size;
    if (type >= '1' &&
        type <= '6') /* links, devices, folders, FIFOs have no data, whatever size says */
        size = 0;
    member->bytes = member->stored = size;
    member->sparse = FB_TAR_WHOLE;
    status = take_sparse(tar, member, extras, type, error);
    return status ? status : measure(tar, member->data, size, &tar->at, error);
}

int fb_tar_next(struct fb_tar *tar, struct fb_tar_member *member, bool *end, forebay_error *error)
{
    struct extras extras = { .has_name = false };

    member->begin = tar->at;
    for (unsigned i = 0; i < EXTRAS_MAX; i++) {
        uint64_t size, next = 0;
        char type;
        int status = read_block(tar, end, error);

        if (status || *end)
            return status;
        type = (char)tar->block[TYPE_AT];
        if (!fb_tar_number(tar->block + SIZE_AT, 12, &size))
            return fail_at(tar, "a size that is no number", error);
        if (!memchr("xLgKX", type, 5))
            return take_member(tar, member, &extras, type, size, error);
        status = measure(tar, tar->at + FB_TAR_BLOCK, size, &next, error);
        if (!status && (type == 'x' || type == 'X'))
            status = take_pax(tar, member, &extras, size, error);
        else if (!status && type == 'L') {
            extras.has_name = true;
            status = take_long_name(tar, member, size, error);
        }
        if (status)
            return status;
        tar->at = next;
    }
    return fail_at(tar, "more than 64 extended headers for one member", error);
}

/* ---- WebDataset's names ---- */

/* re.match("__[^/]*__($|/)", name) */
static bool is_meta(const char *name)
{
    size_t length = strcspn(name, "/");

    return length >= 4 && name[0] == '_' && name[1] == '_' && name[length - 1] == '_' &&
           name[length - 2] == '_';
}

/* Where the dot between key and extension is: re.match("^((?:.*" "/|)[^.]+)[.]([^/]*)$", name) */
static const char *find_dot(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *above;
    const char *dot = strchr(base, '.');

    if (!dot || dot > base)
        return dot;
    /* "folder/.x": the folder itself is the key, if there is no dot in its name. */
    if (!slash)
        return NULL;
    for (above = slash; above > name && above[-1] != '/'; above--)
        if (above[-1] == '.')
            return NULL;
    return dot;
}

bool fb_tar_split(const char *name, size_t *key, char *extension, size_t size)
{
    const char *dot = find_dot(name);
    size_t length;

    if (!dot || is_meta(name))
        return false;
    length = strlen(dot + 1);
    if (length == 0 || length >= size)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = dot[1 + i];

        if (c <= ' ' || c > '~')
            return false;
        extension[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    extension[length] = '\0';
    *key = (size_t)(dot - name);
    return true;
}
