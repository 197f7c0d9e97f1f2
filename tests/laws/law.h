/* law.h -- what the tests of the whole share: small data on disk, an opener, a digest of all that
 * a run delivers. Everything goes through forebay.h, as a trainer would. */
#ifndef LAW_H
#define LAW_H
#include <stdarg.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sanitized.h"
#include "forebay.h"

#define LAW_SCANS 203  /* a prime-like number: no batch size divides it */
#define LAW_FRAMES 48

/* `soak` under FOREBAY_SOAK=1, else `usual`. */
unsigned law_count(unsigned usual, unsigned soak);

/* A folder of our own under $TMPDIR with scans/NNNNNN.bin (100 to 400 rows of four f32, 1.6 to
 * 6.4 kB) and frames/NNN.npy (u8 [256, 512]: 128 KiB). Made once per process, removed at exit. */
const char *law_folder(void);

/* Open scans or frames with further settings, the last of which is NULL. */
int law_open_scans(forebay_loader **out, forebay_budget *budget, forebay_error *error, ...)
    __attribute__((sentinel));
int law_open_frames(forebay_loader **out, forebay_budget *budget, forebay_error *error, ...)
    __attribute__((sentinel));

/* Everything a caller can see of a batch, mixed into `digest`. */
uint64_t law_digest(uint64_t digest, const forebay_batch *batch);
/* Run to the end of the epoch; the test fails on any error. Returns the digest. */
uint64_t law_run_epoch(uint64_t digest, forebay_loader *loader);

/* One number of forebay_stats_json, e.g. "memory", "peak_bytes". */
uint64_t law_stat(forebay_loader *loader, const char *group, const char *name);

/* Of this process, right now. */
unsigned law_fds(void);
unsigned law_threads(void);
/* Without any loader: one, or what a sanitizer adds as soon as there was a second one. */
unsigned law_threads_alone(void);
/* The kernel lists a thread for a moment after it was joined: true as soon as there are `count`. */
bool law_threads_become(unsigned count);
uint64_t law_rss_bytes(void);

/* Fail with the loader's own words. */
#define law_ok(call)                                                      \
    do {                                                                  \
        forebay_error *law_error_ = &error;                               \
        if ((call) != FOREBAY_OK)                                         \
            fail_msg("%s: %s", #call, law_error_->message);               \
    } while (0)
#endif
