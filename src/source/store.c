#include "source/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/host.h"
#include "source/store_list.h"

#define DEFAULT_BYTES ((uint64_t)10 * 1000 * 1000 * 1000)
#define HALF_WRITTEN_S 3600 /* a file that nobody has written to for this long has no writer */

int fb_store_limit(uint64_t *bytes, forebay_error *error)
{
    const char *text = getenv("FOREBAY_DISK_CACHE");

    *bytes = DEFAULT_BYTES;
    if (!text || !*text || fb_size_parse(text, bytes))
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_CONFIG,
                   "$FOREBAY_DISK_CACHE is '%s', expected a size such as "
                   "10GB",
                   text);
}

int fb_store_path(char *path, size_t size, const char *kind, uint64_t identity,
                  forebay_error *error)
{
    char folder[PATH_MAX];

    if (!fb_host_cache_folder(folder, sizeof(folder)))
        return fb_fail(error, FOREBAY_IO,
                       "there is no cache folder: set $XDG_CACHE_HOME (or $HOME) "
                       "to one that can be written to");
    if (snprintf(path, size, "%s/%s-%016" PRIx64 FB_STORE_SUFFIX, folder, kind, identity) >=
        (int)size)
        return fb_fail(error, FOREBAY_IO, "the cache folder's path is too long: '%.100s...'",
                       folder);
    return FOREBAY_OK;
}

/* What there is, and which of it goes first. */
struct survey {
    uint64_t bytes;
    char oldest[NAME_MAX + 1];
    struct timespec age;
};

static bool is_older(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* The quickstart's data is counted but not taken away: somebody may be running it. */
static void look_at(struct survey *survey, int folder, const char *name, const char *keep)
{
    size_t length = strlen(name), suffix = strlen(FB_STORE_SUFFIX);
    bool half = strstr(name, FB_STORE_SUFFIX ".tmp") != NULL;
    struct stat about;

    if (strcmp(name, FB_STORE_QUICKSTART) == 0)
        survey->bytes += fb_store_folder_bytes(folder, name);
    if (!half && (length <= suffix || strcmp(name + length - suffix, FB_STORE_SUFFIX) != 0))
        return;
    if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) || !S_ISREG(about.st_mode))
        return;
    if (half) {
        if (time(NULL) - about.st_mtim.tv_sec > HALF_WRITTEN_S)
            unlinkat(folder, name, 0);
        return;
    }
    if (strcmp(name, keep) == 0)
        return;
    survey->bytes += (uint64_t)about.st_size;
    if (!survey->oldest[0] || is_older(about.st_mtim, survey->age)) {
        snprintf(survey->oldest, sizeof(survey->oldest), "%s", name);
        survey->age = about.st_mtim;
    }
}

static int take_survey(struct survey *survey, const char *path, const char *keep,
                       forebay_error *error)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    *survey = (struct survey){ .bytes = 0 };
    if (!folder)
        return fb_fail_errno(error, FOREBAY_IO, "cannot list '%s'", path);
    while ((entry = readdir(folder)))
        look_at(survey, dirfd(folder), entry->d_name, keep);
    closedir(folder);
    return FOREBAY_OK;
}

int fb_store_make_room(const char *path, uint64_t bytes, forebay_error *error)
{
    char folder[PATH_MAX], file[2 * PATH_MAX], need[32], most[32];
    const char *name = strrchr(path, '/') + 1;
    struct survey survey;
    uint64_t limit;
    int status = fb_store_limit(&limit, error);

    if (status)
        return status;
    if (bytes > limit)
        return fb_fail(error, FOREBAY_IO,
                       "'%s' needs %s, and $FOREBAY_DISK_CACHE allows %s: raise "
                       "it",
                       path, fb_size_text(bytes, need), fb_size_text(limit, most));
    snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path);
    for (;;) {
        status = take_survey(&survey, folder, name, error);
        if (status || !survey.oldest[0] || survey.bytes <= limit - bytes)
            return status;
        snprintf(file, sizeof(file), "%s%s", folder, survey.oldest);
        if (unlink(file))
            return fb_fail_errno(error, FOREBAY_IO,
                                 "cannot remove '%s', the oldest in the cache "
                                 "folder",
                                 file);
    }
}

void fb_store_touch(int fd)
{
    (void)futimens(fd, NULL);
}
