/* inside.h -- what the files of the emulated driver share. One lock guards everything. */
#ifndef TESTS_EMULATED_INSIDE_H
#define TESTS_EMULATED_INSIDE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"
#include "emulated.h"

#define KERNEL_PARAMETERS 8

struct CUctx_st {
    int device;
    unsigned retained;
    uint64_t used;
    struct CUstream_st *legacy; /* the default stream, made when first used */
};

/* Device memory: an address nobody can read, and the bytes behind it. */
struct allocation {
    struct allocation *next;
    CUcontext context;
    char *address;
    char *bytes;
    size_t size;
};

struct registration {
    struct registration *next;
    const char *memory;
    size_t size;
};

struct CUevent_st {
    CUcontext context;
    uint64_t recorded, done; /* which record was asked for last, which was reached */
    double ms;               /* when */
    unsigned references;     /* the owner and operations under way */
    bool destroyed;
};

struct operation {
    struct operation *next;
    enum { COPY_IN, COPY_INSIDE, KERNEL, RECORD, WAIT, SLOW_READ } kind;
    const char *host; /* COPY_IN: from */
    uint64_t host_sum;
    struct allocation *memory[3]; /* what it touches; NULL: nothing more */
    char *to, *from;              /* the bytes behind the addresses */
    size_t size;
    uint64_t ns;
    CUevent event;
    uint64_t ticket; /* which record of the event */
    CUfunction kernel;
    uint64_t numbers[KERNEL_PARAMETERS], items;
    char *parameters[3];
    uint64_t *sum;
};

struct CUstream_st {
    struct CUstream_st *next; /* of all streams */
    CUcontext context;
    pthread_t thread;
    pthread_cond_t more;
    struct operation *first, *last; /* the first is the one under way */
    bool closing;
};

struct CUfunc_st {
    const char *name;
    unsigned memories, numbers;
    void (*run)(char *const *memories, const uint64_t *numbers);
};

struct driver {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an event fired, a stream became idle */
    struct emulated control;
    bool started;
    int pid;
    struct CUctx_st contexts[16];
    struct allocation *allocations;
    struct registration *registrations;
    struct CUstream_st *streams;
    uint64_t events, modules;
};
extern struct driver driver;

/* libcuda.c */
struct CUstream_st *stream_of_locked(CUstream stream, const char *call);
char *device_bytes_locked(CUdeviceptr address, struct allocation **memory, const char *call);
void fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* stream.c */
struct CUstream_st *stream_new_locked(CUcontext context);
void stream_close(struct CUstream_st *stream);
void stream_put_locked(struct CUstream_st *stream, const struct operation *operation);
/* Does anything in flight use this device memory, or read this host memory? */
bool in_flight_locked(const struct allocation *memory, const char *host, size_t size);
void wait_idle_locked(const struct CUstream_st *stream);
void wait_event_locked(CUevent event, uint64_t ticket);
void event_drop_locked(CUevent event);
/* kernels.c */
CUfunction kernel_find(const char *name);
void kernel_run(const struct operation *operation);
#endif
