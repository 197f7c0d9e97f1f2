#include "monitor/page_json.h"

#include <math.h>

#include "base/size.h"
#include "monitor/verdict.h"

static json_t *number(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Any bytes may stand in a page: what is no UTF-8 is null. */
static json_t *text(const char *value)
{
    json_t *json = value[0] ? json_string(value) : NULL;

    return json ? json : json_null();
}

static json_t *memory_json(const struct fb_page *page)
{
    json_t *stages = json_object();

    for (unsigned i = 0; i < FB_STAGE_COUNT; i++)
        json_object_set_new(stages, fb_stage_names[i], number(page->by_stage[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "budget_bytes", number(page->limit),
                     "used_bytes", number(page->used), "peak_bytes", number(page->peak),
                     "floor_bytes", number(page->floor), "resident_bytes", number(page->resident),
                     "stages", stages);
}

static json_t *host_json(const struct fb_page *page)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "total_bytes",
                     number(page->host_total), "available_bytes", number(page->host_available),
                     "swap_used_bytes", number(page->swap_used), "cgroup_limit_bytes",
                     number(page->group_limit), "cgroup_used_bytes", number(page->group_used),
                     "left_bytes", number(page->left), "memory_stalled_percent",
                     real(page->memory_stalled), "cpu_stalled_percent", real(page->cpu_stalled),
                     "io_stalled_percent", real(page->io_stalled), "cgroup_kills",
                     number(page->group_kills));
}

static json_t *cache_json(const struct fb_page *page)
{
    double uses = (double)page->hits + (double)page->misses;

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "policy", text(page->policy), "items",
                     number(page->cache_items), "bytes", number(page->cache_bytes), "limit_bytes",
                     number(page->cache_limit), "hits", number(page->hits), "misses",
                     number(page->misses), "hit_rate",
                     real(page->has_cache && uses > 0 ? (double)page->hits / uses : (double)NAN));
}

static json_t *workers_json(const struct fb_page *page)
{
    static const char *const names[] = { "waits", "reads", "decodes" };
    json_t *doing = json_array();

    for (uint64_t i = 0; i < fb_min(page->worker_count, FB_PAGE_WORKERS); i++)
        json_array_append_new(doing, json_string(names[page->doing[i] % 3]));
    return doing;
}

static json_t *decisions_json(const struct fb_page *page)
{
    uint64_t kept = fb_min(page->decision_count, FB_PAGE_DECISIONS);
    json_t *decisions = json_array();

    for (uint64_t i = 0; i < kept; i++) {
        const struct fb_page_decision *one =
            &page->decisions[(page->decision_count - kept + i) % FB_PAGE_DECISIONS];

        json_array_append_new(decisions, json_pack("{s:o, s:o}", "time", real((double)one->time_ns
                                                   / 1e9), "text", text(one->text)));
    }
    return decisions;
}

static json_t *flow_json(const struct fb_page *page)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "samples", number(page->samples), "batches", number(page->batches), "bytes",
                     number(page->bytes), "bytes_read", number(page->bytes_read), "seconds",
                     real(page->seconds), "samples_per_s", real(page->samples_per_s), "bytes_per_s",
                     real(page->bytes_per_s), "wait_s", real(page->wait_s), "wait_share",
                     real(page->wait_share), "wait_p50_ms", real(page->wait_p50_ms), "wait_p99_ms",
                     real(page->wait_p99_ms), "read_share", real(page->read_share), "decode_share",
                     real(page->decode_share), "copy_share", real(page->copy_share));
}

static json_t *state_json(const struct fb_page *page)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "workers",
                     number(page->workers), "prefetch", number(page->prefetch), "cpu_share",
                     number(page->cpu_share), "in_flight", number(page->in_flight), "ready",
                     number(page->ready), "held", number(page->held), "epoch", number(page->epoch),
                     "position", number(page->position), "epoch_samples",
                     number(page->epoch_samples), "alarms", number(page->alarms));
}

json_t *fb_page_json(const struct fb_page *page)
{
    json_t *all = flow_json(page), *state = state_json(page);

    if (all && state) {
        json_object_update(all, state);
        json_object_set_new(all, "pid", number(page->pid));
        json_object_set_new(all, "name", text(page->name));
        json_object_set_new(all, "time", real((double)page->time_ns / 1e9));
        json_object_set_new(all, "opened", real((double)page->opened_ns / 1e9));
        json_object_set_new(all, "rank", number(page->rank));
        json_object_set_new(all, "world", number(page->world));
        json_object_set_new(all, "memory", memory_json(page));
        json_object_set_new(all, "host", host_json(page));
        json_object_set_new(all, "cache", cache_json(page));
        json_object_set_new(all, "doing", workers_json(page));
        json_object_set_new(all, "decisions", decisions_json(page));
        json_object_set_new(all, "limit", json_string(fb_verdict_name(fb_verdict(page))));
        json_object_set_new(all, "verdict", text(page->verdict));
    }
    json_decref(state);
    return all;
}
