/*
 * generate_table.c -- 24 columns c0 ... c23 in shards: every third holds integers of growing range
 * (every other of those with negative ones), the rest bell-shaped decimals of four magnitudes with
 * at most five places. Decimals are integers of 1e-5, so no float is ever printed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "generate/checksum.h"
#include "generate/generate_maker.h"
#include "generate/generate_noise.h"

#define COLUMNS 24u
#define ROW_MOST 1024u /* bytes; 24 numbers of at most 20 digits are fewer */

static char *put_digits(char *to, uint64_t value)
{
    char digits[20];
    unsigned count = 0;

    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count)
        *to++ = digits[--count];
    return to;
}

static char *put_integer(char *to, int64_t value)
{
    if (value < 0)
        *to++ = '-';
    return put_digits(to, value < 0 ? (uint64_t)-value : (uint64_t)value);
}

/* `value` in units of 1e-5; trailing zeros left out, but "1.0" keeps one. */
static char *put_decimal(char *to, int64_t value)
{
    uint64_t positive = value < 0 ? (uint64_t)-value : (uint64_t)value;
    uint64_t part = positive % 100000;

    if (value < 0)
        *to++ = '-';
    to = put_digits(to, positive / 100000);
    *to++ = '.';
    do {
        *to++ = (char)('0' + part / 10000);
        part = part % 10000 * 10;
    } while (part);
    return to;
}

static int64_t power_of_ten(unsigned exponent)
{
    int64_t power = 1;

    while (exponent--)
        power *= 10;
    return power;
}

static char *put_cell(char *to, uint64_t key, uint64_t row, unsigned column)
{
    uint64_t at = row * COLUMNS + column;

    if (column % 3 == 2) {
        int64_t low = column % 2 ? -1000 : 0, high = power_of_ten(1 + column / 4);
        struct fb_random random = { key ^ fb_mix(at) };

        return put_integer(to, low + (int64_t)fb_random_below(&random, (uint64_t)(high - low)));
    }
    return put_decimal(to, (int64_t)fb_noise_bell(key, at) * 100000 * power_of_ten(column % 4) /
                               FB_BELL_SIGMA);
}

static char *put_row(char *to, uint64_t key, uint64_t row)
{
    for (unsigned column = 0; column < COLUMNS; column++) {
        to = put_cell(to, key, row, column);
        *to++ = column + 1 < COLUMNS ? ',' : '\n';
    }
    return to;
}

static char *put_header(char *to)
{
    for (unsigned column = 0; column < COLUMNS; column++)
        to += sprintf(to, "c%u%c", column, column + 1 < COLUMNS ? ',' : '\n');
    return to;
}

/* Sums piece by piece without knowing the total beforehand: the last byte of the file is the
 * newline that ends it. */
static int piece_put(struct fb_maker *maker, struct fb_new_file *file, uint64_t bytes, bool last,
                     uint64_t *sum, forebay_error *error)
{
    uint64_t end = file->bytes + bytes;

    *sum += fb_checksum_piece(maker->piece, file->bytes, bytes, last ? end : UINT64_MAX);
    return fb_maker_put(maker, file, maker->piece, bytes, error);
}

static int rows_put(struct fb_maker *maker, struct fb_new_file *file, uint64_t key,
                    forebay_error *error)
{
    const struct fb_generate_job *job = maker->job;
    char *begin = (char *)maker->piece, *at = put_header(begin);
    uint64_t rows = 0, sum = 0;
    int status = FOREBAY_OK;

    for (bool last = false; !last && !status;) {
        uint64_t bytes;

        at = put_row(at, key, rows++);
        bytes = (uint64_t)(at - begin);
        last = job->options->rows ? rows >= job->options->rows : file->bytes + bytes >= job->bytes;
        if (last || bytes > FB_PIECE_BYTES - ROW_MOST) {
            status = piece_put(maker, file, bytes, last, &sum, error);
            at = begin;
        }
    }
    maker->made.checksum += sum;
    return status;
}

static int table_make(struct fb_maker *maker, uint64_t number, forebay_error *error)
{
    struct fb_new_file file;
    char name[48];
    int status;

    snprintf(name, sizeof(name), "data_part%" PRIu64 ".csv", number + 1);
    status = fb_maker_open(maker, &file, name, error);
    if (status)
        return status;
    status = rows_put(maker, &file, fb_maker_key(maker, number, 0), error);
    if (status) {
        fb_new_file_give_up(&file);
        return status;
    }
    return fb_maker_commit(maker, &file, error);
}

const struct fb_generator_ops fb_generate_table = { .make = table_make };
