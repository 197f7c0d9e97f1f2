/*
 * touch.c -- the consumer of `forebay run` for batches in Python: touch.batch(dict) -> sum.
 *
 * bench/python.py builds it, so that both sides pay the same for reading a batch (the first, the
 * last and every 4096th byte of each sample) and the sums can be compared: they are equal.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "generate/checksum.h"

struct array {
    Py_buffer view; /* view.obj NULL: there is none */
};

static bool array_open(struct array *array, PyObject *owner)
{
    array->view.obj = NULL;
    return !PyObject_GetBuffer(owner, &array->view, PyBUF_C_CONTIGUOUS);
}

/* Of a batch's array with `suffix`; false with an exception when it cannot be read. */
static bool companion_open(struct array *array, PyObject *batch, PyObject *name, const char *suffix)
{
    PyObject *whole = name ? PyUnicode_FromFormat("%U%s", name, suffix) : NULL;
    PyObject *found = whole ? PyDict_GetItemWithError(batch, whole) : NULL; /* borrowed */

    array->view.obj = NULL;
    Py_XDECREF(whole);
    return found ? array_open(array, found) : !PyErr_Occurred();
}

/* [B] or, for sequences, [B, items] lengths in rows of a padded field; NULL: all of it counts. */
static uint64_t sum_pieces(const Py_buffer *field, const Py_buffer *lengths, Py_ssize_t samples)
{
    const unsigned char *data = field->buf;
    const int64_t *length = lengths ? lengths->buf : NULL;
    Py_ssize_t pieces = lengths ? lengths->len / 8 : samples;
    uint64_t bytes = pieces ? (uint64_t)(field->len / pieces) : 0, sum = 0;
    uint64_t rows = lengths ? (uint64_t)field->shape[lengths->ndim] : 1;

    for (Py_ssize_t i = 0; i < pieces; i++)
        sum += fb_checksum(data + (uint64_t)i * bytes,
                           length ? (uint64_t)length[i] * (rows ? bytes / rows : 0) : bytes);
    return sum;
}

/* Rows [at[i], at[i + 1]) are a piece. */
static uint64_t sum_ragged(const Py_buffer *field, const Py_buffer *offsets)
{
    const unsigned char *data = field->buf;
    const int64_t *at = offsets->buf;
    uint64_t row = (uint64_t)(field->len / field->shape[0]), sum = 0;

    for (Py_ssize_t i = 0; i + 1 < offsets->len / 8; i++)
        sum += fb_checksum(data + (uint64_t)at[i] * row, (uint64_t)(at[i + 1] - at[i]) * row);
    return sum;
}

/* `name` NULL: it has neither lengths nor offsets. */
static bool sum_field(PyObject *batch, PyObject *name, PyObject *value, Py_ssize_t samples,
                      uint64_t *sum)
{
    struct array field, lengths, offsets = { .view.obj = NULL };
    bool ok;

    if (!array_open(&field, value))
        return false;
    ok = companion_open(&lengths, batch, name, "_length") &&
         companion_open(&offsets, batch, name, "_offsets");
    if (ok && field.view.len)
        *sum += offsets.view.obj ? sum_ragged(&field.view, &offsets.view)
                                 : sum_pieces(&field.view,
                                              lengths.view.obj ? &lengths.view : NULL, samples);
    if (offsets.view.obj)
        PyBuffer_Release(&offsets.view);
    if (lengths.view.obj)
        PyBuffer_Release(&lengths.view);
    PyBuffer_Release(&field.view);
    return ok;
}

/* <field>_length or <field>_offsets. Most batches have none, and a name made for each field would
 * cost more than the sum. */
static bool is_companion(PyObject *name)
{
    Py_ssize_t length = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name, &length);

    return text && ((length > 7 && !memcmp(text + length - 7, "_length", 7)) ||
                    (length > 8 && !memcmp(text + length - 8, "_offsets", 8)));
}

static bool has_companions(PyObject *batch)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(batch, &at, &name, &value))
        if (is_companion(name))
            return true;
    return false;
}

static PyObject *touch_batch(PyObject *module, PyObject *batch)
{
    PyObject *name, *value, *index = PyDict_GetItemString(batch, "index"); /* borrowed */
    Py_ssize_t at = 0, samples = index ? PyObject_Size(index) : -1;
    bool named = has_companions(batch);
    uint64_t sum = 0;

    (void)module;
    if (samples < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "there is no index");
    while (PyDict_Next(batch, &at, &name, &value))
        if (value != index && !is_companion(name) &&
            !sum_field(batch, named ? name : NULL, value, samples, &sum))
            return NULL;
    return PyLong_FromUnsignedLongLong(sum);
}

static PyMethodDef methods[] = {
    { "batch", touch_batch, METH_O, "Read a batch, a dict of arrays, as `forebay run` does." },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "touch", .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC PyInit_touch(void)
{
    return PyModule_Create(&definition);
}
