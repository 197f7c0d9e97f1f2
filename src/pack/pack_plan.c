#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mix.h"
#include "base/size.h"
#include "decode/cast.h"
#include "memory/block.h"
#include "pack/pack_inside.h"
#include "source/glob.h"

#define SHARD_BYTES ((uint64_t)1000 * 1000 * 1000)
#define KEY_BYTES 1024

/* ---- Members ---- */

/* The shape of a unit when it is packed. Windows: the whole series; tables: a block of rows. */
static int shape_of(const struct fb_source *source, const struct fb_field *field,
                    const struct fb_part *part, struct fb_extent extent,
                    struct fb_pack_member *member, forebay_error *error)
{
    unsigned at = 0, from = 0;

    if (source->block_samples) {
        member->shape[at++] = extent.rows / fb_max(1, part->rows);
    } else if (source->sliced && field->ndim) {
        member->shape[at++] = extent.rows;
        from = 1;
    }
    if (at + field->ndim - from > FB_NPY_WRITE_DIMS)
        return fb_fail(error, FOREBAY_BAD_DATA, "field '%s' has too many dimensions", field->name);
    for (unsigned i = from; i < field->ndim; i++) {
        bool varies = !source->sliced && !field->finished && i < field->vary;

        member->shape[at++] = !varies ? field->shape[i] : i == 0 ? extent.rows : extent.columns;
    }
    member->ndim = at;
    return FOREBAY_OK;
}

static uint64_t values_of(const struct fb_pack_member *member)
{
    uint64_t count = 1;

    for (unsigned i = 0; i < member->ndim; i++)
        count *= member->shape[i];
    return count;
}

static int describe_array(const struct fb_pack_plan *plan, const struct fb_part *part,
                          struct fb_pack_member *member, forebay_error *error)
{
    const struct fb_field *field = &plan->source->fields[part->field];
    struct fb_extent extent = plan->source->ops->extent(plan->source, part->unit);
    char header[FB_NPY_WRITE_MAX];
    uint64_t header_bytes;
    int status = shape_of(plan->source, field, part, extent, member, error);

    if (status)
        return status;
    member->finish = field->finished;
    member->dtype = fb_cast_target(plan->options->dtype, field->dtype);
    member->rows = extent.rows;
    member->row_bytes = extent.columns * fb_field_unit_cell(field);
    member->unit_bytes = fb_extent_bytes(field, extent);
    header_bytes = fb_npy_header_put(header, member->dtype, member->ndim, member->shape);
    if (!header_bytes)
        return fb_fail(error, FOREBAY_BAD_USE, "field '%s': .npy has no type %s; pack it as "
                       "--dtype f32 or f16", field->name, forebay_dtype_name(member->dtype));
    member->data_bytes = header_bytes + values_of(member) * forebay_dtype_bytes(member->dtype);
    if (!field->finished &&
        values_of(member) * forebay_dtype_bytes(field->dtype) != member->unit_bytes)
        return fb_fail(error, FOREBAY_BAD_DATA, "field '%s': a unit of %" PRIu64 " bytes has not "
                       "the shape it should have", field->name, member->unit_bytes);
    return FOREBAY_OK;
}

/* The file itself, as key.jpg; false if the unit is not the whole of one. */
static bool describe_original(const struct fb_pack_plan *plan, const struct fb_part *part,
                              const char *key, struct fb_scratch scratch,
                              struct fb_pack_member *member)
{
    const struct fb_source_ops *ops = plan->source->ops;
    char path[FB_PATH_BYTES];
    const char *dot;

    if (!plan->options->keep || plan->source->fields[part->field].indexed || !ops->file ||
        !ops->file(plan->source, part->unit, scratch, path, sizeof(path), &member->data_bytes))
        return false;
    dot = strrchr(path, '.');
    if (!dot || strchr(dot, '/') || !dot[1])
        return false;
    member->original = true;
    return snprintf(member->name, sizeof(member->name), "%s%s", key, dot) <
           (int)sizeof(member->name);
}

int fb_pack_member_describe(const struct fb_pack_plan *plan, const struct fb_pack_group *group,
                            unsigned i, struct fb_scratch scratch, struct fb_pack_member *member,
                            forebay_error *error)
{
    const struct fb_part *part = &group->parts[i];
    char key[KEY_BYTES], place[FB_PATH_BYTES];

    memset(member, 0, sizeof(*member));
    if (!fb_pack_key(&plan->keys, group, key, sizeof(key))) {
        plan->source->ops->place(plan->source, part->unit, place, sizeof(place));
        return fb_fail(error, FOREBAY_BAD_DATA, "'%.500s' gives no key: it is too long or has no "
                       "name", place);
    }
    if (describe_original(plan, part, key, scratch, member))
        return FOREBAY_OK;
    snprintf(member->name, sizeof(member->name), "%s.%s.npy", key, plan->names[part->field]);
    return describe_array(plan, part, member, error);
}

int fb_pack_group_bytes(const struct fb_pack_plan *plan, const struct fb_pack_group *group,
                        uint64_t *bytes, forebay_error *error)
{
    int status = FOREBAY_OK;

    *bytes = 0;
    for (unsigned i = 0; i < group->count && !status; i++) {
        struct fb_pack_member member;

        status = fb_pack_member_describe(plan, group, i, plan->scratch, &member, error);
        if (!status)
            *bytes += fb_tar_member_bytes(member.name, member.data_bytes);
    }
    return status;
}

/* ---- Names ---- */

/* Fields' names as they stand in members: dots would end the key for WebDataset. */
static int names_make(struct fb_pack_plan *plan, forebay_error *error)
{
    const struct fb_source *source = plan->source;

    plan->names = fb_block_new(plan->budget, FB_STAGE_INDEX, source->field_count,
                               sizeof(*plan->names), "the fields' names", error);
    if (!plan->names)
        return error->status;
    for (unsigned i = 0; i < source->field_count; i++) {
        snprintf(plan->names[i], FB_NAME_BYTES, "%s", source->fields[i].name);
        for (char *at = plan->names[i]; *at; at++)
            if (*at == '.' || *at == '/')
                *at = '_';
        for (unsigned j = 0; j < i; j++)
            if (strcmp(plan->names[i], plan->names[j]) == 0)
                return fb_fail(error, FOREBAY_BAD_DATA, "the fields '%s' and '%s' would have the "
                               "same name in the tar, '%s'", source->fields[j].name,
                               source->fields[i].name, plan->names[i]);
    }
    return FOREBAY_OK;
}

static int prefix_make(struct fb_pack_plan *plan, const char *out, forebay_error *error)
{
    size_t length = strlen(out);
    struct stat about;
    bool folder = length && (out[length - 1] == '/' || (stat(out, &about) == 0 &&
                                                        S_ISDIR(about.st_mode)));

    if (snprintf(plan->prefix, sizeof(plan->prefix), folder ? "%s/out" : "%s", out) >=
            (int)sizeof(plan->prefix) || !length)
        return fb_fail(error, FOREBAY_BAD_USE, "'%.200s' is too long for a path, or empty", out);
    return FOREBAY_OK;
}

/* ---- Keys that clash ---- */

struct clashes {
    uint64_t *table; /* hashes, by hash; 0: free */
    uint64_t room, count;
};

/* Who else has this key? Only asked when two hashes are the same, which mostly means an error. */
static int clash_explain(struct fb_pack_plan *plan, const struct fb_pack_group *group,
                         const char *key, forebay_error *error)
{
    char other[KEY_BYTES], here[512], there[512];
    uint64_t number = group->number;
    struct fb_pack_group earlier;
    struct fb_pack_walk walk;
    int status = fb_pack_walk_open(&walk, plan->source, plan->walk.skip, plan->budget, error);

    plan->source->ops->place(plan->source, group->parts[0].unit, here, sizeof(here));
    while (!status && fb_pack_walk_next(&walk, &earlier) == FOREBAY_OK && earlier.number < number)
        if (fb_pack_key(&plan->keys, &earlier, other, sizeof(other)) && !strcmp(other, key)) {
            plan->source->ops->place(plan->source, earlier.parts[0].unit, there, sizeof(there));
            status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' and '%s' would both have the key '%s' "
                             "(dots become \"_\"): rename one of them", there, here, key);
            break;
        }
    fb_pack_walk_close(&walk);
    return status;
}

static int clash_check(struct fb_pack_plan *plan, struct clashes *clashes,
                       const struct fb_pack_group *group, forebay_error *error)
{
    char key[KEY_BYTES];
    uint64_t hash = 0x9e3779b97f4a7c15u, at;

    if (!clashes->table || !fb_pack_key(&plan->keys, group, key, sizeof(key)))
        return FOREBAY_OK; /* a key that cannot be made is said where the member is described */
    for (const char *letter = key; *letter; letter++)
        hash = fb_mix2(hash, (unsigned char)*letter);
    hash |= 1;
    for (at = hash % clashes->room; clashes->table[at]; at = (at + 1) % clashes->room)
        if (clashes->table[at] == hash)
            return clash_explain(plan, group, key, error);
    clashes->table[at] = hash;
    return FOREBAY_OK;
}

/* ---- Shards ---- */

static int shard_begin(struct fb_pack_plan *plan, uint64_t first_group, forebay_error *error)
{
    if (plan->shard_count == plan->shard_room) {
        uint64_t room = plan->shard_room ? 2 * plan->shard_room : 16;
        void *grown = plan->shards
                          ? fb_block_grow(plan->budget, FB_STAGE_INDEX, plan->shards,
                                          plan->shard_room, room, sizeof(*plan->shards), "shards",
                                          error)
                          : fb_block_new(plan->budget, FB_STAGE_INDEX, room, sizeof(*plan->shards),
                                         "shards", error);

        if (!grown)
            return error->status;
        plan->shards = grown;
        plan->shard_room = room;
    }
    plan->shards[plan->shard_count++] = (struct fb_pack_shard){ .bytes = FB_TAR_END_BYTES,
                                                               .first_group = first_group };
    plan->bytes += FB_TAR_END_BYTES;
    return FOREBAY_OK;
}

static int group_place(struct fb_pack_plan *plan, const struct fb_pack_group *group,
                       forebay_error *error)
{
    uint64_t most = plan->options->shard_bytes ? plan->options->shard_bytes : SHARD_BYTES;
    uint64_t bytes = 0;
    struct fb_pack_shard *shard;
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < group->count && !status; i++) {
        struct fb_pack_member member;

        status = fb_pack_member_describe(plan, group, i, plan->scratch, &member, error);
        bytes += status ? 0 : fb_tar_member_bytes(member.name, member.data_bytes);
        plan->unit_bytes_max = fb_max(plan->unit_bytes_max, member.unit_bytes);
        plan->row_bytes_max = fb_max(plan->row_bytes_max, member.row_bytes);
        plan->data_bytes_max = fb_max(plan->data_bytes_max, member.original ? 0
                                                                            : member.data_bytes);
        plan->members++;
    }
    shard = plan->shard_count ? &plan->shards[plan->shard_count - 1] : NULL;
    if (!status && (!shard || (shard->groups && shard->bytes + bytes > most)))
        status = shard_begin(plan, group->number, error);
    if (status)
        return status;
    shard = &plan->shards[plan->shard_count - 1];
    shard->groups++;
    shard->bytes += bytes;
    plan->bytes += bytes;
    plan->groups++;
    return FOREBAY_OK;
}

/* Why is it broken? Loading it says so. */
static int broken_explain(const struct fb_pack_plan *plan, const struct fb_pack_group *group,
                          forebay_error *error)
{
    struct fb_load load = { .unit = group->parts[0].unit };
    const struct fb_source *source = plan->source;
    char nothing[1], place[512];
    int status;

    load.to = nothing;
    source->ops->place(source, load.unit, place, sizeof(place));
    load.scratch = plan->scratch;
    status = fb_reader_new(&load.reader, &(struct fb_reader_options){ 0 }, error);
    if (!status) {
        status = source->ops->load(source, &load, error);
        fb_reader_free(load.reader);
    }
    if (!status)
        status = fb_fail(error, FOREBAY_BAD_DATA, "'%s' is broken", place);
    if (fb_status_is_data(status))
        fb_error_context(error, "it cannot be packed (on_error: skip leaves such units out)");
    return status;
}

/* All groups once: `each` is seen in order. */
static int walk_all(struct fb_pack_plan *plan, struct clashes *clashes, const struct fb_log *log,
                    forebay_error *error)
{
    const struct fb_source *source = plan->source;
    struct fb_pack_group group;
    int status;

    fb_pack_walk_rewind(&plan->walk);
    while ((status = fb_pack_walk_next(&plan->walk, &group)) == FOREBAY_OK) {
        if (!clashes)
            fb_pack_keys_see(&plan->keys, &group);
        else if (!(status = clash_check(plan, clashes, &group, error)))
            status = group_place(plan, &group, error);
        if (!status && group.number % 4096 == 0)
            status = fb_progress(log, clashes ? "planning shards" : "looking at names",
                                 group.sample, source->sample_count, error);
        if (status)
            return status;
    }
    return status == FOREBAY_END ? FOREBAY_OK : broken_explain(plan, &group, error);
}

static void hash_make(struct fb_pack_plan *plan)
{
    const struct fb_config *config = plan->config;
    const struct fb_source *source = plan->source;
    uint64_t numbers[] = { FB_PACK_VERSION, source->identity, source->sample_count,
                           source->unit_count, (uint64_t)plan->options->dtype, plan->options->keep,
                           plan->groups, plan->bytes, plan->shard_count,
                           (uint64_t)config->source_kind, config->source_window.value,
                           config->source_stride.value, config->source_sequence.value,
                           (uint64_t)config->source_tail };

    for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        plan->hash = fb_mix2(plan->hash, numbers[i]);
    for (unsigned i = 0; i < source->field_count; i++)
        for (const char *at = source->fields[i].name; *at; at++)
            plan->hash = fb_mix2(plan->hash, (unsigned char)*at + 256 * i);
}

static int walks(struct fb_pack_plan *plan, const struct fb_log *log, forebay_error *error)
{
    struct clashes clashes = { 0 };
    int status = walk_all(plan, NULL, log, error);

    /* Numbers cannot clash. */
    if (!status && !plan->keys.numbers) {
        clashes.room = 2 * plan->walk.number + 1;
        clashes.table = fb_block_new(plan->budget, FB_STAGE_INDEX, clashes.room, sizeof(uint64_t),
                                     "the keys", error);
        status = clashes.table ? FOREBAY_OK : error->status;
    }
    if (!status)
        status = walk_all(plan, &clashes, log, error);
    fb_block_free(plan->budget, FB_STAGE_INDEX, clashes.table, clashes.room, sizeof(uint64_t));
    return status;
}

int fb_pack_plan_open(struct fb_pack_plan *plan, struct fb_source *source,
                      const struct fb_config *config, const struct fb_pack_options *options,
                      struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    int status;

    *plan = (struct fb_pack_plan){ .source = source, .config = config, .options = options,
                                   .budget = budget };
    fb_pack_keys_init(&plan->keys, source);
    plan->scratch.bytes = source->scratch_bytes;
    plan->scratch.memory = fb_block_new(budget, FB_STAGE_SCRATCH, fb_max(1, source->scratch_bytes),
                                        1, "decode memory", error);
    if (!plan->scratch.memory)
        return error->status;
    if ((status = prefix_make(plan, options->out, error)) || (status = names_make(plan, error)) ||
        (status = fb_pack_walk_open(&plan->walk, source, config->on_error != FB_ON_ERROR_FAIL,
                                    budget, error)) ||
        (status = walks(plan, log, error)))
        return status;
    plan->skipped = plan->walk.skipped;
    if (!plan->groups)
        return fb_fail(error, FOREBAY_BAD_DATA, "there is nothing to pack");
    hash_make(plan);
    return FOREBAY_OK;
}

void fb_pack_plan_close(struct fb_pack_plan *plan)
{
    fb_pack_walk_close(&plan->walk);
    fb_block_free(plan->budget, FB_STAGE_SCRATCH, plan->scratch.memory,
                  fb_max(1, plan->source->scratch_bytes), 1);
    fb_block_free(plan->budget, FB_STAGE_INDEX, plan->names, plan->source->field_count,
                  sizeof(*plan->names));
    fb_block_free(plan->budget, FB_STAGE_INDEX, plan->shards, plan->shard_room,
                  sizeof(*plan->shards));
}
