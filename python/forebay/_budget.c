/* _budget.c -- Budget: one ceiling that several loaders of this process share. */
#include "_forebay.h"

static PyObject *budget_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = { "", NULL };
    unsigned long long bytes;
    forebay_error error;
    struct budget *self;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "K:Budget", names, &bytes))
        return NULL;
    self = PyObject_New(struct budget, type);
    if (!self)
        return NULL;
    self->budget = NULL;
    self->bytes = bytes;
    if (forebay_budget_new(&self->budget, bytes, &error)) {
        errors_raise(PyType_GetModuleState(type), &error);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void budget_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    forebay_budget_free(((struct budget *)object)->budget);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *budget_bytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct budget *)object)->bytes);
}

static PyGetSetDef budget_getset[] = {
    { "bytes", budget_bytes, NULL, "What it was made with.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot budget_slots[] = {
    { Py_tp_doc, "Budget(bytes, /)\n--\n\nforebay.h's budget; forebay.Budget is the one to use." },
    { Py_tp_new, SLOT(budget_new) },
    { Py_tp_dealloc, SLOT(budget_dealloc) },
    { Py_tp_getset, budget_getset },
    { 0, NULL },
};

PyType_Spec budget_spec = {
    .name = "forebay._forebay.Budget",
    .basicsize = sizeof(struct budget),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = budget_slots,
};
