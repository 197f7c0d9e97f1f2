/*
 * table_file.c -- the converted table.
 *
 *     header (4096)   magic, identity, rows, row bytes, rows in a block, where the tail lies,
 *                     hashes of the tail and of the header itself
 *     blocks          rows as they lie in memory; block b begins at 4096 + b x block bytes
 *     tail            columns; a hash per block; vocabularies; the sources' paths, sizes and times
 *
 * Numbers are in this machine's byte order (the magic tells). It is written beside its name and
 * renamed when it is whole; it is never changed afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mix.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/glob.h"
#include "source/source.h"
#include "source/store.h"
#include "source/table/table.h"
#include "source/table/vocabulary.h"

#define MAGIC 0x31454c4241544246u /* "FBTABLE1" */
#define DATA_AT 4096
#define PIECE ((uint64_t)64 * 1024) /* of the tail: hashed one behind the other */

struct header {
    uint64_t magic, identity;
    uint64_t rows, row_bytes, block_rows, columns, blocks;
    uint64_t tail_at, tail_bytes, tail_hash;
    uint64_t hash; /* of all before */
};

struct stored_column {
    char name[FB_NAME_BYTES];
    uint32_t offset, type;
};

/* Four lanes, so that the multiplications overlap: as fast as memory. */
static uint64_t hash_bytes(const void *memory, uint64_t bytes, uint64_t seed)
{
    uint64_t lanes[4] = { seed, seed + 1, seed + 2, seed + 3 };
    const char *at = memory;

    for (; bytes >= 32; bytes -= 32, at += 32) {
        uint64_t words[4];

        memcpy(words, at, 32);
        for (unsigned i = 0; i < 4; i++) {
            lanes[i] = (lanes[i] ^ words[i]) * 0x9e3779b97f4a7c15u;
            lanes[i] ^= lanes[i] >> 29;
        }
    }
    for (; bytes; bytes--, at++)
        lanes[bytes % 4] = fb_mix2(lanes[bytes % 4], (unsigned char)*at);
    return fb_mix2(fb_mix2(lanes[0], lanes[1]), fb_mix2(lanes[2], lanes[3]));
}

/* ---- Writing ---- */

struct fb_table_writer {
    const struct fb_table *table;
    struct fb_budget *budget;
    char path[FB_PATH_BYTES], temporary[FB_PATH_BYTES + 16];
    int fd;
    uint64_t limit; /* bytes the file may have */
    uint64_t rows, blocks;
    char *block;
    uint64_t block_bytes, block_used;
    uint64_t *hashes;
    uint64_t hash_room;
    char *piece;
    uint64_t piece_used;
    uint64_t tail_bytes, tail_hash;
};

void fb_table_writer_close(struct fb_table_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0) {
        close(writer->fd);
        unlink(writer->temporary); /* after the rename there is none */
    }
    fb_block_free(writer->budget, FB_STAGE_SCRATCH, writer->block, writer->block_bytes, 1);
    fb_block_free(writer->budget, FB_STAGE_SCRATCH, writer->hashes, writer->hash_room,
                  sizeof(uint64_t));
    fb_block_free(writer->budget, FB_STAGE_SCRATCH, writer->piece, PIECE, 1);
    fb_block_free(writer->budget, FB_STAGE_SCRATCH, writer, 1, sizeof(*writer));
}

uint64_t fb_table_writer_bytes(const struct fb_table *table, uint64_t blocks)
{
    return sizeof(struct fb_table_writer) + table->block_rows * table->row_bytes + PIECE +
           4 * fb_max(64, blocks) * sizeof(uint64_t); /* checksums: the list while it doubles */
}

int fb_table_writer_open(struct fb_table_writer **out, const char *path,
                         const struct fb_table *table, forebay_error *error)
{
    struct fb_table_writer *writer = fb_block_new(table->budget, FB_STAGE_SCRATCH, 1,
                                                  sizeof(*writer), "writing the table", error);
    int status;

    if (!writer)
        return fb_failed(error);
    writer->table = table;
    writer->budget = table->budget;
    writer->fd = -1;
    snprintf(writer->path, sizeof(writer->path), "%s", path);
    snprintf(writer->temporary, sizeof(writer->temporary), "%s.tmpXXXXXX", path);
    status = fb_store_limit(&writer->limit, error);
    writer->block_bytes = table->block_rows * table->row_bytes;
    if (!status &&
        (!(writer->block = fb_block_new(writer->budget, FB_STAGE_SCRATCH, writer->block_bytes, 1,
                                        "a block of rows", error)) ||
         !(writer->piece = fb_block_new(writer->budget, FB_STAGE_SCRATCH, PIECE, 1,
                                        "writing the table", error))))
        status = fb_failed(error);
    if (!status && (writer->fd = mkostemp(writer->temporary, O_CLOEXEC)) < 0)
        status = fb_fail_errno(error, FOREBAY_IO, "cannot write '%s'", writer->temporary);
    if (status) {
        fb_table_writer_close(writer);
        return status;
    }
    *out = writer;
    return FOREBAY_OK;
}

static int write_all(struct fb_table_writer *writer, const char *from, uint64_t bytes, uint64_t at,
                     forebay_error *error)
{
    if (at + bytes > writer->limit) {
        char most[32];

        return fb_fail(error, FOREBAY_IO,
                       "the converted table is larger than the %s that "
                       "$FOREBAY_DISK_CACHE allows: raise it",
                       fb_size_text(writer->limit, most));
    }
    while (bytes) {
        ssize_t wrote = pwrite(writer->fd, from, bytes, (off_t)at);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return fb_fail_errno(error, FOREBAY_IO, "cannot write the converted table to '%s'",
                                 writer->temporary);
        from += wrote;
        at += (uint64_t)wrote;
        bytes -= (uint64_t)wrote;
    }
    return FOREBAY_OK;
}

static int end_block(struct fb_table_writer *writer, forebay_error *error)
{
    if (writer->blocks == writer->hash_room) {
        uint64_t room = fb_max(64, 2 * writer->hash_room);
        uint64_t *more = fb_block_grow(writer->budget, FB_STAGE_SCRATCH, writer->hashes,
                                       writer->hash_room, room, sizeof(*more), "checksums", error);

        if (!more)
            return fb_failed(error);
        writer->hashes = more;
        writer->hash_room = room;
    }
    writer->hashes[writer->blocks] = hash_bytes(writer->block, writer->block_used, writer->blocks);
    if (write_all(writer, writer->block, writer->block_used,
                  DATA_AT + writer->blocks * writer->block_bytes, error))
        return FOREBAY_IO;
    writer->blocks++;
    writer->block_used = 0;
    return FOREBAY_OK;
}

int fb_table_writer_add(struct fb_table_writer *writer, const char *rows, uint64_t count,
                        forebay_error *error)
{
    uint64_t left = count * writer->table->row_bytes;

    while (left) {
        uint64_t bytes = fb_min(left, writer->block_bytes - writer->block_used);

        memcpy(writer->block + writer->block_used, rows, bytes);
        writer->block_used += bytes;
        rows += bytes;
        left -= bytes;
        if (writer->block_used == writer->block_bytes) {
            int status = end_block(writer, error);

            if (status)
                return status;
        }
    }
    writer->rows += count;
    return FOREBAY_OK;
}

static uint64_t tail_at(const struct fb_table_writer *writer)
{
    return DATA_AT + writer->rows * writer->table->row_bytes;
}

static int tail_flush(struct fb_table_writer *writer, forebay_error *error)
{
    uint64_t used = writer->piece_used;

    writer->tail_hash = hash_bytes(writer->piece, used, writer->tail_hash);
    writer->piece_used = 0;
    writer->tail_bytes += used;
    return write_all(writer, writer->piece, used, tail_at(writer) + writer->tail_bytes - used,
                     error);
}

static int tail_put(struct fb_table_writer *writer, const void *from, uint64_t bytes,
                    forebay_error *error)
{
    while (bytes) {
        uint64_t part = fb_min(bytes, PIECE - writer->piece_used);

        memcpy(writer->piece + writer->piece_used, from, part);
        writer->piece_used += part;
        from = (const char *)from + part;
        bytes -= part;
        if (writer->piece_used == PIECE) {
            int status = tail_flush(writer, error);

            if (status)
                return status;
        }
    }
    return FOREBAY_OK;
}

static int put_columns(struct fb_table_writer *writer, forebay_error *error)
{
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < writer->table->column_count && !status; i++) {
        const struct fb_table_column *column = &writer->table->columns[i];
        struct stored_column stored = { .offset = column->offset, .type = column->type };

        memcpy(stored.name, column->name, sizeof(stored.name));
        status = tail_put(writer, &stored, sizeof(stored), error);
    }
    return status;
}

static int put_vocabulary(struct fb_table_writer *writer, const struct fb_vocabulary *words,
                          forebay_error *error)
{
    uint32_t count = words ? fb_vocabulary_count(words) : 0;
    int status = tail_put(writer, &count, sizeof(count), error);

    for (uint32_t i = 0; i < count && !status; i++) {
        uint64_t bytes;
        const char *word = fb_vocabulary_word(words, i, &bytes);
        uint32_t length = (uint32_t)bytes;

        status = tail_put(writer, &length, sizeof(length), error);
        if (!status)
            status = tail_put(writer, word, bytes, error);
    }
    return status;
}

static int put_sources(struct fb_table_writer *writer, forebay_error *error)
{
    int status = FOREBAY_OK;

    for (uint64_t i = 0; i < writer->table->shard_count && !status; i++) {
        const struct fb_table_shard *shard = &writer->table->shards[i];
        uint64_t about[3] = { shard->bytes, (uint64_t)shard->mtime_ns, strlen(shard->path) };

        status = tail_put(writer, about, sizeof(about), error);
        if (!status)
            status = tail_put(writer, shard->path, about[2], error);
    }
    return status;
}

static int put_tail(struct fb_table_writer *writer, struct fb_vocabulary *const *vocabularies,
                    forebay_error *error)
{
    int status = put_columns(writer, error);

    if (!status)
        status = tail_put(writer, writer->hashes, writer->blocks * sizeof(uint64_t), error);
    for (unsigned i = 0; i < writer->table->column_count && !status; i++)
        status = put_vocabulary(writer, vocabularies[i], error);
    if (!status)
        status = put_sources(writer, error);
    return status ? status : tail_flush(writer, error);
}

static int put_header(struct fb_table_writer *writer, forebay_error *error)
{
    const struct fb_table *table = writer->table;
    char page[DATA_AT] = { 0 };
    struct header header = { .magic = MAGIC,
                             .identity = table->identity,
                             .rows = writer->rows,
                             .row_bytes = table->row_bytes,
                             .block_rows = table->block_rows,
                             .columns = table->column_count,
                             .blocks = writer->blocks,
                             .tail_at = tail_at(writer),
                             .tail_bytes = writer->tail_bytes,
                             .tail_hash = writer->tail_hash };

    header.hash = hash_bytes(&header, offsetof(struct header, hash), MAGIC);
    memcpy(page, &header, sizeof(header));
    return write_all(writer, page, sizeof(page), 0, error);
}

int fb_table_writer_finish(struct fb_table_writer *writer,
                           struct fb_vocabulary *const *vocabularies, forebay_error *error)
{
    int status = writer->block_used ? end_block(writer, error) : FOREBAY_OK;

    if (!status)
        status = put_tail(writer, vocabularies, error);
    if (!status)
        status = put_header(writer, error);
    if (!status)
        status = fb_store_make_room(writer->path, tail_at(writer) + writer->tail_bytes, error);
    if (status)
        return status;
    /* A power failure after the rename may leave less than was written: the hashes tell. */
    if (rename(writer->temporary, writer->path))
        return fb_fail_errno(error, FOREBAY_IO, "cannot rename '%s'", writer->temporary);
    close(writer->fd);
    writer->fd = -1;
    return FOREBAY_OK;
}

/* ---- Reading ---- */

struct fb_table_file {
    struct fb_budget *budget;
    char path[FB_PATH_BYTES];
    int fd;
    struct header header;
    uint64_t *hashes; /* [blocks] */
};

void fb_table_file_close(struct fb_table_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    fb_block_free(file->budget, FB_STAGE_INDEX, file->hashes, file->header.blocks,
                  sizeof(uint64_t));
    fb_block_free(file->budget, FB_STAGE_INDEX, file, 1, sizeof(*file));
}

static bool header_is_whole(const struct fb_table_file *file, const struct fb_table *table,
                            uint64_t file_bytes)
{
    const struct header *header = &file->header;
    uint64_t data;

    return header->magic == MAGIC && header->identity == table->identity &&
           header->hash == hash_bytes(header, offsetof(struct header, hash), MAGIC) &&
           header->columns == table->column_count && header->row_bytes > 0 &&
           header->block_rows > 0 && fb_mul(header->rows, header->row_bytes, &data) &&
           fb_add(data, DATA_AT, &data) && header->tail_at == data &&
           header->blocks ==
               header->rows / header->block_rows + (header->rows % header->block_rows != 0) &&
           header->tail_bytes == file_bytes - header->tail_at && file_bytes >= header->tail_at &&
           header->tail_bytes >=
               header->columns * sizeof(struct stored_column) + header->blocks * sizeof(uint64_t);
}

static bool tail_is_whole(const struct fb_table_file *file, char *piece)
{
    const struct header *header = &file->header;
    uint64_t hash = 0;

    for (uint64_t at = 0; at < header->tail_bytes; at += PIECE) {
        uint64_t bytes = fb_min(PIECE, header->tail_bytes - at);

        if (fb_read_exactly(file->fd, piece, bytes, header->tail_at + at, NULL))
            return false;
        hash = hash_bytes(piece, bytes, hash);
    }
    if (header->tail_bytes % PIECE == 0) /* the writer's last flush had nothing */
        hash = hash_bytes(piece, 0, hash);
    return hash == header->tail_hash;
}

static int take_columns(struct fb_table_file *file, struct fb_table *table, forebay_error *error)
{
    for (unsigned i = 0; i < table->column_count; i++) {
        struct fb_table_column *column = &table->columns[i];
        struct stored_column stored;
        int status = fb_read_exactly(file->fd, &stored, sizeof(stored),
                                     file->header.tail_at + i * sizeof(stored), error);

        if (status)
            return status;
        if (stored.type > FB_CELL_CATEGORY || stored.offset % 4 ||
            stored.offset + fb_cell_bytes(table, (uint8_t)stored.type) > file->header.row_bytes ||
            strncmp(stored.name, column->name, sizeof(stored.name)) != 0)
            return fb_fail(error, FOREBAY_MISSING, "'%s' is of another table", file->path);
        column->type = (uint8_t)stored.type;
        column->offset = stored.offset;
    }
    table->row_bytes = file->header.row_bytes;
    table->block_rows = file->header.block_rows;
    return FOREBAY_OK;
}

static int check_file(struct fb_table_file *file, struct fb_table *table, forebay_error *error)
{
    struct header *header = &file->header;
    uint64_t blocks, columns_bytes = (uint64_t)table->column_count * sizeof(struct stored_column);
    struct stat about;
    char *piece;
    bool whole;

    if (fstat(file->fd, &about) || about.st_size < DATA_AT ||
        fb_read_exactly(file->fd, header, sizeof(*header), 0, NULL) ||
        !header_is_whole(file, table, (uint64_t)about.st_size)) {
        header->blocks = 0;
        return fb_fail(error, FOREBAY_MISSING, "'%s' is not whole", file->path);
    }
    blocks = header->blocks;
    header->blocks = 0; /* what close() frees */
    piece = fb_block_new(file->budget, FB_STAGE_SCRATCH, PIECE, 1, "checking the table", error);
    if (!piece)
        return fb_failed(error);
    whole = tail_is_whole(file, piece);
    fb_block_free(file->budget, FB_STAGE_SCRATCH, piece, PIECE, 1);
    if (!whole)
        return fb_fail(error, FOREBAY_MISSING, "'%s' is not whole", file->path);
    file->hashes =
        fb_block_new(file->budget, FB_STAGE_INDEX, blocks, sizeof(uint64_t), "checksums", error);
    if (!file->hashes)
        return fb_failed(error);
    header->blocks = blocks;
    if (fb_read_exactly(file->fd, file->hashes, blocks * sizeof(uint64_t),
                        header->tail_at + columns_bytes, error))
        return FOREBAY_IO;
    return take_columns(file, table, error);
}

int fb_table_file_open(struct fb_table_file **out, const char *path, struct fb_table *table,
                       forebay_error *error)
{
    struct fb_table_file *file =
        fb_block_new(table->budget, FB_STAGE_INDEX, 1, sizeof(*file), "the table's file", error);
    int status;

    if (!file)
        return fb_failed(error);
    file->budget = table->budget;
    snprintf(file->path, sizeof(file->path), "%s", path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    status = file->fd < 0 ? fb_fail_errno(error, FOREBAY_MISSING, "cannot open '%s'", path)
                          : check_file(file, table, error);
    if (status) {
        fb_table_file_close(file);
        return status;
    }
    fb_store_touch(file->fd);
    *out = file;
    return FOREBAY_OK;
}

uint64_t fb_table_file_rows(const struct fb_table_file *file)
{
    return file->header.rows;
}

const char *fb_table_file_path(const struct fb_table_file *file)
{
    return file->path;
}

int fb_table_file_read(const struct fb_table_file *file, uint64_t first, uint64_t count, void *to,
                       struct fb_reader *reader, forebay_error *error)
{
    uint64_t row = file->header.row_bytes;

    return fb_reader_read(reader, file->fd, file->path, to, count * row, DATA_AT + first * row,
                          error);
}

int fb_table_file_block(const struct fb_table_file *file, uint64_t block, void *to,
                        struct fb_reader *reader, forebay_error *error)
{
    uint64_t first = block * file->header.block_rows;
    uint64_t count = fb_min(file->header.block_rows, file->header.rows - first);
    int status = fb_table_file_read(file, first, count, to, reader, error);

    if (!status && hash_bytes(to, count * file->header.row_bytes, block) != file->hashes[block])
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "'%s': the checksum of block %" PRIu64 " is wrong; "
                         "remove the file, it will be made again",
                         file->path, block);
    return status;
}
