/*
 * source_npy.c -- arrays as NumPy saves them: .npy files, one or several fields joined by file
 * stem, or .npz files whose members are the fields.
 *
 * A unit is an array: unit = sample x fields + field. All arrays of a field have one type and one
 * shape but for the first dimension; byte order and Fortran order may be any and are made plain.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/join.h"
#include "source/npy_index.h"
#include "source/source.h"

struct npy_field {
    struct fb_files files; /* of its own, or empty for all but the first field of .npz */
    struct fb_npy_index index;
    char member[FB_NPZ_NAME_BYTES]; /* "" unless .npz */
};

struct npy_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    bool zipped;
    unsigned room;            /* for so many fields */
    struct npy_field *fields; /* base.field_count of them are in use */
    struct fb_join *joins;
    void *work;               /* while opening .npz */
};

static void npy_close(struct fb_source *source)
{
    struct npy_source *npy = (struct npy_source *)source;

    if (npy->fields && npy->joins)
        fb_join_release(npy->joins, npy->zipped ? 0 : npy->base.field_count, npy->budget);
    for (unsigned i = 0; npy->fields && i < npy->room; i++)
        fb_npy_index_release(&npy->fields[i].index); /* they look at the files, so they go first */
    for (unsigned i = 0; npy->fields && i < npy->room; i++)
        fb_files_release(&npy->fields[i].files);
    fb_block_free(npy->budget, FB_STAGE_INDEX, npy->work, 1, FB_NPZ_WORK_BYTES);
    fb_block_free(npy->budget, FB_STAGE_INDEX, npy->joins, npy->room, sizeof(*npy->joins));
    fb_block_free(npy->budget, FB_STAGE_INDEX, npy->base.fields, npy->room,
                  sizeof(*npy->base.fields));
    fb_block_free(npy->budget, FB_STAGE_INDEX, npy->fields, npy->room, sizeof(*npy->fields));
    fb_block_free(npy->budget, FB_STAGE_INDEX, npy, 1, sizeof(*npy));
}

/* Which field and file a unit is. */
static const struct npy_field *find_unit(const struct npy_source *npy, uint64_t unit,
                                         uint64_t *number)
{
    uint64_t sample = unit / npy->base.field_count, field = unit % npy->base.field_count;
    const uint32_t *map = npy->joins[field].map;

    *number = map ? map[sample] : sample;
    return &npy->fields[field];
}

static unsigned npy_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    unsigned count = source->field_count;

    for (uint32_t i = 0; i < count; i++)
        parts[i] = (struct fb_part){ .unit = sample * count + i, .field = i, .rows = FB_ALL_ROWS };
    return count;
}

static struct fb_extent npy_extent(const struct fb_source *source, uint64_t unit)
{
    uint64_t number, rows;
    const struct npy_field *field = find_unit((const struct npy_source *)source, unit, &number);

    rows = fb_npy_index_rows(&field->index, number);
    if (rows == FB_NPY_BROKEN)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = rows, .columns = 1 };
}

static void npy_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    uint64_t number;
    const struct npy_field *field = find_unit((const struct npy_source *)source, unit, &number);
    size_t used;

    fb_files_place(field->index.files, number, text, size);
    used = strlen(text);
    if (field->member[0] && used + 1 < size)
        snprintf(text + used, size - used, ": %s", field->member);
}

/* Is the array still what its extent says? */
static int check_array(const struct npy_field *field, const struct fb_array *array, uint64_t number,
                       const struct fb_load *load, forebay_error *error)
{
    uint64_t known = fb_npy_index_rows(&field->index, number), rows = fb_npy_rows(&array->npy);
    uint64_t row_bytes = rows ? array->npy.data_bytes / rows : 0;
    int status = fb_npy_index_check(&field->index, &array->npy, array->path, error);

    if (status)
        return status;
    if (known != rows)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' changed since it was indexed: %s%" PRIu64
                       " rows now, %" PRIu64 " bytes then, %" PRIu64 " now", array->path,
                       known == FB_NPY_BROKEN ? "it was broken; " : "", rows,
                       field->index.files->file[number].bytes, array->file_bytes);
    if (load->rows > rows || load->first_row > rows - load->rows ||
        load->bytes != load->rows * row_bytes)
        return fb_fail(error, FOREBAY_BAD_USE, "'%s' has %" PRIu64 " rows, not %" PRIu64
                       " from row %" PRIu64 " on in %" PRIu64 " bytes", array->path, rows,
                       load->rows, load->first_row, load->bytes);
    return FOREBAY_OK;
}

static int npy_load(const struct fb_source *source, const struct fb_load *load,
                    forebay_error *error)
{
    const struct npy_source *npy = (const struct npy_source *)source;
    uint64_t number, work = npy->zipped ? FB_NPZ_WORK_BYTES : 0;
    const struct npy_field *field = find_unit(npy, load->unit, &number);
    char path[FB_PATH_BYTES];
    struct fb_array array;
    int status;

    if (load->scratch.bytes < work)
        return fb_fail(error, FOREBAY_BAD_USE, "npy: a load needs %" PRIu64 " bytes of scratch",
                       work);
    fb_files_path(field->index.files, number, path, sizeof(path));
    status = fb_array_open(&array, path, npy->zipped ? field->member : NULL, load->reader,
                           field->index.first.header_bytes, load->scratch.memory, error);
    if (status)
        return status;
    status = check_array(field, &array, number, load, error);
    if (!status)
        status = fb_array_read(&array, load->first_row, load->rows, load->to,
                               work < load->scratch.bytes ? (char *)load->scratch.memory + work
                                                          : NULL,
                               load->scratch.bytes - work, error);
    fb_array_close(&array);
    return status;
}

static int set_name(struct npy_source *npy, unsigned number, const char *name, forebay_error *error)
{
    struct fb_field *fields = npy->base.fields;
    /* Every batch has an `index` of its own. */
    const char *tail = strcmp(name, "index") == 0 ? "_" : "";
    int length = snprintf(fields[number].name, FB_NAME_BYTES, "%s%s", name, tail);

    if (length <= 0 || length >= FB_NAME_BYTES)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "the name of a field must have 1 to %d bytes: "
                       "'%s'", FB_NAME_BYTES - 1, name);
    for (unsigned i = 0; i < number; i++)
        if (strcmp(fields[i].name, fields[number].name) == 0)
            return fb_fail(error, FOREBAY_BAD_CONFIG, "there are two fields '%s'",
                           fields[number].name);
    return FOREBAY_OK;
}

/* From the index of a field to its description. */
static void describe_field(struct npy_source *npy, unsigned number, bool lengths)
{
    const struct fb_npy_index *index = &npy->fields[number].index;
    const struct fb_npy *first = &index->first;
    struct fb_field *field = &npy->base.fields[number];

    field->dtype = first->dtype;
    field->items = 1;
    field->ndim = first->ndim;
    field->cell_bytes = forebay_dtype_bytes(first->dtype);
    for (unsigned i = 0; i < first->ndim; i++) {
        field->shape[i] = first->shape[i];
        if (i > 0)
            field->cell_bytes *= first->shape[i];
    }
    /* Under pad and ragged the lengths are part of the batch, whether or not they differ. */
    field->vary = first->ndim && (lengths || !index->uniform);
    if (field->vary)
        field->shape[0] = 0;
}

static void describe(struct npy_source *npy, bool lengths)
{
    struct fb_source *base = &npy->base;
    uint64_t turned_bytes = 0;
    bool plain = true, deflated = false;

    base->uniform = true;
    base->identity = base->fingerprint = fb_mix2(FB_KIND_NPY, base->field_count);
    for (unsigned i = 0; i < base->field_count; i++) {
        const struct fb_npy_index *index = &npy->fields[i].index;

        describe_field(npy, i, lengths);
        base->uniform &= index->uniform;
        base->unit_bytes_max = fb_max(base->unit_bytes_max, index->bytes_max);
        base->unit_bytes_total += index->bytes_total;
        base->broken_count += index->broken;
        turned_bytes = fb_max(turned_bytes, index->turned_bytes);
        plain &= !index->turned && !index->swapped;
        deflated |= index->deflated;
        if (i > 0 && npy->zipped)
            continue;
        base->identity = fb_files_hash(index->files, base->identity);
        base->fingerprint = fb_files_fingerprint(index->files, base->fingerprint);
    }
    base->sample_count = npy->fields[0].index.files->count;
    base->unit_count = base->sample_count * base->field_count;
    base->parts_max = base->field_count;
    base->scratch_bytes = fb_min(turned_bytes, FB_ARRAY_TURN_BYTES);
    if (npy->zipped) {
        base->scratch_bytes += FB_NPZ_WORK_BYTES;
        base->library_bytes = FB_NPZ_LIBRARY_BYTES;
    }
    base->rows_alone = !deflated && turned_bytes == 0;
    base->raw = plain && !deflated;
}

static int make_room(struct npy_source *npy, uint64_t fields, forebay_error *error)
{
    if (fields > FB_NPZ_MEMBERS)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "there are more than %d fields", FB_NPZ_MEMBERS);
    npy->room = (unsigned)fields;
    npy->fields = fb_block_new(npy->budget, FB_STAGE_INDEX, npy->room, sizeof(*npy->fields),
                               "fields of the source", error);
    npy->base.fields = fb_block_new(npy->budget, FB_STAGE_INDEX, npy->room,
                                    sizeof(*npy->base.fields), "fields of the source", error);
    npy->joins = fb_block_new(npy->budget, FB_STAGE_INDEX, npy->room, sizeof(*npy->joins),
                              "fields of the source", error);
    if (!npy->fields || !npy->base.fields || !npy->joins)
        return fb_failed(error);
    for (unsigned i = 0; i < npy->room; i++) {
        npy->fields[i].index.budget = npy->budget;
        npy->fields[i].files.list.budget = npy->budget;
        npy->fields[i].files.folders.budget = npy->budget;
        npy->fields[i].files.names.budget = npy->budget;
    }
    return FOREBAY_OK;
}

/* fields: {blur: "blur/ *.npy", ...} */
static int open_fields(struct npy_source *npy, const struct fb_config *config,
                       const struct fb_log *log, forebay_error *error)
{
    const struct fb_pairs *pairs = &config->source_fields;
    const char *folder = config->folder ? config->folder : "";
    int status = make_room(npy, pairs->count, error);

    for (unsigned i = 0; i < pairs->count && !status; i++) {
        struct npy_field *field = &npy->fields[i];
        char key[FB_NAME_BYTES + 16];

        snprintf(key, sizeof(key), "source.fields.%s", pairs->keys[i]);
        status = set_name(npy, i, pairs->keys[i], error);
        if (!status)
            status = fb_files_list(&field->files, key, &pairs->values[i], 1, folder, npy->budget,
                                   log, error);
        npy->joins[i] = (struct fb_join){ pairs->keys[i], pairs->values[i], &field->files, NULL };
        npy->base.field_count = i + 1;
    }
    if (!status) {
        status = fb_join(npy->joins, pairs->count, folder, npy->budget, error);
        fb_error_place(status ? error : NULL, "source.fields");
    }
    for (unsigned i = 0; i < pairs->count && !status; i++) {
        status = fb_npy_index_open(&npy->fields[i].index, &npy->fields[i].files, NULL, NULL,
                                   npy->budget, log, error);
        if (status)
            fb_error_context(error, "field '%s'", pairs->keys[i]);
    }
    return status;
}

static bool is_npz(const char *name)
{
    size_t length = strlen(name);

    return length > 4 && strcmp(name + length - 4, ".npz") == 0;
}

/* The members of the first .npz that can be read are the fields of all. */
static int find_members(struct npy_source *npy, const struct fb_files *files,
                        struct fb_npz_member *members, unsigned *count, forebay_error *error)
{
    int status = FOREBAY_MISSING;

    for (uint64_t i = 0; i < files->count; i++) {
        char path[FB_PATH_BYTES];

        fb_files_path(files, i, path, sizeof(path));
        status = fb_array_members(path, members, FB_NPZ_MEMBERS, count, npy->work, error);
        if (!status && *count == 0)
            status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' has no arrays in it", path);
        if (!status || !fb_status_is_data(status))
            break;
    }
    return status;
}

static int open_members(struct npy_source *npy, struct fb_files *files,
                        const struct fb_npz_member *members, unsigned count,
                        const struct fb_log *log, forebay_error *error)
{
    int status = make_room(npy, count, error);

    if (status)
        return status;
    npy->fields[0].files = *files; /* taken over */
    *files = (struct fb_files){ .list.budget = npy->budget, .folders.budget = npy->budget,
                                .names.budget = npy->budget };
    for (unsigned i = 0; i < count && !status; i++) {
        struct npy_field *field = &npy->fields[i];

        memcpy(field->member, members[i].name, sizeof(field->member));
        status = set_name(npy, i, field->member, error);
        if (!status)
            status = fb_npy_index_open(&field->index, &npy->fields[0].files, field->member,
                                       npy->work, npy->budget, log, error);
        npy->base.field_count = i + 1;
    }
    return status;
}

static int open_zipped(struct npy_source *npy, struct fb_files *files, const struct fb_log *log,
                       forebay_error *error)
{
    struct fb_npz_member *members;
    unsigned count = 0;
    int status;

    npy->zipped = true;
    npy->work = fb_block_new(npy->budget, FB_STAGE_INDEX, 1, FB_NPZ_WORK_BYTES, "reading .npz",
                             error);
    if (!npy->work)
        return fb_failed(error);
    members = fb_block_new(npy->budget, FB_STAGE_INDEX, FB_NPZ_MEMBERS, sizeof(*members),
                           "reading .npz", error);
    if (!members)
        return fb_failed(error);
    status = find_members(npy, files, members, &count, error);
    if (!status)
        status = open_members(npy, files, members, count, log, error);
    fb_block_free(npy->budget, FB_STAGE_INDEX, members, FB_NPZ_MEMBERS, sizeof(*members));
    fb_block_free(npy->budget, FB_STAGE_INDEX, npy->work, 1, FB_NPZ_WORK_BYTES);
    npy->work = NULL;
    return status;
}

static int open_plain(struct npy_source *npy, struct fb_files *files, const struct fb_log *log,
                      forebay_error *error)
{
    int status = make_room(npy, 1, error);

    if (status)
        return status;
    npy->fields[0].files = *files; /* taken over */
    *files = (struct fb_files){ .list.budget = npy->budget, .folders.budget = npy->budget,
                                .names.budget = npy->budget };
    npy->base.field_count = 1;
    npy->joins[0].files = &npy->fields[0].files;
    status = set_name(npy, 0, "data", error);
    return status ? status : fb_npy_index_open(&npy->fields[0].index, &npy->fields[0].files, NULL,
                                               NULL, npy->budget, log, error);
}

static int open_path(struct npy_source *npy, const struct fb_config *config,
                     const struct fb_log *log, forebay_error *error)
{
    struct fb_files files;
    int status = fb_files_list(&files, "source.path", config->source_path.values,
                               config->source_path.count, config->folder, npy->budget, log, error);

    if (status)
        return status;
    status = is_npz(fb_files_name(&files, 0)) ? open_zipped(npy, &files, log, error)
                                              : open_plain(npy, &files, log, error);
    fb_files_release(&files);
    return status;
}

static int npy_open(struct fb_source **out, const struct fb_config *config,
                    struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    bool fields = config->source_fields.count > 0;
    struct npy_source *npy;
    int status;

    if (fields == (config->source_path.count > 0))
        return fb_fail(error, FOREBAY_BAD_CONFIG, fields
                           ? "source.path and source.fields are both set: give one of them"
                           : "neither source.path nor source.fields is set: where are the files?");
    npy = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*npy), "npy source", error);
    if (!npy)
        return fb_failed(error);
    npy->base.ops = &fb_source_npy;
    npy->budget = budget;
    status = fields ? open_fields(npy, config, log, error) : open_path(npy, config, log, error);
    if (status) {
        npy_close(&npy->base);
        return status;
    }
    describe(npy, config->batch_collate != FB_COLLATE_STACK);
    *out = &npy->base;
    return FOREBAY_OK;
}

const struct fb_source_ops fb_source_npy = {
    .kind = "npy",
    .description = "arrays as NumPy saves them (.npy, .npz), several fields joined by file stem",
    .open = npy_open,
    .close = npy_close,
    .parts = npy_parts,
    .extent = npy_extent,
    .load = npy_load,
    .place = npy_place,
};
