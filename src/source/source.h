/*
 * source.h -- where data comes from: the seam between a source and the pipeline.
 *
 * A source knows samples and units. A unit is the smallest piece that is decoded and cached (a
 * file, a tar member, a series); a sample is a fixed tuple of fields, each made of slices of units.
 *
 *     sample ──parts()──▶ {unit, field, item, first row, rows} ...     no I/O, any thread
 *     unit ───extent()──▶ rows (and columns) it has, if known          no I/O, any thread
 *     unit ───load()────▶ its rows, decoded, at `to`                   I/O, any thread, no lock
 *
 * A field of a sample is `items` arrays (1, or the scans of a sequence), each of shape
 * [rows, columns, cell...]; only rows and columns may vary from sample to sample.
 *
 * To add a kind: docs/adding-a-source.md. One file source_<kind>.c that ends in the const ops struct
 * fb_source_<kind>, and one line in config/source_list.h.
 */
#ifndef FB_SOURCE_SOURCE_H
#define FB_SOURCE_SOURCE_H
#include "base/error.h"
#include "base/log.h"
#include "base/mix.h"
#include "base/read.h"
#include "config/config.h"
#include "memory/budget.h"

#define FB_MAX_DIMS 8
#define FB_NAME_BYTES 64
/* What a shuffle that reads from front to back, or block by block, mixes at a time (order.window:
 * auto). A constant: the order may not depend on the budget, or a state could not be resumed. */
#define FB_ORDER_WINDOW_BYTES ((uint64_t)32 << 20)

/* One field of every sample. Written at open, constant afterwards. */
struct fb_field {
    char name[FB_NAME_BYTES];
    forebay_dtype dtype;
    const char *unit; /* of the numbers, "days since 1970-01-01"; NULL: none is known. A constant */
    unsigned items;  /* arrays per sample: 1, or the length of a sequence */
    bool sequence;   /* `items` is a dimension of the batch even if it is 1 */
    bool always_ragged; /* text: one behind the other and <field>_offsets under every collate */
    unsigned vary;   /* how many leading dimensions may differ between items: 0, 1 or 2 */
    unsigned ndim;   /* of one item; 0 for a scalar */
    uint64_t shape[FB_MAX_DIMS]; /* of one item; 0 where it may vary */
    uint64_t cell_bytes; /* of shape[1..], of shape[2..] if vary is 2: a row has columns cells */
    uint64_t bytes_max;  /* its largest unit, decoded; 0: as unit_bytes_max of the source says */
    bool finished; /* its units hold other bytes than it (an encoded file): finish() makes it of them.
                    * Their extents count bytes; vary is 0, dtype is already what batch.dtype makes
                    * of it. */
    bool indexed;  /* load() makes it from the index (a label): no I/O, never cached nor counted; its
                    * units may have numbers from unit_count on */
};

/* A slice of a unit that becomes item `item` of field `field`. */
struct fb_part {
    uint64_t unit;
    uint32_t field;
    uint32_t item;
    uint64_t first_row;
    uint64_t rows; /* FB_ALL_ROWS: the whole unit, however many it has. Fewer than a fixed field's
                      shape[0] (a window beyond the end): zeros follow */
};
#define FB_ALL_ROWS UINT64_MAX

/* What is known of a unit without I/O. */
struct fb_extent {
    enum { FB_EXTENT_UNKNOWN, FB_EXTENT_EXACT, FB_EXTENT_BROKEN } known;
    uint64_t rows;    /* exact: rows x columns cells; 1 x 1 for a scalar */
    uint64_t columns; /* 1 unless the field's vary is 2 */
};

/* One worker's own memory for decoding, `scratch_bytes` of it; the source may use it inside one
 * load() or finish() only. */
struct fb_scratch {
    void *memory;
    uint64_t bytes;
};

/* What load() is asked to do. */
struct fb_load {
    uint64_t unit;
    uint64_t first_row, rows; /* within the extent; the whole unless the source has `rows_alone` */
    void *to;                 /* rows x columns x cell_bytes, C order, native endian, no gaps */
    uint64_t bytes;           /* exactly that many: write no more, and all of them */
    struct fb_scratch scratch;
    struct fb_reader *reader; /* this worker's own */
};

/* What gather() is asked to do: sample i of `count` to to[f] + i x (bytes of an item of field f),
 * for every field f whose to[f] is not NULL. */
struct fb_gather {
    const uint64_t *samples;
    uint64_t count;
    char *const *to; /* [field_count] */
    struct fb_scratch scratch;
    struct fb_reader *reader;
    uint64_t *hits, *misses; /* counted up */
};

/* What a source keeps in memory of its own (see keep). */
struct fb_kept {
    uint64_t items, bytes, limit_bytes;
};

struct fb_source;

/* All callbacks are required unless marked (optional). None is called under a lock. */
struct fb_source_ops {
    const char *kind;        /* "npy" */
    const char *description; /* one line for --help */

    /* Open what config->source_* describe: list the files, read what the index needs. Everything
     * that stays is reserved in `budget` (FB_STAGE_INDEX). *out is written only on success and is
     * then the caller's. A file that is broken is no failure here: its extent says BROKEN and
     * load() says why. */
    int (*open)(struct fb_source **out, const struct fb_config *config, struct fb_budget *budget,
                const struct fb_log *log, forebay_error *error);
    /* Close and free. Never NULL; also called on what open() left half way. */
    void (*close)(struct fb_source *source);

    /* The slices that make up `sample`: writes at most source->parts_max, returns how many.
     * Any thread, no I/O, no allocation. Ordered by field, then item. */
    unsigned (*parts)(const struct fb_source *source, uint64_t sample, struct fb_part *parts);
    /* Any thread, no I/O, no allocation. */
    struct fb_extent (*extent)(const struct fb_source *source, uint64_t unit);
    /* (optional) Find out an UNKNOWN extent by reading as little as possible; remembered, so that
     * extent() knows it from then on. Any thread, without a lock. */
    int (*probe)(struct fb_source *source, uint64_t unit, const struct fb_load *load,
                 forebay_error *error);
    /* Read and decode. Many workers call this at once, without any lock. If the unit turns out to
     * be other than its extent says (changed since the index was made), that is BAD_DATA. */
    int (*load)(const struct fb_source *source, const struct fb_load *load, forebay_error *error);
    /* (optional) The random part, and what is better done last: from a whole unit `in` to a
     * finished field's place in the slot, all `out_bytes` of it, with draws of this sample's own.
     * `extent` is the unit's. Any thread. */
    int (*finish)(const struct fb_source *source, uint64_t sample, const void *in,
                  struct fb_extent extent, struct fb_random random, void *out, uint64_t out_bytes,
                  struct fb_scratch scratch, forebay_error *error);
    /* (optional) Is a loaded unit of a finished field whole? finish() may look at a part of it only.
     * For `inspect --check`; any thread. */
    int (*check)(const struct fb_source *source, uint64_t unit, const void *in,
                 struct fb_extent extent, struct fb_scratch scratch, forebay_error *error);
    /* (optional) Many small samples at once, where every sample of a field has the same shape
     * (`uniform`, no sequences, no finish). Any thread. If it fails the samples are loaded one by one,
     * to find out which it was. */
    int (*gather)(const struct fb_source *source, const struct fb_gather *gather,
                  forebay_error *error);
    /* (optional) Instead of a cache of units: keep at most `bytes` of decoded data in memory of the
     * source's own, reserved as FB_STAGE_CACHE and given back under pressure. For samples so small
     * that a cache's bookkeeping would cost more than they do. Called at open, and later with less.
     * Samples come from `window` bytes that move on through the data, so that what lies behind may go
     * (order.group: block; 0: one behind the other), or from everywhere (UINT64_MAX).
     * Returns what it is now at most. */
    uint64_t (*keep)(struct fb_source *source, uint64_t bytes, uint64_t window);
    struct fb_kept (*kept)(struct fb_source *source); /* with keep; any thread */

    /* (optional) The samples [*first, *first + *count) that use `unit`; without it a unit is used
     * by one sample only. Any thread, no I/O. */
    void (*users)(const struct fb_source *source, uint64_t unit, uint64_t *first, uint64_t *count);

    /* (optional) About how long a sample is, in any measure: what order by length goes by. Any
     * thread, no I/O. */
    float (*length)(const struct fb_source *source, uint64_t sample);

    /* (optional) The file that a unit was decoded from and is the whole of, and its bytes, for
     * whoever wants to keep originals; false if it is no file of its own. Any thread; reads the
     * source's lists at most. */
    bool (*file)(const struct fb_source *source, uint64_t unit, struct fb_scratch scratch,
                 char *path, size_t size, uint64_t *bytes);

    /* The file (and place in it) of a unit, for messages: "scans/000001.bin". Any thread. */
    void (*place)(const struct fb_source *source, uint64_t unit, char *text, size_t size);
};

struct fb_source {
    const struct fb_source_ops *ops;

    /* Set by open(), constant afterwards: */
    uint64_t sample_count;
    uint64_t unit_count;
    unsigned field_count;
    struct fb_field *fields;    /* owned by the source */
    unsigned parts_max;         /* P: slices per sample, at most */
    uint64_t unit_bytes_max;    /* largest decoded unit; 0 if not known */
    uint64_t unit_bytes_total;  /* of all units, decoded; 0 if not known */
    uint64_t scratch_bytes;     /* what load() and finish() need per worker */
    uint64_t library_bytes;     /* allowance per worker for libraries' own memory */
    uint64_t open_bytes;        /* what open() needs at least beside what stays: 0 if next to nothing */
    bool rows_alone;            /* load() can read any rows without the others */
    bool sliced;                /* samples take parts of units (windows, rows): fill policy */
    bool shared_units;          /* several samples use one unit whole (overlapping sequences) */
    bool raw;                   /* decoding is (nearly) copying: the page cache serves as well */
    bool uniform;               /* all items of a field have one shape: stack is fixed */
    uint64_t block_samples;     /* that lie together and are best read together: 0 if none do */
    uint64_t stretch_samples;   /* read from front to back: so many may be mixed; 0: any order does */
    uint64_t group_count;       /* sequences (folders) for order.group: sequence; 0 if none */
    const uint64_t *group_ends; /* group g is samples [ends[g-1], ends[g]); owned by the source */
    uint64_t broken_count;      /* units known to be broken at open */
    uint64_t identity;          /* hash of sorted paths, sizes, mtimes and decode options */
    uint64_t fingerprint;       /* hash of sorted relative names and sizes: a copy has the same. A
                                 * saved state carries it; 0: not known, any state is taken */
};

/* fb_source_bin, fb_source_npy, ...: one for every kind of config/source_list.h. */
#define FB_X(word, NAME) extern const struct fb_source_ops fb_source_##word;
FB_SOURCE_KINDS(FB_X)
#undef FB_X

/* The status of a NULL that came with `error` filled. */
static inline int fb_failed(const forebay_error *error)
{
    return error ? (int)error->status : FOREBAY_OVER_BUDGET;
}

/* Open the source of config->source_kind. */
int fb_source_open(struct fb_source **out, const struct fb_config *config,
                   struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
void fb_source_close(struct fb_source *source);

/* Bytes of a cell of a unit of `field`, as load() writes it. */
static inline uint64_t fb_field_unit_cell(const struct fb_field *field)
{
    return field->finished ? 1 : field->cell_bytes;
}
/* Bytes of a unit of `field` with this extent, as load() writes it. */
static inline uint64_t fb_extent_bytes(const struct fb_field *field, struct fb_extent extent)
{
    return extent.rows * extent.columns * fb_field_unit_cell(field);
}
/* The largest unit of `field`, as load() writes it; 0 if not known. */
static inline uint64_t fb_field_bytes_max(const struct fb_source *source,
                                          const struct fb_field *field)
{
    return field->bytes_max ? field->bytes_max : source->unit_bytes_max;
}
/* Of every unit, if all are as large as the largest; else 0. */
static inline uint64_t fb_source_unit_bytes(const struct fb_source *source)
{
    return source->unit_bytes_total == source->unit_bytes_max * source->unit_count
               ? source->unit_bytes_max
               : 0;
}
/* What a batch has of a unit with this extent: a finished field has a shape of its own. */
static inline struct fb_extent fb_extent_in_batch(const struct fb_field *field,
                                                  struct fb_extent extent)
{
    if (field->finished && extent.known == FB_EXTENT_EXACT)
        extent.rows = field->ndim ? field->shape[0] : 1;
    return extent;
}

/* What tests of everything above use: `count` samples of one field "data" [rows] u32 held in
 * memory, value = sample; failures and delays on demand. See source_memory.c. */
struct fb_memory_source_options {
    uint64_t samples;
    uint64_t rows;                             /* of every sample, or the most if `rows_of` */
    uint64_t (*rows_of)(uint64_t sample);      /* NULL: all alike */
    bool finished; /* "data" is [2]: the unit's last number and a draw of the sample's own */
    int (*before_load)(void *data, uint64_t unit); /* NULL, or a status to fail with */
    void *data;
};
int fb_source_memory_open(struct fb_source **out, const struct fb_memory_source_options *options,
                          struct fb_budget *budget, forebay_error *error);
#endif
