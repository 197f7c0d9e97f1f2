/*
 * source_tar.c -- the samples of tar shards, by WebDataset's conventions: members whose names are
 * equal up to their first dot are one sample, what stands behind the dot is the field.
 *
 * Every member can be read by itself, for the index knows where it lies; out of shards that are
 * packed, or to be read in order, through chunks (tar_chunks.h). A unit is one field of one
 * sample: unit = sample x fields + field. Names of members are keys and nothing else: no path is
 * ever made of one.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "decode/tar.h"
#include "memory/block.h"
#include "source/tar/tar_source.h"

#define ROWS_MASK (((uint64_t)1 << FB_TAR_ROW_BITS) - 1)

void fb_tar_close(struct fb_source *source)
{
    struct fb_tar_source *tar = (struct fb_tar_source *)source;
    struct fb_budget *budget = tar->budget;
    uint64_t samples = source->sample_count;

    fb_block_free(budget, FB_STAGE_INDEX, tar->extents, samples * tar->looked_count,
                  sizeof(*tar->extents));
    fb_block_free(budget, FB_STAGE_INDEX, tar->cells, samples * tar->column_count,
                  sizeof(*tar->cells));
    fb_block_free(budget, FB_STAGE_INDEX, tar->specials, tar->special_count,
                  sizeof(*tar->specials));
    fb_chunks_close(tar->chunks);
    fb_block_free(budget, FB_STAGE_INDEX, tar->contents, tar->files.count,
                  sizeof(*tar->contents));
    fb_block_free(budget, FB_STAGE_INDEX, tar->ends, tar->files.count, sizeof(*tar->ends));
    fb_block_free(budget, FB_STAGE_INDEX, tar->fields, FB_TAR_FIELDS, sizeof(*tar->fields));
    fb_block_free(budget, FB_STAGE_INDEX, source->fields, FB_TAR_FIELDS, sizeof(*source->fields));
    fb_block_free(budget, FB_STAGE_INDEX, tar->pictures, 1, sizeof(*tar->pictures));
    fb_tar_index_release(&tar->index);
    fb_files_release(&tar->files);
    fb_block_free(budget, FB_STAGE_INDEX, tar, 1, sizeof(*tar));
}

/* ---- for messages ---- */

/* A shard's file, or what is in memory of it. */
struct glance {
    const struct fb_tar_source *tar;
    uint64_t shard;
    int fd;
};

static int read_glance(void *data, void *into, uint64_t bytes, uint64_t offset,
                       forebay_error *error)
{
    const struct glance *glance = data;

    if (!glance->tar->chunks)
        return fb_read_exactly(glance->fd, into, bytes, offset, error);
    return fb_chunks_peek(glance->tar->chunks, glance->shard, into, bytes, offset)
               ? FOREBAY_OK
               : FOREBAY_MISSING;
}

/* The key of a sample, from the header that stands before one of its members. */
static void key_of(const struct fb_tar_source *tar, uint64_t sample, char *key, size_t size)
{
    uint64_t shard = fb_tar_shard_of(tar, sample);
    const struct fb_tar_cell *cell = &tar->cells[sample * tar->column_count];
    char path[FB_PATH_BYTES], extension[FB_NAME_BYTES];
    struct fb_tar_member member;
    struct fb_tar headers;
    struct glance glance = { tar, shard, -1 };
    struct fb_input input = { read_glance, &glance, tar->contents[shard].bytes };
    size_t length;
    bool end;

    snprintf(key, size, "number %" PRIu64, sample - (shard ? tar->ends[shard - 1] : 0));
    for (unsigned c = 1; c < tar->column_count && !fb_tar_is_there(cell); c++)
        cell++;
    fb_files_path(&tar->files, shard, path, sizeof(path));
    if (fb_tar_is_there(cell) && !tar->chunks)
        glance.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (!fb_tar_is_there(cell) || (glance.fd < 0 && !tar->chunks))
        return;
    fb_tar_init(&headers, &input);
    headers.at = ((uint64_t)cell->block - (cell->bytes != FB_TAR_LOOK_UP)) * FB_TAR_BLOCK;
    if (!fb_tar_next(&headers, &member, &end, NULL) && !end &&
        fb_tar_split(member.name, &length, extension, sizeof(extension)))
        snprintf(key, size, "'%.*s'", (int)length, member.name);
    if (glance.fd >= 0)
        close(glance.fd);
}

static void tar_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    const struct fb_tar_source *tar = (const struct fb_tar_source *)source;
    uint64_t sample = unit / source->field_count;
    const struct fb_tar_field *field = &tar->fields[unit % source->field_count];
    char key[128];
    size_t used;

    key_of(tar, sample, key, sizeof(key));
    fb_files_place(&tar->files, fb_tar_shard_of(tar, sample), text, size);
    used = strlen(text);
    snprintf(text + used, size - used, ": sample %s, .%s", key,
             tar->index.extensions[field->extension].name);
}

static int name_member(const struct fb_tar_source *tar, uint64_t sample, unsigned field, int status,
                       forebay_error *error)
{
    char place[FB_PATH_BYTES];

    if (error && fb_status_is_data(status)) {
        tar_place(&tar->base, sample * tar->base.field_count + field, place, sizeof(place));
        fb_error_context(error, "'%s'", place);
    }
    return status;
}

/* ---- reading ---- */

/* All of a field are of one kind, but for how many rows they have. */
static int check_kind(const struct fb_tar_source *tar, unsigned number,
                      const struct fb_decoded *decoded, forebay_error *error)
{
    const struct fb_field *field = &tar->base.fields[number];
    bool alike = decoded->dtype == field->dtype && decoded->ndim == field->ndim;

    for (unsigned i = 1; alike && i < field->ndim; i++)
        alike = decoded->shape[i] == field->shape[i];
    if (!alike)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "it is %s with %u dimensions, the first of its kind "
                       "is %s with %u, and all but the first must be equal",
                       forebay_dtype_name(decoded->dtype), decoded->ndim,
                       forebay_dtype_name(field->dtype), field->ndim);
    if (fb_decoded_bytes(decoded) > INT64_MAX ||
        (decoded->ndim && decoded->shape[0] >> FB_TAR_ROW_BITS))
        return fb_fail(error, FOREBAY_BAD_DATA, "it has more bytes than any memory");
    if (tar->fields[number].decoder->is_sound && tar->frames_max &&
        decoded->shape[0] > tar->frames_max)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "it has %" PRIu64 " frames, and source.max_duration "
                       "allows %" PRIu64,
                       decoded->shape[0], tar->frames_max);
    return FOREBAY_OK;
}

int fb_tar_look(const struct fb_tar_source *tar, uint64_t sample, unsigned number,
                struct fb_reader *reader, void *work, struct fb_decoded *decoded,
                struct fb_tar_extract *from, forebay_error *error)
{
    const struct fb_tar_field *field = &tar->fields[number];
    struct fb_decode_options options = { .array = field->array, .rate = tar->rate };
    struct fb_extract *extract = &from->extract;
    int status = fb_tar_extract(tar, sample, field->column, reader, from, error);

    if (status)
        return status;
    if (field->decoder->look) {
        status = field->decoder->look(decoded, &extract->input, &options, work, error);
    } else {
        *decoded = (struct fb_decoded){ .dtype = FOREBAY_U8, .ndim = 1 };
        decoded->shape[0] = extract->input.bytes;
    }
    if (status)
        fb_extract_close(extract);
    return status;
}

static int look_and_check(const struct fb_tar_source *tar, const struct fb_load *load,
                          struct fb_decoded *decoded, struct fb_tar_extract *from,
                          forebay_error *error)
{
    uint64_t sample = load->unit / tar->base.field_count;
    unsigned field = (unsigned)(load->unit % tar->base.field_count);
    int status = fb_tar_look(tar, sample, field, load->reader, load->scratch.memory, decoded,
                             from, error);

    if (!status) {
        status = check_kind(tar, field, decoded, error);
        if (status)
            fb_extract_close(&from->extract);
    }
    return name_member(tar, sample, field, status, error);
}

/* ---- pictures ---- */

static bool is_picture(const struct fb_tar_source *tar, unsigned field)
{
    return tar->fields[field].decoder->is_picture;
}

/* The first `most` bytes of a picture's file at `to`. */
static int read_picture(const struct fb_tar_source *tar, const struct fb_load *load, uint64_t most,
                        void *to, uint64_t *bytes, forebay_error *error)
{
    struct fb_tar_extract from;
    const struct fb_input *input = &from.extract.input;
    int status = fb_tar_extract(tar, load->unit / tar->base.field_count,
                                tar->fields[load->unit % tar->base.field_count].column,
                                load->reader, &from, error);

    if (status)
        return status;
    *bytes = fb_min(most, input->bytes);
    if (input->bytes == 0)
        status = fb_fail(error, FOREBAY_BAD_DATA, "it is empty");
    else if (input->bytes > tar->pictures->file_bytes_max)
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "it has %" PRIu64 " bytes; more than %" PRIu64
                         " for one picture need a larger source.decode_memory",
                         input->bytes, tar->pictures->file_bytes_max);
    else
        status = fb_input_read(&from.extract.whole, to, *bytes, from.extract.begin, error);
    fb_extract_close(&from.extract);
    return status;
}

static int load_picture(const struct fb_tar_source *tar, const struct fb_load *load,
                        forebay_error *error)
{
    const struct fb_pictures *pictures = tar->pictures;
    uint8_t *file = (uint8_t *)load->scratch.memory + pictures->work_bytes;
    uint64_t bytes;
    int status;

    if (pictures->encoded)
        return read_picture(tar, load, load->bytes, load->to, &bytes, error);
    status = read_picture(tar, load, tar->picture_largest, file, &bytes, error);
    if (!status)
        status = fb_pictures_load(pictures, file, bytes, load->to, load->bytes,
                                  load->scratch.memory, error);
    return status;
}

static int look_at_picture(const struct fb_tar_source *tar, const struct fb_load *load,
                           uint64_t *known, forebay_error *error)
{
    uint8_t *file = (uint8_t *)load->scratch.memory + tar->pictures->work_bytes;
    uint64_t bytes = 0, most = fb_min(FB_PICTURES_HEADER_BYTES, tar->picture_largest);
    uint32_t width = 0, height = 0;
    int status;

    for (;;) {
        status = read_picture(tar, load, most, file, &bytes, error);
        if (!status)
            status = fb_picture_size(&tar->pictures->options, file, bytes, &width, &height, error);
        if (!fb_status_is_data(status) || bytes < most || most == tar->picture_largest)
            break;
        most = tar->picture_largest; /* the header is longer than most are */
    }
    if (!status)
        *known = 1 + ((uint64_t)height << 32 | width);
    return status;
}

static int tar_finish(const struct fb_source *source, uint64_t sample, const void *in,
                      struct fb_extent extent, struct fb_random random, void *out,
                      uint64_t out_bytes, struct fb_scratch scratch, forebay_error *error)
{
    const struct fb_tar_source *tar = (const struct fb_tar_source *)source;
    int status = fb_pictures_finish(tar->pictures, in, extent.rows, random, out, out_bytes,
                                    scratch.memory, error);
    unsigned field = 0;

    while (!is_picture(tar, field)) /* mostly there is only one */
        field++;
    return name_member(tar, sample, field, status, error);
}

static int tar_check(const struct fb_source *source, uint64_t unit, const void *in,
                     struct fb_extent extent, struct fb_scratch scratch, forebay_error *error)
{
    const struct fb_tar_source *tar = (const struct fb_tar_source *)source;
    int status = fb_pictures_check(tar->pictures, in, extent.rows, scratch.memory, error);

    return name_member(tar, unit / source->field_count, (unsigned)(unit % source->field_count),
                       status, error);
}

/* ---- the rest of the seam ---- */

static int tar_load(const struct fb_source *source, const struct fb_load *load,
                    forebay_error *error)
{
    const struct fb_tar_source *tar = (const struct fb_tar_source *)source;
    unsigned number = (unsigned)(load->unit % source->field_count);
    const struct fb_tar_field *field = &tar->fields[number];
    struct fb_decode_options options = { .array = field->array, .rate = tar->rate };
    struct fb_decoded decoded;
    struct fb_tar_extract from;
    int status;

    if (load->scratch.bytes < source->scratch_bytes)
        return fb_fail(error, FOREBAY_BAD_USE, "tar: a load needs %" PRIu64 " bytes of scratch",
                       source->scratch_bytes);
    if (is_picture(tar, number))
        return name_member(tar, load->unit / source->field_count, number,
                           load_picture(tar, load, error), error);
    status = look_and_check(tar, load, &decoded, &from, error);
    if (status)
        return status;
    if (fb_decoded_bytes(&decoded) != load->bytes || load->first_row)
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "it has %" PRIu64 " bytes, not %" PRIu64 ": the archive changed",
                         fb_decoded_bytes(&decoded), load->bytes);
    else if (load->bytes)
        status = field->decoder->read(&decoded, &from.extract.input, &options, load->to,
                                      load->scratch.memory, error);
    fb_extract_close(&from.extract);
    return name_member(tar, load->unit / source->field_count, number, status, error);
}

static _Atomic uint64_t *extent_at(const struct fb_tar_source *tar, uint64_t sample, unsigned field)
{
    return &tar->extents[sample * tar->looked_count + tar->fields[field].looked];
}

int fb_tar_load_part(const struct fb_tar_source *tar, const struct fb_load *load, uint64_t offset,
                     forebay_error *error)
{
    uint64_t sample = load->unit / tar->base.field_count, total;
    unsigned field = (unsigned)(load->unit % tar->base.field_count);
    uint64_t known = atomic_load_explicit(extent_at(tar, sample, field), memory_order_relaxed);
    struct fb_tar_extract from;
    int status;

    if (known == 0 || known == FB_TAR_BROKEN ||
        !fb_mul((known - 1) & ROWS_MASK, tar->base.fields[field].cell_bytes, &total) ||
        offset > total || load->bytes > total - offset)
        return fb_fail(error, FOREBAY_BAD_USE,
                       "tar: unit %" PRIu64 " has no %" PRIu64 " bytes from %" PRIu64 " on",
                       load->unit, load->bytes, offset);
    status = fb_tar_extract(tar, sample, tar->fields[field].column, load->reader, &from, error);
    if (!status) {
        offset += (known - 1) >> FB_TAR_ROW_BITS;
        status = fb_input_read(&from.extract.whole, load->to, load->bytes,
                               from.extract.begin + offset, error);
        fb_extract_close(&from.extract);
    }
    return name_member(tar, sample, field, status, error);
}

/* ---- asked without I/O ---- */

static unsigned tar_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    for (uint32_t i = 0; i < source->field_count; i++)
        parts[i] = (struct fb_part){ .unit = sample * source->field_count + i,
                                     .field = i,
                                     .rows = FB_ALL_ROWS };
    return source->field_count;
}

/* If its header is as long as the first one's; 0: no idea. */
static uint64_t rows_guessed(const struct fb_tar_source *tar, uint64_t sample, unsigned field)
{
    uint64_t before = tar->fields[field].before, cell = tar->base.fields[field].cell_bytes;
    uint64_t member = fb_tar_bytes_of(tar, sample, field);

    return before && cell && member > before ? (member - before) / cell : 0;
}

/* What was looked up before. */
static struct fb_extent extent_known(const struct fb_tar_source *tar, uint64_t sample,
                                     unsigned field)
{
    uint64_t known = atomic_load_explicit(extent_at(tar, sample, field), memory_order_relaxed);

    if (known == 0)
        return (struct fb_extent){ .known = FB_EXTENT_UNKNOWN,
                                   .rows = rows_guessed(tar, sample, field),
                                   .columns = 1 };
    if (known == FB_TAR_BROKEN)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    if (is_picture(tar, field))
        return (struct fb_extent){ .known = FB_EXTENT_EXACT,
                                   .rows = (known - 1) >> 32,
                                   .columns = (known - 1) & UINT32_MAX };
    return (struct fb_extent){ .known = FB_EXTENT_EXACT,
                               .rows = (known - 1) & ROWS_MASK,
                               .columns = 1 };
}

static struct fb_extent tar_extent(const struct fb_source *source, uint64_t unit)
{
    const struct fb_tar_source *tar = (const struct fb_tar_source *)source;
    uint64_t sample = unit / source->field_count;
    unsigned field = (unsigned)(unit % source->field_count);
    const struct fb_tar_cell *cell = fb_tar_cell_of(tar, sample, field);
    bool picture = is_picture(tar, field);
    uint64_t bytes = fb_tar_is_there(cell) ? fb_tar_bytes_of(tar, sample, field) : 0;

    if (!fb_tar_is_there(cell) ||
        (picture && (bytes == 0 || bytes > tar->pictures->file_bytes_max)))
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    if (tar->fields[field].looked < FB_TAR_FIELDS)
        return extent_known(tar, sample, field);
    if (picture)
        return fb_pictures_extent(tar->pictures, bytes);
    return (struct fb_extent){ .known = FB_EXTENT_EXACT,
                               .columns = 1,
                               .rows = source->fields[field].ndim ? bytes : 1 };
}

/* Where the values of an array begin in its member: they lie there as they are. */
static uint64_t values_at(const struct fb_tar_source *tar, unsigned field,
                          const struct fb_decoded *decoded)
{
    return tar->fields[field].decoder->is_plain ? decoded->as.npy.header_bytes : 0;
}

static bool is_plain(const struct fb_decoded *decoded)
{
    return !decoded->as.npy.fortran && !decoded->as.npy.swapped;
}

static int tar_probe(struct fb_source *source, uint64_t unit, const struct fb_load *load,
                     forebay_error *error)
{
    struct fb_tar_source *tar = (struct fb_tar_source *)source;
    uint64_t sample = unit / source->field_count;
    unsigned field = (unsigned)(unit % source->field_count);
    struct fb_decoded decoded;
    struct fb_tar_extract from;
    uint64_t known = FB_TAR_BROKEN;
    int status;

    if (is_picture(tar, field)) {
        status = name_member(tar, sample, field, look_at_picture(tar, load, &known, error), error);
    } else {
        status = look_and_check(tar, load, &decoded, &from, error);
        if (!status) {
            fb_extract_close(&from.extract);
            known = 1 + (values_at(tar, field, &decoded) << FB_TAR_ROW_BITS | decoded.shape[0]);
            if (source->rows_alone && !is_plain(&decoded))
                source->rows_alone = false; /* while it is opened, so nobody else looks at it */
        }
    }
    if (!status || fb_status_is_data(status))
        atomic_store_explicit(extent_at(tar, sample, field), known, memory_order_relaxed);
    return status;
}

const struct fb_source_ops fb_source_tar = {
    .kind = "tar",
    .description = "tar shards by WebDataset's conventions, any member at random",
    .open = fb_tar_open,
    .close = fb_tar_close,
    .parts = tar_parts,
    .extent = tar_extent,
    .probe = tar_probe,
    .load = tar_load,
    .finish = tar_finish,
    .check = tar_check,
    .place = tar_place,
};
