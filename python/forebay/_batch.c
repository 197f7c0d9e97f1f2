/* _batch.c -- Field: one field of a batch, as a buffer; shares its batch or owns a copy. */
#include "_forebay.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define HUGE_FROM (2 * HUGE_BYTES)

static const struct {
    const char *name, *numpy;
} dtypes[DTYPES] = {
#define FOREBAY_X(name, bytes, text, numpy, dlpack) [FOREBAY_##name] = { text, numpy },
    FOREBAY_DTYPE_MAP(FOREBAY_X)
#undef FOREBAY_X
};

PyObject *dtype_names(void)
{
    PyObject *names = PyTuple_New(DTYPES);

    for (Py_ssize_t i = 0; names && i < DTYPES; i++) {
        PyObject *name = PyUnicode_FromString(dtypes[i].numpy);

        if (!name || PyTuple_SetItem(names, i, name))
            Py_CLEAR(names);
    }
    return names;
}

/* The letters of the struct module. 64 bits are `l`, not `q`: that is NumPy's int64 on Linux. */
static const char *format_of(forebay_dtype dtype)
{
    static const char *const formats[] = {
        [FOREBAY_U8] = "B",  [FOREBAY_U16] = "H",   [FOREBAY_U32] = "I", [FOREBAY_U64] = "L",
        [FOREBAY_I8] = "b",  [FOREBAY_I16] = "h",   [FOREBAY_I32] = "i", [FOREBAY_I64] = "l",
        [FOREBAY_F16] = "e", [FOREBAY_BF16] = "H",  [FOREBAY_F32] = "f", [FOREBAY_F64] = "d",
        [FOREBAY_C64] = "Zf", [FOREBAY_C128] = "Zd", [FOREBAY_BOOL] = "?",
    };

    return formats[dtype];
}

/* ---- Shares ---- */

static struct share *share_new(forebay_batch *batch)
{
    struct share *share = malloc(sizeof(*share));

    if (share) {
        atomic_init(&share->references, 1);
        share->batch = batch;
    }
    return share;
}

struct share *share_new_bytes(size_t bytes)
{
    struct share *share;

    if (bytes < HUGE_FROM) { /* malloc and a gap are quicker than a search for aligned memory */
        share = malloc(sizeof(*share) + COPY_ALIGN + bytes);
    } else {
        size_t whole = (sizeof(*share) + COPY_ALIGN + bytes + HUGE_BYTES - 1) / HUGE_BYTES *
                       HUGE_BYTES;

        share = aligned_alloc(HUGE_BYTES, whole);
        if (share) /* each small page would be a fault; this is only a wish */
            madvise(share, whole, MADV_HUGEPAGE);
    }
    if (!share)
        return NULL;
    atomic_init(&share->references, 1);
    share->batch = NULL;
    return share;
}

void *share_bytes(struct share *share)
{
    uintptr_t behind = (uintptr_t)(share + 1);

    return (void *)((behind + COPY_ALIGN - 1) & ~(uintptr_t)(COPY_ALIGN - 1));
}

struct share *share_copy(const void *data, size_t bytes)
{
    struct share *share = share_new_bytes(bytes);

    if (share)
        memcpy(share_bytes(share), data, bytes);
    return share;
}

void share_keep(struct share *share)
{
    atomic_fetch_add_explicit(&share->references, 1, memory_order_relaxed);
}

void share_drop(struct share *share)
{
    if (atomic_fetch_sub_explicit(&share->references, 1, memory_order_acq_rel) != 1)
        return;
    if (share->batch)
        forebay_batch_release(share->batch);
    free(share);
}

/* ---- Fields ---- */

/* Where shape and strides stand: inside, as long as there are few. */
static bool field_room(struct field *self, int ndim)
{
    self->ndim = ndim;
    self->shape = self->inside;
    if (ndim > FIELD_DIMS_INSIDE)
        self->shape = malloc(2 * (size_t)ndim * sizeof(*self->shape));
    self->strides = self->shape ? self->shape + ndim : NULL;
    return self->shape;
}

static bool field_lay_out(struct field *self, const forebay_field *from)
{
    Py_ssize_t step = (Py_ssize_t)forebay_dtype_bytes(from->dtype);

    if (!field_room(self, (int)from->ndim))
        return false;
    for (unsigned i = from->ndim; i-- > 0;) {
        self->shape[i] = (Py_ssize_t)from->shape[i];
        self->strides[i] = step;
        step *= self->shape[i];
    }
    return true;
}

/* `share` is of the whole batch; NULL: this field is to own a copy. */
static PyObject *field_new(const struct module_state *state, const forebay_batch *batch,
                           const forebay_field *from, struct share *share)
{
    struct field *self = PyObject_New(struct field, state->field_type);

    if (!self)
        return NULL;
    self->shape = NULL;
    self->share = share;
    if (share)
        share_keep(share);
    else
        self->share = share_copy(from->data, from->bytes);
    if (!self->share || !field_lay_out(self, from)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->data = share ? from->data : share_bytes(self->share);
    self->bytes = from->bytes;
    self->dtype = from->dtype;
    self->device_type = batch->device_type;
    self->device_id = batch->device_id;
    return (PyObject *)self;
}

PyObject *field_of_bytes(const struct module_state *state, size_t bytes, void **data)
{
    struct field *self = PyObject_New(struct field, state->field_type);

    if (!self)
        return NULL;
    *self = (struct field){ .ob_base = self->ob_base,
                            .share = share_new_bytes(bytes),
                            .bytes = bytes,
                            .dtype = FOREBAY_U8,
                            .device_type = 1 };
    if (!self->share || !field_room(self, 1)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->shape[0] = (Py_ssize_t)bytes;
    self->strides[0] = 1;
    *data = self->data = share_bytes(self->share);
    return (PyObject *)self;
}

static int add_field(PyObject *fields, const struct module_state *state, const struct face *face,
                     const forebay_batch *batch, const forebay_field *from, struct share *share)
{
    PyObject *name = PyUnicode_InternFromString(from->name);
    bool copied = batch->device_type == 1 && from->bytes < SHARED_BYTES_MIN;
    PyObject *field = name ? field_new(state, batch, from, copied ? NULL : share) : NULL;
    PyObject *shown = field ? face_show(face, field) : NULL;
    int status = shown ? PyDict_SetItem(fields, name, shown) : -1;

    Py_XDECREF(name);
    Py_XDECREF(field);
    Py_XDECREF(shown);
    return status;
}

PyObject *batch_fields(const struct module_state *state, const struct face *face,
                       forebay_batch *batch)
{
    struct share *share = share_new(batch);
    PyObject *fields;

    if (!share) {
        forebay_batch_release(batch);
        return PyErr_NoMemory();
    }
    fields = PyDict_New();
    for (size_t i = 0; fields && i < batch->field_count; i++)
        if (add_field(fields, state, face, batch, &batch->fields[i], share))
            Py_CLEAR(fields);
    share_drop(share); /* of a batch of small fields this was the only one */
    return fields;
}

static void field_dealloc(PyObject *object)
{
    struct field *self = (struct field *)object;
    PyTypeObject *type = Py_TYPE(object);

    if (self->share)
        share_drop(self->share);
    if (self->shape != self->inside)
        free(self->shape);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int field_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct field *self = (struct field *)object;

    view->obj = NULL;
    if (self->device_type != 1) {
        PyErr_SetString(PyExc_BufferError, "this field lies in device memory, which has no buffer; "
                                           "take it with as_=\"torch\" or as_=\"dlpack\"");
        return -1;
    }
    *view = (Py_buffer){
        .buf = self->data,
        .obj = Py_NewRef(object),
        .len = (Py_ssize_t)self->bytes,
        .itemsize = (Py_ssize_t)forebay_dtype_bytes(self->dtype),
        .ndim = flags & PyBUF_ND ? self->ndim : 1,
        .shape = flags & PyBUF_ND ? self->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL,
    };
    if (flags & PyBUF_FORMAT)
        view->format = (char *)(uintptr_t)format_of(self->dtype); /* nobody writes there */
    return 0;
}

PyObject *field_shape(PyObject *object, void *unused)
{
    const struct field *self = (struct field *)object;
    PyObject *shape = PyTuple_New(self->ndim);

    (void)unused;
    for (int i = 0; shape && i < self->ndim; i++) {
        PyObject *size = PyLong_FromSsize_t(self->shape[i]);

        if (!size || PyTuple_SetItem(shape, i, size))
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *field_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(dtypes[((struct field *)object)->dtype].numpy);
}

static PyObject *field_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(((struct field *)object)->bytes);
}

static PyObject *field_shared(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct field *)object)->share->batch != NULL);
}

static PyObject *field_repr(PyObject *object)
{
    const struct field *self = (struct field *)object;
    PyObject *shape = field_shape(object, NULL), *text = NULL;

    if (shape)
        text = PyUnicode_FromFormat("<forebay field %s %R>", dtypes[self->dtype].name, shape);
    Py_XDECREF(shape);
    return text;
}

static PyGetSetDef field_getset[] = {
    { "shape", field_shape, NULL, "The sizes of all dimensions, a tuple.", NULL },
    { "dtype", field_dtype, NULL, "NumPy's name of the elements' type, or \"bfloat16\".", NULL },
    { "nbytes", field_nbytes, NULL, "The bytes of all elements.", NULL },
    { "__cuda_array_interface__", field_cuda_array, NULL,
      "The CUDA Array Interface, version 3; only of a field in CUDA memory.", NULL },
    { "shared", field_shared, NULL, "True: keeps its batch; False: owns a copy.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef field_methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))field_dlpack, METH_VARARGS | METH_KEYWORDS,
      "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
      "The field as a DLPack capsule, without a copy unless one is asked for." },
    { "__dlpack_device__", field_dlpack_device, METH_NOARGS,
      "__dlpack_device__($self, /)\n--\n\nDLPack's (device type, device number)." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot field_slots[] = {
    { Py_tp_doc, "One field of a batch: a contiguous buffer that DLPack and the buffer protocol "
                 "reach without a copy." },
    { Py_tp_dealloc, SLOT(field_dealloc) },
    { Py_tp_repr, SLOT(field_repr) },
    { Py_tp_getset, field_getset },
    { Py_tp_methods, field_methods },
    { Py_bf_getbuffer, SLOT(field_getbuffer) },
    { 0, NULL },
};

PyType_Spec field_spec = {
    .name = "forebay._forebay.Field",
    .basicsize = sizeof(struct field),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = field_slots,
};
