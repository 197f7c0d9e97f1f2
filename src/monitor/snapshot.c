/* snapshot.c -- the figures of a loader as data, as text and as JSON. */
#include "monitor/snapshot.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "monitor/verdict.h"

_Static_assert(sizeof(struct fb_snapshot) < 65536, "an offset is a short");

const struct fb_figure fb_figures[] = {
#define FB_REAL_N false
#define FB_REAL_R true
#define FB_X(kind, unit, field, from, group, key, metric, title) \
    { FB_UNIT_##unit, FB_REAL_##kind, offsetof(struct fb_snapshot, field), group, key, metric, title },
    FB_FIGURE_MAP(FB_X)
#undef FB_X
};
const unsigned fb_figure_count = sizeof(fb_figures) / sizeof(fb_figures[0]);

static uint64_t whole_of(const struct fb_figure *figure, const struct fb_snapshot *now)
{
    uint64_t value;

    memcpy(&value, (const char *)now + figure->offset, sizeof(value));
    return value;
}

double fb_figure_value(const struct fb_figure *figure, const struct fb_snapshot *now)
{
    uint64_t whole = whole_of(figure, now);
    double value;

    if (!figure->is_real)
        return whole == FB_UNKNOWN ? (double)NAN : (double)whole;
    memcpy(&value, &whole, sizeof(value));
    return value;
}

const struct fb_figure *fb_figure_find(const char *key)
{
    for (unsigned i = 0; i < fb_figure_count; i++)
        if (!strcmp(fb_figures[i].key, key))
            return &fb_figures[i];
    return NULL;
}

const char *fb_figure_text(const struct fb_figure *figure, const struct fb_snapshot *now,
                           char text[32])
{
    return fb_figure_number(figure, fb_figure_value(figure, now), text);
}

const char *fb_figure_number(const struct fb_figure *figure, double value, char text[32])
{
    if (!isfinite(value))
        return "n/a";
    switch (figure->unit) {
    case FB_UNIT_BYTES:
        return fb_size_text(value > 0 ? (uint64_t)fmin(value, 0x1p62) : 0, text);
    case FB_UNIT_BYTE_RATE:
        snprintf(text, 32, "%.1f MB/s", value / 1e6);
        break;
    case FB_UNIT_SHARE:
        snprintf(text, 32, "%.1f%%", 100 * value);
        break;
    case FB_UNIT_PERCENT:
        snprintf(text, 32, "%.1f%%", value);
        break;
    case FB_UNIT_SECONDS:
        snprintf(text, 32, "%.1f s", value);
        break;
    case FB_UNIT_MILLISECONDS:
        snprintf(text, 32, "%.2f ms", value);
        break;
    default:
        snprintf(text, 32, "%.0f", value);
    }
    return text;
}

/* ---- JSON ---- */

/* Unknown is null, never 0. */
static json_t *whole_json(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *real_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Any bytes may stand in a file: what is no UTF-8 is null. */
static json_t *text_json(const char *value)
{
    json_t *json = value[0] ? json_string(value) : NULL;

    return json ? json : json_null();
}

static json_t *seconds_json(uint64_t time_ns)
{
    return real_json((double)time_ns / 1e9);
}

static void figures_put(json_t *all, const struct fb_snapshot *now)
{
    for (unsigned i = 0; i < fb_figure_count; i++) {
        const struct fb_figure *figure = &fb_figures[i];
        json_t *group = figure->group[0] ? json_object_get(all, figure->group) : all;

        if (!group) {
            group = json_object();
            json_object_set_new(all, figure->group, group);
        }
        json_object_set_new(group, figure->key,
                            figure->is_real ? real_json(fb_figure_value(figure, now))
                                            : whole_json(whole_of(figure, now)));
    }
}

static json_t *stages_json(const struct fb_snapshot *now)
{
    json_t *stages = json_object();

    for (unsigned i = 0; i < FB_STAGE_COUNT; i++)
        json_object_set_new(stages, fb_stage_names[i], whole_json(now->by_stage[i]));
    return stages;
}

static json_t *workers_json(const struct fb_snapshot *now)
{
    static const char *const names[] = { "waits", "reads", "decodes" };
    json_t *doing = json_array();

    for (uint64_t i = 0; i < fb_min(now->worker_count, FB_SNAPSHOT_WORKERS); i++)
        json_array_append_new(doing, json_string(names[now->doing[i] % 3]));
    return doing;
}

static json_t *decisions_json(const struct fb_snapshot *now)
{
    uint64_t kept = fb_min(now->decision_count, FB_SNAPSHOT_DECISIONS);
    json_t *decisions = json_array();

    for (uint64_t i = 0; i < kept; i++) {
        const struct fb_snapshot_decision *one =
            &now->decisions[(now->decision_count - kept + i) % FB_SNAPSHOT_DECISIONS];

        json_array_append_new(decisions, json_pack("{s:o, s:o}", "time", seconds_json(one->time_ns),
                                                   "text", text_json(one->text)));
    }
    return decisions;
}

json_t *fb_snapshot_json(const struct fb_snapshot *now)
{
    json_t *all = json_object();

    if (!all)
        return NULL;
    figures_put(all, now);
    json_object_set_new(json_object_get(all, "memory"), "stages", stages_json(now));
    json_object_set_new(json_object_get(all, "cache"), "policy", text_json(now->policy));
    json_object_set_new(json_object_get(all, "device"), "kind", text_json(now->device));
    json_object_set_new(all, "pid", whole_json(now->pid));
    json_object_set_new(all, "name", text_json(now->name));
    json_object_set_new(all, "time", seconds_json(now->time_ns));
    json_object_set_new(all, "opened", seconds_json(now->opened_ns));
    json_object_set_new(all, "doing", workers_json(now));
    json_object_set_new(all, "decisions", decisions_json(now));
    json_object_set_new(all, "limit", json_string(fb_verdict_name(fb_verdict(now))));
    json_object_set_new(all, "verdict", text_json(now->verdict));
    return all;
}

static json_t *epochs_json(const struct fb_pipeline_report *report)
{
    uint64_t kept = fb_min(report->epoch_count, FB_EPOCHS_KEPT);
    json_t *epochs = json_array();

    for (uint64_t i = 0; i < kept; i++) {
        const struct fb_epoch_report *epoch = &report->epochs[i];

        json_array_append_new(
            epochs, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "epoch",
                              whole_json(epoch->epoch), "seconds", real_json(epoch->seconds),
                              "samples", whole_json(epoch->samples), "batches",
                              whole_json(epoch->batches), "hits", whole_json(epoch->hits), "misses",
                              whole_json(epoch->misses), "bytes_read",
                              whole_json(epoch->bytes_read), "skipped",
                              whole_json(epoch->skipped), "replaced",
                              whole_json(epoch->replaced)));
    }
    return epochs;
}

static json_t *failures_json(const struct fb_pipeline_report *report)
{
    json_t *failures = json_array();

    for (unsigned i = 0; i < FB_FAILURES_KEPT && report->failures[i].reason[0]; i++)
        json_array_append_new(failures, json_pack("{s:o, s:o, s:s}", "epoch",
                                                  whole_json(report->failures[i].epoch), "sample",
                                                  whole_json(report->failures[i].sample), "reason",
                                                  report->failures[i].reason));
    return failures;
}

void fb_snapshot_json_lists(json_t *all, const struct fb_pipeline_report *report)
{
    json_object_set_new(all, "epochs", epochs_json(report));
    json_object_set_new(all, "failures", failures_json(report));
}
