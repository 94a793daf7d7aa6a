/* Arrays as arguments, and orders; every file of this folder begins with it.

   Arrays arrive as buffers: contiguous int64 ("q"), double ("d") or bool ("?"). Axes: j jobs, g groups, t types, n nodes.
   The Python functions that the comments name are the definition, and tests compare both. Floating-point expressions
   follow their order of operations, so that journals are the same byte for byte; the build must not fuse them. */

#ifndef ARGUMENTS_H
#define ARGUMENTS_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ARRAYS 24

/* ---- arguments --------------------------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer of[MOST_ARRAYS];
    int count;
} Arrays;

static inline void release_all(Arrays *arrays) {
    while (arrays->count) PyBuffer_Release(&arrays->of[--arrays->count]);
}

/* The data of an array of this kind, and in `length`, unless it is NULL, its number of items. NULL: an exception is set. */
static inline void *array_of(Arrays *arrays, PyObject *object, char kind, Py_ssize_t *length, int access) {
    Py_buffer *buffer = &arrays->of[arrays->count];
    if (PyObject_GetBuffer(object, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | access) < 0) return NULL;
    arrays->count++;
    char found = buffer->format ? buffer->format[0] : 'B';
    if (found == 'l' && sizeof(long) == 8) found = 'q';
    if (found != kind) {
        PyErr_Format(PyExc_TypeError, "argument %d is an array of '%c'; expected '%c'", arrays->count, found, kind);
        return NULL;
    }
    if (length) *length = buffer->len / buffer->itemsize;
    return buffer->buf ? buffer->buf : (void *)"";
}

#define ARRAY(type, name, kind, length, access)                               \
    type *name = (type *)array_of(&arrays, args[at++], kind, length, access); \
    if (!name) goto fail
#define INTS(name, length) ARRAY(const int64_t, name, 'q', length, 0)
#define FLOATS(name, length) ARRAY(const double, name, 'd', length, 0)
#define BOOLS(name, length) ARRAY(const char, name, '?', length, 0)
#define INTS_TO_WRITE(name) ARRAY(int64_t, name, 'q', NULL, PyBUF_WRITABLE)
#define FLOATS_TO_WRITE(name) ARRAY(double, name, 'd', NULL, PyBUF_WRITABLE)
#define FLOAT(name)                                                           \
    double name = PyFloat_AsDouble(args[at++]);                               \
    if (name == -1.0 && PyErr_Occurred()) goto fail

static inline int enough(Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted) return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments; expected %zd", given, wanted);
    return 0;
}

/* Whether the arrays have these numbers of items, in the order of the arguments. */
static inline int sized(const Arrays *arrays, const Py_ssize_t *items) {
    for (int i = 0; i < arrays->count; i++) {
        Py_ssize_t found = arrays->of[i].len / arrays->of[i].itemsize;
        if (found == items[i]) continue;
        PyErr_Format(PyExc_ValueError, "array %d has %zd items; expected %zd", i + 1, found, items[i]);
        return 0;
    }
    return 1;
}

/* Whether none of them is at or beyond the end of a column of this length; what is negative is no position. */
static inline int below(const int64_t *positions, Py_ssize_t count, Py_ssize_t length) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (positions[i] >= length) {
            PyErr_Format(PyExc_IndexError, "%lld is not a position among %zd", (long long)positions[i], length);
            return 0;
        }
    return 1;
}

/* Whether all of them are positions in a column of this length. Policies that are not ours write some of them. */
static inline int inside(const int64_t *positions, Py_ssize_t count, Py_ssize_t length) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (positions[i] < 0 || positions[i] >= length) {
            PyErr_Format(PyExc_IndexError, "%lld is not a position among %zd", (long long)positions[i], length);
            return 0;
        }
    return 1;
}

/* ---- orders: the largest value first, ties by up to two whole numbers, the smaller first ------------------------------ */

typedef struct {
    double value;
    int64_t tie;
    int64_t place;
    int group; /* before everything else, the smaller first */
} Ranked;

static inline int by_rank(const void *one, const void *other) {
    const Ranked *a = one, *b = other;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->value > b->value) return -1;
    if (a->value < b->value) return 1;
    if (isnan(a->value) != isnan(b->value)) return isnan(a->value) ? 1 : -1; /* qsort needs an order of whatever comes */
    if (a->tie != b->tie) return a->tie < b->tie ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* The sum of a row in the order in which numpy adds it up, so that ties are the same ones. */
static inline double sum_of(const double *row, Py_ssize_t types) {
    double sum = 0.0, part[8];
    Py_ssize_t t = 0;
    if (types >= 8) {
        memcpy(part, row, sizeof part);
        for (t = 8; t + 8 <= types; t += 8)
            for (int i = 0; i < 8; i++) part[i] += row[t + i];
        sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; t < types; t++) sum += row[t];
    return sum;
}

#endif
