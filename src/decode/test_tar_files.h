/* test_tar_files.h -- tar archives made in memory, byte by byte. */
#ifndef FB_TEST_TAR_FILES_H
#define FB_TEST_TAR_FILES_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/tar.h"

struct archive {
    unsigned char bytes[131072];
    uint64_t used;
};

/* The sum of a header, written where it belongs. */
static inline void archive_seal(unsigned char *header)
{
    unsigned sum = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Append a member and its data; returns its header, to be changed and sealed again. */
static inline unsigned char *archive_add(struct archive *archive, const char *name, char type,
                                         const void *data, size_t bytes)
{
    unsigned char *header = archive->bytes + archive->used;

    memset(header, 0, 512);
    memcpy(header, name, strlen(name) < 100 ? strlen(name) : 100);
    memcpy(header + 100, "0000644", 8);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)bytes);
    header[156] = (unsigned char)type;
    memcpy(header + 257, "ustar\00000", 8);
    archive_seal(header);
    memset(header + 512, 0, (bytes + 511) / 512 * 512);
    if (bytes)
        memcpy(header + 512, data, bytes);
    archive->used += 512 + (bytes + 511) / 512 * 512;
    return header;
}

static inline void archive_end(struct archive *archive)
{
    memset(archive->bytes + archive->used, 0, 1024);
    archive->used += 1024;
}

static inline int archive_read(void *data, void *into, uint64_t bytes, uint64_t offset,
                               forebay_error *error)
{
    (void)error;
    memcpy(into, ((const struct archive *)data)->bytes + offset, bytes);
    return FOREBAY_OK;
}

static inline struct fb_input archive_input(struct archive *archive)
{
    return (struct fb_input){ archive_read, archive, archive->used };
}
#endif
