/* module.c -- the emulated driver's modules and launches: PTX is looked at, kernels.c runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#define EXPORTED __attribute__((visibility("default")))
#define CALL EXPORTED CUresult

struct CUmod_st {
    char *text;
};

CALL cuModuleLoadData(CUmodule *out, const void *image)
{
    CUmodule module = malloc(sizeof(*module));

    if (!module || !strstr(image, ".version"))
        fatal("cuModuleLoadData: this is no PTX");
    module->text = strdup(image);
    pthread_mutex_lock(&driver.lock);
    driver.modules++;
    pthread_mutex_unlock(&driver.lock);
    *out = module;
    return CUDA_SUCCESS;
}

CALL cuModuleUnload(CUmodule module)
{
    pthread_mutex_lock(&driver.lock);
    driver.modules--;
    pthread_mutex_unlock(&driver.lock);
    free(module->text);
    free(module);
    return CUDA_SUCCESS;
}

/* Only what the PTX really has. */
CALL cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    char entry[96];

    snprintf(entry, sizeof(entry), ".visible .entry %s(", name);
    *out = strstr(module->text, entry) ? kernel_find(name) : NULL;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CALL cuLaunchKernel(CUfunction kernel, unsigned blocks, unsigned y, unsigned z, unsigned threads,
                    unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream,
                    void **parameters, void **extra)
{
    struct operation operation = { .kind = KERNEL, .kernel = kernel,
                                   .items = (uint64_t)blocks * threads };

    if (y != 1 || z != 1 || threads_y != 1 || threads_z != 1 || shared || extra || threads > 1024)
        fatal("cuLaunchKernel: not as our kernels are launched");
    pthread_mutex_lock(&driver.lock);
    for (unsigned i = 0; i < kernel->memories; i++)
        operation.parameters[i] = device_bytes_locked(*(CUdeviceptr *)parameters[i],
                                                      &operation.memory[i], "cuLaunchKernel");
    for (unsigned i = 0; i < kernel->numbers; i++)
        operation.numbers[i] = *(uint64_t *)parameters[kernel->memories + i];
    driver.control.launches++;
    stream_put_locked(stream_of_locked(stream, "cuLaunchKernel"), &operation);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}
