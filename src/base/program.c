#include "base/program.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool this_process(char path[PATH_MAX])
{
    char here[PATH_MAX]; /* of its own: gcc's sanitizer warns of a parameter that might be NULL */
    ssize_t length = readlink("/proc/self/exe", here, sizeof(here) - 1);
    const char *name;

    if (length <= 0)
        return false;
    here[length] = '\0';
    name = strrchr(here, '/');
    snprintf(path, PATH_MAX, "%s", here);
    return name && strcmp(name, "/forebay") == 0;
}

/* <prefix>/lib/libforebay.so and <prefix>/lib/python3/site-packages/forebay/_forebay.so both have
 * <prefix>/bin/forebay. */
static bool above_library(char path[PATH_MAX])
{
    static const char ours; /* its address is inside the library */
    char folder[PATH_MAX];
    Dl_info info;
    char *slash;

    if (!dladdr(&ours, &info) || !info.dli_fname || !realpath(info.dli_fname, folder))
        return false;
    while ((slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
        if (snprintf(path, PATH_MAX, "%s/bin/forebay", folder) < PATH_MAX &&
            access(path, X_OK) == 0)
            return true;
    }
    return false;
}

void fb_program_find(char path[PATH_MAX])
{
    const char *named = getenv("FOREBAY_PROGRAM");

    if (named && *named)
        snprintf(path, PATH_MAX, "%s", named);
    else if (!this_process(path) && !above_library(path))
        snprintf(path, PATH_MAX, "forebay");
}
