/*
 * _lines.c -- log lines of the engine's threads, kept until Python asks for them.
 *
 * A worker that called Python would wait for the GIL, and whoever holds the GIL may be waiting for
 * that worker. So lines are queued here, a bounded number of them, and logged by the next call.
 */
#include "_forebay.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 256
#define LINE_BYTES_MAX 2048

struct lines {
    atomic_uint pending; /* a hint that needs no lock: count + lost */
    pthread_mutex_t lock;
    unsigned first, count, lost;
    struct {
        int level;
        char *text;
    } ring[LINES_MAX];
};

struct lines *lines_new(void)
{
    struct lines *lines = calloc(1, sizeof(*lines));

    if (lines)
        pthread_mutex_init(&lines->lock, NULL);
    return lines;
}

void lines_free(struct lines *lines)
{
    if (!lines)
        return;
    for (unsigned i = 0; i < lines->count; i++)
        free(lines->ring[(lines->first + i) % LINES_MAX].text);
    pthread_mutex_destroy(&lines->lock);
    free(lines);
}

void lines_add(void *data, int level, const char *line)
{
    struct lines *lines = data;
    char *text = strndup(line, LINE_BYTES_MAX);

    pthread_mutex_lock(&lines->lock);
    if (!text || lines->count == LINES_MAX) {
        lines->lost++;
        free(text);
    } else {
        unsigned at = (lines->first + lines->count++) % LINES_MAX;

        lines->ring[at].level = level;
        lines->ring[at].text = text;
    }
    atomic_store(&lines->pending, lines->count + lines->lost);
    pthread_mutex_unlock(&lines->lock);
}

bool lines_pending(struct lines *lines)
{
    return atomic_load_explicit(&lines->pending, memory_order_relaxed) > 0;
}

/* The oldest line, to be freed; NULL when there is none. */
static char *take_one(struct lines *lines, int *level)
{
    char *text = NULL;

    pthread_mutex_lock(&lines->lock);
    if (lines->count) {
        text = lines->ring[lines->first].text;
        *level = lines->ring[lines->first].level;
        lines->first = (lines->first + 1) % LINES_MAX;
        lines->count--;
    }
    atomic_store(&lines->pending, lines->count + lines->lost);
    pthread_mutex_unlock(&lines->lock);
    return text;
}

static unsigned take_lost(struct lines *lines)
{
    unsigned lost;

    pthread_mutex_lock(&lines->lock);
    lost = lines->lost;
    lines->lost = 0;
    atomic_store(&lines->pending, lines->count);
    pthread_mutex_unlock(&lines->lock);
    return lost;
}

static int append(PyObject *list, int level, PyObject *text)
{
    PyObject *line = text ? Py_BuildValue("(iO)", level, text) : NULL;
    int status = line ? PyList_Append(list, line) : -1;

    Py_XDECREF(line);
    Py_XDECREF(text);
    return status;
}

PyObject *lines_take(struct lines *lines)
{
    PyObject *list = PyList_New(0);
    int level = 0, status = list ? 0 : -1;
    unsigned lost;
    char *text;

    while (!status && (text = take_one(lines, &level))) {
        status = append(list, level,
                        PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace"));
        free(text);
    }
    lost = status ? 0 : take_lost(lines);
    if (lost)
        status = append(list, 1, PyUnicode_FromFormat("%u log lines were lost: too many at once",
                                                      lost));
    if (status)
        Py_CLEAR(list);
    return list;
}
