/*
 * _cache.c -- Cache: samples in the node's cache, each as a few parts (a tag, a pickle, and the
 * buffers that belong to it).
 *
 *     item:  magic u32 | count u32 | count x bytes u64 | the parts, one behind the other
 *
 * What is read there was written by another process: every number is checked before it is used.
 */
#include "_forebay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x31706266u
#define PARTS_MAX ((uint64_t)1 << 16)
#define TEXTS 2 /* the first parts are bytes objects, the others are Fields */
/* Below this the GIL is kept while bytes are copied: giving it away costs more. */
#define GIL_BYTES_MAX ((uint64_t)32 * 1024)

struct cache {
    PyObject_HEAD
    forebay_cache *cache;
    struct lines *lines;
    uint64_t items;
    atomic_bool lap; /* a get ended a round of as many uses as there are items */
};

struct head {
    uint32_t magic, count;
};

static const struct module_state *state_of(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = { "", "", "", "", NULL };
    forebay_cache_options options = FOREBAY_CACHE_OPTIONS_INIT;
    unsigned long long items, limit;
    forebay_error error;
    struct cache *self;
    int status;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "sKKs:Cache", names, &options.identity, &items,
                                     &limit, &options.policy))
        return NULL;
    self = PyObject_New(struct cache, type);
    if (!self)
        return NULL;
    *self = (struct cache){ .ob_base = self->ob_base, .lines = lines_new(), .items = items };
    if (!self->lines) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    options.items = items;
    options.limit_bytes = limit;
    options.log = lines_add;
    options.data = self->lines;
    Py_BEGIN_ALLOW_THREADS
    status = forebay_cache_open(&self->cache, &options, &error);
    Py_END_ALLOW_THREADS
    if (status) {
        errors_raise(PyType_GetModuleState(type), &error);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void cache_dealloc(PyObject *object)
{
    struct cache *self = (struct cache *)object;
    PyTypeObject *type = Py_TYPE(object);

    Py_BEGIN_ALLOW_THREADS
    forebay_cache_close(self->cache);
    Py_END_ALLOW_THREADS
    lines_free(self->lines);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- get ---- */

static int damaged(forebay_error *error, uint64_t number)
{
    *error = (forebay_error){ .status = FOREBAY_BAD_DATA };
    snprintf(error->message, sizeof(error->message),
             "item %llu of the cache is damaged; another process wrote into the shared memory",
             (unsigned long long)number);
    return FOREBAY_BAD_DATA;
}

/* The sizes of the parts, to be freed; they add up to the item. */
static int read_sizes(struct cache *self, const forebay_item *item, uint64_t **out, size_t *count,
                      forebay_error *error)
{
    uint64_t *sizes, left = item->bytes;
    struct head head;
    int status;

    if (left < sizeof(head))
        return damaged(error, item->number);
    status = forebay_cache_read(self->cache, item, 0, &head, sizeof(head), error);
    if (status)
        return status;
    left -= sizeof(head);
    if (head.magic != MAGIC || head.count < TEXTS || head.count > PARTS_MAX ||
        left < head.count * sizeof(*sizes))
        return damaged(error, item->number);
    left -= head.count * sizeof(*sizes);
    sizes = malloc(head.count * sizeof(*sizes));
    if (!sizes) {
        *error = (forebay_error){ .status = FOREBAY_NO_MEMORY };
        return FOREBAY_NO_MEMORY;
    }
    status = forebay_cache_read(self->cache, item, sizeof(head), sizes,
                                head.count * sizeof(*sizes), error);
    for (uint32_t i = 0; i < head.count && !status; i++) {
        if (sizes[i] > left)
            status = damaged(error, item->number);
        else
            left -= sizes[i];
    }
    if (!status && left)
        status = damaged(error, item->number);
    if (status) {
        free(sizes);
        return status;
    }
    *out = sizes;
    *count = head.count;
    return FOREBAY_OK;
}

static PyObject *part_new(const struct module_state *state, size_t i, uint64_t bytes, void **data)
{
    PyObject *part;

    if (i >= TEXTS)
        return field_of_bytes(state, (size_t)bytes, data);
    part = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (part)
        *data = PyBytes_AsString(part);
    return part;
}

static int copy_out(struct cache *self, const forebay_item *item, uint64_t at, void *to,
                    uint64_t bytes, forebay_error *error)
{
    int status;

    if (bytes < GIL_BYTES_MAX)
        return forebay_cache_read(self->cache, item, at, to, bytes, error);
    Py_BEGIN_ALLOW_THREADS
    status = forebay_cache_read(self->cache, item, at, to, bytes, error);
    Py_END_ALLOW_THREADS
    return status;
}

/* All parts as a list; NULL with the exception set, or with *status and the error filled. */
static PyObject *parts_of(struct cache *self, const forebay_item *item, int *status,
                          forebay_error *error)
{
    const struct module_state *state = state_of((PyObject *)self);
    PyObject *list = NULL;
    uint64_t *sizes = NULL, at;
    size_t count = 0;

    *status = read_sizes(self, item, &sizes, &count, error);
    if (*status)
        return NULL;
    at = sizeof(struct head) + count * sizeof(*sizes);
    list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; at += sizes[i++]) {
        void *data = NULL;
        PyObject *part = part_new(state, i, sizes[i], &data);

        if (part)
            *status = copy_out(self, item, at, data, sizes[i], error);
        if (!part || *status || PyList_SetItem(list, (Py_ssize_t)i, part)) {
            if (part && *status)
                Py_DECREF(part);
            Py_CLEAR(list);
        }
    }
    free(sizes);
    return list;
}

static PyObject *cache_get(PyObject *object, PyObject *number)
{
    struct cache *self = (struct cache *)object;
    unsigned long long wanted = PyLong_AsUnsignedLongLong(number);
    forebay_error error = { .status = FOREBAY_OK };
    forebay_item item;
    PyObject *list;
    int status;

    if (PyErr_Occurred())
        return NULL;
    /* The first call after a fork joins the cache, which may take a moment. */
    Py_BEGIN_ALLOW_THREADS
    status = forebay_cache_find(self->cache, wanted, &item, &error);
    Py_END_ALLOW_THREADS
    if (status < 0)
        return errors_raise(state_of(object), &error);
    if (item.use && item.use % self->items == 0)
        self->lap = true;
    if (status == FOREBAY_MISS)
        Py_RETURN_NONE;
    list = parts_of(self, &item, &status, &error);
    forebay_cache_done(self->cache, &item);
    return status ? errors_raise(state_of(object), &error) : list;
}

/* ---- put ---- */

/* Head and sizes in front of the parts' own memory. */
struct load {
    Py_ssize_t count, held; /* parts; views that must be released */
    uint64_t bytes;
    Py_buffer *views;
    forebay_piece *pieces; /* count + 1 */
    struct head *head;
};

static void load_release(struct load *load)
{
    for (Py_ssize_t i = 0; i < load->held; i++)
        PyBuffer_Release(&load->views[i]);
    free(load->views);
    free(load->pieces);
    free(load->head);
}

static bool load_fill(struct load *load, PyObject *parts)
{
    size_t head_bytes = sizeof(struct head) + (size_t)load->count * sizeof(uint64_t);
    char *sizes;

    load->views = calloc((size_t)load->count, sizeof(*load->views));
    load->pieces = calloc((size_t)load->count + 1, sizeof(*load->pieces));
    load->head = malloc(head_bytes);
    if (!load->views || !load->pieces || !load->head) {
        PyErr_NoMemory();
        return false;
    }
    *load->head = (struct head){ .magic = MAGIC, .count = (uint32_t)load->count };
    load->pieces[0] = (forebay_piece){ load->head, head_bytes };
    load->bytes = head_bytes;
    sizes = (char *)(load->head + 1);
    for (Py_ssize_t i = 0; i < load->count; i++) {
        PyObject *part = PyTuple_GetItem(parts, i);
        uint64_t bytes;

        if (!part || PyObject_GetBuffer(part, &load->views[i], PyBUF_SIMPLE))
            return false;
        load->held++;
        bytes = (uint64_t)load->views[i].len;
        memcpy(sizes + (size_t)i * sizeof(bytes), &bytes, sizeof(bytes));
        load->pieces[i + 1] = (forebay_piece){ load->views[i].buf, bytes };
        load->bytes += bytes;
    }
    return true;
}

static PyObject *cache_put(PyObject *object, PyObject *args)
{
    struct cache *self = (struct cache *)object;
    unsigned long long number, load_ns;
    struct load load = { 0 };
    forebay_error error;
    PyObject *parts;
    int status;

    if (!PyArg_ParseTuple(args, "KKO!:put", &number, &load_ns, &PyTuple_Type, &parts))
        return NULL;
    load.count = PyTuple_Size(parts);
    if (load.count < TEXTS || (uint64_t)load.count > PARTS_MAX) {
        PyErr_Format(PyExc_ValueError, "a sample of %zd parts", load.count);
        return NULL;
    }
    if (!load_fill(&load, parts)) {
        load_release(&load);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = forebay_cache_put(self->cache, number, load.pieces, (size_t)load.count + 1, load_ns,
                               &error);
    Py_END_ALLOW_THREADS
    load_release(&load);
    if (status < 0)
        return errors_raise(state_of(object), &error);
    return PyBool_FromLong(status == FOREBAY_OK);
}

/* ---- control ---- */

static PyObject *cache_stats(PyObject *object, PyObject *args)
{
    struct cache *self = (struct cache *)object;
    forebay_cache_stats stats;
    forebay_error error;
    int lap = 0, status;

    if (!PyArg_ParseTuple(args, "|p:stats", &lap))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = forebay_cache_read_stats(self->cache, lap, &stats, &error);
    Py_END_ALLOW_THREADS
    if (status)
        return errors_raise(state_of(object), &error);
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsK}", "items", (unsigned long long)stats.items, "bytes",
                         (unsigned long long)stats.bytes, "limit_bytes",
                         (unsigned long long)stats.limit_bytes, "hits",
                         (unsigned long long)stats.hits, "misses",
                         (unsigned long long)stats.misses, "evictions",
                         (unsigned long long)stats.evictions, "processes",
                         (unsigned long long)stats.processes, "lap_hits",
                         (unsigned long long)stats.lap_hits, "lap_misses",
                         (unsigned long long)stats.lap_misses);
}

static PyObject *cache_resize(PyObject *object, PyObject *limit)
{
    unsigned long long bytes = PyLong_AsUnsignedLongLong(limit);
    forebay_error error;
    int status;

    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = forebay_cache_set_limit(((struct cache *)object)->cache, bytes, &error);
    Py_END_ALLOW_THREADS
    return status ? errors_raise(state_of(object), &error) : Py_NewRef(Py_None);
}

static PyObject *cache_clear(PyObject *object, PyObject *unused)
{
    forebay_error error;
    int status;

    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    status = forebay_cache_clear(((struct cache *)object)->cache, &error);
    Py_END_ALLOW_THREADS
    return status ? errors_raise(state_of(object), &error) : Py_NewRef(Py_None);
}

static PyObject *cache_lines(PyObject *object, PyObject *unused)
{
    (void)unused;
    return lines_take(((struct cache *)object)->lines);
}

static PyObject *cache_lap(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(atomic_exchange(&((struct cache *)object)->lap, false));
}

static PyObject *cache_pending(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(lines_pending(((struct cache *)object)->lines));
}

static PyGetSetDef cache_getset[] = {
    { "lap", cache_lap, NULL, "True, once: a get ended a round of all items.", NULL },
    { "pending", cache_pending, NULL, "True: lines() has something to say.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef cache_methods[] = {
    { "get", cache_get, METH_O,
      "get($self, number, /)\n--\n\nThe parts: two bytes objects, then Fields; None if it is not "
      "there." },
    { "put", cache_put, METH_VARARGS,
      "put($self, number, load_ns, parts, /)\n--\n\nKeep a copy; False if there is no room." },
    { "stats", cache_stats, METH_VARARGS,
      "stats($self, lap=False, /)\n--\n\nItems, bytes, hits, misses; with lap a new lap begins." },
    { "resize", cache_resize, METH_O,
      "resize($self, limit_bytes, /)\n--\n\nChange the limit, for all processes." },
    { "clear", cache_clear, METH_NOARGS, "clear($self, /)\n--\n\nDrop all items." },
    { "lines", cache_lines, METH_NOARGS,
      "lines($self, /)\n--\n\nLog lines since the last call: (level, text), level 1 a warning." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot cache_slots[] = {
    { Py_tp_doc, "Cache(identity, items, limit_bytes, policy, /)\n--\n\nforebay.h's cache of "
                 "items; forebay.Cached is the one to use." },
    { Py_tp_new, SLOT(cache_new) },
    { Py_tp_dealloc, SLOT(cache_dealloc) },
    { Py_tp_getset, cache_getset },
    { Py_tp_methods, cache_methods },
    { 0, NULL },
};

PyType_Spec cache_spec = {
    .name = "forebay._forebay.Cache",
    .basicsize = sizeof(struct cache),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = cache_slots,
};
