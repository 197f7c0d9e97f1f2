/* quickstart.h -- the data of `forebay run` without a configuration. */
#ifndef CLI_QUICKSTART_H
#define CLI_QUICKSTART_H
#include <limits.h>

#include "base/log.h"

/* The folder with 256 scans of 1 MB, made in the user's cache folder the first time. */
int quickstart_folder(char folder[PATH_MAX], const struct fb_log *log, forebay_error *error);
#endif
