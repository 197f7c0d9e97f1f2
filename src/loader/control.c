/* control.c -- batches, state, live settings and statistics of an open loader. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/new_file.h"
#include "base/size.h"
#include "cache/cache.h"
#include "loader/loader.h"

static int check_process(const forebay_loader *loader, forebay_error *error)
{
    if (loader->pid == getpid())
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_FORKED,
                   "this loader was opened by process %d; open one of its own in the child",
                   (int)loader->pid);
}

/* ---- Batches ---- */

/* Where the state goes when an alarm stops the run. */
static int state_path(const forebay_loader *loader, char *path, size_t size, forebay_error *error)
{
    char folder[FB_HOST_PATH_BYTES];
    int status = FOREBAY_OK;

    if (loader->config.monitor_alarm_state) {
        snprintf(path, size, "%s", loader->config.monitor_alarm_state);
        return FOREBAY_OK;
    }
    status = fb_host_run_folder(folder, error);
    if (!status)
        snprintf(path, size, "%s/%d.state", folder, (int)loader->pid);
    return status;
}

/* An alarm asked for it: save the state behind the last batch, and say where. */
static int stop_with_state(const forebay_loader *loader, const char *alarm, forebay_error *error)
{
    char path[FB_HOST_PATH_BYTES + 32], state[FOREBAY_STATE_BYTES];
    forebay_error saving;
    int status = state_path(loader, path, sizeof(path), &saving);

    if (!status)
        status = forebay_state_save(loader, state, &saving);
    if (!status)
        status = fb_file_write(path, state, &saving);
    if (status)
        return fb_fail(error, FOREBAY_STOPPED, "stopped by an alarm: %s; the state could not be "
                       "saved: %.300s", alarm, saving.message);
    return fb_fail(error, FOREBAY_STOPPED, "stopped by an alarm: %s; the state is saved in '%.300s'",
                   alarm, path);
}

int forebay_next(forebay_batch **out, forebay_loader *loader, forebay_error *error)
{
    return forebay_next_within(out, loader, UINT64_MAX, error);
}

int forebay_next_within(forebay_batch **out, forebay_loader *loader, uint64_t timeout_ns,
                        forebay_error *error)
{
    char alarm[256];

    if (loader->pid == getpid() && fb_governor_asks_to_stop(loader->governor, alarm))
        return stop_with_state(loader, alarm, error);
    return fb_pipeline_next(out, loader->pipeline, timeout_ns, error);
}

void forebay_batch_release(forebay_batch *batch)
{
    fb_pipeline_batch_release(batch);
}

int forebay_batch_use_on(forebay_batch *batch, void *stream, forebay_error *error)
{
    return fb_pipeline_batch_use_on(batch, stream, error);
}

int forebay_batch_read(const forebay_batch *batch, const forebay_field *field, void *to,
                       forebay_error *error)
{
    return fb_pipeline_batch_read(batch, field, to, error);
}

const forebay_field *forebay_batch_field(const forebay_batch *batch, const char *name)
{
    for (size_t i = 0; i < batch->field_count; i++)
        if (!strcmp(batch->fields[i].name, name))
            return &batch->fields[i];
    return NULL;
}

uint64_t forebay_device_trim(forebay_loader *loader, uint64_t bytes)
{
    return check_process(loader, NULL) ? 0 : fb_pipeline_device_trim(loader->pipeline, bytes);
}

/* ---- Epochs and state ---- */

uint64_t forebay_epoch_samples(const forebay_loader *loader)
{
    uint64_t count = fb_order_count(loader->order, fb_order_begin(loader->order, 0));

    if (loader->config.order_drop_last)
        count -= count % loader->config.batch_size.value;
    return count;
}

uint64_t forebay_epoch_batches(const forebay_loader *loader)
{
    uint64_t size = loader->config.batch_size.value;

    return (forebay_epoch_samples(loader) + size - 1) / size;
}

int forebay_set_epoch(forebay_loader *loader, uint64_t epoch, forebay_error *error)
{
    int status = check_process(loader, error);

    if (!status)
        fb_pipeline_seek(loader->pipeline, fb_order_begin(loader->order, epoch));
    return status;
}

int forebay_state_save(const forebay_loader *loader, char text[FOREBAY_STATE_BYTES],
                       forebay_error *error)
{
    struct fb_cursor at;
    uint64_t local;
    int status = check_process(loader, error); /* in a child the lock may be held for ever */

    if (status)
        return status;
    fb_pipeline_tell(loader->pipeline, &at, &local);
    return fb_order_save(loader->order, at, local, text, FOREBAY_STATE_BYTES, error);
}

static bool any_is_old(const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fb_order_state_is_old(texts[i]))
            return true;
    return false;
}

int forebay_state_load(forebay_loader *loader, const char *const *texts, size_t count,
                       forebay_error *error)
{
    struct fb_cursor at;
    uint64_t repeated = 0;
    int status = check_process(loader, error);

    if (!status)
        status = fb_order_load(loader->order, texts, count, &at, &repeated, error);
    if (status)
        return status;
    if (any_is_old(texts, count))
        fb_warn(&loader->log, "the state is of an older forebay and does not say which data it "
                "belongs to: only the number of samples and the order were compared");
    if (repeated)
        fb_warn(&loader->log, "the ranks' states were out of step: %" PRIu64
                " samples of this epoch will be repeated", repeated);
    fb_pipeline_seek(loader->pipeline, at);
    return FOREBAY_OK;
}

/* ---- Live settings ---- */

static void count_text(char text[64], uint64_t value)
{
    snprintf(text, 64, "%" PRIu64, value);
}

/* What workers take does not fall by itself: as many leave as are above a lowered limit. Returns
 * how many stay, 0 if all do. */
static uint64_t drop_workers(forebay_loader *loader, uint64_t workers)
{
    struct fb_budget_report now;
    uint64_t falls, fewer;

    fb_budget_read(loader->budget, &now);
    falls = now.by_stage[FB_STAGE_SLOTS] - fb_min(now.by_stage[FB_STAGE_SLOTS], loader->run.plan.slots_floor);
    if (now.used <= now.limit || now.used - now.limit <= falls || workers <= 1)
        return 0;
    fewer = (now.used - now.limit - falls + loader->run.needs.per_worker - 1) / loader->run.needs.per_worker;
    return fb_pipeline_set_workers(loader->pipeline,
                                   fb_max(1, workers - fb_min(workers, fewer)));
}

static int check_budget(const forebay_loader *loader, const struct fb_size *size,
                        forebay_error *error)
{
    char floor[32];

    if (size->mode != FB_SIZE_BYTES)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "memory.budget: name a size, e.g. 8GiB");
    if (size->value / fb_max(1, loader->ranks.local_world) >= loader->run.plan.floor)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_OVER_BUDGET,
                   "memory.budget cannot go below this loader's floor of %s (%" PRIu64 " bytes)",
                   fb_size_text(loader->run.plan.floor, floor), loader->run.plan.floor);
}

/* The cache gives up what no longer fits beside the rest, and no more; what it gave up comes back
 * when the budget rises. Returns its new limit. */
static uint64_t fit_cache(forebay_loader *loader, uint64_t limit, uint64_t held, uint64_t used,
                          uint64_t budget)
{
    uint64_t others = fb_max(used - fb_min(used, held), loader->run.plan.floor);
    uint64_t room = budget - fb_min(budget, others), wanted = limit + loader->cache_given_up;
    uint64_t now = fb_min(wanted, room);

    if (now < limit || loader->cache_given_up)
        now = loader->cache ? fb_cache_set_limit(loader->cache, now)
                            : loader->source->ops->keep(loader->source, now, loader->run.window);
    else
        now = limit;
    loader->cache_given_up = wanted - fb_min(wanted, now);
    return now;
}

/* The cache's part of a changed budget; *from and *to are its limit before and after. */
static void set_cache(forebay_loader *loader, uint64_t used, uint64_t budget, uint64_t *from,
                      uint64_t *to)
{
    struct fb_cache_report cache = { .items = 0 };

    if (loader->cache) {
        fb_cache_read_report(loader->cache, &cache);
    } else if (loader->source->ops->keep) {
        struct fb_kept kept = loader->source->ops->kept(loader->source);

        cache.share_bytes = kept.limit_bytes;
        cache.ledger_bytes = kept.bytes;
    }
    *from = *to = cache.share_bytes;
    if (cache.share_bytes)
        *to = fit_cache(loader, cache.share_bytes, cache.ledger_bytes, used, budget);
}

/* What else changed, for the answer. */
static void tell_also(forebay_set_result *result, uint64_t from, uint64_t to, uint64_t workers,
                      uint64_t before)
{
    char a[32], b[32];
    size_t used = 0;

    if (from != to)
        used = (size_t)snprintf(result->also, sizeof(result->also), "memory.cache %s -> %s",
                                fb_size_text(from, a), fb_size_text(to, b));
    if (workers && workers != before)
        snprintf(result->also + used, sizeof(result->also) - used,
                 "%sworkers %" PRIu64 " -> %" PRIu64, used ? ", " : "", before, workers);
}

union live_value {
    struct fb_count count;
    struct fb_size size;
};

/* A function <member>_set for every LIVE row of config/schema.h. */
static void memory_budget_set(forebay_loader *loader, const union live_value *value,
                              const struct fb_pipeline_report *pipeline, forebay_set_result *result)
{
    uint64_t bytes = value->size.value / fb_max(1, loader->ranks.local_world), from, to;
    uint64_t workers = 0;
    struct fb_budget_report now;

    fb_budget_read(loader->budget, &now);
    count_text(result->old_value, now.limit);
    fb_budget_set_limit(loader->budget, bytes);
    fb_pipeline_trim(loader->pipeline);
    set_cache(loader, now.used, bytes, &from, &to);
    if (bytes < now.limit)
        workers = drop_workers(loader, pipeline->workers);
    count_text(result->new_value, bytes);
    tell_also(result, from, to, workers, pipeline->workers);
}

/* `auto`: the governor finds the number by trials. */
static void workers_set(forebay_loader *loader, const union live_value *value,
                        const struct fb_pipeline_report *now, forebay_set_result *result)
{
    bool is_auto = value->count.is_auto;

    count_text(result->old_value, now->workers);
    if (is_auto)
        snprintf(result->new_value, sizeof(result->new_value), "auto (%" PRIu64 ")", now->workers);
    else
        count_text(result->new_value,
                   fb_pipeline_set_workers(loader->pipeline, value->count.value));
    fb_governor_fix(loader->governor, "workers", !is_auto);
}

/* `auto`: what it was before it was first set by hand; the governor may move it again. */
static void prefetch_set(forebay_loader *loader, const union live_value *value,
                         const struct fb_pipeline_report *now, forebay_set_result *result)
{
    bool is_auto = value->count.is_auto;
    uint64_t wanted = is_auto ? loader->auto_prefetch : value->count.value, is = now->prefetch;

    count_text(result->old_value, now->prefetch);
    if (!is_auto && !loader->auto_prefetch)
        loader->auto_prefetch = now->prefetch;
    if (wanted)
        is = fb_pipeline_set_prefetch(loader->pipeline, wanted);
    snprintf(result->new_value, sizeof(result->new_value), is_auto ? "auto (%" PRIu64 ")" : "%" PRIu64,
             is);
    fb_governor_fix(loader->governor, "prefetch", !is_auto);
}

static void cpu_share_set(forebay_loader *loader, const union live_value *value,
                          const struct fb_pipeline_report *now, forebay_set_result *result)
{
    count_text(result->old_value, now->cpu_share == UINT64_MAX ? 0 : now->cpu_share);
    count_text(result->new_value, fb_pipeline_set_cpu_share(loader->pipeline, value->count.value));
    fb_governor_fix(loader->governor, "cpu.share", !value->count.is_auto);
}

static const struct {
    const char *key;
    void (*set)(forebay_loader *loader, const union live_value *value,
                const struct fb_pipeline_report *now, forebay_set_result *result);
} live_keys[] = {
#define ROW(...)
#define LIVE_ROW(type, member, key, ...) { key, member##_set },
    FB_CONFIG_KEYS(ROW, LIVE_ROW)
#undef ROW
#undef LIVE_ROW
};

static int check_setting(const forebay_loader *loader, const char *key, const char *value,
                         union live_value *parsed, forebay_error *error)
{
    int status = check_process(loader, error);

    if (!status && !value[0])
        status = fb_fail(error, FOREBAY_BAD_USE, "%s: the value is missing", key);
    if (!status)
        status = fb_config_parse_live(key, value, parsed, error);
    if (status)
        return status;
    return strcmp(key, "memory.budget") ? FOREBAY_OK : check_budget(loader, &parsed->size, error);
}

static void set_locked(forebay_loader *loader, const char *key, const union live_value *parsed,
                       forebay_set_result *result)
{
    struct fb_pipeline_report *now = &loader->report;

    fb_pipeline_read_report(loader->pipeline, now);
    result->held_batches = now->held;
    result->held_bytes = now->held_bytes;
    for (size_t i = 0; i < sizeof(live_keys) / sizeof(live_keys[0]); i++) {
        if (strcmp(live_keys[i].key, key) == 0)
            live_keys[i].set(loader, parsed, now, result);
    }
}

int forebay_set(forebay_loader *loader, const char *key, const char *value,
                forebay_set_result *result, forebay_error *error)
{
    forebay_set_result ignored;
    union live_value parsed;
    int status = check_setting(loader, key, value, &parsed, error);

    result = result ? result : &ignored;
    memset(result, 0, sizeof(*result));
    if (status)
        return status;
    pthread_mutex_lock(&loader->lock);
    pthread_mutex_lock(&loader->settings);
    set_locked(loader, key, &parsed, result);
    pthread_mutex_unlock(&loader->settings);
    pthread_mutex_unlock(&loader->lock);
    if (result->also[0])
        fb_say(&loader->log, "memory.budget was changed, and with it %s", result->also);
    return FOREBAY_OK;
}

int fb_loader_set(void *loader, const char *key, const char *value, forebay_set_result *result,
                  forebay_error *error)
{
    union live_value parsed;

    return result ? forebay_set(loader, key, value, result, error)
                  : check_setting(loader, key, value, &parsed, error);
}

/* ---- Statistics ---- */

/* Our share of Pss_Anon and of a shared cache, which that does not count; the highest that was seen.
 * Reading it takes 14 ms per GiB, so it is read again only when 50 times that has passed, and asking
 * often costs 2 % of a core at most; or when a quarter more is in use than then. */
static uint64_t peak_pss_locked(forebay_loader *loader, uint64_t used)
{
    uint64_t begin = fb_now_ns(), now;

    if (loader->pss_read_ns && begin - loader->pss_read_ns < 50 * loader->pss_cost_ns &&
        used <= loader->pss_used + loader->pss_used / 4)
        return loader->peak_pss;
    loader->pss_used = used;
    now = fb_host_pss_anon_bytes();
    if (now == FB_UNKNOWN || loader->pss_before == FB_UNKNOWN)
        return FB_UNKNOWN;
    loader->pss_read_ns = fb_now_ns();
    loader->pss_cost_ns = loader->pss_read_ns - begin;
    now = now > loader->pss_before ? now - loader->pss_before : 0;
    now += loader->cache ? fb_cache_shared_bytes(loader->cache) : 0;
    loader->peak_pss = fb_max(loader->peak_pss, now);
    return loader->peak_pss;
}

/* The observer is made with the first call. */
static struct fb_observer *observe_locked(forebay_loader *loader)
{
    struct fb_observer *observer = &loader->observer;
    struct fb_observed what = { .pipeline = loader->pipeline,
                                .cache = loader->cache,
                                .source = loader->source,
                                .budget = loader->budget,
                                .name = loader->name,
                                .policy = loader->policy,
                                .device = loader->device->ops->kind,
                                .ranks = loader->ranks,
                                .floor = loader->run.plan.floor };
    struct fb_budget_report budget;

    if (!observer->what.pipeline)
        fb_observer_init(observer, &what);
    fb_budget_read(loader->budget, &budget);
    observer->peak_pss = peak_pss_locked(loader, budget.used);
    fb_observe(observer, fb_now_ns());
    return observer;
}

/* Like snprintf. */
static size_t json_text(json_t *json, char *text, size_t size)
{
    size_t length = json ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;

    if (length && size > length) {
        json_dumpb(json, text, size, JSON_COMPACT);
        text[length] = '\0';
    }
    json_decref(json);
    return length;
}

size_t forebay_stats_json(forebay_loader *loader, char *text, size_t size)
{
    struct fb_observer *observer;
    size_t length;
    json_t *all;

    if (check_process(loader, NULL)) /* a child knows nothing of its parent's loader */
        return (size_t)snprintf(text, size, "{}");
    pthread_mutex_lock(&loader->lock);
    observer = observe_locked(loader);
    all = fb_snapshot_json(&observer->now);
    if (all)
        fb_snapshot_json_lists(all, &observer->report);
    length = json_text(all, text, size);
    pthread_mutex_unlock(&loader->lock);
    return length;
}
