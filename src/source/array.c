#include "source/array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"

/* Open without a reader: for the index. Never waits for a FIFO. */
static int open_plain(const char *path, int *fd, uint64_t *bytes, forebay_error *error)
{
    struct stat status;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (opened < 0)
        return fb_fail_errno(error,
                             errno == EMFILE || errno == ENFILE || errno == EIO || errno == ENOMEM
                                 ? FOREBAY_IO : FOREBAY_MISSING,
                             "cannot open '%s'", path);
    if (fstat(opened, &status) || !S_ISREG(status.st_mode)) {
        close(opened);
        return fb_fail(error, FOREBAY_MISSING, "'%s' is no regular file", path);
    }
    *fd = opened;
    *bytes = (uint64_t)status.st_size;
    return FOREBAY_OK;
}

/* Part of the file; what is asked for lies within it, as far as its size is known. */
static int read_file(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    struct fb_array *array = data;
    int status;

    if (bytes == 0)
        return FOREBAY_OK;
    if (array->reader)
        return fb_reader_read(array->reader, array->fd, array->path, into, bytes, offset, error);
    status = fb_read_exactly(array->fd, into, bytes, offset, error);
    if (status)
        fb_error_context(error, "'%s'", array->path);
    return status;
}

/* The next bytes of what is inside: of the file itself, or of its member. */
static int pull(struct fb_array *array, void *into, uint64_t bytes, forebay_error *error)
{
    int status = array->stream ? fb_npz_stream_read(array->stream, into, bytes, error)
                               : read_file(array, into, bytes, array->at, error);

    if (!status)
        array->at += bytes;
    return status;
}

/* The header, of which mostly one read gets everything; a member cannot be read twice, so there
 * the length comes first. */
static int read_header(struct fb_array *array, uint64_t usual, forebay_error *error)
{
    uint64_t size = array->stream ? array->member.bytes : array->file_bytes, header;
    uint64_t have = fb_min(size, array->stream ? 12 : fb_min(usual, sizeof(array->buffer)));
    int status = pull(array, array->buffer, have, error);

    if (!status)
        status = fb_npy_header_bytes(array->buffer, have, &header, error);
    if (!status && header > have) {
        uint64_t more = fb_min(header, size) - have;

        status = pull(array, array->buffer + have, more, error);
        have += more;
    }
    if (!status)
        status = fb_npy_parse(&array->npy, array->buffer, have, error);
    if (status)
        return status;
    array->at = array->npy.header_bytes;
    if (size != array->npy.header_bytes + array->npy.data_bytes) {
        char text[256];

        return fb_fail(error, FOREBAY_BAD_DATA, "its header says %s, which makes %" PRIu64
                       " bytes, but there are %" PRIu64, fb_npy_text(&array->npy, text),
                       array->npy.header_bytes + array->npy.data_bytes, size);
    }
    return FOREBAY_OK;
}

static int open_file(struct fb_array *array, const char *path, struct fb_reader *reader,
                     forebay_error *error)
{
    int status;

    array->path = path;
    array->reader = reader;
    array->stream = NULL;
    array->deflated = false;
    array->at = 0;
    array->fd = -1;
    status = reader ? fb_reader_open(reader, path, &array->fd, &array->file_bytes, error)
                    : open_plain(path, &array->fd, &array->file_bytes, error);
    array->zip = (struct fb_npz_file){ read_file, array, array->file_bytes };
    return status;
}

static int open_member(struct fb_array *array, const char *member, void *work,
                       forebay_error *error)
{
    int status = fb_npz_find(&array->zip, work, member, &array->member, error);

    if (!status)
        status = fb_npz_stream_open(&array->stream, &array->zip, &array->member, work, error);
    array->deflated = !status && array->member.deflated;
    return status;
}

int fb_array_open(struct fb_array *array, const char *path, const char *member,
                  struct fb_reader *reader, uint64_t usual, void *work, forebay_error *error)
{
    int status = open_file(array, path, reader, error);

    if (status)
        return status;
    if (member)
        status = open_member(array, member, work, error);
    if (!status)
        status = read_header(array, usual, error);
    if (status) {
        if (fb_status_is_data(status))
            fb_error_context(error, "'%s'", path);
        fb_array_close(array);
    }
    return status;
}

void fb_array_close(struct fb_array *array)
{
    fb_npz_stream_close(array->stream);
    array->stream = NULL;
    if (array->fd >= 0)
        close(array->fd);
    array->fd = -1;
}

static int read_straight(struct fb_array *array, uint64_t first_row, uint64_t rows, void *to,
                         forebay_error *error)
{
    const struct fb_npy *npy = &array->npy;
    uint64_t row_bytes = npy->data_bytes / (npy->ndim ? npy->shape[0] : 1);
    uint64_t skipped = first_row * row_bytes;
    int status = FOREBAY_OK;

    if (array->stream)
        status = fb_npz_stream_skip(array->stream, skipped, error);
    array->at += skipped;
    return status ? status : pull(array, to, rows * row_bytes, error);
}

/* Fortran order: the file from its first byte to its last, a piece at a time. */
static int read_turned(struct fb_array *array, uint64_t first_row, uint64_t rows, void *to,
                       void *piece, uint64_t piece_bytes, forebay_error *error)
{
    const struct fb_npy *npy = &array->npy;
    uint64_t bytes = forebay_dtype_bytes(npy->dtype), height = npy->shape[0];
    uint64_t room = piece_bytes / bytes, total = npy->data_bytes / bytes;

    for (uint64_t first = 0, count; first < total; first += count) {
        int status;

        /* Whole columns if one fits, else what is left of this one. */
        count = room >= height ? room / height * height : fb_min(room, height - first % height);
        count = fb_min(count, total - first);
        status = pull(array, piece, count * bytes, error);
        if (status)
            return status;
        fb_npy_place(npy, to, first_row, rows, piece, first, count);
    }
    return FOREBAY_OK;
}

int fb_array_read(struct fb_array *array, uint64_t first_row, uint64_t rows, void *to,
                  void *piece, uint64_t piece_bytes, forebay_error *error)
{
    const struct fb_npy *npy = &array->npy;
    bool whole = npy->ndim == 0 || rows == npy->shape[0];
    int status = FOREBAY_OK;

    if (npy->data_bytes && npy->fortran) {
        if (piece_bytes < sizeof(array->buffer)) { /* nobody knew that this file needs it */
            piece = array->buffer;
            piece_bytes = sizeof(array->buffer);
        }
        status = read_turned(array, first_row, rows, to, piece, piece_bytes, error);
    } else if (npy->data_bytes && rows) {
        status = read_straight(array, first_row, rows, to, error);
    }
    if (!status && array->stream && (whole || npy->fortran))
        status = fb_npz_stream_finish(array->stream, error);
    if (!status && npy->swapped && npy->data_bytes)
        fb_npy_swap(to, npy->dtype,
                    npy->data_bytes / (npy->ndim ? npy->shape[0] : 1) * rows /
                        forebay_dtype_bytes(npy->dtype));
    if (status && array->stream)
        fb_error_context(error, "'%s'", array->path);
    return status;
}

int fb_array_members(const char *path, struct fb_npz_member *members, unsigned most,
                     unsigned *count, void *work, forebay_error *error)
{
    struct fb_array array;
    int status = open_file(&array, path, NULL, error);

    if (status)
        return status;
    status = fb_npz_list(&array.zip, work, members, most, count, error);
    if (status && fb_status_is_data(status))
        fb_error_context(error, "'%s'", path);
    fb_array_close(&array);
    return status;
}
