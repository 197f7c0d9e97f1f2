#include "monitor/snapshot.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* Unknown is null, never 0. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *whole(uint64_t value)
{
    return value == FB_UNKNOWN ? json_null() : json_integer((json_int_t)value);
}

static double ratio(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : NAN;
}

static json_t *memory_json(const struct fb_snapshot *now)
{
    json_t *stages = json_object();

    for (unsigned i = 0; i < FB_STAGE_COUNT; i++)
        json_object_set_new(stages, fb_stage_names[i], whole(now->budget.by_stage[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "budget_bytes",
                     whole(now->budget.limit), "used_bytes", whole(now->budget.used), "peak_bytes",
                     whole(now->budget.peak), "peak_pss_bytes", whole(now->peak_pss_bytes),
                     "floor_bytes", whole(now->floor_bytes), "held_bytes",
                     whole(now->pipeline.held_bytes), "stages", stages);
}

static json_t *cache_json(const struct fb_snapshot *now)
{
    const struct fb_pipeline_report *pipeline = &now->pipeline;

    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "policy", now->policy,
                     "items", whole(now->cache.items), "bytes", whole(now->cache.bytes),
                     "limit_bytes", whole(now->cache.limit_bytes), "hits", whole(pipeline->hits),
                     "misses", whole(pipeline->misses), "hit_rate",
                     real(now->has_cache ? ratio(pipeline->hits, pipeline->hits + pipeline->misses)
                                         : NAN),
                     "bypasses", whole(now->cache.bypasses), "evictions",
                     whole(now->cache.evictions), "waits", whole(now->cache.waits));
}

static json_t *device_json(const struct fb_snapshot *now)
{
    const struct fb_upload_report *device = &now->pipeline.device;
    bool there = device->kind != NULL;

    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "kind", now->device, "cache_hits", whole(device->cache_hits), "cache_misses",
                     whole(device->cache_misses), "cache_items", whole(device->cache_items),
                     "cache_bytes", whole(device->cache_bytes), "bytes_copied",
                     whole(device->bytes_copied), "copy_hidden_s",
                     real(there ? device->hidden_s : NAN), "copy_exposed_s",
                     real(there ? device->exposed_s : NAN), "prefetch",
                     whole(there ? device->prefetch : FB_UNKNOWN), "host_batches",
                     whole(device->host_batches), "bytes",
                     whole(device->device_bytes), "peak_bytes", whole(device->device_peak_bytes),
                     "allocated_bytes", whole(there ? device->allocated_bytes : FB_UNKNOWN),
                     "reserved_bytes", whole(there ? device->reserved_bytes : FB_UNKNOWN));
}

static json_t *epochs_json(const struct fb_pipeline_report *report)
{
    uint64_t kept = fb_min(report->epoch_count, FB_EPOCHS_KEPT);
    json_t *epochs = json_array();

    for (uint64_t i = 0; i < kept; i++) {
        const struct fb_epoch_report *epoch = &report->epochs[i];

        json_array_append_new(
            epochs, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "epoch",
                              whole(epoch->epoch), "seconds", real(epoch->seconds), "samples",
                              whole(epoch->samples), "batches", whole(epoch->batches), "hits",
                              whole(epoch->hits), "misses", whole(epoch->misses), "bytes_read",
                              whole(epoch->bytes_read), "skipped", whole(epoch->skipped),
                              "replaced", whole(epoch->replaced)));
    }
    return epochs;
}

static json_t *failures_json(const struct fb_pipeline_report *report)
{
    json_t *failures = json_array();

    for (unsigned i = 0; i < FB_FAILURES_KEPT && report->failures[i].reason[0]; i++)
        json_array_append_new(failures, json_pack("{s:o, s:o, s:s}", "epoch",
                                                  whole(report->failures[i].epoch), "sample",
                                                  whole(report->failures[i].sample), "reason",
                                                  report->failures[i].reason));
    return failures;
}

static json_t *counts_json(const struct fb_snapshot *now)
{
    const struct fb_pipeline_report *report = &now->pipeline;

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "samples",
                     whole(report->samples), "batches", whole(report->batches), "bytes",
                     whole(report->bytes), "seconds", real(report->seconds), "samples_per_s",
                     real(report->seconds > 0 ? (double)report->samples / report->seconds : NAN),
                     "bytes_per_s",
                     real(report->seconds > 0 ? (double)report->bytes / report->seconds : NAN),
                     "first_batch_s", real(report->first_batch_s), "wait_s", real(report->wait_s),
                     "wait_p50_ms", real(report->wait_p50_ms), "wait_p99_ms",
                     real(report->wait_p99_ms), "skipped", whole(report->skipped), "replaced",
                     whole(report->replaced), "failed", whole(report->failed));
}

static json_t *settings_json(const struct fb_snapshot *now)
{
    const struct fb_pipeline_report *report = &now->pipeline;

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "workers",
                     whole(report->workers), "prefetch", whole(report->prefetch), "in_flight",
                     whole(report->in_flight), "ready", whole(report->ready), "held",
                     whole(report->held), "abandoned_workers", whole(report->abandoned_workers),
                     "epoch", whole(report->epoch), "position", whole(report->position),
                     "epoch_batches", whole(report->epoch_batches));
}

size_t fb_snapshot_json(const struct fb_snapshot *now, char *text, size_t size)
{
    json_t *all = counts_json(now), *settings = settings_json(now);
    size_t length = 0;

    if (all && settings) {
        json_object_update(all, settings);
        json_object_set_new(all, "name", now->name[0] ? json_string(now->name) : json_null());
        json_object_set_new(all, "memory", memory_json(now));
        json_object_set_new(all, "cache", cache_json(now));
        json_object_set_new(all, "device", device_json(now));
        json_object_set_new(all, "epochs", epochs_json(&now->pipeline));
        json_object_set_new(all, "failures", failures_json(&now->pipeline));
        length = json_dumpb(all, NULL, 0, JSON_COMPACT);
        if (size > length) {
            json_dumpb(all, text, size, JSON_COMPACT);
            text[length] = '\0';
        }
    }
    json_decref(settings);
    json_decref(all);
    return length;
}
