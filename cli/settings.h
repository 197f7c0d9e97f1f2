/* settings.h -- all --set of a command in the order they count, the quickstart's before them. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H
#include <limits.h>

#include "base/log.h"
#include "options.h"

struct settings {
    const char **values; /* with room for four more; the caller frees it, whatever was returned */
    size_t count;
    char path[PATH_MAX + 32];
};

/* Does one of them begin with "source."? Then it is a configuration of its own. */
bool settings_name_a_source(const struct texts *given);
/* The user's over the quickstart's, if that is wanted; its data is made if it is not there. */
int settings_gather(struct settings *all, const struct texts *given, bool quickstart,
                    const struct fb_log *log, forebay_error *error);
#endif
