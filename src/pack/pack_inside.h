/* pack_inside.h -- what the files of `forebay pack` share. In here `error` is never NULL. */
#ifndef FB_PACK_PACK_INSIDE_H
#define FB_PACK_PACK_INSIDE_H
#include <limits.h>
#include <stdatomic.h>

#include "pack/pack.h"
#include "pack/tar_writer.h"

#define FB_PACK_VERSION 1

/* ---- pack_walk.c: the source's units, each once, in the order of the samples ---- */

/* One key: the units that are written together. */
struct fb_pack_group {
    uint64_t number; /* 0, 1, ... of those that are written */
    uint64_t sample; /* the first one that uses it */
    unsigned count;
    struct fb_part *parts;
};

struct fb_pack_walk {
    struct fb_source *source;
    struct fb_budget *budget;
    bool by_unit;   /* a field has several items: every unit is a group */
    bool once;      /* several samples use a unit: what was seen is left out */
    bool skip;      /* leave out what is broken; else it is an error */
    uint64_t *seen; /* a bit for each unit */
    uint64_t sample;
    unsigned at, count; /* by_unit: the next of the sample's parts */
    uint64_t number, skipped;
    struct fb_part *parts;
};
int fb_pack_walk_open(struct fb_pack_walk *walk, struct fb_source *source, bool skip,
                      struct fb_budget *budget, forebay_error *error);
void fb_pack_walk_close(struct fb_pack_walk *walk);
void fb_pack_walk_rewind(struct fb_pack_walk *walk);
/* The next group (parts are valid until the next call), or END; BAD_DATA: the unit of
 * group->parts[0] is broken, load() says why. No I/O. */
int fb_pack_walk_next(struct fb_pack_walk *walk, struct fb_pack_group *group);

/* ---- pack_keys.c ---- */

struct fb_pack_keys {
    const struct fb_source *source;
    bool numbers; /* the units have no names of their own */
    size_t root;  /* bytes of the folder that all names begin with */
    bool first;
    char folder[FB_TAR_NAME_MAX];
};
/* Look at every group once, then ask. */
void fb_pack_keys_init(struct fb_pack_keys *keys, const struct fb_source *source);
void fb_pack_keys_see(struct fb_pack_keys *keys, const struct fb_pack_group *group);
/* "a/000001": the path below what all have in common, without extension, dots as "_". False if it
 * is too long. */
bool fb_pack_key(const struct fb_pack_keys *keys, const struct fb_pack_group *group, char *key,
                 size_t size);

/* ---- pack_plan.c: what is written where ---- */

/* One member of a group: a .npy, or an original file. */
struct fb_pack_member {
    char name[FB_TAR_NAME_MAX];
    forebay_dtype dtype;    /* as written */
    unsigned ndim;
    uint64_t shape[FB_NPY_WRITE_DIMS];
    uint64_t rows, row_bytes; /* of the unit, as load() gives it */
    uint64_t unit_bytes;
    uint64_t data_bytes;    /* in the tar: the .npy with its header, or the file */
    bool original;
    bool finish;            /* the values come from finish() */
};

struct fb_pack_shard {
    uint64_t groups, bytes; /* the end of the tar included */
    uint64_t first_group;
    uint32_t crc;
    bool whole;             /* under its name, with this crc */
};

struct fb_pack_plan {
    struct fb_source *source;
    const struct fb_config *config;
    const struct fb_pack_options *options;
    struct fb_budget *budget;
    struct fb_pack_keys keys;
    struct fb_pack_walk walk;
    struct fb_scratch scratch;         /* the main thread's */
    char (*names)[FB_NAME_BYTES];      /* of the fields, as in members */
    struct fb_pack_shard *shards;
    uint64_t shard_count, shard_room;
    uint64_t groups, members, bytes, skipped;
    uint64_t unit_bytes_max;           /* of what load() writes */
    uint64_t row_bytes_max;
    uint64_t data_bytes_max;           /* of what a member's values take */
    uint64_t hash;                     /* of everything the bytes depend on */
    char prefix[PATH_MAX - 64];        /* "OUT" */
};
/* `extents are known`: everything unknown was probed before. */
int fb_pack_plan_open(struct fb_pack_plan *plan, struct fb_source *source,
                      const struct fb_config *config, const struct fb_pack_options *options,
                      struct fb_budget *budget, const struct fb_log *log, forebay_error *error);
void fb_pack_plan_close(struct fb_pack_plan *plan);
/* Member `i` of the group: its name, type and sizes. */
int fb_pack_member_describe(const struct fb_pack_plan *plan, const struct fb_pack_group *group,
                            unsigned i, struct fb_scratch scratch, struct fb_pack_member *member,
                            forebay_error *error);
int fb_pack_group_bytes(const struct fb_pack_plan *plan, const struct fb_pack_group *group,
                        uint64_t *bytes, forebay_error *error);

/* ---- pack_files.c: names, journal, index ---- */

void fb_pack_shard_path(const struct fb_pack_plan *plan, uint64_t number, const char *suffix,
                        char path[PATH_MAX]);
/* What an earlier run left: marks the shards that are whole. *fd is the journal, locked. */
int fb_pack_journal_open(struct fb_pack_plan *plan, int *fd, const struct fb_log *log,
                         forebay_error *error);
int fb_pack_journal_add(const struct fb_pack_plan *plan, int fd, uint64_t number,
                        forebay_error *error);
#define FB_PACK_GROUPS_TOLD 1500 /* 16 KiB of the index, of which 32 are read */
/* The index in its place, the journal gone. */
int fb_pack_index_write(const struct fb_pack_plan *plan, forebay_error *error);
int fb_pack_write_failed(const char *path, forebay_error *error);

/* ---- pack_group.c: one group to its place ---- */

/* Memory of a worker. */
struct fb_pack_need {
    uint64_t in_bytes, out_bytes; /* for what load() writes; for what becomes of it */
    uint64_t per_worker;          /* with everything else */
};
void fb_pack_need(struct fb_pack_need *need, const struct fb_pack_plan *plan);

/* What a worker works with. */
struct fb_pack_hands {
    const struct fb_pack_plan *plan; /* NULL: nothing to close */
    struct fb_pack_need need;
    _Atomic uint64_t *written;       /* bytes, of all workers */
    struct fb_reader *reader;
    struct fb_scratch scratch;
    char *in, *out;

    int fd;           /* of the shard, and its path for messages: set by the caller */
    const char *path;
    uint64_t offset;  /* where the next byte goes */
    unsigned long crc; /* of the group so far */
};
int fb_pack_hands_open(struct fb_pack_hands *hands, const struct fb_pack_plan *plan,
                       const struct fb_pack_need *need, _Atomic uint64_t *written,
                       const struct fb_log *log, forebay_error *error);
/* Also after open failed half way; a zeroed one too. */
void fb_pack_hands_close(struct fb_pack_hands *hands);
/* Write all members at `offset` of the shard; they take exactly `bytes`. */
int fb_pack_put_group(struct fb_pack_hands *hands, const struct fb_pack_group *group,
                      uint64_t offset, uint64_t bytes, forebay_error *error);

/* ---- pack_work.c: workers ---- */

int fb_pack_write(struct fb_pack_plan *plan, int journal, uint64_t *threads,
                  const struct fb_log *log, forebay_error *error);
#endif
