/* tar_source.h -- what the files of the tar source share: source_tar.c is the seam, tar_open.c makes
 * fields and samples of the index, tar_member.c knows where the bytes of a member are. */
#ifndef FB_SOURCE_TAR_SOURCE_H
#define FB_SOURCE_TAR_SOURCE_H
#include <stdatomic.h>

#include "decode/decode.h"
#include "decode/npz.h"
#include "decode/tar.h"
#include "source/extract.h"
#include "source/files.h"
#include "source/images/pictures.h"
#include "source/source.h"
#include "source/tar/tar_chunks.h"
#include "source/tar/tar_index.h"
#include "source/tar/tar_made.h"

#define FB_TAR_FIELDS 256
#define FB_TAR_BROKEN UINT64_MAX
#define FB_TAR_ROW_BITS 46

/* One field: an extension, or one array of an extension that holds several. */
struct fb_tar_field {
    const struct fb_decoder *decoder;
    unsigned column; /* of the cells: which extension */
    unsigned extension;
    unsigned looked; /* which of the extents that must be looked up; FB_TAR_FIELDS: none */
    uint64_t before; /* bytes before the values of the first .npy: most others' have as many; or 0 */
    char array[FB_NPZ_NAME_BYTES];
};

/* Where a member lies. NOWHERE: `bytes` is the fault. LOOK_UP: it is special, and `block` is where
 * its header is. */
struct fb_tar_cell {
    uint32_t block, bytes;
};
#define FB_TAR_NOWHERE UINT32_MAX
#define FB_TAR_LOOK_UP UINT32_MAX

/* How large a special member is. */
struct fb_tar_special {
    uint64_t cell, bytes;
};

struct fb_tar_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_budget *budget;
    struct fb_files files;     /* shards */
    uint64_t *ends;            /* samples up to the end of each shard */
    struct fb_tar_content *contents; /* of each shard */
    struct fb_chunks *chunks;  /* NULL: members are read where they lie in their files */
    struct fb_tar_index index; /* its records are gone when the source is open */
    unsigned column_count, looked_count;
    struct fb_tar_cell *cells; /* [sample][column] */
    uint64_t special_count;
    struct fb_tar_special *specials; /* by cell */
    _Atomic uint64_t *extents; /* [sample][looked]: 0 unknown, FB_TAR_BROKEN, 1 + (bytes before the
                                * values << FB_TAR_ROW_BITS | rows); pictures 1 + (rows << 32 |
                                * columns) */
    struct fb_tar_field *fields;
    struct fb_pictures *pictures; /* NULL: no field has any */
    uint64_t picture_largest;     /* of their files */
    uint32_t rate;                /* of sounds; 0: any */
    uint64_t frames_max;          /* of a sound; 0: any */
    struct fb_tar_made made;      /* what samples are made of, if the units were packed */
    uint64_t open_most; /* what open() had at once, beside what stays and what it works in */
};

static inline const struct fb_tar_cell *fb_tar_cell_of(const struct fb_tar_source *tar,
                                                       uint64_t sample, unsigned field)
{
    return &tar->cells[sample * tar->column_count + tar->fields[field].column];
}

static inline bool fb_tar_is_there(const struct fb_tar_cell *cell)
{
    return cell->block != FB_TAR_NOWHERE;
}
uint64_t fb_tar_cell_bytes(const struct fb_tar_source *tar, uint64_t cell);
static inline uint64_t fb_tar_bytes_of(const struct fb_tar_source *tar, uint64_t sample,
                                       unsigned field)
{
    return fb_tar_cell_bytes(tar, sample * tar->column_count + tar->fields[field].column);
}
/* What comes before an array that lies in its member as it is. */
static inline void fb_tar_note_before(struct fb_tar_field *field, uint64_t member,
                                      const struct fb_decoded *decoded)
{
    uint64_t values = fb_decoded_bytes(decoded);

    if (!field->decoder->is_archive && !field->decoder->is_sound && values < member)
        field->before = member - values;
}
/* The shard that has the sample: the first one that ends behind it. */
uint64_t fb_tar_shard_of(const struct fb_tar_source *tar, uint64_t sample);
/* Look up how large the special members are. */
int fb_tar_measure_specials(struct fb_tar_source *tar, struct fb_reader *reader,
                            forebay_error *error);

/* If a shard is packed, or if the configuration says so, all are read from front to back. */
int fb_tar_open_chunks(struct fb_tar_source *tar, const struct fb_config *config,
                       const struct fb_log *log, forebay_error *error);

/* What the pass over packed shards takes, at least: a small budget allows smaller windows. */
uint64_t fb_tar_unpacking_bytes(const struct fb_tar_source *tar, const struct fb_config *config);

/* A member that is open: `extract` is it. It points into itself. */
struct fb_tar_extract {
    struct fb_extract extract;
    const struct fb_tar_source *tar;
    uint64_t shard;
    struct fb_input archive;     /* sparse: what its map and stretches lie in */
    struct fb_tar_member member; /* special: what its headers say */
};

/* Open a member and look what it is. `work` is what decoders work in. On success the extract is the
 * caller's to close. */
int fb_tar_look(const struct fb_tar_source *tar, uint64_t sample, unsigned field,
                struct fb_reader *reader, void *work, struct fb_decoded *decoded,
                struct fb_tar_extract *from, forebay_error *error);
/* Only to open it. */
int fb_tar_extract(const struct fb_tar_source *tar, uint64_t sample, unsigned column,
                   struct fb_reader *reader, struct fb_tar_extract *from, forebay_error *error);

/* Only load->bytes of a unit's values, from byte `offset` of them on; load's rows are not looked at.
 * For sources with rows_alone, where every unit was probed. */
int fb_tar_load_part(const struct fb_tar_source *tar, const struct fb_load *load, uint64_t offset,
                     forebay_error *error);

/* Give the extensions their fields' names, those of `forebay pack` if it wrote the shards. What
 * its index says of samples goes to `made`. */
int fb_tar_packed_names(struct fb_tar_source *tar, forebay_error *error);

/* The two ends of its life: open is in tar_open.c. */
int fb_tar_open(struct fb_source **out, const struct fb_config *config, struct fb_budget *budget,
                const struct fb_log *log, forebay_error *error);
void fb_tar_close(struct fb_source *source);
#endif
