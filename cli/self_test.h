/* self_test.h -- what the manual says of a device, tried out on it: for `forebay diagnose`. */
#ifndef CLI_SELF_TEST_H
#define CLI_SELF_TEST_H
#include <jansson.h>

#include "base/log.h"
#include "device/device.h"

/* An array of {"name", "ok", "words"} and figures, one for each claim; *failed counts those that do
 * not hold. The loader's part writes a few MB of data to a temporary folder. */
json_t *self_test(struct fb_device *device, const char *kind, const struct fb_log *log,
                  unsigned *failed);
/* Bytes per second of a copy of `bytes` to the device, of pinned or other memory; NAN: failed. */
double self_test_copy_rate(struct fb_device *device, uint64_t bytes, bool pinned);
#endif
