/* The fold of starts: rounds/holding.py. */

#include "arguments.h"

/* occupy(jobs, spots, spot_of, last_spot_of, node_type, time_s, first_start_s, restarts, migrations, leases, held_type,
          held_gpus, held_nodes, since_s, mixed) -> (GPUs of all spots, nodes of the widest)

   Like the columns that `occupy` changes; `spot_of` and `last_spot_of` are lists by job, and `mixed` is the type of a spot
   with several. */
PyObject *occupy(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Arrays arrays = {.count = 0};
    PyObject *result = NULL;
    Py_ssize_t at = 0, count, nodes, rows, widest = 0;
    int64_t whole = 0;
    if (!enough(nargs, 15)) return NULL;
    INTS(jobs, &count);
    PyObject *spots = args[at++], *spot_of = args[at++], *last_spot_of = args[at++];
    INTS(node_type, &nodes);
    FLOAT(time_s);
    FLOATS(first_start_s, &rows);
    INTS_TO_WRITE(restarts);
    INTS_TO_WRITE(migrations);
    INTS_TO_WRITE(leases);
    INTS_TO_WRITE(held_type);
    INTS_TO_WRITE(held_gpus);
    INTS_TO_WRITE(held_nodes);
    FLOATS_TO_WRITE(since_s);
    int64_t mixed = PyLong_AsLongLong(args[at++]);
    const Py_ssize_t items[] = {count, nodes, rows, rows, rows, rows, rows, rows, rows, rows};
    if (!sized(&arrays, items) || !inside(jobs, count, rows)) goto fail;
    if (PyTuple_Size(spots) != count) {
        PyErr_Format(PyExc_ValueError, "%zd spots for %zd jobs", PyTuple_Size(spots), count);
        goto fail;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *spot = PyTuple_GetItem(spots, i), *last = PyList_GetItem(last_spot_of, jobs[i]);
        Py_ssize_t pieces = PyTuple_Size(spot);
        int moved = last ? PyObject_RichCompareBool(spot, last, Py_NE) : -1;
        int64_t j = jobs[i], gpus = 0, type = mixed;
        if (moved < 0 || PyErr_Occurred()) goto fail;
        for (Py_ssize_t p = 0; p < pieces; p++) {
            PyObject *piece = PyTuple_GetItem(spot, p);
            int64_t node = PyLong_AsLongLong(PyTuple_GetItem(piece, 0));
            if (PyErr_Occurred() || !inside(&node, 1, nodes)) goto fail;
            gpus += PyLong_AsLongLong(PyTuple_GetItem(piece, 1));
            if (PyErr_Occurred()) goto fail;
            if (!p) type = node_type[node];
            if (node_type[node] != type) type = mixed;
        }
        int ran = !isnan(first_start_s[j]); /* a job that was refused before it ever ran restores nothing */
        restarts[j] += ran;
        migrations[j] += ran && moved;
        leases[j]++;
        held_type[j] = type;
        held_gpus[j] = gpus;
        held_nodes[j] = pieces;
        since_s[j] = time_s;
        whole += gpus;
        if (pieces > widest) widest = pieces;
        if (PyList_SetItem(spot_of, j, Py_NewRef(spot)) < 0 || PyList_SetItem(last_spot_of, j, Py_NewRef(spot)) < 0) goto fail;
    }
    result = Py_BuildValue("(Ln)", (long long)whole, widest);
fail:
    release_all(&arrays);
    return result;
}
