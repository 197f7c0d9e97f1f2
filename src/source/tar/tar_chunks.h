/*
 * tar_chunks.h -- shards that are read from front to back, and what of them is in memory.
 *
 * What is inside a shard (unpacked, if it is packed) is cut into chunks of 256 KiB. A cursor goes
 * through a shard from its beginning and leaves every chunk it passes in a slot; the slot that was
 * filled the longest ago is filled next. As long as samples are wanted in about the order they lie
 * in, no chunk is made twice; in any other order all is as right, but a chunk that is gone costs
 * the way to it from the shard's beginning.
 *
 * Any number of threads read. Nobody holds the lock while it reads, unpacks or copies: a cursor is
 * one thread's while it is `busy`, a slot is not filled anew while it has `pins`. Who waits for a
 * cursor has neither; who has a cursor waits only for a slot, and there are more slots than can be
 * pinned by those who wait. So somebody always goes on. If a cursor has not moved for a second (a
 * read that does not come back), others who want its shard begin it with one of their own, as long
 * as one is idle: their number is what the memory was reserved for.
 */
#ifndef FB_SOURCE_TAR_CHUNKS_H
#define FB_SOURCE_TAR_CHUNKS_H
#include "source/files.h"
#include "source/tar/tar_index.h"

#define FB_TAR_CHUNK_BYTES ((uint64_t)262144)

struct fb_chunks;

/* `files` and `contents` (one for each of them) are borrowed. At least `bytes` of chunks, and what
 * cursors need, are reserved as FB_STAGE_SCRATCH. */
int fb_chunks_open(struct fb_chunks **out, const struct fb_files *files,
                   const struct fb_tar_content *contents, uint64_t bytes, struct fb_budget *budget,
                   forebay_error *error);
void fb_chunks_close(struct fb_chunks *chunks);

/* Any thread. */
int fb_chunks_read(struct fb_chunks *chunks, struct fb_reader *reader, uint64_t shard, void *into,
                   uint64_t bytes, uint64_t offset, forebay_error *error);
/* Only if it is in memory, without waiting: for messages. */
bool fb_chunks_peek(struct fb_chunks *chunks, uint64_t shard, void *into, uint64_t bytes,
                    uint64_t offset);
/* How often a cursor began with a shard. */
uint64_t fb_chunks_begun(struct fb_chunks *chunks);
#endif
