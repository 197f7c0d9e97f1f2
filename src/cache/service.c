#include "cache/inside.h"

int fb_service_open(struct fb_cache *cache, forebay_error *error)
{
    (void)cache;
    return fb_fail(error, FOREBAY_NOT_BUILT, "sharing is not built yet");
}

int fb_service_start(struct fb_cache *cache, forebay_error *error)
{
    (void)cache;
    (void)error;
    return FOREBAY_OK;
}

void fb_service_close(struct fb_cache *cache, bool forked)
{
    (void)cache;
    (void)forked;
}

void fb_service_look_around(struct fb_cache *cache)
{
    bool several = fb_members_several_jobs(&cache->segment);

    atomic_store(&cache->several_jobs, several);
    atomic_store(&cache->policy, fb_policy_effective(cache->options.policy,
                                                     (int)cache->segment.geometry.policy, several));
}
