/* _control.c -- a Loader while it runs: live control and what is measured. */
#include "_loader.h"

#include <stdlib.h>
#include <string.h>

PyObject *loader_set(PyObject *object, PyObject *args)
{
    struct loader *self = (struct loader *)object;
    forebay_set_result result;
    forebay_error error;
    const char *key, *value;
    int status;

    if (!PyArg_ParseTuple(args, "ss:set", &key, &value))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, false, &error);
    if (!status) {
        status = forebay_set(self->loader, key, value, &result, &error);
        loader_leave(self, false);
    }
    Py_END_ALLOW_THREADS
    if (status)
        return errors_raise(loader_state(object), &error);
    return Py_BuildValue("(ssKK)", result.old_value, result.new_value,
                         (unsigned long long)result.held_batches,
                         (unsigned long long)result.held_bytes);
}

/* What is measured changes while it is written, so the length may too. */
static char *stats_text(forebay_loader *loader)
{
    size_t size = 16384;
    char *text = NULL;

    for (;;) {
        char *bigger = realloc(text, size);
        size_t needed;

        if (!bigger) {
            free(text);
            return NULL;
        }
        text = bigger;
        needed = forebay_stats_json(loader, text, size);
        if (needed < size)
            return text;
        size = needed + 1024;
    }
}

PyObject *loader_stats(PyObject *object, PyObject *unused)
{
    struct loader *self = (struct loader *)object;
    PyObject *made = NULL;
    forebay_error error;
    char *text = NULL;
    int status;

    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, false, &error);
    if (!status) {
        text = stats_text(self->loader);
        loader_leave(self, false);
    }
    Py_END_ALLOW_THREADS
    if (status)
        return errors_raise(loader_state(object), &error);
    made = text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace")
                : PyErr_NoMemory();
    free(text);
    return made;
}

PyObject *loader_device_trim(PyObject *object, PyObject *bytes)
{
    struct loader *self = (struct loader *)object;
    unsigned long long wanted = PyLong_AsUnsignedLongLong(bytes), given = 0;
    forebay_error error;
    int status;

    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, false, &error);
    if (!status) {
        given = forebay_device_trim(self->loader, wanted);
        loader_leave(self, false);
    }
    Py_END_ALLOW_THREADS
    return status ? errors_raise(loader_state(object), &error) : PyLong_FromUnsignedLongLong(given);
}

PyObject *loader_lines(PyObject *object, PyObject *unused)
{
    const struct loader *self = (struct loader *)object;

    (void)unused;
    return loader_is_foreign(self) ? PyList_New(0) : lines_take(self->lines);
}

PyObject *loader_pending(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(lines_pending(((struct loader *)object)->lines));
}
