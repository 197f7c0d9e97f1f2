/* kernels.c -- our kernels on the processor: kernels.cl itself, compiled as C. */
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "inside.h"

typedef unsigned char uchar;
static _Thread_local uint64_t item;

#define __kernel static
#define __global
#define get_global_id(dimension) item
#include "device/kernels.cl"

/* Bytes as the type a kernel declares; device memory is aligned. */
#define OF(type, memory) ((type *)(void *)(memory))

static void run_gather(char *const *memories, const uint64_t *numbers)
{
    fb_gather(OF(uchar, memories[0]), OF(uchar, memories[1]), OF(uchar, memories[2]), numbers[0],
              numbers[1], numbers[2]);
}

static void run_cast_f16(char *const *memories, const uint64_t *numbers)
{
    fb_cast_f16(OF(ushort, memories[0]), OF(uint, memories[1]), numbers[0]);
}

static void run_cast_bf16(char *const *memories, const uint64_t *numbers)
{
    fb_cast_bf16(OF(ushort, memories[0]), OF(uint, memories[1]), numbers[0]);
}

static void run_normalise(char *const *memories, const uint64_t *numbers)
{
    fb_normalise(OF(float, memories[0]), OF(float, memories[1]), OF(float, memories[2]), numbers[0],
                 numbers[1], numbers[2]);
}

static struct CUfunc_st functions[] = {
    { "fb_gather", 3, 3, run_gather },
    { "fb_cast_f16", 2, 1, run_cast_f16 },
    { "fb_cast_bf16", 2, 1, run_cast_bf16 },
    { "fb_normalise", 3, 3, run_normalise },
};

CUfunction kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (!strcmp(functions[i].name, name))
            return &functions[i];
    return NULL;
}

void kernel_run(const struct operation *operation)
{
    for (item = 0; item < operation->items; item++)
        operation->kernel->run(operation->parameters, operation->numbers);
}
