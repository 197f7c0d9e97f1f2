/* _forebay.c -- the module: its types and functions. */
#include "_forebay.h"

static int add_type(PyObject *module, PyTypeObject **out, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

    if (!type)
        return -1;
    *out = (PyTypeObject *)type;
    return PyModule_AddType(module, *out);
}

static int add_dtypes(PyObject *module)
{
    PyObject *names = dtype_names();
    int status = names ? PyModule_AddObjectRef(module, "dtypes", names) : -1;

    Py_XDECREF(names);
    return status;
}

static PyObject *key_of(PyObject *module, PyObject *keyword)
{
    PyObject *bytes = PyUnicode_AsUTF8String(keyword);
    const char *key;

    (void)module;
    if (!bytes)
        return NULL;
    key = forebay_key_of(PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    return key ? PyUnicode_FromString(key) : Py_NewRef(Py_None);
}

static PyMethodDef key_methods[] = {
    { "key_of", key_of, METH_O,
      "key_of(keyword, /)\n--\n\nThe configuration's key that it is short for, or None." },
    { NULL, NULL, 0, NULL },
};

static int module_exec(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);

    if (errors_add(module, state) || add_type(module, &state->loader_type, &loader_spec) ||
        add_type(module, &state->budget_type, &budget_spec) ||
        add_type(module, &state->cache_type, &cache_spec) ||
        add_type(module, &state->field_type, &field_spec) ||
        add_type(module, &state->transport_type, &transport_spec) ||
        add_type(module, &state->range_type, &range_spec) ||
        add_dtypes(module) || PyModule_AddStringConstant(module, "version", FOREBAY_VERSION))
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct module_state *state = PyModule_GetState(module);

    Py_VISIT(state->loader_type);
    Py_VISIT(state->budget_type);
    Py_VISIT(state->cache_type);
    Py_VISIT(state->field_type);
    Py_VISIT(state->transport_type);
    Py_VISIT(state->range_type);
    Py_VISIT(state->error);
    for (size_t i = 0; i < ERROR_CLASSES_MAX; i++)
        Py_VISIT(state->error_classes[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);

    Py_CLEAR(state->loader_type);
    Py_CLEAR(state->budget_type);
    Py_CLEAR(state->cache_type);
    Py_CLEAR(state->field_type);
    Py_CLEAR(state->transport_type);
    Py_CLEAR(state->range_type);
    Py_CLEAR(state->error);
    for (size_t i = 0; i < ERROR_CLASSES_MAX; i++)
        Py_CLEAR(state->error_classes[i]);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static int add_key_methods(PyObject *module)
{
    return PyModule_AddFunctions(module, key_methods);
}

static PyModuleDef_Slot module_slots[] = {
    { Py_mod_exec, SLOT(module_exec) },
    { Py_mod_exec, SLOT(add_key_methods) },
#ifdef Py_GIL_DISABLED
    { Py_mod_gil, Py_MOD_GIL_NOT_USED },
#endif
    { 0, NULL },
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_forebay",
    .m_doc = "The thin layer over forebay.h. `import forebay` is the one to use.",
    .m_size = sizeof(struct module_state),
    .m_methods = worker_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__forebay(void);

PyMODINIT_FUNC PyInit__forebay(void)
{
    return PyModuleDef_Init(&module_def);
}
