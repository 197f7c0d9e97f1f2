/* program.h -- where the command `forebay` is, for what must outlive the process that asks. */
#ifndef FB_BASE_PROGRAM_H
#define FB_BASE_PROGRAM_H
#include <limits.h>

/* $FOREBAY_PROGRAM; this process, if it is the command; bin/forebay in a folder above the library or
 * the Python package; else plain "forebay", to be looked for in PATH. */
void fb_program_find(char path[PATH_MAX]);
#endif
