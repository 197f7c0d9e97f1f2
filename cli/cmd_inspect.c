/* cmd_inspect.c -- `forebay inspect`: what a source holds, and what of it is broken. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "command.h"
#include "options.h"
#include "output.h"
#include "plan/prepare.h"
#include "progress.h"
#include "stop.h"
#include "survey.h"

#define FIRST_SAMPLES 3
#define BROKEN_SHOWN 20

static const char help[] =
    "Opens the source of a configuration and tells what it holds: samples, units (files), fields\n"
    "with dtype and shape (? is what may vary), bytes, sizes of units, sequences, the first\n"
    "samples' shapes, and the units that are broken with the reason.\n"
    "\n"
    "Options:\n"
    "  --set KEY=VALUE  over the configuration; without CONFIG a configuration of its own\n"
    "  --check          load every unit, to find what only shows when it is read\n"
    "  --json           print the result as one JSON object\n"
    "\n"
    "Without --check only what the index knows is judged: sizes and headers. Broken units are no\n"
    "failure of this command: the exit code is 0, and broken_count tells.\n"
    "\n"
    "Examples:\n"
    "  forebay inspect train.yaml\n"
    "  forebay inspect --set source.kind=npy --set 'source.path=data/*.npy' --check\n";

struct inspection {
    const char *config_file;
    struct texts settings;
    bool check, json;
    struct progress progress;
    struct fb_config config;
    struct fb_budget *budget;
    struct fb_source *source;
    struct survey survey;
};

/* ---- For a person ---- */

static void fields_print(const struct fb_source *source)
{
    char shape[128];

    for (unsigned i = 0; i < source->field_count; i++) {
        const struct fb_field *field = &source->fields[i];

        survey_shape(field, NULL, shape, sizeof(shape));
        printf("  field     %s: %s %s%s%s\n", field->name, forebay_dtype_name(field->dtype), shape,
               field->unit ? " in " : "", field->unit ? field->unit : "");
    }
}

/* One line a sample: its fields' shapes, the first item's of a sequence. */
static void sample_print(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    unsigned count = source->ops->parts(source, sample, parts), before = UINT32_MAX;
    char shape[128];

    printf("  sample %-2" PRIu64, sample);
    for (unsigned i = 0; i < count; i++) {
        const struct fb_field *field = &source->fields[parts[i].field];
        struct fb_extent extent = source->ops->extent(source, parts[i].unit);

        if (parts[i].field == before)
            continue;
        before = parts[i].field;
        if (extent.known == FB_EXTENT_EXACT && parts[i].rows != FB_ALL_ROWS)
            extent.rows = parts[i].rows;
        survey_shape(field, &extent, shape, sizeof(shape));
        printf("  %s ", field->name);
        if (field->items > 1)
            printf("%u x ", field->items);
        fputs(extent.known == FB_EXTENT_EXACT    ? shape
              : extent.known == FB_EXTENT_BROKEN ? "broken"
                                                 : "not known before it is read",
              stdout);
    }
    putchar('\n');
}

static void samples_print(const struct fb_source *source)
{
    struct fb_part *parts = calloc(source->parts_max, sizeof(*parts));

    for (uint64_t i = 0; parts && i < fb_min(FIRST_SAMPLES, source->sample_count); i++)
        sample_print(source, i, parts);
    free(parts);
}

static void broken_print(const struct survey *survey)
{
    if (!survey->broken)
        printf("  broken    none (%s)\n", survey->checked
                                               ? "every unit was loaded"
                                               : "that the index knows of; --check loads all");
    else
        printf("  broken    %" PRIu64 " unit%s\n", survey->broken, survey->broken == 1 ? "" : "s");
    for (uint64_t i = 0; i < fb_min(survey->kept, BROKEN_SHOWN); i++) {
        const struct survey_failure *failure = &survey->failures[i];
        size_t length = strlen(failure->place);

        /* Most reasons name the file themselves. */
        printf("    %s%s%s\n", strstr(failure->reason, failure->place) ? "" : failure->place,
               strstr(failure->reason, failure->place) || !length ? "" : ": ", failure->reason);
    }
    if (survey->broken > BROKEN_SHOWN)
        printf("    and %" PRIu64 " more (--json lists them)\n", survey->broken - BROKEN_SHOWN);
}

/* Decoded bytes of all units, as plan has them: where units are not known yet, what the source
 * expects of them (audio: the manifest's durations). */
static uint64_t bytes_all(const struct inspection *inspection)
{
    return inspection->survey.unknown
               ? fb_max(inspection->survey.bytes, inspection->source->unit_bytes_total)
               : inspection->survey.bytes;
}

static void inspection_print(const struct inspection *inspection)
{
    const struct fb_source *source = inspection->source;
    const struct survey *survey = &inspection->survey;
    char a[32], b[32], c[32];

    printf("%s: %" PRIu64 " samples of %" PRIu64 " units, %s%s decoded\n", source->ops->kind,
           source->sample_count, source->unit_count, survey->unknown ? "about " : "",
           fb_size_text(bytes_all(inspection), a));
    fields_print(source);
    if (survey->known)
        printf("  unit      %s to %s, median %s\n", fb_size_text(survey->least, a),
               fb_size_text(survey->most, b), fb_size_text(survey->median, c));
    if (survey->unknown)
        printf("  unknown   %" PRIu64 " units whose size shows only when they are read\n",
               survey->unknown);
    if (source->group_count)
        printf("  groups    %" PRIu64 " sequences or folders\n", source->group_count);
    if (source->stretch_samples)
        printf("  access    from front to back, %" PRIu64 " samples mixed at a time\n",
               source->stretch_samples);
    samples_print(source);
    broken_print(survey);
}

/* ---- JSON ---- */

static json_t *shape_json(const struct fb_field *field, const struct fb_extent *extent)
{
    json_t *shape = json_array();

    if (field->sequence)
        json_array_append_new(shape, json_integer(field->items));
    for (unsigned i = 0; i < field->ndim; i++) {
        bool varies = i < field->vary;
        uint64_t value = field->shape[i];

        if (varies && extent)
            value = i == 0 ? extent->rows : extent->columns;
        json_array_append_new(shape, varies && !extent ? json_null()
                                                       : json_integer((json_int_t)value));
    }
    return shape;
}

static json_t *fields_json(const struct fb_source *source)
{
    json_t *fields = json_array();

    for (unsigned i = 0; i < source->field_count; i++)
        json_array_append_new(
            fields, json_pack("{s:s, s:s, s:s?, s:o}", "name", source->fields[i].name, "dtype",
                              forebay_dtype_name(source->fields[i].dtype), "unit",
                              source->fields[i].unit, "shape",
                              shape_json(&source->fields[i], NULL)));
    return fields;
}

/* Shapes of one sample, a list of items for each field; null where it is not known. */
static json_t *sample_json(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    unsigned count = source->ops->parts(source, sample, parts);
    json_t *fields = json_object();

    for (unsigned i = 0; i < count; i++) {
        const struct fb_field *field = &source->fields[parts[i].field];
        struct fb_extent extent = source->ops->extent(source, parts[i].unit);
        struct fb_field item = *field;
        json_t *list = json_object_get(fields, field->name);

        if (!list) {
            list = json_array();
            json_object_set_new(fields, field->name, list);
        }
        if (extent.known == FB_EXTENT_EXACT && parts[i].rows != FB_ALL_ROWS)
            extent.rows = parts[i].rows;
        item.sequence = false;
        json_array_append_new(list, extent.known == FB_EXTENT_EXACT ? shape_json(&item, &extent)
                                                                    : json_null());
    }
    return json_pack("{s:I, s:o}", "sample", (json_int_t)sample, "shapes", fields);
}

static json_t *samples_json(const struct fb_source *source)
{
    struct fb_part *parts = calloc(source->parts_max, sizeof(*parts));
    json_t *samples = json_array();

    for (uint64_t i = 0; parts && i < fb_min(FIRST_SAMPLES, source->sample_count); i++)
        json_array_append_new(samples, sample_json(source, i, parts));
    free(parts);
    return samples;
}

static json_t *broken_json(const struct survey *survey)
{
    json_t *broken = json_array();

    for (uint64_t i = 0; i < survey->kept; i++)
        json_array_append_new(broken,
                              json_pack("{s:I, s:o, s:o}", "unit",
                                        (json_int_t)survey->failures[i].unit, "place",
                                        output_text(survey->failures[i].place), "reason",
                                        output_text(survey->failures[i].reason)));
    return broken;
}

static json_t *sizes_json(const struct survey *survey)
{
    if (!survey->known)
        return json_null();
    return json_pack("{s:I, s:I, s:I}", "min", (json_int_t)survey->least, "median",
                     (json_int_t)survey->median, "max", (json_int_t)survey->most);
}

static json_t *inspection_json(const struct inspection *inspection)
{
    const struct fb_source *source = inspection->source;
    const struct survey *survey = &inspection->survey;

    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:b, s:I, s:I, s:o}", "kind",
                     source->ops->kind, "samples", (json_int_t)source->sample_count, "units",
                     (json_int_t)source->unit_count, "bytes", (json_int_t)bytes_all(inspection),
                     "groups", (json_int_t)source->group_count, "mixed_samples",
                     (json_int_t)source->stretch_samples, "fields", fields_json(source), "unit_bytes",
                     sizes_json(survey), "first", samples_json(source), "checked", survey->checked,
                     "unknown_count", (json_int_t)survey->unknown, "broken_count",
                     (json_int_t)survey->broken, "broken", broken_json(survey));
}

/* ---- Set-up ---- */

static int inspect(struct inspection *inspection, forebay_error *error)
{
    struct fb_log log = { progress_log, progress_long_work, &inspection->progress };
    int status = fb_prepare_budget(&inspection->budget, &inspection->config,
                                   &(struct fb_ranks){ .local_world = 1 }, &log, error);

    if (!status)
        status = fb_source_open(&inspection->source, &inspection->config, inspection->budget, &log,
                                error);
    if (!status)
        status = survey_take(&inspection->survey, inspection->source, inspection->budget,
                             inspection->check, &log, error);
    return status;
}

static void inspection_release(struct inspection *inspection)
{
    if (inspection->survey.failures)
        survey_release(&inspection->survey);
    if (inspection->source)
        fb_source_close(inspection->source);
    if (inspection->budget)
        fb_budget_free(inspection->budget);
}

static int inspect_all(struct inspection *inspection)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_log log = { progress_log, progress_long_work, &inspection->progress };
    forebay_error error;
    int code = EXIT_DONE, status;

    options.config_file = inspection->config_file;
    options.settings = inspection->settings.values;
    options.setting_count = inspection->settings.count;
    progress_init(&inspection->progress);
    stop_catch();
    status = fb_config_read(&inspection->config, &options, &log, &error);
    if (status)
        return output_failure("inspect", inspection->json, &error);
    status = inspect(inspection, &error);
    progress_finish(&inspection->progress);
    if (status)
        code = output_failure("inspect", inspection->json, &error);
    else if (inspection->json)
        code = output_json(inspection_json(inspection));
    else
        inspection_print(inspection);
    inspection_release(inspection);
    fb_config_release(&inspection->config);
    return stop_asked() ? EXIT_SIGNAL + stop_asked() : code;
}

static int run(int argc, char **argv)
{
    struct inspection inspection = { .json = options_has(argc, argv, "--json") };
    const struct option table[] = {
        { "CONFIG", OPTION_ALONE, &inspection.config_file, false },
        { "--set", OPTION_TEXTS, &inspection.settings, false },
        { "--check", OPTION_FLAG, &inspection.check, false },
        { "--json", OPTION_FLAG, &inspection.json, false },
    };
    forebay_error error;
    int status = options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error), code;

    if (!status && !inspection.config_file && !inspection.settings.count)
        status = fb_fail(&error, FOREBAY_BAD_USE,
                         "CONFIG is missing (or --set source.kind=... --set source.path=...)");
    code = status ? output_bad_use("inspect", inspection.json, &error) : inspect_all(&inspection);
    free(inspection.settings.values);
    return code;
}

const struct command command_inspect = {
    .name = "inspect",
    .usage = "CONFIG [--set key=value]... [--check] [--json]",
    .summary = "what a source holds: samples, fields, shapes, bytes, what is broken and where",
    .help = help,
    .run = run,
};
