/* glob.h -- patterns of paths: * ? [a-z] [!a-z] {a,b} {000..123} and ** (any number of folders,
 * none included); a backslash takes the next character as it is. */
#ifndef FB_SOURCE_GLOB_H
#define FB_SOURCE_GLOB_H
#include "base/error.h"

#define FB_PATH_BYTES 4096   /* Linux opens no longer path */
#define FB_GLOB_PATTERNS 65536 /* patterns that braces may make of one, at most */

/* Called with every pattern that the braces of one stand for; a status other than 0 ends it. */
typedef int (*fb_glob_fn)(void *data, const char *pattern, forebay_error *error);
int fb_glob_expand(const char *pattern, fb_glob_fn fn, void *data, forebay_error *error);

/* Is there anything but plain text in the first `length` bytes? Braces are not looked at. */
bool fb_glob_is_magic(const char *pattern, size_t length);
/* One component of a path against one of a pattern, `length` bytes of it. As in a shell, a leading
 * dot must be written. */
bool fb_glob_match(const char *pattern, size_t length, const char *name);
/* A whole path against a whole pattern without braces: what the wildcards stood for, each followed
 * by a slash, is written into `found`. False if it does not match or `size` is too small. */
bool fb_glob_capture(const char *pattern, const char *path, char *found, size_t size);
#endif
