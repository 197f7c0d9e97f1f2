/*
 * schema.h -- every key of the configuration, once.
 *
 * X(TYPE, member, "key", "default", flags, choices, "one sentence"[, "keyword"])
 *   TYPE     how the text is read, and the C type of the member: see config.h
 *   flags    0, or FROM(1): numbers start at 1 instead of 0. BETWEEN(0, 64): the smallest and the
 *            largest number. PERCENT: a share in percent only.
 *            LATER: not built yet; any value but the default is an error that says so
 *   choices  for CHOICE: W(enumerator, "word") for each word; "word!" is not built yet.
 *            For COUNT, SIZE: the words accepted instead of a number, separated by |
 *   keyword  the name that forebay.Loader in Python has for it; without one, the key with "__"
 *            for the dot
 *
 * LIVE instead of X: may be set while running; loader/control.c has a function <member>_set for it.
 *
 * The struct, the enums of the choices, the parser with its bounds, the nearest-key hint,
 * Python's keywords, --help-config and docs/configuration.md are made from this table: a new key
 * is one row.
 */
#ifndef FB_CONFIG_SCHEMA_H
#define FB_CONFIG_SCHEMA_H
#include "config/policies.h"
#include "config/source_list.h"

#define FB_CONFIG_KEYS(X, LIVE) \
    X(TEXT, name, "name", "null", 0, "", "Labels this loader in logs, top and set, e.g. train.", \
      "name") \
    X(CHOICE, source_kind, "source.kind", "null", 0, FB_SOURCE_KINDS(FB_KIND_WORD), \
      "What kind of data it is.") \
    X(TEXTS, source_path, "source.path", "null", 0, "", \
      "A glob (** is any number of folders), a list of globs, or @file.txt with a path a line.") \
    X(PAIRS, source_fields, "source.fields", "null", 0, "", \
      "npy, windows: several fields, each with its glob, joined by file stem.") \
    X(COUNT, source_columns, "source.columns", "4", FROM(1), "", \
      "bin, flat windows: numbers in a row.") \
    X(DTYPE, source_dtype, "source.dtype", "f32", 0, "", \
      "bin, flat windows: what the numbers are.") \
    X(CHOICE, source_access, "source.access", "auto", 0, W(FB_ACCESS_AUTO, "auto") \
      W(FB_ACCESS_RANDOM, "random") W(FB_ACCESS_SEQUENTIAL, "sequential"), \
      "tar: each member by itself; or shards from front to back, mixed in a window. auto: if packed.") \
    X(COUNT, source_sequence, "source.sequence", "1", FROM(1), "", \
      "bin: a sample is this many consecutive files of one folder.") \
    X(COUNT, source_stride, "source.stride", "1", FROM(1), "", \
      "bin: files, windows: rows, from one sample's start to the next one's.") \
    X(BOOL, source_direct, "source.direct", "false", 0, "", \
      "Keep no second copy of what is read in the kernel's page cache.") \
    X(COUNT, source_window, "source.window", "64", FROM(1), "", "windows: rows in a window.") \
    X(CHOICE, source_tail, "source.tail", "drop", 0, W(FB_TAIL_DROP, "drop") \
      W(FB_TAIL_PAD, "pad"), "windows: what becomes of rows that do not fill a window.") \
    X(COUNT, source_rate, "source.rate", "auto", 0, "auto", \
      "audio, tar: frames a second; others are resampled. auto: the first one's, others are errors.") \
    X(REALS, source_min_duration, "source.min_duration", "null", 0, "", \
      "audio: seconds; shorter utterances are left out.") \
    X(REALS, source_max_duration, "source.max_duration", "null", 0, "", \
      "audio: seconds; longer utterances are left out. tar: longer sounds are errors.") \
    X(BOOL, source_buckets, "source.buckets", "false", 0, "", \
      "audio: utterances of like length share a batch, inside stretches of 64 shuffled batches.") \
    X(CHOICE, source_normalise, "source.normalise", "none", 0, W(FB_NORMALISE_NONE, "none") \
      W(FB_NORMALISE_AUTO, "auto"), \
      "windows: auto computes mean and std of each column once, at open.") \
    X(REALS, source_mean, "source.mean", "null", 0, "", \
      "windows: taken from each column; images: (pixel / 255 - mean) / std of R, G, B; then f32.") \
    X(REALS, source_std, "source.std", "null", 0, "", \
      "windows, images: what each column or channel is divided by, behind source.mean.") \
    X(PAIRS, source_types, "source.types", "null", 0, "", \
      "table: columns not to be guessed: f32, f64, i64, u64, bool, date, datetime or category.") \
    X(TEXT, source_delimiter, "source.delimiter", "auto", 0, "", \
      "table: one character, tab or auto (the one of , ; tab | that fits).") \
    X(CHOICE, source_header, "source.header", "auto", 0, W(FB_HEADER_AUTO, "auto") \
      W(FB_HEADER_TRUE, "true") W(FB_HEADER_FALSE, "false"), \
      "table: whether the first line names the columns; auto: if no cell of it is a number.") \
    X(TEXT, source_missing, "source.missing", "error", 0, "", \
      "table: error, nan, or the number that stands for a missing value.") \
    X(CHOICE, source_as, "source.as", "columns", 0, W(FB_AS_COLUMNS, "columns") \
      W(FB_AS_MATRIX, "matrix"), "table: a field for each column, or one field data of f32.") \
    X(REALS, source_size, "source.size", "null", 0, "", \
      "images: a side, or [height, width], in pixels, that every image is resized to.") \
    X(CHOICE, source_crop, "source.crop", "none", 0, W(FB_SOURCE_CROP_NONE, "none") \
      W(FB_SOURCE_CROP_CENTER, "center") W(FB_SOURCE_CROP_RANDOM, "random"), \
      "images, before resizing: all; the middle; another part (8 to 100 % of it) each epoch.") \
    X(BOOL, source_flip, "source.flip", "false", 0, "", \
      "images: mirror every other one, drawn anew each epoch.") \
    X(CHOICE, source_layout, "source.layout", "hwc", 0, W(FB_LAYOUT_HWC, "hwc") \
      W(FB_LAYOUT_CHW, "chw"), "images: channels last or first.") \
    X(CHOICE, source_filter, "source.filter", "bilinear", 0, W(FB_SOURCE_FILTER_BILINEAR, "bilinear") \
      W(FB_SOURCE_FILTER_NEAREST, "nearest") W(FB_SOURCE_FILTER_BICUBIC, "bicubic"), \
      "images: how they are resized; all but nearest are antialiased.") \
    X(BOOL, source_exact, "source.exact", "false", 0, "", \
      "images: do not let the JPEG decoder halve what will be resized to less than half.") \
    X(COUNT, source_max_pixels, "source.max_pixels", "100000000", 0, "", \
      "images: a larger one is taken to be broken.") \
    X(SIZE, source_decode_memory, "source.decode_memory", "auto", 0, "auto", \
      "images: what decoding one may take; tar: a zstd window. auto: 1/32 of the budget, 8 to 64 MiB.") \
    X(BOOL, order_shuffle, "order.shuffle", "true", 0, "", "A new order each epoch.", "shuffle") \
    X(COUNT, order_seed, "order.seed", "0", 0, "", "Same seed, same batches.", "seed") \
    X(CHOICE, order_group, "order.group", "none", 0, W(FB_GROUP_NONE, "none") \
      W(FB_GROUP_SEQUENCE, "sequence") W(FB_GROUP_BLOCK, "block"), \
      "Shuffle whole sequences (folders), or blocks and then inside a window of blocks.") \
    X(COUNT, order_block, "order.block", "auto", FROM(1), "auto", \
      "group block: samples in a block; auto takes what is about 1 MiB.") \
    X(COUNT, order_window, "order.window", "auto", FROM(1), "auto", \
      "Blocks (access sequential: samples) that are mixed; auto: what 32 MiB hold.") \
    X(CHOICE, order_sticky, "order.sticky", "none", 0, W(FB_STICKY_NONE, "none") \
      W(FB_STICKY_NODE, "node") W(FB_STICKY_RANK, "rank"), \
      "Keep each sample on its node or rank in all epochs.") \
    X(BOOL, order_drop_last, "order.drop_last", "false", 0, "", \
      "Leave out a last batch that is not full.", "drop_last") \
    X(CHOICE, order_ends, "order.ends", "pad", 0, W(FB_ENDS_PAD, "pad") W(FB_ENDS_DROP, "drop"), \
      "Several ranks: repeat samples so that all get as many, or drop the rest.") \
    X(TEXT, order_subset, "order.subset", "null", 0, "", \
      "A file of sample numbers, one a line: only these are used.") \
    X(TEXT, order_weights, "order.weights", "null", 0, "", \
      "A file of weights, one a line for each sample: draws with replacement.") \
    X(COUNT, order_draws, "order.draws", "auto", FROM(1), "auto", \
      "Samples of an epoch: with weights drawn by them, else a new random part of the data; auto: all.") \
    X(COUNT, order_rank, "order.rank", "auto", 0, "auto", \
      "This process among all; auto asks torchrun, Slurm, Open MPI, PMI.", "rank") \
    X(COUNT, order_world, "order.world", "auto", FROM(1), "auto", \
      "How many processes there are.", "world") \
    X(COUNT, batch_size, "batch.size", "1", FROM(1), "", "Samples in a batch.", "batch_size") \
    X(CHOICE, batch_collate, "batch.collate", "stack", 0, W(FB_COLLATE_STACK, "stack") \
      W(FB_COLLATE_PAD, "pad") W(FB_COLLATE_RAGGED, "ragged"), \
      "Equal shapes; zeros behind and <field>_length; one behind the other and <field>_offsets.", \
      "collate") \
    X(CHOICE, batch_dtype, "batch.dtype", "keep", 0, W(FB_CAST_KEEP, "keep") \
      W(FB_CAST_F32, "f32") W(FB_CAST_F16, "f16") W(FB_CAST_BF16, "bf16"), \
      "Cast floating point fields while they are copied.", "dtype") \
    X(TEXTS, batch_fields, "batch.fields", "null", 0, "", "Only these fields.") \
    LIVE(SIZE, memory_budget, "memory.budget", "auto", FROM(1), "auto", \
      "The ceiling for this job on this node; auto: half of what is available.", "memory") \
    X(SIZE, memory_cache, "memory.cache", "auto", 0, "auto|off", \
      "How much of the budget keeps units for the next epoch.", "cache") \
    X(CHOICE, memory_policy, "memory.policy", "auto", 0, W(FB_POLICY_AUTO, "auto") \
      FB_POLICY_MAP(FB_POLICY_WORD), "Which unit leaves the cache first.", "policy") \
    X(CHOICE, memory_share, "memory.share", "job", 0, W(FB_SHARE_JOB, "job") \
      W(FB_SHARE_NODE, "node") W(FB_SHARE_OFF, "off"), "Which processes share one cache.") \
    X(BOOL, memory_preload, "memory.preload", "false", 0, "", \
      "Fill the cache before the first batch.") \
    X(COUNT, memory_ranks_here, "memory.ranks_here", "auto", FROM(1), "auto", \
      "Processes of this job on this node; each takes its part of the budget.") \
    X(COUNT, epochs, "epochs", "auto", 0, "auto", \
      "How many epochs will be run, if known: nothing is read or kept for one that never comes.") \
    LIVE(COUNT, workers, "workers", "auto", BETWEEN(0, 256), "auto", \
      "Threads that read and decode; 0: the caller works itself.", "workers") \
    LIVE(COUNT, prefetch, "prefetch", "auto", BETWEEN(1, 1024), "auto", \
      "Batches in flight, in all; those the caller holds not counted.", "prefetch") \
    LIVE(COUNT, cpu_share, "cpu.share", "auto", BETWEEN(1, 1024), "auto", \
      "How many workers may run at once; auto: all.") \
    X(COUNT, cpu_nice, "cpu.nice", "0", BETWEEN(0, 19), "", \
      "Nice value of the workers, 0 to 19.") \
    X(TEXT, device_kind, "device.kind", "host", 0, "", \
      "host, auto, cuda:N or opencl:N: where batches are handed out.", "device") \
    X(SIZE, device_cache, "device.cache", "off", 0, "off|samples", \
      "What is kept in device memory: bytes, or a number of samples.") \
    X(COUNT, device_prefetch, "device.prefetch", "2", BETWEEN(0, 64), "", \
      "Batches copied ahead.") \
    X(BOOL, device_preload, "device.preload", "false", 0, "", \
      "Fill the device cache before the first batch.") \
    X(CHOICE, on_error, "on_error", "fail", 0, W(FB_ON_ERROR_FAIL, "fail") \
      W(FB_ON_ERROR_SKIP, "skip") W(FB_ON_ERROR_REPLACE, "replace"), \
      "What to do about a sample that is missing or malformed; several ranks: replace.", \
      "on_error") \
    X(SHARE, max_errors, "max_errors", "100%", 0, "", \
      "Samples (a number, or a share of the epoch) that may fail before the run does.") \
    X(COUNT, monitor_every, "monitor.every", "100", 0, "", "Steps between memory lines.") \
    X(SHARE, monitor_warn, "monitor.warn", "90%", PERCENT, "", "Warn above this use of memory.") \
    X(TEXT, monitor_log, "monitor.log", "null", 0, "", \
      "JSON-lines log of snapshots and decisions; 32 MiB of it are kept.") \
    X(TEXT, monitor_alarm_process, "monitor.alarm.process", "off", 0, "", \
      "Alarm above this resident memory of the process: 40GiB, or 90% of the system's.") \
    X(TEXT, monitor_alarm_system, "monitor.alarm.system", "off", 0, "", \
      "Alarm above this use of the system's memory: bytes or percent.") \
    X(TEXT, monitor_alarm_swap, "monitor.alarm.swap", "off", 0, "", \
      "Alarm above this use of swap: bytes or percent.") \
    X(TEXT, monitor_alarm_gpu, "monitor.alarm.gpu", "off", 0, "", \
      "Alarm above this use of any GPU's memory: bytes or percent (needs NVIDIA's library).") \
    X(CHOICE, monitor_alarm_action, "monitor.alarm.action", "log", 0, W(FB_ALARM_LOG, "log") \
      W(FB_ALARM_COMMAND, "command") W(FB_ALARM_SHRINK, "shrink") W(FB_ALARM_STOP, "stop"), \
      "What an alarm does: say it; also run a command; shrink; or stop, the state saved.") \
    X(TEXTS, monitor_alarm_command, "monitor.alarm.command", "null", 0, "", \
      "A program and its arguments, no shell; the alarm's text is in $FOREBAY_ALARM.") \
    X(TEXT, monitor_alarm_state, "monitor.alarm.state", "null", 0, "", \
      "action stop: where the state is saved; null: a file in the run folder, which is said.") \
    X(CHOICE, preset, "preset", "null", 0, W(FB_PRESET_SAFE, "safe!") \
      W(FB_PRESET_BALANCED, "balanced!") W(FB_PRESET_AGGRESSIVE, "aggressive!") \
      W(FB_PRESET_EXTREME, "extreme!") W(FB_PRESET_GPU_BATCH, "gpu-batch!") \
      W(FB_PRESET_GPU_BASIC, "gpu-basic") W(FB_PRESET_GPU_PREFETCH, "gpu-prefetch") \
      W(FB_PRESET_GPU_COMBINED, "gpu-combined") W(FB_PRESET_GPU_AGGRESSIVE, "gpu-aggressive") \
      W(FB_PRESET_GPU_MINIMAL, "gpu-minimal") W(FB_PRESET_GPU_AUTO, "gpu-auto"), \
      "Several keys at once (docs/device.md); those that are set win. gpu-auto goes by VRAM.", \
      "preset")
#endif
