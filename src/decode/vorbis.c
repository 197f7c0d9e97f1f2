/*
 * vorbis.c -- how much memory the headers of an Ogg stream ask for, before a library believes them.
 *
 * A setup header of some hundred bytes can make libvorbis allocate gigabytes, and as much of the
 * stack. So the header is walked here as libvorbis will, counting; nothing is allocated.
 */
#include <string.h>

#include "base/size.h"
#include "decode/sound_inside.h"

#define PAGES_MAX 4096           /* until the setup header has come */
#define COMMENT_BYTES_MAX FB_MIB /* libogg and libvorbis keep a copy each */
#define SETUP_BYTES_MAX (128 * FB_KIB)
#define ENTRIES_MAX 8192u             /* of a codebook: libvorbis takes 8 bytes of stack for each */
#define VORBIS_BYTES_MAX (3 * FB_MIB) /* for all tables */
#define PAGE_HEAD 27u

/* ---- packets out of pages ---- */

struct pages {
    const struct fb_input *input;
    uint64_t at;
    uint8_t head[PAGE_HEAD + 255];
    unsigned segment, segments;
    uint64_t body; /* of the page: where its next segment lies */
    bool has_serial;
    uint8_t serial[4]; /* of the stream that began first */
};

static int next_page(struct pages *pages, forebay_error *error)
{
    for (unsigned i = 0; i < PAGES_MAX; i++) {
        uint64_t bytes = 0;
        int status = fb_input_read(pages->input, pages->head, PAGE_HEAD, pages->at, error);

        if (!status && memcmp(pages->head, "OggS", 4) != 0)
            status = fb_fail(error, FOREBAY_BAD_DATA, "no page of Ogg at byte %" PRIu64, pages->at);
        pages->segments = pages->head[26];
        if (!status)
            status = fb_input_read(pages->input, pages->head + PAGE_HEAD, pages->segments,
                                   pages->at + PAGE_HEAD, error);
        if (status)
            return status;
        for (unsigned s = 0; s < pages->segments; s++)
            bytes += pages->head[PAGE_HEAD + s];
        pages->body = pages->at + PAGE_HEAD + pages->segments;
        pages->at = pages->body + bytes;
        pages->segment = 0;
        if (!pages->has_serial)
            memcpy(pages->serial, pages->head + 14, 4);
        pages->has_serial = true;
        if (memcmp(pages->serial, pages->head + 14, 4) == 0)
            return FOREBAY_OK;
    }
    return fb_fail(error, FOREBAY_BAD_DATA, "its headers do not end within %d pages", PAGES_MAX);
}

/* The next packet, as much of it as `room` holds. More than `most` bytes of it are refused. */
static int next_packet(struct pages *pages, uint8_t *into, uint64_t room, uint64_t most,
                       uint64_t *bytes, forebay_error *error)
{
    uint64_t have = 0;
    unsigned size = 255;

    for (*bytes = 0; size == 255;) {
        int status = FOREBAY_OK;

        if (pages->segment == pages->segments) {
            status = next_page(pages, error);
            if (status)
                return status;
            continue;
        }
        size = pages->head[PAGE_HEAD + pages->segment++];
        if (have < room)
            status = fb_input_read(pages->input, into + have, fb_min(size, room - have),
                                   pages->body, error);
        if (status)
            return status;
        have += fb_min(size, room - have);
        pages->body += size;
        *bytes += size;
        if (*bytes > most)
            return fb_fail(error, FOREBAY_BAD_DATA, "a header of more than %" PRIu64 " bytes",
                           most);
    }
    *bytes = have;
    return FOREBAY_OK;
}

/* ---- the setup header ---- */

struct setup {
    const uint8_t *bytes;
    uint64_t bits, at; /* there are, and were read */
    bool over;         /* more were asked for */
    uint64_t memory;   /* that libvorbis will take */
    uint32_t entries[256];
    uint32_t dims[256];
    unsigned books;
};

static uint32_t take(struct setup *setup, unsigned bits)
{
    uint32_t value = 0;

    if (setup->bits - setup->at < bits) {
        setup->over = true;
        setup->at = setup->bits;
        return 0;
    }
    for (unsigned i = 0; i < bits; i++, setup->at++)
        value |= (uint32_t)(setup->bytes[setup->at / 8] >> (setup->at % 8) & 1) << i;
    return value;
}

static void skip(struct setup *setup, uint64_t bits)
{
    setup->over |= setup->bits - setup->at < bits;
    setup->at = setup->over ? setup->bits : setup->at + bits;
}

static unsigned bits_of(uint32_t value)
{
    return value ? 32 - (unsigned)__builtin_clz(value) : 0;
}

static void take_lengths(struct setup *setup, uint32_t entries)
{
    if (take(setup, 1)) { /* in order */
        skip(setup, 5);
        for (uint32_t i = 0; i < entries && !setup->over;)
            i += take(setup, bits_of(entries - i));
    } else if (take(setup, 1)) { /* some are unused */
        for (uint32_t i = 0; i < entries && !setup->over; i++)
            if (take(setup, 1))
                skip(setup, 5);
    } else {
        skip(setup, (uint64_t)entries * 5);
    }
}

/* The largest number whose dims-th power is not above `entries`. */
static uint32_t root_of(uint32_t entries, uint32_t dims)
{
    uint32_t root = 1;

    for (;; root++) {
        uint64_t power = 1;

        for (uint32_t i = 0; i < dims && power <= entries; i++)
            power *= root + 1;
        if (power > entries || dims == 0)
            return root;
    }
}

static int take_book(struct setup *setup, forebay_error *error)
{
    uint32_t mark = take(setup, 24), dims = take(setup, 16), entries = take(setup, 24), kind;

    if (setup->over || mark != 0x564342)
        return fb_fail(error, FOREBAY_BAD_DATA, "Vorbis: codebook %u has no beginning",
                       setup->books);
    if (entries > ENTRIES_MAX || (uint64_t)dims * entries > VORBIS_BYTES_MAX / 4)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "Vorbis: codebook %u asks for %" PRIu32 " entries of %" PRIu32
                       " numbers; at most %u are allowed",
                       setup->books, entries, dims, ENTRIES_MAX);
    take_lengths(setup, entries);
    kind = take(setup, 4);
    setup->memory += (uint64_t)entries * 32;
    if (kind == 1 || kind == 2) {
        uint64_t values = kind == 1 ? root_of(entries, dims) : (uint64_t)entries * dims;
        unsigned bits;

        skip(setup, 64);
        bits = take(setup, 4) + 1;
        skip(setup, 1 + values * bits);
        setup->memory += values * 8 + (uint64_t)entries * dims * 4;
    }
    setup->entries[setup->books] = entries;
    setup->dims[setup->books++] = dims;
    return FOREBAY_OK;
}

static void take_floor_1(struct setup *setup)
{
    uint32_t classes[32], dims[16] = { 0 }, partitions = take(setup, 5), most = 0, bits;

    for (uint32_t i = 0; i < partitions; i++) {
        classes[i] = take(setup, 4);
        most = classes[i] >= most ? classes[i] + 1 : most;
    }
    for (uint32_t i = 0; i < most; i++) {
        uint32_t subclasses;

        dims[i] = take(setup, 3) + 1;
        subclasses = take(setup, 2);
        skip(setup, (subclasses ? 8 : 0) + ((uint64_t)8 << subclasses));
    }
    skip(setup, 2);
    bits = take(setup, 4);
    for (uint32_t i = 0; i < partitions; i++)
        skip(setup, (uint64_t)dims[classes[i]] * bits);
    setup->memory += 4096;
}

static void take_floor(struct setup *setup)
{
    uint32_t kind = take(setup, 16);

    if (kind == 1) {
        take_floor_1(setup);
    } else if (kind == 0) {
        skip(setup, 8 + 16 + 16 + 6 + 8);
        skip(setup, (uint64_t)(take(setup, 4) + 1) * 8);
        setup->memory += 64 * FB_KIB; /* its map for both block sizes */
    } else {
        setup->over = true;
    }
}

static void take_residue(struct setup *setup)
{
    uint32_t classes, book;
    unsigned books = 0;

    skip(setup, 16 + 24 + 24 + 24);
    classes = take(setup, 6) + 1;
    book = take(setup, 8);
    for (uint32_t i = 0; i < classes; i++) {
        uint32_t cascade = take(setup, 3);

        if (take(setup, 1))
            cascade |= take(setup, 5) << 3;
        books += (unsigned)__builtin_popcount(cascade);
    }
    skip(setup, (uint64_t)books * 8);
    if (book < setup->books) /* each entry is unfolded into the classes of its partitions */
        setup->memory +=
            (uint64_t)setup->entries[book] * (8 + 4 * (uint64_t)setup->dims[book]) + 4096;
}

static int walk_setup(struct setup *setup, forebay_error *error)
{
    unsigned count = take(setup, 8) + 1;
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < count && !status; i++)
        status = take_book(setup, error);
    if (status)
        return status;
    count = take(setup, 6) + 1;
    skip(setup, (uint64_t)count * 16);
    count = take(setup, 6) + 1;
    for (unsigned i = 0; i < count; i++)
        take_floor(setup);
    count = take(setup, 6) + 1;
    for (unsigned i = 0; i < count; i++)
        take_residue(setup);
    if (setup->over)
        return fb_fail(error, FOREBAY_BAD_DATA, "Vorbis: the setup header is malformed");
    if (setup->memory > VORBIS_BYTES_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "Vorbis: the setup header asks for %" PRIu64
                       " bytes of tables; at most %" PRIu64 " are allowed",
                       setup->memory, VORBIS_BYTES_MAX);
    return FOREBAY_OK;
}

static int check_channels(unsigned channels, forebay_error *error)
{
    if (channels == 0 || channels > FB_SOUND_CHANNELS_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA, "it has %u channels; 1 to %u can be mixed",
                       channels, FB_SOUND_CHANNELS_MAX);
    return FOREBAY_OK;
}

int fb_vorbis_check(const struct fb_input *input, void *work, forebay_error *error)
{
    struct pages pages = { .input = input };
    struct setup setup = { .bytes = (uint8_t *)work + 7 };
    uint8_t first[32], mark[4];
    uint64_t bytes;
    int status = fb_input_read(input, mark, sizeof(mark), 0, error);

    if (status || memcmp(mark, "OggS", 4) != 0)
        return status;
    status = next_packet(&pages, first, sizeof(first), 65536, &bytes, error);
    if (status)
        return status;
    if (bytes >= 10 && memcmp(first, "OpusHead", 8) == 0)
        return check_channels(first[9], error);
    if (bytes < 30 || memcmp(first, "\1vorbis", 7) != 0)
        return fb_fail(error, FOREBAY_BAD_DATA, "an Ogg that holds neither Vorbis nor Opus");
    status = check_channels(first[11], error);
    if (!status)
        status = next_packet(&pages, work, SETUP_BYTES_MAX, COMMENT_BYTES_MAX, &bytes, error);
    if (!status)
        status = next_packet(&pages, work, SETUP_BYTES_MAX, SETUP_BYTES_MAX, &bytes, error);
    if (!status && (bytes < 8 || memcmp(work, "\5vorbis", 7) != 0))
        status = fb_fail(error, FOREBAY_BAD_DATA, "Vorbis: the third packet is no setup header");
    if (status)
        return status;
    setup.bits = (bytes - 7) * 8;
    return walk_setup(&setup, error);
}
