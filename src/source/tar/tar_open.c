/* tar_open.c -- from the index of the shards to samples and fields. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decode/cast.h"
#include "memory/block.h"
#include "source/tar/tar_source.h"

#define TRIES 64 /* members that are looked at to learn what a field is */

struct opening {
    struct fb_tar_source *tar;
    const struct fb_config *config;
    const struct fb_log *log;
    struct fb_reader *reader;
    char *work; /* FB_TAR_ROOM_BYTES or what the decoders need */
    uint64_t work_bytes;
    uint64_t library; /* reserved so far for decoders' libraries */
};

/* ---- shards ---- */

static int add_shard(struct opening *opening, uint64_t number, forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;
    const struct fb_file *file = &tar->files.file[number];
    struct fb_tar_shard shard = { .bytes = file->bytes, .mtime_ns = file->mtime_ns };
    char path[FB_PATH_BYTES];
    int status;

    fb_files_path(&tar->files, number, path, sizeof(path));
    shard.path = path;
    status = fb_tar_index_add(&tar->index, &shard, &tar->contents[number], opening->reader,
                              opening->work, error);
    if (status && status != FOREBAY_MISSING &&
        (fb_status_is_data(status) || status == FOREBAY_NOT_BUILT))
        fb_error_context(error, "'%s'", path);
    return status;
}

static int add_shards(struct opening *opening, forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;

    for (uint64_t i = 0; i < tar->files.count; i++) {
        int status = fb_progress(opening->log, "indexing shards", i, tar->files.count, error);

        if (status)
            return status;
        status = add_shard(opening, i, error);
        if (status && fb_status_is_data(status) && opening->config->on_error != FB_ON_ERROR_FAIL) {
            fb_warn(opening->log, "tar: %s; what stands behind that is left out",
                    error ? error->message : "a shard is broken");
            status = FOREBAY_OK;
        }
        if (status)
            return status;
        tar->ends[i] = tar->index.samples;
    }
    if (tar->index.samples == 0)
        return fb_fail(error, FOREBAY_MISSING,
                       "the %" PRIu64 " shards hold no sample; a member "
                       "is one if its name has a dot (key.extension)",
                       tar->files.count);
    tar->base.sample_count = tar->index.samples;
    tar->base.group_count = tar->files.count;
    tar->base.group_ends = tar->ends;
    if (tar->index.passed_over)
        fb_say(opening->log,
               "tar: %" PRIu64 " members passed over: folders, links, names without "
               "an extension, meta data",
               tar->index.passed_over);
    return FOREBAY_OK;
}

static int list_shards(struct opening *opening, forebay_error *error)
{
    const struct fb_config *config = opening->config;
    struct fb_tar_source *tar = opening->tar;
    int status;

    if (config->source_path.count == 0)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.path is not set: where are the shards?");
    status =
        fb_files_list(&tar->files, "source.path", config->source_path.values,
                      config->source_path.count, config->folder, tar->budget, opening->log, error);
    if (status)
        return status;
    tar->ends = fb_block_new(tar->budget, FB_STAGE_INDEX, tar->files.count, sizeof(*tar->ends),
                             "shards", error);
    tar->contents = fb_block_new(tar->budget, FB_STAGE_INDEX, tar->files.count,
                                 sizeof(*tar->contents), "shards", error);
    return tar->ends && tar->contents ? FOREBAY_OK : fb_failed(error);
}

/* ---- which extensions are fields ---- */

/* Is it named, itself or one of its arrays? */
static bool is_named(const struct fb_config *config, const char *extension, bool is_archive)
{
    size_t length = strlen(extension);

    for (size_t i = 0; i < config->batch_fields.count; i++) {
        const char *name = config->batch_fields.values[i];

        if (strcmp(name, extension) == 0 ||
            (strcmp(extension, "index") == 0 && strcmp(name, "index_") == 0) ||
            (is_archive && strncmp(name, extension, length) == 0 && name[length] == '.'))
            return true;
    }
    return false;
}

/* Those that are named; or, if none is, those that at least every other sample has. */
static bool is_field(const struct opening *opening, unsigned extension)
{
    const struct fb_tar_extension *known = &opening->tar->index.extensions[extension];
    bool common = known->samples >= opening->tar->index.samples - known->samples;

    if (opening->config->batch_fields.count)
        return is_named(opening->config, known->field, fb_decoder_find(known->name)->is_archive);
    if (!common)
        fb_say(opening->log,
               "tar: only %" PRIu64 " of %" PRIu64 " samples have .%s: it is no "
               "field unless batch.fields names it",
               known->samples, opening->tar->index.samples, known->name);
    return common;
}

/* From records in the order of the archives to a table: [sample][column]. */
static int make_cells(struct fb_tar_source *tar, const unsigned *columns, forebay_error *error)
{
    const struct fb_tar_record *record =
        (const struct fb_tar_record *)(void *)tar->index.records.memory;
    uint64_t count = tar->index.records.used / sizeof(*record), sample = UINT64_MAX;
    uint64_t cells = tar->base.sample_count * tar->column_count;

    tar->cells = fb_block_new(tar->budget, FB_STAGE_INDEX, cells, sizeof(*tar->cells),
                              "members of the shards", error);
    if (!tar->cells)
        return fb_failed(error);
    for (uint64_t i = 0; i < cells; i++)
        tar->cells[i] = (struct fb_tar_cell){ FB_TAR_NOWHERE, FB_TAR_MISSING };
    for (uint64_t i = 0; i < count; i++, record++) {
        struct fb_tar_cell *cell;

        sample += record->first;
        if (columns[record->extension] == FB_TAR_EXTENSIONS)
            continue;
        cell = &tar->cells[sample * tar->column_count + columns[record->extension]];
        *cell = record->fault > FB_TAR_SPECIAL
                    ? (struct fb_tar_cell){ FB_TAR_NOWHERE, record->fault }
                    : (struct fb_tar_cell){ record->block, record->bytes };
    }
    tar->open_most = fb_max(tar->open_most, tar->index.records.mapped);
    fb_tape_release(&tar->index.records);
    return FOREBAY_OK;
}

/* ---- what the fields are ---- */

static int add_field(struct fb_tar_source *tar, unsigned extension, unsigned column,
                     const char *array, forebay_error *error)
{
    const struct fb_tar_extension *known = &tar->index.extensions[extension];
    const char *name = known->field;
    unsigned number = tar->base.field_count;
    struct fb_tar_field *field = &tar->fields[number];
    int length;

    if (number == FB_TAR_FIELDS)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "more than %d fields", FB_TAR_FIELDS);
    *field = (struct fb_tar_field){ .decoder = fb_decoder_find(known->name),
                                    .column = column,
                                    .extension = extension,
                                    .looked = FB_TAR_FIELDS };
    snprintf(field->array, sizeof(field->array), "%s", array);
    /* Every batch has an `index` of its own. */
    length = snprintf(tar->base.fields[number].name, FB_NAME_BYTES, "%s%s%s", name,
                      strcmp(name, "index") == 0 ? "_"
                      : array[0]                 ? "."
                                                 : "",
                      array);
    if (length >= FB_NAME_BYTES)
        return fb_fail(error, FOREBAY_BAD_DATA, "the name of a field is too long: '%s.%s'", name,
                       array);
    tar->base.field_count++;
    return FOREBAY_OK;
}

/* Before a decoder looks at a member. */
static int reserve_library(struct opening *opening, const struct fb_decoder *decoder,
                           forebay_error *error)
{
    uint64_t more = decoder->library_bytes - fb_min(decoder->library_bytes, opening->library);
    int status = fb_budget_reserve(opening->tar->budget, FB_STAGE_INDEX, more,
                                   "looking at the first members", error);

    opening->library += status ? 0 : more;
    return status;
}

/* The arrays of the first archive that can be read are the fields. */
static int add_arrays(struct opening *opening, unsigned extension, unsigned column,
                      forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;
    struct fb_npz_member *members =
        (struct fb_npz_member *)(void *)(opening->work + FB_NPZ_WORK_BYTES);
    unsigned count = 0;
    int status =
        reserve_library(opening, fb_decoder_find(tar->index.extensions[extension].name), error);

    if (status)
        return status;
    status = FOREBAY_MISSING;
    for (uint64_t i = 0, tries = 0; i < tar->base.sample_count && tries < TRIES; i++) {
        struct fb_tar_extract from;
        const struct fb_input *input = &from.extract.input;
        struct fb_npz_file file;

        if (!fb_tar_is_there(&tar->cells[i * tar->column_count + column]))
            continue;
        tries++;
        status = fb_tar_extract(tar, i, column, opening->reader, &from, error);
        if (status)
            continue;
        file = (struct fb_npz_file){ input->read, input->data, input->bytes };
        status = fb_npz_list(&file, opening->work, members, FB_NPZ_MEMBERS, &count, error);
        fb_extract_close(&from.extract);
        if (!status)
            break;
    }
    for (unsigned i = 0; i < count && !status; i++)
        status = add_field(tar, extension, column, members[i].name, error);
    return status;
}

static int choose_fields(struct opening *opening, forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;
    unsigned columns[FB_TAR_EXTENSIONS];
    int status = fb_tar_packed_names(tar, error);

    if (status)
        return status;
    for (unsigned i = 0; i < tar->index.extension_count; i++)
        columns[i] = is_field(opening, i) ? tar->column_count++ : FB_TAR_EXTENSIONS;
    if (tar->column_count == 0 && opening->config->batch_fields.count) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "batch.fields: no member of the shards has the "
                         "extension '%s'",
                         opening->config->batch_fields.values[0]);
        fb_config_place(opening->config, "batch.fields", error);
        return status;
    }
    if (tar->column_count == 0)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "no extension is in at least half of the samples; "
                       "name those that are wanted in batch.fields");
    status = make_cells(tar, columns, error);
    if (!status)
        status = fb_tar_measure_specials(tar, opening->reader, error);
    for (unsigned i = 0; i < tar->index.extension_count && !status; i++) {
        if (columns[i] == FB_TAR_EXTENSIONS)
            continue;
        if (fb_decoder_find(tar->index.extensions[i].name)->is_archive)
            status = add_arrays(opening, i, columns[i], error);
        else
            status = add_field(tar, i, columns[i], "", error);
        if (status)
            fb_error_context(error, ".%s", tar->index.extensions[i].name);
    }
    return status;
}

static void describe_field(struct fb_tar_source *tar, unsigned number,
                           const struct fb_decoded *decoded)
{
    struct fb_tar_field *field = &tar->fields[number];
    struct fb_field *shown = &tar->base.fields[number];

    shown->dtype = decoded->dtype;
    shown->items = 1;
    shown->ndim = decoded->ndim;
    shown->vary = decoded->ndim > 0;
    shown->always_ragged = field->decoder->is_text;
    shown->cell_bytes = forebay_dtype_bytes(decoded->dtype);
    for (unsigned d = 1; d < decoded->ndim; d++) {
        shown->shape[d] = decoded->shape[d];
        shown->cell_bytes *= decoded->shape[d];
    }
    if (field->decoder->look && decoded->ndim > 0)
        field->looked = tar->looked_count++;
    tar->base.scratch_bytes = fb_max(tar->base.scratch_bytes, field->decoder->work_bytes);
    tar->base.library_bytes = fb_max(tar->base.library_bytes, field->decoder->library_bytes);
}

/* What the configuration makes of every picture. */
static int describe_picture(struct opening *opening, unsigned number, forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;
    int status = FOREBAY_OK;

    if (!tar->pictures) {
        tar->pictures =
            fb_block_new(tar->budget, FB_STAGE_INDEX, 1, sizeof(*tar->pictures), "pictures", error);
        if (!tar->pictures)
            return fb_failed(error);
        status = fb_pictures_init(tar->pictures, opening->config, tar->budget, error);
        if (status)
            return status;
    }
    fb_pictures_describe(tar->pictures, &tar->base.fields[number]);
    if (tar->base.fields[number].vary == 2)
        tar->fields[number].looked = tar->looked_count++;
    return FOREBAY_OK;
}

/* The first member that can be read says what all are. */
static int look_at_field(struct opening *opening, unsigned number, forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;
    struct fb_decoded decoded = { .dtype = FOREBAY_U8, .ndim = 1 };
    int status = FOREBAY_OK;

    if (tar->fields[number].decoder->is_picture)
        return describe_picture(opening, number, error);
    if (!tar->fields[number].decoder->look) {
        describe_field(tar, number, &decoded);
        return FOREBAY_OK;
    }
    status = reserve_library(opening, tar->fields[number].decoder, error);
    if (status)
        return status;
    for (uint64_t i = 0, tries = 0; i < tar->base.sample_count && tries < TRIES; i++) {
        forebay_error *first = tries ? NULL : error;
        struct fb_tar_extract from;
        int looked;

        if (!fb_tar_is_there(fb_tar_cell_of(tar, i, number)))
            continue;
        looked =
            fb_tar_look(tar, i, number, opening->reader, opening->work, &decoded, &from, first);
        if (!looked) {
            fb_extract_close(&from.extract);
            describe_field(tar, number, &decoded);
            fb_tar_note_before(&tar->fields[number], fb_tar_bytes_of(tar, i, number), &decoded);
            return FOREBAY_OK;
        }
        status = tries++ ? status : looked;
    }
    if (status)
        fb_error_context(error, "none of the first members .%s can be read",
                         tar->base.fields[number].name);
    return status ? status
                  : fb_fail(error, FOREBAY_BAD_DATA, "no member .%s can be read",
                            tar->base.fields[number].name);
}

/* ---- sizes ---- */

/* What is packed may become any size (0); all else is as large as its member, or less. */
static uint64_t largest_unit(const struct fb_tar_source *tar, unsigned number, uint64_t member)
{
    const struct fb_field *field = &tar->base.fields[number];
    const struct fb_decoder *decoder = tar->fields[number].decoder;

    if (decoder->is_archive)
        return 0;
    if (decoder->is_sound)
        return tar->frames_max * sizeof(float);
    if (decoder->is_picture)
        return tar->pictures->encoded ? member : fb_pictures_unit_bytes(tar->pictures);
    return field->ndim ? fb_max(member, 1) : field->cell_bytes;
}

static void measure_field(struct fb_tar_source *tar, unsigned number)
{
    struct fb_source *base = &tar->base;
    bool is_picture = tar->fields[number].decoder->is_picture;
    uint64_t most = 0;

    for (uint64_t i = 0; i < base->sample_count; i++) {
        bool there = fb_tar_is_there(fb_tar_cell_of(tar, i, number));
        uint64_t bytes = there ? fb_tar_bytes_of(tar, i, number) : 0;

        if (!there || (is_picture && bytes > tar->pictures->file_bytes_max)) {
            base->broken_count++;
            continue;
        }
        most = fb_max(most, bytes);
        base->unit_bytes_total += is_picture && !tar->pictures->encoded
                                      ? fb_pictures_unit_bytes(tar->pictures)
                                      : bytes;
    }
    if (is_picture)
        tar->picture_largest = fb_max(tar->picture_largest, fb_max(most, 1));
    base->fields[number].bytes_max = largest_unit(tar, number, most);
}

/* A cast goes through memory that must be had beforehand. */
static int check_casts(const struct opening *opening, forebay_error *error)
{
    const struct fb_source *base = &opening->tar->base;

    for (unsigned f = 0; f < base->field_count; f++) {
        const struct fb_field *field = &base->fields[f];
        int status;

        if (field->bytes_max ||
            fb_cast_target(opening->config->batch_dtype, field->dtype) == field->dtype)
            continue;
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "batch.dtype: how large '%s' may become is not "
                         "known%s, so it cannot be cast",
                         field->name,
                         opening->tar->fields[f].decoder->is_sound
                             ? " without source.rate and source.max_duration"
                             : "");
        fb_config_place(opening->config, "batch.dtype", error);
        return status;
    }
    return FOREBAY_OK;
}

static int measure(struct opening *opening, forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;
    struct fb_source *base = &tar->base;
    bool bounded = true;

    base->uniform = true;
    for (unsigned f = 0; f < base->field_count; f++) {
        measure_field(tar, f);
        bounded &= base->fields[f].bytes_max > 0;
        base->unit_bytes_max = fb_max(base->unit_bytes_max, base->fields[f].bytes_max);
        base->uniform &= base->fields[f].vary == 0;
    }
    tar->open_most = fb_max(tar->open_most, fb_tar_unpacking_bytes(tar, opening->config));
    base->open_bytes =
        FB_READER_BYTES + opening->work_bytes + fb_max(tar->open_most, opening->library);
    if (!bounded)
        base->unit_bytes_max = base->unit_bytes_total = 0;
    if (tar->pictures) {
        base->scratch_bytes =
            fb_max(base->scratch_bytes, tar->pictures->work_bytes + tar->picture_largest);
        base->library_bytes = fb_max(base->library_bytes, tar->pictures->options.limits.bytes);
    }
    if (tar->looked_count) {
        tar->extents =
            fb_block_new(tar->budget, FB_STAGE_INDEX, base->sample_count * tar->looked_count,
                         sizeof(*tar->extents), "sizes of members", error);
        if (!tar->extents)
            return fb_failed(error);
    }
    return check_casts(opening, error);
}

static void describe(struct fb_tar_source *tar)
{
    struct fb_source *base = &tar->base;

    base->unit_count = base->sample_count * base->field_count;
    base->parts_max = base->field_count;
    base->raw = !tar->chunks;
    base->rows_alone = tar->made.each == FB_TAR_EACH_WINDOW || tar->made.each == FB_TAR_EACH_ROW;
    base->identity = fb_files_hash(&tar->files, fb_mix2(FB_KIND_TAR, tar->rate));
    base->fingerprint = fb_files_fingerprint(&tar->files, FB_KIND_TAR);
    if (tar->pictures)
        base->identity = fb_mix2(base->identity, fb_pictures_hash(tar->pictures));
    for (unsigned f = 0; f < base->field_count; f++) {
        base->raw &= !tar->fields[f].decoder->library_bytes &&
                     (!tar->fields[f].decoder->is_picture || tar->pictures->encoded);
        base->rows_alone &= tar->fields[f].decoder->is_plain && base->fields[f].ndim > 0;
        for (const char *at = base->fields[f].name; *at; at++)
            base->identity = fb_mix2(base->identity, (unsigned char)*at);
    }
}

/* ---- open ---- */

static int read_config(struct opening *opening, forebay_error *error)
{
    const struct fb_config *config = opening->config;
    struct fb_tar_source *tar = opening->tar;
    const struct fb_reals *longest = &config->source_max_duration;
    int status;

    tar->index.window_max = fb_decode_memory(config, tar->budget);
    tar->rate = (uint32_t)config->source_rate.value;
    if (config->source_rate.value > FB_SOUND_RATE_MAX) {
        status =
            fb_fail(error, FOREBAY_BAD_CONFIG, "source.rate must be 1 to %u", FB_SOUND_RATE_MAX);
        fb_config_place(config, "source.rate", error);
        return status;
    }
    if (longest->count == 0)
        return FOREBAY_OK;
    if (longest->count > 1 || !(longest->values[0] > 0 && longest->values[0] < 1e6) || !tar->rate) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG,
                         "source.max_duration must be one number of "
                         "seconds, and with kind tar it needs source.rate");
        fb_config_place(config, "source.max_duration", error);
        return status;
    }
    tar->frames_max = (uint64_t)ceil(longest->values[0] * tar->rate);
    return FOREBAY_OK;
}

static int open_all(struct opening *opening, forebay_error *error)
{
    struct fb_tar_source *tar = opening->tar;
    int status = read_config(opening, error);

    tar->fields = fb_block_new(tar->budget, FB_STAGE_INDEX, FB_TAR_FIELDS, sizeof(*tar->fields),
                               "fields of the source", error);
    tar->base.fields = fb_block_new(tar->budget, FB_STAGE_INDEX, FB_TAR_FIELDS,
                                    sizeof(*tar->base.fields), "fields of the source", error);
    if (!status && (!tar->fields || !tar->base.fields))
        status = fb_failed(error);
    if (!status)
        status = list_shards(opening, error);
    if (!status)
        status = add_shards(opening, error);
    if (!status)
        status = fb_tar_open_chunks(tar, opening->config, opening->log, error);
    if (!status)
        status = choose_fields(opening, error);
    for (unsigned f = 0; f < tar->base.field_count && !status; f++)
        status = look_at_field(opening, f, error);
    if (!status)
        status = measure(opening, error);
    if (!status)
        describe(tar);
    return status;
}

/* While the source is opened it reads as a worker does. */
static int open_with_hands(struct opening *opening, forebay_error *error)
{
    struct fb_budget *budget = opening->tar->budget;
    struct fb_reader_options options = { .log = opening->log };
    int status =
        fb_budget_reserve(budget, FB_STAGE_INDEX, FB_READER_BYTES, "reading the shards", error);

    if (status)
        return status;
    opening->work_bytes = fb_max(FB_SOUND_WORK_BYTES + FB_TAR_ROOM_BYTES,
                                 FB_NPZ_WORK_BYTES + FB_NPZ_MEMBERS * sizeof(struct fb_npz_member));
    status = fb_reader_new(&opening->reader, &options, error);
    if (!status) {
        opening->work = fb_block_new(budget, FB_STAGE_INDEX, 1, opening->work_bytes,
                                     "reading the shards", error);
        status = opening->work ? open_all(opening, error) : fb_failed(error);
        fb_block_free(budget, FB_STAGE_INDEX, opening->work, 1, opening->work_bytes);
        fb_reader_free(opening->reader);
    }
    fb_budget_refund(budget, FB_STAGE_INDEX, FB_READER_BYTES + opening->library);
    return status;
}

int fb_tar_open(struct fb_source **out, const struct fb_config *config, struct fb_budget *budget,
                const struct fb_log *log, forebay_error *error)
{
    struct fb_tar_source *tar =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*tar), "tar source", error);
    struct opening opening = { .tar = tar, .config = config, .log = log };
    struct fb_source *made;
    int status;

    if (!tar)
        return fb_failed(error);
    tar->base.ops = &fb_source_tar;
    tar->budget = tar->index.records.budget = budget;
    tar->files = (struct fb_files){ .list.budget = budget,
                                    .folders.budget = budget,
                                    .names.budget = budget };
    made = &tar->base;
    status = open_with_hands(&opening, error);
    if (!status)
        status = fb_tar_made_open(&made, &tar->made, budget, log, error);
    fb_tar_made_release(&tar->made, budget);
    if (status) {
        fb_tar_close(&tar->base);
        return status;
    }
    *out = made;
    return FOREBAY_OK;
}
