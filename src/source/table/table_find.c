#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mix.h"
#include "base/size.h"
#include "decode/number.h"
#include "memory/block.h"
#include "source/source.h"
#include "source/sort.h"
#include "source/table/table_head.h"

#define GUESS_BYTES ((uint64_t)64 * 1024) /* of each shard, for the first guess of the types */
#define FORMAT 3                          /* of the converted file: raise it when it changes */

/* ---- Delimiter ---- */

static int read_delimiter(struct fb_table *table, const struct fb_config *config,
                          const struct fb_table_head *head, forebay_error *error)
{
    const char *given = config->source_delimiter;

    if (!given || strcmp(given, "auto") == 0)
        table->delimiter = fb_table_head_delimiter(head);
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
    const char *path;
    uint64_t line;
    bool named;   /* it is one; else it only counts the columns */
    bool compare; /* with what is there */
    unsigned numbers; /* cells that are one */
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
                       "'%s' line %" PRIu64 " has a NUL byte: is this UTF-16, or no text?",
                       header->path, header->line);
    if (header->named && !is_utf8((const unsigned char *)at, (const unsigned char *)end))
        return fb_fail(header->error, FOREBAY_BAD_DATA,
                       "'%s' line %" PRIu64
                       ": the name of column %u is not UTF-8: is this a CSV file?",
                       header->path, header->line, column + 1);
    if (end - at >= FB_NAME_BYTES - 1)
        return fb_fail(header->error, FOREBAY_BAD_DATA,
                       "'%s' line %" PRIu64
                       ": the name of column %u is longer than %d bytes",
                       header->path, header->line, column + 1, FB_NAME_BYTES - 2);
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
    struct header single = { .table = &other,
                             .path = header->path,
                             .line = header->line,
                             .named = true,
                             .error = header->error };
    int status;

    if (column >= table->column_count)
        return fb_fail(header->error, FOREBAY_BAD_DATA,
                       "'%s' line %" PRIu64 " has more columns than the %u of '%s'",
                       header->path, header->line, table->column_count, table->shards[0].path);
    status = name_column(&single, 0, at, end);
    if (status || strcmp(one.name, table->columns[column].name) == 0 || at == end)
        return status;
    return fb_fail(header->error, FOREBAY_BAD_DATA,
                   "'%s' line %" PRIu64 ": column %u is '%s', but '%s' in '%s'; the parts of a "
                   "table have the same header",
                   header->path, header->line, column + 1, one.name, table->columns[column].name,
                   table->shards[0].path);
}

static int header_cell(void *data, unsigned column, const char *at, const char *end, bool last)
{
    struct header *header = data;
    double number;

    header->numbers += fb_number_f64(at, end, &number) == FB_NUMBER_OK;
    header->count = column + 1;
    if (header->compare)
        header->status = compare_column(header, column, at, end);
    else if (header->table->columns)
        header->status = name_column(header, column, at, end);
    return header->status || last;
}

static int compare_names(const void *a, const void *b, const void *data)
{
    const struct fb_table_column *columns = data;
    uint32_t one = *(const uint32_t *)a, two = *(const uint32_t *)b;
    int order = strcmp(columns[one].name, columns[two].name);

    return order ? order : one < two ? -1 : one > two;
}

/* Columns are asked for by name: no two may have the same. */
static int check_names(const struct fb_table *table, uint64_t line, forebay_error *error)
{
    uint32_t count = table->column_count;
    uint32_t *sorted = fb_block_new(table->budget, FB_STAGE_INDEX, count, sizeof(*sorted),
                                    "the columns' names", error);
    int status = FOREBAY_OK;

    if (!sorted)
        return fb_failed(error);
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = i;
    fb_sort(sorted, count, sizeof(*sorted), compare_names, table->columns);
    for (uint32_t i = 1; i < count && !status; i++) {
        const char *name = table->columns[sorted[i]].name;

        if (strcmp(table->columns[sorted[i - 1]].name, name) == 0)
            status = fb_fail(error, FOREBAY_BAD_DATA,
                             "'%s' line %" PRIu64 ": columns %u and %u are both called '%s'; "
                             "rename one of them",
                             table->shards[0].path, line, sorted[i - 1] + 1, sorted[i] + 1, name);
    }
    fb_block_free(table->budget, FB_STAGE_INDEX, sorted, count, sizeof(*sorted));
    return status;
}

/* A first line with numbers is data, unless source.header says otherwise: that may be wrong. */
static void say_header(const struct fb_table *table, const struct header *header,
                       const struct fb_log *log)
{
    if (header->numbers)
        fb_warn(log,
                "'%s' line %" PRIu64 " is taken as data, not as the names of the columns: %u of "
                "its %u cells are numbers. source.header: true takes it as names, false as data "
                "without this warning",
                table->shards[0].path, header->line, header->numbers, header->count);
}

static int read_columns(struct fb_table *table, const struct fb_config *config,
                        const struct fb_table_head *head, const struct fb_log *log,
                        forebay_error *error)
{
    struct header header = { .table = table,
                             .path = table->shards[0].path,
                             .line = head->lines + 1,
                             .error = error };

    fb_table_head_cells(head, table->delimiter, head->from, header_cell, &header); /* only counts */
    if (header.count == 0)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "'%s' line %" PRIu64
                       ": no cell ends within 2 MiB: a line longer than that is refused",
                       header.path, header.line);
    if (header.count > FB_TABLE_COLUMNS)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "'%s' line %" PRIu64 " has %u columns, expected 1 to %d", header.path,
                       header.line, header.count, FB_TABLE_COLUMNS);
    header.named = config->source_header == FB_HEADER_TRUE ||
                   (config->source_header == FB_HEADER_AUTO && !header.numbers);
    if (config->source_header == FB_HEADER_AUTO)
        say_header(table, &header, log);
    table->column_count = header.count;
    table->columns = fb_block_new(table->budget, FB_STAGE_INDEX, header.count,
                                  sizeof(*table->columns), "the columns", error);
    if (!table->columns)
        return fb_failed(error);
    fb_table_head_cells(head, table->delimiter, head->from, header_cell, &header);
    if (header.status)
        return header.status;
    table->named = header.named;
    return check_names(table, header.line, error);
}

/* ---- Types ---- */

static int guess_cell(void *data, unsigned column, const char *at, const char *end, bool last)
{
    struct fb_table *table = data;
    struct fb_table_column *to;

    (void)last;
    if (column >= table->column_count)
        return 1; /* ragged: the parser says so, with the line */
    to = &table->columns[column];
    if (to->given || (last && column == 0 && at == end))
        return 0;
    if (!fb_table_is_missing(at, end))
        to->seen |= fb_table_cell_seen(table, at, end);
    else if (table->missing == FB_MISSING_NAN)
        to->seen |= FB_SEEN_MISSING;
    to->type = fb_table_type_of(to->seen);
    return 0;
}

static int take_types(struct fb_table *table, const struct fb_config *config, forebay_error *error)
{
    const struct fb_pairs *types = &config->source_types;

    for (size_t i = 0; i < types->count; i++) {
        unsigned column = 0, type = 0;

        while (column < table->column_count && strcmp(table->columns[column].name, types->keys[i]))
            column++;
        while (type < FB_CELL_COUNT && strcmp(fb_cell_names[type], types->values[i]))
            type++;
        if (column < table->column_count && type < FB_CELL_COUNT) {
            table->columns[column].type = (uint8_t)type;
            table->columns[column].given = true;
            continue;
        }
        if (type == FB_CELL_COUNT)
            fb_fail(error, FOREBAY_BAD_CONFIG,
                    "source.types: '%s' of column '%s' is none of f32, f64, i64, category, u64, "
                    "bool, date, datetime",
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

/* The header of a part after the first must be the first's. */
static int compare_header(struct fb_table *table, uint64_t number, const struct fb_table_head *head,
                          forebay_error *error)
{
    struct header header = { .table = table,
                             .path = table->shards[number].path,
                             .line = head->lines + 1,
                             .named = true,
                             .compare = true,
                             .error = error };

    fb_table_head_cells(head, table->delimiter, head->from, header_cell, &header);
    if (!header.status && header.count != table->column_count)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "'%s' line %" PRIu64 " has %u columns, but '%s' has %u", header.path,
                       header.line, header.count, table->shards[0].path, table->column_count);
    return header.status;
}

static int look_at_shard(struct fb_table *table, uint64_t number, const struct fb_config *config,
                         struct fb_table_head *head, const struct fb_log *log,
                         forebay_error *error)
{
    struct fb_table_shard *shard = &table->shards[number];
    int status = fb_table_head_read(head, shard, GUESS_BYTES, error);

    if (!status && !memchr(head->text + head->from, head->line, head->bytes - head->from))
        status = fb_table_head_read(head, shard, FB_TABLE_TEXT_BYTES, error); /* a long header */
    if (status)
        return status;
    if (number == 0 && ((status = read_delimiter(table, config, head, error)) ||
                        (status = read_columns(table, config, head, log, error)) ||
                        (status = take_types(table, config, error))))
        return status;
    if (number && table->named)
        status = compare_header(table, number, head, error);
    shard->lines = head->lines;
    shard->data_at = head->from;
    if (!status && table->named)
        status = fb_table_head_skip_row(head, table->delimiter, &shard->data_at, &shard->lines,
                                        shard->path, error);
    if (!status)
        fb_table_head_cells(head, table->delimiter, shard->data_at, guess_cell, table);
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
    hash = fb_mix2(hash, (uint64_t)(unsigned char)table->delimiter << 8 | table->matrix |
                             (uint64_t)table->named << 1);
    for (uint64_t i = 0; i < table->shard_count; i++) {
        const struct fb_table_shard *shard = &table->shards[i];

        hash = hash_text(hash, shard->path);
        hash = fb_mix2(hash, shard->bytes);
        hash = fb_mix2(hash, (uint64_t)shard->mtime_ns);
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
    struct fb_table_head head;
    int status = fb_table_head_open(&head, table->budget, error);

    if (status)
        return status;
    for (uint64_t i = 0; i < table->shard_count && !status; i++) {
        status = fb_progress(log, "parts", i, table->shard_count, error);
        if (!status)
            status = look_at_shard(table, i, config, &head, log, error);
    }
    fb_table_head_close(&head);
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
            end += size;
        }
    table->row_bytes = fb_round_up(end, end >= 8 && !table->matrix ? 8 : 4);
    table->block_rows = 1;
    while (2 * table->block_rows * table->row_bytes <= FB_TABLE_BLOCK_BYTES)
        table->block_rows *= 2;
}
