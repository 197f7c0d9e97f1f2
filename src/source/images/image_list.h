/*
 * image_list.h -- which pictures there are and what is on them.
 *
 * Either files found by globs, where the name of the folder a file lies in is its class: classes
 * are numbered in the order of their names' bytes, as torchvision does. A path that is a folder
 * stands for all pictures below it, told by their extensions. Or one file of comma-separated values that
 * ends in .csv: a path (relative to that file's folder) and a whole number in each line, in that
 * order; the first line may be a heading.
 */
#ifndef FB_SOURCE_IMAGE_LIST_H
#define FB_SOURCE_IMAGE_LIST_H
#include "source/files.h"

struct fb_image_list {
    struct fb_budget *budget;
    struct fb_files files;   /* sorted; of a .csv as listed */
    struct fb_tape labels;  /* of a .csv: an int64_t for each file */
    struct fb_tape classes; /* else: a uint32_t for each folder */
    uint64_t class_count;    /* 0 for a .csv */
};

/* On failure there is nothing to release. */
int fb_image_list_open(struct fb_image_list *list, const struct fb_config *config,
                       struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
void fb_image_list_release(struct fb_image_list *list);
int64_t fb_image_list_label(const struct fb_image_list *list, uint64_t number);
#endif
