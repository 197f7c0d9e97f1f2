/*
 * assemble.h -- a batch put together on the device: what the device's cache has is gathered there,
 * only the rest crosses the bus, and of that what has room is kept.
 */
#ifndef FB_DEVICE_STAGE_ASSEMBLE_H
#define FB_DEVICE_STAGE_ASSEMBLE_H
#include "device_stage/device_cache.h"

struct fb_assembly {
    struct fb_device_cache *cache;
    const struct fb_collation *collation;
    struct fb_batch *batch; /* its slot filled but for what is cached, its buffer there */
    struct fb_device *device;
    void *stream;
    uint64_t copied; /* bytes that crossed the bus, counted here */
};

/* What one sample takes in the cache: its part of every data field, one behind the other. */
uint64_t fb_assembly_entry_bytes(const struct fb_collation *collation,
                                 const struct fb_placed *placed, uint64_t samples);

/* Start all copies and kernels, on the stream. */
int fb_assembly_start(struct fb_assembly *assembly, forebay_error *error);
/* Instead: bring what is cached back into the slot; done when it returns. */
int fb_assembly_bring_back(const struct fb_assembly *assembly, forebay_error *error);
#endif
