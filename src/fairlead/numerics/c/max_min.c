/* Max-min: policies/gavel.py, numerics/isolated.py and numerics/maxmin.py up to the programs. */

#include "arguments.h"

/* isolated_groups(alike, rate, ideal_rate, width, weight, capacity, whole, group_of, first, count, group_rate, alone, scale)
   -> the number of groups. Like `_group`, `isolated_shares` and the isolated speed in gavel.py: the group of each job, its
   first job, its jobs, its rates (g,t), the isolated share of one job (g,t), and 1 / its isolated speed. */
PyObject *isolated_groups(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Arrays arrays = {.count = 0};
    PyObject *result = NULL;
    int64_t *group_with = NULL;
    double *worth = NULL;
    Py_ssize_t at = 0, jobs, types, groups = 0;
    int64_t largest = -1;
    if (!enough(nargs, 13)) return NULL;
    INTS(alike, &jobs);
    FLOATS(rate, NULL);
    FLOATS(ideal_rate, NULL);
    INTS(width, NULL);
    FLOATS(weight, NULL);
    INTS(capacity, &types);
    FLOAT(whole);
    INTS_TO_WRITE(group_of);
    INTS_TO_WRITE(first);
    INTS_TO_WRITE(count);
    FLOATS_TO_WRITE(group_rate);
    FLOATS_TO_WRITE(alone);
    FLOATS_TO_WRITE(scale);
    const Py_ssize_t cells = jobs * types;
    const Py_ssize_t items[] = {jobs, cells, cells, jobs, jobs, types, jobs, jobs, jobs, cells, cells, jobs};
    if (!sized(&arrays, items)) goto fail;
    for (Py_ssize_t j = 0; j < jobs; j++)
        if (alike[j] > largest) largest = alike[j];
    if (!inside(alike, jobs, largest + 1)) goto fail;
    group_with = calloc((size_t)(largest + 2), sizeof *group_with);
    worth = malloc(sizeof *worth * (size_t)(types + 1));
    if (!group_with || !worth) {
        PyErr_NoMemory();
        goto fail;
    }
    memset(group_with, -1, sizeof *group_with * (size_t)(largest + 2));
    for (Py_ssize_t j = 0; j < jobs; j++) {
        int64_t *group = &group_with[alike[j]];
        if (*group < 0) {
            *group = groups;
            first[groups] = j;
            count[groups++] = 0;
        }
        group_of[j] = *group;
        count[*group]++;
    }
    for (Py_ssize_t g = 0; g < groups; g++) {
        Py_ssize_t of_job = first[g] * types, of_group = g * types;
        double part = weight[first[g]] / whole;
        double *slices = alone + of_group, *rates = group_rate + of_group;
        for (Py_ssize_t t = 0; t < types; t++) {
            rates[t] = capacity[t] > 0 ? rate[of_job + t] : 0.0;
            slices[t] = rates[t] > 0 ? part * (double)capacity[t] : 0.0;
        }
        double held = sum_of(slices, types), share = (double)width[first[g]] / (held > 0 ? held : 1.0);
        if (share > 1.0) share = 1.0;
        for (Py_ssize_t t = 0; t < types; t++) {
            slices[t] *= share;
            worth[t] = ideal_rate[of_job + t] * slices[t];
        }
        scale[g] = 1.0 / fmax(sum_of(worth, types), 1e-300);
    }
    result = PyLong_FromSsize_t(groups);
fail:
    free(group_with);
    free(worth);
    release_all(&arrays);
    return result;
}

/* rank_groups(rate, scale, width, count, capacity, near, alive, strength, keys) -> (groups with a rate, whether they do not
   compete). Like the first half of `MaxMinSolver.solve`: `alive` receives these groups, weakest first, `strength` the value of
   one GPU of their best type, and `keys` g,t+1 their rates relative to it and their width, by which they are known. */
PyObject *rank_groups(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Arrays arrays = {.count = 0};
    PyObject *result = NULL;
    Ranked *ranked = NULL;
    int64_t *room = NULL;
    Py_ssize_t at = 0, groups, types, dead = 0, best = 0;
    if (!enough(nargs, 9)) return NULL;
    FLOATS(rate, NULL);
    FLOATS(scale, &groups);
    INTS(width, NULL);
    INTS(count, NULL);
    INTS(capacity, &types);
    FLOAT(near);
    INTS_TO_WRITE(alive);
    FLOATS_TO_WRITE(strength);
    FLOATS_TO_WRITE(keys);
    const Py_ssize_t items[] = {groups * types, groups, groups, groups, types, groups, groups, groups * (types + 1)};
    if (!sized(&arrays, items)) goto fail;
    if (groups && !types) {
        PyErr_SetString(PyExc_ValueError, "there are groups, but no types");
        goto fail;
    }
    ranked = malloc(sizeof *ranked * (size_t)(groups + 1));
    room = malloc(sizeof *room * (size_t)(types + 1));
    if (!ranked || !room) {
        PyErr_NoMemory();
        goto fail;
    }
    memcpy(room, capacity, sizeof *room * types);
    for (Py_ssize_t g = 0; g < groups; g++) {
        const double *rates = rate + g * types;
        double top = rates[0];
        for (Py_ssize_t t = 1; t < types; t++)
            if (rates[t] > top) top = rates[t];
        dead += top <= 0;
        ranked[g] = (Ranked){.value = -(top * scale[g]), .place = g};
        for (Py_ssize_t t = 0; t < types; t++)
            if (rates[t] > (1 - near) * top) {
                best++;
                room[t] -= count[g] * width[g];
            }
    }
    qsort(ranked, groups, sizeof *ranked, by_rank);
    int competes = best != groups - dead;
    for (Py_ssize_t t = 0; t < types; t++) competes |= room[t] < 0;
    for (Py_ssize_t place = dead; place < groups; place++) {
        Py_ssize_t g = ranked[place].place;
        const double *rates = rate + g * types;
        double top = rates[0], *key = keys + (place - dead) * (types + 1);
        for (Py_ssize_t t = 1; t < types; t++)
            if (rates[t] > top) top = rates[t];
        alive[place - dead] = g;
        strength[place - dead] = -ranked[place].value;
        for (Py_ssize_t t = 0; t < types; t++) key[t] = rates[t] / top;
        memcpy(key + types, &width[g], sizeof(int64_t));
    }
    result = Py_BuildValue("(ni)", groups - dead, !competes);
fail:
    free(ranked);
    free(room);
    release_all(&arrays);
    return result;
}
