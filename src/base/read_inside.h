/* read_inside.h -- what read.c and read_open.c share: what may be tried again, and opening. */
#ifndef FB_BASE_READ_INSIDE_H
#define FB_BASE_READ_INSIDE_H
#include <stdbool.h>
#include <sys/stat.h>

#include "forebay.h"

#define FB_READ_RETRIES 3

/* Is it wrong at the moment only? */
bool fb_errno_passes(int number);
/* Wait before try number `failures` + 1. */
void fb_back_off(unsigned failures);
/* Open a regular file for reading, patiently; FIFOs and folders are refused, never waited for. */
int fb_open_regular(const char *path, int *fd, struct stat *about, forebay_error *error);
#endif
