/*
 * tar_index.h -- where every member of every shard lies, found in one pass over the headers and
 * kept, so that the next run need not look again.
 *
 * A member costs 12 bytes while shards are read. A shard's part is saved as <shard>.index beside it
 * by whoever wrote the shard, or by us in the user's cache folder; it is believed only if the
 * shard's size and time of change are still those it was made for, and everything in it is checked.
 */
#ifndef FB_SOURCE_TAR_INDEX_H
#define FB_SOURCE_TAR_INDEX_H
#include "base/log.h"
#include "decode/unpack.h"
#include "source/files.h"
#include "source/source.h"

#define FB_TAR_EXTENSIONS 64 /* in all shards together */
#define FB_TAR_ROOM_BYTES ((uint64_t)65536)

/* Why a member cannot be read. SPECIAL: sparse, or of 4 GiB or more; how large it is and where its
 * bytes are must be looked up in its header, which lies at `block`. */
enum fb_tar_fault {
    FB_TAR_GOOD,
    FB_TAR_SPECIAL,
    FB_TAR_SPARSE,
    FB_TAR_TOO_LARGE,
    FB_TAR_TWICE,
    FB_TAR_MISSING
};

struct fb_tar_record {
    uint32_t block; /* where its data begins, in blocks of 512 bytes */
    uint32_t bytes;
    uint16_t extension;
    uint8_t first; /* it begins a sample */
    uint8_t fault; /* enum fb_tar_fault */
};

/* What is inside a shard's file. */
struct fb_tar_content {
    uint64_t bytes;   /* unpacked */
    uint64_t window;  /* of its zstd frames, the largest */
    uint64_t packing; /* enum fb_packing */
};

struct fb_tar_index {
    uint64_t window_max; /* that a packed shard may ask for */
    struct fb_tape records; /* struct fb_tar_record, shard after shard */
    uint64_t samples;
    uint64_t passed_over;   /* members without key or extension, links, folders, ... */
    uint64_t passed_before; /* the last shard */
    unsigned extension_count;
    struct fb_tar_extension {
        char name[FB_NAME_BYTES];
        char field[FB_NAME_BYTES]; /* its name as a field: the same, or tar_packed.c's */
        uint64_t samples; /* that have it */
    } extensions[FB_TAR_EXTENSIONS];
    uint64_t scanned, remembered; /* shards */
};

struct fb_tar_shard {
    const char *path;
    uint64_t bytes;
    int64_t mtime_ns;
};

/* Append one shard; `room` is FB_TAR_ROOM_BYTES. If it fails with BAD_DATA part way, what came
 * before is there and counted. */
int fb_tar_index_add(struct fb_tar_index *index, const struct fb_tar_shard *shard,
                     struct fb_tar_content *content, struct fb_reader *reader, void *room,
                     forebay_error *error);
/* The records of the last shard, from number `first` on, to a file: for who writes shards. */
int fb_tar_index_save(const struct fb_tar_index *index, const struct fb_tar_shard *shard,
                      const struct fb_tar_content *content, uint64_t first, const char *path,
                      forebay_error *error);
void fb_tar_index_release(struct fb_tar_index *index);

/* From the headers themselves (tar_scan.c), which adds what it finds with the two below. */
int fb_tar_scan(struct fb_tar_index *index, const struct fb_tar_shard *shard,
                struct fb_tar_content *content, struct fb_reader *reader, void *room,
                forebay_error *error);
int fb_tar_index_extension(struct fb_tar_index *index, const char *name, unsigned *number,
                           forebay_error *error);
int fb_tar_index_record(struct fb_tar_index *index, const struct fb_tar_record *record,
                        forebay_error *error);

const char *fb_tar_fault_text(enum fb_tar_fault fault);
#endif
