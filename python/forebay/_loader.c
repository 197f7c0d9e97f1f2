/* _loader.c -- Loader over forebay_open, next, set_epoch, close; the GIL is released in each. */
#include "_loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* How long a wait may keep Ctrl-C, or a close in another thread, from being seen. */
#define SLICE_NS ((uint64_t)50 * 1000 * 1000)

static int fail(forebay_error *error, forebay_status status, const char *message)
{
    *error = (forebay_error){ .status = status };
    snprintf(error->message, sizeof(error->message), "%s", message);
    return status;
}

bool loader_is_foreign(const struct loader *self)
{
    return self->owner != getpid();
}

/* ---- In and out; all of these run without the GIL ---- */

int loader_enter(struct loader *self, bool alone, forebay_error *error)
{
    if (loader_is_foreign(self))
        return fail(error, FOREBAY_FORKED,
                    "this loader was opened by the process that forked this one: open a loader "
                    "of its own here");
    pthread_mutex_lock(&self->gate);
    if (!self->loader || self->closing) {
        pthread_mutex_unlock(&self->gate);
        return fail(error, FOREBAY_STOPPED, "the loader is closed");
    }
    self->inside++;
    pthread_mutex_unlock(&self->gate);
    if (alone)
        pthread_mutex_lock(&self->turn);
    return FOREBAY_OK;
}

void loader_leave(struct loader *self, bool alone)
{
    if (alone)
        pthread_mutex_unlock(&self->turn);
    pthread_mutex_lock(&self->gate);
    if (--self->inside == 0)
        pthread_cond_broadcast(&self->left);
    pthread_mutex_unlock(&self->gate);
}

static void close_now(struct loader *self)
{
    forebay_loader *loader;

    if (loader_is_foreign(self))
        return;
    pthread_mutex_lock(&self->gate);
    self->closing = true;
    while (self->inside)
        pthread_cond_wait(&self->left, &self->gate);
    loader = self->loader;
    self->loader = NULL;
    pthread_mutex_unlock(&self->gate);
    if (loader)
        forebay_close(loader);
}

/* ---- Open ---- */

struct opening {
    PyThreadState *thread;
    uint64_t asked_ns;
    bool interrupted;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Any thread, never with the GIL. */
static void on_log(void *data, int level, const char *line)
{
    lines_add(((struct loader *)data)->lines, level, line);
}

/* Long work at open must still see Ctrl-C. This is the thread that opens, so it may ask Python. */
static int on_progress(void *data, const char *what, uint64_t done, uint64_t total)
{
    struct opening *opening = ((struct loader *)data)->opening;
    uint64_t now = now_ns();

    (void)what;
    (void)done;
    (void)total;
    if (!opening || now - opening->asked_ns < SLICE_NS)
        return 0;
    opening->asked_ns = now;
    PyEval_RestoreThread(opening->thread);
    opening->interrupted = PyErr_CheckSignals() != 0;
    opening->thread = PyEval_SaveThread();
    return opening->interrupted;
}

static int open_now(struct loader *self, const forebay_options *options)
{
    struct opening opening = { .asked_ns = now_ns() };
    forebay_loader *loader = NULL;
    forebay_error error = { .status = FOREBAY_OK };
    int status;

    self->opening = &opening;
    opening.thread = PyEval_SaveThread();
    status = forebay_open(&loader, options, &error);
    PyEval_RestoreThread(opening.thread);
    self->opening = NULL;
    if (status) {
        if (!opening.interrupted) /* else the signal's exception is set already */
            errors_raise(loader_state((PyObject *)self), &error);
        return -1;
    }
    self->loader = loader;
    return opening.interrupted ? -1 : 0;
}

/* The UTF-8 texts of a tuple of str, to be freed; the texts themselves live as the tuple does. */
static const char **texts_of(PyObject *list, size_t *count)
{
    Py_ssize_t size = PyTuple_Size(list);
    const char **texts;

    if (size < 0)
        return NULL;
    texts = calloc((size_t)size + 1, sizeof(*texts));
    if (!texts)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; texts && i < size; i++) {
        PyObject *item = PyTuple_GetItem(list, i); /* borrowed */

        texts[i] = item ? PyUnicode_AsUTF8AndSize(item, NULL) : NULL;
        if (!texts[i]) {
            free(texts);
            return NULL;
        }
    }
    *count = (size_t)size;
    return texts;
}

static struct loader *loader_alloc(PyTypeObject *type)
{
    struct loader *self = PyObject_New(struct loader, type);

    if (!self)
        return NULL;
    self->owner = getpid();
    self->face = (struct face){ NULL, NULL, NULL };
    self->opening = NULL;
    self->loader = NULL;
    self->inside = 0;
    self->closing = false;
    atomic_init(&self->epoch, -1);
    pthread_mutex_init(&self->turn, NULL);
    pthread_mutex_init(&self->gate, NULL);
    pthread_cond_init(&self->left, NULL);
    self->lines = lines_new();
    if (!self->lines) {
        Py_DECREF(self);
        PyErr_NoMemory();
        return NULL;
    }
    return self;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = { "config_file", "config_text", "settings", "budget", NULL };
    const struct module_state *state = PyType_GetModuleState(type);
    forebay_options options = FOREBAY_OPTIONS_INIT;
    PyObject *settings, *budget = Py_None;
    struct loader *self;
    const char **texts;
    int status;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "zzO!|O:Loader", names, &options.config_file,
                                     &options.config_text, &PyTuple_Type, &settings, &budget))
        return NULL;
    if (budget != Py_None && !PyObject_TypeCheck(budget, state->budget_type)) {
        PyErr_SetString(PyExc_TypeError, "budget is not a Budget");
        return NULL;
    }
    texts = texts_of(settings, &options.setting_count);
    self = texts ? loader_alloc(type) : NULL;
    if (!self) {
        free(texts);
        return NULL;
    }
    options.settings = texts;
    options.budget = budget == Py_None ? NULL : ((struct budget *)budget)->budget;
    options.log = on_log;
    options.progress = on_progress;
    options.data = self;
    status = open_now(self, &options);
    free(texts);
    if (status)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *loader_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    close_now((struct loader *)object);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void loader_dealloc(PyObject *object)
{
    struct loader *self = (struct loader *)object;
    PyTypeObject *type = Py_TYPE(object);

    Py_BEGIN_ALLOW_THREADS
    close_now(self);
    Py_END_ALLOW_THREADS
    if (!loader_is_foreign(self)) { /* a lock that was held at the fork stays so */
        pthread_mutex_destroy(&self->turn);
        pthread_mutex_destroy(&self->gate);
        pthread_cond_destroy(&self->left);
        lines_free(self->lines);
    }
    face_clear(&self->face);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- Batches ---- */

static int next_within(struct loader *self, forebay_batch **batch, uint64_t timeout_ns,
                       forebay_error *error)
{
    int status;

    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, true, error);
    if (!status) {
        status = forebay_next_within(batch, self->loader, timeout_ns, error);
        if (!status)
            self->epoch = (int64_t)(*batch)->epoch;
        loader_leave(self, true);
    }
    Py_END_ALLOW_THREADS
    return status;
}

/* Waits in slices, so that Ctrl-C ends it at once and close in another thread soon. */
static PyObject *loader_next(PyObject *object, PyObject *args)
{
    struct loader *self = (struct loader *)object;
    forebay_batch *batch = NULL;
    forebay_error error;
    double seconds = -1; /* for ever */
    uint64_t started = 0;
    int status;

    if (!PyArg_ParseTuple(args, "|d:next", &seconds))
        return NULL;
    while ((status = next_within(self, &batch, SLICE_NS, &error)) == FOREBAY_TIMEOUT) {
        if (PyErr_CheckSignals())
            return NULL;
        if (!started)
            started = now_ns() - SLICE_NS;
        if (seconds >= 0 && (double)(now_ns() - started) >= seconds * 1e9)
            Py_RETURN_FALSE;
    }
    if (status == FOREBAY_END)
        Py_RETURN_NONE;
    if (status)
        return errors_raise(loader_state(object), &error);
    return batch_fields(loader_state(object), &self->face, batch);
}

static PyObject *loader_show(PyObject *object, PyObject *args)
{
    PyObject *make, *dtypes, *other;

    if (!PyArg_ParseTuple(args, "OOO:show", &make, &dtypes, &other) ||
        face_set(&((struct loader *)object)->face, make, dtypes, other))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- Epochs and state ---- */

static PyObject *count_of(PyObject *object, uint64_t (*count)(const forebay_loader *))
{
    struct loader *self = (struct loader *)object;
    forebay_error error;
    uint64_t number = 0;
    int status;

    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, true, &error);
    if (!status) {
        number = count(self->loader);
        loader_leave(self, true);
    }
    Py_END_ALLOW_THREADS
    return status ? errors_raise(loader_state(object), &error) : PyLong_FromUnsignedLongLong(number);
}

static PyObject *loader_epoch_batches(PyObject *object, PyObject *unused)
{
    (void)unused;
    return count_of(object, forebay_epoch_batches);
}

static PyObject *loader_epoch_samples(PyObject *object, PyObject *unused)
{
    (void)unused;
    return count_of(object, forebay_epoch_samples);
}

static PyObject *loader_set_epoch(PyObject *object, PyObject *epoch)
{
    struct loader *self = (struct loader *)object;
    unsigned long long number = PyLong_AsUnsignedLongLong(epoch);
    forebay_error error;
    int status;

    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, true, &error);
    if (!status) {
        status = forebay_set_epoch(self->loader, number, &error);
        self->epoch = -1;
        loader_leave(self, true);
    }
    Py_END_ALLOW_THREADS
    if (status)
        return errors_raise(loader_state(object), &error);
    Py_RETURN_NONE;
}

static PyObject *loader_state_save(PyObject *object, PyObject *unused)
{
    struct loader *self = (struct loader *)object;
    char text[FOREBAY_STATE_BYTES];
    forebay_error error;
    int status;

    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, true, &error);
    if (!status) {
        status = forebay_state_save(self->loader, text, &error);
        loader_leave(self, true);
    }
    Py_END_ALLOW_THREADS
    return status ? errors_raise(loader_state(object), &error) : PyUnicode_FromString(text);
}

static PyObject *loader_state_load(PyObject *object, PyObject *args)
{
    struct loader *self = (struct loader *)object;
    forebay_error error;
    PyObject *states;
    const char **texts;
    size_t count = 0;
    int status;

    if (!PyArg_ParseTuple(args, "O!:state_load", &PyTuple_Type, &states))
        return NULL;
    texts = texts_of(states, &count);
    if (!texts)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, true, &error);
    if (!status) {
        status = forebay_state_load(self->loader, texts, count, &error);
        self->epoch = -1;
        loader_leave(self, true);
    }
    Py_END_ALLOW_THREADS
    free(texts);
    if (status)
        return errors_raise(loader_state(object), &error);
    Py_RETURN_NONE;
}

/* ---- The type ---- */

static PyObject *loader_epoch(PyObject *object, void *unused)
{
    int64_t epoch = ((struct loader *)object)->epoch;

    (void)unused;
    if (epoch < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(epoch);
}

static PyObject *loader_closed(PyObject *object, void *unused)
{
    struct loader *self = (struct loader *)object;
    bool closed;

    (void)unused;
    if (loader_is_foreign(self)) /* its lock may have been held at the fork */
        return PyBool_FromLong(!self->loader);
    pthread_mutex_lock(&self->gate);
    closed = !self->loader;
    pthread_mutex_unlock(&self->gate);
    return PyBool_FromLong(closed);
}

static PyMethodDef loader_methods[] = {
    { "next", loader_next, METH_VARARGS,
      "next($self, seconds=-1.0, /)\n--\n\nThe next batch as a dict of Fields; None at the end of "
      "the epoch; "
      "False when nothing was ready in that many seconds (negative: waits for ever)." },
    { "show", loader_show, METH_VARARGS,
      "show($self, make, dtypes, other, /)\n--\n\nLet next() give make(shape, dtype, field) "
      "instead of Fields, dtype from dtypes in the order of _forebay.dtypes; other(field) where "
      "that is None or the field is not in host memory. dtypes None: make(DLPack capsule)." },
    { "close", loader_close, METH_NOARGS,
      "close($self, /)\n--\n\nStop it; more than once is allowed." },
    { "epoch_batches", loader_epoch_batches, METH_NOARGS,
      "epoch_batches($self, /)\n--\n\nIn an epoch." },
    { "epoch_samples", loader_epoch_samples, METH_NOARGS,
      "epoch_samples($self, /)\n--\n\nIn an epoch." },
    { "set_epoch", loader_set_epoch, METH_O,
      "set_epoch($self, epoch, /)\n--\n\nBegin it at its start." },
    { "state_save", loader_state_save, METH_NOARGS,
      "state_save($self, /)\n--\n\nThe state, as JSON." },
    { "state_load", loader_state_load, METH_VARARGS,
      "state_load($self, states, /)\n--\n\nGo on behind the states, a tuple of JSON texts." },
    { "set", loader_set, METH_VARARGS,
      "set($self, key, value, /)\n--\n\nChange a live key; (old, new, held batches, held bytes)." },
    { "stats", loader_stats, METH_NOARGS, "stats($self, /)\n--\n\nWhat was measured, as JSON." },
    { "device_trim", loader_device_trim, METH_O,
      "device_trim($self, bytes, /)\n--\n\nLet the device cache give memory back; the bytes." },
    { "lines", loader_lines, METH_NOARGS,
      "lines($self, /)\n--\n\nLog lines since the last call: (level, text), level 1 a warning." },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef loader_getset[] = {
    { "pending", loader_pending, NULL, "True: lines() has something to say.", NULL },
    { "epoch", loader_epoch, NULL, "Of the last batch, None before the first.", NULL },
    { "closed", loader_closed, NULL, "True after close().", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot loader_slots[] = {
    { Py_tp_doc, "Loader(config_file, config_text, settings, budget=None)\n--\n\n"
                 "forebay.h's loader; forebay.Loader is the one to use." },
    { Py_tp_new, SLOT(loader_new) },
    { Py_tp_dealloc, SLOT(loader_dealloc) },
    { Py_tp_methods, loader_methods },
    { Py_tp_getset, loader_getset },
    { 0, NULL },
};

PyType_Spec loader_spec = {
    .name = "forebay._forebay.Loader",
    .basicsize = sizeof(struct loader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = loader_slots,
};
