#include "pack/tar_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

#define USTAR_NAME 100
#define USTAR_SIZE_MAX (((uint64_t)1 << 33) - 1) /* eleven octal digits */

/* POSIX 1003.1: a ustar header, all of its numbers octal text. */
struct ustar {
    char name[100];
    char mode[8], uid[8], gid[8];
    char size[12], mtime[12];
    char sum[8];
    char type;
    char link[100];
    char magic[6], version[2];
    char uname[32], gname[32];
    char major[8], minor[8];
    char prefix[155];
    char rest[12];
};
_Static_assert(sizeof(struct ustar) == FB_TAR_BLOCK, "a tar header is one block");

/* ---- pax ---- */

/* "LENGTH key=value\n", where LENGTH counts itself too. */
static uint64_t record_put(char *to, const char *key, const char *value)
{
    uint64_t rest = 3 + strlen(key) + strlen(value), length = rest + 1, digits;
    char text[24];

    do {
        digits = (uint64_t)snprintf(text, sizeof(text), "%" PRIu64, length);
        length = rest + digits;
    } while (digits != (uint64_t)snprintf(text, sizeof(text), "%" PRIu64, length));
    return (uint64_t)snprintf(to, (size_t)length + 1, "%" PRIu64 " %s=%s\n", length, key, value);
}

/* The records a member needs, none for most. */
static uint64_t records_put(char *to, const char *name, uint64_t data_bytes)
{
    uint64_t used = 0;
    char size[24];

    if (strlen(name) > USTAR_NAME)
        used = record_put(to, "path", name);
    if (data_bytes > USTAR_SIZE_MAX) {
        snprintf(size, sizeof(size), "%" PRIu64, data_bytes);
        used += record_put(to + used, "size", size);
    }
    return used;
}

uint64_t fb_tar_header_bytes(const char *name, uint64_t data_bytes)
{
    char records[FB_TAR_NAME_MAX + 128];
    uint64_t used = records_put(records, name, data_bytes);

    return FB_TAR_BLOCK + (used ? FB_TAR_BLOCK + fb_round_up(used, FB_TAR_BLOCK) : 0);
}

uint64_t fb_tar_member_bytes(const char *name, uint64_t data_bytes)
{
    return fb_tar_header_bytes(name, data_bytes) + fb_round_up(data_bytes, FB_TAR_BLOCK);
}

/* ---- ustar ---- */

static void sum_put(struct ustar *header)
{
    const unsigned char *bytes = (const unsigned char *)header;
    unsigned sum = 0;

    memset(header->sum, ' ', sizeof(header->sum));
    for (unsigned i = 0; i < sizeof(*header); i++)
        sum += bytes[i];
    snprintf(header->sum, sizeof(header->sum), "%06o", sum);
}

static void ustar_put(char *to, char type, const char *name, uint64_t bytes)
{
    struct ustar header;

    memset(&header, 0, sizeof(header));
    /* With a pax record the name here is only for programs that know no pax. */
    memcpy(header.name, name, fb_min(strlen(name), USTAR_NAME));
    memcpy(header.mode, "0000644", 8);
    memcpy(header.uid, "0000000", 8);
    memcpy(header.gid, "0000000", 8);
    snprintf(header.size, sizeof(header.size), "%011" PRIo64, bytes <= USTAR_SIZE_MAX ? bytes : 0);
    memcpy(header.mtime, "00000000000", 12);
    header.type = type;
    memcpy(header.magic, "ustar", 6);
    memcpy(header.version, "00", 2);
    memcpy(header.major, "0000000", 8);
    memcpy(header.minor, "0000000", 8);
    sum_put(&header);
    memcpy(to, &header, sizeof(header));
}

uint64_t fb_tar_header_put(char to[FB_TAR_HEADER_MAX], const char *name, uint64_t data_bytes)
{
    uint64_t at = 0, used = records_put(to + FB_TAR_BLOCK, name, data_bytes);

    if (used) {
        uint64_t whole = fb_round_up(used, FB_TAR_BLOCK);

        ustar_put(to, 'x', "PaxHeaders/member", used);
        memset(to + FB_TAR_BLOCK + used, 0, whole - used);
        at = FB_TAR_BLOCK + whole;
    }
    ustar_put(to + at, '0', name, data_bytes);
    return at + FB_TAR_BLOCK;
}

/* ---- .npy ---- */

static const char *descr_of(forebay_dtype dtype)
{
    static const char *const descrs[] = {
        [FOREBAY_U8] = "|u1",  [FOREBAY_U16] = "<u2", [FOREBAY_U32] = "<u4", [FOREBAY_U64] = "<u8",
        [FOREBAY_I8] = "|i1",  [FOREBAY_I16] = "<i2", [FOREBAY_I32] = "<i4", [FOREBAY_I64] = "<i8",
        [FOREBAY_F16] = "<f2", [FOREBAY_F32] = "<f4", [FOREBAY_F64] = "<f8", [FOREBAY_C64] = "<c8",
        [FOREBAY_C128] = "<c16", [FOREBAY_BOOL] = "|b1",
    };

    return dtype < sizeof(descrs) / sizeof(descrs[0]) ? descrs[dtype] : NULL;
}

uint64_t fb_npy_header_put(char to[FB_NPY_WRITE_MAX], forebay_dtype dtype, unsigned ndim,
                           const uint64_t *shape)
{
    const char *descr = descr_of(dtype);
    char numbers[FB_NPY_WRITE_DIMS * 24] = "", dict[FB_NPY_WRITE_MAX - 64];
    uint64_t total, stated;
    int used = 0;

    if (!descr || ndim > FB_NPY_WRITE_DIMS)
        return 0;
    /* As NumPy writes it: (3, 4), (3,), (). */
    for (unsigned i = 0; i < ndim; i++)
        used += snprintf(numbers + used, sizeof(numbers) - (size_t)used, "%s%" PRIu64 "%s",
                         i ? " " : "", shape[i], i + 1 < ndim || ndim == 1 ? "," : "");
    used = snprintf(dict, sizeof(dict), "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                    descr, numbers);
    total = fb_round_up(10 + (uint64_t)used + 1, 64);
    stated = total - 10;
    memset(to, ' ', total);
    memcpy(to, "\x93NUMPY\x01\x00", 8);
    memcpy(to + 10, dict, (size_t)used);
    to[8] = (char)(stated & 255);
    to[9] = (char)(stated >> 8);
    to[total - 1] = '\n';
    return total;
}
