#include "quickstart.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "memory/host.h"
#include "generate/generate.h"
#include "source/store.h"

#define SCANS 256
#define SCAN_BYTES 1000000

/* It is renamed to its name only when it is whole; but somebody may have tidied up since. */
static bool is_whole(const char *folder)
{
    char path[PATH_MAX + 32];
    struct stat now;

    for (unsigned i = 0; i < SCANS; i++) {
        snprintf(path, sizeof(path), "%s/%06u.bin", folder, i);
        if (stat(path, &now) != 0 || now.st_size != SCAN_BYTES)
            return false;
    }
    return true;
}

/* Files of a set that was given up; our own folder, so nothing else is in it. */
static void folder_remove(const char *folder)
{
    DIR *directory = opendir(folder);

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
    rmdir(folder);
}

static int set_make(const char *folder, const char *temporary, const struct fb_log *log,
                    forebay_error *error)
{
    struct fb_generate_options options = { .kind = "lidar", .folder = temporary, .files = SCANS,
                                           .bytes = SCAN_BYTES, .force = true };
    struct fb_generate_result result;
    int status;

    fb_say(log, "Making 256 LiDAR-like scans of 1 MB in %s (once)", folder);
    folder_remove(folder);
    status = fb_generate(&result, &options, log, error);
    /* Two that start at the same time make the same set: the second finds the first one's. */
    if (!status && rename(temporary, folder) != 0 && errno != ENOTEMPTY && errno != EEXIST)
        status = fb_fail_errno(error, FOREBAY_IO, "cannot rename '%s' to '%s'", temporary, folder);
    folder_remove(temporary);
    return status;
}

int quickstart_folder(char folder[PATH_MAX], const struct fb_log *log, forebay_error *error)
{
    char cache[PATH_MAX - 64], temporary[PATH_MAX + 32];

    if (!fb_host_cache_folder(cache, sizeof(cache)))
        return fb_fail(error, FOREBAY_IO,
                       "there is no place for the quickstart's data: the user's cache folder "
                       "cannot be made (set XDG_CACHE_HOME to a folder that can be written)");
    snprintf(folder, PATH_MAX, "%s/" FB_STORE_QUICKSTART, cache);
    if (is_whole(folder))
        return FOREBAY_OK;
    snprintf(temporary, sizeof(temporary), "%s.tmp%ld", folder, (long)getpid());
    return set_make(folder, temporary, log, error);
}
