/*
 * snapshot_file.h -- how a running loader shows its snapshot to other processes of its user, and
 * what is left of it after its death: one small mapped file in the run folder.
 *
 *     header | copy A | copy B          FB_SNAPSHOT_FILE_BYTES in all
 *
 * The writer fills the older copy, then its checksum and number: without a lock, in well under a
 * microsecond. A reader takes the copy with the higher number whose checksum is right, so it
 * never sees a torn one, not even of a writer that was killed in the middle. Readers read, they do
 * not map, and believe nothing: sizes, texts and enums are checked.
 *
 * Pid, start time and boot id together name one process for ever.
 */
#ifndef FB_MONITOR_SNAPSHOT_FILE_H
#define FB_MONITOR_SNAPSHOT_FILE_H
#include "monitor/snapshot.h"

#define FB_SNAPSHOT_FILE_BYTES ((uint64_t)32768)
#define FB_SNAPSHOT_FILE_VERSION 2

struct fb_snapshot_file;

/* Make the file in the run folder; `page` gives pid, start and name. Its memory,
 * FB_SNAPSHOT_FILE_BYTES and a little, is reserved by the caller. */
int fb_snapshot_file_open(struct fb_snapshot_file **out, const struct fb_snapshot *page, forebay_error *error);
void fb_snapshot_file_write(struct fb_snapshot_file *writer, const struct fb_snapshot *page);
/* A clean end: the file goes. In a fork's child this does nothing. */
void fb_snapshot_file_close(struct fb_snapshot_file *writer);

/* Fill in who we are. */
void fb_snapshot_identify(struct fb_snapshot *page, const char *name);

/* Read one file. BAD_DATA: it is no page, or of another version; MISSING: it is gone, or not
 * ours. */
int fb_snapshot_file_read(struct fb_snapshot *page, const char *path, forebay_error *error);
/* The same of bytes in memory: what the fuzzer feeds. */
bool fb_snapshot_file_parse(struct fb_snapshot *page, const void *bytes, size_t size);
/* A whole file with this page in it. */
void fb_snapshot_file_format(char bytes[FB_SNAPSHOT_FILE_BYTES], const struct fb_snapshot *page);
/* Write the verdict into the file of a dead process, where it stays. */
void fb_snapshot_file_settle(const char *path, const struct fb_snapshot *page);
/* Does the process it is of still run? */
bool fb_snapshot_is_alive(const struct fb_snapshot *page);

/* Every page of the run folder, in the order of their names: call fn for each that can be read.
 * fn returns false to end. */
typedef bool (*fb_snapshot_file_fn)(void *data, const struct fb_snapshot *page, const char *path);
int fb_snapshot_file_list(fb_snapshot_file_fn fn, void *data, forebay_error *error);
#endif
