#include "monitor/gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What we use of the library, in its own words; every call returns 0 for success. */
struct nvml_utilisation {
    unsigned gpu, memory;
};
struct nvml_memory {
    unsigned long long total, free, used;
};
#define NVML_SYMBOLS(X)                                                       \
    X(nvmlInit_v2, (void))                                                    \
    X(nvmlShutdown, (void))                                                   \
    X(nvmlDeviceGetCount_v2, (unsigned *count))                               \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void **device))         \
    X(nvmlDeviceGetName, (void *device, char *name, unsigned length))         \
    X(nvmlDeviceGetUtilizationRates, (void *device, struct nvml_utilisation *rates)) \
    X(nvmlDeviceGetMemoryInfo, (void *device, struct nvml_memory *memory))    \
    X(nvmlDeviceGetPowerUsage, (void *device, unsigned *milliwatts))          \
    X(nvmlDeviceGetTemperature, (void *device, int sensor, unsigned *degrees))

struct fb_gpus {
    void *library;
    unsigned count;
#define FB_X(name, arguments) int(*name) arguments;
    NVML_SYMBOLS(FB_X)
#undef FB_X
};

static bool symbol_find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);

    memcpy(to, &symbol, sizeof(symbol)); /* C knows no cast from data to functions */
    return symbol != NULL;
}

struct fb_gpus *fb_gpus_open(void)
{
    struct fb_gpus *gpus = calloc(1, sizeof(*gpus));
    bool good = gpus != NULL, begun = false;

    if (good)
        gpus->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    good = good && gpus->library;
#define FB_X(name, arguments) good = good && symbol_find(gpus->library, #name, &gpus->name);
    NVML_SYMBOLS(FB_X)
#undef FB_X
    begun = good && gpus->nvmlInit_v2() == 0;
    if (begun && gpus->nvmlDeviceGetCount_v2(&gpus->count) == 0)
        return gpus;
    if (begun)
        gpus->nvmlShutdown();
    if (gpus && gpus->library)
        dlclose(gpus->library);
    free(gpus);
    return NULL;
}

void fb_gpus_close(struct fb_gpus *gpus)
{
    if (!gpus)
        return;
    gpus->nvmlShutdown();
    dlclose(gpus->library);
    free(gpus);
}

static void gpu_read(struct fb_gpus *gpus, unsigned index, struct fb_gpu *gpu)
{
    struct nvml_utilisation rates;
    struct nvml_memory memory;
    unsigned value;
    void *device;

    *gpu = (struct fb_gpu){ "", NAN, NAN, NAN, NAN, NAN };
    if (gpus->nvmlDeviceGetHandleByIndex_v2(index, &device))
        return;
    (void)gpus->nvmlDeviceGetName(device, gpu->name, sizeof(gpu->name));
    gpu->name[sizeof(gpu->name) - 1] = '\0';
    if (!gpus->nvmlDeviceGetUtilizationRates(device, &rates))
        gpu->utilisation = rates.gpu;
    if (!gpus->nvmlDeviceGetMemoryInfo(device, &memory)) {
        gpu->memory_used = (double)memory.used;
        gpu->memory_total = (double)memory.total;
    }
    if (!gpus->nvmlDeviceGetPowerUsage(device, &value))
        gpu->power = value / 1000.0;
    if (!gpus->nvmlDeviceGetTemperature(device, 0, &value))
        gpu->temperature = value;
}

unsigned fb_gpus_read(struct fb_gpus *gpus, struct fb_gpu out[FB_GPUS_MAX])
{
    unsigned count = gpus ? gpus->count : 0;

    count = count < FB_GPUS_MAX ? count : FB_GPUS_MAX;
    for (unsigned i = 0; i < count; i++)
        gpu_read(gpus, i, &out[i]);
    return count;
}
