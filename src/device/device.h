/*
 * device.h -- how batches reach the device. A back end is one file that ends in one const ops
 * struct, listed in device.c. `host` is always there: batches stay where they were made.
 *
 *   pinned host memory ──upload (a stream of ours)──▶ device memory ──view──▶ what the caller holds
 *                              │ record                        ▲
 *                              └─▶ event ──stream_wait──▶ the caller's stream
 *
 * Words: `memory` is what alloc() gave, `offset` counts bytes in it (a cl_mem has no arithmetic). A
 * stream does its work in order; NULL is the one a caller who named none works on: CUDA's legacy
 * default stream; elsewhere the calling thread itself, which then waits. An event fires when all
 * that was put on its stream before it is done; the NULL event has fired.
 *
 * Every callback may be called from any thread, and none calls back. Statuses: NO_MEMORY if the
 * device (or pinning) has no room, which a caller survives; NO_DEVICE for all else.
 */
#ifndef FB_DEVICE_DEVICE_H
#define FB_DEVICE_DEVICE_H
#include <stdatomic.h>

#include "base/error.h"
#include "base/log.h"

struct fb_device;

/* Host memory the device can read by itself, while the processor does other things. */
struct fb_pinned {
    void *memory; /* 64-byte aligned */
    uint64_t bytes;
    void *handle; /* the back end's own */
};

/* Kernels, by name in kernels.cl. */
#define FB_KERNEL_MAP(X)         \
    X(GATHER, "fb_gather")       \
    X(CAST_F16, "fb_cast_f16")   \
    X(CAST_BF16, "fb_cast_bf16") \
    X(NORMALISE, "fb_normalise")

enum fb_kernel {
#define FB_X(name, text) FB_KERNEL_##name,
    FB_KERNEL_MAP(FB_X)
#undef FB_X
    FB_KERNEL_COUNT
};
extern const char *const fb_kernel_names[FB_KERNEL_COUNT];

#define FB_LAUNCH_MEMORIES 4
#define FB_LAUNCH_NUMBERS 6
/* What a kernel is called with: memories, then 64-bit numbers, as kernels.cl declares them. */
struct fb_launch {
    enum fb_kernel kernel;
    void *memories[FB_LAUNCH_MEMORIES];
    unsigned memory_count;
    uint64_t numbers[FB_LAUNCH_NUMBERS];
    unsigned number_count;
    uint64_t items; /* how many times it runs, at least: one work item each */
};

struct fb_device_info {
    char name[128];
    char driver[64];
    uint64_t free_bytes, total_bytes; /* UINT64_MAX: not known */
    bool is_gpu;
};

struct fb_device_ops {
    const char *kind; /* "host", "cuda", "opencl" */
    int dlpack_type;  /* 1 host, 2 CUDA, 4 OpenCL */

    /* Open device `number`, of those that are GPUs if `gpus`. *out is the caller's on success.
     * NO_DEVICE, with what is there instead, if it is not. */
    int (*open)(struct fb_device **out, unsigned number, bool gpus, const struct fb_log *log,
                forebay_error *error);
    /* Nothing of it is in use any more: all memory freed, all events freed. */
    void (*close)(struct fb_device *device);
    void (*info)(struct fb_device *device, struct fb_device_info *info);

    /* Exactly `bytes` of pinned host memory, the caller's to free. It waits for nothing: the caller
     * knows that no copy from it is under way. */
    int (*host_alloc)(struct fb_device *device, uint64_t bytes, struct fb_pinned *out,
                      forebay_error *error);
    void (*host_free)(struct fb_device *device, struct fb_pinned *pinned);
    /* Device memory, the caller's to free when nothing on the device uses it any more. */
    int (*alloc)(struct fb_device *device, uint64_t bytes, void **out, forebay_error *error);
    void (*free)(struct fb_device *device, void *memory, uint64_t bytes);
    /* A part of device memory as the outside knows it: an address (CUDA), or a cl_mem of its own
     * (OpenCL), the caller's to unview before `memory` is freed. `offset` is a multiple of
     * device->align. */
    int (*view)(struct fb_device *device, void *memory, uint64_t offset, uint64_t bytes, void **out,
                forebay_error *error);
    void (*unview)(struct fb_device *device, void *view);

    /* The caller's to close; that waits for what is on it. */
    int (*stream_open)(struct fb_device *device, void **out, forebay_error *error);
    void (*stream_close)(struct fb_device *device, void *stream);
    /* Start a copy from pinned memory. Neither side may be written or freed before it is done. */
    int (*upload)(struct fb_device *device, void *stream, void *to, uint64_t offset,
                  const void *from, uint64_t bytes, forebay_error *error);
    /* The same from any memory; done when it returns. In order with `stream`, too. */
    int (*upload_now)(struct fb_device *device, void *stream, void *to, uint64_t offset,
                      const void *from, uint64_t bytes, forebay_error *error);
    /* Back to any host memory, in order with `stream`; done when it returns. `view`, not memory. */
    int (*download)(struct fb_device *device, void *stream, void *to, void *view, uint64_t offset,
                    uint64_t bytes, forebay_error *error);
    /* Start a copy inside the device. */
    int (*move)(struct fb_device *device, void *stream, void *to, uint64_t to_offset, void *from,
                uint64_t from_offset, uint64_t bytes, forebay_error *error);
    /* Start a kernel. NOT_BUILT if this device has none: then move() does what gather would. */
    int (*launch)(struct fb_device *device, void *stream, const struct fb_launch *launch,
                  forebay_error *error);

    /* *event is the caller's to free; freeing does not wait. */
    int (*record)(struct fb_device *device, void *stream, void **event, forebay_error *error);
    /* What is put on `stream` from now on waits for `event`, which may be freed at once. */
    int (*stream_wait)(struct fb_device *device, void *stream, void *event, forebay_error *error);
    bool (*event_done)(struct fb_device *device, void *event); /* true also if it failed */
    int (*event_wait)(struct fb_device *device, void *event, forebay_error *error);
    void (*event_free)(struct fb_device *device, void *event);
    /* Seconds from one event that has fired to another; NAN if not known. */
    double (*event_seconds)(struct fb_device *device, void *from, void *to);
};

struct fb_device {
    const struct fb_device_ops *ops;
    unsigned number;
    uint64_t align;         /* of what view() can show: a power of two, 64 at least */
    atomic_uint references; /* set by fb_device_open */
};

extern const struct fb_device_ops fb_device_host;
extern const struct fb_device_ops fb_device_cuda;
#ifdef FB_OPENCL
extern const struct fb_device_ops fb_device_opencl;
#endif

/* "host", "auto", "cuda:0", "opencl:1". `auto` takes a GPU or else host, and says which. */
int fb_device_open(struct fb_device **out, const char *text, const struct fb_log *log,
                   forebay_error *error);
/* One more that will close it. */
struct fb_device *fb_device_share(struct fb_device *device);
void fb_device_close(struct fb_device *device);
static inline bool fb_device_is_host(const struct fb_device *device)
{
    return !device || device->ops == &fb_device_host;
}

/* kernels.cl, and what clang made of it for CUDA ("" if it could not): made at build time. */
extern const char fb_kernels_source[];
extern const char fb_kernels_ptx[];
#endif
