/* exif.c -- the orientation of a picture, from EXIF or XMP inside a JPEG or PNG file. */
#include "decode/exif.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define TYPE_LONG 4
#define ENTRY_BYTES 12

/* A TIFF structure: numbers in its own byte order, asked for only where they are. */
struct tiff {
    const uint8_t *at;
    uint64_t bytes;
    bool big_endian;
};

static uint32_t read_u16(const struct tiff *tiff, uint64_t offset)
{
    const uint8_t *at = tiff->at + offset;

    return tiff->big_endian ? (uint32_t)at[0] << 8 | at[1] : (uint32_t)at[1] << 8 | at[0];
}

static uint32_t read_u32(const struct tiff *tiff, uint64_t offset)
{
    uint32_t first = read_u16(tiff, offset), second = read_u16(tiff, offset + 2);

    return tiff->big_endian ? first << 16 | second : second << 16 | first;
}

static unsigned sensible(uint32_t value)
{
    return value >= 1 && value <= 8 ? value : 1;
}

/* The value of the tag in the directory that begins at `offset`; 0 if it is not there. */
static unsigned find_in_directory(const struct tiff *tiff, uint64_t offset)
{
    uint64_t count;

    if (offset > tiff->bytes || tiff->bytes - offset < 2)
        return 0;
    count = read_u16(tiff, offset);
    offset += 2;
    for (uint64_t i = 0; i < count && tiff->bytes - offset >= ENTRY_BYTES; i++) {
        uint32_t type = read_u16(tiff, offset + 2);

        if (read_u16(tiff, offset) == TAG_ORIENTATION) {
            if (type == TYPE_SHORT)
                return sensible(read_u16(tiff, offset + 8));
            return type == TYPE_LONG ? sensible(read_u32(tiff, offset + 8)) : 1;
        }
        offset += ENTRY_BYTES;
    }
    return 0;
}

static unsigned find_in_tiff(const uint8_t *tiff_bytes, uint64_t bytes)
{
    struct tiff tiff = { .at = tiff_bytes, .bytes = bytes };

    if (bytes < 8)
        return 0;
    if (tiff_bytes[0] == 'M' && tiff_bytes[1] == 'M')
        tiff.big_endian = true;
    else if (tiff_bytes[0] != 'I' || tiff_bytes[1] != 'I')
        return 0;
    if (read_u16(&tiff, 2) != 42)
        return 0;
    return find_in_directory(&tiff, read_u32(&tiff, 4));
}

unsigned fb_exif_orientation(const uint8_t *tiff, uint64_t bytes)
{
    unsigned found = find_in_tiff(tiff, bytes);

    return found ? found : 1;
}

/* tiff:Orientation="6" or <tiff:Orientation>6: both are how XMP writes it. 0 if it is not there. */
static unsigned find_in_xmp(const uint8_t *text, uint64_t bytes)
{
    static const char name[] = "tiff:Orientation";
    const uint8_t *end = text + bytes, *at = text;

    while ((at = memmem(at, (size_t)(end - at), name, sizeof(name) - 1)) != NULL) {
        at += sizeof(name) - 1;
        if (end - at >= 3 && at[0] == '=' && (at[1] == '"' || at[1] == '\'') && at[2] >= '1' &&
            at[2] <= '8')
            return (unsigned)(at[2] - '0');
        if (end - at >= 2 && at[0] == '>' && at[1] >= '1' && at[1] <= '8')
            return (unsigned)(at[1] - '0');
    }
    return 0;
}

/* What a file says: EXIF counts, and XMP where EXIF has no orientation. */
struct found {
    unsigned exif, xmp;
};

static unsigned choose(const struct found *found)
{
    return found->exif ? found->exif : found->xmp ? found->xmp : 1;
}

/* Markers without a length: TEM, RSTn, SOI. */
static bool is_lone(uint8_t marker)
{
    return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

static void look_in_app1(struct found *found, const uint8_t *data, uint64_t bytes)
{
    static const char exif[6] = "Exif\0", xmp[29] = "http://ns.adobe.com/xap/1.0/";

    if (!found->exif && bytes >= sizeof(exif) && memcmp(data, exif, sizeof(exif)) == 0)
        found->exif = find_in_tiff(data + sizeof(exif), bytes - sizeof(exif));
    else if (!found->xmp && bytes >= sizeof(xmp) && memcmp(data, xmp, sizeof(xmp)) == 0)
        found->xmp = find_in_xmp(data + sizeof(xmp), bytes - sizeof(xmp));
}

unsigned fb_exif_jpeg_orientation(const uint8_t *file, uint64_t bytes)
{
    struct found found = { 0, 0 };
    uint64_t at = 2;

    while (at < bytes && bytes - at >= 4 && file[at] == 0xff) {
        uint8_t marker = file[at + 1];
        uint64_t length;

        if (marker == 0xff || is_lone(marker)) { /* any number of 0xff may stand before a marker */
            at += marker == 0xff ? 1 : 2;
            continue;
        }
        if (marker == 0xda || marker == 0xd9) /* the scan, or the end */
            break;
        length = (uint64_t)file[at + 2] << 8 | file[at + 3];
        if (length < 2 || length > bytes - at - 2)
            break;
        if (marker == 0xe1)
            look_in_app1(&found, file + at + 4, length - 2);
        at += 2 + length;
    }
    return choose(&found);
}

/* ---- PNG ---- */

static void look_in_chunk(struct found *found, const uint8_t *kind, const uint8_t *data,
                          uint64_t bytes)
{
    /* The keyword, its NUL, and the flag that says the text is not compressed. */
    static const char xmp[19] = "XML:com.adobe.xmp";

    if (!found->exif && memcmp(kind, "eXIf", 4) == 0) {
        bool prefixed = bytes >= 6 && memcmp(data, "Exif\0", 6) == 0; /* not allowed, but common */

        found->exif = find_in_tiff(data + (prefixed ? 6 : 0), bytes - (prefixed ? 6 : 0));
    } else if (!found->xmp && memcmp(kind, "iTXt", 4) == 0 && bytes >= sizeof(xmp) &&
               memcmp(data, xmp, sizeof(xmp)) == 0) {
        found->xmp = find_in_xmp(data + sizeof(xmp), bytes - sizeof(xmp));
    }
}

unsigned fb_exif_png_orientation(const uint8_t *file, uint64_t bytes, bool *cut)
{
    struct found found = { 0, 0 };
    uint64_t at = 8;

    *cut = false;
    while (at < bytes && !found.exif) {
        uint64_t length;

        *cut = bytes - at < 12;
        if (*cut)
            break;
        length = (uint64_t)file[at] << 24 | (uint64_t)file[at + 1] << 16 |
                 (uint64_t)file[at + 2] << 8 | file[at + 3];
        *cut = length > bytes - at - 12;
        if (*cut || memcmp(file + at + 4, "IEND", 4) == 0)
            break;
        look_in_chunk(&found, file + at + 4, file + at + 8, length);
        at += 12 + length;
    }
    return choose(&found);
}
