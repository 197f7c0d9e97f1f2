/* _face.c -- what the caller gets for a field: an array or a tensor over it, or the Field. */
#include "_forebay.h"

int face_set(struct face *face, PyObject *make, PyObject *dtypes, PyObject *other)
{
    struct face old = *face;

    if (dtypes != Py_None && (!PyTuple_Check(dtypes) || PyTuple_Size(dtypes) != DTYPES)) {
        PyErr_SetString(PyExc_ValueError, "dtypes: None, or a tuple as long as _forebay.dtypes");
        return -1;
    }
    *face = (struct face){ Py_NewRef(make), Py_NewRef(dtypes), Py_NewRef(other) };
    face_clear(&old);
    return 0;
}

void face_clear(struct face *face)
{
    Py_CLEAR(face->make);
    Py_CLEAR(face->dtypes);
    Py_CLEAR(face->other);
}

/* make(shape, dtype, field): NumPy's ndarray finds the memory by the field's buffer. */
static PyObject *array_of(const struct face *face, PyObject *field, PyObject *dtype)
{
    PyObject *shape = field_shape(field, NULL), *made = NULL;

    if (shape)
        made = PyObject_CallFunctionObjArgs(face->make, shape, dtype, field, NULL);
    Py_XDECREF(shape);
    return made;
}

/* make(capsule) */
static PyObject *tensor_of(const struct face *face, PyObject *field)
{
    PyObject *capsule = field_capsule(field), *made = NULL;

    if (capsule)
        made = PyObject_CallFunctionObjArgs(face->make, capsule, NULL);
    Py_XDECREF(capsule);
    return made;
}

PyObject *face_show(const struct face *face, PyObject *field)
{
    const struct field *self = (struct field *)field;
    PyObject *dtype;

    if (!face->make)
        return Py_NewRef(field);
    if (face->dtypes == Py_None)
        return tensor_of(face, field);
    dtype = PyTuple_GetItem(face->dtypes, (Py_ssize_t)self->dtype); /* borrowed */
    if (!dtype)
        return NULL;
    if (dtype == Py_None || self->device_type != 1)
        return PyObject_CallFunctionObjArgs(face->other, field, NULL);
    return array_of(face, field, dtype);
}
