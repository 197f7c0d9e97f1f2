/*
 * image.h -- a picture's file in memory, decoded row by row. The format is told by the first bytes;
 * each format is one file and one line in the table of image.c.
 *
 *     fb_image_open ──▶ size, orientation, what decoding would take
 *     fb_image_rows ──▶ the rows of a box, one after the other, to a callback
 *     fb_image_close
 *
 * Rows are RGBA: four bytes a pixel, the fourth is 255 where the picture has no alpha. Grey, CMYK
 * and palettes become RGB, 16 bits become 8 (the upper byte). Every value is the same on every CPU.
 *
 * Nothing is allocated before the header has been read and its need compared with the allowance;
 * what the libraries allocate stays within it.
 */
#ifndef FB_DECODE_IMAGE_H
#define FB_DECODE_IMAGE_H
#include "base/error.h"

#define FB_IMAGE_SIDE_MAX 65500 /* what libjpeg takes; the others are held to the same */
#define FB_ROW_PADDING 64       /* bytes around a row that may be read, and mean nothing */

struct fb_image_limits {
    uint64_t pixels; /* width x height, at most */
    uint64_t bytes;  /* that libraries may allocate for one picture */
};

/* A part of a picture, in pixels of its stored form. */
struct fb_box {
    uint32_t x, y, width, height;
};

struct fb_image {
    const struct fb_image_ops *format;
    const uint8_t *file;
    uint64_t file_bytes;
    struct fb_image_limits limits;
    uint32_t width, height; /* as stored */
    unsigned orientation;   /* EXIF's, 1 to 8 */
    bool cut;               /* what tells the orientation may come after the bytes that are here */
    uint64_t need;          /* bytes that decoding takes, by our formula; 0 before it is known */
    void *decoder;          /* the format's own, with all it allocated; NULL if there is none */
};

/* What is asked of fb_image_rows. */
struct fb_image_job {
    struct fb_box box;  /* inside the picture */
    unsigned reduce;    /* 1, or if the format reduces 2, 4 or 8: it makes the picture so much smaller */
    bool exact;         /* the same values as if the whole picture were decoded */
    uint8_t *row;       /* room for a row: fb_image_row_bytes(image) */
    /* Called with the pixels of row `y` of the reduced picture that fb_box_reduced(box) has; 16
     * bytes after them may be read. */
    void (*take)(void *data, const uint8_t *rgba, uint32_t y);
    void *data;
};

/* Opens what can be read of the header; the file stays the caller's and must stay. On failure there
 * is nothing to close. */
int fb_image_open(struct fb_image *image, const uint8_t *file, uint64_t bytes,
                  const struct fb_image_limits *limits, forebay_error *error);
/* Once per open: decoding uses the picture up. */
int fb_image_rows(struct fb_image *image, const struct fb_image_job *job, forebay_error *error);
void fb_image_close(struct fb_image *image);

/* Room for a row of any picture that is up to `width` wide. */
static inline uint64_t fb_image_row_bytes(uint32_t width)
{
    return (uint64_t)width * 4 + FB_ROW_PADDING;
}
/* The box in pixels of the reduced picture: all that it touches. */
struct fb_box fb_box_reduced(struct fb_box box, unsigned reduce);

/* Is it one of the formats, by its first bytes? */
bool fb_image_is_known(const uint8_t *file, uint64_t bytes);

/* The size as seen: orientations 5 to 8 lie on their side. */
static inline bool fb_orientation_turns(unsigned orientation)
{
    return orientation >= 5;
}

/* ---- What a format is: jpeg.c, png.c, bmp.c, ... ---- */
struct fb_image_ops {
    const char *name;
    bool reduces; /* fb_image_job.reduce may be above 1 */
    bool (*matches)(const uint8_t *file, uint64_t bytes); /* by the first bytes */
    int (*open)(struct fb_image *image, forebay_error *error);
    int (*rows)(struct fb_image *image, const struct fb_image_job *job, forebay_error *error);
    void (*close)(struct fb_image *image); /* NULL: the decoder is one block of malloc's */
};
extern const struct fb_image_ops fb_jpeg, fb_png, fb_bmp, fb_ppm;
/* Refuse what is too large, in words: pixels here, bytes by each format. */
int fb_image_check_size(const struct fb_image *image, uint64_t width, uint64_t height,
                        forebay_error *error);
int fb_image_check_need(const struct fb_image *image, const char *why, forebay_error *error);
#endif
