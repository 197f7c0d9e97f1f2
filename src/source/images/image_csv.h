/* image_csv.h -- lines of "path,label" to an index of files and their labels. */
#ifndef FB_SOURCE_IMAGE_CSV_H
#define FB_SOURCE_IMAGE_CSV_H
#include "source/files.h"

/* `labels` gets an int64_t for each file. On failure both may hold something, which the caller
 * releases. */
int fb_image_csv_read(struct fb_files *files, struct fb_tape *labels, const char *path,
                      struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
#endif
