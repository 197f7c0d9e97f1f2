/*
 * cuda_driver.h -- what we use of the CUDA driver: every symbol, constant and type, once.
 *
 * The driver is found at run time (dlopen of libcuda.so.1) and nothing of CUDA is needed to build.
 * Where a toolkit is installed, tests/emulated/check_cuda.c compiles this file against the real
 * cuda.h (FB_REAL_CUDA_H), so that a wrong signature or number cannot stay.
 */
#ifndef FB_DEVICE_CUDA_DRIVER_H
#define FB_DEVICE_CUDA_DRIVER_H
#include <stddef.h>

#ifdef FB_REAL_CUDA_H
#include <cuda.h>
#else
typedef unsigned CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef unsigned CUdevice_attribute;
#endif

/* X(name, value) */
#define FB_CUDA_CONSTANTS(X)                        \
    X(CUDA_SUCCESS, 0)                              \
    X(CUDA_ERROR_INVALID_VALUE, 1)                  \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                  \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                \
    X(CUDA_ERROR_DEINITIALIZED, 4)                  \
    X(CUDA_ERROR_NO_DEVICE, 100)                    \
    X(CUDA_ERROR_INVALID_DEVICE, 101)               \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)              \
    X(CUDA_ERROR_NOT_FOUND, 500)                    \
    X(CUDA_ERROR_NOT_READY, 600)                    \
    X(CU_EVENT_DEFAULT, 0)                          \
    X(CU_STREAM_NON_BLOCKING, 1)                    \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1)               \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)

#ifndef FB_REAL_CUDA_H
enum {
#define FB_X(name, value) name = value,
    FB_CUDA_CONSTANTS(FB_X)
#undef FB_X
};
#endif

/* X(name in cuda.h, symbol in the library, parameters): all return CUresult. A symbol that has a
 * version in its name is what cuda.h of every toolkit since 4.0 (2011) makes of the plain name. */
#define FB_CUDA_SYMBOLS(X)                                                                       \
    X(cuInit, "cuInit", (unsigned))                                                              \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *))                                         \
    X(cuGetErrorName, "cuGetErrorName", (CUresult, const char **))                               \
    X(cuGetErrorString, "cuGetErrorString", (CUresult, const char **))                           \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *))                                             \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int))                                             \
    X(cuDeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                               \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))             \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", (CUdevice))                        \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                      \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *))                                      \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                     \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                      \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr))                                                  \
    X(cuMemHostRegister, "cuMemHostRegister_v2", (void *, size_t, unsigned))                     \
    X(cuMemHostUnregister, "cuMemHostUnregister", (void *))                                      \
    X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))  \
    X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))                      \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))                            \
    X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))   \
    X(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned))                                  \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream))                                         \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream))                                    \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                     \
    X(cuEventCreate, "cuEventCreate", (CUevent *, unsigned))                                     \
    X(cuEventRecord, "cuEventRecord", (CUevent, CUstream))                                       \
    X(cuEventQuery, "cuEventQuery", (CUevent))                                                   \
    X(cuEventSynchronize, "cuEventSynchronize", (CUevent))                                       \
    X(cuEventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent))                     \
    X(cuEventDestroy, "cuEventDestroy_v2", (CUevent))                                            \
    X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *))                          \
    X(cuModuleUnload, "cuModuleUnload", (CUmodule))                                              \
    X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))        \
    X(cuLaunchKernel, "cuLaunchKernel",                                                          \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
       CUstream, void **, void **))

struct fb_cuda_driver {
#define FB_X(name, symbol, parameters) CUresult(*name) parameters;
    FB_CUDA_SYMBOLS(FB_X)
#undef FB_X
};
#endif
