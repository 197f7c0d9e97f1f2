#include "source/series.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/size.h"
#include "decode/npy.h"
#include "memory/block.h"
#include "source/source.h"
#include "source/join.h"

#define PIECE_BYTES 8192 /* of a column, on the stack */
#define OPEN_FILES_MAX 4096 /* and at most a quarter of what the process may have */

/* ---- What a file says of itself ---- */

struct about {
    struct fb_npy npy; /* also for flat files */
    uint64_t file_bytes;
};

static bool is_npy(const char *path)
{
    size_t length = strlen(path);

    return length > 4 && strcmp(path + length - 4, ".npy") == 0;
}

static int read_npy(struct about *about, int fd, const char *path, struct fb_reader *reader,
                    forebay_error *error)
{
    unsigned char header[FB_NPY_HEADER_MAX];
    uint64_t have = fb_min(about->file_bytes, FB_NPY_HEADER_USUAL), bytes;
    int status = fb_reader_read(reader, fd, path, header, have, 0, error);

    if (status || (status = fb_npy_header_bytes(header, have, &bytes, error)))
        return status;
    if (bytes > about->file_bytes)
        return fb_fail(error, FOREBAY_BAD_DATA, "the file ends inside its header");
    if (bytes > have)
        status = fb_reader_read(reader, fd, path, header + have, bytes - have, have, error);
    if (!status)
        status = fb_npy_parse(&about->npy, header, bytes, error);
    return status;
}

static int check_npy(const struct about *about, forebay_error *error)
{
    const struct fb_npy *npy = &about->npy;

    if (npy->ndim == 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "it is a single number, expected rows");
    if (about->file_bytes - npy->header_bytes != npy->data_bytes)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "it has %" PRIu64 " bytes behind its header, and "
                       "the header says %" PRIu64,
                       about->file_bytes - npy->header_bytes, npy->data_bytes);
    return FOREBAY_OK;
}

static int describe_flat(struct about *about, const struct fb_series_set *set, forebay_error *error)
{
    uint64_t row = set->flat_columns * forebay_dtype_bytes(set->flat_dtype);

    if (about->file_bytes % row)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "%" PRIu64 " bytes are no whole number of rows of %" PRIu64
                       " bytes (source.columns %" PRIu64 " of %s)",
                       about->file_bytes, row, set->flat_columns,
                       forebay_dtype_name(set->flat_dtype));
    about->npy = (struct fb_npy){ .dtype = set->flat_dtype,
                                  .ndim = 2,
                                  .shape = { about->file_bytes / row, set->flat_columns } };
    return FOREBAY_OK;
}

static int look_at(struct about *about, const struct fb_series_set *set, const char *path,
                   struct fb_reader *reader, forebay_error *error)
{
    int fd, status = fb_reader_open(reader, path, &fd, &about->file_bytes, error);

    if (status)
        return status;
    if (is_npy(path)) {
        status = read_npy(about, fd, path, reader, error);
        if (!status)
            status = check_npy(about, error);
    } else {
        status = describe_flat(about, set, error);
    }
    close(fd);
    if (status)
        fb_error_context(error, "'%s'", path);
    return status;
}

/* ---- The set ---- */

static bool same_rows(const struct fb_series_field *field, const struct fb_npy *npy)
{
    return field->dtype == npy->dtype && field->ndim == npy->ndim &&
           memcmp(field->shape + 1, npy->shape + 1, (npy->ndim - 1) * sizeof(uint64_t)) == 0;
}

static bool learn(struct fb_series_field *field, const struct fb_npy *npy)
{
    uint64_t numbers = 1;

    for (unsigned d = 1; d < npy->ndim; d++)
        if (!fb_mul(numbers, npy->shape[d], &numbers))
            return false;
    if (numbers == 0 || numbers > (uint64_t)1 << 40)
        return false;
    field->known = true;
    field->dtype = npy->dtype;
    field->ndim = npy->ndim;
    memcpy(field->shape, npy->shape, sizeof(field->shape));
    field->row_numbers = numbers;
    field->row_bytes = numbers * forebay_dtype_bytes(npy->dtype);
    return true;
}

static void note(struct fb_series_field *field, struct fb_series *series, const struct about *about)
{
    if (!field->known && !learn(field, &about->npy))
        series->fault = FB_SERIES_BROKEN;
    else if (!same_rows(field, &about->npy))
        series->fault = FB_SERIES_OTHER_SHAPE;
    series->rows = about->npy.shape[0];
    series->header = (uint32_t)about->npy.header_bytes;
    series->swapped = about->npy.swapped;
    series->fortran = about->npy.fortran;
}

static int look_at_all(struct fb_series_set *set, struct fb_reader *reader,
                       const struct fb_log *log, forebay_error *error)
{
    uint64_t total = set->count * set->field_count;
    char path[FB_PATH_BYTES];
    int status;

    for (uint64_t unit = 0; unit < total; unit++) {
        struct fb_series_field *field = &set->fields[unit % set->field_count];
        struct fb_series *series = &set->series[unit];
        struct about about;

        if (unit % 256 == 0 && (status = fb_progress(log, "files", unit, total, error)))
            return status;
        fb_files_path(&field->files, series->file, path, sizeof(path));
        status = look_at(&about, set, path, reader, error);
        if (status && !fb_status_is_data(status))
            return status;
        if (status)
            series->fault = FB_SERIES_BROKEN;
        else
            note(field, series, &about);
        if (!series->fault && unit % set->field_count &&
            !set->series[unit - unit % set->field_count].fault &&
            series->rows != set->series[unit - unit % set->field_count].rows)
            series->fault = FB_SERIES_OTHER_ROWS;
    }
    return FOREBAY_OK;
}

/* Put the files of each recording side by side. */
static int join(struct fb_series_set *set, const char *folder, forebay_error *error)
{
    struct fb_join *joins = fb_block_new(set->budget, FB_STAGE_INDEX, set->field_count,
                                         sizeof(*joins), "joining the fields' files", error);
    int status = joins ? FOREBAY_OK : fb_failed(error);

    for (unsigned f = 0; !status && f < set->field_count; f++)
        joins[f] = (struct fb_join){ .name = set->fields[f].name,
                                     .pattern = set->fields[f].pattern,
                                     .files = &set->fields[f].files };
    if (!status && set->field_count > 1)
        status = fb_join(joins, set->field_count, folder, set->budget, error);
    for (uint64_t unit = 0; !status && unit < set->count * set->field_count; unit++) {
        const uint32_t *map = joins[unit % set->field_count].map;
        uint64_t recording = unit / set->field_count;

        set->series[unit].file = map ? map[recording] : recording;
    }
    if (!status && set->field_count > 1)
        fb_join_release(joins, set->field_count, set->budget);
    fb_block_free(set->budget, FB_STAGE_INDEX, joins, set->field_count, sizeof(*joins));
    return status;
}

static int list_files(struct fb_series_set *set, const struct fb_config *config,
                      const struct fb_log *log, forebay_error *error)
{
    const struct fb_pairs *pairs = &config->source_fields;
    int status = FOREBAY_OK;

    if (!pairs->count) {
        set->fields[0].name = "window";
        return fb_files_list(&set->fields[0].files, "source.path", config->source_path.values,
                             config->source_path.count, config->folder, set->budget, log, error);
    }
    for (size_t f = 0; f < pairs->count && !status; f++) {
        set->fields[f].name = pairs->keys[f];
        set->fields[f].pattern = pairs->values[f];
        status = fb_files_list(&set->fields[f].files, "source.fields", &pairs->values[f], 1,
                               config->folder, set->budget, log, error);
    }
    return status;
}

static void limit_open_files(struct fb_series_set *set)
{
    struct rlimit limit;
    rlim_t most = 256;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        most = limit.rlim_cur / 4;
    atomic_store(&set->open_max, (long)fb_min(most, OPEN_FILES_MAX));
}

static int index_all(struct fb_series_set *set, const struct fb_config *config,
                     struct fb_reader *reader, const struct fb_log *log, forebay_error *error)
{
    uint64_t total;
    int status = list_files(set, config, log, error);

    if (status)
        return status;
    set->count = set->fields[0].files.count;
    total = set->count * set->field_count;
    set->series = fb_block_new(set->budget, FB_STAGE_INDEX, total, sizeof(*set->series),
                               "the list of series", error);
    set->open_files = fb_block_new(set->budget, FB_STAGE_INDEX, total, sizeof(*set->open_files),
                                   "the list of open files", error);
    if (!set->series || !set->open_files)
        return fb_failed(error);
    status = join(set, config->folder, error);
    if (!status)
        status = look_at_all(set, reader, log, error);
    return status;
}

int fb_series_open(struct fb_series_set *set, const struct fb_config *config,
                   struct fb_budget *budget, struct fb_reader *reader, const struct fb_log *log,
                   forebay_error *error)
{
    uint64_t fields = fb_max(1, config->source_fields.count);
    int status;

    *set = (struct fb_series_set){ .budget = budget,
                                   .field_count = (unsigned)fields,
                                   .flat_columns = config->source_columns.value,
                                   .flat_dtype = config->source_dtype };
    limit_open_files(set);
    set->fields =
        fb_block_new(budget, FB_STAGE_INDEX, fields, sizeof(*set->fields), "the fields", error);
    status = set->fields ? index_all(set, config, reader, log, error) : fb_failed(error);
    if (status)
        fb_series_release(set);
    return status;
}

void fb_series_release(struct fb_series_set *set)
{
    uint64_t total = set->count * set->field_count;

    for (uint64_t i = 0; set->open_files && i < total; i++)
        if (atomic_load(&set->open_files[i]))
            close(atomic_load(&set->open_files[i]) - 1);
    fb_block_free(set->budget, FB_STAGE_INDEX, set->open_files, total, sizeof(*set->open_files));
    fb_block_free(set->budget, FB_STAGE_INDEX, set->series, total, sizeof(*set->series));
    for (unsigned f = 0; set->fields && f < set->field_count; f++)
        fb_files_release(&set->fields[f].files);
    fb_block_free(set->budget, FB_STAGE_INDEX, set->fields, set->field_count, sizeof(*set->fields));
    *set = (struct fb_series_set){ .budget = set->budget };
}

/* ---- Reading ---- */

void fb_series_place(const struct fb_series_set *set, uint64_t unit, char *text, size_t size)
{
    fb_files_place(&fb_series_field(set, unit)->files, set->series[unit].file, text, size);
}

static int fail_shape(const struct fb_series_set *set, uint64_t unit, const char *path,
                      const struct fb_npy *npy, forebay_error *error)
{
    const struct fb_series_field *field = fb_series_field(set, unit);
    struct fb_npy wanted = { .dtype = field->dtype, .ndim = field->ndim };
    char found_text[256], wanted_text[256];

    memcpy(wanted.shape, field->shape, sizeof(wanted.shape));
    return fb_fail(error, FOREBAY_BAD_DATA,
                   "'%s' is %s; its rows are not those of the first file, "
                   "%s",
                   path, fb_npy_text(npy, found_text), fb_npy_text(&wanted, wanted_text));
}

/* Look again and say what is wrong. */
static int fail_broken(const struct fb_series_set *set, uint64_t unit, const char *path,
                       struct fb_reader *reader, forebay_error *error)
{
    const struct fb_series_field *field = fb_series_field(set, unit);
    uint64_t first = unit - unit % set->field_count;
    struct about about;
    int status = look_at(&about, set, path, reader, error);

    if (status)
        return status;
    if (set->series[unit].fault == FB_SERIES_OTHER_ROWS)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "'%s' has %" PRIu64 " rows, but field %s of the same "
                       "recording has %" PRIu64,
                       path, set->series[unit].rows, set->fields[0].name, set->series[first].rows);
    if (field->known && !same_rows(field, &about.npy))
        return fail_shape(set, unit, path, &about.npy, error);
    return fb_fail(error, FOREBAY_BAD_DATA, "'%s' was broken when it was indexed", path);
}

static int check_unchanged(const struct fb_series_set *set, uint64_t unit, uint64_t file_bytes,
                           const char *path, forebay_error *error)
{
    const struct fb_series *series = &set->series[unit];
    uint64_t expected = series->header + series->rows * fb_series_field(set, unit)->row_bytes;

    if (file_bytes == expected)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_DATA,
                   "'%s' changed since it was indexed: %" PRIu64 " bytes then, %" PRIu64 " now",
                   path, expected, file_bytes);
}

/* A descriptor of the unit. The first files that are used stay open until the end: a window costs
 * one system call then and not three. `*keep`: it is not the caller's to close. */
static int open_unit(const struct fb_series_set *set, uint64_t unit, const char *path, int *fd,
                     bool *keep, struct fb_reader *reader, forebay_error *error)
{
    struct fb_series_set *shared = (struct fb_series_set *)(uintptr_t)set;
    uint64_t file_bytes;
    int none = 0, status;

    status = fb_reader_open(reader, path, fd, &file_bytes, error);
    if (status)
        return status;
    status = check_unchanged(set, unit, file_bytes, path, error);
    if (status) {
        close(*fd);
        return status;
    }
    *keep = false;
    if (atomic_load(&set->open_count) < atomic_load(&set->open_max)) {
        *keep = atomic_compare_exchange_strong(&shared->open_files[unit], &none, *fd + 1);
        if (*keep)
            atomic_fetch_add(&shared->open_count, 1);
    }
    return FOREBAY_OK;
}

/* Rows of an array in Fortran order: a piece of each column, and nothing but that. */
static int read_fortran(const struct fb_series_field *field, const struct fb_series *series, int fd,
                        const char *path, uint64_t first, uint64_t rows, void *to,
                        struct fb_reader *reader, forebay_error *error)
{
    struct fb_npy npy = { .dtype = field->dtype,
                          .fortran = true,
                          .ndim = field->ndim,
                          .data_bytes = series->rows * field->row_bytes };
    uint64_t size = forebay_dtype_bytes(field->dtype), step = PIECE_BYTES / size;
    char piece[PIECE_BYTES];

    memcpy(npy.shape, field->shape, sizeof(npy.shape));
    npy.shape[0] = series->rows;
    for (uint64_t column = 0; column < field->row_numbers; column++)
        for (uint64_t done = 0; done < rows; done += step) {
            uint64_t at = column * series->rows + first + done, count = fb_min(step, rows - done);
            int status = fb_reader_read(reader, fd, path, piece, count * size,
                                        series->header + at * size, error);

            if (status)
                return status;
            fb_npy_place(&npy, to, first, rows, piece, at, count);
        }
    return FOREBAY_OK;
}

int fb_series_read(const struct fb_series_set *set, uint64_t unit, uint64_t first, uint64_t rows,
                   void *to, struct fb_reader *reader, forebay_error *error)
{
    const struct fb_series_field *field = fb_series_field(set, unit);
    const struct fb_series *series = &set->series[unit];
    int fd = atomic_load_explicit(&set->open_files[unit], memory_order_acquire) - 1, status = 0;
    char path[FB_PATH_BYTES] = "";
    const char *name;
    bool keep = true;

    if (fd < 0) {
        fb_files_path(&field->files, series->file, path, sizeof(path));
        status = series->fault ? fail_broken(set, unit, path, reader, error)
                               : open_unit(set, unit, path, &fd, &keep, reader, error);
    }
    if (status)
        return status;
    name = path[0] ? path : fb_files_name(&field->files, series->file);
    if (series->fortran)
        status = read_fortran(field, series, fd, name, first, rows, to, reader, error);
    else
        status = fb_reader_read(reader, fd, name, to, rows * field->row_bytes,
                                series->header + first * field->row_bytes, error);
    if (!keep)
        close(fd);
    if (!status && series->swapped)
        fb_npy_swap(to, field->dtype, rows * field->row_numbers);
    return status;
}

uint64_t fb_series_fingerprint(const struct fb_series_set *set)
{
    uint64_t hash = set->field_count;

    for (unsigned f = 0; f < set->field_count; f++)
        hash = fb_files_fingerprint(&set->fields[f].files, hash);
    return hash;
}

uint64_t fb_series_hash(const struct fb_series_set *set)
{
    uint64_t hash = set->field_count;

    for (unsigned f = 0; f < set->field_count; f++)
        hash = fb_mix2(fb_files_hash(&set->fields[f].files, hash), set->fields[f].row_bytes);
    return hash;
}
