/* loaders.h -- the user's running loaders, found by PID[:NAME]: for top and set. */
#ifndef CLI_LOADERS_H
#define CLI_LOADERS_H
#include "monitor/snapshot_file.h"

#define LOADERS_MAX 256

struct loaders {
    unsigned count; /* kept, at most LOADERS_MAX */
    struct fb_snapshot *pages;
};

/* All that run; the caller releases them. With `which` ("4711", "4711:train") only those. */
int loaders_find(struct loaders *loaders, const char *which, forebay_error *error);
void loaders_release(struct loaders *loaders);
/* "4711:train", or "4711" for one without a name. */
void loader_label(const struct fb_snapshot *page, char *text, size_t size);
#endif
