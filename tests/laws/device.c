#include "device.h"

#include <dlfcn.h>
#include <stdio.h>

struct emulated *device_control(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NODELETE);
    emulated_control_fn fn;

    if (!library)
        fail_msg("%s", dlerror());
    *(void **)(void *)&fn = dlsym(library, "emulated_control");
    dlclose(library);
    if (!fn)
        fail_msg("this is no emulated driver: LD_LIBRARY_PATH must name tests/emulated");
    return fn();
}

int device_settle(void **state)
{
    struct emulated *emulated = device_control();

    (void)state;
    emulated->devices = 4;
    emulated->memory_bytes = (uint64_t)64 << 20;
    emulated->ns_per_mb = emulated->allocations = emulated->peak_bytes = 0;
    emulated->fail_first = emulated->fail_last = 0;
    return 0;
}

bool device_is_missing(const char *device)
{
    forebay_loader *loader;
    forebay_error error;
    int status = FOREBAY_NO_DEVICE;

    /* PoCL is not compiled for the thread sanitizer, which then sees races where there are none. */
    if (!FB_SANITIZED_THREAD)
        status = law_open_frames(&loader, NULL, &error, device, "memory.budget=64MiB", NULL);
    if (!status)
        forebay_close(loader);
    else
        printf("not tested: %s\n", device);
    return status != FOREBAY_OK;
}
