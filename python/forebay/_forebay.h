/*
 * _forebay.h -- what the files of the extension share.
 *
 *   _forebay.c  the module: its types and functions
 *   _budget.c   Budget
 *   _cache.c    Cache: parts of samples in the node's cache
 *   _loader.c   Loader over forebay_open, next, set_epoch, close; the GIL is released in each
 *   _control.c  the same Loader while it runs: set, statistics, log lines
 *   _batch.c    Field: one field of a batch, as a buffer; shares its batch or owns a copy
 *   _face.c     what the caller gets for a field: an array, a tensor, or the Field itself
 *   _dlpack.c   Field.__dlpack__: the same memory for whoever speaks DLPack
 *   _transport.c  Transport and Range: memory in which batches come from worker processes
 *   _errors.c   an exception class for each status of forebay.h
 *   _lines.c    log lines of the engine's threads, kept until Python asks for them
 *
 * The engine's threads never call Python and never wait for the GIL. Nothing here is global: all
 * state hangs on the module.
 */
#ifndef FOREBAY_PYTHON_H
#define FOREBAY_PYTHON_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>

#include "forebay.h"

/* From here on a field is handed out as it lies; below that, as a copy. */
#define SHARED_BYTES_MIN ((size_t)64 * 1024)

#define ERROR_CLASSES_MAX 32

enum {
#define FOREBAY_X(name, bytes, text, numpy, dlpack) +1
    DTYPES = 0 FOREBAY_DTYPE_MAP(FOREBAY_X)
#undef FOREBAY_X
};

struct face;

/* A function as a slot of a type: ISO C has no plain conversion. */
#define SLOT(function) ((void *)(uintptr_t)(function))

struct module_state {
    PyTypeObject *loader_type, *budget_type, *cache_type, *field_type;
    PyTypeObject *transport_type, *range_type;
    PyObject *error; /* forebay.Error */
    PyObject *error_classes[ERROR_CLASSES_MAX]; /* by -status */
};

/* ---- _errors.c ---- */

int errors_add(PyObject *module, struct module_state *state);
/* Set the exception for `error`. Always NULL, so that it can be returned. */
PyObject *errors_raise(const struct module_state *state, const forebay_error *error);

/* ---- _lines.c ---- */

struct lines;
struct lines *lines_new(void);
void lines_free(struct lines *lines);
/* The callback for forebay_options.log, `data` a struct lines: any thread, without the GIL. */
void lines_add(void *data, int level, const char *line);
bool lines_pending(struct lines *lines);
/* All lines so far as a list of (level, text), oldest first; they are gone then. */
PyObject *lines_take(struct lines *lines);

/* ---- _batch.c ---- */

/*
 * What an array keeps alive: a batch of the engine, or a copy of its own. Plain C and counted by
 * itself, because arrays are dropped in any thread, after close, without the GIL, at exit.
 */
struct share {
    atomic_size_t references;
    forebay_batch *batch; /* NULL: the bytes follow behind, see share_bytes */
};

#define COPY_ALIGN ((size_t)64)
#define FIELD_DIMS_INSIDE 4

struct field {
    PyObject_HEAD
    struct share *share;
    void *data;
    size_t bytes;
    forebay_dtype dtype;
    int ndim;
    Py_ssize_t *shape;   /* `ndim` numbers */
    Py_ssize_t *strides; /* in bytes, behind the shape */
    Py_ssize_t inside[2 * FIELD_DIMS_INSIDE]; /* both, if they fit */
    int device_type, device_id;
};

/* NULL without an exception when there is no memory. */
struct share *share_new_bytes(size_t bytes); /* not yet written */
struct share *share_copy(const void *data, size_t bytes);
void *share_bytes(struct share *share); /* of a copy */
void share_keep(struct share *share);
void share_drop(struct share *share);

/* A Field of `bytes` bytes of its own, at *data and not yet written. */
PyObject *field_of_bytes(const struct module_state *state, size_t bytes, void **data);
PyObject *field_shape(PyObject *object, void *unused);
/* NumPy's names of all dtypes, in their order: a tuple. */
PyObject *dtype_names(void);
/* A dict of name -> what the face shows. Takes over the batch, also when it fails. */
PyObject *batch_fields(const struct module_state *state, const struct face *face,
                       forebay_batch *batch);
extern PyType_Spec field_spec;

/* ---- _face.c ---- */

/* All NULL: Fields as they are. */
struct face {
    PyObject *make;   /* make(shape, dtype, field), or make(capsule) if dtypes is None */
    PyObject *dtypes; /* by forebay_dtype; None among them: `other` has to know */
    PyObject *other;  /* other(field) */
};

int face_set(struct face *face, PyObject *make, PyObject *dtypes, PyObject *other);
void face_clear(struct face *face);
PyObject *face_show(const struct face *face, PyObject *field);

/* ---- _dlpack.c ---- */

PyObject *field_capsule(PyObject *object); /* what __dlpack__() without arguments gives */
PyObject *field_dlpack(PyObject *object, PyObject *args, PyObject *keywords);
PyObject *field_dlpack_device(PyObject *object, PyObject *unused);
PyObject *field_cuda_array(PyObject *object, void *unused);

/* ---- _budget.c, _cache.c, _loader.c ---- */

struct budget {
    PyObject_HEAD
    forebay_budget *budget;
    uint64_t bytes;
};

extern PyType_Spec budget_spec;
extern PyType_Spec cache_spec;
extern PyType_Spec loader_spec;
extern PyType_Spec transport_spec, range_spec;
extern PyMethodDef worker_methods[];
#endif
