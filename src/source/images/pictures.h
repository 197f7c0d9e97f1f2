/*
 * pictures.h -- what source.size, crop, flip, mean, std, layout, filter and exact make of a
 * picture's file, for every source that has pictures.
 *
 *   source.size   crop        a unit is                          finish() does
 *   none          none        the picture, u8 HWC, its own size  nothing
 *   set           none|center the picture, u8 HWC, resized       mirror, normalise, lay out
 *   set           random      the file as it is                  all, and decodes one box only
 *
 * So the cache always keeps the last thing that is the same in every epoch.
 */
#ifndef FB_SOURCE_PICTURES_H
#define FB_SOURCE_PICTURES_H
#include "decode/picture.h"
#include "source/source.h"

#define FB_PICTURES_HEADER_BYTES                                                                   \
    ((uint64_t)65536) /* what is read first to learn a picture's size */

struct fb_pictures {
    struct fb_picture_options options;
    struct fb_pixel_style style, plain; /* of the field; of a unit: u8 HWC */
    bool flip, encoded;                 /* encoded: a unit is a file as it is */
    bool finished;                      /* the field is made by finish() */
    uint64_t file_bytes_max;            /* larger ones are broken */
    uint64_t work_bytes;                /* what decoding works in, the file itself apart */
};

#define FB_DECODE_MEMORY_LEAST ((uint64_t)8 << 20) /* if it is auto, however small the budget */

/* source.decode_memory: what decoding one picture, or unpacking a shard, may take. */
uint64_t fb_decode_memory(const struct fb_config *config, struct fb_budget *shared);

int fb_pictures_init(struct fb_pictures *pictures, const struct fb_config *config,
                     struct fb_budget *budget, forebay_error *error);
/* All of the field but its name. */
void fb_pictures_describe(const struct fb_pictures *pictures, struct fb_field *field);
/* Bytes of every unit; 0 if they differ. */
uint64_t fb_pictures_unit_bytes(const struct fb_pictures *pictures);
/* The extent of a unit whose file has `file_bytes`, if that follows from the configuration; else
 * UNKNOWN: its size must be looked up. */
struct fb_extent fb_pictures_extent(const struct fb_pictures *pictures, uint64_t file_bytes);
/* Everything that changes what a unit holds. */
uint64_t fb_pictures_hash(const struct fb_pictures *pictures);

/* From the file, in memory, to the unit. Not for encoded ones. */
int fb_pictures_load(const struct fb_pictures *pictures, const uint8_t *file, uint64_t file_bytes,
                     void *to, uint64_t bytes, void *work, forebay_error *error);
/* From a unit to the field's place. */
int fb_pictures_finish(const struct fb_pictures *pictures, const void *in, uint64_t in_bytes,
                       struct fb_random random, void *out, uint64_t out_bytes, void *work,
                       forebay_error *error);
/* Is a unit whole? All of it is decoded, not only what a random box would have of it. */
int fb_pictures_check(const struct fb_pictures *pictures, const void *in, uint64_t in_bytes,
                      void *work, forebay_error *error);
#endif
