/* source.c -- from source.kind to the source that serves it. */
#include "source/source.h"

static const struct fb_source_ops *const kinds[] = {
#define FB_X(word, NAME) [FB_KIND_##NAME] = &fb_source_##word,
    FB_SOURCE_KINDS(FB_X)
#undef FB_X
};

int fb_source_open(struct fb_source **out, const struct fb_config *config,
                   struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    int kind = config->source_kind;

    if (kind < 0)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.kind is not set: say what the data is, "
                       "e.g. source.kind=npy");
    return kinds[kind]->open(out, config, budget, log, error);
}

void fb_source_close(struct fb_source *source)
{
    if (source)
        source->ops->close(source);
}
