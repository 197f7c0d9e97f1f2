#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/size.h"
#include "base/thread.h"
#include "decode/cast.h"
#include "memory/block.h"
#include "pack/pack_inside.h"
#include "source/glob.h"

#define CHUNK_BYTES (16 * FB_MIB) /* larger units go in pieces, if rows can be read alone */

/* ---- Memory ---- */

/* Memory of one worker; units whose rows can be read alone need not fit. */
void fb_pack_need(struct fb_pack_need *need, const struct fb_pack_plan *plan)
{
    const struct fb_source *source = plan->source;
    bool finish = false, cast = plan->options->dtype != FB_CAST_KEEP;

    for (unsigned i = 0; i < source->field_count; i++)
        finish = finish || source->fields[i].finished;
    need->in_bytes = plan->unit_bytes_max;
    if (source->rows_alone && !finish)
        need->in_bytes = fb_min(need->in_bytes, fb_max(CHUNK_BYTES, plan->row_bytes_max));
    if (plan->options->keep || finish)
        need->in_bytes = fb_max(need->in_bytes, fb_max(FB_MIB, finish ? plan->data_bytes_max : 0));
    need->in_bytes = fb_max(need->in_bytes, 4096);
    need->out_bytes = finish ? plan->data_bytes_max : cast ? 2 * need->in_bytes : 0;
    need->per_worker = fb_round_up(need->in_bytes, 4096) + fb_round_up(need->out_bytes, 4096) +
                       fb_round_up(source->scratch_bytes, 4096) + source->library_bytes +
                       FB_READER_BYTES + fb_thread_bytes(FB_THREAD_STACK_BYTES);
}

/* What others allocate for a worker. */
static uint64_t outside_bytes(const struct fb_pack_plan *plan)
{
    return plan->source->library_bytes + FB_READER_BYTES + fb_thread_bytes(FB_THREAD_STACK_BYTES);
}

int fb_pack_hands_open(struct fb_pack_hands *hands, const struct fb_pack_plan *plan,
                       const struct fb_pack_need *need, _Atomic uint64_t *written,
                       const struct fb_log *log, forebay_error *error)
{
    struct fb_budget *budget = plan->budget;
    uint64_t scratch = plan->source->scratch_bytes;
    struct fb_reader_options reading = { .log = log };
    int status = fb_budget_reserve(budget, FB_STAGE_WORKERS, outside_bytes(plan), "a worker",
                                   error);

    if (status)
        return status;
    *hands = (struct fb_pack_hands){ .plan = plan, .need = *need, .written = written };
    hands->scratch.bytes = scratch;
    hands->scratch.memory = fb_block_new(budget, FB_STAGE_SCRATCH, fb_max(1, scratch), 1,
                                         "decode memory", error);
    hands->in = fb_block_new(budget, FB_STAGE_SCRATCH, need->in_bytes, 1, "a unit", error);
    hands->out = fb_block_new(budget, FB_STAGE_SCRATCH, fb_max(1, need->out_bytes), 1, "a unit",
                              error);
    if (!hands->scratch.memory || !hands->in || !hands->out)
        return error->status;
    return fb_reader_new(&hands->reader, &reading, error);
}

void fb_pack_hands_close(struct fb_pack_hands *hands)
{
    const struct fb_pack_plan *plan = hands->plan;

    if (!plan)
        return;
    if (hands->reader)
        fb_reader_free(hands->reader);
    fb_block_free(plan->budget, FB_STAGE_SCRATCH, hands->scratch.memory,
                  fb_max(1, plan->source->scratch_bytes), 1);
    fb_block_free(plan->budget, FB_STAGE_SCRATCH, hands->in, hands->need.in_bytes, 1);
    fb_block_free(plan->budget, FB_STAGE_SCRATCH, hands->out, fb_max(1, hands->need.out_bytes), 1);
    fb_budget_refund(plan->budget, FB_STAGE_WORKERS, outside_bytes(plan));
    hands->plan = NULL;
}

/* ---- One group ---- */

static int put(struct fb_pack_hands *hands, const void *from, uint64_t bytes, forebay_error *error)
{
    const char *at = from;

    /* crc32 takes a uInt; no piece is that long. */
    hands->crc = crc32(hands->crc, from, (uInt)bytes);
    atomic_fetch_add(hands->written, bytes);
    while (bytes) {
        ssize_t put_bytes = pwrite(hands->fd, at, bytes, (off_t)hands->offset);

        if (put_bytes < 0 && errno == EINTR)
            continue;
        if (put_bytes < 0)
            return fb_pack_write_failed(hands->path, error);
        at += put_bytes;
        bytes -= (uint64_t)put_bytes;
        hands->offset += (uint64_t)put_bytes;
    }
    return FOREBAY_OK;
}

/* As put, in pieces a checksum can take. */
static int put_all(struct fb_pack_hands *hands, const char *from, uint64_t bytes,
                   forebay_error *error)
{
    int status = FOREBAY_OK;

    for (uint64_t at = 0; at < bytes && !status; at += FB_GIB)
        status = put(hands, from + at, fb_min(FB_GIB, bytes - at), error);
    return status;
}

/* Values of `from_type` as they are written. */
static int put_values(struct fb_pack_hands *hands, char *values, uint64_t bytes,
                      forebay_dtype from_type, forebay_dtype to_type, char *room,
                      forebay_error *error)
{
    uint64_t count = bytes / forebay_dtype_bytes(from_type);

    if (from_type == to_type)
        return put_all(hands, values, bytes, error);
    fb_cast(room, to_type, values, from_type, count);
    return put_all(hands, room, count * forebay_dtype_bytes(to_type), error);
}

static int put_array(struct fb_pack_hands *hands, const struct fb_part *part,
                     const struct fb_pack_member *member, forebay_error *error)
{
    struct fb_source *source = hands->plan->source;
    const struct fb_field *field = &source->fields[part->field];
    uint64_t at_once = member->rows;
    struct fb_load load = { .unit = part->unit, .to = hands->in, .scratch = hands->scratch,
                            .reader = hands->reader };
    int status = FOREBAY_OK;

    if (member->unit_bytes > hands->need.in_bytes)
        at_once = fb_max(1, hands->need.in_bytes / fb_max(1, member->row_bytes));
    if (member->unit_bytes == 0)
        return FOREBAY_OK;
    for (uint64_t row = 0; row < member->rows && !status; row += at_once) {
        load.first_row = row;
        load.rows = fb_min(at_once, member->rows - row);
        load.bytes = load.rows * member->row_bytes;
        status = source->ops->load(source, &load, error);
        if (!status)
            status = put_values(hands, hands->in, load.bytes, field->dtype, member->dtype,
                                hands->out, error);
    }
    return status;
}

/* What a batch would have of it. Nothing random is asked for: fb_pack saw to that. */
static int put_finished(struct fb_pack_hands *hands, uint64_t sample, const struct fb_part *part,
                        const struct fb_pack_member *member, forebay_error *error)
{
    struct fb_source *source = hands->plan->source;
    const struct fb_field *field = &source->fields[part->field];
    struct fb_extent extent = source->ops->extent(source, part->unit);
    struct fb_load load = { .unit = part->unit, .rows = extent.rows, .to = hands->in,
                            .bytes = member->unit_bytes, .scratch = hands->scratch,
                            .reader = hands->reader };
    uint64_t bytes = forebay_dtype_bytes(field->dtype);
    int status = source->ops->load(source, &load, error);

    for (unsigned i = 0; i < member->ndim; i++)
        bytes *= member->shape[i];
    if (!status)
        status = source->ops->finish(source, sample, hands->in, extent,
                                     (struct fb_random){ sample }, hands->out, bytes,
                                     hands->scratch, error);
    return status ? status : put_values(hands, hands->out, bytes, field->dtype, member->dtype,
                                        hands->in, error);
}

static int put_original(struct fb_pack_hands *hands, const struct fb_part *part,
                        const struct fb_pack_member *member, forebay_error *error)
{
    const struct fb_source *source = hands->plan->source;
    char path[FB_PATH_BYTES];
    uint64_t indexed, found;
    int fd, status;

    if (!source->ops->file(source, part->unit, hands->scratch, path, sizeof(path), &indexed))
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s': its original is gone", member->name);
    status = fb_reader_open(hands->reader, path, &fd, &found, error);
    if (status)
        return status;
    if (found != member->data_bytes)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' changed since it was indexed: %" PRIu64
                         " bytes then, %" PRIu64 " now", path, member->data_bytes, found);
    for (uint64_t at = 0; at < found && !status; at += hands->need.in_bytes) {
        uint64_t bytes = fb_min(hands->need.in_bytes, found - at);

        status = fb_reader_read(hands->reader, fd, path, hands->in, bytes, at, error);
        if (!status)
            status = put_all(hands, hands->in, bytes, error);
    }
    close(fd);
    return status;
}

static int put_member(struct fb_pack_hands *hands, const struct fb_pack_group *group,
                      unsigned i, forebay_error *error)
{
    static const char zeros[FB_TAR_BLOCK];
    const struct fb_part *part = &group->parts[i];
    struct fb_pack_member member;
    char header[FB_TAR_HEADER_MAX];
    int status = fb_pack_member_describe(hands->plan, group, i, hands->scratch, &member, error);

    if (!status)
        status = put(hands, header, fb_tar_header_put(header, member.name, member.data_bytes),
                     error);
    if (!status && !member.original) {
        uint64_t bytes = fb_npy_header_put(header, member.dtype, member.ndim, member.shape);

        status = put(hands, header, bytes, error);
        /* What the formats promise, and readers rely on. */
        if (!status && hands->offset % 64 != 0)
            status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' would not be aligned", member.name);
    }
    if (status)
        return status;
    status = member.original ? put_original(hands, part, &member, error)
             : member.finish ? put_finished(hands, group->sample, part, &member, error)
                             : put_array(hands, part, &member, error);
    if (!status)
        status = put(hands, zeros, (FB_TAR_BLOCK - member.data_bytes % FB_TAR_BLOCK) %
                                        FB_TAR_BLOCK, error);
    return status;
}

int fb_pack_put_group(struct fb_pack_hands *hands, const struct fb_pack_group *group,
                      uint64_t offset, uint64_t bytes, forebay_error *error)
{
    int status = FOREBAY_OK;

    hands->offset = offset;
    hands->crc = crc32(0, NULL, 0);
    for (unsigned i = 0; i < group->count && !status; i++)
        status = put_member(hands, group, i, error);
    if (!status && hands->offset != offset + bytes)
        status = fb_fail(error, FOREBAY_BAD_DATA, "a unit became %" PRIu64 " bytes, not the %"
                         PRIu64 " that were planned", hands->offset - offset, bytes);
    return status;
}
