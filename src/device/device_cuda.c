/*
 * device_cuda.c -- NVIDIA's GPUs, through the driver found at run time.
 *
 * We work in the device's primary context, the one PyTorch and the runtime API use, so that memory
 * and streams are common. It is made current around each call and put back, so the caller's thread
 * never notices. Device memory is a CUdeviceptr in a void *. Pinned memory is a mapping of our own
 * that is registered: of exact size, and not inherited by a fork.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "device/cuda_driver.h"
#include "device/device.h"
#include "memory/block.h"

#define BLOCK 256 /* threads of one block of a kernel */

struct cuda_device {
    struct fb_device base; /* first: a pointer to one is a pointer to the other */
    void *library;
    struct fb_cuda_driver driver;
    int version;
    char name[128];
    CUdevice device;
    CUcontext context; /* NULL: not retained yet */
    CUmodule module;   /* NULL: no kernels */
    CUfunction kernels[FB_KERNEL_COUNT];
};

static struct cuda_device *cuda_of(struct fb_device *device)
{
    return (struct cuda_device *)(void *)device;
}

/* ---- The driver ---- */

static int fail_call(const struct cuda_device *cuda, CUresult result, const char *call,
                     forebay_error *error)
{
    const char *name = NULL, *text = NULL;

    cuda->driver.cuGetErrorName(result, &name);
    cuda->driver.cuGetErrorString(result, &text);
    return fb_fail(error,
                   result == CUDA_ERROR_OUT_OF_MEMORY ? FOREBAY_NO_MEMORY : FOREBAY_NO_DEVICE,
                   "cuda:%u: %s failed: %s (%s)", cuda->base.number, call, text ? text : "?",
                   name ? name : "?");
}

/* One call in our context; `result` is what it gave. */
#define IN_CONTEXT(cuda, result, call)                              \
    do {                                                            \
        CUcontext popped_;                                          \
                                                                    \
        result = (cuda)->driver.cuCtxPushCurrent((cuda)->context);  \
        if (result == CUDA_SUCCESS) {                               \
            result = (call);                                        \
            (cuda)->driver.cuCtxPopCurrent(&popped_);               \
        }                                                           \
    } while (0)

static int driver_load(struct cuda_device *cuda, forebay_error *error)
{
    /* NODELETE: a driver has threads of its own and must not be unmapped under them. */
    cuda->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!cuda->library)
        return fb_fail(error, FOREBAY_NO_DEVICE,
                       "cuda: NVIDIA's driver is not installed here (%s)", dlerror());
#define FB_X(field, symbol, parameters)                                                         \
    *(void **)(void *)&cuda->driver.field = dlsym(cuda->library, symbol);                       \
    if (!cuda->driver.field)                                                                    \
        return fb_fail(error, FOREBAY_NO_DEVICE,                                                \
                       "cuda: the driver has no %s: it is too old; 450 or newer is needed", symbol);
    FB_CUDA_SYMBOLS(FB_X)
#undef FB_X
    return FOREBAY_OK;
}

static int device_find(struct cuda_device *cuda, unsigned number, forebay_error *error)
{
    CUresult result = cuda->driver.cuInit(0);
    int count = 0;

    if (result == CUDA_SUCCESS)
        result = cuda->driver.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE)
        return fail_call(cuda, result, "cuInit", error);
    if (number >= (unsigned)count)
        return fb_fail(error, FOREBAY_NO_DEVICE,
                       "cuda:%u is not there: the driver shows %d device%s%s", number, count,
                       count == 1 ? "" : "s",
                       count ? ", counted from 0" : " (is CUDA_VISIBLE_DEVICES empty?)");
    result = cuda->driver.cuDeviceGet(&cuda->device, (int)number);
    if (result == CUDA_SUCCESS)
        result = cuda->driver.cuDevicePrimaryCtxRetain(&cuda->context, cuda->device);
    if (result != CUDA_SUCCESS)
        return fail_call(cuda, result, "cuDevicePrimaryCtxRetain", error);
    cuda->driver.cuDriverGetVersion(&cuda->version);
    cuda->driver.cuDeviceGetName(cuda->name, sizeof(cuda->name) - 1, cuda->device);
    return FOREBAY_OK;
}

/* Without kernels all works, by copies. */
static void kernels_load(struct cuda_device *cuda, const struct fb_log *log)
{
    forebay_error error;
    CUresult result;

    if (!fb_kernels_ptx[0])
        return;
    IN_CONTEXT(cuda, result, cuda->driver.cuModuleLoadData(&cuda->module, fb_kernels_ptx));
    for (unsigned i = 0; i < FB_KERNEL_COUNT && result == CUDA_SUCCESS; i++)
        IN_CONTEXT(cuda, result, cuda->driver.cuModuleGetFunction(&cuda->kernels[i], cuda->module,
                                                                  fb_kernel_names[i]));
    if (result == CUDA_SUCCESS)
        return;
    fail_call(cuda, result, "loading the kernels", &error);
    fb_warn(log, "%s; copies inside the device do their work instead", error.message);
    if (cuda->module)
        IN_CONTEXT(cuda, result, cuda->driver.cuModuleUnload(cuda->module));
    cuda->module = NULL;
}

static void cuda_close(struct fb_device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (cuda->module)
        IN_CONTEXT(cuda, result, cuda->driver.cuModuleUnload(cuda->module));
    if (cuda->context)
        cuda->driver.cuDevicePrimaryCtxRelease(cuda->device);
    if (cuda->library)
        dlclose(cuda->library);
    free(cuda);
}

static int cuda_open(struct fb_device **out, unsigned number, bool gpus, const struct fb_log *log,
                     forebay_error *error)
{
    struct cuda_device *cuda = calloc(1, sizeof(*cuda));
    int status;

    (void)gpus; /* all are */
    if (!cuda)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to open cuda:%u", number);
    cuda->base = (struct fb_device){ .ops = &fb_device_cuda, .number = number, .align = 256 };
    status = driver_load(cuda, error);
    if (!status)
        status = device_find(cuda, number, error);
    if (status) {
        cuda_close(&cuda->base);
        return status;
    }
    kernels_load(cuda, log);
    *out = &cuda->base;
    return FOREBAY_OK;
}

static void cuda_info(struct fb_device *device, struct fb_device_info *info)
{
    struct cuda_device *cuda = cuda_of(device);
    size_t left = 0, total = 0;
    CUresult result;

    IN_CONTEXT(cuda, result, cuda->driver.cuMemGetInfo(&left, &total));
    *info = (struct fb_device_info){ .is_gpu = true, .free_bytes = UINT64_MAX,
                                     .total_bytes = UINT64_MAX };
    if (result == CUDA_SUCCESS) {
        info->free_bytes = left;
        info->total_bytes = total;
    }
    memcpy(info->name, cuda->name, sizeof(info->name));
    snprintf(info->driver, sizeof(info->driver), "CUDA %d.%d", cuda->version / 1000,
             cuda->version % 1000 / 10);
}

/* ---- Memory ---- */

static int cuda_host_alloc(struct fb_device *device, uint64_t bytes, struct fb_pinned *out,
                           forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    void *memory = fb_map_reserved(bytes, error);
    CUresult result;

    if (!memory)
        return FOREBAY_NO_MEMORY;
    IN_CONTEXT(cuda, result, cuda->driver.cuMemHostRegister(memory, bytes,
                                                            CU_MEMHOSTREGISTER_PORTABLE));
    if (result != CUDA_SUCCESS) {
        fb_unmap_reserved(memory, bytes);
        fail_call(cuda, result, "pinning host memory", error);
        return FOREBAY_NO_MEMORY; /* a limit on locked memory is told in other words */
    }
    *out = (struct fb_pinned){ .memory = memory, .bytes = bytes };
    return FOREBAY_OK;
}

static void cuda_host_free(struct fb_device *device, struct fb_pinned *pinned)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    IN_CONTEXT(cuda, result, cuda->driver.cuMemHostUnregister(pinned->memory));
    fb_unmap_reserved(pinned->memory, pinned->bytes);
}

static int cuda_alloc(struct fb_device *device, uint64_t bytes, void **out, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUdeviceptr memory = 0;
    CUresult result;

    IN_CONTEXT(cuda, result, cuda->driver.cuMemAlloc(&memory, bytes));
    if (result != CUDA_SUCCESS)
        return fail_call(cuda, result, "cuMemAlloc", error);
    *out = (void *)(uintptr_t)memory;
    return FOREBAY_OK;
}

static void cuda_free(struct fb_device *device, void *memory, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    (void)bytes;
    IN_CONTEXT(cuda, result, cuda->driver.cuMemFree((uintptr_t)memory));
}

static int cuda_view(struct fb_device *device, void *memory, uint64_t offset, uint64_t bytes,
                     void **out, forebay_error *error)
{
    (void)device;
    (void)bytes;
    (void)error;
    *out = (void *)((uintptr_t)memory + offset);
    return FOREBAY_OK;
}

static void cuda_unview(struct fb_device *device, void *view)
{
    (void)device;
    (void)view;
}

/* ---- Streams ---- */

static int cuda_stream_open(struct fb_device *device, void **out, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUstream stream;
    CUresult result;

    IN_CONTEXT(cuda, result, cuda->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (result != CUDA_SUCCESS)
        return fail_call(cuda, result, "cuStreamCreate", error);
    *out = stream;
    return FOREBAY_OK;
}

static void cuda_stream_close(struct fb_device *device, void *stream)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    IN_CONTEXT(cuda, result, cuda->driver.cuStreamSynchronize(stream));
    IN_CONTEXT(cuda, result, cuda->driver.cuStreamDestroy(stream));
}

static int cuda_upload(struct fb_device *device, void *stream, void *to, uint64_t offset,
                       const void *from, uint64_t bytes, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (!bytes)
        return FOREBAY_OK;
    IN_CONTEXT(cuda, result,
               cuda->driver.cuMemcpyHtoDAsync((uintptr_t)to + offset, from, bytes, stream));
    return result == CUDA_SUCCESS ? FOREBAY_OK
                                  : fail_call(cuda, result, "cuMemcpyHtoDAsync", error);
}

/* A copy from pageable memory may still be on its way when the call returns: so the default stream,
 * which it is on, is waited for, too. */
static int cuda_upload_now(struct fb_device *device, void *stream, void *to, uint64_t offset,
                           const void *from, uint64_t bytes, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (!bytes)
        return FOREBAY_OK;
    IN_CONTEXT(cuda, result, cuda->driver.cuStreamSynchronize(stream));
    if (result == CUDA_SUCCESS)
        IN_CONTEXT(cuda, result, cuda->driver.cuMemcpyHtoD((uintptr_t)to + offset, from, bytes));
    if (result == CUDA_SUCCESS)
        IN_CONTEXT(cuda, result, cuda->driver.cuStreamSynchronize(NULL));
    return result == CUDA_SUCCESS ? FOREBAY_OK : fail_call(cuda, result, "cuMemcpyHtoD", error);
}

static int cuda_download(struct fb_device *device, void *stream, void *to, void *view,
                         uint64_t offset, uint64_t bytes, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (!bytes)
        return FOREBAY_OK;
    IN_CONTEXT(cuda, result, cuda->driver.cuStreamSynchronize(stream));
    if (result == CUDA_SUCCESS)
        IN_CONTEXT(cuda, result, cuda->driver.cuMemcpyDtoH(to, (uintptr_t)view + offset, bytes));
    return result == CUDA_SUCCESS ? FOREBAY_OK : fail_call(cuda, result, "cuMemcpyDtoH", error);
}

static int cuda_move(struct fb_device *device, void *stream, void *to, uint64_t to_offset,
                     void *from, uint64_t from_offset, uint64_t bytes, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (!bytes)
        return FOREBAY_OK;
    IN_CONTEXT(cuda, result,
               cuda->driver.cuMemcpyDtoDAsync((uintptr_t)to + to_offset,
                                              (uintptr_t)from + from_offset, bytes, stream));
    return result == CUDA_SUCCESS ? FOREBAY_OK
                                  : fail_call(cuda, result, "cuMemcpyDtoDAsync", error);
}

static int cuda_launch(struct fb_device *device, void *stream, const struct fb_launch *launch,
                       forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUdeviceptr memories[FB_LAUNCH_MEMORIES];
    uint64_t numbers[FB_LAUNCH_NUMBERS], blocks = (launch->items + BLOCK - 1) / BLOCK;
    void *parameters[FB_LAUNCH_MEMORIES + FB_LAUNCH_NUMBERS];
    unsigned count = 0;
    CUresult result;

    if (!cuda->module)
        return fb_fail(error, FOREBAY_NOT_BUILT, "cuda: built without kernels (clang was missing)");
    if (blocks == 0)
        return FOREBAY_OK;
    if (blocks > INT32_MAX)
        return fb_fail(error, FOREBAY_NO_DEVICE, "cuda: %" PRIu64 " work items are too many",
                       launch->items);
    for (unsigned i = 0; i < launch->memory_count; i++) {
        memories[i] = (uintptr_t)launch->memories[i];
        parameters[count++] = &memories[i];
    }
    for (unsigned i = 0; i < launch->number_count; i++) {
        numbers[i] = launch->numbers[i];
        parameters[count++] = &numbers[i];
    }
    IN_CONTEXT(cuda, result,
               cuda->driver.cuLaunchKernel(cuda->kernels[launch->kernel], (unsigned)blocks, 1, 1,
                                           BLOCK, 1, 1, 0, stream, parameters, NULL));
    return result == CUDA_SUCCESS ? FOREBAY_OK : fail_call(cuda, result, "cuLaunchKernel", error);
}

/* ---- Events ---- */

static int cuda_record(struct fb_device *device, void *stream, void **event, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUevent made = NULL;
    CUresult result;

    IN_CONTEXT(cuda, result, cuda->driver.cuEventCreate(&made, CU_EVENT_DEFAULT));
    if (result == CUDA_SUCCESS)
        IN_CONTEXT(cuda, result, cuda->driver.cuEventRecord(made, stream));
    if (result != CUDA_SUCCESS) {
        CUresult ignored;

        if (made)
            IN_CONTEXT(cuda, ignored, cuda->driver.cuEventDestroy(made));
        return fail_call(cuda, result, "cuEventRecord", error);
    }
    *event = made;
    return FOREBAY_OK;
}

static int cuda_stream_wait(struct fb_device *device, void *stream, void *event,
                            forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (!event)
        return FOREBAY_OK;
    IN_CONTEXT(cuda, result, cuda->driver.cuStreamWaitEvent(stream, event, 0));
    return result == CUDA_SUCCESS ? FOREBAY_OK
                                  : fail_call(cuda, result, "cuStreamWaitEvent", error);
}

static bool cuda_event_done(struct fb_device *device, void *event)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (!event)
        return true;
    IN_CONTEXT(cuda, result, cuda->driver.cuEventQuery(event));
    return result != CUDA_ERROR_NOT_READY;
}

static int cuda_event_wait(struct fb_device *device, void *event, forebay_error *error)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (!event)
        return FOREBAY_OK;
    IN_CONTEXT(cuda, result, cuda->driver.cuEventSynchronize(event));
    return result == CUDA_SUCCESS ? FOREBAY_OK
                                  : fail_call(cuda, result, "cuEventSynchronize", error);
}

static void cuda_event_free(struct fb_device *device, void *event)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;

    if (event)
        IN_CONTEXT(cuda, result, cuda->driver.cuEventDestroy(event));
}

static double cuda_event_seconds(struct fb_device *device, void *from, void *to)
{
    struct cuda_device *cuda = cuda_of(device);
    CUresult result;
    float ms = 0;

    if (!from || !to)
        return NAN;
    IN_CONTEXT(cuda, result, cuda->driver.cuEventElapsedTime(&ms, from, to));
    return result == CUDA_SUCCESS ? (double)ms * 1e-3 : NAN;
}

const struct fb_device_ops fb_device_cuda = {
    .kind = "cuda",
    .dlpack_type = 2,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .view = cuda_view,
    .unview = cuda_unview,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .upload = cuda_upload,
    .upload_now = cuda_upload_now,
    .download = cuda_download,
    .move = cuda_move,
    .launch = cuda_launch,
    .record = cuda_record,
    .stream_wait = cuda_stream_wait,
    .event_done = cuda_event_done,
    .event_wait = cuda_event_wait,
    .event_free = cuda_event_free,
    .event_seconds = cuda_event_seconds,
};
