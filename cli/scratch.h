/* scratch.h -- a folder for a moment, where temporary files are: $TMPDIR, else /tmp. */
#ifndef CLI_SCRATCH_H
#define CLI_SCRATCH_H
#include "forebay.h"

#define SCRATCH_BYTES 512

const char *scratch_base(void);
/* Make it, named after `what`; its path goes to `folder`. */
int scratch_make(char folder[SCRATCH_BYTES], const char *what, forebay_error *error);
/* Remove it and all in it. */
void scratch_remove(const char *folder);
#endif
