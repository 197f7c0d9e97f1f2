#include "scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

const char *scratch_base(void)
{
    const char *named = getenv("TMPDIR");

    return named && *named ? named : "/tmp";
}

int scratch_make(char folder[SCRATCH_BYTES], const char *what, forebay_error *error)
{
    snprintf(folder, SCRATCH_BYTES, "%.400s/forebay-%.40s-XXXXXX", scratch_base(), what);
    if (mkdtemp(folder))
        return FOREBAY_OK;
    return fb_fail_errno(error, FOREBAY_IO,
                         "cannot make '%s'; set TMPDIR to a folder that can be written to", folder);
}

static int path_remove(const char *path, const struct stat *about, int type, struct FTW *at)
{
    (void)about;
    (void)type;
    (void)at;
    return remove(path);
}

void scratch_remove(const char *folder)
{
    nftw(folder, path_remove, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
