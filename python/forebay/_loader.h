/*
 * _loader.h -- the Loader from inside: what _loader.c and _control.c share.
 *
 * forebay.h allows one thread at a time for most calls and any thread for some. Python's threads
 * need not know: `turn` puts the former in line, `gate` lets close wait until all have left.
 */
#ifndef FOREBAY_PYTHON_LOADER_H
#define FOREBAY_PYTHON_LOADER_H
#include <pthread.h>
#include <sys/types.h>

#include "_forebay.h"

struct loader {
    PyObject_HEAD
    pid_t owner; /* in any other process not even the locks may be touched */
    struct lines *lines;
    struct face face; /* set before the first batch is asked for */
    struct opening *opening; /* only during forebay_open */
    pthread_mutex_t turn; /* taken after entering; held during the calls that need to be alone */
    pthread_mutex_t gate;
    pthread_cond_t left;
    /* under gate */
    forebay_loader *loader; /* NULL: closed */
    unsigned inside;
    bool closing;
    _Atomic int64_t epoch; /* of the last batch delivered; -1: none was */
};

static inline const struct module_state *loader_state(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

/* In any process but the one that opened it. */
bool loader_is_foreign(const struct loader *self);

/* In and out of the engine, without the GIL; `alone` for what is not [any thread]. */
int loader_enter(struct loader *self, bool alone, forebay_error *error);
void loader_leave(struct loader *self, bool alone);

/* ---- _control.c: live control and what is measured ---- */

PyObject *loader_set(PyObject *object, PyObject *args);
PyObject *loader_stats(PyObject *object, PyObject *unused);
PyObject *loader_device_trim(PyObject *object, PyObject *bytes);
PyObject *loader_lines(PyObject *object, PyObject *unused);
PyObject *loader_pending(PyObject *object, void *unused);
#endif
