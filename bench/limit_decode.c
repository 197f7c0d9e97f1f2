/*
 * limit_decode.c -- what decoding costs in plain C, with the libraries the field uses and no loader
 * around them: each thread takes the next file of a list that is already in memory.
 *
 *     limit_decode jpeg THREADS DIR     random resized crop to 224 x 224, normalised f32 CHW; only
 *                                       the crop is decoded (three ways, the fastest is printed)
 *     limit_decode audio THREADS DIR    16-bit wav and flac to f32, zeros behind to 15 s
 *
 * prints one JSON object.
 */
#include <FLAC/stream_decoder.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <jpeglib.h>

#define SECONDS 1.5
#define SIDE 224
#define THREADS_MAX 64
#define CLIP (16000 * 15)

struct file {
    unsigned char *bytes;
    size_t size;
    int is_flac;
};

struct worker {
    pthread_t thread;
    unsigned number;
    double items;
};

static struct file *files;
static size_t file_count;
static unsigned threads;
static int fast_dct, halving;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) * 0x1p-53;
}

struct box {
    int x, y, width, height;
};

/* 8 to 100 % of the area, sides 3:4 to 4:3, ten tries: the usual recipe. */
static struct box draw_box(int width, int height, uint64_t *state)
{
    int side = width < height ? width : height;

    for (int i = 0; i < 10; i++) {
        double area = width * (double)height * (0.08 + 0.92 * draw(state));
        double ratio = exp(log(0.75) + draw(state) * (log(4.0 / 3) - log(0.75)));
        int w = (int)round(sqrt(area * ratio)), h = (int)round(sqrt(area / ratio));

        if (w > 0 && h > 0 && w <= width && h <= height)
            return (struct box){ (int)(draw(state) * (width - w + 1)),
                                 (int)(draw(state) * (height - h + 1)), w, h };
    }
    return (struct box){ (width - side) / 2, (height - side) / 2, side, side };
}

/* Bilinear, two rows at a time, planar and normalised in the same pass. */
static void resize(const unsigned char *from, int pitch, double x0, double wide, double high,
                   int width, int height, float *out)
{
    static const float mean[3] = { 123.675f, 116.28f, 103.53f };
    static const float scale[3] = { 1 / 58.395f, 1 / 57.12f, 1 / 57.375f };
    float rows[2][3][SIDE], share[SIDE];
    int at[SIDE], have[2] = { -1, -1 };

    for (int i = 0; i < SIDE; i++) {
        double x = fmin(fmax(x0 + (i + 0.5) * wide / SIDE - 0.5, 0), width - 1);
        int left = x > width - 2 ? (width > 1 ? width - 2 : 0) : (int)x;

        at[i] = 3 * left;
        share[i] = (float)(x - left);
    }
    for (int j = 0; j < SIDE; j++) {
        double y = fmin(fmax((j + 0.5) * high / SIDE - 0.5, 0), height - 1);
        int top = y > height - 2 ? (height > 1 ? height - 2 : 0) : (int)y;
        float down = (float)(y - top);

        for (int row = top; row < top + 2; row++) {
            const unsigned char *line = from + (size_t)(row < height ? row : top) * (size_t)pitch;

            if (have[row & 1] == row)
                continue;
            have[row & 1] = row;
            for (int i = 0; i < SIDE; i++)
                for (int c = 0; c < 3; c++)
                    rows[row & 1][c][i] = line[at[i] + c] +
                                          (line[at[i] + 3 + c] - line[at[i] + c]) * share[i];
        }
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < SIDE; i++)
                out[(c * SIDE + j) * SIDE + i] =
                    (rows[top & 1][c][i] +
                     (rows[(top + 1) & 1][c][i] - rows[top & 1][c][i]) * down - mean[c]) * scale[c];
    }
}

static void decode_one(struct jpeg_decompress_struct *jpeg, const struct file *file,
                       unsigned char *pixels, float *out, uint64_t *state)
{
    struct box box;
    unsigned half = 1;
    JDIMENSION left, wide;
    int rows = 0, wanted, pitch;

    jpeg_mem_src(jpeg, file->bytes, file->size);
    jpeg_read_header(jpeg, TRUE);
    box = draw_box((int)jpeg->image_width, (int)jpeg->image_height, state);
    while (halving && half < 8 && box.width / (int)(half * 2) >= SIDE &&
           box.height / (int)(half * 2) >= SIDE)
        half *= 2;
    jpeg->scale_num = 1;
    jpeg->scale_denom = half;
    jpeg->out_color_space = JCS_RGB;
    jpeg->dct_method = fast_dct ? JDCT_IFAST : JDCT_ISLOW;
    jpeg->do_fancy_upsampling = !fast_dct;
    jpeg_start_decompress(jpeg);
    left = (JDIMENSION)box.x / half;
    wide = (JDIMENSION)box.width / half > 0 ? (JDIMENSION)box.width / half : 1;
    jpeg_crop_scanline(jpeg, &left, &wide);
    if ((unsigned)box.y / half)
        jpeg_skip_scanlines(jpeg, (JDIMENSION)box.y / half);
    pitch = (int)jpeg->output_width * 3;
    wanted = box.height / (int)half > 0 ? box.height / (int)half : 1;
    while (rows < wanted && jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = pixels + (size_t)rows * (size_t)pitch;

        rows += (int)jpeg_read_scanlines(jpeg, &row, 1);
    }
    resize(pixels, pitch, (double)box.x / half - left, (double)box.width / half, rows,
           (int)jpeg->output_width, rows, out);
    jpeg_abort_decompress(jpeg);
}

static void *decode_jpeg(void *argument)
{
    struct worker *worker = argument;
    unsigned char *pixels = malloc((size_t)4096 * 4096);
    float *out = malloc(sizeof(float) * 3 * SIDE * SIDE * 64);
    uint64_t state = 88172645463325252u + worker->number * 77;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    size_t at = worker->number;

    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    for (double begin = now(); now() - begin < SECONDS; worker->items++, at += threads)
        decode_one(&jpeg, &files[at % file_count], pixels,
                   out + (size_t)worker->items % 64 * 3 * SIDE * SIDE, &state);
    jpeg_destroy_decompress(&jpeg);
    free(pixels);
    free(out);
    return NULL;
}

/* ---- audio ---- */

struct flac_state {
    const struct file *file;
    size_t at, samples;
    float *out;
};

static FLAC__StreamDecoderReadStatus flac_read(const FLAC__StreamDecoder *decoder, FLAC__byte *to,
                                               size_t *bytes, void *data)
{
    struct flac_state *state = data;
    size_t left = state->file->size - state->at;

    (void)decoder;
    *bytes = *bytes < left ? *bytes : left;
    memcpy(to, state->file->bytes + state->at, *bytes);
    state->at += *bytes;
    return *bytes ? FLAC__STREAM_DECODER_READ_STATUS_CONTINUE
                  : FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
}

static FLAC__StreamDecoderWriteStatus flac_write(const FLAC__StreamDecoder *decoder,
                                                 const FLAC__Frame *frame,
                                                 const FLAC__int32 *const *channels, void *data)
{
    struct flac_state *state = data;

    (void)decoder;
    for (unsigned i = 0; i < frame->header.blocksize && state->samples < CLIP; i++)
        state->out[state->samples++] = (float)channels[0][i] * (1.f / 32768);
    return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
}

static void flac_error(const FLAC__StreamDecoder *decoder, FLAC__StreamDecoderErrorStatus status,
                       void *data)
{
    (void)decoder;
    (void)status;
    (void)data;
}

static size_t decode_wav(const struct file *file, float *out)
{
    const int16_t *from = (const int16_t *)(const void *)(file->bytes + 44);
    size_t samples = (file->size - 44) / 2;

    samples = samples < CLIP ? samples : CLIP;
    for (size_t i = 0; i < samples; i++)
        out[i] = (float)from[i] * (1.f / 32768);
    return samples;
}

static void *decode_audio(void *argument)
{
    struct worker *worker = argument;
    FLAC__StreamDecoder *decoder = FLAC__stream_decoder_new();
    float *out = malloc(sizeof(float) * CLIP * 16);
    size_t at = worker->number * 1001; /* every thread sees both kinds */

    for (double begin = now(); now() - begin < SECONDS; worker->items++, at++) {
        const struct file *file = &files[at % file_count];
        float *to = out + (size_t)worker->items % 16 * CLIP;
        struct flac_state state = { file, 0, 0, to };

        if (file->is_flac) {
            FLAC__stream_decoder_set_md5_checking(decoder, 0);
            FLAC__stream_decoder_init_stream(decoder, flac_read, NULL, NULL, NULL, NULL, flac_write,
                                             NULL, flac_error, &state);
            FLAC__stream_decoder_process_until_end_of_stream(decoder);
            FLAC__stream_decoder_finish(decoder);
        } else {
            state.samples = decode_wav(file, to);
        }
        memset(to + state.samples, 0, sizeof(float) * (CLIP - state.samples));
    }
    FLAC__stream_decoder_delete(decoder);
    free(out);
    return NULL;
}

/* ---- files ---- */

static void load(const char *path, int is_flac)
{
    FILE *stream = fopen(path, "rb");
    struct stat info;

    if (!stream || stat(path, &info)) {
        perror(path);
        exit(1);
    }
    files = realloc(files, (file_count + 1) * sizeof(*files));
    files[file_count] = (struct file){ malloc((size_t)info.st_size), (size_t)info.st_size,
                                       is_flac };
    if (fread(files[file_count].bytes, 1, (size_t)info.st_size, stream) != (size_t)info.st_size)
        exit(1);
    file_count++;
    fclose(stream);
}

static void load_folder(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);

    if (count < 0) {
        perror(folder);
        exit(1);
    }
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name, *dot = strrchr(name, '.');
        char path[4096];
        struct stat info;

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (name[0] == '.' || file_count >= 2000 || stat(path, &info))
            continue;
        if (S_ISDIR(info.st_mode))
            load_folder(path);
        else if (dot && (!strcmp(dot, ".jpg") || !strcmp(dot, ".wav") || !strcmp(dot, ".flac")))
            load(path, !strcmp(dot, ".flac"));
    }
}

static double run(void *(*work)(void *))
{
    static struct worker workers[THREADS_MAX];
    double begin = now(), items = 0;

    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (struct worker){ .number = i };
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        items += workers[i].items;
    }
    return items / (now() - begin);
}

int main(int argc, char **argv)
{
    double best = 0;

    threads = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
    if (threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "use: limit_decode jpeg|audio THREADS DIR\n");
        return 2;
    }
    load_folder(argv[3]);
    if (!file_count) {
        fprintf(stderr, "%s: no .jpg, .wav or .flac\n", argv[3]);
        return 1;
    }
    for (int way = 0; way < (strcmp(argv[1], "jpeg") ? 1 : 3); way++) {
        double rate;

        fast_dct = way > 0;
        halving = way > 1;
        rate = run(strcmp(argv[1], "jpeg") ? decode_audio : decode_jpeg);
        best = rate > best ? rate : best;
    }
    printf("{\"test\": \"%s\", \"threads\": %u, \"items_per_s\": %.2f}\n", argv[1], threads, best);
    return 0;
}
