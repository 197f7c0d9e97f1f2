/* _errors.c -- an exception class for each status of forebay.h, all under forebay.Error. */
#include "_forebay.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
    int status;
} statuses[] = {
#define FOREBAY_X(name, value, text) { #name, text, value },
    FOREBAY_STATUS_MAP(FOREBAY_X)
#undef FOREBAY_X
};

/* "OVER_BUDGET" -> "forebay.OverBudgetError". */
static void class_name(char *out, size_t size, const char *status)
{
    size_t used = (size_t)snprintf(out, size, "forebay.");
    bool upper = true;

    for (; *status && used + sizeof("Error") < size; status++) {
        if (*status != '_')
            out[used++] = (char)(upper ? *status : tolower((unsigned char)*status));
        upper = *status == '_';
    }
    snprintf(out + used, size - used, "Error");
}

/* A caller who knows only Python's own classes should still catch the plain cases. */
static PyObject *python_class(int status)
{
    switch (status) {
    case FOREBAY_NO_MEMORY:
        return PyExc_MemoryError;
    case FOREBAY_BAD_CONFIG:
        return PyExc_ValueError;
    default:
        return NULL;
    }
}

static PyObject *class_new(const struct module_state *state, size_t i)
{
    PyObject *also = python_class(statuses[i].status);
    PyObject *bases = also ? PyTuple_Pack(2, state->error, also) : PyTuple_Pack(1, state->error);
    PyObject *members = Py_BuildValue("{s:s}", "status", statuses[i].name);
    PyObject *made = NULL;
    char name[64];

    class_name(name, sizeof(name), statuses[i].name);
    if (bases && members)
        made = PyErr_NewExceptionWithDoc(name, statuses[i].text, bases, members);
    Py_XDECREF(bases);
    Py_XDECREF(members);
    return made;
}

int errors_add(PyObject *module, struct module_state *state)
{
    PyObject *members = Py_BuildValue("{s:O,s:s}", "status", Py_None, "place", "");

    if (!members)
        return -1;
    state->error = PyErr_NewExceptionWithDoc(
        "forebay.Error",
        "What every error of forebay is. `status` is the name of the C status, `place` the file,\n"
        "line or key it is about (\"\" if nowhere in particular).",
        NULL, members);
    Py_DECREF(members);
    if (!state->error || PyModule_AddObjectRef(module, "Error", state->error))
        return -1;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        int at = -statuses[i].status;
        char name[64];

        if (at <= 0 || at >= ERROR_CLASSES_MAX)
            continue;
        class_name(name, sizeof(name), statuses[i].name);
        state->error_classes[at] = class_new(state, i);
        if (!state->error_classes[at] ||
            PyModule_AddObjectRef(module, strchr(name, '.') + 1, state->error_classes[at]))
            return -1;
    }
    return 0;
}

/* The engine (its messages end without a full stop) says what is held; only here it is known that
 * it is held as arrays. */
static const char *advice(const forebay_error *error)
{
    if (error->status == FOREBAY_HELD && !strstr(error->message, ".copy()"))
        return ". Arrays of earlier batches are still referenced: keep array.copy() (or .clone()) "
               "instead of the array itself, or raise memory.budget.";
    return "";
}

static PyObject *message_of(const forebay_error *error)
{
    const char *text = error->message[0] ? error->message : forebay_status_name(error->status);
    bool placed = !error->place[0] || strstr(text, error->place);

    /* Paths may be any bytes; a message must never be the error. */
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    PyObject *place = PyUnicode_DecodeUTF8(error->place, (Py_ssize_t)strlen(error->place),
                                           "backslashreplace");
    PyObject *whole = NULL;

    if (message && place)
        whole = placed ? PyUnicode_FromFormat("%U%s", message, advice(error))
                       : PyUnicode_FromFormat("%U: %U%s", place, message, advice(error));
    Py_XDECREF(message);
    Py_XDECREF(place);
    return whole;
}

PyObject *errors_raise(const struct module_state *state, const forebay_error *error)
{
    int at = -(int)error->status;
    PyObject *class = at > 0 && at < ERROR_CLASSES_MAX ? state->error_classes[at] : NULL;
    PyObject *message = message_of(error), *place, *raised;

    if (!message)
        return NULL;
    raised = PyObject_CallFunctionObjArgs(class ? class : state->error, message, NULL);
    Py_DECREF(message);
    if (!raised)
        return NULL;
    place = PyUnicode_DecodeUTF8(error->place, (Py_ssize_t)strlen(error->place),
                                 "backslashreplace");
    if (place && !PyObject_SetAttrString(raised, "place", place))
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    Py_XDECREF(place);
    Py_DECREF(raised);
    return NULL;
}
