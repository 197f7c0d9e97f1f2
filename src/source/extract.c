#include "source/extract.h"

#include <string.h>
#include <unistd.h>

#include "base/size.h"

static int file_read(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    struct fb_extract *extract = data;

    return fb_reader_read(extract->reader, extract->fd, extract->path, into, bytes, offset, error);
}

static int extract_read(void *data, void *into, uint64_t bytes, uint64_t offset,
                        forebay_error *error)
{
    struct fb_extract *extract = data;
    int status;

    if (offset >= FB_EXTRACT_HEAD_BYTES || bytes > FB_EXTRACT_HEAD_BYTES - offset)
        return fb_input_read(&extract->whole, into, bytes, extract->begin + offset, error);
    if (extract->have == 0) {
        uint64_t have = fb_min(FB_EXTRACT_HEAD_BYTES, extract->input.bytes);

        status = fb_input_read(&extract->whole, extract->head, have, extract->begin, error);
        if (status)
            return status;
        extract->have = have;
    }
    memcpy(into, extract->head + offset, bytes);
    return FOREBAY_OK;
}

int fb_extract_open(struct fb_extract *extract, struct fb_reader *reader, forebay_error *error)
{
    int status;

    extract->reader = reader;
    extract->fd = -1;
    extract->begin = extract->have = 0;
    extract->input = (struct fb_input){ extract_read, extract, 0 };
    extract->whole = (struct fb_input){ file_read, extract, 0 };
    status = fb_reader_open(reader, extract->path, &extract->fd, &extract->whole.bytes, error);
    if (!status)
        extract->input.bytes = extract->whole.bytes;
    return status;
}

void fb_extract_from(struct fb_extract *extract, struct fb_input whole)
{
    extract->reader = NULL;
    extract->fd = -1;
    extract->input = (struct fb_input){ extract_read, extract, 0 };
    extract->whole = whole;
    fb_extract_part(extract, 0, whole.bytes);
}

void fb_extract_part(struct fb_extract *extract, uint64_t begin, uint64_t bytes)
{
    extract->begin = begin;
    extract->have = 0;
    extract->input.bytes = bytes;
}

void fb_extract_close(struct fb_extract *extract)
{
    if (extract->fd >= 0)
        close(extract->fd);
    extract->fd = -1;
}
