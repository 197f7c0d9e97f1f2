/*
 * page.h -- what a running loader shows of itself to other processes of its user, and what is left
 * of it after its death: one small mapped file of ours in the run folder.
 *
 *     header | copy A | copy B          FB_PAGE_BYTES in all
 *
 * The writer fills the older copy, then its checksum and number: without a lock, in well under a
 * microsecond. A reader takes the copy with the higher number whose checksum is right, so it
 * never sees a torn one, not even of a writer that was killed in the middle. Readers read, they do
 * not map, and believe nothing: sizes, texts and enums are checked.
 *
 * Whose page it is: pid, start time and boot id together are one process for ever.
 */
#ifndef FB_MONITOR_PAGE_H
#define FB_MONITOR_PAGE_H
#include "cache/cache.h"
#include "memory/pressure.h"
#include "pipeline/pipeline.h"

#define FB_PAGE_BYTES ((uint64_t)32768)
#define FB_PAGE_VERSION 1
#define FB_PAGE_DECISIONS 16
#define FB_PAGE_WORKERS 256

struct fb_page_decision {
    uint64_t time_ns;  /* wall clock */
    char text[184];    /* "cache 2 GiB -> 1.5 GiB: the host is short of memory (...)" */
};

/* No pointers and no gaps: written and read as it is. Unknown is FB_UNKNOWN or NAN. */
struct fb_page {
    /* Whose it is */
    uint64_t pid, start, pid_space, uid;
    char boot[40];
    char name[64];     /* "" if it has none */
    char socket[64];   /* where it listens for `set`; "" if it does not */
    uint64_t rank, world;
    char group[256];   /* the memory control group's folder */
    char verdict[400]; /* how it ended, said by whoever found it dead (postmortem.h); "" before */

    /* When: wall clock */
    uint64_t opened_ns, time_ns;

    /* Memory */
    uint64_t limit, used, peak, floor;
    uint64_t by_stage[FB_STAGE_COUNT];
    uint64_t host_total, host_available, swap_used;
    uint64_t group_limit, group_used, left;
    uint64_t resident;          /* of the process */
    uint64_t group_kills, host_kills; /* by the kernel, for want of memory, so far */
    double memory_stalled, cpu_stalled, io_stalled; /* percent of ten seconds */

    /* The cache */
    char policy[16];
    uint64_t has_cache, cache_items, cache_bytes, cache_limit, hits, misses;

    /* The pipeline */
    uint64_t samples, batches, bytes, bytes_read, skipped, replaced, failed;
    uint64_t workers, prefetch, cpu_share, in_flight, ready, held, held_bytes;
    uint64_t epoch, position, epoch_samples; /* where the caller stands, in samples */
    double seconds, wait_s, wait_p50_ms, wait_p99_ms;
    double samples_per_s, bytes_per_s, wait_share; /* of the last second or so; NAN before */
    double read_share, decode_share, copy_share;   /* of the workers' time, the same */
    uint64_t worker_count;
    unsigned char doing[FB_PAGE_WORKERS]; /* enum fb_worker_doing */
    uint64_t alarms;                      /* that have gone off */

    /* The newest decisions; number n is at n % FB_PAGE_DECISIONS */
    uint64_t decision_count;
    struct fb_page_decision decisions[FB_PAGE_DECISIONS];
};

struct fb_page_writer;

/* Make the file in the run folder; `page` gives pid, start and name. Memory for it, FB_PAGE_BYTES
 * and a little, is reserved by the caller. */
int fb_page_open(struct fb_page_writer **out, const struct fb_page *page, forebay_error *error);
void fb_page_write(struct fb_page_writer *writer, const struct fb_page *page);
/* A clean end: the file goes. In a fork's child this does nothing. */
void fb_page_close(struct fb_page_writer *writer);

/* Fill in who we are. */
void fb_page_identify(struct fb_page *page, const char *name);

/* Read one file. BAD_DATA: it is no page, or of another version; MISSING: it is gone, or not
 * ours. */
int fb_page_read(struct fb_page *page, const char *path, forebay_error *error);
/* The same of bytes in memory: what the fuzzer feeds. */
bool fb_page_parse(struct fb_page *page, const void *bytes, size_t size);
/* A whole file with this page in it. */
void fb_page_format(char bytes[FB_PAGE_BYTES], const struct fb_page *page);
/* Write the verdict into the file of a dead process, where it stays. */
void fb_page_settle(const char *path, const struct fb_page *page);
/* Does the process it is of still run? */
bool fb_page_is_alive(const struct fb_page *page);

/* Every page of the run folder, in the order of their names: call fn for each that can be read.
 * fn returns false to end. */
typedef bool (*fb_page_fn)(void *data, const struct fb_page *page, const char *path);
int fb_page_list(fb_page_fn fn, void *data, forebay_error *error);
#endif
