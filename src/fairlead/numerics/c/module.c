/* The module `fairlead.numerics._kernel`; see numerics/kernel.py. */

#include "arguments.h"

#define VERSION 2 /* of what the functions take, return and compute */

PyObject *fill(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *round_jobs(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *keep_idle(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *place_gangs(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *isolated_groups(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *rank_groups(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *occupy(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FUNCTION(fill),
    FUNCTION(round_jobs),
    FUNCTION(keep_idle),
    FUNCTION(place_gangs),
    FUNCTION(isolated_groups),
    FUNCTION(rank_groups),
    FUNCTION(occupy),
    {NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods};

PyMODINIT_FUNC PyInit__kernel(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "VERSION", VERSION) < 0) Py_CLEAR(made);
    return made;
}
