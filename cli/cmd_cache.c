/* cmd_cache.c -- `forebay cache`: shared caches alive, and what forebay keeps on disk. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/size.h"
#include "cache/cache.h"
#include "command.h"
#include "memory/host.h"
#include "options.h"
#include "output.h"
#include "source/store.h"
#include "source/store_list.h"

#define CACHES_MOST 256
#define STORED_MOST 4096

static const char help[] =
    "list shows the shared caches of this user that are alive (name, processes, items, memory,\n"
    "hit rate) and what forebay keeps on disk in the user's cache folder: the quickstart's data,\n"
    "converted tables, indexes of tar files. What is on disk is bounded by $FOREBAY_DISK_CACHE\n"
    "(10 GB by default): what was not used for the longest time goes first.\n"
    "\n"
    "drop gives back: of a shared cache everything that nobody is using right now (the loaders go\n"
    "on and read again), of the disk the file or folder. Without NAME: all of both. It is made\n"
    "again when it is needed.\n"
    "\n"
    "NAME is one that list shows.\n"
    "\n"
    "Options:\n"
    "  --json           print the result as one JSON object\n"
    "\n"
    "Examples:\n"
    "  forebay cache list\n"
    "  forebay cache drop quickstart\n";

struct state {
    bool json;
    struct fb_cache_listed *caches;
    size_t cache_count;
    struct fb_stored *stored;
    size_t stored_count; /* there are, maybe more than were kept */
    uint64_t stored_bytes, limit_bytes;
};

static int state_read(struct state *state, forebay_error *error)
{
    int status = fb_store_limit(&state->limit_bytes, error);

    state->caches = calloc(CACHES_MOST, sizeof(*state->caches));
    state->stored = calloc(STORED_MOST, sizeof(*state->stored));
    if (!state->caches || !state->stored)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the list of caches");
    if (!status)
        status = fb_store_list(state->stored, STORED_MOST, &state->stored_count,
                               &state->stored_bytes, error);
    if (!status)
        state->cache_count = fb_cache_list(state->caches, CACHES_MOST);
    return status;
}

static size_t stored_kept(const struct state *state)
{
    return fb_min(state->stored_count, STORED_MOST);
}

/* ---- list ---- */

static void cache_print(const struct fb_cache_listed *cache)
{
    double rate = fb_cache_hit_rate(&cache->report);
    char a[32], b[32];

    printf("  %s\n    %" PRIu64 " items, %s of %s, ", cache->name, cache->report.items,
           fb_size_text(cache->report.bytes, a), fb_size_text(cache->report.limit_bytes, b));
    if (isnan(rate))
        printf("not used yet");
    else
        printf("hit rate %.3f", rate);
    printf("; processes");
    for (unsigned i = 0; i < cache->pid_count; i++)
        printf(" %d", cache->pids[i]);
    if (cache->report.members > cache->pid_count)
        printf(" and %" PRIu64 " more", cache->report.members - cache->pid_count);
    putchar('\n');
}

static void list_print(const struct state *state)
{
    char folder[PATH_MAX], a[32], b[32], date[32];

    printf("Shared caches: %zu alive\n", state->cache_count);
    for (size_t i = 0; i < state->cache_count; i++)
        cache_print(&state->caches[i]);
    if (!fb_host_cache_folder(folder, sizeof(folder)))
        folder[0] = '\0';
    printf("On disk, in %s: %s of %s\n", folder, fb_size_text(state->stored_bytes, a),
           fb_size_text(state->limit_bytes, b));
    for (size_t i = 0; i < stored_kept(state); i++) {
        const struct fb_stored *stored = &state->stored[i];
        time_t used = (time_t)stored->used_s;
        struct tm local;

        strftime(date, sizeof(date), "%Y-%m-%d %H:%M", localtime_r(&used, &local));
        printf("  %-32s %10s  %s\n", stored->name, fb_size_text(stored->bytes, a), date);
    }
    if (state->stored_count > STORED_MOST)
        printf("  and %zu more\n", state->stored_count - STORED_MOST);
}

static json_t *cache_json(const struct fb_cache_listed *cache)
{
    double rate = fb_cache_hit_rate(&cache->report);
    json_t *pids = json_array();

    for (unsigned i = 0; i < cache->pid_count; i++)
        json_array_append_new(pids, json_integer(cache->pids[i]));
    return json_pack("{s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "name", cache->name,
                     "members", (json_int_t)cache->report.members, "pids", pids, "items",
                     (json_int_t)cache->report.items, "bytes", (json_int_t)cache->report.bytes,
                     "limit_bytes", (json_int_t)cache->report.limit_bytes, "hits",
                     (json_int_t)cache->report.hits, "misses", (json_int_t)cache->report.misses,
                     "hit_rate", isnan(rate) ? json_null() : json_real(rate));
}

static json_t *list_json(const struct state *state)
{
    json_t *caches = json_array(), *disk = json_array();
    char folder[PATH_MAX];

    for (size_t i = 0; i < state->cache_count; i++)
        json_array_append_new(caches, cache_json(&state->caches[i]));
    for (size_t i = 0; i < stored_kept(state); i++)
        json_array_append_new(disk, json_pack("{s:o, s:I, s:I}", "name",
                                              output_text(state->stored[i].name), "bytes",
                                              (json_int_t)state->stored[i].bytes, "used_s",
                                              (json_int_t)state->stored[i].used_s));
    if (!fb_host_cache_folder(folder, sizeof(folder)))
        folder[0] = '\0';
    return json_pack("{s:o, s:{s:o, s:I, s:I, s:I, s:o}}", "shared", caches, "disk", "folder",
                     output_text(folder), "count", (json_int_t)state->stored_count, "bytes",
                     (json_int_t)state->stored_bytes, "limit_bytes",
                     (json_int_t)state->limit_bytes, "entries", disk);
}

/* ---- drop ---- */

struct dropped {
    uint64_t caches, cache_bytes, files, file_bytes;
};

/* A cache whose last process has just left is as good as dropped. */
static int caches_drop(const struct state *state, const char *name, struct dropped *dropped,
                       forebay_error *error)
{
    for (size_t i = 0; i < state->cache_count; i++) {
        uint64_t bytes = 0;
        int status;

        if (name && strcmp(name, state->caches[i].name) != 0)
            continue;
        status = fb_cache_drop(state->caches[i].name, &bytes, error);
        if (status && (name || status != FOREBAY_MISSING))
            return status;
        dropped->caches++;
        dropped->cache_bytes += bytes;
    }
    return FOREBAY_OK;
}

static int files_drop(const struct state *state, const char *name, struct dropped *dropped,
                      forebay_error *error)
{
    for (size_t i = 0; i < stored_kept(state); i++) {
        uint64_t bytes = 0;
        int status;

        if (name && strcmp(name, state->stored[i].name) != 0)
            continue;
        status = fb_store_drop(state->stored[i].name, &bytes, error);
        if (status && (name || status != FOREBAY_MISSING))
            return status;
        dropped->files++;
        dropped->file_bytes += bytes;
    }
    return FOREBAY_OK;
}

static int drop(const struct state *state, const char *name, struct dropped *dropped,
                forebay_error *error)
{
    int status = caches_drop(state, name, dropped, error);

    if (!status)
        status = files_drop(state, name, dropped, error);
    if (!status && name && !dropped->caches && !dropped->files)
        status = fb_fail(error, FOREBAY_MISSING, "no shared cache and nothing on disk is called "
                         "'%s'; `forebay cache list` shows the names", name);
    return status;
}

static int dropped_tell(const struct dropped *dropped, bool json)
{
    char a[32], b[32];

    if (json)
        return output_json(json_pack("{s:I, s:I, s:I, s:I}", "caches",
                                     (json_int_t)dropped->caches, "cache_bytes",
                                     (json_int_t)dropped->cache_bytes, "files",
                                     (json_int_t)dropped->files, "file_bytes",
                                     (json_int_t)dropped->file_bytes));
    printf("Dropped %s of memory from %" PRIu64 " shared cache%s, %s on disk (%" PRIu64
           " entr%s)\n", fb_size_text(dropped->cache_bytes, a), dropped->caches,
           dropped->caches == 1 ? "" : "s", fb_size_text(dropped->file_bytes, b), dropped->files,
           dropped->files == 1 ? "y" : "ies");
    return EXIT_DONE;
}

/* ---- Set-up ---- */

static int act(const char *what, const char *name, bool json)
{
    struct state state = { .json = json };
    struct dropped dropped = { 0 };
    forebay_error error;
    int code, status = state_read(&state, &error);

    if (!status && strcmp(what, "drop") == 0)
        status = drop(&state, name, &dropped, &error);
    if (status)
        code = output_failure("cache", json, &error);
    else if (strcmp(what, "drop") == 0)
        code = dropped_tell(&dropped, json);
    else if (json)
        code = output_json(list_json(&state));
    else
        list_print(&state), code = EXIT_DONE;
    free(state.caches);
    free(state.stored);
    return code;
}

static int run(int argc, char **argv)
{
    const char *what = NULL, *name = NULL;
    bool json = options_has(argc, argv, "--json");
    const struct option table[] = {
        { "list or drop", OPTION_ALONE, &what, true },
        { "NAME", OPTION_ALONE, &name, false },
        { "--json", OPTION_FLAG, &json, false },
    };
    forebay_error error;
    int status = options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error);

    if (!status && strcmp(what, "list") != 0 && strcmp(what, "drop") != 0)
        status = fb_fail(&error, FOREBAY_BAD_USE, "'%s': expected list or drop", what);
    if (!status && name && strcmp(what, "list") == 0)
        status = fb_fail(&error, FOREBAY_BAD_USE, "list takes no NAME");
    return status ? output_bad_use("cache", json, &error) : act(what, name, json);
}

const struct command command_cache = {
    .name = "cache",
    .usage = "list|drop [NAME] [--json]",
    .summary = "shared caches alive, and what forebay keeps on disk",
    .help = help,
    .run = run,
};
