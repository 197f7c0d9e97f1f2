/* resize.c -- pictures to another size with Pillow's arithmetic, row by row. */
#include "decode/resize.h"

#include <string.h>

#include "base/size.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_AVX2 1
#endif

#define INLINE static inline __attribute__((always_inline))
#define BITS 22    /* of a weight, after the point: Pillow's, which fill 32 bits with a pixel's 8 */
#define LOW_BITS 12 /* of a weight; the instruction that multiplies pairs takes 16 bits */
#define GROUP 4    /* taps that are taken at once across */

/* ---- Weights ---- */

static double filter_reach(enum fb_filter filter)
{
    return filter == FB_FILTER_BICUBIC ? 2.0 : 1.0;
}

static double weight_bicubic(double x)
{
    const double a = -0.5; /* Pillow's; also Catmull and Rom's */

    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

static double weight_of(enum fb_filter filter, double x)
{
    x = x < 0.0 ? -x : x;
    if (filter == FB_FILTER_BICUBIC)
        return weight_bicubic(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static uint32_t clamp_index(double at, uint32_t end)
{
    return at <= 0.0 ? 0 : at >= (double)end ? end : (uint32_t)at;
}

/* How wide the filter is on the input, in inputs to either side. */
static double reach_of(const struct fb_span *span, enum fb_filter filter)
{
    double scale = span->size / (double)span->out;

    return filter_reach(filter) * (scale > 1.0 ? scale : 1.0);
}

/* Pillow's count. A filter of whole width may touch one more input than it is wide. */
static uint32_t taps_of(const struct fb_span *span, enum fb_filter filter)
{
    double reach = reach_of(span, filter);
    uint64_t whole = (uint64_t)reach;

    if (filter == FB_FILTER_NEAREST)
        return 1;
    return (uint32_t)fb_min(span->in, 2 * (whole + ((double)whole < reach)) + 1);
}

/* The weights of an output are two rows of 16 bits: the upper parts, then the lower ones. A weight is
 * upper << LOW_BITS | lower. */
static void put_weight(const struct fb_weights *weights, uint32_t out, uint32_t tap, int32_t value)
{
    int16_t *to = weights->values + (uint64_t)out * weights->taps * 2 + tap;

    to[0] = (int16_t)(value >> LOW_BITS);
    to[weights->taps] = (int16_t)(value & ((1 << LOW_BITS) - 1));
}

INLINE int32_t weight_at(const int16_t *values, uint32_t taps, uint32_t tap)
{
    return (int32_t)((uint32_t)values[tap] << LOW_BITS | (uint16_t)values[taps + tap]);
}

/* The inputs [*first, *first + count) that an output is made of; returns count. */
static uint32_t inputs_of(const struct fb_span *span, enum fb_filter filter, double center,
                          uint32_t *first)
{
    double reach = reach_of(span, filter);
    uint32_t end;

    if (filter == FB_FILTER_NEAREST) {
        *first = clamp_index(center, span->in - 1);
        return 1;
    }
    *first = clamp_index(center - reach + 0.5, span->in - 1);
    end = clamp_index(center + reach + 0.5, span->in);
    return end > *first ? end - *first : 1;
}

/* Each is rounded for itself, as Pillow does; their sum is 1 but for that. */
static void round_weights(struct fb_weights *weights, const struct fb_span *span,
                          enum fb_filter filter, uint32_t out, double center)
{
    double scale = span->size / (double)span->out, narrow = 1.0 / (scale > 1.0 ? scale : 1.0);
    double total = 0.0;
    uint32_t first, shift, count = inputs_of(span, filter, center, &first);

    count = (uint32_t)fb_min(count, weights->taps);
    weights->first[out] = (uint32_t)fb_min(first, span->in - fb_min(weights->taps, span->in));
    shift = first - weights->first[out];
    for (uint32_t i = 0; i < count; i++)
        total += weight_of(filter, ((double)(first + i) - center + 0.5) * narrow);
    if (filter == FB_FILTER_NEAREST || total == 0.0) {
        put_weight(weights, out, shift, 1 << BITS);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        double value = weight_of(filter, ((double)(first + i) - center + 0.5) * narrow) / total;

        value = value * (double)(1 << BITS);
        put_weight(weights, out, shift + i, (int32_t)(value < 0.0 ? value - 0.5 : value + 0.5));
    }
}

static void weights_init(struct fb_weights *weights, const struct fb_span *span,
                         enum fb_filter filter)
{
    double scale = span->size / (double)span->out, nearest = span->start + scale * 0.5;

    memset(weights->values, 0,
           (uint64_t)span->out * weights->taps * 2 * sizeof(*weights->values));
    for (uint32_t out = 0; out < span->out; out++, nearest += scale) {
        double center = span->start + ((double)out + 0.5) * scale;

        /* Half-way between two inputs a rounding error decides: Pillow adds its steps up. */
        round_weights(weights, span, filter, out, filter == FB_FILTER_NEAREST ? nearest : center);
    }
}

/* ---- Across: a row of bytes to a row of numbers from 0 to 255 ---- */

/* Sums may run over and come back: only the whole sum is sure to fit. */
INLINE int32_t clip_sum(uint32_t sum)
{
    int32_t value = (int32_t)(sum + (1u << (BITS - 1))) >> BITS;

    return value < 0 ? 0 : value > 255 ? 255 : value;
}

static void across_plain(const struct fb_resize *resize, const uint8_t *rgbx, int16_t *line)
{
    const struct fb_weights *weights = &resize->columns;
    const int16_t *values = weights->values;

    for (uint32_t x = 0; x < resize->across.out; x++, values += weights->taps * 2) {
        const uint8_t *from = rgbx + (uint64_t)weights->first[x] * 4;
        uint32_t sums[4] = { 0, 0, 0, 0 };

        for (uint32_t tap = 0; tap < weights->taps; tap++, from += 4)
            for (unsigned c = 0; c < 4; c++)
                sums[c] += (uint32_t)(from[c] * weight_at(values, weights->taps, tap));
        for (unsigned c = 0; c < 4; c++)
            line[4 * x + c] = (int16_t)clip_sum(sums[c]);
    }
}

/* ---- Down: two rows, weighted, added to the sums of one row of the result ---- */

static void down_plain(const struct fb_resize *resize, int32_t *sums, int32_t first, int32_t second)
{
    const int16_t *a = resize->lines[0], *b = resize->lines[1];

    for (uint32_t i = 0; i < resize->stride; i++)
        sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)(a[i] * first) +
                            (uint32_t)(b[i] * second));
}

static void emit_plain(const struct fb_resize *resize, const int32_t *sums, uint32_t *to)
{
    for (uint32_t x = 0; x < resize->across.out; x++) {
        uint8_t pixel[4];

        for (unsigned c = 0; c < 4; c++)
            pixel[c] = (uint8_t)clip_sum((uint32_t)sums[4 * x + c]);
        memcpy(to + x, pixel, sizeof(pixel));
    }
}

#if HAVE_AVX2
#define AVX2 __attribute__((target("avx2")))

/* Two weights in each 32 bits. */
AVX2 INLINE __m128i pair_of(const int16_t *values)
{
    int32_t pair;

    memcpy(&pair, values, sizeof(pair));
    return _mm_set1_epi32(pair);
}

/* One pixel of the result: its four sums. In 128 bits: nothing crosses from one half to another. */
AVX2 INLINE __m128i across_pixel(const uint8_t *from, const int16_t *values, uint32_t groups)
{
    /* Pixels 0 and 1 (2 and 3) byte by byte: red and red, green and green, ... */
    const __m128i front = _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    const __m128i back =
        _mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
    const int16_t *lower = values + groups * GROUP;
    __m128i high = _mm_setzero_si128(), low = _mm_set1_epi32(1 << (BITS - 1));

    for (uint32_t g = 0; g < groups; g++) {
        __m128i four = _mm_loadu_si128((const __m128i *)(const void *)(from + 16 * g));
        __m128i one = _mm_shuffle_epi8(four, front), two = _mm_shuffle_epi8(four, back);

        high = _mm_add_epi32(high,
                             _mm_add_epi32(_mm_madd_epi16(one, pair_of(values + GROUP * g)),
                                           _mm_madd_epi16(two, pair_of(values + GROUP * g + 2))));
        low = _mm_add_epi32(low,
                            _mm_add_epi32(_mm_madd_epi16(one, pair_of(lower + GROUP * g)),
                                          _mm_madd_epi16(two, pair_of(lower + GROUP * g + 2))));
    }
    return _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(high, LOW_BITS), low), BITS);
}

/* Numbers from 0 to 255, of 16 bits. */
AVX2 INLINE __m128i clip_pixels(__m128i one, __m128i two)
{
    return _mm_max_epi16(_mm_setzero_si128(),
                         _mm_min_epi16(_mm_packs_epi32(one, two), _mm_set1_epi16(255)));
}

AVX2 INLINE void across_groups(const struct fb_resize *resize, const uint8_t *rgbx, int16_t *line,
                               uint32_t groups)
{
    const uint32_t *first = resize->columns.first;
    const int16_t *values = resize->columns.values;
    uint32_t x = 0, step = groups * GROUP * 2;

    for (; x + 2 <= resize->across.out; x += 2, values += 2 * step) {
        __m128i one = across_pixel(rgbx + (uint64_t)first[x] * 4, values, groups);
        __m128i two = across_pixel(rgbx + (uint64_t)first[x + 1] * 4, values + step, groups);

        _mm_storeu_si128((__m128i *)(void *)(line + 4 * x), clip_pixels(one, two));
    }
    if (x < resize->across.out) {
        __m128i one = across_pixel(rgbx + (uint64_t)first[x] * 4, values, groups);

        _mm_storel_epi64((__m128i *)(void *)(line + 4 * x), clip_pixels(one, one));
    }
}

AVX2 static void across_avx2(const struct fb_resize *resize, const uint8_t *rgbx, int16_t *line)
{
    uint32_t groups = resize->columns.taps / GROUP;

    if (groups == 1)
        across_groups(resize, rgbx, line, 1);
    else if (groups == 2)
        across_groups(resize, rgbx, line, 2);
    else
        across_groups(resize, rgbx, line, groups);
}

AVX2 INLINE __m256i weight_pair(int32_t first, int32_t second)
{
    return _mm256_set1_epi32((int32_t)((uint32_t)second << 16 | (uint16_t)first));
}

AVX2 INLINE void add_weighted(int32_t *sums, __m256i pairs, __m256i upper, __m256i lower)
{
    __m256i *at = (__m256i *)(void *)sums;
    __m256i high = _mm256_slli_epi32(_mm256_madd_epi16(pairs, upper), LOW_BITS);
    __m256i low = _mm256_madd_epi16(pairs, lower);

    _mm256_storeu_si256(at, _mm256_add_epi32(_mm256_loadu_si256(at), _mm256_add_epi32(high, low)));
}

/* Sums stand in the order that interleaving leaves, 8 and 8; packing them undoes it. */
AVX2 static void down_avx2(const struct fb_resize *resize, int32_t *sums, int32_t first,
                           int32_t second)
{
    const int32_t mask = (1 << LOW_BITS) - 1;
    const __m256i upper = weight_pair(first >> LOW_BITS, second >> LOW_BITS);
    const __m256i lower = weight_pair(first & mask, second & mask);
    const int16_t *a = resize->lines[0], *b = resize->lines[1];

    for (uint32_t i = 0; i < resize->stride; i += 16) {
        __m256i one = _mm256_loadu_si256((const __m256i *)(const void *)(a + i));
        __m256i two = _mm256_loadu_si256((const __m256i *)(const void *)(b + i));

        add_weighted(sums + i, _mm256_unpacklo_epi16(one, two), upper, lower);
        add_weighted(sums + i + 8, _mm256_unpackhi_epi16(one, two), upper, lower);
    }
}

AVX2 static void emit_avx2(const struct fb_resize *resize, const int32_t *sums, uint32_t *to)
{
    const __m256i half = _mm256_set1_epi32(1 << (BITS - 1));

    for (uint32_t x = 0; x < resize->across.out; x += 8, sums += 32) {
        __m256i part[4], bytes;

        for (unsigned i = 0; i < 4; i++) {
            part[i] = _mm256_loadu_si256((const __m256i *)(const void *)(sums + 8 * i));
            part[i] = _mm256_srai_epi32(_mm256_add_epi32(part[i], half), BITS);
        }
        bytes = _mm256_packus_epi16(_mm256_packs_epi32(part[0], part[1]),
                                    _mm256_packs_epi32(part[2], part[3]));
        _mm256_storeu_si256((__m256i *)(void *)(to + x),
                            _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 1, 2, 0)));
    }
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define across_avx2 across_plain
#define down_avx2 down_plain
#define emit_avx2 emit_plain
static bool has_avx2(void)
{
    return false;
}
#endif

/* ---- The whole ---- */

static uint64_t weights_bytes(uint64_t out, uint64_t taps)
{
    return fb_round_up(out * sizeof(uint32_t), 64) + fb_round_up(out * taps * sizeof(int32_t), 64);
}

static uint64_t stride_of(uint32_t out)
{
    return fb_round_up((uint64_t)out * 4, 32);
}

uint64_t fb_resize_bytes(uint32_t side, uint32_t out_width, uint32_t out_height,
                         enum fb_filter filter)
{
    struct fb_span across = { .size = side, .in = side, .out = out_width };
    struct fb_span down = { .size = side, .in = side, .out = out_height };
    uint64_t fewest = 2 * (uint64_t)filter_reach(filter) + 1; /* of a picture made larger */
    uint64_t columns = fb_round_up(fb_max(taps_of(&across, filter), fewest), GROUP);
    uint64_t rows = fb_max(taps_of(&down, filter), fewest);

    return 64 + weights_bytes(out_width, columns) + weights_bytes(out_height, rows) +
           stride_of(out_width) * (2 * sizeof(int16_t) + out_height * sizeof(int32_t));
}

/* Memory is cut up from the front. */
static void *cut(char **memory, uint64_t bytes)
{
    void *piece = *memory;

    *memory += fb_round_up(bytes, 64);
    return piece;
}

static void weights_place(struct fb_weights *weights, uint32_t out, char **memory)
{
    weights->first = cut(memory, out * sizeof(*weights->first));
    weights->values = cut(memory, (uint64_t)out * weights->taps * 2 * sizeof(int16_t));
}

static uint32_t last_pair(const struct fb_resize *resize, uint32_t out)
{
    return (resize->rows.first[out] + resize->rows.taps - 1) / 2;
}

/* How many rows of the result are under way at once, at most. */
static uint32_t ring_of(const struct fb_resize *resize)
{
    uint32_t most = 1;

    for (uint32_t out = 0, end = 0; out < resize->down.out; out++) {
        while (end < resize->down.out && resize->rows.first[end] / 2 <= last_pair(resize, out))
            end++;
        most = end - out > most ? end - out : most;
    }
    return most;
}

bool fb_resize_begin(struct fb_resize *resize, struct fb_span across, struct fb_span down,
                     enum fb_filter filter, void *memory, uint64_t bytes, uint32_t *to, bool plain)
{
    char *at = (char *)fb_round_up((uintptr_t)memory, 64), *end = (char *)memory + bytes;
    uint64_t fixed;

    *resize = (struct fb_resize){ .across = across, .down = down, .to = to,
                                  .plain = plain || !has_avx2() };
    resize->stride = (uint32_t)stride_of(across.out);
    resize->columns.taps = (uint32_t)fb_round_up(taps_of(&across, filter), GROUP);
    resize->rows.taps = taps_of(&down, filter);
    fixed = weights_bytes(across.out, resize->columns.taps) +
            weights_bytes(down.out, resize->rows.taps) + 2 * resize->stride * sizeof(int16_t);
    if (at > end || fixed > (uint64_t)(end - at))
        return false;
    weights_place(&resize->columns, across.out, &at);
    weights_place(&resize->rows, down.out, &at);
    weights_init(&resize->columns, &across, filter);
    weights_init(&resize->rows, &down, filter);
    for (unsigned i = 0; i < 2; i++) {
        resize->lines[i] = cut(&at, resize->stride * sizeof(int16_t));
        memset(resize->lines[i], 0, resize->stride * sizeof(int16_t));
    }
    resize->ring = ring_of(resize);
    if (resize->ring * (uint64_t)resize->stride * sizeof(int32_t) > (uint64_t)(end - at))
        return false;
    resize->sums = (int32_t *)(void *)at;
    return true;
}

/* The weight of input row `row` in a row of the result; 0 if it is no part of it. */
static int32_t row_weight(const struct fb_resize *resize, uint32_t out, uint32_t row)
{
    uint32_t first = resize->rows.first[out];

    if (row < first || row - first >= resize->rows.taps)
        return 0;
    return weight_at(resize->rows.values + (uint64_t)out * resize->rows.taps * 2, resize->rows.taps,
                     row - first);
}

static void add_pair(struct fb_resize *resize, uint32_t row)
{
    uint32_t pair = row / 2;

    while (resize->begun < resize->down.out && resize->rows.first[resize->begun] / 2 <= pair) {
        memset(resize->sums + (uint64_t)(resize->begun % resize->ring) * resize->stride, 0,
               resize->stride * sizeof(int32_t));
        resize->begun++;
    }
    for (uint32_t out = resize->done; out < resize->begun; out++) {
        int32_t *sums = resize->sums + (uint64_t)(out % resize->ring) * resize->stride;
        int32_t first = row_weight(resize, out, row), second = row_weight(resize, out, row + 1);
        uint32_t *to = resize->to + (uint64_t)out * resize->across.out;

        if (first || second)
            (resize->plain ? down_plain : down_avx2)(resize, sums, first, second);
        if (last_pair(resize, out) > pair)
            continue;
        (resize->plain ? emit_plain : emit_avx2)(resize, sums, to);
        resize->done++;
    }
}

void fb_resize_row(struct fb_resize *resize, const uint8_t *rgbx)
{
    uint32_t row = resize->fed++;

    if (row >= resize->down.in)
        return;
    (resize->plain ? across_plain : across_avx2)(resize, rgbx, resize->lines[row % 2]);
    if (row % 2 == 1 || resize->fed == resize->down.in)
        add_pair(resize, row & ~1u);
}
