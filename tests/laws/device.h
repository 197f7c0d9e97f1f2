/* device.h -- what the laws about devices share: the emulated driver's switches. */
#ifndef LAW_DEVICE_H
#define LAW_DEVICE_H
#include "emulated.h"
#include "law.h"

/* The emulated driver, which must be the libcuda.so.1 that is found. */
struct emulated *device_control(void);
/* A test's setup: four devices of 64 MiB, no delays, no failures. */
int device_settle(void **state);
/* "device.kind=opencl:0" cannot be opened here; says so. */
bool device_is_missing(const char *device);
#endif
