#include "source/audio/manifest.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "base/mix.h"
#include "base/size.h"

static int take_seconds(const json_t *object, const char *key, double *seconds,
                        forebay_error *error)
{
    const json_t *value = json_object_get(object, key);

    *seconds = -1;
    if (!value || json_is_null(value))
        return FOREBAY_OK;
    if (!json_is_number(value))
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' is no number of seconds", key);
    *seconds = json_number_value(value);
    if (!(*seconds >= 0) || *seconds > 1e9)
        return fb_fail(error, FOREBAY_BAD_DATA, "'%s' is %g; 0 to 1e9 seconds can be", key,
                       *seconds);
    return FOREBAY_OK;
}

int fb_utterance_parse(struct fb_utterance *utterance, const char *line, size_t bytes,
                       forebay_error *error)
{
    struct fb_utterance found = { .object = NULL };
    json_error_t wrong;
    json_t *path;
    int status;

    if (bytes == 0 || bytes > FB_MANIFEST_LINE_BYTES)
        return fb_fail(error, FOREBAY_BAD_DATA, "a line has more than %u bytes",
                       FB_MANIFEST_LINE_BYTES);
    found.object = json_loadb(line, bytes, 0, &wrong);
    if (!found.object)
        return fb_fail(error, FOREBAY_BAD_DATA, "no JSON: %s, column %d", wrong.text, wrong.column);
    path = json_object_get(found.object, "audio_filepath");
    status = json_is_string(path) && json_string_length(path) > 0
                 ? FOREBAY_OK
                 : fb_fail(error, FOREBAY_BAD_DATA, "it has no 'audio_filepath'");
    if (!status)
        status = take_seconds(found.object, "duration", &found.duration, error);
    if (!status)
        status = take_seconds(found.object, "offset", &found.offset, error);
    if (!status && found.offset >= 0 && found.duration < 0)
        status = fb_fail(error, FOREBAY_BAD_DATA, "it has an 'offset' but no 'duration'");
    if (status) {
        fb_utterance_release(&found);
        return status;
    }
    found.path = json_string_value(path); /* jansson refuses NULs inside of strings */
    *utterance = found;
    return FOREBAY_OK;
}

void fb_utterance_release(struct fb_utterance *utterance)
{
    json_decref(utterance->object);
    utterance->object = NULL;
}

size_t fb_utterance_text(const struct fb_utterance *utterance, const char *key, char *to,
                         size_t size)
{
    const json_t *value = json_object_get(utterance->object, key);

    if (!value || json_is_null(value))
        return 0;
    if (json_is_string(value)) {
        memcpy(to, json_string_value(value), fb_min(size, json_string_length(value)));
        return json_string_length(value);
    }
    return json_dumpb(value, to, size, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
}

uint32_t fb_manifest_hash(const char *line, size_t bytes)
{
    uint64_t hash = bytes;

    while (bytes) {
        size_t step = bytes < 8 ? bytes : 8;
        uint64_t word = 0;

        memcpy(&word, line, step);
        hash = fb_mix2(hash, word);
        line += step;
        bytes -= step;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!strchr(" \t\r", line[i]) || line[i] == '\0')
            return false;
    return true;
}

struct walk {
    fb_manifest_fn fn;
    void *data;
    uint64_t number; /* of the line that comes next */
    uint64_t at;     /* where the room begins in the file */
    size_t have;     /* bytes in it */
    bool too_long;   /* the line that goes on was cut already */
};

static int tell(struct walk *walk, const char *room, size_t begin, size_t end, forebay_error *error)
{
    size_t bytes = end - begin;

    walk->number++;
    if (walk->too_long) { /* what was cut before has been told */
        walk->too_long = false;
        return FOREBAY_OK;
    }
    if (bytes && room[end - 1] == '\r')
        bytes--;
    if (is_blank(room + begin, bytes))
        return FOREBAY_OK;
    return walk->fn(walk->data, room + begin, bytes > FB_MANIFEST_LINE_BYTES ? 0 : bytes,
                    walk->at + begin, walk->number, error);
}

/* Tell all whole lines in the room; what is left of the last moves to its beginning. */
static int tell_lines(struct walk *walk, char *room, bool last, forebay_error *error)
{
    size_t begin = 0;
    int status = FOREBAY_OK;

    while (begin < walk->have && !status) {
        const char *newline = memchr(room + begin, '\n', walk->have - begin);
        size_t end = newline ? (size_t)(newline - room) : walk->have;

        if (!newline && !last)
            break;
        status = tell(walk, room, begin, end, error);
        begin = newline ? end + 1 : end;
    }
    if (!status && begin == 0 && walk->have == 2 * FB_MANIFEST_LINE_BYTES) {
        if (!walk->too_long)
            status = walk->fn(walk->data, room, 0, walk->at, walk->number + 1, error);
        walk->too_long = true;
        begin = walk->have;
    }
    memmove(room, room + begin, walk->have - begin);
    walk->have -= begin;
    walk->at += begin;
    return status;
}

int fb_manifest_walk(int fd, char *room, fb_manifest_fn fn, void *data, forebay_error *error)
{
    struct walk walk = { .fn = fn, .data = data };
    int status = FOREBAY_OK;

    while (!status) {
        ssize_t got = pread(fd, room + walk.have, 2 * FB_MANIFEST_LINE_BYTES - walk.have,
                            (off_t)(walk.at + walk.have));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fb_fail_errno(error, FOREBAY_IO, "cannot be read");
        walk.have += (size_t)got;
        status = tell_lines(&walk, room, got == 0, error);
        if (got == 0)
            break;
    }
    return status;
}
