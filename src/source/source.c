#include "source/source.h"

#include "source/source_kinds.h"

/* By the number of the word in source.kind of the schema; NULL: not built yet. */
static const struct fb_source_ops *const kinds[] = {
    [FB_KIND_BIN] = &fb_source_bin,
    [FB_KIND_NPY] = &fb_source_npy,
    [FB_KIND_TAR] = &fb_source_tar,
    [FB_KIND_AUDIO] = &fb_source_audio,
    [FB_KIND_WINDOWS] = &fb_source_windows,
    [FB_KIND_IMAGES] = &fb_source_images,
    [FB_KIND_TABLE] = &fb_source_table,
};

int fb_source_open(struct fb_source **out, const struct fb_config *config,
                   struct fb_budget *budget, const struct fb_log *log, forebay_error *error)
{
    int kind = config->source_kind;

    if (kind < 0)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.kind is not set: say what the data is, "
                       "e.g. source.kind=npy");
    if ((size_t)kind >= sizeof(kinds) / sizeof(kinds[0]) || !kinds[kind])
        return fb_fail(error, FOREBAY_NOT_BUILT, "source.kind %d is not built yet", kind);
    return kinds[kind]->open(out, config, budget, log, error);
}

void fb_source_close(struct fb_source *source)
{
    if (source)
        source->ops->close(source);
}
