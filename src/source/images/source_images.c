/*
 * source_images.c -- pictures' files with a label each: what is done with them is in pictures.h.
 *
 * Unit i is image i; label i is unit N + i, which is made from the index.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/images/image_list.h"
#include "source/images/pictures.h"
#include "source/source.h"

#define SIZE_BROKEN UINT64_MAX

enum { IMAGE, LABEL, FIELDS };

struct images_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_field fields[FIELDS];
    struct fb_image_list list;
    struct fb_pictures pictures;
    uint64_t largest;                   /* of the files that are not too large */
    _Atomic uint64_t *sizes;            /* without source.size: 0, SIZE_BROKEN or rows << 32 | columns */
};

static void images_close(struct fb_source *source)
{
    struct images_source *images = (struct images_source *)source;

    fb_block_free(images->budget, FB_STAGE_INDEX, images->sizes, images->list.files.count,
                  sizeof(*images->sizes));
    fb_image_list_release(&images->list);
    fb_block_free(images->budget, FB_STAGE_INDEX, images, 1, sizeof(*images));
}

/* ---- Asked without I/O ---- */

static uint64_t image_count(const struct images_source *images)
{
    return images->list.files.count;
}

static bool is_broken(const struct images_source *images, uint64_t number)
{
    const struct fb_file *file = &images->list.files.file[number];

    return file->fault || file->bytes == 0 || file->bytes > images->pictures.file_bytes_max;
}

static unsigned images_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    const struct images_source *images = (const struct images_source *)source;

    parts[0] = (struct fb_part){ .unit = sample, .field = IMAGE, .rows = FB_ALL_ROWS };
    parts[1] = (struct fb_part){ .unit = image_count(images) + sample, .field = LABEL,
                                 .rows = FB_ALL_ROWS };
    return 2;
}

static struct fb_extent extent_exact(uint64_t rows, uint64_t columns)
{
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = rows, .columns = columns };
}

static struct fb_extent images_extent(const struct fb_source *source, uint64_t unit)
{
    const struct images_source *images = (const struct images_source *)source;
    struct fb_extent extent;
    uint64_t size;

    if (unit >= image_count(images))
        return extent_exact(1, 1);
    if (is_broken(images, unit))
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    extent = fb_pictures_extent(&images->pictures, images->list.files.file[unit].bytes);
    if (extent.known == FB_EXTENT_EXACT)
        return extent;
    size = atomic_load_explicit(&images->sizes[unit], memory_order_relaxed);
    if (size == SIZE_BROKEN)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    if (size == 0)
        return (struct fb_extent){ .known = FB_EXTENT_UNKNOWN };
    return extent_exact(size >> 32, size & UINT32_MAX);
}

static void images_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    const struct images_source *images = (const struct images_source *)source;

    fb_files_place(&images->list.files, unit % image_count(images), text, size);
}

static bool images_file(const struct fb_source *source, uint64_t unit, struct fb_scratch scratch,
                        char *path, size_t size, uint64_t *bytes)
{
    const struct images_source *images = (const struct images_source *)source;

    (void)scratch;
    if (unit >= image_count(images))
        return false;
    fb_files_path(&images->list.files, unit, path, size);
    *bytes = images->list.files.file[unit].bytes;
    return true;
}

/* ---- Reading ---- */

/* The first `most` bytes of the file at `to`, or all of it if it is shorter. It must be as long as
 * it was when it was listed. */
static int read_file(const struct images_source *images, uint64_t unit, struct fb_reader *reader,
                     void *to, uint64_t most, uint64_t *bytes, forebay_error *error)
{
    const struct fb_file *file = &images->list.files.file[unit];
    char path[FB_PATH_BYTES];
    uint64_t found;
    int fd, status;

    fb_files_path(&images->list.files, unit, path, sizeof(path));
    status = fb_reader_open(reader, path, &fd, &found, error);
    if (status)
        return status;
    *bytes = fb_min(found, most);
    if (found == 0)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' is empty", path);
    else if (found > images->pictures.file_bytes_max)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' has %" PRIu64 " bytes; more than %" PRIu64
                         " for one picture need a larger source.decode_memory", path, found,
                         images->pictures.file_bytes_max);
    else if (found != file->bytes || file->fault)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' changed since it was indexed: %" PRIu64
                         " bytes then, %" PRIu64 " now", path, file->bytes, found);
    else
        status = fb_reader_read(reader, fd, path, to, *bytes, 0, error);
    close(fd);
    return status;
}

/* Behind the part of scratch that decode/picture.h works in. */
static uint8_t *file_room(const struct images_source *images, struct fb_scratch scratch)
{
    return (uint8_t *)scratch.memory + images->pictures.work_bytes;
}

static int name_file(const struct images_source *images, uint64_t unit, int status,
                     forebay_error *error)
{
    char place[256];

    if (status && error) {
        fb_files_place(&images->list.files, unit, place, sizeof(place));
        fb_error_context(error, "'%s'", place);
    }
    return status;
}

static int images_probe(struct fb_source *source, uint64_t unit, const struct fb_load *load,
                        forebay_error *error)
{
    struct images_source *images = (struct images_source *)source;
    uint8_t *file = file_room(images, load->scratch);
    uint64_t bytes, most = FB_PICTURES_HEADER_BYTES;
    uint32_t width, height;
    int status;

    for (;;) {
        status = read_file(images, unit, load->reader, file, most, &bytes, error);
        if (!status)
            status = name_file(images, unit, fb_picture_size(&images->pictures.options, file, bytes, &width,
                                                             &height, error), error);
        if (!fb_status_is_data(status) || bytes < most || most == images->largest)
            break;
        most = images->largest; /* the header is longer than most are */
    }
    if (!status)
        atomic_store_explicit(&images->sizes[unit], (uint64_t)height << 32 | width,
                              memory_order_relaxed);
    else if (fb_status_is_data(status))
        atomic_store_explicit(&images->sizes[unit], SIZE_BROKEN, memory_order_relaxed);
    return status;
}

static int load_label(const struct images_source *images, const struct fb_load *load)
{
    int64_t label = fb_image_list_label(&images->list, load->unit - image_count(images));

    memcpy(load->to, &label, fb_min(load->bytes, sizeof(label)));
    return FOREBAY_OK;
}

static int images_load(const struct fb_source *source, const struct fb_load *load,
                       forebay_error *error)
{
    const struct images_source *images = (const struct images_source *)source;
    uint8_t *file;
    uint64_t bytes;
    int status;

    if (load->unit >= image_count(images))
        return load_label(images, load);
    if (images->pictures.encoded)
        return read_file(images, load->unit, load->reader, load->to, load->bytes, &bytes, error);
    file = file_room(images, load->scratch);
    status = read_file(images, load->unit, load->reader, file, images->largest, &bytes, error);
    if (status)
        return status;
    status = fb_pictures_load(&images->pictures, file, bytes, load->to, load->bytes,
                              load->scratch.memory, error);
    return name_file(images, load->unit, status, error);
}

static int images_finish(const struct fb_source *source, uint64_t sample, const void *in,
                         struct fb_extent extent, struct fb_random random, void *out,
                         uint64_t out_bytes, struct fb_scratch scratch, forebay_error *error)
{
    const struct images_source *images = (const struct images_source *)source;
    int status = fb_pictures_finish(&images->pictures, in, extent.rows, random, out, out_bytes,
                                    scratch.memory, error);

    return name_file(images, sample, status, error);
}

static int images_check(const struct fb_source *source, uint64_t unit, const void *in,
                        struct fb_extent extent, struct fb_scratch scratch, forebay_error *error)
{
    const struct images_source *images = (const struct images_source *)source;

    return name_file(images, unit, fb_pictures_check(&images->pictures, in, extent.rows,
                                                     scratch.memory, error), error);
}

/* ---- Opening ---- */

static void describe_fields(struct images_source *images)
{
    images->fields[IMAGE] = (struct fb_field){ .name = "image" };
    fb_pictures_describe(&images->pictures, &images->fields[IMAGE]);
    images->fields[LABEL] = (struct fb_field){ .name = "label", .dtype = FOREBAY_I64, .items = 1,
                                               .cell_bytes = sizeof(int64_t), .indexed = true };
}

static void measure(struct images_source *images)
{
    struct fb_source *base = &images->base;
    uint64_t decoded = fb_pictures_unit_bytes(&images->pictures);

    for (uint64_t i = 0; i < image_count(images); i++) {
        uint64_t bytes = images->list.files.file[i].bytes;

        if (is_broken(images, i)) {
            base->broken_count++;
            continue;
        }
        images->largest = fb_max(images->largest, bytes);
        base->unit_bytes_total += images->pictures.encoded ? bytes : decoded;
    }
    images->largest = fb_max(images->largest, 1);
    base->unit_bytes_max = images->pictures.encoded ? images->largest : decoded;
}

static void describe(struct images_source *images)
{
    struct fb_source *base = &images->base;

    describe_fields(images);
    measure(images);
    base->sample_count = base->unit_count = image_count(images);
    base->field_count = FIELDS;
    base->fields = images->fields;
    base->parts_max = FIELDS;
    base->scratch_bytes = images->pictures.work_bytes + (images->pictures.encoded ? 0 : images->largest);
    base->library_bytes = images->pictures.options.limits.bytes;
    base->raw = images->pictures.encoded;
    base->uniform = images->pictures.options.width != 0;
    base->identity = fb_files_hash(&images->list.files, fb_pictures_hash(&images->pictures));
    base->fingerprint = fb_files_fingerprint(&images->list.files, FB_KIND_IMAGES);
}

static int images_open(struct fb_source **out, const struct fb_config *config,
                       struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    struct images_source *images = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*images),
                                                "images source", error);
    int status;

    if (!images)
        return fb_failed(error);
    images->base.ops = &fb_source_images;
    images->budget = budget;
    status = fb_pictures_init(&images->pictures, config, budget, error);
    if (!status)
        status = fb_image_list_open(&images->list, config, budget, log, error);
    if (status)
        goto fail;
    describe(images);
    if (!images->pictures.options.width) {
        images->sizes = fb_block_new(budget, FB_STAGE_INDEX, image_count(images),
                                     sizeof(*images->sizes), "sizes of images", error);
        if (!images->sizes) {
            status = fb_failed(error);
            goto fail;
        }
    }
    if (images->list.class_count)
        fb_say(log, "images: %" PRIu64 " files in %" PRIu64 " classes", image_count(images),
               images->list.class_count);
    *out = &images->base;
    return FOREBAY_OK;

fail:
    images_close(&images->base);
    return status;
}

const struct fb_source_ops fb_source_images = {
    .kind = "images",
    .description = "JPEG, PNG, BMP and PPM files, labelled by their folder or by a list",
    .open = images_open,
    .close = images_close,
    .parts = images_parts,
    .extent = images_extent,
    .probe = images_probe,
    .load = images_load,
    .finish = images_finish,
    .check = images_check,
    .file = images_file,
    .place = images_place,
};
