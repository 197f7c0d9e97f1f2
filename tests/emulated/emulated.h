/*
 * emulated.h -- a CUDA driver of our own for tests: libcuda.so.1 with real asynchronous streams (a
 * thread each), events, several devices, limited memory and errors on demand. It is strict: it
 * aborts, with a sentence, on an asynchronous copy from memory that is not pinned, on host memory
 * that changes between the start of a copy and its end, on freeing memory that something in flight
 * uses, on use from a wrong context, on device memory that changes under a reader, and on anything
 * left behind at exit. Device addresses are not readable by the host.
 *
 * From the environment, or through emulated_control() by dlsym:
 *   EMULATED_CUDA_DEVICES      how many there are (1)
 *   EMULATED_CUDA_MEMORY       bytes of each (256 MiB)
 *   EMULATED_CUDA_NS_PER_MB    what a copy takes beyond the copying itself (0)
 *   EMULATED_CUDA_FAIL         the allocation that fails, counted from 1; "5-": that and all later
 */
#ifndef TESTS_EMULATED_H
#define TESTS_EMULATED_H
#include <stdint.h>

struct emulated {
    /* Written by the test while nothing runs: */
    unsigned devices;
    uint64_t memory_bytes;
    uint64_t ns_per_mb;
    uint64_t fail_first, fail_last; /* allocations [first, last] fail; 0: none */

    /* Read by the test: */
    uint64_t allocations; /* of device or pinned memory, asked for since it was set to 0 */
    uint64_t peak_bytes;  /* of device memory, of any one device */
    uint64_t copied_bytes, copies, launches;

    /* What a trainer does: on the default stream of the current context (`stream` NULL) read
     * `bytes` of device memory, take `ns`, read them again. Aborts if they changed meanwhile.
     * *sum, if any, is the sum of the bytes when it is done. */
    void (*slow_read)(void *stream, uint64_t address, uint64_t bytes, uint64_t ns, uint64_t *sum);
    void (*wait_all)(void); /* until every stream is idle */
};

typedef struct emulated *(*emulated_control_fn)(void);
#endif
