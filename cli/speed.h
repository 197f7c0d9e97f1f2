/* speed.h -- how fast this machine reads and decodes, by a loader on data made for it: for
 * `forebay diagnose`. */
#ifndef CLI_SPEED_H
#define CLI_SPEED_H
#include <jansson.h>

#include "base/log.h"

/* {"folder", "read_bytes_per_s", "decode_bytes_per_s", "decode_images_per_s"}: reads from where
 * temporary files are ($TMPDIR, else /tmp), the page cache emptied of them as far as the kernel
 * does that; JPEG pictures by one worker, bytes of pixels. null: it failed, and the log says why.
 * About 40 MB are written for a moment. */
json_t *speed_json(const struct fb_log *log);
#endif
