/* list.c -- the shared caches of this user that are alive, for `forebay cache list|drop`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "cache/inside.h"
#include "cache/rendezvous.h"

#define ASK_MS 200

/* The name in a line of /proc/net/unix, without a member's "/row"; false for any other socket. */
static bool name_in(const char *line, char name[FB_NAME_TEXT])
{
    char mine[64];
    const char *at;
    size_t length;

    snprintf(mine, sizeof(mine), "@" FB_NAME_PREFIX "%u-", (unsigned)getuid());
    at = strstr(line, mine);
    if (!at)
        return false;
    length = strcspn(++at, "/\n ");
    if (length >= FB_NAME_TEXT)
        return false;
    memcpy(name, at, length);
    name[length] = '\0';
    return true;
}

static bool is_listed(const struct fb_cache_listed *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return true;
    return false;
}

static void read_members(const struct fb_segment *segment, struct fb_cache_listed *listed)
{
    unsigned high = fb_members_high(segment);

    for (unsigned row = 0; row < high && listed->pid_count < FB_CACHE_PIDS; row++) {
        uint64_t life = atomic_load(&segment->rows[row].life);

        if (fb_life_taken(life))
            listed->pids[listed->pid_count++] = fb_life_pid(life);
    }
}

/* Look without becoming a member. */
static bool look_at(const char *name, struct fb_cache_listed *listed)
{
    struct fb_segment segment;
    uint64_t id;
    int memory = fb_rendezvous_ask_all(name, ASK_MS, &id);

    if (memory < 0)
        return false;
    if (fb_segment_shared_attach(&segment, memory, NULL)) {
        close(memory);
        return false;
    }
    *listed = (struct fb_cache_listed){ .report.limit_bytes = fb_members_share(&segment) };
    snprintf(listed->name, sizeof(listed->name), "%s", name);
    fb_report_read(&segment, &listed->report);
    read_members(&segment, listed);
    fb_segment_release(&segment, false);
    return true;
}

size_t fb_cache_list(struct fb_cache_listed *list, size_t most)
{
    FILE *sockets = fopen("/proc/net/unix", "re");
    char line[512], name[FB_NAME_TEXT];
    size_t count = 0;

    while (sockets && count < most && fgets(line, sizeof(line), sockets))
        if (name_in(line, name) && !is_listed(list, count, name) && look_at(name, &list[count]))
            count++;
    if (sockets)
        fclose(sockets);
    return count;
}

/* As a member that gives nothing, for a moment: so a death on the way is swept like any other. */
int fb_cache_drop(const char *name, uint64_t *bytes, forebay_error *error)
{
    struct fb_cache *cache = calloc(1, sizeof(*cache));
    uint64_t id, before;
    int memory = fb_rendezvous_ask_all(name, ASK_MS, &id), status;

    if (!cache || memory < 0) {
        status = fb_fail(error, FOREBAY_MISSING, "no cache '%s' is alive", name);
        goto fail;
    }
    cache->segment.fd = -1;
    status = fb_segment_shared_attach(&cache->segment, memory, error);
    if (status)
        goto fail;
    if (!fb_member_join(&cache->segment, 0, &cache->member)) {
        status = fb_fail(error, FOREBAY_BAD_USE, "cache '%s' has no row free", name);
        fb_segment_release(&cache->segment, false);
        free(cache);
        return status;
    }
    before = fb_pages_used(&cache->segment);
    fb_limit_trim(cache, 0);
    *bytes = before - fb_min(before, fb_pages_used(&cache->segment));
    fb_member_leave(&cache->segment, &cache->member);
    fb_segment_release(&cache->segment, false);
    free(cache);
    return FOREBAY_OK;

fail:
    if (memory >= 0)
        close(memory);
    free(cache);
    return status;
}
