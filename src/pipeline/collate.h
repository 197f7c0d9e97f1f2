/*
 * collate.h -- how samples lie in a batch.
 *
 *   stack   every item of a field has one shape: [B, items, rows, columns, cell...]
 *   pad     the same with the largest of the batch, zeros behind, and <field>_length
 *   ragged  rows one behind the other: [rows of all, columns, cell...], and <field>_offsets
 *
 * A field that is always_ragged (text) is laid out like ragged, whatever the others are.
 *
 * fb_collation is made at open and says which outputs a batch has; fb_layout says where they lie in
 * one batch and is made from the extents of its samples. Both are plain numbers: no I/O, no lock.
 */
#ifndef FB_PIPELINE_COLLATE_H
#define FB_PIPELINE_COLLATE_H
#include "source/source.h"

enum fb_output_role { FB_OUTPUT_INDEX, FB_OUTPUT_DATA, FB_OUTPUT_LENGTH, FB_OUTPUT_OFFSETS };

/* One array of every batch. */
struct fb_output {
    enum fb_output_role role;
    unsigned field; /* of the source; unused for the index */
    char name[FB_NAME_BYTES + 16];
    forebay_dtype dtype;
};

/* What becomes of one field of the source. */
struct fb_column {
    bool wanted;
    forebay_dtype dtype;         /* in the batch */
    uint64_t cell_in, cell_out;  /* bytes of a cell, as loaded and in the batch */
    int collate;                 /* FB_COLLATE_* of this field */
    unsigned data, extra;        /* its outputs; extra is 0 if it has no length or offsets */
    unsigned vary;               /* leading dimensions that are no part of a cell: 0, 1 or 2 */
    uint64_t tail[FB_MAX_DIMS];  /* the fixed dimensions of a cell */
    unsigned tail_count;
};

struct fb_collation {
    const struct fb_source *source; /* may be gone when a batch is released after close */
    struct fb_budget *budget;
    unsigned field_count;
    int collate; /* FB_COLLATE_* */
    bool fixed;  /* every full batch has one layout, known at open */
    uint64_t batch_size;
    uint64_t align; /* of every output in a batch, a power of two */
    uint64_t tail;  /* bytes behind a batch, with device.cache: for lists of what goes where */
    struct fb_column *columns; /* per field of the source */
    unsigned output_count;
    struct fb_output *outputs; /* outputs[0] is "index" */
};

int fb_collation_open(struct fb_collation *collation, const struct fb_source *source,
                      const struct fb_config *config, struct fb_budget *budget,
                      forebay_error *error);
void fb_collation_close(struct fb_collation *collation);

/* Where one output lies in a batch. */
struct fb_placed {
    uint64_t offset, bytes;
    unsigned ndim;
    int64_t shape[FB_MAX_DIMS + 2];
    uint64_t rows, columns; /* data: of one item's room; ragged: rows are those of all */
};

/* What the samples of a batch ask for, per field: filled by fb_measure_add. */
struct fb_measure {
    uint64_t items;
    uint64_t rows_max, rows_min, rows_total;
    uint64_t columns_max, columns_min;
};

void fb_measure_add(struct fb_measure *measure, struct fb_extent extent);
/* Lay out `samples` samples. `measures` is per field of the source. Sizes that overflow are
 * OVER_BUDGET, shapes that differ under stack BAD_DATA. *bytes is the whole batch. */
int fb_collation_place(const struct fb_collation *collation, uint64_t samples,
                       const struct fb_measure *measures, struct fb_placed *placed,
                       uint64_t *bytes, forebay_error *error);
/* The largest batch there can be, from the source's index; 0 if not known before it comes. */
uint64_t fb_collation_largest(const struct fb_collation *collation);

/* Where item `item` of `field` of sample `at` begins, and its room in bytes. */
void *fb_collation_item(const struct fb_collation *collation, const struct fb_placed *placed,
                        void *memory, unsigned field, uint64_t at, unsigned item, uint64_t *room);
/* Before the samples are loaded: lengths or offsets of one item (ragged: in rising order). */
void fb_collation_note(const struct fb_collation *collation, const struct fb_placed *placed,
                       void *memory, unsigned field, uint64_t at, unsigned item,
                       struct fb_extent extent);
/* Take the samples that are not `kept` out of a full batch and close the gaps. Returns how many
 * stay; `placed` has their shapes then. */
uint64_t fb_collation_compact(const struct fb_collation *collation, struct fb_placed *placed,
                              void *memory, uint64_t samples, const bool *kept);
#endif
