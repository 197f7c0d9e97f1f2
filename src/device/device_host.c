/* device_host.c -- batches stay in the host's memory: copies are done when copy() returns. */
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "memory/block.h"

static int host_open(struct fb_device **out, unsigned number, const struct fb_log *log,
                     forebay_error *error)
{
    struct fb_device *device;

    (void)log;
    if (number)
        return fb_fail(error, FOREBAY_NO_DEVICE, "there is one host, number 0, and no host %u",
                       number);
    device = malloc(sizeof(*device));
    if (!device)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to open the host device");
    *device = (struct fb_device){ .ops = &fb_device_host };
    *out = device;
    return FOREBAY_OK;
}

static void host_close(struct fb_device *device)
{
    free(device);
}

static int host_alloc(struct fb_device *device, uint64_t bytes, void **out, forebay_error *error)
{
    void *memory = fb_map_reserved(bytes, error);

    (void)device;
    if (!memory)
        return FOREBAY_NO_MEMORY;
    *out = memory;
    return FOREBAY_OK;
}

static void host_free(struct fb_device *device, void *memory, uint64_t bytes)
{
    (void)device;
    fb_unmap_reserved(memory, bytes);
}

static int host_copy(struct fb_device *device, void *to, const void *from, uint64_t bytes,
                     void **event, forebay_error *error)
{
    (void)device;
    (void)error;
    if (bytes)
        memcpy(to, from, bytes);
    *event = NULL;
    return FOREBAY_OK;
}

static int host_wait(struct fb_device *device, void *event, forebay_error *error)
{
    (void)device;
    (void)event;
    (void)error;
    return FOREBAY_OK;
}

const struct fb_device_ops fb_device_host = {
    .kind = "host",
    .dlpack_type = 1,
    .open = host_open,
    .close = host_close,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .wait = host_wait,
};
