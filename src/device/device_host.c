/* device_host.c -- batches stay in the host's memory: copies are done when they return, so there is
 * one stream and every event has fired. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "memory/block.h"

static int host_open(struct fb_device **out, unsigned number, bool gpus, const struct fb_log *log,
                     forebay_error *error)
{
    struct fb_device *device;

    (void)log;
    (void)gpus;
    if (number)
        return fb_fail(error, FOREBAY_NO_DEVICE, "there is one host, number 0, and no host %u",
                       number);
    device = malloc(sizeof(*device));
    if (!device)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to open the host device");
    *device = (struct fb_device){ .ops = &fb_device_host, .align = 64 };
    *out = device;
    return FOREBAY_OK;
}

static void host_close(struct fb_device *device)
{
    free(device);
}

static void host_info(struct fb_device *device, struct fb_device_info *info)
{
    (void)device;
    *info = (struct fb_device_info){ .name = "host", .free_bytes = UINT64_MAX,
                                     .total_bytes = UINT64_MAX };
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

static int host_host_alloc(struct fb_device *device, uint64_t bytes, struct fb_pinned *out,
                           forebay_error *error)
{
    void *memory = NULL;
    int status = host_alloc(device, bytes, &memory, error);

    if (!status)
        *out = (struct fb_pinned){ .memory = memory, .bytes = bytes };
    return status;
}

static void host_host_free(struct fb_device *device, struct fb_pinned *pinned)
{
    host_free(device, pinned->memory, pinned->bytes);
}

static int host_view(struct fb_device *device, void *memory, uint64_t offset, uint64_t bytes,
                     void **out, forebay_error *error)
{
    (void)device;
    (void)bytes;
    (void)error;
    *out = (char *)memory + offset;
    return FOREBAY_OK;
}

static void host_unview(struct fb_device *device, void *view)
{
    (void)device;
    (void)view;
}

static int host_stream_open(struct fb_device *device, void **out, forebay_error *error)
{
    (void)device;
    (void)error;
    *out = NULL;
    return FOREBAY_OK;
}

static int host_upload(struct fb_device *device, void *stream, void *to, uint64_t offset,
                       const void *from, uint64_t bytes, forebay_error *error)
{
    (void)device;
    (void)stream;
    (void)error;
    if (bytes)
        memcpy((char *)to + offset, from, bytes);
    return FOREBAY_OK;
}

static int host_download(struct fb_device *device, void *stream, void *to, void *view,
                         uint64_t offset, uint64_t bytes, forebay_error *error)
{
    return host_upload(device, stream, to, 0, (const char *)view + offset, bytes, error);
}

static int host_move(struct fb_device *device, void *stream, void *to, uint64_t to_offset,
                     void *from, uint64_t from_offset, uint64_t bytes, forebay_error *error)
{
    return host_upload(device, stream, to, to_offset, (const char *)from + from_offset, bytes,
                       error);
}

static int host_launch(struct fb_device *device, void *stream, const struct fb_launch *launch,
                       forebay_error *error)
{
    (void)device;
    (void)stream;
    return fb_fail(error, FOREBAY_NOT_BUILT, "the host runs no kernel %s",
                   fb_kernel_names[launch->kernel]);
}

static int host_record(struct fb_device *device, void *stream, void **event, forebay_error *error)
{
    (void)stream;
    return host_stream_open(device, event, error);
}

static int host_stream_wait(struct fb_device *device, void *stream, void *event,
                            forebay_error *error)
{
    (void)device;
    (void)stream;
    (void)event;
    (void)error;
    return FOREBAY_OK;
}

static bool host_event_done(struct fb_device *device, void *event)
{
    (void)device;
    (void)event;
    return true;
}

static int host_event_wait(struct fb_device *device, void *event, forebay_error *error)
{
    (void)device;
    (void)event;
    (void)error;
    return FOREBAY_OK;
}

static double host_event_seconds(struct fb_device *device, void *from, void *to)
{
    (void)device;
    (void)from;
    (void)to;
    return NAN;
}

const struct fb_device_ops fb_device_host = {
    .kind = "host",
    .dlpack_type = 1,
    .open = host_open,
    .close = host_close,
    .info = host_info,
    .host_alloc = host_host_alloc,
    .host_free = host_host_free,
    .alloc = host_alloc,
    .free = host_free,
    .view = host_view,
    .unview = host_unview,
    .stream_open = host_stream_open,
    .stream_close = host_unview,
    .upload = host_upload,
    .upload_now = host_upload,
    .download = host_download,
    .move = host_move,
    .launch = host_launch,
    .record = host_record,
    .stream_wait = host_stream_wait,
    .event_done = host_event_done,
    .event_wait = host_event_wait,
    .event_free = host_unview,
    .event_seconds = host_event_seconds,
};
