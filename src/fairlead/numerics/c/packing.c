/* Packing: placement/pool.py. */

#include "arguments.h"

#define MOST_FREE (1 << 20) /* on a node; the shelves by free GPUs have to fit into memory */

/* ---- packing: `Pool.place`, for one gang after another ------------------------------------------------------------------- */

typedef struct {
    int64_t *free;        /* n */
    const int64_t *type;  /* n */
    int64_t *nodes;       /* by type, ascending */
    int64_t *place;       /* n  in `nodes` */
    int64_t *nodes_with;  /* t,count  nodes with that many free GPUs */
    int64_t *search_from; /* t,count  no such node is before this place in `nodes` */
    int64_t counts;       /* free GPUs of a node are below this */
    Py_ssize_t count;     /* nodes */
} Nodes;

static void set_free(Nodes *pool, int64_t node, int64_t count) {
    int64_t shelf = pool->type[node] * pool->counts;
    if (pool->free[node] >= 0) pool->nodes_with[shelf + pool->free[node]]--;
    pool->free[node] = count;
    if (count < 0) return;
    pool->nodes_with[shelf + count]++;
    if (pool->place[node] < pool->search_from[shelf + count]) pool->search_from[shelf + count] = pool->place[node];
}

/* The first node of the type with this many free GPUs, preferably one of the job's last spot. */
static int64_t one_of(Nodes *pool, int64_t type, int64_t count, PyObject *last) {
    Py_ssize_t pieces = PyTuple_Size(last);
    for (Py_ssize_t i = 0; i < pieces; i++) {
        int64_t node = PyLong_AsLongLong(PyTuple_GetItem(PyTuple_GetItem(last, i), 0));
        if (node < 0 || node >= pool->count) continue;
        if (pool->free[node] == count && pool->type[node] == type) return node;
    }
    int64_t *from = &pool->search_from[type * pool->counts + count];
    while (pool->free[pool->nodes[*from]] != count) (*from)++;
    return pool->nodes[*from];
}

static int64_t best_fit(Nodes *pool, int64_t type, int64_t gpus, PyObject *last) {
    for (int64_t count = gpus; count < pool->counts; count++)
        if (pool->nodes_with[type * pool->counts + count]) return one_of(pool, type, count, last);
    return -1;
}

static int64_t emptiest(Nodes *pool, int64_t type, PyObject *last) {
    int64_t count = pool->counts - 1;
    while (!pool->nodes_with[type * pool->counts + count]) count--;
    return one_of(pool, type, count, last);
}

static int by_node(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return a < b ? -1 : a > b;
}

/* `Pool.place`: takes the GPUs and writes (node, GPUs) pairs. Returns their number; 0: too few GPUs are free. */
static Py_ssize_t place_gang(Nodes *pool, int64_t type, int64_t gpus, PyObject *last, int64_t (*pieces)[2]) {
    int64_t left = 0, node = best_fit(pool, type, gpus, last);
    Py_ssize_t count = 0;
    for (int64_t c = 1; c < pool->counts; c++) left += c * pool->nodes_with[type * pool->counts + c];
    if (gpus > left) return 0;
    while (gpus) {
        if (node < 0) node = emptiest(pool, type, last);
        int64_t taken = gpus < pool->free[node] ? gpus : pool->free[node];
        set_free(pool, node, pool->free[node] - taken);
        pieces[count][0] = node, pieces[count++][1] = taken;
        gpus -= taken;
        node = gpus ? best_fit(pool, type, gpus, last) : -1;
    }
    qsort(pieces, count, sizeof *pieces, by_node);
    return count;
}

static PyObject *spot_of(int64_t (*pieces)[2], Py_ssize_t count) {
    PyObject *spot = PyTuple_New(count);
    for (Py_ssize_t i = 0; spot && i < count; i++) {
        PyObject *piece = Py_BuildValue("(LL)", (long long)pieces[i][0], (long long)pieces[i][1]);
        if (!piece || PyTuple_SetItem(spot, i, piece) < 0) Py_CLEAR(spot);
    }
    return spot;
}

static int prepare(Nodes *pool, Py_ssize_t nodes, Py_ssize_t types) {
    int64_t *first = calloc((size_t)types + 2, sizeof *first);
    pool->counts = 1;
    for (Py_ssize_t n = 0; n < nodes; n++)
        if (pool->free[n] >= pool->counts) pool->counts = pool->free[n] + 1;
    pool->nodes = malloc(sizeof(int64_t) * (size_t)(nodes + 1));
    pool->place = malloc(sizeof(int64_t) * (size_t)(nodes + 1));
    pool->nodes_with = calloc((size_t)(types * pool->counts + 1), sizeof(int64_t));
    pool->search_from = malloc(sizeof(int64_t) * (size_t)(types * pool->counts + 1));
    if (!first || !pool->nodes || !pool->place || !pool->nodes_with || !pool->search_from) {
        free(first);
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t n = 0; n < nodes; n++) first[pool->type[n] + 1]++;
    for (Py_ssize_t t = 0; t < types; t++) first[t + 1] += first[t];
    for (Py_ssize_t shelf = 0; shelf < types * pool->counts; shelf++) pool->search_from[shelf] = first[shelf / pool->counts];
    for (Py_ssize_t n = 0; n < nodes; n++) {
        pool->place[n] = first[pool->type[n]]++;
        pool->nodes[pool->place[n]] = n;
        if (pool->free[n] >= 0) pool->nodes_with[pool->type[n] * pool->counts + pool->free[n]]++;
    }
    free(first);
    return 1;
}

/* place_gangs(free, node_type, types, gpus, jobs, type_of, last, runs) -> a spot for each gang, in this order.
   `free` n becomes what is left; `last` holds the last spot of each job; `runs(job, spot)` says whether a job runs on several
   nodes: where it does not, or where too few GPUs are free, the spot is () or None, and nothing is taken. */
PyObject *place_gangs(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Arrays arrays = {.count = 0};
    Nodes pool = {0};
    PyObject *spots = NULL;
    int64_t(*pieces)[2] = NULL;
    Py_ssize_t at = 0, nodes, types, gangs;
    if (!enough(nargs, 8)) return NULL;
    INTS_TO_WRITE(free_gpus);
    INTS(node_type, &nodes);
    types = PyLong_AsSsize_t(args[at++]);
    INTS(gpus, &gangs);
    INTS(jobs, NULL);
    INTS(type_of, NULL);
    PyObject *last = args[at++], *runs = args[at++];
    const Py_ssize_t items[] = {nodes, nodes, gangs, gangs, gangs};
    if (!sized(&arrays, items) || !inside(type_of, gangs, types) || !inside(node_type, nodes, types)) goto fail;
    if (!below(free_gpus, nodes, MOST_FREE)) goto fail;
    for (Py_ssize_t i = 0; i < gangs; i++)
        if (gpus[i] < 1) {
            PyErr_Format(PyExc_ValueError, "a gang of %lld GPUs", (long long)gpus[i]);
            goto fail;
        }
    pool.free = free_gpus, pool.type = node_type, pool.count = nodes;
    pieces = malloc(sizeof *pieces * (size_t)(nodes + 1));
    spots = PyList_New(gangs);
    if (!pieces || !spots || !prepare(&pool, nodes, types)) {
        if (!pieces) PyErr_NoMemory();
        Py_CLEAR(spots);
        goto fail;
    }
    for (Py_ssize_t i = 0; i < gangs; i++) {
        PyObject *before = PyList_GetItem(last, i);
        Py_ssize_t count = before ? place_gang(&pool, type_of[i], gpus[i], before, pieces) : 0;
        if (!before || PyErr_Occurred()) {
            Py_CLEAR(spots);
            goto fail;
        }
        PyObject *spot = count ? spot_of(pieces, count) : Py_NewRef(Py_None);
        if (spot && count > 1) {
            PyObject *said = PyObject_CallFunction(runs, "LO", (long long)jobs[i], spot);
            int does = said ? PyObject_IsTrue(said) : -1;
            Py_XDECREF(said);
            if (does < 1) Py_CLEAR(spot);
            if (!does) {
                for (Py_ssize_t p = 0; p < count; p++) set_free(&pool, pieces[p][0], free_gpus[pieces[p][0]] + pieces[p][1]);
                spot = PyTuple_New(0);
            }
        }
        if (!spot || PyList_SetItem(spots, i, spot) < 0) {
            Py_CLEAR(spots);
            goto fail;
        }
    }
fail:
    free(pool.nodes);
    free(pool.place);
    free(pool.nodes_with);
    free(pool.search_from);
    free(pieces);
    release_all(&arrays);
    return spots;
}
