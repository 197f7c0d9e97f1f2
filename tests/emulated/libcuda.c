/* libcuda.c -- the emulated driver's calls. See emulated.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inside.h"

/* The names in cuda_driver.h are those of cuda.h; the library has the versioned ones. */
#define EXPORTED __attribute__((visibility("default")))
#define CALL EXPORTED CUresult
#define STACK_MAX 16

struct driver driver = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local unsigned stack_depth;

void fatal(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "emulated CUDA: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : fallback;
}

/* What is left when the process ends was forgotten by whoever made it. */
static void check_leaks(void)
{
    if (getpid() != driver.pid)
        return;
    for (unsigned i = 0; i < 16; i++)
        if (driver.contexts[i].retained)
            fatal("device %u: its context is still retained at exit", i);
    if (driver.allocations)
        fatal("%zu bytes of device memory are left at exit", driver.allocations->size);
    if (driver.registrations)
        fatal("%zu bytes of host memory are still pinned at exit", driver.registrations->size);
    if (driver.events || driver.modules)
        fatal("%llu events and %llu modules are left at exit", (unsigned long long)driver.events,
              (unsigned long long)driver.modules);
    for (struct CUstream_st *at = driver.streams; at; at = at->next)
        if (at != at->context->legacy)
            fatal("a stream is left at exit");
}

static void slow_read(void *stream, uint64_t address, uint64_t bytes, uint64_t ns, uint64_t *sum);
static void wait_all(void);

static void start_locked(void)
{
    const char *fail = getenv("EMULATED_CUDA_FAIL");

    if (driver.started)
        return;
    driver.started = true;
    driver.pid = getpid();
    driver.control = (struct emulated){
        .devices = (unsigned)number_from("EMULATED_CUDA_DEVICES", 1),
        .memory_bytes = number_from("EMULATED_CUDA_MEMORY", 256 << 20),
        .ns_per_mb = number_from("EMULATED_CUDA_NS_PER_MB", 0),
        .slow_read = slow_read,
        .wait_all = wait_all,
    };
    driver.control.fail_first = driver.control.fail_last = fail ? strtoull(fail, NULL, 10) : 0;
    if (fail && strchr(fail, '-'))
        driver.control.fail_last = UINT64_MAX;
    for (int i = 0; i < 16; i++)
        driver.contexts[i].device = i;
    atexit(check_leaks);
}

EXPORTED struct emulated *emulated_control(void)
{
    pthread_mutex_lock(&driver.lock);
    start_locked();
    pthread_mutex_unlock(&driver.lock);
    return &driver.control;
}

/* ---- Contexts ---- */

static CUcontext current(const char *call)
{
    if (getpid() != driver.pid)
        fatal("%s in a forked child", call);
    if (stack_depth == 0)
        fatal("%s without a current context", call);
    return stack[stack_depth - 1];
}

CALL cuInit(unsigned flags)
{
    (void)flags;
    emulated_control();
    return driver.control.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CALL cuDriverGetVersion(int *version)
{
    *version = 12040;
    return CUDA_SUCCESS;
}

CALL cuGetErrorName(CUresult result, const char **text)
{
    *text = NULL;
#define FB_X(name, value)                        \
    if (!*text && result == (CUresult)(value))   \
        *text = #name;
    FB_CUDA_CONSTANTS(FB_X)
#undef FB_X
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CALL cuGetErrorString(CUresult result, const char **text)
{
    *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an emulated failure";
    return CUDA_SUCCESS;
}

CALL cuDeviceGetCount(int *count)
{
    *count = (int)driver.control.devices;
    return CUDA_SUCCESS;
}

CALL cuDeviceGet(CUdevice *device, int number)
{
    *device = number;
    return number < (int)driver.control.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CALL cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "Emulated GPU %d", device);
    return CUDA_SUCCESS;
}

CALL cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    pthread_mutex_lock(&driver.lock);
    *context = &driver.contexts[device];
    (*context)->retained++;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUcontext context = &driver.contexts[device];
    struct CUstream_st *legacy = NULL;

    pthread_mutex_lock(&driver.lock);
    if (context->retained == 0)
        fatal("device %d: its context is released once too often", device);
    if (--context->retained == 0) {
        legacy = context->legacy;
        context->legacy = NULL;
        if (context->used)
            fatal("device %d: its last user left memory behind", device);
    }
    pthread_mutex_unlock(&driver.lock);
    if (legacy)
        stream_close(legacy);
    return CUDA_SUCCESS;
}

CALL cuCtxPushCurrent_v2(CUcontext context)
{
    if (stack_depth == STACK_MAX)
        fatal("contexts are pushed and not popped");
    stack[stack_depth++] = context;
    return CUDA_SUCCESS;
}

CALL cuCtxPopCurrent_v2(CUcontext *context)
{
    *context = current("cuCtxPopCurrent");
    stack_depth--;
    return CUDA_SUCCESS;
}

/* ---- Memory ---- */

static bool fails_locked(void)
{
    uint64_t number = ++driver.control.allocations;

    return number >= driver.control.fail_first && number <= driver.control.fail_last;
}

CALL cuMemGetInfo_v2(size_t *left, size_t *total)
{
    CUcontext context = current("cuMemGetInfo");

    pthread_mutex_lock(&driver.lock);
    *total = driver.control.memory_bytes;
    *left = *total - context->used;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

static bool allocate_locked(struct allocation *made)
{
    CUcontext context = made->context;

    if (fails_locked() || made->size > driver.control.memory_bytes - context->used)
        return false;
    made->bytes = malloc(made->size);
    made->address = mmap(NULL, made->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!made->bytes || made->address == MAP_FAILED)
        fatal("no memory for %zu bytes of device memory", made->size);
    memset(made->bytes, 0xdb, made->size); /* not zero: nobody may count on that */
    context->used += made->size;
    if (context->used > driver.control.peak_bytes)
        driver.control.peak_bytes = context->used;
    made->next = driver.allocations;
    driver.allocations = made;
    return true;
}

CALL cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    struct allocation *made = calloc(1, sizeof(*made));
    bool good;

    if (!made || !size)
        fatal("cuMemAlloc of %zu bytes", size);
    *made = (struct allocation){ .context = current("cuMemAlloc"), .size = size };
    pthread_mutex_lock(&driver.lock);
    good = allocate_locked(made);
    pthread_mutex_unlock(&driver.lock);
    if (!good) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (uintptr_t)made->address;
    return CUDA_SUCCESS;
}

/* The allocation that [address, address + size) is inside of. */
static struct allocation *find_locked(CUdeviceptr address, size_t size, const char *call)
{
    for (struct allocation *at = driver.allocations; at; at = at->next)
        if (address >= (uintptr_t)at->address &&
            address + size <= (uintptr_t)at->address + at->size) {
            if (at->context != current(call))
                fatal("%s: memory of device %d used on device %d", call, at->context->device,
                      current(call)->device);
            return at;
        }
    fatal("%s: %zu bytes at %llx are no device memory", call, size, address);
}

static char *bytes_of(const struct allocation *memory, CUdeviceptr address)
{
    return memory->bytes + (address - (uintptr_t)memory->address);
}

char *device_bytes_locked(CUdeviceptr address, struct allocation **memory, const char *call)
{
    *memory = find_locked(address, 1, call);
    return bytes_of(*memory, address);
}

CALL cuMemFree_v2(CUdeviceptr address)
{
    struct allocation *memory, **link = &driver.allocations;

    pthread_mutex_lock(&driver.lock);
    memory = find_locked(address, 1, "cuMemFree");
    if ((uintptr_t)memory->address != address)
        fatal("cuMemFree inside an allocation");
    if (in_flight_locked(memory, NULL, 0))
        fatal("device memory is freed while something in flight uses it");
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    memory->context->used -= memory->size;
    pthread_mutex_unlock(&driver.lock);
    munmap(memory->address, memory->size);
    free(memory->bytes);
    free(memory);
    return CUDA_SUCCESS;
}

CALL cuMemHostRegister_v2(void *host, size_t size, unsigned flags)
{
    struct registration *made = malloc(sizeof(*made));
    bool fails;

    (void)flags;
    current("cuMemHostRegister");
    if (!made)
        fatal("no memory");
    *made = (struct registration){ .memory = host, .size = size };
    pthread_mutex_lock(&driver.lock);
    fails = fails_locked();
    if (!fails) {
        made->next = driver.registrations;
        driver.registrations = made;
    }
    pthread_mutex_unlock(&driver.lock);
    if (fails)
        free(made);
    return fails ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CALL cuMemHostUnregister(void *host)
{
    struct registration **link = &driver.registrations, *found;

    current("cuMemHostUnregister");
    pthread_mutex_lock(&driver.lock);
    while (*link && (*link)->memory != host)
        link = &(*link)->next;
    found = *link;
    if (!found)
        fatal("cuMemHostUnregister of memory that is not pinned");
    if (in_flight_locked(NULL, found->memory, found->size))
        fatal("host memory is unpinned while a copy from it is in flight");
    *link = found->next;
    pthread_mutex_unlock(&driver.lock);
    free(found);
    return CUDA_SUCCESS;
}

static bool is_pinned_locked(const char *host, size_t size)
{
    for (struct registration *at = driver.registrations; at; at = at->next)
        if (host >= at->memory && host + size <= at->memory + at->size)
            return true;
    return false;
}

/* ---- Streams ---- */

/* NULL and CU_STREAM_LEGACY are the default stream. */
struct CUstream_st *stream_of_locked(CUstream stream, const char *call)
{
    CUcontext context = current(call);

    if ((uintptr_t)stream > 1) {
        if (stream->context != context)
            fatal("%s: a stream of device %d used on device %d", call, stream->context->device,
                  context->device);
        return stream;
    }
    if (!context->legacy)
        context->legacy = stream_new_locked(context);
    return context->legacy;
}

CALL cuStreamCreate(CUstream *out, unsigned flags)
{
    if (!(flags & CU_STREAM_NON_BLOCKING))
        fatal("a stream that waits for the default stream would hold up the trainer");
    pthread_mutex_lock(&driver.lock);
    *out = stream_new_locked(current("cuStreamCreate"));
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuStreamDestroy_v2(CUstream stream)
{
    current("cuStreamDestroy");
    stream_close(stream);
    return CUDA_SUCCESS;
}

CALL cuStreamSynchronize(CUstream stream)
{
    pthread_mutex_lock(&driver.lock);
    wait_idle_locked(stream_of_locked(stream, "cuStreamSynchronize"));
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct operation operation = { .kind = WAIT, .event = event };

    (void)flags;
    pthread_mutex_lock(&driver.lock);
    operation.ticket = event->recorded;
    stream_put_locked(stream_of_locked(stream, "cuStreamWaitEvent"), &operation);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

static void copy_in_locked(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    struct allocation *memory = find_locked(to, size, "cuMemcpyHtoD");
    struct operation operation = { .kind = COPY_IN, .host = from, .memory = { memory },
                                   .to = bytes_of(memory, to), .size = size,
                                   .ns = driver.control.ns_per_mb * size / 1000000 };

    driver.control.copies++;
    driver.control.copied_bytes += size;
    stream_put_locked(stream_of_locked(stream, "cuMemcpyHtoD"), &operation);
}

CALL cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    pthread_mutex_lock(&driver.lock);
    if (!is_pinned_locked(from, size))
        fatal("an asynchronous copy from memory that is not pinned");
    copy_in_locked(to, from, size, stream);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    pthread_mutex_lock(&driver.lock);
    copy_in_locked(to, from, size, NULL);
    wait_idle_locked(stream_of_locked(NULL, "cuMemcpyHtoD"));
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    struct allocation *memory;

    pthread_mutex_lock(&driver.lock);
    wait_idle_locked(stream_of_locked(NULL, "cuMemcpyDtoH"));
    memory = find_locked(from, size, "cuMemcpyDtoH");
    memcpy(to, bytes_of(memory, from), size);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    struct operation operation = { .kind = COPY_INSIDE, .size = size };

    pthread_mutex_lock(&driver.lock);
    operation.memory[0] = find_locked(to, size, "cuMemcpyDtoDAsync");
    operation.memory[1] = find_locked(from, size, "cuMemcpyDtoDAsync");
    operation.to = bytes_of(operation.memory[0], to);
    operation.from = bytes_of(operation.memory[1], from);
    stream_put_locked(stream_of_locked(stream, "cuMemcpyDtoDAsync"), &operation);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

static void slow_read(void *stream, uint64_t address, uint64_t bytes, uint64_t ns, uint64_t *sum)
{
    struct operation operation = { .kind = SLOW_READ, .size = bytes, .ns = ns, .sum = sum };

    pthread_mutex_lock(&driver.lock);
    operation.memory[0] = find_locked(address, bytes, "slow_read");
    operation.from = bytes_of(operation.memory[0], address);
    stream_put_locked(stream_of_locked(stream, "slow_read"), &operation);
    pthread_mutex_unlock(&driver.lock);
}

static void wait_all(void)
{
    pthread_mutex_lock(&driver.lock);
    for (struct CUstream_st *stream = driver.streams; stream;) {
        bool idle = !stream->first;

        wait_idle_locked(stream);
        stream = idle ? stream->next : driver.streams;
    }
    pthread_mutex_unlock(&driver.lock);
}

/* ---- Events ---- */

CALL cuEventCreate(CUevent *out, unsigned flags)
{
    CUevent event = calloc(1, sizeof(*event));

    (void)flags;
    if (!event)
        fatal("no memory for an event");
    event->context = current("cuEventCreate");
    event->references = 1;
    pthread_mutex_lock(&driver.lock);
    driver.events++;
    pthread_mutex_unlock(&driver.lock);
    *out = event;
    return CUDA_SUCCESS;
}

CALL cuEventRecord(CUevent event, CUstream stream)
{
    struct operation operation = { .kind = RECORD, .event = event };

    if (event->context != current("cuEventRecord"))
        fatal("an event of another device is recorded");
    pthread_mutex_lock(&driver.lock);
    operation.ticket = ++event->recorded;
    stream_put_locked(stream_of_locked(stream, "cuEventRecord"), &operation);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuEventQuery(CUevent event)
{
    bool done;

    current("cuEventQuery");
    pthread_mutex_lock(&driver.lock);
    done = event->done == event->recorded;
    pthread_mutex_unlock(&driver.lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CALL cuEventSynchronize(CUevent event)
{
    current("cuEventSynchronize");
    pthread_mutex_lock(&driver.lock);
    wait_event_locked(event, event->recorded);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CALL cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    bool ready;

    current("cuEventElapsedTime");
    pthread_mutex_lock(&driver.lock);
    ready = from->done == from->recorded && to->done == to->recorded;
    *ms = ready ? (float)(to->ms - from->ms) : 0;
    pthread_mutex_unlock(&driver.lock);
    return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CALL cuEventDestroy_v2(CUevent event)
{
    current("cuEventDestroy");
    pthread_mutex_lock(&driver.lock);
    if (event->destroyed)
        fatal("an event is destroyed twice");
    event->destroyed = true;
    event_drop_locked(event);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}
