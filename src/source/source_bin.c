/*
 * source_bin.c -- flat files of one type of number in rows of `columns` (KITTI: float32 x 4).
 *
 * A unit is a file. A sample is a file, or with `sequence: n` n consecutive files of one folder,
 * `stride` files from one sample's first to the next one's. The numbers are in the byte order of
 * this machine. A file that is no whole number of rows is broken, and so is an empty one unless
 * the collate is pad or ragged, where no rows are as good as any number.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/search.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/files.h"
#include "source/source.h"

#define MAX_COLUMNS ((uint64_t)1 << 32)
#define MAX_SEQUENCE 65536

struct bin_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_field field;
    struct fb_files files;
    uint64_t row_bytes;
    uint64_t sequence, stride;
    bool empty_is_good;
    /* Folders that have samples: group g's first file is first_files[g], its samples end before
     * group_ends[g] (base.group_ends). */
    uint64_t groups; /* room for */
    uint64_t *first_files, *ends;
};

static void bin_close(struct fb_source *source)
{
    struct bin_source *bin = (struct bin_source *)source;

    fb_block_free(bin->budget, FB_STAGE_INDEX, bin->first_files, bin->groups, sizeof(uint64_t));
    fb_block_free(bin->budget, FB_STAGE_INDEX, bin->ends, bin->groups, sizeof(uint64_t));
    fb_files_release(&bin->files);
    fb_block_free(bin->budget, FB_STAGE_INDEX, bin, 1, sizeof(*bin));
}

static bool is_broken(const struct bin_source *bin, const struct fb_file *file)
{
    return file->fault || file->bytes % bin->row_bytes || (file->bytes == 0 && !bin->empty_is_good);
}

static struct fb_extent bin_extent(const struct fb_source *source, uint64_t unit)
{
    const struct bin_source *bin = (const struct bin_source *)source;
    const struct fb_file *file = &bin->files.file[unit];

    if (is_broken(bin, file))
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = file->bytes / bin->row_bytes,
                               .columns = 1 };
}

/* The group that has the sample: the first one that ends behind it. */
static uint64_t find_group(const struct bin_source *bin, uint64_t sample)
{
    return fb_range_of(bin->ends, bin->base.group_count, sample);
}

static unsigned bin_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    const struct bin_source *bin = (const struct bin_source *)source;
    uint64_t first = sample;

    if (bin->sequence > 1 || bin->stride > 1) {
        uint64_t group = find_group(bin, sample);
        uint64_t before = group ? bin->ends[group - 1] : 0;

        first = bin->first_files[group] + (sample - before) * bin->stride;
    }
    for (uint32_t i = 0; i < bin->sequence; i++)
        parts[i] = (struct fb_part){ .unit = first + i, .item = i, .rows = FB_ALL_ROWS };
    return (unsigned)bin->sequence;
}

/* The group whose files have the unit. */
static uint64_t find_folder(const struct bin_source *bin, uint64_t unit)
{
    return fb_range_of(bin->first_files + 1, bin->base.group_count, unit);
}

/* Sample k of a folder has its files [k * stride, k * stride + sequence). */
static void bin_users(const struct fb_source *source, uint64_t unit, uint64_t *first,
                      uint64_t *count)
{
    const struct bin_source *bin = (const struct bin_source *)source;
    uint64_t group, before, samples, file, low, high;

    *first = unit;
    *count = 1;
    if (bin->sequence == 1 && bin->stride == 1)
        return;
    group = find_folder(bin, unit);
    before = group ? bin->ends[group - 1] : 0;
    samples = bin->ends[group] - before;
    file = unit - bin->first_files[group];
    low = file < bin->sequence ? 0 : (file - bin->sequence) / bin->stride + 1;
    high = fb_min(file / bin->stride + 1, samples);
    *first = before + fb_min(low, samples);
    *count = high > low ? high - low : 0;
}

static void bin_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    fb_files_place(&((const struct bin_source *)source)->files, unit, text, size);
}

/* Is the file still what its extent says? Says so in words if not. */
static int check_size(const struct bin_source *bin, const struct fb_load *load, uint64_t found,
                      const char *path, forebay_error *error)
{
    const struct fb_file *file = &bin->files.file[load->unit];

    if (found % bin->row_bytes)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s': %" PRIu64 " bytes are no whole number of "
                       "rows of %" PRIu64 " bytes (source.columns %" PRIu64 " of %s): %" PRIu64
                       " bytes are left over", path, found, bin->row_bytes, bin->field.shape[1],
                       forebay_dtype_name(bin->field.dtype), found % bin->row_bytes);
    if (found == 0 && !bin->empty_is_good)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' is empty; batch.collate pad or ragged would "
                       "take it as 0 rows", path);
    if (found != file->bytes || file->fault)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' changed since it was indexed: %" PRIu64
                       " bytes then, %" PRIu64 " now", path, file->bytes, found);
    if (load->bytes != load->rows * bin->row_bytes || load->rows > found / bin->row_bytes ||
        load->first_row > found / bin->row_bytes - load->rows)
        return fb_fail(error, FOREBAY_BAD_USE, "'%s' has %" PRIu64 " rows, not %" PRIu64
                       " from row %" PRIu64 " on", path, found / bin->row_bytes, load->rows,
                       load->first_row);
    return FOREBAY_OK;
}

static int bin_load(const struct fb_source *source, const struct fb_load *load,
                    forebay_error *error)
{
    const struct bin_source *bin = (const struct bin_source *)source;
    char path[FB_PATH_BYTES];
    uint64_t found;
    int fd, status;

    fb_files_path(&bin->files, load->unit, path, sizeof(path));
    status = fb_reader_open(load->reader, path, &fd, &found, error);
    if (status)
        return status;
    status = check_size(bin, load, found, path, error);
    if (!status && load->bytes)
        status = fb_reader_read(load->reader, fd, path, load->to, load->bytes,
                                load->first_row * bin->row_bytes, error);
    close(fd);
    return status;
}

static int check_config(const struct fb_config *config, forebay_error *error)
{
    if (config->source_columns.value == 0 || config->source_columns.value > MAX_COLUMNS)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.columns must be 1 to 2^32");
    if (config->source_sequence.value == 0 || config->source_sequence.value > MAX_SEQUENCE)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.sequence must be 1 to %d", MAX_SEQUENCE);
    if (config->source_stride.value == 0)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.stride must be at least 1");
    if (config->source_path.count == 0)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.path is not set: where are the files?");
    return FOREBAY_OK;
}

static uint64_t samples_of(const struct bin_source *bin, uint64_t files)
{
    return files < bin->sequence ? 0 : (files - bin->sequence) / bin->stride + 1;
}

/* Cut the sorted files into folders, and those into samples. */
static int make_groups(struct bin_source *bin, forebay_error *error)
{
    const struct fb_files *files = &bin->files;
    uint64_t samples = 0, count = 0, longest = 0;

    bin->groups = files->folder_count;
    bin->first_files = fb_block_new(bin->budget, FB_STAGE_INDEX, bin->groups, sizeof(uint64_t),
                                    "folders of the source", error);
    bin->ends = fb_block_new(bin->budget, FB_STAGE_INDEX, bin->groups, sizeof(uint64_t),
                             "folders of the source", error);
    if (!bin->first_files || !bin->ends)
        return fb_failed(error);
    for (uint64_t first = 0, end; first < files->count; first = end) {
        for (end = first; end < files->count; end++)
            if (files->file[end].folder != files->file[first].folder)
                break;
        longest = fb_max(longest, end - first);
        if (samples_of(bin, end - first) == 0)
            continue;
        samples += samples_of(bin, end - first);
        bin->first_files[count] = first;
        bin->ends[count++] = samples;
    }
    if (samples == 0)
        return fb_fail(error, FOREBAY_MISSING, "no folder has the %" PRIu64 " files of a sequence: "
                       "the longest has %" PRIu64, bin->sequence, longest);
    bin->base.sample_count = samples;
    bin->base.group_count = count;
    bin->base.group_ends = bin->ends;
    return FOREBAY_OK;
}

/* Sizes of what is whole, and whether all are alike. */
static void measure(struct bin_source *bin)
{
    struct fb_source *base = &bin->base;
    uint64_t rows = 0;
    bool seen = false;

    base->uniform = true;
    for (uint64_t i = 0; i < bin->files.count; i++) {
        const struct fb_file *file = &bin->files.file[i];

        if (is_broken(bin, file)) {
            base->broken_count++;
            continue;
        }
        base->uniform = base->uniform && (!seen || file->bytes == rows * bin->row_bytes);
        rows = file->bytes / bin->row_bytes;
        seen = true;
        base->unit_bytes_max = fb_max(base->unit_bytes_max, file->bytes);
        base->unit_bytes_total += file->bytes;
    }
    /* Under pad and ragged the lengths are part of the batch, whether or not they differ. */
    if (base->uniform && !bin->empty_is_good) {
        bin->field.vary = 0;
        bin->field.shape[0] = rows;
    }
}

static void describe(struct bin_source *bin, const struct fb_config *config)
{
    uint64_t number_bytes = forebay_dtype_bytes(config->source_dtype);

    bin->sequence = config->source_sequence.value;
    bin->stride = config->source_stride.value;
    bin->row_bytes = number_bytes * config->source_columns.value;
    bin->empty_is_good = config->batch_collate != FB_COLLATE_STACK;
    bin->field = (struct fb_field){ .name = "points", .dtype = config->source_dtype,
                                    .items = (unsigned)bin->sequence,
                                    .sequence = bin->sequence > 1, .vary = 1, .ndim = 2,
                                    .shape = { 0, config->source_columns.value },
                                    .cell_bytes = bin->row_bytes };
    bin->base.unit_count = bin->files.count;
    bin->base.field_count = 1;
    bin->base.fields = &bin->field;
    bin->base.parts_max = (unsigned)bin->sequence;
    bin->base.rows_alone = true;
    bin->base.shared_units = bin->sequence > bin->stride;
    bin->base.raw = true;
    bin->base.identity = fb_files_hash(
        &bin->files, fb_mix2(FB_KIND_BIN, fb_mix2(config->source_dtype, bin->row_bytes)));
    bin->base.fingerprint = fb_files_fingerprint(&bin->files, FB_KIND_BIN);
}

static int bin_open(struct fb_source **out, const struct fb_config *config,
                    struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct bin_source *bin;
    int status = check_config(config, error);

    if (status)
        return status;
    bin = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*bin), "bin source", error);
    if (!bin)
        return fb_failed(error);
    bin->base.ops = &fb_source_bin;
    bin->budget = budget;
    status = fb_files_list(&bin->files, "source.path", config->source_path.values,
                           config->source_path.count, config->folder, budget, log, error);
    if (status)
        goto fail;
    describe(bin, config);
    status = make_groups(bin, error);
    if (status)
        goto fail;
    measure(bin);
    *out = &bin->base;
    return FOREBAY_OK;

fail:
    bin_close(&bin->base);
    return status;
}

const struct fb_source_ops fb_source_bin = {
    .kind = "bin",
    .description = "flat files of numbers in rows (LiDAR scans), also sequences of them",
    .open = bin_open,
    .close = bin_close,
    .parts = bin_parts,
    .extent = bin_extent,
    .load = bin_load,
    .users = bin_users,
    .place = bin_place,
};
