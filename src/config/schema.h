/*
 * schema.h -- every key of the configuration, once.
 *
 * X(TYPE, member, "key", "default", flags, "choices", "one sentence")
 *   TYPE     how the text is read, and the C type of the member: see config.h
 *   flags    LIVE: may be set while running. LATER: its part is not built yet; setting it to
 *            anything but its default is an error that says so
 *   choices  for CHOICE: the words, separated by |; a word followed by ! is not built yet.
 *            For COUNT, SIZE: the words accepted instead of a number
 *
 * The struct, the parser, the nearest-key hint, --help-config and docs/configuration.md are made
 * from this table. Whoever needs a key adds a row.
 */
#ifndef FB_CONFIG_SCHEMA_H
#define FB_CONFIG_SCHEMA_H

#include "config/policies.h"

#define FB_CONFIG_KEYS(X) \
    X(TEXT, name, "name", "null", 0, "", "Labels this loader in logs, top and set, e.g. train.") \
    X(CHOICE, source_kind, "source.kind", "null", 0, \
      "bin|npy|windows|images|tar|audio|table", "What kind of data it is.") \
    X(TEXTS, source_path, "source.path", "null", 0, "", \
      "A glob (** is any number of folders), a list of globs, or @file.txt with a path a line.") \
    X(PAIRS, source_fields, "source.fields", "null", 0, "", \
      "npy, windows: several fields, each with its glob, joined by file stem.") \
    X(COUNT, source_columns, "source.columns", "4", 0, "", "bin, flat windows: numbers in a row.") \
    X(DTYPE, source_dtype, "source.dtype", "f32", 0, "", "bin, flat windows: what the numbers are.") \
    X(CHOICE, source_access, "source.access", "auto", 0, "auto|random|sequential", \
      "tar: each member by itself; or shards from front to back, mixed in a window. auto: if packed.") \
    X(COUNT, source_sequence, "source.sequence", "1", 0, "", \
      "bin: a sample is this many consecutive files of one folder.") \
    X(COUNT, source_stride, "source.stride", "1", 0, "", \
      "bin: files, windows: rows, from one sample's start to the next one's.") \
    X(BOOL, source_direct, "source.direct", "false", 0, "", \
      "Keep no second copy of what is read in the kernel's page cache.") \
    X(COUNT, source_window, "source.window", "64", 0, "", "windows: rows in a window.") \
    X(CHOICE, source_tail, "source.tail", "drop", 0, "drop|pad", \
      "windows: what becomes of rows that do not fill a window.") \
    X(COUNT, source_rate, "source.rate", "auto", 0, "auto", \
      "audio, tar: frames a second; others are resampled. auto: the first one's, others are errors.") \
    X(REALS, source_min_duration, "source.min_duration", "null", 0, "", \
      "audio: seconds; shorter utterances are left out.") \
    X(REALS, source_max_duration, "source.max_duration", "null", 0, "", \
      "audio: seconds; longer utterances are left out. tar: longer sounds are errors.") \
    X(BOOL, source_buckets, "source.buckets", "false", 0, "", \
      "audio: utterances of like length share a batch, inside stretches of 64 shuffled batches.") \
    X(CHOICE, source_normalise, "source.normalise", "none", 0, "none|auto", \
      "windows: auto computes mean and std of each column once, at open.") \
    X(REALS, source_mean, "source.mean", "null", 0, "", \
      "windows: taken from each column; images: (pixel / 255 - mean) / std of R, G, B; then f32.") \
    X(REALS, source_std, "source.std", "null", 0, "", \
      "windows, images: what each column or channel is divided by, behind source.mean.") \
    X(PAIRS, source_types, "source.types", "null", 0, "", \
      "table: columns that are not to be guessed: f32, f64, i64 or category.") \
    X(TEXT, source_delimiter, "source.delimiter", "auto", 0, "", \
      "table: one character, tab or auto (the one of , ; tab | that fits).") \
    X(CHOICE, source_header, "source.header", "auto", 0, "auto|true|false", \
      "table: whether the first line names the columns; auto: if no cell of it is a number.") \
    X(TEXT, source_missing, "source.missing", "error", 0, "", \
      "table: error, nan, or the number that stands for a missing value.") \
    X(CHOICE, source_as, "source.as", "columns", 0, "columns|matrix", \
      "table: a field for each column, or one field data of f32.") \
    X(REALS, source_size, "source.size", "null", 0, "", \
      "images: a side, or [height, width], in pixels, that every image is resized to.") \
    X(CHOICE, source_crop, "source.crop", "none", 0, "none|center|random", \
      "images, before resizing: all; the middle; another part (8 to 100 % of it) each epoch.") \
    X(BOOL, source_flip, "source.flip", "false", 0, "", \
      "images: mirror every other one, drawn anew each epoch.") \
    X(CHOICE, source_layout, "source.layout", "hwc", 0, "hwc|chw", \
      "images: channels last or first.") \
    X(CHOICE, source_filter, "source.filter", "bilinear", 0, "bilinear|nearest|bicubic", \
      "images: how they are resized; all but nearest are antialiased.") \
    X(BOOL, source_exact, "source.exact", "false", 0, "", \
      "images: do not let the JPEG decoder halve what will be resized to less than half.") \
    X(COUNT, source_max_pixels, "source.max_pixels", "100000000", 0, "", \
      "images: a larger one is taken to be broken.") \
    X(SIZE, source_decode_memory, "source.decode_memory", "auto", 0, "auto", \
      "images: what decoding one may take; tar: a zstd window. auto: 1/32 of the budget, 8 to 64 MiB.") \
    X(BOOL, order_shuffle, "order.shuffle", "true", 0, "", "A new order each epoch.") \
    X(COUNT, order_seed, "order.seed", "0", 0, "", "Same seed, same batches.") \
    X(CHOICE, order_group, "order.group", "none", 0, "none|sequence|block", \
      "Shuffle whole sequences (folders), or blocks and then inside a window of blocks.") \
    X(COUNT, order_block, "order.block", "auto", 0, "auto", \
      "group block: samples in a block; auto takes what is about 1 MiB.") \
    X(COUNT, order_window, "order.window", "auto", 0, "auto", \
      "Blocks (access sequential: samples) that are mixed; auto: what 32 MiB hold.") \
    X(CHOICE, order_sticky, "order.sticky", "none", 0, "none|node|rank", \
      "Keep each sample on its node or rank in all epochs.") \
    X(BOOL, order_drop_last, "order.drop_last", "false", 0, "", \
      "Leave out a last batch that is not full.") \
    X(CHOICE, order_ends, "order.ends", "pad", 0, "pad|drop", \
      "Several ranks: repeat samples so that all get as many, or drop the rest.") \
    X(TEXT, order_subset, "order.subset", "null", 0, "", \
      "A file of sample numbers, one a line: only these are used.") \
    X(TEXT, order_weights, "order.weights", "null", 0, "", \
      "A file of weights, one a line for each sample: draws with replacement.") \
    X(COUNT, order_draws, "order.draws", "auto", 0, "auto", \
      "Samples of an epoch: with weights drawn by them, else a new random part of the data; auto: all.") \
    X(COUNT, order_rank, "order.rank", "auto", 0, "auto", \
      "This process among all; auto asks torchrun, Slurm, Open MPI, PMI.") \
    X(COUNT, order_world, "order.world", "auto", 0, "auto", "How many processes there are.") \
    X(COUNT, batch_size, "batch.size", "1", 0, "", "Samples in a batch.") \
    X(CHOICE, batch_collate, "batch.collate", "stack", 0, "stack|pad|ragged", \
      "Equal shapes; zeros behind and <field>_length; one behind the other and <field>_offsets.") \
    X(CHOICE, batch_dtype, "batch.dtype", "keep", 0, "keep|f32|f16|bf16", \
      "Cast floating point fields while they are copied.") \
    X(TEXTS, batch_fields, "batch.fields", "null", 0, "", "Only these fields.") \
    X(SIZE, memory_budget, "memory.budget", "auto", LIVE, "auto", \
      "The ceiling for this job on this node; auto: half of what is available.") \
    X(SIZE, memory_cache, "memory.cache", "auto", 0, "auto|off", \
      "How much of the budget keeps units for the next epoch.") \
    X(CHOICE, memory_policy, "memory.policy", "auto", 0, FB_POLICY_WORDS, \
      "Which unit leaves the cache first.") \
    X(CHOICE, memory_share, "memory.share", "job", 0, "job|node|off", \
      "Which processes share one cache.") \
    X(BOOL, memory_preload, "memory.preload", "false", 0, "", \
      "Fill the cache before the first batch.") \
    X(COUNT, memory_ranks_here, "memory.ranks_here", "auto", 0, "auto", \
      "Processes of this job on this node; each takes its part of the budget.") \
    X(COUNT, epochs, "epochs", "auto", 0, "auto", \
      "How many epochs will be run, if known: nothing is read or kept for one that never comes.") \
    X(COUNT, workers, "workers", "auto", LIVE, "auto", "Threads that read and decode; 0: the caller works itself.") \
    X(COUNT, prefetch, "prefetch", "auto", LIVE, "auto", \
      "Batches in flight, in all; those the caller holds not counted.") \
    X(COUNT, cpu_share, "cpu.share", "auto", LIVE, "auto", \
      "How many workers may run at once; auto: all.") \
    X(COUNT, cpu_nice, "cpu.nice", "0", 0, "", "Nice value of the workers, 0 to 19.") \
    X(TEXT, device_kind, "device.kind", "host", 0, "", \
      "host, auto, cuda:N or opencl:N: where batches are handed out.") \
    X(SIZE, device_cache, "device.cache", "off", 0, "off|samples", \
      "What is kept in device memory: bytes, or a number of samples.") \
    X(COUNT, device_prefetch, "device.prefetch", "2", 0, "", "Batches copied ahead.") \
    X(BOOL, device_preload, "device.preload", "false", 0, "", \
      "Fill the device cache before the first batch.") \
    X(CHOICE, on_error, "on_error", "fail", 0, "fail|skip|replace", \
      "What to do about a sample that is missing or malformed; several ranks: replace.") \
    X(SHARE, max_errors, "max_errors", "100%", 0, "", \
      "Samples (a number, or a share of the epoch) that may fail before the run does.") \
    X(COUNT, monitor_every, "monitor.every", "100", 0, "", "Steps between memory lines.") \
    X(SHARE, monitor_warn, "monitor.warn", "90%", 0, "", "Warn above this use of memory.") \
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
    X(CHOICE, monitor_alarm_action, "monitor.alarm.action", "log", 0, "log|command|shrink|stop", \
      "What an alarm does: say it; also run a command; shrink; or stop, the state saved.") \
    X(TEXTS, monitor_alarm_command, "monitor.alarm.command", "null", 0, "", \
      "A program and its arguments, no shell; the alarm's text is in $FOREBAY_ALARM.") \
    X(TEXT, monitor_alarm_state, "monitor.alarm.state", "null", 0, "", \
      "action stop: where the state is saved; null: a file in the run folder, which is said.") \
    X(CHOICE, preset, "preset", "null", 0, \
      "safe!|balanced!|aggressive!|extreme!|gpu-batch!|gpu-basic|gpu-prefetch|gpu-combined|" \
      "gpu-aggressive|gpu-minimal|gpu-auto", \
      "Several keys at once (docs/device.md); those that are set win. gpu-auto goes by VRAM.")
#endif
