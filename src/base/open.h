/* open.h -- opening files that may be anything, on disks that may be away for a moment. */
#ifndef FB_BASE_OPEN_H
#define FB_BASE_OPEN_H
#include <sys/stat.h>

#include "base/error.h"

#define FB_READ_RETRIES 3 /* of what is wrong at the moment: after 10, 100 and 1000 ms */

/* Is it wrong at the moment only, so that another try may do? */
bool fb_errno_passes(int number);
/* Wait before try number `failures` + 1. */
void fb_back_off(unsigned failures);

/* Open a regular file for reading; a FIFO or folder is refused, never waited for. *fd is the
 * caller's on success; O_NONBLOCK is set. */
int fb_open_regular(const char *path, int *fd, struct stat *about, forebay_error *error);
#endif
