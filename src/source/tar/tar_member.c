/*
 * tar_member.c -- where a member's bytes come from: a part of the shard's file, or of what is
 * unpacked of it; and of those that are special (sparse, or of 4 GiB or more), what their headers
 * say, which is looked up each time.
 */
#include <inttypes.h>
#include <string.h>

#include "base/search.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/tar/tar_source.h"

uint64_t fb_tar_shard_of(const struct fb_tar_source *tar, uint64_t sample)
{
    return fb_range_of(tar->ends, tar->files.count, sample);
}

/* ---- where it lies ---- */

static int read_chunks(void *data, void *into, uint64_t bytes, uint64_t offset,
                       forebay_error *error)
{
    const struct fb_tar_extract *from = data;

    return fb_chunks_read(from->tar->chunks, from->extract.reader, from->shard, into, bytes, offset,
                          error);
}

static int read_sparse(void *data, void *into, uint64_t bytes, uint64_t offset,
                       forebay_error *error)
{
    const struct fb_tar_extract *from = data;

    return fb_tar_read_sparse(&from->archive, &from->member, into, bytes, offset, error);
}

static int open_shard(struct fb_tar_extract *from, struct fb_reader *reader, forebay_error *error)
{
    const struct fb_tar_source *tar = from->tar;
    struct fb_extract *extract = &from->extract;
    uint64_t known = tar->files.file[from->shard].bytes;
    int status;

    fb_files_path(&tar->files, from->shard, extract->path, sizeof(extract->path));
    if (tar->chunks) {
        struct fb_input whole = { read_chunks, from, tar->contents[from->shard].bytes };

        fb_extract_from(extract, whole);
        extract->reader = reader;
        return FOREBAY_OK;
    }
    status = fb_extract_open(extract, reader, error);
    if (status || extract->whole.bytes == known)
        return status;
    status = fb_fail(error, FOREBAY_BAD_DATA,
                     "the archive changed since it was indexed: %" PRIu64 " bytes then, %" PRIu64
                     " now",
                     known, extract->whole.bytes);
    fb_extract_close(extract);
    return status;
}

/* What the header at `block` says. */
static int look_up(struct fb_tar_extract *from, uint32_t block, forebay_error *error)
{
    struct fb_tar headers;
    bool end = false;
    int status;

    fb_tar_init(&headers, &from->extract.whole);
    headers.at = (uint64_t)block * FB_TAR_BLOCK;
    status = fb_tar_next(&headers, &from->member, &end, error);
    if (!status && (end || !from->member.regular))
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "the archive changed since it was indexed: no header at byte %" PRIu64,
                         (uint64_t)block * FB_TAR_BLOCK);
    if (!status && from->member.sparse == FB_TAR_HOLES_UNKNOWN)
        status = fb_fail(error, FOREBAY_BAD_DATA, "%s", fb_tar_fault_text(FB_TAR_SPARSE));
    return status;
}

static int open_special(struct fb_tar_extract *from, uint32_t block, forebay_error *error)
{
    struct fb_extract *extract = &from->extract;
    int status = look_up(from, block, error);

    if (status)
        return status;
    if (from->member.sparse) {
        from->archive = extract->whole;
        extract->whole = (struct fb_input){ read_sparse, from, from->member.bytes };
        fb_extract_part(extract, 0, from->member.bytes);
    } else {
        fb_extract_part(extract, from->member.data, from->member.bytes);
    }
    return FOREBAY_OK;
}

int fb_tar_extract(const struct fb_tar_source *tar, uint64_t sample, unsigned column,
                   struct fb_reader *reader, struct fb_tar_extract *from, forebay_error *error)
{
    const struct fb_tar_cell *cell = &tar->cells[sample * tar->column_count + column];
    int status;

    if (!fb_tar_is_there(cell))
        return fb_fail(error, FOREBAY_BAD_DATA, "%s",
                       fb_tar_fault_text((enum fb_tar_fault)cell->bytes));
    from->tar = tar;
    from->shard = fb_tar_shard_of(tar, sample);
    status = open_shard(from, reader, error);
    if (status)
        return status;
    if (cell->bytes != FB_TAR_LOOK_UP) {
        fb_extract_part(&from->extract, (uint64_t)cell->block * FB_TAR_BLOCK, cell->bytes);
        return FOREBAY_OK;
    }
    status = open_special(from, cell->block, error);
    if (!status && from->extract.input.bytes !=
                       fb_tar_cell_bytes(tar, sample * tar->column_count + column)) {
        status = fb_fail(error, FOREBAY_BAD_DATA, "the archive changed since it was indexed");
    }
    if (status)
        fb_extract_close(&from->extract);
    return status;
}

/* ---- how large they are ---- */

uint64_t fb_tar_cell_bytes(const struct fb_tar_source *tar, uint64_t cell)
{
    uint64_t low = 0, high = tar->special_count;

    if (tar->cells[cell].bytes != FB_TAR_LOOK_UP)
        return tar->cells[cell].bytes;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (tar->specials[middle].cell < cell)
            low = middle + 1;
        else
            high = middle;
    }
    return tar->specials[low].bytes;
}

/* One that cannot be had is a fault of its own, and no other's. */
static int measure_special(struct fb_tar_source *tar, uint64_t number, uint64_t limit,
                           struct fb_reader *reader, forebay_error *error)
{
    struct fb_tar_cell *cell = &tar->cells[tar->specials[number].cell];
    struct fb_tar_extract from = { .tar = tar };
    int status;

    from.shard = fb_tar_shard_of(tar, tar->specials[number].cell / tar->column_count);
    status = open_shard(&from, reader, error);
    if (status)
        return status;
    status = open_special(&from, cell->block, error);
    fb_extract_close(&from.extract);
    if (!status && from.member.bytes <= limit)
        tar->specials[number].bytes = from.member.bytes;
    else if (!status || fb_status_is_data(status))
        *cell = (struct fb_tar_cell){ FB_TAR_NOWHERE, status ? FB_TAR_SPARSE : FB_TAR_TOO_LARGE };
    return fb_status_is_data(status) ? FOREBAY_OK : status;
}

int fb_tar_measure_specials(struct fb_tar_source *tar, struct fb_reader *reader,
                            forebay_error *error)
{
    uint64_t cells = tar->base.sample_count * tar->column_count, count = 0;
    struct fb_budget_report budget;
    int status = FOREBAY_OK;

    for (uint64_t i = 0; i < cells; i++)
        count += fb_tar_is_there(&tar->cells[i]) && tar->cells[i].bytes == FB_TAR_LOOK_UP;
    if (count == 0)
        return FOREBAY_OK;
    tar->specials = fb_block_new(tar->budget, FB_STAGE_INDEX, count, sizeof(*tar->specials),
                                 "members of the shards", error);
    if (!tar->specials)
        return fb_failed(error);
    tar->special_count = count;
    count = 0;
    for (uint64_t i = 0; i < cells; i++)
        if (fb_tar_is_there(&tar->cells[i]) && tar->cells[i].bytes == FB_TAR_LOOK_UP)
            tar->specials[count++].cell = i;
    fb_budget_read(tar->budget, &budget);
    for (uint64_t i = 0; i < count && !status; i++)
        status = measure_special(tar, i, budget.limit, reader, error);
    return status;
}

/* ---- shards in order ---- */

/* How many samples a window of the order has. The budget has no part in it: see source.h. */
static uint64_t window_samples(const struct fb_config *config, uint64_t mean)
{
    return config->order_window.is_auto ? fb_max(1, FB_ORDER_WINDOW_BYTES / mean)
                                        : fb_max(1, config->order_window.value);
}

/* Chunks for the window that ends, the one that begins, and what lies between: about three windows.
 * With fewer a shard is read again from its start for a chunk that is gone. */
static uint64_t chunk_bytes(const struct fb_tar_source *tar, const struct fb_config *config,
                            uint64_t window, uint64_t total, const struct fb_log *log)
{
    struct fb_budget_report budget;
    uint64_t mean = fb_max(1, total / tar->base.sample_count), most, bytes;
    char need[32], have[32];

    fb_budget_read(tar->budget, &budget);
    most = budget.limit / (config->order_window.is_auto ? 4 : 2);
    if (!fb_mul(window, 3 * mean, &bytes))
        bytes = UINT64_MAX;
    if (bytes > most && total > most)
        fb_say(log, "tar: a window of %" PRIu64 " samples needs about %s in memory, and there are %s "
               "for it: parts of shards are read again; raise memory.budget or lower order.window",
               window, fb_size_text(bytes, need), fb_size_text(most, have));
    return fb_min(bytes, most);
}

/* If a shard is packed, or if that is wanted, all are read from front to back. */
int fb_tar_open_chunks(struct fb_tar_source *tar, const struct fb_config *config,
                       const struct fb_log *log, forebay_error *error)
{
    uint64_t packed = 0, total = 0, mean, window;
    char text[32];
    int status;

    for (uint64_t i = 0; i < tar->files.count; i++) {
        packed += tar->contents[i].packing != FB_PACKING_NONE;
        total += tar->contents[i].bytes;
    }
    if (config->source_access != FB_ACCESS_SEQUENTIAL && packed == 0)
        return FOREBAY_OK;
    fb_say(log, "tar: %" PRIu64 " of %" PRIu64 " shards are packed; %s are inside of all", packed,
           tar->files.count, fb_size_text(total, text));
    mean = fb_max(1, total / tar->base.sample_count);
    window = window_samples(config, mean);
    status = fb_chunks_open(&tar->chunks, &tar->files, tar->contents,
                            chunk_bytes(tar, config, window, total, log), tar->budget, error);
    if (status)
        return status;
    if (config->source_access == FB_ACCESS_RANDOM) {
        fb_warn(log,
                "tar: source.access: random, but %" PRIu64 " shards are packed: a sample that is "
                "not in memory costs unpacking all that lies before it in its shard",
                packed);
        return FOREBAY_OK;
    }
    tar->base.stretch_samples = window;
    return FOREBAY_OK;
}

uint64_t fb_tar_unpacking_bytes(const struct fb_tar_source *tar, const struct fb_config *config)
{
    uint64_t most = 0, window = config->source_decode_memory.mode == FB_SIZE_AUTO
                                    ? FB_DECODE_MEMORY_LEAST
                                    : tar->index.window_max;

    for (uint64_t i = 0; i < tar->files.count; i++) {
        uint64_t packing = tar->contents[i].packing;

        if (packing != FB_PACKING_NONE)
            most = fb_max(most, fb_unpack_bytes(packing == FB_PACKING_ZSTD ? window : 0));
    }
    return most;
}
