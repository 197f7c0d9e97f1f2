#include "decode/csv.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define WORD 64 /* bytes that are looked at at once: a bit each */

/* Bits of the next 64 bytes: what ends a cell unless it is quoted, and quotes. */
struct masks {
    uint64_t ends, quotes;
};

static inline struct masks masks_plain(const char *at, char delimiter, char line)
{
    struct masks masks = { 0, 0 };

    for (unsigned i = 0; i < WORD; i++) {
        masks.ends |= (uint64_t)(at[i] == delimiter || at[i] == line) << i;
        masks.quotes |= (uint64_t)(at[i] == '"') << i;
    }
    return masks;
}

/* A word with quotes in or around it, a bit at a time. Returns false if the byte behind it has to
 * be known: then the scan stands on the quote. */
static bool scan_quotes(struct fb_csv *csv, struct masks masks, uint64_t left, uint32_t *ends,
                        unsigned *count)
{
    for (uint64_t bits = masks.ends | masks.quotes; bits; bits &= bits - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(bits);
        uint64_t place = csv->at + bit;

        if (masks.ends >> bit & 1) {
            if (csv->quoted)
                continue;
            ends[(*count)++] = (uint32_t)place;
            csv->cell = place + 1;
        } else if (!csv->quoted) {
            csv->quoted = place == csv->cell;
        } else if (place + 1 == csv->bytes && !csv->last) {
            csv->at = place;
            return false;
        } else if (place + 1 < csv->bytes && csv->text[place + 1] == '"') {
            if (bit + 1 == left || bit + 1 == WORD) { /* the pair lies across two words */
                csv->at = place + 2;
                return true;
            }
            bits &= bits - 1;
        } else {
            csv->quoted = false;
        }
    }
    csv->at += left;
    return true;
}

static inline __attribute__((always_inline)) unsigned
scan(struct fb_csv *csv, uint32_t *ends, unsigned most,
     struct masks (*look)(const char *at, char delimiter, char line))
{
    unsigned count = 0;

    while (csv->at < csv->bytes && count + WORD <= most) {
        uint64_t left = csv->bytes - csv->at;
        struct masks masks = look(csv->text + csv->at, csv->delimiter, csv->line);

        if (left < WORD) {
            masks.ends &= ((uint64_t)1 << left) - 1;
            masks.quotes &= ((uint64_t)1 << left) - 1;
        } else {
            left = WORD;
        }
        if (masks.quotes || csv->quoted) {
            if (!scan_quotes(csv, masks, left, ends, &count))
                break;
            continue;
        }
        for (; masks.ends; masks.ends &= masks.ends - 1)
            ends[count++] = (uint32_t)(csv->at + (unsigned)__builtin_ctzll(masks.ends));
        if (count)
            csv->cell = (uint64_t)ends[count - 1] + 1;
        csv->at += left;
    }
    return count;
}

unsigned fb_csv_scan_plain(struct fb_csv *csv, uint32_t *ends, unsigned most)
{
    return scan(csv, ends, most, masks_plain);
}

#if defined(__x86_64__)
static inline __attribute__((target("avx2"))) struct masks masks_avx2(const char *at,
                                                                      char delimiter, char line_end)
{
    const __m256i *in = (const __m256i *)(const void *)at;
    __m256i low = _mm256_loadu_si256(in), high = _mm256_loadu_si256(in + 1);
    __m256i split = _mm256_set1_epi8(delimiter), line = _mm256_set1_epi8(line_end);
    __m256i quote = _mm256_set1_epi8('"');
    __m256i low_ends = _mm256_or_si256(_mm256_cmpeq_epi8(low, split), _mm256_cmpeq_epi8(low, line));
    __m256i high_ends =
        _mm256_or_si256(_mm256_cmpeq_epi8(high, split), _mm256_cmpeq_epi8(high, line));
    uint32_t low_quotes = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, quote));
    uint32_t high_quotes = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(high, quote));

    return (struct masks){
        .ends = (uint64_t)(uint32_t)_mm256_movemask_epi8(high_ends) << 32 |
                (uint32_t)_mm256_movemask_epi8(low_ends),
        .quotes = (uint64_t)high_quotes << 32 | low_quotes,
    };
}

__attribute__((target("avx2"))) static unsigned scan_avx2(struct fb_csv *csv, uint32_t *ends,
                                                          unsigned most)
{
    return scan(csv, ends, most, masks_avx2);
}
#endif

unsigned fb_csv_scan(struct fb_csv *csv, uint32_t *ends, unsigned most)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return scan_avx2(csv, ends, most);
#endif
    return fb_csv_scan_plain(csv, ends, most);
}

char fb_csv_line_end(const char *text, uint64_t bytes)
{
    bool quoted = false;
    char before = '\n';

    for (uint64_t i = 0; i < bytes; before = text[i++]) {
        if (quoted)
            quoted = text[i] != '"'; /* a doubled one ends a quote and opens the next */
        else if (text[i] == '"' && (before == '"' || memchr(",;\t|\n\r", before, 6)))
            quoted = true;
        else if (text[i] == '\n')
            return '\n';
        else if (text[i] == '\r')
            return i + 1 < bytes && text[i + 1] != '\n' ? '\r' : '\n';
    }
    return '\n';
}

uint64_t fb_csv_unquote(const char *at, const char *end, char *to)
{
    const char *from = to;

    for (at++; at < end; at++) {
        if (*at != '"') {
            *to++ = *at;
        } else if (at + 1 < end && at[1] == '"') {
            *to++ = *at++;
        } else {
            at++; /* the closing one; whatever follows is text */
            memcpy(to, at, (size_t)(end - at));
            return (uint64_t)(to - from) + (uint64_t)(end - at);
        }
    }
    return (uint64_t)(to - from);
}
