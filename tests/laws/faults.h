/* faults.h -- let one call of a kind fail, the n-th of a run. The program is linked with
 * --wrap for each function named here, so that our own calls come here first; calls inside other
 * libraries do not. */
#ifndef FAULTS_H
#define FAULTS_H
#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_MEMORY, /* malloc, calloc, realloc, aligned_alloc, posix_memalign, strdup, strndup, mmap,
                     mremap, memfd_create, pthread_create: ENOMEM or EAGAIN */
    FAULT_READ,   /* pread, preadv, preadv2: EIO, once */
    FAULT_SHORT,  /* the same: one byte less than asked for */
    FAULT_OPEN,   /* open, openat, opendir: EIO */
};

/* From now on the `at`-th call of this kind (from 1) fails; all others go through. */
void faults_begin(enum fault_kind kind, uint64_t at);
/* Stop. Did a call fail? */
bool faults_end(void);
/* Bytes mapped and not unmapped again since the program began, through the wrapped functions. */
int64_t faults_mapped_bytes(void);
#endif
