/*
 * csv.h -- where the cells of delimited text end (RFC 4180), and what stands in them.
 *
 * A cell that begins with a quote ends at the next quote that is not doubled; delimiters and line
 * ends inside it are text. A quote elsewhere is text. Lines end in \n or \r\n, or all in \r.
 */
#ifndef FB_DECODE_CSV_H
#define FB_DECODE_CSV_H
#include <stdbool.h>
#include <stdint.h>

#define FB_CSV_PADDING 64 /* bytes behind the text that must be readable */

/* A scan under way. Begin with {.text, .bytes, .at = .cell = where a row begins, .delimiter,
 * .line}. */
struct fb_csv {
    const char *text;
    uint64_t bytes; /* < 4 GiB; may grow between calls */
    bool last;      /* nothing follows behind `bytes` */
    char delimiter;
    char line;     /* what lines end in: \n (also for \r\n) or \r */
    uint64_t at;   /* scanned so far */
    uint64_t cell; /* where the cell under way began */
    bool quoted;   /* `at` is inside its quotes */
};

/* Write the places of the next delimiters and line ends that are no text, at most `most` (>= 64) of
 * them; returns how many. 0: the text is used up. */
unsigned fb_csv_scan(struct fb_csv *csv, uint32_t *ends, unsigned most);
/* The same without what only some CPUs have: tests hold the two against each other. */
unsigned fb_csv_scan_plain(struct fb_csv *csv, uint32_t *ends, unsigned most);

/* What the lines of a text end in, from its first line end outside of quotes. */
char fb_csv_line_end(const char *text, uint64_t bytes);

/* Take the quotes off a cell [at, end) that begins with one: writes at most end - at bytes, returns
 * how many. */
uint64_t fb_csv_unquote(const char *at, const char *end, char *to);
#endif
