/*
 * device.h -- how batches reach the device. A back end is one file that ends in one const ops
 * struct, listed in device.c. `host` is always there: batches stay where they were made.
 */
#ifndef FB_DEVICE_DEVICE_H
#define FB_DEVICE_DEVICE_H
#include "base/error.h"
#include "base/log.h"

struct fb_device;

struct fb_device_ops {
    const char *kind; /* "host", "cuda", "opencl" */
    int dlpack_type;  /* 1 host, 2 CUDA, 4 OpenCL */

    /* Open device `number`. *out is the caller's on success. NO_DEVICE if it is not there. */
    int (*open)(struct fb_device **out, unsigned number, const struct fb_log *log,
                forebay_error *error);
    void (*close)(struct fb_device *device);
    /* Device memory; the caller frees it with the same device. */
    int (*alloc)(struct fb_device *device, uint64_t bytes, void **out, forebay_error *error);
    void (*free)(struct fb_device *device, void *memory, uint64_t bytes);
    /* Start a copy from pinned host memory; `event` fires when it is done. Neither side may be
     * written or freed before. */
    int (*copy)(struct fb_device *device, void *to, const void *from, uint64_t bytes, void **event,
                forebay_error *error);
    /* Wait for an event and free it. */
    int (*wait)(struct fb_device *device, void *event, forebay_error *error);
};

struct fb_device {
    const struct fb_device_ops *ops;
    unsigned number;
};

extern const struct fb_device_ops fb_device_host;

/* "host", "auto", "cuda:0", "opencl:1". `auto` takes a GPU or else host, and says which. */
int fb_device_open(struct fb_device **out, const char *text, const struct fb_log *log,
                   forebay_error *error);
void fb_device_close(struct fb_device *device);
#endif
