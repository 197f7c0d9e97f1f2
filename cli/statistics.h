/* statistics.h -- forebay_stats_json read back, and told to a person. */
#ifndef CLI_STATISTICS_H
#define CLI_STATISTICS_H
#include <jansson.h>

#include "forebay.h"
#include "progress.h"

/* What the loader says of itself; NULL if there is no memory for it. The caller drops it. */
json_t *statistics_read(forebay_loader *loader);
/* The number at "memory.peak_bytes"; NAN if it is not there or null: unknown is never 0. */
double statistics_number(const json_t *statistics, const char *path);
const char *statistics_text(const json_t *statistics, const char *path); /* "" if not there */

/* "[train] Cache Stats:" and three lines, in the guide's words; nothing without a cache. */
void statistics_say_cache(struct progress *progress, const json_t *statistics, const char *name);
/* The summary at the end, on stdout. */
void statistics_print(const json_t *statistics, const char *checksum);
#endif
