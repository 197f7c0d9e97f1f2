/*
 * forebay.h -- a training data loader that never exceeds its memory budget. Linux only.
 *
 *   source -> decode -> RAM cache -> finish -> slot -> device -> batch
 *      '- in an order known in advance       every byte charged to one budget
 *
 *     const char *settings[] = { "source.kind=bin", "source.path=scans/ *.bin",
 *                                "batch.size=16", "memory.budget=2GiB" };
 *     forebay_options options = FOREBAY_OPTIONS_INIT;
 *     options.settings = settings;
 *     options.setting_count = 4;
 *     if (forebay_open(&loader, &options, &error))
 *         die(error.message);
 *     while ((status = forebay_next(&batch, loader, &error)) == FOREBAY_OK) {
 *         train_on(batch);
 *         forebay_batch_release(batch);
 *     }                                      (FOREBAY_END: one epoch is over)
 *     forebay_close(loader);
 *
 * True of every function here:
 *   result     0, a positive status that is no error, or a negative one. `error` may be NULL.
 *   ownership  What comes out through the first parameter is the caller's, until given to the
 *              matching _close, _free or _release. Pointers inside a struct are borrowed from
 *              it; strings passed in are copied.
 *   threads    One thread at a time per loader, except where it says [any thread].
 *   fork       A loader belongs to the process that opened it. In a child, forebay_next, _set
 *              and _state_save fail with FOREBAY_FORKED; release and close do nothing there.
 *   units      *_bytes, *_ns, *_s mean what they say, everywhere.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FOREBAY_VERSION "0.1.0"

#if defined(__GNUC__)
#define FOREBAY_API __attribute__((visibility("default")))
#else
#define FOREBAY_API
#endif

/* Every status, once: the enum, its names and the Python exceptions are made from this list. */
#define FOREBAY_STATUS_MAP(X)                                              \
    X(MISS, 3, "it is not in the cache")                                   \
    X(TIMEOUT, 2, "nothing was ready in time")                             \
    X(END, 1, "the epoch is over")                                         \
    X(OK, 0, "success")                                                    \
    X(NO_MEMORY, -1, "the system refused memory")                          \
    X(OVER_BUDGET, -2, "more bytes than the budget can ever hold")         \
    X(BAD_CONFIG, -3, "a setting is unknown, missing or out of range")     \
    X(BAD_DATA, -4, "data is malformed or not what was expected")          \
    X(MISSING, -5, "a file is not there or may not be read")               \
    X(IO, -6, "a read or a write failed")                                  \
    X(NO_DEVICE, -7, "the device or its driver is not there")              \
    X(STOPPED, -8, "the loader is closed or being closed")                 \
    X(HELD, -9, "the caller holds every batch the budget has room for")    \
    X(NOT_BUILT, -10, "this part of forebay is not built yet")             \
    X(BAD_STATE, -11, "a saved state does not fit this loader")            \
    X(FORKED, -12, "the loader belongs to the process that opened it")     \
    X(BAD_USE, -13, "the call is not allowed here")

typedef enum forebay_status {
#define FOREBAY_X(name, value, text) FOREBAY_##name = value,
    FOREBAY_STATUS_MAP(FOREBAY_X)
#undef FOREBAY_X
} forebay_status;

/* "OVER_BUDGET" for FOREBAY_OVER_BUDGET; "?" for a number that is no status [any thread]. */
FOREBAY_API const char *forebay_status_name(int status);

/* What went wrong: one complete sentence for a person, and where ("" if nowhere in particular):
 * a file, "file:line:column" of a configuration, or a key. */
typedef struct forebay_error {
    forebay_status status;
    char place[320];
    char message[704];
} forebay_error;

/* Every element type: name, bytes, NumPy's name, DLPack code. */
#define FOREBAY_DTYPE_MAP(X)       \
    X(U8, 1, "u8", "uint8", 1)     \
    X(U16, 2, "u16", "uint16", 1)  \
    X(U32, 4, "u32", "uint32", 1)  \
    X(U64, 8, "u64", "uint64", 1)  \
    X(I8, 1, "i8", "int8", 0)      \
    X(I16, 2, "i16", "int16", 0)   \
    X(I32, 4, "i32", "int32", 0)   \
    X(I64, 8, "i64", "int64", 0)   \
    X(F16, 2, "f16", "float16", 2) \
    X(BF16, 2, "bf16", "bfloat16", 4) \
    X(F32, 4, "f32", "float32", 2) \
    X(F64, 8, "f64", "float64", 2) \
    X(C64, 8, "c64", "complex64", 5) \
    X(C128, 16, "c128", "complex128", 5) \
    X(BOOL, 1, "bool", "bool", 6)

typedef enum forebay_dtype {
#define FOREBAY_X(name, bytes, text, numpy, dlpack) FOREBAY_##name,
    FOREBAY_DTYPE_MAP(FOREBAY_X)
#undef FOREBAY_X
} forebay_dtype;

FOREBAY_API size_t forebay_dtype_bytes(forebay_dtype dtype);
FOREBAY_API const char *forebay_dtype_name(forebay_dtype dtype); /* "f32" */

typedef struct forebay_loader forebay_loader;
typedef struct forebay_budget forebay_budget;

/* ---- One ceiling that several loaders of this process may share (train + val) ---- */

FOREBAY_API int forebay_budget_new(forebay_budget **out, uint64_t bytes, forebay_error *error);
/* Loaders opened with it keep it alive: it may be freed right after they were opened. */
FOREBAY_API void forebay_budget_free(forebay_budget *budget);

/* ---- Open ---- */

/* `level`: 0 talk, 1 warning. `line` has no newline. Called from any thread, never under a lock. */
typedef void (*forebay_log_fn)(void *data, int level, const char *line);
/* Long work: `done` of `total` (0: unknown) of `what`. Called from the thread that opens. A
 * result other than 0 asks to give up: the call under way fails with FOREBAY_STOPPED. */
typedef int (*forebay_progress_fn)(void *data, const char *what, uint64_t done, uint64_t total);

/* What to load and within which bounds. Unset members mean "nothing", not a default. */
typedef struct forebay_options {
    size_t struct_bytes;          /* set by FOREBAY_OPTIONS_INIT, lets the struct grow later */
    const char *config_file;      /* a YAML file, or NULL */
    const char *config_text;      /* YAML (so also JSON) text instead of a file, or NULL */
    const char *const *settings;  /* "memory.budget=8GiB": over the file, in this order */
    size_t setting_count;
    forebay_budget *budget;       /* shared; NULL: one of its own from memory.budget */
    forebay_log_fn log;           /* NULL: silent */
    forebay_progress_fn progress; /* NULL: none */
    void *data;                   /* for log and progress */
} forebay_options;
#define FOREBAY_OPTIONS_INIT { .struct_bytes = sizeof(forebay_options) }

/* The key of the configuration that `keyword` is short for ("memory" -> "memory.budget"), or NULL
 * [any thread]. */
FOREBAY_API const char *forebay_key_of(const char *keyword);

/* Open what `options` describes: reads the source's index, plans memory, starts the workers. */
FOREBAY_API int forebay_open(forebay_loader **out, const forebay_options *options,
                             forebay_error *error);
/* Returns within a second from any state. Batches still held stay valid. */
FOREBAY_API void forebay_close(forebay_loader *loader);

/* ---- Batches ---- */

typedef struct forebay_field {
    const char *name;
    forebay_dtype dtype;
    unsigned ndim;
    const int64_t *shape; /* `ndim` numbers; the elements are contiguous, in C order */
    void *data;           /* 64-byte aligned; never NULL. On a device (see the batch's device_type)
                             an address there (CUDA), or a cl_mem of this field alone (OpenCL) */
    size_t bytes;
} forebay_field;

typedef struct forebay_batch {
    uint64_t epoch;
    uint64_t number; /* of the epoch, from 0; counts batches that were passed over, too */
    size_t samples;
    size_t bytes;    /* of all fields */
    size_t field_count;
    const forebay_field *fields; /* "index" comes first */
    int device_type;             /* DLPack's code: 1 host, 2 CUDA, 4 OpenCL */
    int device_id;
} forebay_batch;

/* The next batch of the epoch. FOREBAY_END when the epoch is over; the call after that starts the
 * next one. After an error of one batch the next call goes on behind it. */
FOREBAY_API int forebay_next(forebay_batch **out, forebay_loader *loader, forebay_error *error);
/* The same, but waits at most `timeout_ns`: FOREBAY_TIMEOUT, and nothing is lost. */
FOREBAY_API int forebay_next_within(forebay_batch **out, forebay_loader *loader,
                                    uint64_t timeout_ns, forebay_error *error);
/* Give the batch back; its memory will be written again. [any thread], also after close. */
FOREBAY_API void forebay_batch_release(forebay_batch *batch);
FOREBAY_API const forebay_field *forebay_batch_field(const forebay_batch *batch, const char *name);

/* Batches on a device (device.kind: cuda:N, opencl:N). Their copy is started ahead and may still be
 * under way when next returns: then CUDA's legacy default stream waits for it, and the event that
 * protects the batch at release is recorded there. Whoever works on another stream says so before,
 * once for each batch: `stream` (CUstream, cl_command_queue of the buffers' context) waits for the
 * copy, and the batch's memory is written again only when all that was on `stream` at release is
 * done. At most 4 streams; without this call, OpenCL's next waits until the copy is done, and
 * release means that nothing uses the batch any more. A batch the device has no room for comes in
 * host memory, with device_type 1: look at it. In host memory this does nothing.
 * [any thread, one at a time per batch] */
FOREBAY_API int forebay_batch_use_on(forebay_batch *batch, void *stream, forebay_error *error);
/* Copy a field's bytes to `to` in host memory, wherever the batch is; done when it returns. */
FOREBAY_API int forebay_batch_read(const forebay_batch *batch, const forebay_field *field, void *to,
                                   forebay_error *error);

/* Give memory of the device back: about `bytes` of what device.cache holds, for good. Returns what
 * was given, also 0: what batches in flight count on stays. [any thread] */
FOREBAY_API uint64_t forebay_device_trim(forebay_loader *loader, uint64_t bytes);

/* ---- Epochs and state ---- */

/* Batches and samples this rank gets from a whole epoch. */
FOREBAY_API uint64_t forebay_epoch_batches(const forebay_loader *loader);
FOREBAY_API uint64_t forebay_epoch_samples(const forebay_loader *loader);
/* Drop what is under way and begin `epoch` at its first batch. */
FOREBAY_API int forebay_set_epoch(forebay_loader *loader, uint64_t epoch, forebay_error *error);

/* The state after the last batch handed out, as one line of JSON; O(1), <= FOREBAY_STATE_BYTES. */
#define FOREBAY_STATE_BYTES 1024
FOREBAY_API int forebay_state_save(const forebay_loader *loader, char text[FOREBAY_STATE_BYTES],
                                   forebay_error *error);
/* Go on exactly behind it. Give the states of all ranks, or any one of them if they were in step:
 * the smallest position counts; how many samples that repeats is logged. */
FOREBAY_API int forebay_state_load(forebay_loader *loader, const char *const *texts, size_t count,
                                   forebay_error *error);

/* ---- Live control and what is measured [any thread] ---- */

typedef struct forebay_set_result {
    char old_value[64];
    char new_value[64];     /* what was reached */
    uint64_t held_batches;  /* by the caller, right now */
    uint64_t held_bytes;
    char also[128];         /* what else changed: "memory.cache 100 MiB -> 60 MiB", or "" */
} forebay_set_result;

/* Change a live key ("workers", "prefetch", "memory.budget", "cpu.share"), as `forebay set` does.
 * Effective within one batch; the order of samples never changes. From then on the governor leaves
 * it alone; the value "auto" gives it back. `result` may be NULL. */
FOREBAY_API int forebay_set(forebay_loader *loader, const char *key, const char *value,
                            forebay_set_result *result, forebay_error *error);

/* All of `forebay run --json`, as one JSON object. Writes at most `size` bytes with the NUL and
 * returns the length that was needed, like snprintf. */
FOREBAY_API size_t forebay_stats_json(forebay_loader *loader, char *text, size_t size);

/* ---- A cache of one's own: items of any bytes by number, one for all processes of a node ----
 *
 *     if (forebay_cache_find(cache, number, &item, &error) == FOREBAY_OK) {
 *         forebay_cache_read(cache, &item, 0, memory, item.bytes, &error);
 *         forebay_cache_done(cache, &item);
 *     } else {                               (FOREBAY_MISS)
 *         load(number, memory, &bytes);
 *         forebay_cache_put(cache, number, &(forebay_piece){ memory, bytes }, 1, load_ns, &error);
 *     }
 *
 * Processes that open one of the same identity and number of items share it: an item is kept once,
 * and the limit is of all together. A child of a fork is a process of its own and joins by itself,
 * with its first call. It lives as long as one process has it open; a kill -9 of any of them loses
 * nothing and leaves nothing. All functions [any thread]. */

typedef struct forebay_cache forebay_cache;

typedef struct forebay_cache_options {
    size_t struct_bytes;  /* set by FOREBAY_CACHE_OPTIONS_INIT */
    const char *identity; /* any text: who says the same, with as many items, shares */
    uint64_t items;       /* they are numbered 0 .. items - 1 */
    uint64_t limit_bytes; /* of items and index, of all processes together */
    const char *policy;   /* "fill" (NULL) keeps what came first, "lru" what was used last */
    forebay_log_fn log;   /* NULL: silent */
    void *data;
} forebay_cache_options;
#define FOREBAY_CACHE_OPTIONS_INIT { .struct_bytes = sizeof(forebay_cache_options) }

/* Where sharing is impossible it says so (log, level 1) and nothing is kept: a cache for each
 * process would multiply the memory. */
FOREBAY_API int forebay_cache_open(forebay_cache **out, const forebay_cache_options *options,
                                   forebay_error *error);
FOREBAY_API void forebay_cache_close(forebay_cache *cache);

/* An item that stays where it is until forebay_cache_done. */
typedef struct forebay_item {
    uint64_t number;
    uint64_t bytes;
    uint64_t use;       /* this use's number among those of all processes, from 1; also of a miss */
    uint64_t inside[3]; /* the cache's own */
} forebay_item;

/* FOREBAY_OK, and then forebay_cache_done is due; or FOREBAY_MISS. */
FOREBAY_API int forebay_cache_find(forebay_cache *cache, uint64_t number, forebay_item *item,
                                   forebay_error *error);
/* Copy bytes [offset, offset + bytes) of it out. */
FOREBAY_API int forebay_cache_read(forebay_cache *cache, const forebay_item *item, uint64_t offset,
                                   void *to, uint64_t bytes, forebay_error *error);
FOREBAY_API void forebay_cache_done(forebay_cache *cache, forebay_item *item);

/* Keep a copy of these pieces, one behind the other, as one item; `load_ns` is what it cost to make
 * them. FOREBAY_MISS: it was not kept (no room, or somebody else did just now). */
typedef struct forebay_piece {
    const void *data;
    uint64_t bytes;
} forebay_piece;
FOREBAY_API int forebay_cache_put(forebay_cache *cache, uint64_t number,
                                  const forebay_piece *pieces, size_t count, uint64_t load_ns,
                                  forebay_error *error);

/* Change the limit, for all processes; within a quarter of a second. */
FOREBAY_API int forebay_cache_set_limit(forebay_cache *cache, uint64_t limit_bytes,
                                        forebay_error *error);
/* Drop all items that nobody is reading and give their memory back. */
FOREBAY_API int forebay_cache_clear(forebay_cache *cache, forebay_error *error);

typedef struct forebay_cache_stats {
    uint64_t items, bytes, limit_bytes;             /* of the whole cache */
    uint64_t hits, misses, evictions;               /* of all processes, living and dead */
    uint64_t processes;                             /* that share it now; 0: nothing is kept */
    uint64_t lap_hits, lap_misses;                  /* since the last call with `lap` by anyone */
} forebay_cache_stats;
FOREBAY_API int forebay_cache_read_stats(forebay_cache *cache, bool lap, forebay_cache_stats *stats,
                                         forebay_error *error);

/* ---- Batches from worker processes: ranges of one memfd that are used again ----
 *
 * A worker takes a range, writes there and sends offset, bytes and ticket by any way it likes; the
 * parent adopts the range and releases it. Nothing waits, and kill -9 of a worker loses nothing:
 * the parent reclaims what a dead process held. All functions [any thread]. */

typedef struct forebay_transport forebay_transport;

typedef struct forebay_range {
    void *data;
    uint64_t bytes, offset;
    uint64_t inside; /* the transport's own */
} forebay_range;

typedef struct forebay_transport_stats {
    uint64_t limit_bytes, used_bytes;  /* of all processes */
    uint64_t own_bytes, own_ranges;    /* of this process */
    uint64_t resident_bytes, refused;  /* pages held by the kernel; takes that found no room */
} forebay_transport_stats;

/* `limit_bytes` 0: a quarter of the memory that is free now. Children inherit it by fork, or attach
 * by the descriptor. */
FOREBAY_API int forebay_transport_open(forebay_transport **out, uint64_t limit_bytes,
                                       forebay_error *error);
FOREBAY_API int forebay_transport_attach(forebay_transport **out, int fd, forebay_error *error);
FOREBAY_API int forebay_transport_fd(const forebay_transport *transport);
/* Ranges stay valid until they are released. Each needs its own reference: see _share. */
FOREBAY_API void forebay_transport_close(forebay_transport *transport);
FOREBAY_API forebay_transport *forebay_transport_share(forebay_transport *transport);

/* FOREBAY_MISS: there is no room now. */
FOREBAY_API int forebay_transport_take(forebay_transport *transport, uint64_t bytes,
                                       forebay_range *range);
FOREBAY_API uint64_t forebay_transport_send(forebay_transport *transport,
                                            const forebay_range *range); /* the ticket */
FOREBAY_API int forebay_transport_adopt(forebay_transport *transport, uint64_t offset,
                                        uint64_t bytes, uint64_t ticket, forebay_range *range,
                                        forebay_error *error);
FOREBAY_API void forebay_transport_release(forebay_transport *transport,
                                           const forebay_range *range);
/* Free what process `pid` (0: any dead one) held or sent in vain. Returns the bytes. */
FOREBAY_API uint64_t forebay_transport_reclaim(forebay_transport *transport, int pid);
/* May be lower than what is used: then nothing is granted until enough came back. At most twice
 * the limit it was opened with. */
FOREBAY_API int forebay_transport_set_limit(forebay_transport *transport, uint64_t limit_bytes,
                                            forebay_error *error);
FOREBAY_API void forebay_transport_read_stats(forebay_transport *transport,
                                              forebay_transport_stats *stats);
/* For a worker: end this process within a second of its parent's death; and keep freed memory in
 * the heap, so that large arrays use warm pages again instead of new ones. */
FOREBAY_API int forebay_worker_watch(forebay_error *error);
FOREBAY_API void forebay_worker_keep_heap(void);

#ifdef __cplusplus
}
#endif
#endif
