#include "decode/unpack.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/size.h"
#include "memory/block.h"

#define IN_BYTES ((uint64_t)131072)
/* Of inflate: a window of 32 KiB, its tables, and what malloc adds: measured 40 KiB. */
#define GZIP_BYTES ((uint64_t)65536)
/* Of a zstd stream without its window: the context, a block in, a block out: measured 420 KiB. */
#define ZSTD_BYTES ((uint64_t)524288)
#define ZSTD_HEADER 14u /* of a frame, at most: up to where its window and size are told */
#define ZSTD_FRAME 0xFD2FB528u
#define ZSTD_SKIPPED 0x184D2A50u /* and the 15 behind it */

struct fb_unpack {
    struct fb_budget *budget;
    enum fb_stage stage;
    enum fb_packing packing;
    const struct fb_input *input;
    uint64_t at; /* what is read next of it */
    unsigned char *in;
    uint64_t used, have; /* of `in` */
    bool inside;         /* a gzip member, a zstd frame */
    bool has_gzip;
    z_stream gzip;
    ZSTD_DCtx *zstd;
    uint64_t window_max, window;
};

static const struct {
    const char *name;
    unsigned char bytes[6];
    size_t count;
    int packing; /* -1: not read here */
} magics[] = {
    { "gzip", { 0x1f, 0x8b }, 2, FB_PACKING_GZIP },
    { "zstd", { 0x28, 0xb5, 0x2f, 0xfd }, 4, FB_PACKING_ZSTD },
    { "bzip2", { 'B', 'Z', 'h' }, 3, -1 },
    { "xz", { 0xfd, '7', 'z', 'X', 'Z', 0 }, 6, -1 },
    { "lz4", { 0x04, 0x22, 0x4d, 0x18 }, 4, -1 },
};

static uint32_t number_at(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

int fb_packing_find(const struct fb_input *input, enum fb_packing *packing, forebay_error *error)
{
    unsigned char bytes[6] = { 0 };
    uint64_t have = fb_min(input->bytes, sizeof(bytes));
    int status = fb_input_read(input, bytes, have, 0, error);

    if (status)
        return status;
    *packing = FB_PACKING_NONE;
    if (have >= 4 && (number_at(bytes) & ~15u) == ZSTD_SKIPPED)
        *packing = FB_PACKING_ZSTD; /* written by pzstd, which says sizes first */
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
        if (have < magics[i].count || memcmp(bytes, magics[i].bytes, magics[i].count) != 0)
            continue;
        if (magics[i].packing < 0)
            return fb_fail(error, FOREBAY_NOT_BUILT,
                           "it is packed with %s; plain archives, gzip and zstd are read: unpack "
                           "it, or pack it anew with zstd",
                           magics[i].name);
        *packing = (enum fb_packing)magics[i].packing;
    }
    return FOREBAY_OK;
}

const char *fb_packing_name(enum fb_packing packing)
{
    return packing == FB_PACKING_GZIP ? "gzip" : packing == FB_PACKING_ZSTD ? "zstd" : "plain";
}

/* ---- its life ---- */

static uint64_t library_bytes(uint64_t window_max)
{
    return GZIP_BYTES + (window_max ? ZSTD_BYTES + window_max : 0);
}

uint64_t fb_unpack_bytes(uint64_t window_max)
{
    return library_bytes(window_max) + IN_BYTES + sizeof(struct fb_unpack);
}

int fb_unpack_new(struct fb_unpack **out, uint64_t window_max, struct fb_budget *budget,
                  enum fb_stage stage, forebay_error *error)
{
    struct fb_unpack *unpack;
    int status = fb_budget_reserve(budget, stage, library_bytes(window_max),
                                   "unpacking compressed archives", error);

    if (status)
        return status;
    unpack = fb_block_new(budget, stage, 1, sizeof(*unpack), "unpacking archives", error);
    if (!unpack) {
        fb_budget_refund(budget, stage, library_bytes(window_max));
        return error ? error->status : FOREBAY_NO_MEMORY;
    }
    *unpack = (struct fb_unpack){ .budget = budget, .stage = stage, .window_max = window_max };
    unpack->in = fb_block_new(budget, stage, IN_BYTES, 1, "unpacking archives", error);
    if (!unpack->in) {
        fb_unpack_free(unpack);
        return error ? error->status : FOREBAY_NO_MEMORY;
    }
    *out = unpack;
    return FOREBAY_OK;
}

void fb_unpack_free(struct fb_unpack *unpack)
{
    struct fb_budget *budget;
    enum fb_stage stage;
    uint64_t library;

    if (!unpack)
        return;
    budget = unpack->budget;
    stage = unpack->stage;
    library = library_bytes(unpack->window_max);
    if (unpack->has_gzip)
        inflateEnd(&unpack->gzip);
    ZSTD_freeDCtx(unpack->zstd);
    fb_block_free(budget, stage, unpack->in, IN_BYTES, 1);
    fb_block_free(budget, stage, unpack, 1, sizeof(*unpack));
    fb_budget_refund(budget, stage, library);
}

static int make_ready(struct fb_unpack *unpack, forebay_error *error)
{
    if (unpack->packing == FB_PACKING_GZIP && !unpack->has_gzip) {
        unpack->has_gzip = inflateInit2(&unpack->gzip, 15 + 16) == Z_OK;
        if (!unpack->has_gzip)
            return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to unpack gzip");
    }
    if (unpack->packing == FB_PACKING_ZSTD) {
        if (!unpack->zstd)
            unpack->zstd = ZSTD_createDCtx();
        if (!unpack->zstd)
            return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to unpack zstd");
        ZSTD_DCtx_reset(unpack->zstd, ZSTD_reset_session_only);
        /* Frames are looked at before; zstd's own limit is only the one it is delivered with. */
        ZSTD_DCtx_setParameter(unpack->zstd, ZSTD_d_windowLogMax, 31);
    }
    return FOREBAY_OK;
}

int fb_unpack_begin(struct fb_unpack *unpack, enum fb_packing packing, const struct fb_input *input,
                    forebay_error *error)
{
    unpack->packing = packing;
    unpack->input = input;
    unpack->at = unpack->used = unpack->have = unpack->window = 0;
    unpack->inside = false;
    return make_ready(unpack, error);
}

void fb_unpack_jump(struct fb_unpack *unpack, uint64_t offset)
{
    unpack->at = fb_min(offset, unpack->input->bytes);
}

uint64_t fb_unpack_at(const struct fb_unpack *unpack)
{
    return unpack->at - (unpack->have - unpack->used);
}

uint64_t fb_unpack_window(const struct fb_unpack *unpack)
{
    return unpack->window;
}

static int fail_at(const struct fb_unpack *unpack, const char *what, forebay_error *error)
{
    return fb_fail(error, FOREBAY_BAD_DATA, "%s: byte %" PRIu64 " of the packed file: %s",
                   fb_packing_name(unpack->packing), fb_unpack_at(unpack), what);
}

/* At least `wanted` bytes in `in`, or all that are left. */
static int refill(struct fb_unpack *unpack, uint64_t wanted, forebay_error *error)
{
    uint64_t held = unpack->have - unpack->used, more;
    int status;

    if (held >= wanted || unpack->at == unpack->input->bytes)
        return FOREBAY_OK;
    memmove(unpack->in, unpack->in + unpack->used, held);
    unpack->used = 0;
    unpack->have = held;
    more = fb_min(IN_BYTES - held, unpack->input->bytes - unpack->at);
    status = fb_input_read(unpack->input, unpack->in + held, more, unpack->at, error);
    if (status)
        return status;
    unpack->have += more;
    unpack->at += more;
    return FOREBAY_OK;
}

/* ---- gzip: members one behind the other ---- */

/* Between members; *end if only zeros follow, as tapes have them. */
static int begin_member(struct fb_unpack *unpack, bool *end, forebay_error *error)
{
    for (;;) {
        int status = refill(unpack, 2, error);

        if (status)
            return status;
        if (fb_unpack_at(unpack) && unpack->used < unpack->have && !unpack->in[unpack->used]) {
            unpack->used++;
            continue;
        }
        break;
    }
    *end = unpack->used == unpack->have;
    if (*end)
        return FOREBAY_OK;
    if (unpack->have - unpack->used < 2 || unpack->in[unpack->used] != 0x1f ||
        unpack->in[unpack->used + 1] != 0x8b)
        return fail_at(unpack, "something else follows the packed data", error);
    if (inflateReset(&unpack->gzip) != Z_OK)
        return fail_at(unpack, "it cannot be unpacked", error);
    unpack->inside = true;
    return FOREBAY_OK;
}

static int read_gzip(struct fb_unpack *unpack, unsigned char *into, uint64_t bytes, uint64_t *made,
                     forebay_error *error)
{
    z_stream *gzip = &unpack->gzip;
    uint64_t had = unpack->have - unpack->used;
    int result;

    gzip->next_in = unpack->in + unpack->used;
    gzip->avail_in = (uInt)had;
    gzip->next_out = into;
    gzip->avail_out = (uInt)fb_min(bytes, FB_GIB);
    result = inflate(gzip, Z_NO_FLUSH);
    unpack->used += had - gzip->avail_in;
    *made = fb_min(bytes, FB_GIB) - gzip->avail_out;
    if (result == Z_MEM_ERROR)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to unpack gzip");
    if (result == Z_STREAM_END)
        unpack->inside = false;
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return fail_at(unpack, gzip->msg ? gzip->msg : "it is malformed", error);
    else if (*made == 0 && gzip->avail_in == 0 && unpack->at == unpack->input->bytes)
        return fail_at(unpack, "the packed data ends early", error);
    return FOREBAY_OK;
}

/* ---- zstd: frames one behind the other ---- */

/* The window a frame wants, from its header (RFC 8878, 3.1.1.1); false if that is cut off. */
static bool frame_window(const unsigned char *header, uint64_t have, uint64_t *window)
{
    static const unsigned dictionary[] = { 0, 1, 2, 4 }, size[] = { 0, 2, 4, 8 };
    unsigned flags = have > 4 ? header[4] : 0, bytes = size[flags >> 6], at;

    if (have < 6)
        return false;
    if (!(flags & 32)) {
        uint64_t base = (uint64_t)1 << (10 + (header[5] >> 3));

        *window = base + base / 8 * (header[5] & 7);
        return true;
    }
    at = 5 + dictionary[flags & 3]; /* all in one piece: as large as what comes out */
    bytes = bytes ? bytes : 1;
    if (have < at + bytes)
        return false;
    *window = 0;
    for (unsigned i = bytes; i-- > 0;)
        *window = *window << 8 | header[at + i];
    *window += bytes == 2 ? 256 : 0;
    return true;
}

static int begin_frame(struct fb_unpack *unpack, bool *end, forebay_error *error)
{
    int status = refill(unpack, ZSTD_HEADER, error);
    const unsigned char *header = unpack->in + unpack->used;
    uint64_t have = unpack->have - unpack->used, window = 0;

    *end = have == 0;
    if (status || *end)
        return status;
    unpack->inside = true;
    if (have >= 4 && (number_at(header) & ~15u) == ZSTD_SKIPPED)
        return FOREBAY_OK;
    if (have < 4 || number_at(header) != ZSTD_FRAME)
        return fail_at(unpack, "something else follows the packed data", error);
    if (!frame_window(header, have, &window))
        return fail_at(unpack, "the packed data ends early", error);
    if (window > unpack->window_max)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "zstd: byte %" PRIu64 " of the packed file: it asks for a window of %" PRIu64
                       " bytes, and source.decode_memory allows %" PRIu64
                       "; raise that, or pack it anew without --long or --ultra",
                       fb_unpack_at(unpack), window, unpack->window_max);
    unpack->window = fb_max(unpack->window, window);
    return FOREBAY_OK;
}

static int read_zstd(struct fb_unpack *unpack, unsigned char *into, uint64_t bytes, uint64_t *made,
                     forebay_error *error)
{
    ZSTD_inBuffer in = { unpack->in + unpack->used, unpack->have - unpack->used, 0 };
    ZSTD_outBuffer out = { into, bytes, 0 };
    size_t result = ZSTD_decompressStream(unpack->zstd, &out, &in);

    unpack->used += in.pos;
    *made = out.pos;
    if (ZSTD_isError(result)) {
        if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
            return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to unpack zstd");
        return fail_at(unpack, ZSTD_getErrorName(result), error);
    }
    if (result == 0)
        unpack->inside = false;
    else if (out.pos == 0 && in.pos == in.size && unpack->at == unpack->input->bytes)
        return fail_at(unpack, "the packed data ends early", error);
    return FOREBAY_OK;
}

/* ---- all of them ---- */

static int read_plain(struct fb_unpack *unpack, void *into, uint64_t bytes, uint64_t *made,
                      forebay_error *error)
{
    uint64_t step = fb_min(bytes, unpack->input->bytes - unpack->at);
    int status = fb_input_read(unpack->input, into, step, unpack->at, error);

    if (!status) {
        unpack->at += step;
        *made = step;
    }
    return status;
}

/* Some more of what is packed; *end: there is none. */
static int read_some(struct fb_unpack *unpack, unsigned char *into, uint64_t bytes, uint64_t *made,
                     bool *end, forebay_error *error)
{
    bool gzip = unpack->packing == FB_PACKING_GZIP;
    int status = FOREBAY_OK;

    *made = 0;
    if (!unpack->inside)
        status = gzip ? begin_member(unpack, end, error) : begin_frame(unpack, end, error);
    if (status || *end)
        return status;
    status = refill(unpack, 1, error);
    if (status)
        return status;
    return gzip ? read_gzip(unpack, into, bytes, made, error)
                : read_zstd(unpack, into, bytes, made, error);
}

int fb_unpack_read(struct fb_unpack *unpack, void *into, uint64_t bytes, uint64_t *made,
                   forebay_error *error)
{
    bool end = false;

    if (unpack->packing == FB_PACKING_NONE)
        return read_plain(unpack, into, bytes, made, error);
    for (uint64_t done = *made = 0; done < bytes && !end; *made = done) {
        uint64_t step = 0;
        int status =
            read_some(unpack, (unsigned char *)into + done, bytes - done, &step, &end, error);

        if (status)
            return status;
        done += step;
    }
    return FOREBAY_OK;
}
