/* table_head.h -- the beginning of a part of a table: enough for its header and a guess of the
 * types. */
#ifndef FB_SOURCE_TABLE_HEAD_H
#define FB_SOURCE_TABLE_HEAD_H
#include "source/table/table.h"

struct fb_table_head {
    struct fb_budget *budget;
    char *text; /* FB_TABLE_TEXT_BYTES and padding */
    char *cell; /* as large: a cell without its quotes */
    uint64_t bytes;
    bool whole;     /* the file has no more */
    uint64_t from;  /* where the first row begins: after a byte order mark, comments, blank lines */
    uint64_t lines; /* before it */
    char line;      /* what lines end in: see csv.h */
    char comment;   /* lines that begin with it are passed over; 0: none */
};

int fb_table_head_open(struct fb_table_head *head, struct fb_budget *budget, forebay_error *error);
void fb_table_head_close(struct fb_table_head *head);
/* Read `want` bytes of the shard, or all if it has fewer; fills in the shard's size and time. */
int fb_table_head_read(struct fb_table_head *head, struct fb_table_shard *shard, uint64_t want,
                       forebay_error *error);
/* Walk over the cells from the row at `at` on; stops when fn returns not 0, and returns that. */
typedef int (*fb_cell_fn)(void *data, unsigned column, const char *at, const char *end, bool last);
int fb_table_head_cells(const struct fb_table_head *head, char delimiter, uint64_t at,
                        fb_cell_fn fn, void *data);
/* The one of , ; tab | that cuts the first rows into equally many cells. */
char fb_table_head_delimiter(const struct fb_table_head *head);
/* Move *at from where a row begins to where the next does, and count its lines. */
int fb_table_head_skip_row(const struct fb_table_head *head, char delimiter, uint64_t *at,
                           uint64_t *lines, const char *path, forebay_error *error);
#endif
