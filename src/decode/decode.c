#include "decode/decode.h"

#include <string.h>

#include "base/size.h"
#include "decode/npz.h"

#define PIECE_BYTES ((uint64_t)64 * 1024) /* for turning Fortran order */
#define NUMBER_BYTES 64u                  /* of the text of a .cls */

uint64_t fb_decoded_bytes(const struct fb_decoded *decoded)
{
    uint64_t bytes = forebay_dtype_bytes(decoded->dtype);

    for (unsigned i = 0; i < decoded->ndim; i++)
        if (!fb_mul(bytes, decoded->shape[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

/* ---- bytes ---- */

static int bytes_read(const struct fb_decoded *decoded, const struct fb_input *input,
                      const struct fb_decode_options *options, void *to, void *work,
                      forebay_error *error)
{
    (void)decoded;
    (void)options;
    (void)work;
    return fb_input_read(input, to, input->bytes, 0, error);
}

/* ---- a whole number in words: " -12\n" ---- */

static int parse_number(const char *text, uint64_t bytes, int64_t *number)
{
    uint64_t i = 0;
    bool negative;

    *number = 0;
    while (i < bytes && strchr(" \t\r\n\f\v", text[i]) && text[i])
        i++;
    negative = i < bytes && text[i] == '-';
    i += i < bytes && (text[i] == '-' || text[i] == '+');
    if (i == bytes || text[i] < '0' || text[i] > '9')
        return -1;
    for (; i < bytes && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_sub_overflow(*number, text[i] - '0', number))
            return -1;
    /* Counted downwards, because there is one more below 0 than above. */
    if (!negative && __builtin_sub_overflow(0, *number, number))
        return -1;
    while (i < bytes && strchr(" \t\r\n\f\v", text[i]) && text[i])
        i++;
    return i == bytes ? 0 : -1;
}

static int number_look(struct fb_decoded *decoded, const struct fb_input *input,
                       const struct fb_decode_options *options, void *work, forebay_error *error)
{
    char text[NUMBER_BYTES];
    int status;

    (void)options;
    (void)work;
    if (input->bytes > sizeof(text))
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "a class of %" PRIu64 " bytes; it must be a whole "
                       "number of at most %u",
                       input->bytes, NUMBER_BYTES);
    status = fb_input_read(input, text, input->bytes, 0, error);
    if (status)
        return status;
    *decoded = (struct fb_decoded){ .dtype = FOREBAY_I64 };
    if (parse_number(text, input->bytes, &decoded->as.number))
        return fb_fail(error, FOREBAY_BAD_DATA, "'%.*s' is no whole number", (int)input->bytes,
                       text);
    return FOREBAY_OK;
}

static int number_read(const struct fb_decoded *decoded, const struct fb_input *input,
                       const struct fb_decode_options *options, void *to, void *work,
                       forebay_error *error)
{
    (void)input;
    (void)options;
    (void)work;
    (void)error;
    memcpy(to, &decoded->as.number, sizeof(int64_t));
    return FOREBAY_OK;
}

/* ---- .npy, and members of .npz ---- */

static void npy_describe(struct fb_decoded *decoded)
{
    const struct fb_npy *npy = &decoded->as.npy;

    decoded->dtype = npy->dtype;
    decoded->ndim = npy->ndim;
    memcpy(decoded->shape, npy->shape, sizeof(decoded->shape));
}

static int npy_check(const struct fb_npy *npy, uint64_t bytes, forebay_error *error)
{
    char text[256];

    if (bytes == npy->header_bytes + npy->data_bytes)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_DATA,
                   "its header says %s, which makes %" PRIu64 " bytes, but there are %" PRIu64,
                   fb_npy_text(npy, text), npy->header_bytes + npy->data_bytes, bytes);
}

static int npy_look(struct fb_decoded *decoded, const struct fb_input *input,
                    const struct fb_decode_options *options, void *work, forebay_error *error)
{
    uint64_t header, have = fb_min(input->bytes, FB_NPY_HEADER_USUAL);
    int status = fb_input_read(input, work, have, 0, error);

    (void)options;
    if (!status)
        status = fb_npy_header_bytes(work, have, &header, error);
    if (!status && header > have) {
        have = fb_min(header, input->bytes);
        status = fb_input_read(input, work, have, 0, error);
    }
    if (!status)
        status = fb_npy_parse(&decoded->as.npy, work, have, error);
    if (!status)
        status = npy_check(&decoded->as.npy, input->bytes, error);
    if (!status)
        npy_describe(decoded);
    return status;
}

/* The next bytes of an array's values, from wherever it is. */
struct values {
    const struct fb_input *input;
    uint64_t at;
    struct fb_npz_stream *stream; /* NULL: the input itself */
};

static int values_pull(struct values *values, void *to, uint64_t bytes, forebay_error *error)
{
    int status = values->stream ? fb_npz_stream_read(values->stream, to, bytes, error)
                                : fb_input_read(values->input, to, bytes, values->at, error);

    values->at += bytes;
    return status;
}

static int values_read(struct values *values, const struct fb_npy *npy, void *to, void *piece,
                       forebay_error *error)
{
    uint64_t size = forebay_dtype_bytes(npy->dtype), total = npy->data_bytes / size;
    uint64_t height = npy->ndim ? npy->shape[0] : 1, room = PIECE_BYTES / size;
    int status = FOREBAY_OK;

    if (total && !npy->fortran)
        status = values_pull(values, to, npy->data_bytes, error);
    for (uint64_t first = 0, count; npy->fortran && first < total && !status; first += count) {
        /* Whole columns if one fits, else what is left of this one. */
        count = room >= height ? room / height * height : fb_min(room, height - first % height);
        count = fb_min(count, total - first);
        status = values_pull(values, piece, count * size, error);
        if (!status)
            fb_npy_place(npy, to, 0, height, piece, first, count);
    }
    if (!status && npy->swapped)
        fb_npy_swap(to, npy->dtype, total);
    return status;
}

static int npy_read(const struct fb_decoded *decoded, const struct fb_input *input,
                    const struct fb_decode_options *options, void *to, void *work,
                    forebay_error *error)
{
    struct values values = { .input = input, .at = decoded->as.npy.header_bytes };

    (void)options;
    return values_read(&values, &decoded->as.npy, to, work, error);
}

/* Opens the member and reads its header. */
static int npz_begin(struct fb_npz_stream **stream, struct fb_npy *npy,
                     const struct fb_npz_file *file, const char *array, void *work,
                     forebay_error *error)
{
    struct fb_npz_member member;
    uint64_t header = 0, have;
    uint8_t bytes[FB_NPY_HEADER_MAX];
    int status = fb_npz_find(file, work, array, &member, error);

    if (!status)
        status = fb_npz_stream_open(stream, file, &member, work, error);
    if (status)
        return status;
    have = fb_min(member.bytes, 12);
    status = fb_npz_stream_read(*stream, bytes, have, error);
    if (!status)
        status = fb_npy_header_bytes(bytes, have, &header, error);
    if (!status && header > have) {
        header = fb_min(header, member.bytes);
        status = fb_npz_stream_read(*stream, bytes + have, header - have, error);
        have = header;
    }
    if (!status)
        status = fb_npy_parse(npy, bytes, have, error);
    if (!status)
        status = npy_check(npy, member.bytes, error);
    if (status)
        fb_npz_stream_close(*stream);
    return status;
}

static int npz_look(struct fb_decoded *decoded, const struct fb_input *input,
                    const struct fb_decode_options *options, void *work, forebay_error *error)
{
    struct fb_npz_file file = { input->read, input->data, input->bytes };
    struct fb_npz_stream *stream;
    int status = npz_begin(&stream, &decoded->as.npy, &file, options->array, work, error);

    if (status)
        return status;
    fb_npz_stream_close(stream);
    npy_describe(decoded);
    return FOREBAY_OK;
}

static int npz_read(const struct fb_decoded *decoded, const struct fb_input *input,
                    const struct fb_decode_options *options, void *to, void *work,
                    forebay_error *error)
{
    struct fb_npz_file file = { input->read, input->data, input->bytes };
    struct values values = { .input = input };
    struct fb_npy npy;
    int status = npz_begin(&values.stream, &npy, &file, options->array, work, error);

    if (status)
        return status;
    if (npy.data_bytes != decoded->as.npy.data_bytes)
        status = fb_fail(error, FOREBAY_BAD_DATA, "it changed while it was read");
    if (!status)
        status = values_read(&values, &npy, to, (char *)work + FB_NPZ_WORK_BYTES, error);
    if (!status)
        status = fb_npz_stream_finish(values.stream, error);
    fb_npz_stream_close(values.stream);
    return status;
}

/* ---- sounds ---- */

static uint32_t rate_of(const struct fb_sound *sound, const struct fb_decode_options *options)
{
    return options->rate ? options->rate : sound->rate;
}

static int sound_look(struct fb_decoded *decoded, const struct fb_input *input,
                      const struct fb_decode_options *options, void *work, forebay_error *error)
{
    struct fb_sound sound;
    int status = fb_sound_probe(&sound, input, work, error);

    if (status)
        return status;
    *decoded = (struct fb_decoded){ .dtype = FOREBAY_F32, .ndim = 1, .as.sound = sound };
    decoded->shape[0] = fb_sound_frames_at(sound.frames, sound.rate, rate_of(&sound, options));
    return FOREBAY_OK;
}

static int sound_read(const struct fb_decoded *decoded, const struct fb_input *input,
                      const struct fb_decode_options *options, void *to, void *work,
                      forebay_error *error)
{
    const struct fb_sound *sound = &decoded->as.sound;

    return fb_sound_read_at(sound, input, 0, sound->frames, rate_of(sound, options), to, work,
                            error);
}

/* ---- the table ---- */

static const struct fb_decoder decoders[] = {
    { .extensions = "npy",
      .is_plain = true,
      .work_bytes = PIECE_BYTES,
      .look = npy_look,
      .read = npy_read },
    { .extensions = "npz",
      .is_archive = true,
      .work_bytes = FB_NPZ_WORK_BYTES + PIECE_BYTES,
      .library_bytes = FB_NPZ_LIBRARY_BYTES,
      .look = npz_look,
      .read = npz_read },
    { .extensions = "wav flac ogg opus mp3 aiff aif au caf",
      .is_sound = true,
      .work_bytes = FB_SOUND_WORK_BYTES,
      .library_bytes = FB_SOUND_LIBRARY_BYTES,
      .look = sound_look,
      .read = sound_read },
    { .extensions = "jpg jpeg png bmp ppm pgm pbm", .is_picture = true },
    { .extensions = "cls", .look = number_look, .read = number_read },
    { .extensions = "", .is_text = true, .read = bytes_read },
};
#define DECODERS (sizeof(decoders) / sizeof(decoders[0]))

static bool is_listed(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; *at; at += strspn(at, " ")) {
        size_t one = strcspn(at, " ");

        if (one == length && memcmp(at, word, length) == 0)
            return true;
        at += one;
    }
    return false;
}

const struct fb_decoder *fb_decoder_find(const char *extension)
{
    const char *dot = strrchr(extension, '.'), *last = dot ? dot + 1 : extension;

    for (size_t i = 0; i + 1 < DECODERS; i++)
        if (is_listed(decoders[i].extensions, last))
            return &decoders[i];
    return &decoders[DECODERS - 1];
}
