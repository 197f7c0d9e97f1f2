#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mix.h"
#include "base/size.h"
#include "decode/csv.h"
#include "decode/number.h"
#include "memory/block.h"
#include "source/source_kinds.h"
#include "source/table/table.h"

#define GUESS_BYTES ((uint64_t)64 * 1024) /* of each shard, for the first guess of the types */
#define FORMAT 1                          /* of the converted file: raise it when it changes */

/* ---- What is in them ---- */

/* The beginning of a shard, and the cells of its first row. */
struct head {
    char *text; /* FB_TABLE_TEXT_BYTES and padding */
    char *cell;
    uint64_t bytes;
    bool whole;    /* the file has no more */
    uint64_t from; /* behind a byte order mark */
};

static int read_head(struct head *head, struct fb_table_shard *shard, uint64_t want,
                     forebay_error *error)
{
    struct stat about;
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), status = FOREBAY_OK;

    if (fd < 0 || fstat(fd, &about)) {
        status = fb_fail_errno(error, FOREBAY_MISSING, "cannot open '%s'", shard->path);
    } else if (!S_ISREG(about.st_mode)) {
        status = fb_fail(error, FOREBAY_MISSING, "'%s' is no regular file", shard->path);
    } else {
        shard->bytes = (uint64_t)about.st_size;
        shard->mtime_ns = about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
        head->bytes = fb_min(shard->bytes, want);
        head->whole = head->bytes == shard->bytes;
        status = fb_read_exactly(fd, head->text, head->bytes, 0, error);
    }
    if (fd >= 0)
        close(fd);
    if (!status && shard->bytes == 0)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' is empty", shard->path);
    if (!status && head->whole && head->text[head->bytes - 1] != '\n')
        head->text[head->bytes++] = '\n';
    head->from = !status && head->bytes >= 3 && !memcmp(head->text, "\xef\xbb\xbf", 3) ? 3 : 0;
    return status;
}

static struct fb_csv head_scan(const struct head *head, char delimiter, uint64_t at)
{
    return (struct fb_csv){ .text = head->text,
                            .bytes = head->bytes,
                            .last = head->whole,
                            .delimiter = delimiter,
                            .at = at,
                            .cell = at };
}

/* Walk over the cells of the head from `at` on; stops when fn says so (not 0) and returns that. */
typedef int (*cell_fn)(void *data, unsigned column, const char *at, const char *end, bool last);

static int for_cells(const struct head *head, char delimiter, uint64_t at, cell_fn fn, void *data)
{
    struct fb_csv csv = head_scan(head, delimiter, at);
    uint64_t cell = at;
    unsigned column = 0, count;
    uint32_t ends[128];

    while ((count = fb_csv_scan(&csv, ends, 128))) {
        for (unsigned i = 0; i < count; i++) {
            const char *from = head->text + cell, *end = head->text + ends[i];
            bool last = *end == '\n';
            int stop;

            if (last && end > from && end[-1] == '\r')
                end--;
            if (from < end && *from == '"') {
                end = head->cell + fb_csv_unquote(from, end, head->cell);
                from = head->cell;
            }
            stop = fn(data, column, from, end, last);
            if (stop)
                return stop;
            column = last ? 0 : column + 1;
            cell = (uint64_t)ends[i] + 1;
        }
    }
    return 0;
}

/* How many rows of the first ten have as many cells as the first, more than one. */
struct fit {
    unsigned first, rows, good;
};

static int fit_cell(void *data, unsigned column, const char *at, const char *end, bool last)
{
    struct fit *fit = data;

    if (!last || (column == 0 && at == end))
        return 0;
    if (fit->rows++ == 0)
        fit->first = column;
    fit->good += column == fit->first && column > 0;
    return fit->rows == 10;
}

static char find_delimiter(const struct head *head)
{
    static const char choices[] = ",;\t|";
    unsigned best = 0;
    char found = ',';

    for (const char *choice = choices; *choice; choice++) {
        struct fit fit = { 0, 0, 0 };
        unsigned score;

        for_cells(head, *choice, head->from, fit_cell, &fit);
        score = fit.good == fit.rows ? 1000000 + fit.first : fit.good;
        if (fit.good && score > best) {
            best = score;
            found = *choice;
        }
    }
    return found;
}

static int read_delimiter(struct fb_table *table, const struct fb_config *config,
                          const struct head *head, forebay_error *error)
{
    const char *given = config->source_delimiter;

    if (!given || strcmp(given, "auto") == 0)
        table->delimiter = find_delimiter(head);
    else if (strcmp(given, "tab") == 0 || strcmp(given, "\\t") == 0)
        table->delimiter = '\t';
    else if (strlen(given) == 1 && !strchr("\"\r\n", *given))
        table->delimiter = *given;
    else {
        fb_fail(error, FOREBAY_BAD_CONFIG, "source.delimiter: '%s' is not one character", given);
        fb_config_place(config, "source.delimiter", error);
        return FOREBAY_BAD_CONFIG;
    }
    return FOREBAY_OK;
}

/* ---- Header ---- */

struct header {
    struct fb_table *table;
    const struct head *head;
    const char *path;
    bool named;   /* it is one; else it only counts the columns */
    bool compare; /* with what is there */
    bool number;  /* found in a cell */
    unsigned count;
    forebay_error *error;
    int status;
};

/* Names come back in messages, batches and JSON: they must be text. */
static bool is_utf8(const unsigned char *at, const unsigned char *end)
{
    while (at < end) {
        unsigned more = (*at >= 0xc2) + (*at >= 0xe0) + (*at >= 0xf0); /* bytes behind it */

        if ((*at >= 0x80 && *at < 0xc2) || *at > 0xf4 || (ptrdiff_t)more >= end - at ||
            (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
            (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f))
            return false;
        for (at++; more; more--, at++)
            if ((*at & 0xc0) != 0x80)
                return false;
    }
    return true;
}

static int name_column(struct header *header, unsigned column, const char *at, const char *end)
{
    struct fb_table_column *to = &header->table->columns[column];
    int length = (int)(end - at);

    if (memchr(at, '\0', (size_t)(end - at)))
        return fb_fail(header->error, FOREBAY_BAD_DATA,
                       "'%s' line 1 has a NUL byte: is this UTF-16, "
                       "or no text?",
                       header->path);
    if (header->named && !is_utf8((const unsigned char *)at, (const unsigned char *)end))
        return fb_fail(header->error, FOREBAY_BAD_DATA,
                       "'%s' line 1: the name of column %u is not UTF-8: is this a CSV file?",
                       header->path, column + 1);
    if (end - at >= FB_NAME_BYTES - 1)
        return fb_fail(header->error, FOREBAY_BAD_DATA,
                       "'%s' line 1: the name of column %u is "
                       "longer than %d bytes",
                       header->path, column + 1, FB_NAME_BYTES - 2);
    if (!header->named || length == 0)
        snprintf(to->name, sizeof(to->name), "c%u", column);
    else
        snprintf(to->name, sizeof(to->name), "%.*s%s", length, at,
                 length == 5 && memcmp(at, "index", 5) == 0 ? "_" : "");
    return FOREBAY_OK;
}

static int compare_column(struct header *header, unsigned column, const char *at, const char *end)
{
    const struct fb_table *table = header->table;
    struct fb_table_column one = { .name = "" };
    struct fb_table other = { .columns = &one };
    struct header single = {
        .table = &other, .path = header->path, .named = true, .error = header->error
    };
    int status;

    if (column >= table->column_count)
        return fb_fail(header->error, FOREBAY_BAD_DATA,
                       "'%s' line 1 has more columns than the %u of "
                       "'%s'",
                       header->path, table->column_count, table->shards[0].path);
    status = name_column(&single, 0, at, end);
    if (status || strcmp(one.name, table->columns[column].name) == 0 || at == end)
        return status;
    return fb_fail(header->error, FOREBAY_BAD_DATA,
                   "'%s' line 1: column %u is '%s', but '%s' in "
                   "'%s'; the parts of a table have the same header",
                   header->path, column + 1, one.name, table->columns[column].name,
                   table->shards[0].path);
}

static int header_cell(void *data, unsigned column, const char *at, const char *end, bool last)
{
    struct header *header = data;
    double number;

    header->number |= fb_number_f64(at, end, &number) == FB_NUMBER_OK;
    header->count = column + 1;
    if (header->compare)
        header->status = compare_column(header, column, at, end);
    else if (header->table->columns)
        header->status = name_column(header, column, at, end);
    return header->status || last;
}

/* Where the row that begins at `at` ends. */
static int skip_row(const struct head *head, char delimiter, uint64_t *at, const char *path,
                    forebay_error *error)
{
    struct fb_csv csv = head_scan(head, delimiter, *at);
    uint32_t ends[64];
    unsigned count;

    while ((count = fb_csv_scan(&csv, ends, 64)))
        for (unsigned i = 0; i < count; i++)
            if (head->text[ends[i]] == '\n') {
                *at = (uint64_t)ends[i] + 1;
                return FOREBAY_OK;
            }
    return fb_fail(error, FOREBAY_BAD_DATA, "'%s' line 1: %s", path,
                   csv.quoted ? "a quote is opened that does not close"
                              : "the line is longer than "
                                "2 MiB");
}

static int check_names(const struct fb_table *table, forebay_error *error)
{
    /* Columns are few: a table of their names would be longer than this. */
    for (unsigned i = 0; i < table->column_count && table->column_count <= 4096; i++)
        for (unsigned k = 0; k < i; k++)
            if (strcmp(table->columns[i].name, table->columns[k].name) == 0)
                return fb_fail(error, FOREBAY_BAD_DATA,
                               "'%s' line 1: columns %u and %u are both "
                               "called '%s'",
                               table->shards[0].path, k + 1, i + 1, table->columns[i].name);
    return FOREBAY_OK;
}

static int read_columns(struct fb_table *table, const struct fb_config *config,
                        const struct head *head, forebay_error *error)
{
    struct header header = {
        .table = table, .head = head, .path = table->shards[0].path, .error = error
    };

    for_cells(head, table->delimiter, head->from, header_cell, &header); /* only counts */
    if (header.count == 0)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "'%s' line 1: no cell ends within 2 MiB: a line longer than that is refused",
                       header.path);
    if (header.count > FB_TABLE_COLUMNS)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' line 1 has %u columns, expected 1 to %d",
                       header.path, header.count, FB_TABLE_COLUMNS);
    header.named = config->source_header == FB_HEADER_TRUE ||
                   (config->source_header == FB_HEADER_AUTO && !header.number);
    table->column_count = header.count;
    table->columns = fb_block_new(table->budget, FB_STAGE_INDEX, header.count,
                                  sizeof(*table->columns), "the columns", error);
    if (!table->columns)
        return fb_failed(error);
    for_cells(head, table->delimiter, head->from, header_cell, &header);
    if (header.status)
        return header.status;
    table->shards[0].lines = header.named;
    return check_names(table, error);
}

/* ---- Types ---- */

static int guess_cell(void *data, unsigned column, const char *at, const char *end, bool last)
{
    struct fb_table *table = data;
    struct fb_table_column *to;
    uint8_t type;

    (void)last;
    if (column >= table->column_count)
        return 1; /* ragged: the parser says so, with the line */
    to = &table->columns[column];
    if (to->given || (last && column == 0 && at == end))
        return 0;
    type = fb_table_is_missing(at, end) ? table->missing == FB_MISSING_NAN ? FB_CELL_F64 : 0
                                        : (uint8_t)fb_table_cell_type(at, end);
    if (type > to->type)
        to->type = type;
    return 0;
}

static int take_types(struct fb_table *table, const struct fb_config *config, forebay_error *error)
{
    static const char *const names[] = { "i64", "f32", "f64", "category" };
    const struct fb_pairs *types = &config->source_types;

    for (size_t i = 0; i < types->count; i++) {
        unsigned column = 0, type = 0;

        while (column < table->column_count && strcmp(table->columns[column].name, types->keys[i]))
            column++;
        while (type < 4 && strcmp(names[type], types->values[i]))
            type++;
        if (column < table->column_count && type < 4) {
            table->columns[column].type = (uint8_t)type;
            table->columns[column].given = true;
            continue;
        }
        if (type == 4)
            fb_fail(error, FOREBAY_BAD_CONFIG,
                    "source.types: '%s' of column '%s' is none of f32, "
                    "f64, i64, category",
                    types->values[i], types->keys[i]);
        else
            fb_fail(error, FOREBAY_BAD_CONFIG, "source.types: '%s' has no column '%s'",
                    table->shards[0].path, types->keys[i]);
        fb_config_place(config, "source.types", error);
        return FOREBAY_BAD_CONFIG;
    }
    return FOREBAY_OK;
}

static int read_missing(struct fb_table *table, const struct fb_config *config,
                        forebay_error *error)
{
    const char *rule = config->source_missing ? config->source_missing : "error";

    if (strcmp(rule, "error") == 0)
        table->missing = FB_MISSING_ERROR;
    else if (strcasecmp(rule, "nan") == 0)
        table->missing = FB_MISSING_NAN;
    else if (fb_number_f64(rule, rule + strlen(rule), &table->missing_value) == FB_NUMBER_OK)
        table->missing = FB_MISSING_VALUE;
    else {
        fb_fail(error, FOREBAY_BAD_CONFIG,
                "source.missing: '%s' is neither error, nan nor a number", rule);
        fb_config_place(config, "source.missing", error);
        return FOREBAY_BAD_CONFIG;
    }
    return FOREBAY_OK;
}

/* ---- All of it ---- */

static int look_at_shard(struct fb_table *table, uint64_t number, const struct fb_config *config,
                         struct head *head, forebay_error *error)
{
    struct fb_table_shard *shard = &table->shards[number];
    struct header header = { .table = table,
                             .head = head,
                             .path = shard->path,
                             .named = true,
                             .compare = true,
                             .error = error };
    int status = read_head(head, shard, GUESS_BYTES, error);

    if (!status && !memchr(head->text, '\n', head->bytes)) /* a long header */
        status = read_head(head, shard, FB_TABLE_TEXT_BYTES, error);
    if (status)
        return status;
    if (number == 0 && ((status = read_delimiter(table, config, head, error)) ||
                        (status = read_columns(table, config, head, error)) ||
                        (status = take_types(table, config, error))))
        return status;
    shard->lines = table->shards[0].lines;
    if (number && shard->lines) {
        for_cells(head, table->delimiter, head->from, header_cell, &header);
        if (header.status)
            return header.status;
        if (header.count != table->column_count)
            return fb_fail(error, FOREBAY_BAD_DATA, "'%s' line 1 has %u columns, but '%s' has %u",
                           shard->path, header.count, table->shards[0].path, table->column_count);
    }
    shard->data_at = head->from;
    if (shard->lines)
        status = skip_row(head, table->delimiter, &shard->data_at, shard->path, error);
    if (!status)
        for_cells(head, table->delimiter, shard->data_at, guess_cell, table);
    return status;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    while (*text)
        hash = fb_mix2(hash, (unsigned char)*text++);
    return fb_mix(hash);
}

static uint64_t hash_table(const struct fb_table *table)
{
    uint64_t hash = FORMAT;
    uint64_t bits;

    memcpy(&bits, &table->missing_value, sizeof(bits));
    hash = fb_mix2(hash, bits ^ (uint64_t)table->missing << 60);
    hash = fb_mix2(hash, (uint64_t)(unsigned char)table->delimiter << 8 | table->matrix);
    for (uint64_t i = 0; i < table->shard_count; i++) {
        const struct fb_table_shard *shard = &table->shards[i];

        hash = hash_text(hash, shard->path);
        hash = fb_mix2(hash, shard->bytes);
        hash = fb_mix2(hash, (uint64_t)shard->mtime_ns);
        hash = fb_mix2(hash, shard->lines);
    }
    for (unsigned i = 0; i < table->column_count; i++) {
        const struct fb_table_column *column = &table->columns[i];

        hash = hash_text(hash, column->name);
        hash = fb_mix2(hash, column->given ? (uint64_t)column->type + 1 : 0);
    }
    return hash;
}

uint64_t fb_table_fingerprint(const struct fb_table *table)
{
    uint64_t hash = fb_mix2(FB_KIND_TABLE, table->shard_count);

    for (uint64_t i = 0; i < table->shard_count; i++) {
        const char *slash = strrchr(table->shards[i].path, '/');

        hash = hash_text(hash, slash ? slash + 1 : table->shards[i].path);
        hash = fb_mix2(hash, table->shards[i].bytes);
    }
    return hash;
}

static int look_at_all(struct fb_table *table, const struct fb_config *config,
                       const struct fb_log *log, forebay_error *error)
{
    uint64_t room = FB_TABLE_TEXT_BYTES + FB_CSV_PADDING + 1;
    struct head head = { .bytes = 0 };
    int status = FOREBAY_OK;

    head.text = fb_block_new(table->budget, FB_STAGE_INDEX, room, 1, "reading headers", error);
    head.cell = fb_block_new(table->budget, FB_STAGE_INDEX, room, 1, "reading headers", error);
    if (!head.text || !head.cell)
        status = fb_failed(error);
    for (uint64_t i = 0; i < table->shard_count && !status; i++) {
        status = fb_progress(log, "parts", i, table->shard_count, error);
        if (!status)
            status = look_at_shard(table, i, config, &head, error);
    }
    fb_block_free(table->budget, FB_STAGE_INDEX, head.text, room, 1);
    fb_block_free(table->budget, FB_STAGE_INDEX, head.cell, room, 1);
    return status;
}

int fb_table_find(struct fb_table *table, const struct fb_config *config, struct fb_budget *budget,
                  const struct fb_log *log, forebay_error *error)
{
    int status;

    *table = (struct fb_table){ .budget = budget, .matrix = config->source_as == FB_AS_MATRIX };
    status = read_missing(table, config, error);
    if (!status)
        status = fb_table_find_shards(table, config, error);
    if (!status)
        status = look_at_all(table, config, log, error);
    if (status) {
        fb_table_release(table);
        return status;
    }
    fb_table_lay_out(table);
    table->identity = hash_table(table);
    return FOREBAY_OK;
}

void fb_table_release(struct fb_table *table)
{
    for (uint64_t i = 0; i < table->shard_count; i++)
        fb_block_free(table->budget, FB_STAGE_INDEX, table->shards[i].path,
                      table->shards[i].path_bytes, 1);
    fb_block_free(table->budget, FB_STAGE_INDEX, table->shards, table->shard_room,
                  sizeof(*table->shards));
    fb_block_free(table->budget, FB_STAGE_INDEX, table->columns, table->column_count,
                  sizeof(*table->columns));
    *table = (struct fb_table){ .budget = table->budget };
}

void fb_table_lay_out(struct fb_table *table)
{
    uint64_t end = 0;

    for (uint64_t size = 8; size >= 4; size -= 4) /* the large ones first: all are aligned */
        for (unsigned i = 0; i < table->column_count; i++) {
            struct fb_table_column *column = &table->columns[i];

            if (fb_cell_bytes(table, column->type) != size)
                continue;
            column->offset = (uint32_t)end;
            column->wider = column->type;
            end += size;
        }
    table->row_bytes = fb_round_up(end, end >= 8 && !table->matrix ? 8 : 4);
    table->block_rows = 1;
    while (2 * table->block_rows * table->row_bytes <= FB_TABLE_BLOCK_BYTES)
        table->block_rows *= 2;
}
