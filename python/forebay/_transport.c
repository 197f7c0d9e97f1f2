/* _transport.c -- Transport and Range: memory in which batches come from worker processes. */
#include "_forebay.h"

#include <string.h>

struct transport {
    PyObject_HEAD
    forebay_transport *transport;
};

/* Its memory is given back when the last tensor over it is gone. */
struct range {
    PyObject_HEAD
    forebay_transport *transport;
    forebay_range range;
};

static PyObject *transport_wrap(PyTypeObject *type, forebay_transport *opened)
{
    struct transport *self = PyObject_New(struct transport, type);

    if (self)
        self->transport = opened;
    else
        forebay_transport_close(opened);
    return (PyObject *)self;
}

static PyObject *transport_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = { "", "", NULL };
    unsigned long long limit;
    int fd = -1, status;
    forebay_transport *opened = NULL;
    forebay_error error;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "K|i:Transport", names, &limit, &fd))
        return NULL;
    status = fd < 0 ? forebay_transport_open(&opened, limit, &error)
                    : forebay_transport_attach(&opened, fd, &error);
    return status ? errors_raise(PyType_GetModuleState(type), &error)
                  : transport_wrap(type, opened);
}

static void transport_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    forebay_transport_close(((struct transport *)object)->transport);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *range_new(PyObject *object, const forebay_range *range)
{
    const struct module_state *state = PyType_GetModuleState(Py_TYPE(object));
    forebay_transport *transport = ((struct transport *)object)->transport;
    struct range *self = PyObject_New(struct range, state->range_type);

    if (!self) {
        forebay_transport_release(transport, range);
        return NULL;
    }
    self->transport = forebay_transport_share(transport);
    self->range = *range;
    return (PyObject *)self;
}

static PyObject *transport_take(PyObject *object, PyObject *args)
{
    unsigned long long bytes;
    forebay_range range;

    if (!PyArg_ParseTuple(args, "K:take", &bytes))
        return NULL;
    if (forebay_transport_take(((struct transport *)object)->transport, bytes, &range))
        Py_RETURN_NONE;
    return range_new(object, &range);
}

static PyObject *transport_store(PyObject *object, PyObject *args)
{
    unsigned long long address, bytes;
    forebay_range range;

    if (!PyArg_ParseTuple(args, "KK:store", &address, &bytes))
        return NULL;
    if (forebay_transport_take(((struct transport *)object)->transport, bytes, &range))
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    memcpy(range.data, (const void *)(uintptr_t)address, bytes);
    Py_END_ALLOW_THREADS
    return range_new(object, &range);
}

static PyObject *transport_adopt(PyObject *object, PyObject *args)
{
    unsigned long long offset, bytes, ticket;
    forebay_range range;
    forebay_error error;

    if (!PyArg_ParseTuple(args, "KKK:adopt", &offset, &bytes, &ticket))
        return NULL;
    if (forebay_transport_adopt(((struct transport *)object)->transport, offset, bytes, ticket,
                                &range, &error))
        return errors_raise(PyType_GetModuleState(Py_TYPE(object)), &error);
    return range_new(object, &range);
}

static PyObject *transport_reclaim(PyObject *object, PyObject *args)
{
    int pid;

    if (!PyArg_ParseTuple(args, "i:reclaim", &pid))
        return NULL;
    return PyLong_FromUnsignedLongLong(
        forebay_transport_reclaim(((struct transport *)object)->transport, pid));
}

static PyObject *transport_stats(PyObject *object, PyObject *unused)
{
    forebay_transport_stats stats;

    (void)unused;
    forebay_transport_read_stats(((struct transport *)object)->transport, &stats);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "limit_bytes", stats.limit_bytes,
                         "used_bytes", stats.used_bytes, "held_bytes", stats.own_bytes,
                         "held_ranges", stats.own_ranges, "resident_bytes", stats.resident_bytes,
                         "refused", stats.refused);
}

static PyObject *transport_set_limit(PyObject *object, PyObject *args)
{
    unsigned long long bytes;
    forebay_error error;

    if (!PyArg_ParseTuple(args, "K:set_limit", &bytes))
        return NULL;
    if (forebay_transport_set_limit(((struct transport *)object)->transport, bytes, &error))
        return errors_raise(PyType_GetModuleState(Py_TYPE(object)), &error);
    Py_RETURN_NONE;
}

static PyObject *transport_fd(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(forebay_transport_fd(((struct transport *)object)->transport));
}

static PyMethodDef transport_methods[] = {
    { "take", transport_take, METH_VARARGS, "take(bytes, /): a Range, or None without room." },
    { "store", transport_store, METH_VARARGS, "store(address, bytes, /): take, and copy there." },
    { "adopt", transport_adopt, METH_VARARGS, "adopt(offset, bytes, ticket, /): a Range." },
    { "reclaim", transport_reclaim, METH_VARARGS, "reclaim(pid, /): free what it held." },
    { "stats", transport_stats, METH_NOARGS, "Bytes by name." },
    { "set_limit", transport_set_limit, METH_VARARGS, "set_limit(bytes, /)" },
    { "fileno", transport_fd, METH_NOARGS, "The memfd." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot transport_slots[] = {
    { Py_tp_doc, "Transport(limit_bytes, fd=-1, /)\n--\n\nforebay.h's transport." },
    { Py_tp_new, SLOT(transport_new) },
    { Py_tp_dealloc, SLOT(transport_dealloc) },
    { Py_tp_methods, transport_methods },
    { 0, NULL },
};

PyType_Spec transport_spec = {
    .name = "forebay._forebay.Transport",
    .basicsize = sizeof(struct transport),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = transport_slots,
};

/* ---- Ranges ---- */

static void range_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    struct range *self = (struct range *)object;

    forebay_transport_release(self->transport, &self->range);
    forebay_transport_close(self->transport);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *range_send(PyObject *object, PyObject *unused)
{
    struct range *self = (struct range *)object;

    (void)unused;
    return Py_BuildValue("(KKK)", (unsigned long long)self->range.offset,
                         (unsigned long long)self->range.bytes,
                         (unsigned long long)forebay_transport_send(self->transport,
                                                                    &self->range));
}

static int range_buffer(PyObject *object, Py_buffer *view, int flags)
{
    struct range *self = (struct range *)object;

    return PyBuffer_FillInfo(view, object, self->range.data, (Py_ssize_t)self->range.bytes, 0,
                             flags);
}

static PyMethodDef range_methods[] = {
    { "send", range_send, METH_NOARGS, "Let go of it: (offset, bytes, ticket) for adopt()." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot range_slots[] = {
    { Py_tp_doc, "Writable memory of a Transport, as a buffer." },
    { Py_tp_dealloc, SLOT(range_dealloc) },
    { Py_tp_methods, range_methods },
    { Py_bf_getbuffer, SLOT(range_buffer) },
    { 0, NULL },
};

PyType_Spec range_spec = {
    .name = "forebay._forebay.Range",
    .basicsize = sizeof(struct range),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = range_slots,
};

/* ---- For workers ---- */

static PyObject *enter_worker(PyObject *module, PyObject *unused)
{
    forebay_error error;

    (void)unused;
    forebay_worker_keep_heap();
    if (forebay_worker_watch(&error))
        return errors_raise(PyModule_GetState(module), &error);
    Py_RETURN_NONE;
}

PyMethodDef worker_methods[] = {
    { "enter_worker", enter_worker, METH_NOARGS,
      "End with the parent, and keep freed memory in the heap." },
    { NULL, NULL, 0, NULL },
};
