/* state_file.c -- the state of a loader from files and into one. */
#include "state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/new_file.h"

#define MOST_BYTES 4096

/* A FIFO or a device could block for ever: regular files only. */
static int file_read(char **text, const char *path, forebay_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), status = FOREBAY_OK;
    struct stat info;
    ssize_t got = -1;

    *text = NULL;
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = fb_fail_errno(error, FOREBAY_IO, "--resume: cannot read the state '%s'", path);
    } else if (!S_ISREG(info.st_mode) || info.st_size > MOST_BYTES) {
        status = fb_fail(error, FOREBAY_BAD_STATE,
                         "--resume: '%s' is no regular file of at most %d bytes; name a file that "
                         "--save-state wrote", path, MOST_BYTES);
    } else {
        *text = calloc(1, MOST_BYTES + 1);
        got = *text ? read(fd, *text, MOST_BYTES) : -1;
        if (!*text || got < 0)
            status = fb_fail_errno(error, FOREBAY_IO, "--resume: cannot read the state '%s'", path);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* What the loader says it would go on with: a state at an epoch's end means the next one. */
static int epoch_next(const forebay_loader *loader, uint64_t *epoch, forebay_error *error)
{
    char text[FOREBAY_STATE_BYTES];
    int status = forebay_state_save(loader, text, error);
    json_t *state = status ? NULL : json_loads(text, 0, NULL);

    *epoch = (uint64_t)json_integer_value(json_object_get(state, "epoch"));
    json_decref(state);
    return status;
}

int state_file_load(forebay_loader *loader, const struct texts *paths, uint64_t *epoch,
                    forebay_error *error)
{
    char **texts = calloc(paths->count, sizeof(*texts));
    int status = texts ? FOREBAY_OK : fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a state");

    for (size_t i = 0; i < paths->count && !status; i++)
        status = file_read(&texts[i], paths->values[i], error);
    if (!status) {
        status = forebay_state_load(loader, (const char *const *)texts, paths->count, error);
        if (status)
            fb_error_context(error, "--resume %s", paths->values[0]);
    }
    if (!status)
        status = epoch_next(loader, epoch, error);
    for (size_t i = 0; texts && i < paths->count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

int state_file_save(const forebay_loader *loader, const char *path, forebay_error *error)
{
    char text[FOREBAY_STATE_BYTES + 1];
    int status = forebay_state_save(loader, text, error);

    if (!status) {
        strcat(text, "\n");
        status = fb_file_write(path, text, error);
    }
    if (status)
        fb_error_context(error, "--save-state");
    return status;
}
