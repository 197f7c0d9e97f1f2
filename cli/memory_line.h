/* memory_line.h -- the memory line of the guides, word for word: existing log readers know it. */
#ifndef CLI_MEMORY_LINE_H
#define CLI_MEMORY_LINE_H
#include <stdbool.h>
#include <stdint.h>

#include "forebay.h"
#include "progress.h"

/* "[<where>] Memory - Process: ...MB (...%), System: .../...GB (...%), GPU: ...MB
 * allocated, ...MB reserved"; MB and GB are 2^20 and 2^30, as there. The GPU's is what `loader` (may
 * be NULL) has of device memory: in use now, and in all; n/a on the host. Behind it a warning if
 * more than `warn` (0 ... 1) of the system's memory is used. What cannot be measured is "n/a". */
void memory_line(struct progress *progress, const char *where, double warn,
                 forebay_loader *loader);
#endif
