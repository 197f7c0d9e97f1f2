#include "source/table/table_head.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "decode/csv.h"
#include "memory/block.h"
#include "source/source.h"

#define ROOM (FB_TABLE_TEXT_BYTES + FB_CSV_PADDING + 1)

int fb_table_head_open(struct fb_table_head *head, struct fb_budget *budget, forebay_error *error)
{
    *head = (struct fb_table_head){ .budget = budget };
    head->text = fb_block_new(budget, FB_STAGE_INDEX, ROOM, 1, "reading headers", error);
    head->cell = fb_block_new(budget, FB_STAGE_INDEX, ROOM, 1, "reading headers", error);
    if (head->text && head->cell)
        return FOREBAY_OK;
    fb_table_head_close(head);
    return fb_failed(error);
}

void fb_table_head_close(struct fb_table_head *head)
{
    fb_block_free(head->budget, FB_STAGE_INDEX, head->text, ROOM, 1);
    fb_block_free(head->budget, FB_STAGE_INDEX, head->cell, ROOM, 1);
}

/* ---- Reading ---- */

static int read_text(struct fb_table_head *head, struct fb_table_shard *shard, int fd,
                     uint64_t want, forebay_error *error)
{
    struct stat about;

    if (fd < 0 || fstat(fd, &about))
        return fb_fail_errno(error, FOREBAY_MISSING, "cannot open '%s'", shard->path);
    if (!S_ISREG(about.st_mode))
        return fb_fail(error, FOREBAY_MISSING, "'%s' is no regular file", shard->path);
    if (about.st_size == 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' is empty", shard->path);
    shard->bytes = (uint64_t)about.st_size;
    shard->mtime_ns = about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
    head->bytes = fb_min(shard->bytes, want);
    head->whole = head->bytes == shard->bytes;
    return fb_read_exactly(fd, head->text, head->bytes, 0, error);
}

/* The end of a comment line that begins at `at`; false if it is not here. */
static bool skip_line(const struct fb_table_head *head, uint64_t *at)
{
    const char *line = memchr(head->text + *at, head->line, head->bytes - *at);

    if (line)
        *at = (uint64_t)(line + 1 - head->text);
    return line != NULL;
}

static bool is_comment(const struct fb_table_head *head, uint64_t at)
{
    return head->comment && at < head->bytes && head->text[at] == head->comment;
}

static bool is_blank(const struct fb_table_head *head, uint64_t at)
{
    return at < head->bytes &&
           (head->text[at] == head->line ||
            (head->text[at] == '\r' && at + 1 < head->bytes && head->text[at + 1] == '\n'));
}

static void find_first_row(struct fb_table_head *head)
{
    head->lines = 0;
    head->from = head->bytes >= 3 && !memcmp(head->text, "\xef\xbb\xbf", 3) ? 3 : 0;
    while ((is_comment(head, head->from) || is_blank(head, head->from)) &&
           skip_line(head, &head->from))
        head->lines++;
}

int fb_table_head_read(struct fb_table_head *head, struct fb_table_shard *shard, uint64_t want,
                       forebay_error *error)
{
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int status = read_text(head, shard, fd, want, error);

    if (fd >= 0)
        close(fd);
    if (status)
        return status;
    head->line = shard->line = fb_csv_line_end(head->text, head->bytes);
    if (head->whole && head->text[head->bytes - 1] != head->line)
        head->text[head->bytes++] = head->line;
    find_first_row(head);
    return FOREBAY_OK;
}

/* ---- Cells ---- */

static struct fb_csv head_scan(const struct fb_table_head *head, char delimiter, uint64_t at)
{
    return (struct fb_csv){ .text = head->text,
                            .bytes = head->bytes,
                            .last = head->whole,
                            .delimiter = delimiter,
                            .line = head->line,
                            .at = at,
                            .cell = at };
}

static int give_cell(const struct fb_table_head *head, unsigned column, uint64_t from,
                     uint64_t to, fb_cell_fn fn, void *data)
{
    const char *at = head->text + from, *end = head->text + to;
    bool last = *end == head->line;

    if (last && end > at && end[-1] == '\r')
        end--;
    if (at < end && *at == '"') {
        end = head->cell + fb_csv_unquote(at, end, head->cell);
        at = head->cell;
    }
    return fn(data, column, at, end, last);
}

int fb_table_head_cells(const struct fb_table_head *head, char delimiter, uint64_t at,
                        fb_cell_fn fn, void *data)
{
    struct fb_csv csv = head_scan(head, delimiter, at);
    uint64_t cell = at;
    unsigned column = 0, count;
    uint32_t ends[128];

    while ((count = fb_csv_scan(&csv, ends, 128))) {
        for (unsigned i = 0; i < count; i++) {
            int stop = give_cell(head, column, cell, ends[i], fn, data);

            if (stop)
                return stop;
            column = head->text[ends[i]] == head->line ? 0 : column + 1;
            cell = (uint64_t)ends[i] + 1;
            if (column > 0 || !is_comment(head, cell))
                continue;
            while (is_comment(head, cell))
                if (!skip_line(head, &cell))
                    return 0;
            csv = head_scan(head, delimiter, cell); /* quotes in a comment are none */
            break;
        }
    }
    return 0;
}

int fb_table_head_skip_row(const struct fb_table_head *head, char delimiter, uint64_t *at,
                           uint64_t *lines, const char *path, forebay_error *error)
{
    struct fb_csv csv = head_scan(head, delimiter, *at);
    uint32_t ends[64];
    unsigned count;

    while ((count = fb_csv_scan(&csv, ends, 64)))
        for (unsigned i = 0; i < count; i++)
            if (head->text[ends[i]] == head->line) {
                for (; *at <= ends[i]; ++*at)
                    *lines += head->text[*at] == head->line;
                return FOREBAY_OK;
            }
    return fb_fail(error, FOREBAY_BAD_DATA, "'%s' line %" PRIu64 ": %s", path, *lines + 1,
                   csv.quoted ? "a quote is opened that does not close"
                              : "the line is longer than 2 MiB");
}

/* ---- Delimiter ---- */

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

char fb_table_head_delimiter(const struct fb_table_head *head)
{
    static const char choices[] = ",;\t|";
    unsigned best = 0;
    char found = ',';

    for (const char *choice = choices; *choice; choice++) {
        struct fit fit = { 0, 0, 0 };
        unsigned score;

        fb_table_head_cells(head, *choice, head->from, fit_cell, &fit);
        score = fit.good == fit.rows ? 1000000 + fit.first : fit.good;
        if (fit.good && score > best) {
            best = score;
            found = *choice;
        }
    }
    return found;
}
