/* memory_line.h -- the memory line of the guides, word for word: existing log readers know it. */
#ifndef CLI_MEMORY_LINE_H
#define CLI_MEMORY_LINE_H
#include <stdbool.h>
#include <stdint.h>

#include "forebay.h"
#include "progress.h"

/* What the last line said of the host and of the device. */
struct memory_seen {
    char process[64], system[64], gpu[80];
    double used;       /* share of the system's memory; 0 if it is not known */
    double group;      /* share of the control group's limit; 0 if there is none */
    uint64_t again_ns; /* when to look again; 0: at once */
};

/* "[<where>] Memory - Process: ...MB (...%), System: .../...GB (...%), GPU: ...MB
 * allocated, ...MB reserved"; MB and GB are 2^20 and 2^30, as there. The GPU's is what `loader`
 * (may be NULL) has of device memory: in use now, and in all; n/a on the host. Behind it a warning
 * if more than `warn` (0 ... 1) of the system's memory, or of the control group's limit, is used:
 * in a container that is nearer. What cannot be measured is "n/a".
 * `seen` begins as zeros. */
void memory_line(struct progress *progress, struct memory_seen *seen, const char *where,
                 double warn, forebay_loader *loader);
#endif
