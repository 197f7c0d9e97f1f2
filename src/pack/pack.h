/*
 * pack.h -- the units of any source as plain tar shards of .npy, with an index beside them.
 *
 *     OUT-000000.tar, OUT-000001.tar, ...   members key.field.npy
 *     OUT.json                              fields, window and sequence settings, shards' checksums
 *     OUT.progress                          while it is made: which shards are whole
 *
 * The bytes depend on the data and the options only. Where everything goes is known before
 * anything is written, so any worker may write any unit at its place. A shard gets its name when it
 * is whole; what a killed run finished is kept if its checksum is right and data and options are
 * the same.
 */
#ifndef FB_PACK_PACK_H
#define FB_PACK_PACK_H
#include "config/config.h"
#include "source/source.h"

struct fb_pack_options {
    const char *out;      /* a path that the names begin with, or a folder: then FOLDER/out */
    uint64_t shard_bytes; /* at most, unless one unit is more; 0: 1 GB */
    int dtype;            /* FB_CAST_*: floating point fields become that; KEEP: as they are */
    bool keep;            /* the original files instead of what they decode to */
    bool force;           /* what is there may be something else: overwrite it */
    uint64_t threads;     /* that read and decode, at least 1; fewer if memory is short */
};

struct fb_pack_result {
    uint64_t units;   /* keys: groups of members */
    uint64_t members;
    uint64_t skipped; /* units that were broken */
    uint64_t shards, kept; /* in all; of those from a run before */
    uint64_t bytes;   /* of all shards */
    uint64_t threads;
    char index[4096]; /* its path */
};

int fb_pack(struct fb_pack_result *result, struct fb_source *source,
            const struct fb_config *config, struct fb_budget *budget,
            const struct fb_pack_options *options, const struct fb_log *log, forebay_error *error);
#endif
