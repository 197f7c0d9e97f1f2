/*
 * device_opencl.c -- any vendor's device, through the OpenCL loader (ICD).
 *
 * Device memory is a cl_mem, and what the caller is given of a batch is one cl_mem (a sub-buffer)
 * for each field; its context is in the buffer (clGetMemObjectInfo). Pinned memory is a buffer with
 * CL_MEM_ALLOC_HOST_PTR that stays mapped. Streams are queues of our one context, with profiling,
 * which is where the times of copies come from. NULL for a stream is the calling thread: it waits.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "device/device.h"

#define PLATFORMS_MAX 16
#define DEVICES_MAX 64
#define BLOCK 64 /* work items of one group */

struct opencl_device {
    struct fb_device base; /* first: a pointer to one is a pointer to the other */
    cl_device_id device;
    cl_context context;
    cl_command_queue queue; /* for what is done while the caller waits */
    cl_program program;     /* NULL: no kernels */
    bool is_gpu;
    char name[128], driver[64];
    uint64_t total_bytes;
    struct fb_log log;
};

static struct opencl_device *opencl_of(struct fb_device *device)
{
    return (struct opencl_device *)(void *)device;
}

static int fail_call(const struct opencl_device *opencl, cl_int code, const char *call,
                     forebay_error *error)
{
    bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
                  code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;

    return fb_fail(error, memory ? FOREBAY_NO_MEMORY : FOREBAY_NO_DEVICE,
                   "opencl:%u: %s failed with code %d%s", opencl->base.number, call, (int)code,
                   memory ? " (no memory)" : "");
}

/* ---- Open and close ---- */

/* All devices of all platforms, in the loader's order; of type GPU only if `gpus`. */
static unsigned devices_list(cl_device_id devices[DEVICES_MAX], bool gpus)
{
    cl_device_type type = gpus ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_ALL;
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint platform_count = 0, total = 0;

    if (clGetPlatformIDs(PLATFORMS_MAX, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < PLATFORMS_MAX && total < DEVICES_MAX; p++) {
        cl_uint count = 0;

        if (clGetDeviceIDs(platforms[p], type, DEVICES_MAX - total, devices + total, &count) !=
            CL_SUCCESS)
            continue;
        total += (cl_uint)fb_min(count, DEVICES_MAX - total);
    }
    return total;
}

/* Which number it has among all, as in opencl:N. */
static unsigned number_of(cl_device_id device)
{
    cl_device_id devices[DEVICES_MAX];
    unsigned count = devices_list(devices, false), number = 0;

    while (number < count && devices[number] != device)
        number++;
    return number;
}

static void facts_read(struct opencl_device *opencl)
{
    cl_device_type type = 0;
    cl_uint align_bits = 0;
    cl_ulong total = 0;

    clGetDeviceInfo(opencl->device, CL_DEVICE_NAME, sizeof(opencl->name) - 1, opencl->name, NULL);
    clGetDeviceInfo(opencl->device, CL_DRIVER_VERSION, sizeof(opencl->driver) - 1, opencl->driver,
                    NULL);
    clGetDeviceInfo(opencl->device, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
    clGetDeviceInfo(opencl->device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(total), &total, NULL);
    clGetDeviceInfo(opencl->device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(align_bits), &align_bits,
                    NULL);
    opencl->is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    opencl->total_bytes = total;
    opencl->base.align = 256;
    while (opencl->base.align * 8 < align_bits)
        opencl->base.align *= 2;
}

/* Without kernels all works, by copies. */
static void kernels_build(struct opencl_device *opencl)
{
    const char *source = fb_kernels_source;
    cl_int code;

    opencl->program = clCreateProgramWithSource(opencl->context, 1, &source, NULL, &code);
    if (code == CL_SUCCESS)
        code = clBuildProgram(opencl->program, 1, &opencl->device, "-cl-std=CL1.2", NULL, NULL);
    if (code == CL_SUCCESS)
        return;
    fb_warn(&opencl->log, "opencl:%u: the kernels do not compile (code %d); copies inside the "
            "device do their work instead", opencl->base.number, (int)code);
    if (opencl->program)
        clReleaseProgram(opencl->program);
    opencl->program = NULL;
}

static void opencl_close(struct fb_device *device)
{
    struct opencl_device *opencl = opencl_of(device);

    if (opencl->program)
        clReleaseProgram(opencl->program);
    if (opencl->queue)
        clReleaseCommandQueue(opencl->queue);
    if (opencl->context)
        clReleaseContext(opencl->context);
    free(opencl);
}

static int context_open(struct opencl_device *opencl, forebay_error *error)
{
    cl_int code;

    opencl->context = clCreateContext(NULL, 1, &opencl->device, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return fail_call(opencl, code, "clCreateContext", error);
    opencl->queue = clCreateCommandQueue(opencl->context, opencl->device,
                                         CL_QUEUE_PROFILING_ENABLE, &code);
    if (code != CL_SUCCESS)
        return fail_call(opencl, code, "clCreateCommandQueue", error);
    return FOREBAY_OK;
}

static int opencl_open(struct fb_device **out, unsigned number, bool gpus,
                       const struct fb_log *log, forebay_error *error)
{
    cl_device_id devices[DEVICES_MAX];
    unsigned count = devices_list(devices, gpus);
    struct opencl_device *opencl;
    int status;

    if (number >= count)
        return fb_fail(error, FOREBAY_NO_DEVICE,
                       "opencl:%u is not there: the OpenCL loader shows %u device%s%s", number,
                       count, count == 1 ? "" : "s",
                       count ? ", counted from 0" : "; is a driver (ICD) installed?");
    opencl = calloc(1, sizeof(*opencl));
    if (!opencl)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to open opencl:%u", number);
    opencl->base = (struct fb_device){ .ops = &fb_device_opencl,
                                       .number = gpus ? number_of(devices[number]) : number };
    opencl->device = devices[number];
    if (log)
        opencl->log = *log;
    facts_read(opencl);
    status = context_open(opencl, error);
    if (status) {
        opencl_close(&opencl->base);
        return status;
    }
    kernels_build(opencl);
    *out = &opencl->base;
    return FOREBAY_OK;
}

/* OpenCL does not say what is free. */
static void opencl_info(struct fb_device *device, struct fb_device_info *info)
{
    struct opencl_device *opencl = opencl_of(device);

    *info = (struct fb_device_info){ .is_gpu = opencl->is_gpu, .free_bytes = UINT64_MAX,
                                     .total_bytes = opencl->total_bytes };
    memcpy(info->name, opencl->name, sizeof(info->name));
    memcpy(info->driver, opencl->driver, sizeof(info->driver));
}

/* ---- Memory ---- */

static int opencl_host_alloc(struct fb_device *device, uint64_t bytes, struct fb_pinned *out,
                             forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    cl_int code;
    cl_mem buffer = clCreateBuffer(opencl->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                   bytes, NULL, &code);
    void *memory;

    if (code != CL_SUCCESS)
        return fail_call(opencl, code, "clCreateBuffer of pinned memory", error);
    memory = clEnqueueMapBuffer(opencl->queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                bytes, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS) {
        clReleaseMemObject(buffer);
        return fail_call(opencl, code, "clEnqueueMapBuffer", error);
    }
    *out = (struct fb_pinned){ .memory = memory, .bytes = bytes, .handle = buffer };
    return FOREBAY_OK;
}

static void opencl_host_free(struct fb_device *device, struct fb_pinned *pinned)
{
    struct opencl_device *opencl = opencl_of(device);

    clEnqueueUnmapMemObject(opencl->queue, pinned->handle, pinned->memory, 0, NULL, NULL);
    clFinish(opencl->queue);
    clReleaseMemObject(pinned->handle);
}

static int opencl_alloc(struct fb_device *device, uint64_t bytes, void **out, forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    cl_int code;
    cl_mem buffer = clCreateBuffer(opencl->context, CL_MEM_READ_WRITE, bytes, NULL, &code);

    if (code != CL_SUCCESS)
        return fail_call(opencl, code, "clCreateBuffer", error);
    *out = buffer;
    return FOREBAY_OK;
}

static void opencl_free(struct fb_device *device, void *memory, uint64_t bytes)
{
    (void)device;
    (void)bytes;
    clReleaseMemObject(memory);
}

static int opencl_view(struct fb_device *device, void *memory, uint64_t offset, uint64_t bytes,
                       void **out, forebay_error *error)
{
    cl_buffer_region region = { .origin = offset, .size = bytes };
    cl_int code = CL_SUCCESS;
    cl_mem part = memory;

    if (bytes) /* there is no buffer of nothing: then the whole stands for it */
        part = clCreateSubBuffer(memory, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region,
                                 &code);
    else
        code = clRetainMemObject(part);
    if (code != CL_SUCCESS)
        return fail_call(opencl_of(device), code, "clCreateSubBuffer", error);
    *out = part;
    return FOREBAY_OK;
}

static void opencl_unview(struct fb_device *device, void *view)
{
    (void)device;
    clReleaseMemObject(view);
}

/* ---- Queues ---- */

static int opencl_stream_open(struct fb_device *device, void **out, forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    cl_int code;
    cl_command_queue queue = clCreateCommandQueue(opencl->context, opencl->device,
                                                  CL_QUEUE_PROFILING_ENABLE, &code);

    if (code != CL_SUCCESS)
        return fail_call(opencl, code, "clCreateCommandQueue", error);
    *out = queue;
    return FOREBAY_OK;
}

static void opencl_stream_close(struct fb_device *device, void *stream)
{
    (void)device;
    clFinish(stream);
    clReleaseCommandQueue(stream);
}

static int write_buffer(struct fb_device *device, void *stream, bool now, void *to, uint64_t offset,
                        const void *from, uint64_t bytes, forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    cl_int code = CL_SUCCESS;

    if (bytes)
        code = clEnqueueWriteBuffer(stream ? stream : opencl->queue, to, now || !stream, offset,
                                    bytes, from, 0, NULL, NULL);
    return code == CL_SUCCESS ? FOREBAY_OK : fail_call(opencl, code, "clEnqueueWriteBuffer", error);
}

static int opencl_upload(struct fb_device *device, void *stream, void *to, uint64_t offset,
                         const void *from, uint64_t bytes, forebay_error *error)
{
    return write_buffer(device, stream, false, to, offset, from, bytes, error);
}

static int opencl_upload_now(struct fb_device *device, void *stream, void *to, uint64_t offset,
                             const void *from, uint64_t bytes, forebay_error *error)
{
    return write_buffer(device, stream, true, to, offset, from, bytes, error);
}

static int opencl_download(struct fb_device *device, void *stream, void *to, void *view,
                           uint64_t offset, uint64_t bytes, forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    cl_int code = CL_SUCCESS;

    if (bytes)
        code = clEnqueueReadBuffer(stream ? stream : opencl->queue, view, CL_TRUE, offset, bytes,
                                   to, 0, NULL, NULL);
    return code == CL_SUCCESS ? FOREBAY_OK : fail_call(opencl, code, "clEnqueueReadBuffer", error);
}

static int opencl_move(struct fb_device *device, void *stream, void *to, uint64_t to_offset,
                       void *from, uint64_t from_offset, uint64_t bytes, forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    cl_int code = CL_SUCCESS;

    if (bytes)
        code = clEnqueueCopyBuffer(stream ? stream : opencl->queue, from, to, from_offset,
                                   to_offset, bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS && !stream)
        code = clFinish(opencl->queue);
    return code == CL_SUCCESS ? FOREBAY_OK : fail_call(opencl, code, "clEnqueueCopyBuffer", error);
}

/* A kernel object holds its arguments, so each launch has its own: any thread may launch. */
static int opencl_launch(struct fb_device *device, void *stream, const struct fb_launch *launch,
                         forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    size_t local = BLOCK, global = fb_round_up(launch->items, BLOCK);
    cl_command_queue queue = stream ? stream : opencl->queue;
    cl_kernel kernel;
    cl_uint at = 0;
    cl_int code;

    if (!opencl->program)
        return fb_fail(error, FOREBAY_NOT_BUILT, "opencl:%u: no kernels", device->number);
    if (!global)
        return FOREBAY_OK;
    kernel = clCreateKernel(opencl->program, fb_kernel_names[launch->kernel], &code);
    for (unsigned i = 0; i < launch->memory_count && code == CL_SUCCESS; i++)
        code = clSetKernelArg(kernel, at++, sizeof(cl_mem), &launch->memories[i]);
    for (unsigned i = 0; i < launch->number_count && code == CL_SUCCESS; i++)
        code = clSetKernelArg(kernel, at++, sizeof(cl_ulong), &launch->numbers[i]);
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL);
    if (kernel)
        clReleaseKernel(kernel);
    if (code == CL_SUCCESS && !stream)
        code = clFinish(queue);
    return code == CL_SUCCESS ? FOREBAY_OK
                              : fail_call(opencl, code, fb_kernel_names[launch->kernel], error);
}

/* ---- Events ---- */

static int opencl_record(struct fb_device *device, void *stream, void **event,
                         forebay_error *error)
{
    struct opencl_device *opencl = opencl_of(device);
    cl_event made = NULL;
    cl_int code = CL_SUCCESS;

    if (stream)
        code = clEnqueueMarkerWithWaitList(stream, 0, NULL, &made);
    if (stream && code == CL_SUCCESS)
        code = clFlush(stream); /* what another queue waits for must be under way */
    if (code != CL_SUCCESS)
        return fail_call(opencl, code, "clEnqueueMarkerWithWaitList", error);
    *event = made;
    return FOREBAY_OK;
}

static int opencl_event_wait(struct fb_device *device, void *event, forebay_error *error)
{
    cl_event waited = event;
    cl_int code = event ? clWaitForEvents(1, &waited) : CL_SUCCESS;

    return code == CL_SUCCESS ? FOREBAY_OK
                              : fail_call(opencl_of(device), code, "clWaitForEvents", error);
}

static int opencl_stream_wait(struct fb_device *device, void *stream, void *event,
                              forebay_error *error)
{
    cl_event waited = event;
    cl_int code;

    if (!stream || !event)
        return opencl_event_wait(device, event, error);
    code = clEnqueueBarrierWithWaitList(stream, 1, &waited, NULL);
    return code == CL_SUCCESS
               ? FOREBAY_OK
               : fail_call(opencl_of(device), code, "clEnqueueBarrierWithWaitList", error);
}

static bool opencl_event_done(struct fb_device *device, void *event)
{
    cl_int state = CL_COMPLETE;

    (void)device;
    if (event)
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, NULL);
    return state <= CL_COMPLETE; /* below it: failed */
}

static void opencl_event_free(struct fb_device *device, void *event)
{
    (void)device;
    if (event)
        clReleaseEvent(event);
}

static double opencl_event_seconds(struct fb_device *device, void *from, void *to)
{
    cl_ulong begin = 0, end = 0;

    (void)device;
    if (!from || !to ||
        clGetEventProfilingInfo(from, CL_PROFILING_COMMAND_END, sizeof(begin), &begin, NULL) !=
            CL_SUCCESS ||
        clGetEventProfilingInfo(to, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL) !=
            CL_SUCCESS)
        return NAN;
    return ((double)end - (double)begin) * 1e-9;
}

const struct fb_device_ops fb_device_opencl = {
    .kind = "opencl",
    .dlpack_type = 4,
    .open = opencl_open,
    .close = opencl_close,
    .info = opencl_info,
    .host_alloc = opencl_host_alloc,
    .host_free = opencl_host_free,
    .alloc = opencl_alloc,
    .free = opencl_free,
    .view = opencl_view,
    .unview = opencl_unview,
    .stream_open = opencl_stream_open,
    .stream_close = opencl_stream_close,
    .upload = opencl_upload,
    .upload_now = opencl_upload_now,
    .download = opencl_download,
    .move = opencl_move,
    .launch = opencl_launch,
    .record = opencl_record,
    .stream_wait = opencl_stream_wait,
    .event_done = opencl_event_done,
    .event_wait = opencl_event_wait,
    .event_free = opencl_event_free,
    .event_seconds = opencl_event_seconds,
};
