/*
 * _dlpack.c -- Field.__dlpack__: the same memory for whoever speaks DLPack.
 *
 * The structs are DLPack's binary interface, versions 0 (unversioned) and 1. The deleters are plain
 * C: consumers call them in any thread, without the GIL and while the interpreter ends.
 */
#include "_forebay.h"

#include <stdlib.h>
#include <string.h>

struct dl_device {
    int32_t type, id;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements */
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
};

struct dl_managed_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_managed_versioned *);
    uint64_t flags;
    struct dl_tensor tensor;
};

#define DL_IS_COPIED ((uint64_t)2)
#define DL_HOST 1
#define DL_CUDA 2

/* One allocation: the struct that is handed out, then shape and strides. */
struct exported {
    union {
        struct dl_managed plain;
        struct dl_managed_versioned versioned;
    } as;
    struct share *share;
    int64_t numbers[];
};

static void exported_free(struct exported *exported)
{
    share_drop(exported->share);
    free(exported);
}

static void delete_plain(struct dl_managed *managed)
{
    exported_free(managed->context);
}

static void delete_versioned(struct dl_managed_versioned *managed)
{
    exported_free(managed->context);
}

static uint8_t code_of(forebay_dtype dtype)
{
    static const uint8_t codes[] = {
#define FOREBAY_X(name, bytes, text, numpy, dlpack) [FOREBAY_##name] = dlpack,
        FOREBAY_DTYPE_MAP(FOREBAY_X)
#undef FOREBAY_X
    };

    return codes[dtype];
}

static void fill_tensor(struct dl_tensor *tensor, const struct field *field, void *data,
                        bool on_host, int64_t *numbers)
{
    size_t item = forebay_dtype_bytes(field->dtype);

    *tensor = (struct dl_tensor){
        .data = data,
        .device = { on_host ? DL_HOST : field->device_type, on_host ? 0 : field->device_id },
        .ndim = field->ndim,
        .dtype = { code_of(field->dtype), (uint8_t)(item * 8), 1 },
        .shape = numbers,
        .strides = numbers + field->ndim,
    };
    for (int i = 0; i < field->ndim; i++) {
        tensor->shape[i] = field->shape[i];
        tensor->strides[i] = field->strides[i] / (Py_ssize_t)item;
    }
}

/* A copy in host memory, wherever the field is. NULL: no memory, or an exception is set. */
static struct share *copy_to_host(const struct field *field)
{
    const forebay_batch *batch = field->share->batch;
    struct share *copy;
    forebay_error error = { .status = FOREBAY_OK };
    int status = FOREBAY_OK;

    if (field->device_type == DL_HOST)
        return share_copy(field->data, field->bytes);
    copy = share_new_bytes(field->bytes);
    if (!copy)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < batch->field_count; i++)
        if (batch->fields[i].data == field->data)
            status = forebay_batch_read(batch, &batch->fields[i], share_bytes(copy), &error);
    Py_END_ALLOW_THREADS
    if (!status)
        return copy;
    share_drop(copy);
    PyErr_SetString(PyExc_BufferError, error.message);
    return NULL;
}

/* `copy`: it is one in host memory. NULL: as above. */
static struct exported *export_field(const struct field *field, bool versioned, bool copy)
{
    struct exported *exported = calloc(1, sizeof(*exported) +
                                          2 * (size_t)field->ndim * sizeof(int64_t));
    void *data = field->data;

    if (!exported)
        return NULL;
    exported->share = field->share;
    if (copy) {
        exported->share = copy_to_host(field);
        if (!exported->share) {
            free(exported);
            return NULL;
        }
        data = share_bytes(exported->share);
    } else {
        share_keep(field->share);
    }
    if (versioned) {
        struct dl_managed_versioned *managed = &exported->as.versioned;

        managed->version.major = 1;
        managed->context = exported;
        managed->deleter = delete_versioned;
        managed->flags = copy ? DL_IS_COPIED : 0;
        fill_tensor(&managed->tensor, field, data, copy, exported->numbers);
    } else {
        exported->as.plain.context = exported;
        exported->as.plain.deleter = delete_plain;
        fill_tensor(&exported->as.plain.tensor, field, data, copy, exported->numbers);
    }
    return exported;
}

/* A consumer renames the capsule and owns the tensor; only one nobody took is ours to delete. */
static void capsule_drop(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    struct exported *exported;

    if (!name || (strcmp(name, "dltensor") && strcmp(name, "dltensor_versioned")))
        return;
    exported = PyCapsule_GetPointer(capsule, name);
    if (exported)
        exported_free(exported);
}

/* ---- What the caller asked for ---- */

static bool is_none(const PyObject *object)
{
    return !object || object == Py_None;
}

static int read_max_version(PyObject *max_version, bool *versioned)
{
    PyObject *major;
    long number;

    *versioned = false;
    if (is_none(max_version))
        return 0;
    major = PySequence_GetItem(max_version, 0);
    if (!major)
        return -1;
    number = PyLong_AsLong(major);
    Py_DECREF(major);
    *versioned = number >= 1;
    return number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* *to_host: it lies on a device and is wanted in host memory. */
static int check_device(const struct field *field, PyObject *dl_device, bool *to_host)
{
    int type, id;

    *to_host = false;
    if (is_none(dl_device))
        return 0;
    if (!PyArg_ParseTuple(dl_device, "ii:dl_device", &type, &id))
        return -1;
    *to_host = type == DL_HOST && field->device_type != DL_HOST;
    if (*to_host || (type == field->device_type && id == field->device_id))
        return 0;
    PyErr_Format(PyExc_BufferError,
                 "this field lies on DLPack device (%d, %d) and is not copied to (%d, %d)",
                 field->device_type, field->device_id, type, id);
    return -1;
}

/* The consumer's stream waits for the batch's copy, and protects the batch when it is dropped. By the
 * Array API: None and 1 are CUDA's legacy default stream, 2 the one of the thread, others are
 * streams, 0 is none of these; -1: nothing is to wait. */
static int use_on(const struct field *field, PyObject *stream)
{
    long long number = is_none(stream) ? 1 : PyLong_AsLongLong(stream);
    forebay_error error;

    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number == 0 || number < -1) {
        PyErr_SetString(PyExc_BufferError, "stream must be None, -1, 1, 2 or a stream's address");
        return -1;
    }
    if (number == -1 || !field->share->batch || field->device_type != DL_CUDA)
        return 0;
    if (!forebay_batch_use_on(field->share->batch,
                              number == 1 ? NULL : (void *)(uintptr_t)number, &error))
        return 0;
    PyErr_SetString(PyExc_BufferError, error.message);
    return -1;
}

/* In host memory a batch is complete when it is handed out. */
static int check_stream(const struct field *field, PyObject *stream)
{
    long number;

    if (field->device_type != DL_HOST)
        return use_on(field, stream);
    if (is_none(stream))
        return 0;
    number = PyLong_AsLong(stream);
    if (number == -1 && !PyErr_Occurred())
        return 0;
    PyErr_Clear();
    PyErr_SetString(PyExc_BufferError, "host memory has no streams: pass stream=None");
    return -1;
}

static int read_copy(const struct field *field, PyObject *copy, bool to_host, bool *wanted)
{
    int truth = is_none(copy) ? to_host : PyObject_IsTrue(copy);

    if (truth < 0)
        return -1;
    *wanted = truth;
    if (to_host && !truth) {
        PyErr_SetString(PyExc_BufferError,
                        "from device to host memory is a copy, which copy=False forbids");
        return -1;
    }
    if (truth && field->device_type != DL_HOST && !to_host) {
        PyErr_SetString(PyExc_BufferError, "a copy of device memory is made in host memory only: "
                                           "ask with dl_device=(1, 0)");
        return -1;
    }
    return 0;
}

static PyObject *capsule_of(const struct field *field, bool versioned, bool copied)
{
    struct exported *exported = export_field(field, versioned, copied);
    PyObject *capsule;

    if (!exported)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    capsule = PyCapsule_New(exported, versioned ? "dltensor_versioned" : "dltensor", capsule_drop);
    if (!capsule)
        exported_free(exported);
    return capsule;
}

PyObject *field_capsule(PyObject *object)
{
    const struct field *field = (struct field *)object;

    return check_stream(field, NULL) ? NULL : capsule_of(field, false, false);
}

PyObject *field_dlpack(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = { "stream", "max_version", "dl_device", "copy", NULL };
    const struct field *field = (struct field *)object;
    PyObject *stream = NULL, *max_version = NULL, *dl_device = NULL, *copy = NULL;
    bool versioned, copied, to_host;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", names, &stream,
                                     &max_version, &dl_device, &copy) ||
        read_max_version(max_version, &versioned) || check_device(field, dl_device, &to_host) ||
        read_copy(field, copy, to_host, &copied) || (!to_host && check_stream(field, stream)))
        return NULL;
    return capsule_of(field, versioned, copied);
}

PyObject *field_dlpack_device(PyObject *object, PyObject *unused)
{
    const struct field *field = (struct field *)object;

    (void)unused;
    return Py_BuildValue("(ii)", field->device_type, field->device_id);
}

/* The CUDA Array Interface, version 3; bfloat16 has no name there. The batch's copy is over for
 * CUDA's legacy default stream, which is 1. */
PyObject *field_cuda_array(PyObject *object, void *unused)
{
    static const char kinds[] = "iufVVcb"; /* by DLPack's code */
    const struct field *field = (struct field *)object;
    uint8_t code = code_of(field->dtype);
    size_t item = forebay_dtype_bytes(field->dtype);
    PyObject *shape;

    (void)unused;
    if (field->device_type != DL_CUDA || kinds[code] == 'V') {
        PyErr_SetString(PyExc_AttributeError, field->device_type != DL_CUDA
                                                  ? "this field is not in CUDA memory"
                                                  : "bfloat16 has no name there: use DLPack");
        return NULL;
    }
    shape = field_shape(object, NULL);
    if (!shape)
        return NULL;
    return Py_BuildValue("{s:N,s:N,s:(NO),s:i,s:O,s:i}", "shape", shape, "typestr",
                         PyUnicode_FromFormat("%c%c%zu", item > 1 ? '<' : '|', kinds[code], item),
                         "data", PyLong_FromVoidPtr(field->data), Py_False, "version", 3, "strides",
                         Py_None, "stream", 1);
}
