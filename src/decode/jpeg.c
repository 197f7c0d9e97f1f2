/*
 * jpeg.c -- JPEG through libjpeg-turbo: only the rows and blocks of a box are decoded.
 *
 * The accurate integer transform and smooth chroma give the same bits with and without SIMD.
 * A picture whose data ends early or is damaged is an error as far as the box is concerned; what
 * lies behind the box is not looked at. Four-component pictures are taken to be stored inverted,
 * as Adobe does and every reader assumes.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>

#include "base/size.h"
#include "decode/exif.h"
#include "decode/image.h"

#define SCANS_MAX 100 /* about 10 are usual; each more costs a pass over all blocks */
#define ROW_GROUPS 10 /* of 8 rows and their neighbours, which smooth chroma keeps at once */
#define FIXED_BYTES (64 * FB_KIB) /* structures, tables and libjpeg's pools; measured: 25 KiB */

struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr input;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    const struct fb_image *image;
    forebay_error *error;
    int status;
    bool has_header;
};

static uint64_t consumed(const struct jpeg *jpeg)
{
    return jpeg->image->file_bytes - fb_min(jpeg->input.bytes_in_buffer, jpeg->image->file_bytes);
}

/* Leave libjpeg through the setjmp of whoever called it. */
static _Noreturn void leave(struct jpeg *jpeg, int status)
{
    jpeg->status = status;
    longjmp(jpeg->back, 1);
}

static void error_exit(j_common_ptr info)
{
    struct jpeg *jpeg = info->client_data;
    char text[JMSG_LENGTH_MAX];
    uint64_t at = consumed(jpeg);

    if (info->err->msg_code == JERR_OUT_OF_MEMORY)
        leave(jpeg, fb_fail(jpeg->error, FOREBAY_NO_MEMORY, "no memory to decode a JPEG picture"));
    if (info->err->msg_code == JERR_NO_BACKING_STORE)
        leave(jpeg, fb_fail(jpeg->error, FOREBAY_BAD_DATA, "the picture wants more memory than the "
                            "%" PRIu64 " bytes a worker has (source.decode_memory)",
                            jpeg->image->limits.bytes));
    info->err->format_message(info, text);
    leave(jpeg, fb_fail(jpeg->error, FOREBAY_BAD_DATA, "JPEG, byte %" PRIu64 " of %" PRIu64 ": %s",
                        at, jpeg->image->file_bytes, text));
}

/* Warnings that mean wrong pixels are errors; the others mean nothing. */
static void emit_message(j_common_ptr info, int level)
{
    if (level >= 0)
        return;
    switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        error_exit(info);
    }
}

static void output_message(j_common_ptr info)
{
    (void)info;
}

static void input_begin(j_decompress_ptr info)
{
    (void)info;
}

/* The file is over. A picture may lack its end marker, but no data: it gets one, and the decoder
 * says if that came too early. Of several scans there might be more, so there it is an error. */
static boolean input_more(j_decompress_ptr info)
{
    static const JOCTET end[2] = { 0xff, JPEG_EOI };
    struct jpeg *jpeg = info->client_data;

    if (!jpeg->has_header || jpeg_has_multiple_scans(info))
        leave(jpeg, fb_fail(jpeg->error, FOREBAY_BAD_DATA, "JPEG: the file ends early, after its "
                            "%" PRIu64 " bytes%s", jpeg->image->file_bytes,
                            jpeg->has_header ? "" : ", inside the header"));
    jpeg->input.next_input_byte = end;
    jpeg->input.bytes_in_buffer = sizeof(end);
    return TRUE;
}

static void input_skip(j_decompress_ptr info, long bytes)
{
    struct jpeg_source_mgr *input = info->src;
    size_t step = bytes > 0 ? fb_min((uint64_t)bytes, input->bytes_in_buffer) : 0;

    input->next_input_byte += step;
    input->bytes_in_buffer -= step;
}

static void input_end(j_decompress_ptr info)
{
    (void)info;
}

static void count_scans(j_common_ptr info)
{
    struct jpeg *jpeg = info->client_data;

    if (jpeg->info.input_scan_number > SCANS_MAX)
        leave(jpeg, fb_fail(jpeg->error, FOREBAY_BAD_DATA, "JPEG, byte %" PRIu64 ": more than %d "
                            "scans: no encoder makes such a file", consumed(jpeg), SCANS_MAX));
}

static void prepare(struct jpeg *jpeg, const struct fb_image *image)
{
    struct jpeg_decompress_struct *info = &jpeg->info;

    jpeg->image = image;
    info->err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = error_exit;
    jpeg->errors.emit_message = emit_message;
    jpeg->errors.output_message = output_message;
    jpeg->input = (struct jpeg_source_mgr){ .next_input_byte = image->file,
                                            .bytes_in_buffer = image->file_bytes,
                                            .init_source = input_begin,
                                            .fill_input_buffer = input_more,
                                            .skip_input_data = input_skip,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = input_end };
    jpeg->progress.progress_monitor = count_scans;
    info->client_data = jpeg;
}

/* What libjpeg allocates for this picture, never less: rows of every component at full width, and
 * all coefficients (2 bytes each) if there are several scans. */
static uint64_t need_of(struct jpeg_decompress_struct *info)
{
    uint64_t bytes = sizeof(struct jpeg) + FIXED_BYTES, blocks = 0;
    uint64_t wide = fb_round_up(info->image_width, 8) + 64;

    for (int c = 0; c < info->num_components; c++) {
        const jpeg_component_info *component = &info->comp_info[c];
        uint64_t across = component->width_in_blocks + (uint64_t)component->h_samp_factor;
        uint64_t down = component->height_in_blocks + (uint64_t)component->v_samp_factor;

        bytes += across * 8 * (uint64_t)component->v_samp_factor * ROW_GROUPS;
        bytes += wide * (uint64_t)info->max_v_samp_factor;
        blocks += across * down;
    }
    return bytes + (jpeg_has_multiple_scans(info) ? blocks * sizeof(JBLOCK) : 0);
}

static int read_header(struct jpeg *jpeg, struct fb_image *image)
{
    if (setjmp(jpeg->back))
        return jpeg->status;
    jpeg_create_decompress(&jpeg->info);
    jpeg->info.client_data = jpeg;
    jpeg->info.src = &jpeg->input;
    jpeg_read_header(&jpeg->info, TRUE);
    jpeg->has_header = true;
    image->need = need_of(&jpeg->info);
    return FOREBAY_OK;
}

static void jpeg_close(struct fb_image *image)
{
    struct jpeg *jpeg = image->decoder;

    jpeg_destroy_decompress(&jpeg->info);
    free(jpeg);
}

static int jpeg_open(struct fb_image *image, forebay_error *error)
{
    struct jpeg *jpeg = calloc(1, sizeof(*jpeg));
    int status;

    if (!jpeg)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to decode a JPEG picture");
    image->decoder = jpeg;
    prepare(jpeg, image);
    jpeg->error = error;
    status = read_header(jpeg, image);
    if (!status)
        status = fb_image_check_size(image, jpeg->info.image_width, jpeg->info.image_height, error);
    if (!status)
        status = fb_image_check_need(image, jpeg_has_multiple_scans(&jpeg->info)
                                                ? "a progressive JPEG, all of whose coefficients "
                                                  "are kept,"
                                                : "a JPEG", error);
    if (status)
        return status;
    image->width = jpeg->info.image_width;
    image->height = jpeg->info.image_height;
    image->orientation = fb_exif_jpeg_orientation(image->file, image->file_bytes);
    jpeg->info.mem->max_memory_to_use = (long)fb_min(image->limits.bytes, INT64_MAX);
    return FOREBAY_OK;
}

/* Inverted CMYK to RGB, in place, as Pillow does it: k - (1 - c) k, rounded. */
static void cmyk_to_rgb(uint8_t *row, uint32_t pixels)
{
    for (uint32_t i = 0; i < pixels; i++, row += 4) {
        uint32_t k = row[3];

        for (unsigned c = 0; c < 3; c++) {
            uint32_t ink = (255u - row[c]) * k + 128;

            row[c] = (uint8_t)(k - ((ink >> 8) + ink) / 256);
        }
        row[3] = 255;
    }
}

static void begin(struct jpeg *jpeg, const struct fb_image_job *job)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    bool inks = info->num_components == 4;

    info->scale_num = 1;
    info->scale_denom = job->reduce;
    info->out_color_space = inks ? JCS_CMYK : JCS_EXT_RGBA;
    info->dct_method = JDCT_ISLOW;
    info->do_fancy_upsampling = TRUE;
    info->do_block_smoothing = FALSE; /* it guesses at scans that are missing */
    info->progress = &jpeg->progress;
    jpeg_start_decompress(info);
}

/* Columns of the box; returns where it begins in the rows that come. At a cut the smooth chroma has
 * no neighbour: exact means to decode a block more on both sides. */
static uint32_t crop(struct jpeg *jpeg, struct fb_box box, bool exact)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    uint32_t margin = exact ? 8 * (uint32_t)info->max_h_samp_factor : 0;
    JDIMENSION left = box.x - (JDIMENSION)fb_min(box.x, margin);
    JDIMENSION right = (JDIMENSION)fb_min(info->output_width, box.x + box.width + margin);
    JDIMENSION width = right - left;

    if (left > 0 || right < info->output_width)
        jpeg_crop_scanline(info, &left, &width);
    else
        left = 0;
    return box.x - left;
}

/* To an aligned row libjpeg-turbo writes past the CPU's caches, from where it would be read again
 * at once: that cost a tenth of all time. */
static uint8_t *unaligned_row(uint8_t *row)
{
    return (uintptr_t)row % 16 ? row : row + 4;
}

static int decode(struct jpeg *jpeg, const struct fb_image_job *job)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    struct fb_box box = fb_box_reduced(job->box, job->reduce);
    JSAMPROW row = unaligned_row(job->row);
    uint32_t left;

    if (setjmp(jpeg->back))
        return jpeg->status;
    begin(jpeg, job);
    left = crop(jpeg, box, job->exact);
    if (box.y > 0)
        jpeg_skip_scanlines(info, box.y);
    for (uint32_t y = 0; y < box.height; y++) {
        if (jpeg_read_scanlines(info, &row, 1) != 1)
            return fb_fail(jpeg->error, FOREBAY_BAD_DATA, "JPEG: row %" PRIu32 " is missing",
                           box.y + y);
        if (info->out_color_space == JCS_CMYK)
            cmyk_to_rgb(row, info->output_width);
        job->take(job->data, row + (size_t)left * 4, box.y + y);
    }
    return FOREBAY_OK;
}

static int jpeg_rows(struct fb_image *image, const struct fb_image_job *job, forebay_error *error)
{
    struct jpeg *jpeg = image->decoder;

    jpeg->error = error;
    return decode(jpeg, job);
}

static bool jpeg_matches(const uint8_t *file, uint64_t bytes)
{
    return bytes >= 3 && memcmp(file, "\xff\xd8\xff", 3) == 0;
}

const struct fb_image_ops fb_jpeg = {
    .name = "JPEG",
    .reduces = true,
    .matches = jpeg_matches,
    .open = jpeg_open,
    .rows = jpeg_rows,
    .close = jpeg_close,
};
