#include "survey.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"

#define UNSEEN UINT64_MAX       /* no sample uses the unit, or its size is not known */
#define BROKEN (UINT64_MAX - 1)

/* Working memory of one survey. */
struct work {
    struct survey *survey;
    const struct fb_log *log;
    bool check;
    uint64_t *sizes;        /* of each unit, UNSEEN or BROKEN */
    struct fb_part *parts;
    struct fb_reader *reader;
    struct fb_load load;    /* `to` is an area of room bytes */
    uint64_t room;
};

static void failure_keep(struct work *work, uint64_t unit, const forebay_error *error)
{
    struct survey *survey = work->survey;
    struct survey_failure *failure;

    work->sizes[unit] = BROKEN;
    survey->broken++;
    if (survey->kept >= SURVEY_BROKEN_KEPT)
        return;
    failure = &survey->failures[survey->kept++];
    failure->unit = unit;
    survey->source->ops->place(survey->source, unit, failure->place, sizeof(failure->place));
    snprintf(failure->reason, sizeof(failure->reason), "%.319s", error->message);
}

/* Room for a unit of `bytes`; the old content is not needed. */
static int room_make(struct work *work, uint64_t bytes, forebay_error *error)
{
    struct fb_budget *budget = work->survey->budget;

    if (bytes <= work->room && work->load.to)
        return FOREBAY_OK;
    fb_block_free(budget, FB_STAGE_SCRATCH, work->load.to, work->room, 1);
    work->room = 0;
    bytes = fb_max(bytes, 4096);
    work->load.to = fb_block_new(budget, FB_STAGE_SCRATCH, bytes, 1, "the largest unit", error);
    if (!work->load.to)
        return error->status;
    work->room = bytes;
    return FOREBAY_OK;
}

/* Why a unit is broken, or with --check whether it is: load it. */
static int unit_load(struct work *work, uint64_t unit, const struct fb_field *field,
                     struct fb_extent extent, forebay_error *error)
{
    const struct fb_source *source = work->survey->source;
    bool known = extent.known == FB_EXTENT_EXACT;
    uint64_t bytes = known ? fb_extent_bytes(field, extent) : 0;
    int status = room_make(work, bytes, error);

    if (status)
        return status;
    work->load.unit = unit;
    work->load.first_row = 0;
    work->load.rows = known ? extent.rows : 0;
    work->load.bytes = bytes;
    status = source->ops->load(source, &work->load, error);
    if (!status && known && field->finished && source->ops->check)
        status = source->ops->check(source, unit, work->load.to, extent, work->load.scratch, error);
    return status;
}

/* With --check an unknown extent is found out first. */
static int extent_probe(struct work *work, uint64_t unit, struct fb_extent *extent,
                        forebay_error *error)
{
    struct fb_source *source = work->survey->source;
    int status;

    if (extent->known != FB_EXTENT_UNKNOWN || !work->check || !source->ops->probe)
        return FOREBAY_OK;
    work->load.unit = unit;
    status = source->ops->probe(source, unit, &work->load, error);
    *extent = source->ops->extent(source, unit);
    return status;
}

static int unit_see(struct work *work, const struct fb_part *part, forebay_error *error)
{
    struct survey *survey = work->survey;
    const struct fb_field *field = &survey->source->fields[part->field];
    struct fb_extent extent = survey->source->ops->extent(survey->source, part->unit);
    int status = extent_probe(work, part->unit, &extent, error);

    if (!status && (extent.known == FB_EXTENT_BROKEN ||
                    (work->check && extent.known == FB_EXTENT_EXACT)))
        status = unit_load(work, part->unit, field, extent, error);
    if (fb_status_is_data(status)) {
        failure_keep(work, part->unit, error);
        return FOREBAY_OK;
    }
    if (status || extent.known != FB_EXTENT_EXACT)
        return status;
    work->sizes[part->unit] = fb_extent_bytes(field, extent);
    survey->bytes += work->sizes[part->unit];
    survey->known++;
    return FOREBAY_OK;
}

/* Units are found through the samples that use them; most sources have one each. */
static int units_see(struct work *work, forebay_error *error)
{
    struct fb_source *source = work->survey->source;
    const char *what = work->check ? "loading every unit" : "looking at every unit";

    for (uint64_t sample = 0; sample < source->sample_count; sample++) {
        unsigned count = source->ops->parts(source, sample, work->parts);
        int status = FOREBAY_OK;

        for (unsigned i = 0; i < count && !status; i++)
            if (!source->fields[work->parts[i].field].indexed &&
                work->sizes[work->parts[i].unit] == UNSEEN)
                status = unit_see(work, &work->parts[i], error);
        if (!status && (work->check || sample % 4096 == 0))
            status = fb_progress(work->log, what, sample, source->sample_count, error);
        if (status)
            return status;
    }
    return FOREBAY_OK;
}

static int compare_sizes(const void *a, const void *b)
{
    uint64_t left, right;

    memcpy(&left, a, sizeof(left));
    memcpy(&right, b, sizeof(right));
    return (left > right) - (left < right);
}

/* Sorted, the sizes that are not known (UNSEEN, BROKEN) stand behind the others. */
static void sizes_sum_up(struct work *work)
{
    struct survey *survey = work->survey;
    uint64_t count = survey->source->unit_count;

    survey->unknown = count - survey->known - survey->broken;
    survey->checked = work->check;
    if (!survey->known)
        return;
    qsort(work->sizes, count, sizeof(*work->sizes), compare_sizes);
    survey->least = work->sizes[0];
    survey->median = work->sizes[(survey->known - 1) / 2];
    survey->most = work->sizes[survey->known - 1];
}

static int work_init(struct work *work, forebay_error *error)
{
    struct survey *survey = work->survey;
    const struct fb_source *source = survey->source;
    struct fb_reader_options reading = { .log = work->log };

    survey->failures = fb_block_new(survey->budget, FB_STAGE_OTHER, SURVEY_BROKEN_KEPT,
                                    sizeof(*survey->failures), "the list of broken units", error);
    work->sizes = fb_block_new(survey->budget, FB_STAGE_OTHER, fb_max(source->unit_count, 1),
                               sizeof(*work->sizes), "the sizes of units", error);
    work->parts = fb_block_new(survey->budget, FB_STAGE_OTHER, source->parts_max,
                               sizeof(*work->parts), "a sample's parts", error);
    work->load.scratch.bytes = source->scratch_bytes;
    work->load.scratch.memory =
        fb_block_new(survey->budget, FB_STAGE_SCRATCH, fb_max(source->scratch_bytes, 1), 1,
                     "decode memory", error);
    if (!survey->failures || !work->sizes || !work->parts || !work->load.scratch.memory)
        return error->status;
    for (uint64_t i = 0; i < source->unit_count; i++)
        work->sizes[i] = UNSEEN;
    return fb_reader_new(&work->reader, &reading, error);
}

static void work_release(struct work *work)
{
    struct fb_budget *budget = work->survey->budget;
    const struct fb_source *source = work->survey->source;

    if (work->reader)
        fb_reader_free(work->reader);
    fb_block_free(budget, FB_STAGE_SCRATCH, work->load.to, work->room, 1);
    fb_block_free(budget, FB_STAGE_SCRATCH, work->load.scratch.memory,
                  fb_max(source->scratch_bytes, 1), 1);
    fb_block_free(budget, FB_STAGE_OTHER, work->parts, source->parts_max, sizeof(*work->parts));
    fb_block_free(budget, FB_STAGE_OTHER, work->sizes, fb_max(source->unit_count, 1),
                  sizeof(*work->sizes));
}

int survey_take(struct survey *survey, struct fb_source *source, struct fb_budget *budget,
                bool check, const struct fb_log *log, forebay_error *error)
{
    struct work work = { .survey = survey, .log = log, .check = check };
    int status;

    *survey = (struct survey){ .budget = budget, .source = source };
    status = work_init(&work, error);
    work.load.reader = work.reader;
    if (!status)
        status = units_see(&work, error);
    if (!status)
        sizes_sum_up(&work);
    work_release(&work);
    if (status)
        survey_release(survey);
    return status;
}

void survey_release(struct survey *survey)
{
    fb_block_free(survey->budget, FB_STAGE_OTHER, survey->failures, SURVEY_BROKEN_KEPT,
                  sizeof(*survey->failures));
    survey->failures = NULL;
}

/* Appends like snprintf and stays inside. */
static size_t put(char *text, size_t size, size_t used, const char *before, uint64_t value,
                  bool varies)
{
    if (used >= size)
        return used;
    if (varies)
        return used + (size_t)snprintf(text + used, size - used, "%s?", before);
    return used + (size_t)snprintf(text + used, size - used, "%s%" PRIu64, before, value);
}

void survey_shape(const struct fb_field *field, const struct fb_extent *extent, char *text,
                  size_t size)
{
    size_t used = 0;

    if (field->sequence && !extent)
        used = put(text, size, used, "[", field->items, false);
    for (unsigned i = 0; i < field->ndim; i++) {
        uint64_t value = field->shape[i];

        if (extent && i < field->vary)
            value = i == 0 ? extent->rows : extent->columns;
        used = put(text, size, used, used ? ", " : "[", value, !extent && i < field->vary);
    }
    snprintf(text + fb_min(used, size), size - fb_min(used, size), used ? "]" : "scalar");
}
