/*
 * table.h -- a CSV file, or its shards, as a set of typed rows.
 *
 *   table_shards.c   name.csv, or name_part1.csv ...
 *   table_head.c     the beginning of a part, its delimiter and cells
 *   table_find.c     the header, a first guess of the types
 *   table_type.c     what a cell is, and the type that takes all of a column
 *   table_parse.c    a chunk of text to rows
 *   table_convert.c  all chunks, in parallel, to the converted file; types found too narrow on the
 *                    way are widened and it is done again
 *   table_file.c     the converted file: written once, checked, read with pread
 *   vocabulary.c     the words of a category column and their codes
 */
#ifndef FB_SOURCE_TABLE_H
#define FB_SOURCE_TABLE_H
#include "source/source.h"

#define FB_TABLE_COLUMNS 65536
#define FB_TABLE_SHARDS 65536
#define FB_TABLE_BLOCK_BYTES ((uint64_t)1 << 20)
#define FB_TABLE_CHUNK_BYTES ((uint64_t)256 * 1024) /* of text: what a thread parses at once */
#define FB_TABLE_TEXT_BYTES ((uint64_t)2 << 20)     /* a row must fit in this */

/* What a column is. */
enum fb_cell {
    FB_CELL_I64,
    FB_CELL_U64,
    FB_CELL_F32, /* only if source.types says so */
    FB_CELL_F64,
    FB_CELL_BOOL,
    FB_CELL_DATE, /* i64: days since 1970-01-01 */
    FB_CELL_TIME, /* i64: nanoseconds since then, UTC */
    FB_CELL_CATEGORY,
    FB_CELL_COUNT
};
extern const char *const fb_cell_names[FB_CELL_COUNT]; /* in source.types */

/* What was seen in a column; its type is the one that takes all of it. */
enum fb_seen {
    FB_SEEN_I64 = 1,
    FB_SEEN_U64 = 2, /* a whole number that i64 does not hold */
    FB_SEEN_F64 = 4,
    FB_SEEN_BOOL = 8,
    FB_SEEN_DATE = 16,
    FB_SEEN_TIME = 32,
    FB_SEEN_WORD = 64,
    FB_SEEN_MISSING = 128, /* a missing value for which the type has none */
};

enum fb_missing { FB_MISSING_ERROR, FB_MISSING_NAN, FB_MISSING_VALUE };

struct fb_table_column {
    char name[FB_NAME_BYTES];
    uint32_t offset; /* in a row */
    uint8_t type;    /* enum fb_cell */
    bool given;      /* by source.types */
    uint8_t seen;    /* enum fb_seen, all that the type was made from */
    uint8_t more;    /* seen while parsing and not taken by the type; of the chunk that has its turn */
};

struct fb_table_shard {
    char *path; /* in a block of path_bytes */
    uint64_t path_bytes;
    uint64_t bytes;
    int64_t mtime_ns;
    uint64_t data_at; /* where the first row of data begins */
    uint64_t lines;   /* before it */
    char line;        /* what lines end in: see csv.h */
};

struct fb_table {
    struct fb_budget *budget;
    uint64_t shard_count, shard_room;
    struct fb_table_shard *shards;
    unsigned column_count;
    struct fb_table_column *columns;
    char delimiter;
    bool named;  /* the first line of every part has the columns' names */
    bool matrix; /* all columns are stored as f32 */
    int missing; /* enum fb_missing */
    double missing_value;
    uint64_t row_bytes;
    uint64_t block_rows; /* a power of two */
    uint64_t identity;   /* of the shards and of every setting that matters */
};

/* Find the shards of source.path and what is in them. On failure there is nothing to release. */
int fb_table_find(struct fb_table *table, const struct fb_config *config, struct fb_budget *budget,
                  const struct fb_log *log, forebay_error *error);
void fb_table_release(struct fb_table *table);
/* Depends on the names and sizes of the shards only: see fingerprint in source.h. */
uint64_t fb_table_fingerprint(const struct fb_table *table);
/* Only the shards' paths; what there was when it fails, release gives back. */
int fb_table_find_shards(struct fb_table *table, const struct fb_config *config,
                         forebay_error *error);
/* Where each column lies in a row, from the types. */
void fb_table_lay_out(struct fb_table *table);

/* ---- A chunk of text ---- */

struct fb_vocabulary;

/* One thread's own: room for text and rows, and what came out of a chunk. */
struct fb_table_chunk {
    const struct fb_table *table;
    struct fb_vocabulary *const *vocabularies; /* per column, NULL where it is no category */
    char *text;                                /* FB_TABLE_TEXT_BYTES and some */
    char *cell;                                /* FB_TABLE_TEXT_BYTES: a cell without its quotes */
    uint32_t *ends;
    char *rows;
    uint64_t rows_bytes; /* room */

    /* What is to be parsed: the rows of a shard that begin before `limit`. */
    int fd;
    const struct fb_table_shard *shard;
    uint64_t limit;

    /* What came out: */
    uint64_t start, end; /* where the first row began, and where the next chunk's first does */
    uint64_t text_at;    /* the place in the file of text[0] */
    uint64_t row_count, line_count;
    bool widened;  /* some column needs another type: the rows are of no use */
    uint8_t *more; /* [columns]: what was seen that its type does not take */
    int status;
    forebay_error error; /* its line is counted from `start` */
    uint64_t error_line;
    const char *error_column;
};

int fb_table_chunk_open(struct fb_table_chunk *chunk, const struct fb_table *table,
                        struct fb_vocabulary *const *vocabularies, forebay_error *error);
void fb_table_chunk_close(struct fb_table_chunk *chunk);
uint64_t fb_table_chunk_bytes(const struct fb_table *table); /* that open takes */
/* Parse from `start` on, or from the first line that begins at or behind `guess_from` if start is
 * UINT64_MAX: that is right unless `guess_from` is inside quotes. */
void fb_table_chunk_parse(struct fb_table_chunk *chunk, uint64_t start, uint64_t guess_from);
/* A new word in a row of category: its cell is at chunk->text + ~code. */
void fb_table_chunk_word(struct fb_table_chunk *chunk, int32_t code, const char **word,
                         uint64_t *bytes);

/* Does the text stand for "no value"? (pandas' list) */
bool fb_table_is_missing(const char *at, const char *end);
/* true, True, TRUE and their opposites. */
bool fb_table_bool(const char *at, const char *end, bool *value);
/* What the text is (not missing). */
uint8_t fb_table_cell_seen(const struct fb_table *table, const char *at, const char *end);
/* The type that takes all that was seen. */
uint8_t fb_table_type_of(uint8_t seen);

static inline uint64_t fb_cell_bytes(const struct fb_table *table, uint8_t type)
{
    if (table->matrix)
        return sizeof(float);
    return type == FB_CELL_F32 || type == FB_CELL_BOOL || type == FB_CELL_CATEGORY ? 4 : 8;
}

/* ---- The converted file ---- */

struct fb_table_file;

struct fb_table_writer;
/* A new file beside `path`, which it becomes when it is finished. */
int fb_table_writer_open(struct fb_table_writer **out, const char *path,
                         const struct fb_table *table, forebay_error *error);
int fb_table_writer_add(struct fb_table_writer *writer, const char *rows, uint64_t count,
                        forebay_error *error);
int fb_table_writer_finish(struct fb_table_writer *writer,
                           struct fb_vocabulary *const *vocabularies, forebay_error *error);
void fb_table_writer_close(struct fb_table_writer *writer); /* drops what is not finished */
uint64_t fb_table_writer_bytes(const struct fb_table *table, uint64_t blocks); /* that it takes */

/* Open what was converted before; MISSING if there is none or it is not whole. Fills in the
 * columns' types. */
int fb_table_file_open(struct fb_table_file **out, const char *path, struct fb_table *table,
                       forebay_error *error);
void fb_table_file_close(struct fb_table_file *file);
uint64_t fb_table_file_rows(const struct fb_table_file *file);
const char *fb_table_file_path(const struct fb_table_file *file);
/* Rows [first, first + count). */
int fb_table_file_read(const struct fb_table_file *file, uint64_t first, uint64_t count, void *to,
                       struct fb_reader *reader, forebay_error *error);
/* A whole block, its checksum compared. */
int fb_table_file_block(const struct fb_table_file *file, uint64_t block, void *to,
                        struct fb_reader *reader, forebay_error *error);

/* What one thread needs at least to convert it, beside what stays and vocabularies. */
uint64_t fb_table_convert_bytes(const struct fb_table *table);
/* Convert the table to `path`. */
int fb_table_convert(struct fb_table *table, const char *path, const struct fb_log *log,
                     forebay_error *error);
#endif
