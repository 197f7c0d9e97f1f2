#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "decode/csv.h"
#include "decode/date.h"
#include "decode/number.h"
#include "memory/block.h"
#include "source/source.h"
#include "source/table/table.h"
#include "source/table/vocabulary.h"

#define LOOKAHEAD ((uint64_t)8 * 1024) /* behind a chunk, for the end of its last row */
#define ENDS 1024                      /* cells that are found before they are read */
#define WORD_BYTES_MAX 65535

/* ---- Room ---- */

/* A row takes at least a byte per cell: its delimiter. */
static uint64_t rows_room(const struct fb_table *table)
{
    return (FB_TABLE_CHUNK_BYTES / table->column_count + 2) * table->row_bytes;
}

uint64_t fb_table_chunk_bytes(const struct fb_table *table)
{
    return 2 * FB_TABLE_TEXT_BYTES + FB_CSV_PADDING + FB_NUMBER_PADDING + 1 +
           ENDS * sizeof(uint32_t) + rows_room(table) + table->column_count;
}

int fb_table_chunk_open(struct fb_table_chunk *chunk, const struct fb_table *table,
                        struct fb_vocabulary *const *vocabularies, forebay_error *error)
{
    struct fb_budget *budget = table->budget;

    *chunk = (struct fb_table_chunk){ .table = table, .vocabularies = vocabularies, .fd = -1 };
    chunk->rows_bytes = rows_room(table);
    chunk->text = fb_block_new(budget, FB_STAGE_SCRATCH, FB_TABLE_TEXT_BYTES + FB_CSV_PADDING + 1,
                               1, "parsing text", error);
    chunk->cell = fb_block_new(budget, FB_STAGE_SCRATCH, FB_TABLE_TEXT_BYTES + FB_NUMBER_PADDING, 1,
                               "parsing text", error);
    chunk->ends =
        fb_block_new(budget, FB_STAGE_SCRATCH, ENDS, sizeof(*chunk->ends), "parsing text", error);
    chunk->rows =
        fb_block_new(budget, FB_STAGE_SCRATCH, chunk->rows_bytes, 1, "parsed rows", error);
    chunk->more =
        fb_block_new(budget, FB_STAGE_SCRATCH, table->column_count, 1, "parsed types", error);
    if (chunk->text && chunk->cell && chunk->ends && chunk->rows && chunk->more)
        return FOREBAY_OK;
    fb_table_chunk_close(chunk);
    return fb_failed(error);
}

void fb_table_chunk_close(struct fb_table_chunk *chunk)
{
    struct fb_budget *budget = chunk->table->budget;

    fb_block_free(budget, FB_STAGE_SCRATCH, chunk->text, FB_TABLE_TEXT_BYTES + FB_CSV_PADDING + 1,
                  1);
    fb_block_free(budget, FB_STAGE_SCRATCH, chunk->cell, FB_TABLE_TEXT_BYTES + FB_NUMBER_PADDING,
                  1);
    fb_block_free(budget, FB_STAGE_SCRATCH, chunk->ends, ENDS, sizeof(*chunk->ends));
    fb_block_free(budget, FB_STAGE_SCRATCH, chunk->rows, chunk->rows_bytes, 1);
    fb_block_free(budget, FB_STAGE_SCRATCH, chunk->more, chunk->table->column_count, 1);
}

/* ---- A cell ---- */

/* As much of the cell as a message should have, without what a terminal would obey. */
static void show(char text[48], const char *at, const char *end)
{
    unsigned used = 0;

    for (; at < end && used < 40; at++)
        text[used++] = *at >= ' ' && (unsigned char)*at < 127 ? *at : '?'; /* no half characters */
    memcpy(text + used, at < end ? "..." : "", at < end ? 4 : 1);
}

static int fail_cell(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                     const char *at, const char *end, const char *what)
{
    char text[48];

    chunk->error_line = chunk->line_count;
    chunk->error_column = column->name;
    show(text, at, end);
    return fb_fail(&chunk->error, FOREBAY_BAD_DATA, "'%s' %s", text, what);
}

/* Reported when the chunk has its turn: one that began at the wrong place knows nothing. */
static int widen(struct fb_table_chunk *chunk, const struct fb_table_column *column, uint8_t seen)
{
    chunk->widened = true;
    chunk->more[column - chunk->table->columns] |= seen;
    return FOREBAY_OK;
}

static int widen_by(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                    const char *at, const char *end)
{
    return widen(chunk, column, fb_table_cell_seen(chunk->table, at, end));
}

static int store(struct fb_table_chunk *chunk, const struct fb_table_column *column, double value,
                 const char *at, const char *end, char *to)
{
    float small = (float)value;

    if (!chunk->table->matrix && column->type == FB_CELL_F64) {
        memcpy(to, &value, sizeof(value));
        return FOREBAY_OK;
    }
    if (isinf(small) && !isinf(value))
        return fail_cell(chunk, column, at, end, "is too large for f32");
    memcpy(to, &small, sizeof(small));
    return FOREBAY_OK;
}

/* The whole number that source.missing has for a column of type i64, u64, bool or date. */
static bool missing_integer(const struct fb_table *table, uint8_t type, int64_t *value)
{
    double given = table->missing_value;

    if (table->missing == FB_MISSING_NAN && (type == FB_CELL_DATE || type == FB_CELL_TIME)) {
        *value = INT64_MIN; /* NumPy's "not a time" */
        return true;
    }
    if (table->missing != FB_MISSING_VALUE || !(fabs(given) < 9e18) || floor(given) != given ||
        (type == FB_CELL_U64 && given < 0) || (type == FB_CELL_BOOL && given != 0 && given != 1))
        return false;
    *value = (int64_t)given;
    return true;
}

static int put_missing(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                       const char *at, const char *end, char *to)
{
    const struct fb_table *table = chunk->table;
    int64_t integer = 0;
    int32_t none = -1;
    uint8_t truth;

    if (table->missing == FB_MISSING_ERROR)
        return fail_cell(chunk, column, at, end,
                         "is no value; source.missing: nan or a number says "
                         "what to put there");
    if (column->type == FB_CELL_CATEGORY) {
        memcpy(to, &none, sizeof(none)); /* becomes f32 with all other codes, see table_convert.c */
        return FOREBAY_OK;
    }
    if (column->type == FB_CELL_F32 || column->type == FB_CELL_F64 || table->matrix)
        return store(chunk, column,
                     table->missing == FB_MISSING_NAN ? (double)NAN : table->missing_value, at, end,
                     to);
    if (missing_integer(table, column->type, &integer)) {
        truth = integer != 0;
        if (column->type == FB_CELL_BOOL)
            memcpy(to, &truth, sizeof(truth));
        else
            memcpy(to, &integer, sizeof(integer));
        return FOREBAY_OK;
    }
    if (column->given || column->type == FB_CELL_U64 || column->type == FB_CELL_DATE ||
        column->type == FB_CELL_TIME)
        return fail_cell(chunk, column, at, end,
                         "is no value, and source.missing has none that a column of whole numbers "
                         "takes: give it type f64 or category, or missing a whole number");
    return widen(chunk, column, FB_SEEN_MISSING);
}

static int put_i64(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                   const char *at, const char *end, char *to)
{
    int64_t value;
    enum fb_number found = fb_number_i64_padded(at, end, &value);

    if (found == FB_NUMBER_OK) {
        if (chunk->table->matrix)
            return store(chunk, column, (double)value, at, end, to);
        memcpy(to, &value, sizeof(value));
        return FOREBAY_OK;
    }
    if (fb_table_is_missing(at, end))
        return put_missing(chunk, column, at, end, to);
    if (column->given)
        return fail_cell(chunk, column, at, end,
                         found == FB_NUMBER_RANGE ? "is too large for i64" : "is no i64");
    return widen_by(chunk, column, at, end);
}

static int put_u64(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                   const char *at, const char *end, char *to)
{
    uint64_t value;
    enum fb_number found = fb_number_u64(at, end, &value);

    if (found == FB_NUMBER_OK) {
        if (chunk->table->matrix)
            return store(chunk, column, (double)value, at, end, to);
        memcpy(to, &value, sizeof(value));
        return FOREBAY_OK;
    }
    if (fb_table_is_missing(at, end))
        return put_missing(chunk, column, at, end, to);
    if (found == FB_NUMBER_RANGE)
        return fail_cell(chunk, column, at, end,
                         column->given
                             ? "is not between 0 and 18446744073709551615 (u64)"
                             : "is a whole number that fits neither i64 nor, with the others of "
                               "its column, u64: source.types can make the column f64 (rounded) "
                               "or category");
    if (column->given)
        return fail_cell(chunk, column, at, end, "is no u64");
    return widen_by(chunk, column, at, end);
}

static int put_bool(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                    const char *at, const char *end, char *to)
{
    bool value;
    uint8_t stored;

    if (!fb_table_bool(at, end, &value)) {
        bool digit = column->given && end - at == 1 && (*at == '0' || *at == '1');

        if (!digit && fb_table_is_missing(at, end))
            return put_missing(chunk, column, at, end, to);
        if (!digit && column->given)
            return fail_cell(chunk, column, at, end, "is none of true, false, 1 and 0");
        if (!digit)
            return widen_by(chunk, column, at, end);
        value = *at == '1';
    }
    if (chunk->table->matrix)
        return store(chunk, column, (double)value, at, end, to);
    stored = value;
    memcpy(to, &stored, sizeof(stored));
    return FOREBAY_OK;
}

/* A date as days, a time as nanoseconds. */
static int put_time(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                    const char *at, const char *end, char *to)
{
    bool days = column->type == FB_CELL_DATE;
    int64_t value;
    enum fb_number found = days ? fb_date_days(at, end, &value) : fb_date_ns(at, end, &value);

    if (found == FB_NUMBER_RANGE)
        return fail_cell(chunk, column, at, end,
                         "is not between the years 1677 and 2262, which i64 holds in nanoseconds: "
                         "source.types can make the column category");
    if (found == FB_NUMBER_OK && chunk->table->matrix && !days)
        return fail_cell(chunk, column, at, end,
                         "is a time in nanoseconds, which f32 does not hold: use source.as: "
                         "columns, or leave the column out of the file");
    if (found == FB_NUMBER_OK && chunk->table->matrix)
        return store(chunk, column, (double)value, at, end, to);
    if (found == FB_NUMBER_OK) {
        memcpy(to, &value, sizeof(value));
        return FOREBAY_OK;
    }
    if (fb_table_is_missing(at, end))
        return put_missing(chunk, column, at, end, to);
    if (column->given)
        return fail_cell(chunk, column, at, end,
                         days ? "is no date like 2024-02-29"
                              : "is no time like 2024-02-29 13:45:30");
    return widen_by(chunk, column, at, end);
}

static int put_real(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                    const char *at, const char *end, char *to)
{
    double value;
    enum fb_number found = fb_number_f64_padded(at, end, &value);

    if (found == FB_NUMBER_OK && !isnan(value))
        return store(chunk, column, value, at, end, to);
    if (found == FB_NUMBER_RANGE)
        return fail_cell(chunk, column, at, end, "is too large for f64");
    if (found == FB_NUMBER_OK || fb_table_is_missing(at, end))
        return put_missing(chunk, column, at, end, to);
    if (column->given)
        return fail_cell(chunk, column, at, end, "is no number");
    return widen_by(chunk, column, at, end);
}

/* A known word is its code; for a new one ~place of its cell in the text, which the thread that
 * may add words turns into one. */
static int put_word(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                    const char *at, const char *end, const char *raw, char *to)
{
    const struct fb_vocabulary *words = chunk->vocabularies[column - chunk->table->columns];
    int32_t code;

    if (fb_table_is_missing(at, end))
        return put_missing(chunk, column, at, end, to);
    if (end - at > WORD_BYTES_MAX)
        return fail_cell(chunk, column, at, end, "is longer than 65535 bytes");
    if (memchr(at, '\0', (size_t)(end - at)))
        return fail_cell(chunk, column, at, end, "has a NUL byte: is this UTF-16, or no text?");
    if (*raw != '"' && memchr(at, chunk->shard->line == '\r' ? '\n' : '\r', (size_t)(end - at)))
        return fail_cell(chunk, column, at, end,
                         chunk->shard->line == '\r'
                             ? "has a line feed, but the first line ends in a carriage return "
                               "alone: make all line ends alike, or quote the cell"
                             : "has a carriage return without a line feed: make all line ends "
                               "alike, or quote the cell");
    code = fb_vocabulary_find(words, at, (uint64_t)(end - at));
    if (code < 0)
        code = -2 - (int32_t)(raw - chunk->text); /* -1 is a missing one */
    memcpy(to, &code, sizeof(code));
    return FOREBAY_OK;
}

static const char *cell_end(const struct fb_table_chunk *chunk, const char *at)
{
    struct fb_csv csv = { .text = chunk->text,
                          .delimiter = chunk->table->delimiter,
                          .line = chunk->shard->line,
                          .last = true,
                          .at = (uint64_t)(at - chunk->text),
                          .cell = (uint64_t)(at - chunk->text),
                          .bytes = FB_TABLE_TEXT_BYTES + 1 };
    uint32_t ends[64];

    return fb_csv_scan(&csv, ends, 64) ? chunk->text + ends[0] : at;
}

/* The cell without its quotes and without the \r of its line's end. */
static inline void clean(const struct fb_table_chunk *chunk, const char **at, const char **end)
{
    if (*at < *end && (*end)[-1] == '\r' && **end == '\n')
        --*end;
    if (*at < *end && **at == '"') {
        uint64_t bytes = fb_csv_unquote(*at, *end, chunk->cell);

        *at = chunk->cell;
        *end = chunk->cell + bytes;
    }
}

void fb_table_chunk_word(struct fb_table_chunk *chunk, int32_t code, const char **word,
                         uint64_t *bytes)
{
    const char *at = chunk->text + (-2 - code), *end = cell_end(chunk, at);

    clean(chunk, &at, &end);
    *word = at;
    *bytes = (uint64_t)(end - at);
}

static inline int put_cell(struct fb_table_chunk *chunk, const struct fb_table_column *column,
                           const char *at, const char *end, char *row)
{
    const char *raw = at;
    char *to = row + column->offset;

    if (__builtin_expect(at < end && (*at == '"' || end[-1] == '\r'), 0)) {
        char ends = chunk->shard->line;

        for (const char *line = at; (line = memchr(line, ends, (size_t)(end - line))); line++)
            chunk->line_count++;
        clean(chunk, &at, &end);
    }
    switch (column->type) {
    case FB_CELL_I64:
        return put_i64(chunk, column, at, end, to);
    case FB_CELL_CATEGORY:
        return put_word(chunk, column, at, end, raw, to);
    case FB_CELL_U64:
        return put_u64(chunk, column, at, end, to);
    case FB_CELL_BOOL:
        return put_bool(chunk, column, at, end, to);
    case FB_CELL_DATE:
    case FB_CELL_TIME:
        return put_time(chunk, column, at, end, to);
    default:
        return put_real(chunk, column, at, end, to);
    }
}

/* ---- A chunk ---- */

/* Where the parser is in the text. */
struct parse {
    struct fb_csv csv;
    uint64_t loaded;    /* bytes of text */
    uint64_t row, cell; /* where they begin in the text */
    unsigned column;
    bool done;
};

static int fail_row(struct fb_table_chunk *chunk, const char *what)
{
    chunk->error_line = chunk->line_count;
    return fb_fail(&chunk->error, FOREBAY_BAD_DATA, "%s", what);
}

/* Read on until `want` bytes are there, or the file ends. */
static int fill_text(struct fb_table_chunk *chunk, struct parse *parse, uint64_t want)
{
    uint64_t left = chunk->shard->bytes - chunk->text_at - parse->loaded;
    uint64_t bytes = fb_min(left, fb_min(want, FB_TABLE_TEXT_BYTES) - parse->loaded);
    int status = fb_read_exactly(chunk->fd, chunk->text + parse->loaded, bytes,
                                 chunk->text_at + parse->loaded, &chunk->error);

    if (status)
        return status;
    parse->loaded += bytes;
    parse->csv.bytes = parse->loaded;
    parse->csv.last = bytes == left;
    if (parse->csv.last && parse->loaded && chunk->text[parse->loaded - 1] != parse->csv.line) {
        chunk->text[parse->loaded] = parse->csv.line; /* there is a byte more than a text needs */
        parse->csv.bytes++;
    }
    return FOREBAY_OK;
}

static int end_row(struct fb_table_chunk *chunk, struct parse *parse, uint64_t end)
{
    const struct fb_table *table = chunk->table;
    char *text = chunk->text;
    bool blank = parse->column == 0 &&
                 (end == parse->cell || (end == parse->cell + 1 && text[parse->cell] == '\r'));

    if (!blank && parse->column + 1 != table->column_count) {
        chunk->error_line = chunk->line_count;
        return fb_fail(&chunk->error, FOREBAY_BAD_DATA, "the row has %u cells, expected %u",
                       parse->column + 1, table->column_count);
    }
    if (!blank) {
        int status = put_cell(chunk, &table->columns[parse->column], text + parse->cell, text + end,
                              chunk->rows + chunk->row_count * table->row_bytes);

        if (status)
            return status;
        chunk->row_count++;
    }
    chunk->line_count++;
    parse->column = 0;
    parse->row = parse->cell = end + 1;
    parse->done = chunk->text_at + parse->row >= chunk->limit;
    return FOREBAY_OK;
}

static int take_ends(struct fb_table_chunk *chunk, struct parse *parse, unsigned count)
{
    const struct fb_table *table = chunk->table;
    const char *text = chunk->text;
    uint64_t row_bytes = table->row_bytes;
    char line = parse->csv.line;
    int status;

    for (unsigned i = 0; i < count && !parse->done; i++) {
        uint64_t end = chunk->ends[i];

        if (text[end] == line) {
            status = end_row(chunk, parse, end);
        } else if (parse->column + 1 < table->column_count) {
            status = put_cell(chunk, &table->columns[parse->column++], text + parse->cell,
                              text + end, chunk->rows + chunk->row_count * row_bytes);
            parse->cell = end + 1;
        } else {
            chunk->error_line = chunk->line_count;
            status = fb_fail(&chunk->error, FOREBAY_BAD_DATA,
                             "the row has more than the %u cells "
                             "expected",
                             table->column_count);
        }
        if (status)
            return status;
    }
    return FOREBAY_OK;
}

static int fail_long(struct fb_table_chunk *chunk, const struct parse *parse)
{
    if (parse->csv.quoted)
        return fail_row(chunk, parse->csv.last ? "a quote is opened that never closes"
                                               : "a quote is opened that does not close within "
                                                 "2 MiB");
    return fail_row(chunk, "the line is longer than 2 MiB");
}

static int parse_rows(struct fb_table_chunk *chunk, struct parse *parse)
{
    while (!parse->done) {
        unsigned count = fb_csv_scan(&parse->csv, chunk->ends, ENDS);
        int status;

        if (count) {
            status = take_ends(chunk, parse, count);
        } else if (!parse->csv.last && parse->loaded < FB_TABLE_TEXT_BYTES) {
            status = fill_text(chunk, parse, 2 * parse->loaded);
        } else if (parse->row < parse->csv.bytes) {
            return fail_long(chunk, parse);
        } else {
            return FOREBAY_OK;
        }
        if (status)
            return status;
    }
    return FOREBAY_OK;
}

/* Where the first line begins at or behind `from`, of which the byte before is text[0]. */
static bool find_line(struct fb_table_chunk *chunk, struct parse *parse)
{
    for (;;) {
        const char *line = memchr(chunk->text, parse->csv.line, parse->csv.bytes);

        if (line) {
            parse->row = (uint64_t)(line + 1 - chunk->text);
            return true;
        }
        if (parse->csv.last || parse->loaded == FB_TABLE_TEXT_BYTES ||
            fill_text(chunk, parse, FB_TABLE_TEXT_BYTES))
            return false;
    }
}

void fb_table_chunk_parse(struct fb_table_chunk *chunk, uint64_t start, uint64_t guess_from)
{
    bool guess = start == UINT64_MAX;
    struct parse parse = { .csv = { .text = chunk->text,
                                    .delimiter = chunk->table->delimiter,
                                    .line = chunk->shard->line } };

    chunk->text_at = guess ? guess_from - 1 : start;
    chunk->row_count = chunk->line_count = 0;
    if (chunk->widened)
        memset(chunk->more, 0, chunk->table->column_count);
    chunk->widened = false;
    chunk->error_column = NULL;
    chunk->start = chunk->end = fb_min(chunk->text_at, chunk->shard->bytes);
    chunk->status = FOREBAY_OK;
    if (chunk->text_at >= chunk->shard->bytes || (!guess && start >= chunk->limit))
        return;
    chunk->status =
        fill_text(chunk, &parse, fb_max(chunk->limit, chunk->text_at) - chunk->text_at + LOOKAHEAD);
    if (chunk->status || (guess && !find_line(chunk, &parse)))
        return;
    parse.csv.at = parse.csv.cell = parse.cell = parse.row;
    chunk->start = chunk->text_at + parse.row;
    parse.done = chunk->start >= chunk->limit;
    chunk->status = parse_rows(chunk, &parse);
    chunk->end = fb_min(chunk->text_at + parse.row, chunk->shard->bytes);
}
