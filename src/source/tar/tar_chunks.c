#include "source/tar/tar_chunks.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "memory/block.h"
#include "source/source.h"

#define SLOTS_MIN 16u /* more than cursors: who has one may keep a slot pinned and want another */
#define CURSORS_MIN 2u
#define CURSORS_MAX 10u
#define NO_SHARD UINT64_MAX
#define PATIENCE_NS ((uint64_t)1000000000) /* with somebody else's cursor */

struct cursor {
    struct fb_unpack *unpack;
    struct fb_reader *reader; /* of who uses it now */
    struct fb_input file;
    int fd;
    char path[FB_PATH_BYTES];

    /* Guarded by the chunks' lock, but for whoever made it busy: */
    uint64_t shard; /* or NO_SHARD */
    uint64_t next;  /* chunk of it */
    uint64_t used;  /* when it was last */
    uint64_t moved; /* ns: when it last came to a chunk */
    bool busy;
};

struct slot {
    uint64_t chunk; /* + 1; 0: none */
    unsigned pins;  /* who copy from it, or the one who fills it */
};

struct fb_chunks {
    struct fb_budget *budget;
    const struct fb_files *files;
    const struct fb_tar_content *contents;
    uint64_t *first; /* [files + 1]: the number of each shard's first chunk */
    char *memory;
    uint64_t slot_count;
    unsigned cursor_count;
    uint64_t whole; /* a shard of so many chunks is unpacked at once: its cursor is free again */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a chunk came, a cursor or a slot became free */

    /* Guarded by lock: */
    uint32_t *where; /* [chunks]: slot + 1, or 0 */
    struct slot *slots;
    uint64_t hand; /* the slot to be filled next */
    uint64_t clock, begun;
    struct cursor *cursors;
};

/* ---- its life ---- */

static uint64_t chunk_count(const struct fb_chunks *chunks)
{
    return chunks->first ? fb_max(1, chunks->first[chunks->files->count]) : 0;
}

void fb_chunks_close(struct fb_chunks *chunks)
{
    struct fb_budget *budget;

    if (!chunks)
        return;
    budget = chunks->budget;
    for (unsigned i = 0; chunks->cursors && i < chunks->cursor_count; i++) {
        fb_unpack_free(chunks->cursors[i].unpack);
        if (chunks->cursors[i].fd >= 0)
            close(chunks->cursors[i].fd);
    }
    fb_block_free(budget, FB_STAGE_SCRATCH, chunks->cursors, chunks->cursor_count,
                  sizeof(*chunks->cursors));
    fb_block_free(budget, FB_STAGE_SCRATCH, chunks->memory, chunks->slot_count, FB_TAR_CHUNK_BYTES);
    fb_block_free(budget, FB_STAGE_SCRATCH, chunks->slots, chunks->slot_count,
                  sizeof(*chunks->slots));
    fb_block_free(budget, FB_STAGE_INDEX, chunks->where, chunk_count(chunks),
                  sizeof(*chunks->where));
    fb_block_free(budget, FB_STAGE_INDEX, chunks->first, chunks->files->count + 1,
                  sizeof(*chunks->first));
    pthread_mutex_destroy(&chunks->lock);
    pthread_cond_destroy(&chunks->changed);
    fb_block_free(budget, FB_STAGE_INDEX, chunks, 1, sizeof(*chunks));
}

static int count_chunks(struct fb_chunks *chunks, forebay_error *error)
{
    uint64_t count = chunks->files->count;

    chunks->first = fb_block_new(chunks->budget, FB_STAGE_INDEX, count + 1,
                                 sizeof(*chunks->first), "shards", error);
    if (!chunks->first)
        return fb_failed(error);
    for (uint64_t i = 0; i < count; i++)
        chunks->first[i + 1] =
            chunks->first[i] + (chunks->contents[i].bytes + FB_TAR_CHUNK_BYTES - 1) / FB_TAR_CHUNK_BYTES;
    chunks->where = fb_block_new(chunks->budget, FB_STAGE_INDEX, chunk_count(chunks),
                                 sizeof(*chunks->where), "chunks of the shards", error);
    return chunks->where ? FOREBAY_OK : fb_failed(error);
}

/* As many as an eighth of the memory pays for. A shard that is taken whole needs its cursor only
 * for that, so those that are under way are few and large. */
static void count_cursors(struct fb_chunks *chunks, uint64_t window)
{
    uint64_t one = fb_unpack_bytes(window) + sizeof(struct cursor);
    uint64_t paid = chunks->slot_count * FB_TAR_CHUNK_BYTES / 8 / one;

    chunks->cursor_count = (unsigned)fb_min(CURSORS_MAX, fb_max(CURSORS_MIN, paid));
    chunks->whole = chunks->slot_count * 3 / 4 / fb_max(2, chunks->cursor_count - 2);
}

static int open_cursors(struct fb_chunks *chunks, uint64_t window, forebay_error *error)
{
    count_cursors(chunks, window);
    chunks->cursors = fb_block_new(chunks->budget, FB_STAGE_SCRATCH, chunks->cursor_count,
                                   sizeof(*chunks->cursors), "reading shards in order", error);
    if (!chunks->cursors)
        return fb_failed(error);
    for (unsigned i = 0; i < chunks->cursor_count; i++)
        chunks->cursors[i] = (struct cursor){ .fd = -1, .shard = NO_SHARD };
    for (unsigned i = 0; i < chunks->cursor_count; i++) {
        int status = fb_unpack_new(&chunks->cursors[i].unpack, window, chunks->budget,
                                   FB_STAGE_SCRATCH, error);

        if (status)
            return status;
    }
    return FOREBAY_OK;
}

static int open_all(struct fb_chunks *chunks, uint64_t bytes, forebay_error *error)
{
    uint64_t window = 0;
    int status = count_chunks(chunks, error);

    if (status)
        return status;
    for (uint64_t i = 0; i < chunks->files->count; i++)
        window = fb_max(window, chunks->contents[i].packing == FB_PACKING_ZSTD
                                    ? fb_max(1, chunks->contents[i].window)
                                    : 0);
    chunks->slot_count = fb_max(SLOTS_MIN, fb_min(bytes / FB_TAR_CHUNK_BYTES, chunk_count(chunks)));
    chunks->slots = fb_block_new(chunks->budget, FB_STAGE_SCRATCH, chunks->slot_count,
                                 sizeof(*chunks->slots), "reading shards in order", error);
    if (!chunks->slots)
        return fb_failed(error);
    chunks->memory = fb_block_new(chunks->budget, FB_STAGE_SCRATCH, chunks->slot_count,
                                  FB_TAR_CHUNK_BYTES, "reading shards in order", error);
    if (!chunks->memory)
        return fb_failed(error);
    return open_cursors(chunks, window, error);
}

static void make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int fb_chunks_open(struct fb_chunks **out, const struct fb_files *files,
                   const struct fb_tar_content *contents, uint64_t bytes, struct fb_budget *budget,
                   forebay_error *error)
{
    struct fb_chunks *chunks =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*chunks), "reading shards in order", error);
    int status;

    if (!chunks)
        return fb_failed(error);
    chunks->budget = budget;
    chunks->files = files;
    chunks->contents = contents;
    pthread_mutex_init(&chunks->lock, NULL);
    make_condition(&chunks->changed);
    status = open_all(chunks, bytes, error);
    if (status) {
        fb_chunks_close(chunks);
        return status;
    }
    *out = chunks;
    return FOREBAY_OK;
}

uint64_t fb_chunks_begun(struct fb_chunks *chunks)
{
    uint64_t begun;

    pthread_mutex_lock(&chunks->lock);
    begun = chunks->begun;
    pthread_mutex_unlock(&chunks->lock);
    return begun;
}

/* ---- a cursor, by whoever made it busy ---- */

static int read_file(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *error)
{
    struct cursor *cursor = data;

    return fb_reader_read(cursor->reader, cursor->fd, cursor->path, into, bytes, offset, error);
}

static int is_same_file(const struct fb_file *file, const struct cursor *cursor,
                        forebay_error *error)
{
    struct stat now;

    if (fstat(cursor->fd, &now))
        return fb_fail_errno(error, FOREBAY_IO, "cannot look at '%s'", cursor->path);
    if (cursor->file.bytes == file->bytes &&
        now.st_mtim.tv_sec * (int64_t)1000000000 + now.st_mtim.tv_nsec == file->mtime_ns)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_DATA,
                   "the archive changed since it was indexed: %" PRIu64 " bytes then, %" PRIu64
                   " now",
                   file->bytes, cursor->file.bytes);
}

static int cursor_begin(struct fb_chunks *chunks, struct cursor *cursor, uint64_t shard,
                        forebay_error *error)
{
    int status;

    if (cursor->fd >= 0)
        close(cursor->fd);
    cursor->fd = -1;
    cursor->file.read = read_file;
    cursor->file.data = cursor;
    fb_files_path(chunks->files, shard, cursor->path, sizeof(cursor->path));
    status =
        fb_reader_open(cursor->reader, cursor->path, &cursor->fd, &cursor->file.bytes, error);
    if (!status)
        status = is_same_file(&chunks->files->file[shard], cursor, error);
    if (!status)
        status = fb_unpack_begin(cursor->unpack,
                                 (enum fb_packing)chunks->contents[shard].packing, &cursor->file,
                                 error);
    cursor->next = 0;
    return status;
}

/* A slot that nobody reads from, pinned for us and empty. */
static uint64_t slot_take(struct fb_chunks *chunks, struct cursor *cursor)
{
    uint64_t number = 0;
    bool found = false;

    pthread_mutex_lock(&chunks->lock);
    for (;;) {
        for (uint64_t i = 0; i < chunks->slot_count && !found; i++) {
            number = chunks->hand;
            chunks->hand = (chunks->hand + 1) % chunks->slot_count;
            found = chunks->slots[number].pins == 0;
        }
        if (found)
            break;
        pthread_cond_wait(&chunks->changed, &chunks->lock);
    }
    if (chunks->slots[number].chunk)
        chunks->where[chunks->slots[number].chunk - 1] = 0;
    chunks->slots[number] = (struct slot){ .pins = 1 };
    cursor->moved = fb_now_ns();
    pthread_mutex_unlock(&chunks->lock);
    return number;
}

/* It is filled: found from now on, unless somebody else filled another one with the same. */
static void slot_show(struct fb_chunks *chunks, uint64_t number, uint64_t chunk, bool keep_pin)
{
    pthread_mutex_lock(&chunks->lock);
    if (chunks->where[chunk] == 0) {
        chunks->where[chunk] = (uint32_t)number + 1;
        chunks->slots[number].chunk = chunk + 1;
    }
    chunks->slots[number].pins = keep_pin;
    pthread_cond_broadcast(&chunks->changed);
    pthread_mutex_unlock(&chunks->lock);
}

static void slot_leave(struct fb_chunks *chunks, uint64_t number)
{
    pthread_mutex_lock(&chunks->lock);
    if (--chunks->slots[number].pins == 0)
        pthread_cond_broadcast(&chunks->changed);
    pthread_mutex_unlock(&chunks->lock);
}

static char *slot_memory(const struct fb_chunks *chunks, uint64_t number)
{
    return chunks->memory + number * FB_TAR_CHUNK_BYTES;
}

static int fill(struct fb_chunks *chunks, struct cursor *cursor, uint64_t slot,
                forebay_error *error)
{
    uint64_t total = chunks->contents[cursor->shard].bytes, made = 0;
    uint64_t bytes = fb_min(FB_TAR_CHUNK_BYTES, total - cursor->next * FB_TAR_CHUNK_BYTES);
    int status =
        fb_unpack_read(cursor->unpack, slot_memory(chunks, slot), bytes, &made, error);

    if (!status && made < bytes)
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "the archive changed since it was indexed: unpacked it had %" PRIu64
                         " bytes, and now it ends at %" PRIu64,
                         total, cursor->next * FB_TAR_CHUNK_BYTES + made);
    return status;
}

/* Go on until chunk `wanted` of the shard is in a slot, which stays pinned: *found. What is far
 * before it is unpacked only, because nobody waits for it. */
static int advance(struct fb_chunks *chunks, struct cursor *cursor, uint64_t wanted,
                   uint64_t *found, forebay_error *error)
{
    uint64_t base = chunks->first[cursor->shard];
    uint64_t count = chunks->first[cursor->shard + 1] - base;
    uint64_t last = count <= chunks->whole ? count - 1 : wanted;
    int status = FOREBAY_OK;

    while (cursor->next <= last) {
        bool is_it = cursor->next == wanted;
        uint64_t slot = slot_take(chunks, cursor);

        status = fill(chunks, cursor, slot, error);
        if (status) {
            slot_leave(chunks, slot);
            break;
        }
        if (cursor->next + chunks->slot_count / 2 >= wanted)
            slot_show(chunks, slot, base + cursor->next, is_it);
        else
            slot_leave(chunks, slot);
        if (is_it)
            *found = slot;
        cursor->next++;
    }
    if (status && cursor->next > wanted) { /* it has come; who wants what is behind it will see */
        cursor->next = UINT64_MAX;
        return FOREBAY_OK;
    }
    return status;
}

/* ---- chunks, for readers ---- */

/* The cursor of the shard, or the idle one that was used the longest ago; NULL: wait. One that is
 * stuck is nobody's. */
static struct cursor *cursor_find_locked(struct fb_chunks *chunks, uint64_t shard)
{
    struct cursor *best = NULL;
    uint64_t now = fb_now_ns();
    bool moves = false;

    for (unsigned i = 0; i < chunks->cursor_count; i++) {
        struct cursor *cursor = &chunks->cursors[i];

        if (cursor->shard == shard && !cursor->busy)
            return cursor;
        if (cursor->shard == shard && now - cursor->moved < PATIENCE_NS)
            moves = true;
        if (!cursor->busy && (!best || cursor->used < best->used))
            best = cursor;
    }
    return moves ? NULL : best;
}

/* Until something changes, or a cursor that was waited for has been still for too long. */
static void wait_locked(struct fb_chunks *chunks)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_NS / 1000000000;
    pthread_cond_timedwait(&chunks->changed, &chunks->lock, &until);
}

/* With a busy cursor, without the lock. */
static int cursor_fetch(struct fb_chunks *chunks, struct cursor *cursor, bool begin,
                        uint64_t wanted, uint64_t *found, forebay_error *error)
{
    int status = begin ? cursor_begin(chunks, cursor, cursor->shard, error) : FOREBAY_OK;

    if (!status && chunks->contents[cursor->shard].packing == FB_PACKING_NONE &&
        cursor->next + chunks->slot_count / 2 < wanted) { /* nobody must walk there */
        cursor->next = wanted - chunks->slot_count / 4;
        fb_unpack_jump(cursor->unpack, cursor->next * FB_TAR_CHUNK_BYTES);
    }
    return status ? status : advance(chunks, cursor, wanted, found, error);
}

/* The slot of a chunk, pinned. */
static int chunk_pin(struct fb_chunks *chunks, struct fb_reader *reader, uint64_t shard,
                     uint64_t wanted, uint64_t *found, forebay_error *error)
{
    uint64_t chunk = chunks->first[shard] + wanted;
    struct cursor *cursor = NULL;
    bool begin;
    int status;

    pthread_mutex_lock(&chunks->lock);
    /* A chunk may have come, a cursor may have become free: both are looked at again. */
    while (!chunks->where[chunk] && !(cursor = cursor_find_locked(chunks, shard)))
        wait_locked(chunks);
    if (chunks->where[chunk]) {
        *found = chunks->where[chunk] - 1;
        chunks->slots[*found].pins++;
        pthread_mutex_unlock(&chunks->lock);
        return FOREBAY_OK;
    }
    begin = cursor->shard != shard || cursor->next > wanted;
    chunks->begun += begin;
    cursor->shard = shard;
    cursor->used = ++chunks->clock;
    cursor->moved = fb_now_ns();
    cursor->busy = true;
    pthread_mutex_unlock(&chunks->lock);

    cursor->reader = reader;
    status = cursor_fetch(chunks, cursor, begin, wanted, found, error);

    pthread_mutex_lock(&chunks->lock);
    cursor->busy = false;
    if (status)
        cursor->shard = NO_SHARD;
    pthread_cond_broadcast(&chunks->changed);
    pthread_mutex_unlock(&chunks->lock);
    return status;
}

int fb_chunks_read(struct fb_chunks *chunks, struct fb_reader *reader, uint64_t shard, void *into,
                   uint64_t bytes, uint64_t offset, forebay_error *error)
{
    for (uint64_t done = 0, step; done < bytes; done += step) {
        uint64_t at = offset + done, inside = at % FB_TAR_CHUNK_BYTES, slot = 0;
        int status = chunk_pin(chunks, reader, shard, at / FB_TAR_CHUNK_BYTES, &slot, error);

        if (status)
            return status;
        step = fb_min(bytes - done, FB_TAR_CHUNK_BYTES - inside);
        memcpy((char *)into + done, slot_memory(chunks, slot) + inside, step);
        slot_leave(chunks, slot);
    }
    return FOREBAY_OK;
}

bool fb_chunks_peek(struct fb_chunks *chunks, uint64_t shard, void *into, uint64_t bytes,
                    uint64_t offset)
{
    uint64_t chunk = chunks->first[shard] + offset / FB_TAR_CHUNK_BYTES;
    uint64_t inside = offset % FB_TAR_CHUNK_BYTES;
    uint32_t slot;

    if (bytes > FB_TAR_CHUNK_BYTES - inside)
        return false;
    pthread_mutex_lock(&chunks->lock);
    slot = chunks->where[chunk];
    if (slot)
        memcpy(into, slot_memory(chunks, slot - 1) + inside, bytes);
    pthread_mutex_unlock(&chunks->lock);
    return slot != 0;
}
