#include "decode/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

/* What is left of the dict. Every take_ function moves on only if it found what it wants. */
struct text {
    const char *at, *end;
};

static void skip_space(struct text *text)
{
    while (text->at < text->end && memchr(" \t\n\r", *text->at, 4))
        text->at++;
}

static bool take(struct text *text, char wanted)
{
    skip_space(text);
    if (text->at == text->end || *text->at != wanted)
        return false;
    text->at++;
    return true;
}

static bool take_word(struct text *text, const char *word)
{
    size_t length = strlen(word);

    skip_space(text);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0)
        return false;
    text->at += length;
    return true;
}

/* 'text' or "text", without escapes: none of the keys and types needs one. */
static bool take_string(struct text *text, char *string, size_t size)
{
    const char *from, *end;
    char quote;

    skip_space(text);
    from = text->at;
    if (from == text->end || (*from != '\'' && *from != '"'))
        return false;
    quote = *from++;
    end = memchr(from, quote, (size_t)(text->end - from));
    if (!end || (size_t)(end - from) >= size || memchr(from, '\\', (size_t)(end - from)) ||
        memchr(from, '\0', (size_t)(end - from)))
        return false;
    memcpy(string, from, (size_t)(end - from));
    string[end - from] = '\0';
    text->at = end + 1;
    return true;
}

static bool take_number(struct text *text, uint64_t *number)
{
    uint64_t value = 0;
    const char *from;

    skip_space(text);
    from = text->at;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if (!fb_mul(value, 10, &value) || !fb_add(value, (uint64_t)(*text->at - '0'), &value) ||
            value > INT64_MAX)
            return false;
    if (text->at == from)
        return false;
    if (text->at < text->end && *text->at == 'L') /* as Python 2 wrote them */
        text->at++;
    *number = value;
    return true;
}

/* "f4" to a type; the byte order is dealt with already. */
static bool find_dtype(const char *code, forebay_dtype *dtype)
{
    static const struct {
        const char *code;
        forebay_dtype dtype;
    } codes[] = {
        { "u1", FOREBAY_U8 },  { "u2", FOREBAY_U16 }, { "u4", FOREBAY_U32 },  { "u8", FOREBAY_U64 },
        { "i1", FOREBAY_I8 },  { "i2", FOREBAY_I16 }, { "i4", FOREBAY_I32 },  { "i8", FOREBAY_I64 },
        { "f2", FOREBAY_F16 }, { "f4", FOREBAY_F32 }, { "f8", FOREBAY_F64 },  { "c8", FOREBAY_C64 },
        { "c16", FOREBAY_C128 }, { "b1", FOREBAY_BOOL }, { "?", FOREBAY_BOOL },
    };

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (strcmp(code, codes[i].code) == 0) {
            *dtype = codes[i].dtype;
            return true;
        }
    }
    return false;
}

/* Why a type that NumPy knows is none of ours. */
static const char *why_not(char kind)
{
    switch (kind) {
    case 'O':
        return "Python objects (pickled) are never read: save numbers instead";
    case 'U':
    case 'S':
    case 'a':
        return "strings are not read: save them as uint8 or as numbers";
    case 'M':
    case 'm':
        return "dates and times are not read: save them with .astype('int64')";
    case 'V':
        return "raw bytes are not read (bfloat16 is saved so): save them with .view('uint16') or "
               "as float32";
    default:
        return "only bool, (u)int8 to 64, float16 to 64 and complex64, 128 are read";
    }
}

static int parse_descr(struct fb_npy *npy, struct text *text, forebay_error *error)
{
    char descr[64];
    const char *code = descr;
    char order = '=';

    if (take(text, '['))
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy has a structured type (several named "
                       "columns): save each column as an array of its own");
    if (!take_string(text, descr, sizeof(descr)))
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header's descr is no type like '<f4'");
    if (descr[0] && strchr("<>=|", descr[0])) {
        order = descr[0];
        code++;
    }
    if (!find_dtype(code, &npy->dtype))
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy's type '%.40s' has no equivalent: %s",
                       descr, why_not(code[0]));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    npy->swapped = order == '>' && forebay_dtype_bytes(npy->dtype) > 1;
#else
    npy->swapped = order == '<' && forebay_dtype_bytes(npy->dtype) > 1;
#endif
    return FOREBAY_OK;
}

static int parse_order(struct fb_npy *npy, struct text *text, forebay_error *error)
{
    if (take_word(text, "True"))
        npy->fortran = true;
    else if (!take_word(text, "False"))
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "the .npy header's fortran_order is neither True nor False");
    return FOREBAY_OK;
}

/* (), (3,), (3, 4), (3, 4,): a tuple as Python writes it; (3) is none. */
static int parse_shape(struct fb_npy *npy, struct text *text, forebay_error *error)
{
    bool comma = true;

    if (!take(text, '('))
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header's shape is no tuple");
    while (!take(text, ')')) {
        uint64_t length;

        if (!comma || !take_number(text, &length))
            return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header's shape is no tuple of whole "
                           "numbers from 0 to 2^63 - 1");
        if (npy->ndim == FB_NPY_DIMS)
            return fb_fail(error, FOREBAY_BAD_DATA, "the .npy has more than %d dimensions",
                           FB_NPY_DIMS);
        npy->shape[npy->ndim++] = length;
        comma = take(text, ',');
    }
    if (npy->ndim == 1 && !comma)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "the .npy header's shape is no tuple: (3) for (3,)");
    return FOREBAY_OK;
}

static int parse_dict(struct fb_npy *npy, struct text *text, forebay_error *error)
{
    static const struct {
        const char *key;
        int (*parse)(struct fb_npy *npy, struct text *text, forebay_error *error);
    } keys[] = { { "descr", parse_descr }, { "fortran_order", parse_order },
                 { "shape", parse_shape } };
    unsigned seen = 0;
    bool comma = true;
    char key[32];

    if (!take(text, '{'))
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header is no dict");
    while (!take(text, '}')) {
        unsigned i = 0;
        int status;

        if (!comma || !take_string(text, key, sizeof(key)) || !take(text, ':'))
            return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header is no dict of descr, "
                           "fortran_order and shape");
        while (i < 3 && strcmp(key, keys[i].key) != 0)
            i++;
        if (i == 3 || seen & 1u << i)
            return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header has an unexpected key '%s'",
                           key);
        seen |= 1u << i;
        status = keys[i].parse(npy, text, error);
        if (status)
            return status;
        comma = take(text, ',');
    }
    if (seen != 7)
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header lacks '%s'",
                       keys[seen & 1 ? seen & 2 ? 2 : 1 : 0].key);
    skip_space(text);
    if (text->at != text->end)
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header goes on behind its dict");
    return FOREBAY_OK;
}

/* Sizes are checked as if no dimension were 0, so that strides cannot overflow either. */
static int measure(struct fb_npy *npy, forebay_error *error)
{
    uint64_t bytes = forebay_dtype_bytes(npy->dtype);
    unsigned longer = 0;
    bool empty = false;

    for (unsigned i = 0; i < npy->ndim; i++) {
        empty |= npy->shape[i] == 0;
        longer += npy->shape[i] > 1;
        if (npy->shape[i] && (!fb_mul(bytes, npy->shape[i], &bytes) || bytes > INT64_MAX))
            return fb_fail(error, FOREBAY_BAD_DATA,
                           "the .npy header's shape is more than any file can hold");
    }
    npy->data_bytes = empty ? 0 : bytes;
    npy->fortran = npy->fortran && longer > 1 && !empty;
    return FOREBAY_OK;
}

int fb_npy_header_bytes(const void *bytes, uint64_t have, uint64_t *header_bytes,
                        forebay_error *error)
{
    const unsigned char *at = bytes;
    uint64_t prefix, length;

    if (have < 10 || memcmp(at, "\x93NUMPY", 6) != 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "it is no .npy file: it does not begin with "
                       "\\x93NUMPY");
    if (at[6] < 1 || at[6] > 3 || at[7] != 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy has version %d.%d; 1.0, 2.0 and 3.0 are "
                       "known", at[6], at[7]);
    prefix = at[6] == 1 ? 10 : 12;
    if (have < prefix)
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy ends in its header, after %" PRIu64
                       " bytes", have);
    length = (uint64_t)at[8] | (uint64_t)at[9] << 8;
    if (at[6] > 1)
        length |= (uint64_t)at[10] << 16 | (uint64_t)at[11] << 24;
    if (prefix + length > FB_NPY_HEADER_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy header is %" PRIu64 " bytes long; at "
                       "most %d are read", prefix + length, FB_NPY_HEADER_MAX);
    *header_bytes = prefix + length;
    return FOREBAY_OK;
}

int fb_npy_parse(struct fb_npy *npy, const void *bytes, uint64_t have, forebay_error *error)
{
    const char *at = bytes;
    struct fb_npy found = { .dtype = FOREBAY_U8 };
    struct text text;
    int status = fb_npy_header_bytes(bytes, have, &found.header_bytes, error);

    if (status)
        return status;
    if (have < found.header_bytes)
        return fb_fail(error, FOREBAY_BAD_DATA, "the .npy ends in its header: %" PRIu64 " of %"
                       PRIu64 " bytes are there", have, found.header_bytes);
    text = (struct text){ at + (at[6] == 1 ? 10 : 12), at + found.header_bytes };
    status = parse_dict(&found, &text, error);
    if (!status)
        status = measure(&found, error);
    if (!status)
        *npy = found;
    return status;
}

char *fb_npy_text(const struct fb_npy *npy, char text[256])
{
    int used = snprintf(text, 256, "%s (", forebay_dtype_name(npy->dtype));

    for (unsigned i = 0; i < npy->ndim; i++)
        used += snprintf(text + used, 256 - (size_t)used, "%s%" PRIu64, i ? ", " : "",
                         npy->shape[i]);
    snprintf(text + used, 256 - (size_t)used, npy->ndim == 1 ? ",)" : ")");
    return text;
}

typedef uint16_t __attribute__((aligned(1), may_alias)) any_u16;
typedef uint32_t __attribute__((aligned(1), may_alias)) any_u32;
typedef uint64_t __attribute__((aligned(1), may_alias)) any_u64;

void fb_npy_swap(void *values, forebay_dtype dtype, uint64_t count)
{
    bool is_complex = dtype == FOREBAY_C64 || dtype == FOREBAY_C128;
    size_t bytes = forebay_dtype_bytes(dtype) / (is_complex ? 2 : 1);
    uint64_t parts = is_complex ? 2 * count : count;

    if (bytes == 2)
        for (uint64_t i = 0; i < parts; i++)
            ((any_u16 *)values)[i] = __builtin_bswap16(((any_u16 *)values)[i]);
    else if (bytes == 4)
        for (uint64_t i = 0; i < parts; i++)
            ((any_u32 *)values)[i] = __builtin_bswap32(((any_u32 *)values)[i]);
    else if (bytes == 8)
        for (uint64_t i = 0; i < parts; i++)
            ((any_u64 *)values)[i] = __builtin_bswap64(((any_u64 *)values)[i]);
}

/* Column number `column` of the file (the second index runs fastest) is which place of a row? */
static uint64_t place_of(const struct fb_npy *npy, uint64_t column)
{
    uint64_t place = 0, step = 1;

    for (unsigned i = 1; i < npy->ndim; i++)
        step *= npy->shape[i];
    for (unsigned i = 1; i < npy->ndim; i++) {
        step /= npy->shape[i];
        place += column % npy->shape[i] * step;
        column /= npy->shape[i];
    }
    return place;
}

/* So many columns at a time that one line of each stays in the L1 cache while rows are written. */
#define BLOCK 32

struct pair { /* of a complex number of 16 bytes */
    any_u64 values[2];
};

#define PLACE_BLOCK(type)                                                                \
    for (uint64_t r = 0; r < rows; r++)                                                  \
        for (uint64_t c = 0; c < columns; c++)                                           \
            ((type *)(void *)(to + r * row_bytes))[places[c]] =                          \
                ((const type *)(const void *)from)[c * height + r]

/* `from` is the first wanted element of the first column; the columns lie `height` apart. */
static void place_block(const struct fb_npy *npy, char *to, const char *from, uint64_t height,
                        uint64_t column, uint64_t columns, uint64_t rows)
{
    uint64_t row_bytes = npy->data_bytes / npy->shape[0], places[BLOCK];

    for (uint64_t c = 0; c < columns; c++)
        places[c] = place_of(npy, column + c);
    switch (forebay_dtype_bytes(npy->dtype)) {
    case 1:
        PLACE_BLOCK(char);
        break;
    case 2:
        PLACE_BLOCK(any_u16);
        break;
    case 4:
        PLACE_BLOCK(any_u32);
        break;
    case 8:
        PLACE_BLOCK(any_u64);
        break;
    default:
        PLACE_BLOCK(struct pair);
    }
}

void fb_npy_place(const struct fb_npy *npy, void *to, uint64_t first_row, uint64_t rows,
                  const void *piece, uint64_t first, uint64_t count)
{
    uint64_t height = npy->shape[0], column = first / height, from_row = first % height;
    uint64_t columns = fb_max(count / height, 1), row_bytes = npy->data_bytes / height;
    uint64_t from = fb_max(from_row, first_row);
    uint64_t end = fb_min(count < height ? from_row + count : height, first_row + rows);

    if (from >= end)
        return;
    for (uint64_t c = 0; c < columns; c += BLOCK)
        place_block(npy, (char *)to + (from - first_row) * row_bytes,
                    (const char *)piece +
                        (c * height + from - from_row) * forebay_dtype_bytes(npy->dtype),
                    height, column + c, fb_min(BLOCK, columns - c), end - from);
}
