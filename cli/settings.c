#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "quickstart.h"

bool settings_name_a_source(const struct texts *given)
{
    for (size_t i = 0; i < given->count; i++)
        if (strncmp(given->values[i], "source.", 7) == 0)
            return true;
    return false;
}

int settings_gather(struct settings *all, const struct texts *given, bool quickstart,
                    const struct fb_log *log, forebay_error *error)
{
    char folder[PATH_MAX];
    int status;

    *all = (struct settings){ .values = calloc(given->count + 8, sizeof(char *)) };
    if (!all->values)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the settings");
    if (quickstart) {
        status = quickstart_folder(folder, log, error);
        if (status)
            return status;
        snprintf(all->path, sizeof(all->path), "source.path=%s/*.bin", folder);
        all->values[all->count++] = "source.kind=bin";
        all->values[all->count++] = all->path;
        all->values[all->count++] = "batch.size=16";
        all->values[all->count++] = "memory.budget=256MiB";
    }
    for (size_t i = 0; i < given->count; i++)
        all->values[all->count++] = given->values[i];
    return FOREBAY_OK;
}
