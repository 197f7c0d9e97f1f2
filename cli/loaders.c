#include "loaders.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct search {
    struct loaders *loaders;
    uint64_t pid;     /* 0: any */
    const char *name; /* NULL: any */
    bool full;
};

static bool keep_one(void *data, const struct fb_snapshot *page, const char *path)
{
    struct search *search = data;
    struct loaders *loaders = search->loaders;

    (void)path;
    if (!fb_snapshot_is_alive(page) || (search->pid && page->pid != search->pid) ||
        (search->name && strcmp(page->name, search->name) != 0))
        return true;
    if (loaders->count == LOADERS_MAX) {
        search->full = true;
        return false;
    }
    loaders->pages[loaders->count++] = *page;
    return true;
}

/* "PID" or "PID:NAME". */
static int which_parse(const char *which, struct search *search, forebay_error *error)
{
    char *end;

    if (!which)
        return FOREBAY_OK;
    search->pid = strtoull(which, &end, 10);
    if (!isdigit((unsigned char)which[0]) || !search->pid || (*end && *end != ':'))
        return fb_fail(error, FOREBAY_BAD_USE, "'%s': expected PID or PID:NAME, as forebay top "
                       "lists them", which);
    search->name = *end ? end + 1 : NULL;
    return FOREBAY_OK;
}

int loaders_find(struct loaders *loaders, const char *which, forebay_error *error)
{
    struct search search = { .loaders = loaders };
    int status = which_parse(which, &search, error);

    *loaders = (struct loaders){ .count = 0 };
    if (status)
        return status;
    loaders->pages = calloc(LOADERS_MAX, sizeof(*loaders->pages));
    if (!loaders->pages)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the list of loaders");
    status = fb_snapshot_file_list(keep_one, &search, error);
    if (!status && which && !loaders->count)
        status = fb_fail(error, FOREBAY_MISSING, "no loader of this user runs as %s; forebay top "
                         "lists those that do", which);
    if (status)
        loaders_release(loaders);
    return status;
}

void loaders_release(struct loaders *loaders)
{
    free(loaders->pages);
    *loaders = (struct loaders){ .count = 0 };
}

void loader_label(const struct fb_snapshot *page, char *text, size_t size)
{
    snprintf(text, size, "%" PRIu64 "%s%s", page->pid, page->name[0] ? ":" : "", page->name);
}
