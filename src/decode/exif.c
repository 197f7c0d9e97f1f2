#include "decode/exif.h"

#include <stdbool.h>
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

/* The value of the tag in the directory that begins at `offset`. */
static unsigned find_in_directory(const struct tiff *tiff, uint64_t offset)
{
    uint64_t count;

    if (offset > tiff->bytes || tiff->bytes - offset < 2)
        return 1;
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
    return 1;
}

unsigned fb_exif_orientation(const uint8_t *tiff_bytes, uint64_t bytes)
{
    struct tiff tiff = { .at = tiff_bytes, .bytes = bytes };

    if (bytes < 8)
        return 1;
    if (tiff_bytes[0] == 'M' && tiff_bytes[1] == 'M')
        tiff.big_endian = true;
    else if (tiff_bytes[0] != 'I' || tiff_bytes[1] != 'I')
        return 1;
    if (read_u16(&tiff, 2) != 42)
        return 1;
    return find_in_directory(&tiff, read_u32(&tiff, 4));
}

/* Markers without a length: TEM, RSTn, SOI. */
static bool is_lone(uint8_t marker)
{
    return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

unsigned fb_exif_jpeg_orientation(const uint8_t *file, uint64_t bytes)
{
    static const char signature[6] = "Exif\0";
    uint64_t at = 2;

    while (at < bytes && bytes - at >= 4 && file[at] == 0xff) {
        uint8_t marker = file[at + 1];
        uint64_t length;

        if (marker == 0xff || is_lone(marker)) { /* any number of 0xff may stand before a marker */
            at += marker == 0xff ? 1 : 2;
            continue;
        }
        if (marker == 0xda || marker == 0xd9) /* the scan, or the end */
            return 1;
        length = (uint64_t)file[at + 2] << 8 | file[at + 3];
        if (length < 2 || length > bytes - at - 2)
            return 1;
        if (marker == 0xe1 && length >= 8 && memcmp(file + at + 4, signature, 6) == 0)
            return fb_exif_orientation(file + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}
