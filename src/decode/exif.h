/* exif.h -- which way up a picture was taken; nothing else of EXIF and XMP is looked at. */
#ifndef FB_DECODE_EXIF_H
#define FB_DECODE_EXIF_H
#include <stdbool.h>
#include <stdint.h>

/* The orientation (1 to 8) in a TIFF structure, which begins with II or MM. What is not there or
 * makes no sense is 1: as stored. */
unsigned fb_exif_orientation(const uint8_t *tiff, uint64_t bytes);
/* The same of a JPEG file or of its beginning: EXIF or XMP in APP1 segments before the scan. */
unsigned fb_exif_jpeg_orientation(const uint8_t *file, uint64_t bytes);
/* The same of a PNG file: eXIf, else XMP (iTXt), before or after the pixels. `cut`: the bytes end
 * inside a chunk, so there may be more to know. */
unsigned fb_exif_png_orientation(const uint8_t *file, uint64_t bytes, bool *cut);
#endif
