/* Rounding: placement/fill.py, placement/rounding.py, placement/moves.py. */

#include "arguments.h"

/* ---- filling: `fill_in_order` ----------------------------------------------------------------------------------------- */

/* The type with room that the job likes most, the earlier one of equals; -1 if it runs on none of them. */
static Py_ssize_t best_with_room(const double *liking, Py_ssize_t types, int64_t width, const int64_t *room) {
    Py_ssize_t best = -1;
    double most = 0.0;
    for (Py_ssize_t t = 0; t < types; t++)
        if (liking[t] > most && room[t] >= width) {
            most = liking[t];
            best = t;
        }
    return best;
}

static int any(const int64_t *room, Py_ssize_t types) {
    for (Py_ssize_t t = 0; t < types; t++)
        if (room[t]) return 1;
    return 0;
}

/* fill(order, width, liking, room, jobs, types) -> the number of jobs that are written to `jobs` and `types`.
   Like `fill_in_order` in fill.py. `room` becomes what is left. */
PyObject *fill(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Arrays arrays = {.count = 0};
    PyObject *result = NULL;
    Py_ssize_t at = 0, count, jobs, types, filled = 0;
    if (!enough(nargs, 6)) return NULL;
    INTS(order, &count);
    INTS(width, &jobs);
    FLOATS(liking, NULL);
    INTS_TO_WRITE(room);
    INTS_TO_WRITE(job_of);
    INTS_TO_WRITE(type_of);
    types = arrays.of[3].len / (Py_ssize_t)sizeof *room;
    const Py_ssize_t items[] = {count, jobs, jobs * types, types, count, count};
    if (!sized(&arrays, items) || !inside(order, count, jobs)) goto fail;
    for (Py_ssize_t place = 0; place < count; place++) {
        if (place % 128 == 0 && !any(room, types)) break;
        int64_t j = order[place];
        Py_ssize_t t = best_with_room(liking + j * types, types, width[j], room);
        if (t < 0) continue;
        room[t] -= width[j];
        job_of[filled] = j;
        type_of[filled++] = t;
    }
    result = PyLong_FromSsize_t(filled);
fail:
    release_all(&arrays);
    return result;
}

/* ---- rounding: `round_shares` where every owner is one job -------------------------------------------------------------- */

typedef struct {
    int64_t *jobs, *types, *gpus; /* entries */
    Py_ssize_t count;
} Entries;

static void grant(Entries *entries, int64_t j, int64_t t, int64_t gpus, int64_t *free, char *waits) {
    entries->jobs[entries->count] = j;
    entries->types[entries->count] = t;
    entries->gpus[entries->count++] = gpus;
    free[t] -= gpus;
    waits[j] = 0;
}

/* `_move_up`: jobs on a slower type than an idle one with room get the idle one, the largest gain first. */
static void move_up(Entries *entries, Py_ssize_t types, const double *rate, const double *fastest, const char *pinned,
                    int64_t *idle, Ranked *ranked) {
    Py_ssize_t better = 0;
    if (!any(idle, types)) return;
    for (Py_ssize_t e = 0; e < entries->count; e++) {
        int64_t j = entries->jobs[e];
        const double *of = rate + j * types;
        double now = of[entries->types[e]], most = 0.0;
        if (!(now < fastest[j]) || pinned[j]) continue;
        for (Py_ssize_t t = 0; t < types; t++)
            if (entries->gpus[e] <= idle[t] && of[t] > most) most = of[t];
        double gain = most / fmax(now, 1e-300);
        if (gain > 1.0) ranked[better++] = (Ranked){.value = gain, .tie = j, .place = e};
    }
    qsort(ranked, better, sizeof *ranked, by_rank);
    for (Py_ssize_t place = 0; place < better; place++) {
        Py_ssize_t e = ranked[place].place, there = -1;
        int64_t j = entries->jobs[e], width = entries->gpus[e], old = entries->types[e];
        there = best_with_room(rate + j * types, types, width, idle);
        if (there < 0 || !(rate[j * types + there] > rate[j * types + old])) continue;
        entries->types[e] = there;
        idle[old] += width;
        idle[there] -= width;
    }
}

/* `Deficits.of`: the row of an owner, or NULL if it was not there. */
static const double *owed_to(int64_t key, const int64_t *keys, Py_ssize_t count, const double *owed, Py_ssize_t types) {
    Py_ssize_t low = 0, high = count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low < count && keys[low] == key ? owed + low * types : NULL;
}

static double stay_of(double restart_s, double part_s, double usual, double longest) {
    double rounds = restart_s / part_s;
    rounds = rounds < usual ? usual : rounds;
    return rounds > longest ? longest : rounds;
}

/* round_jobs(shares, owner_of, owner_key, owed_key, owed, job, width, rate, ideal_rate, held_type, held_gpus, restart_s,
              pinned, capacity, jobs, types, granted, owing, stay_part_s, whole, usual_stay, longest_stay)
   -> (entries, exact), or None where an owner has several jobs, or a pinned job several types.

   `shares` and `owing` are o,t and `owed` o',t; `jobs`, `types` and `granted` receive the entries, `owing` the deficits. */
PyObject *round_jobs(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Arrays arrays = {.count = 0};
    PyObject *result = NULL;
    Ranked *ranked = NULL;
    double *work = NULL;
    int64_t *room = NULL;
    char *waits = NULL;
    Py_ssize_t at = 0, cells, owners, keys, owed_keys, owed_cells, count, types;
    Entries entries = {.count = 0};
    if (!enough(nargs, 22)) return NULL;
    FLOATS(shares, &cells);
    INTS(owner_of, &owners);
    INTS(owner_key, &keys);
    INTS(owed_key, &owed_keys);
    FLOATS(owed_gpus, &owed_cells);
    INTS(job, &count);
    INTS(width, NULL);
    FLOATS(rate, NULL);
    FLOATS(ideal_rate, NULL);
    INTS(held_type, NULL);
    INTS(held_gpus, NULL);
    FLOATS(restart_s, NULL);
    BOOLS(pinned, NULL);
    INTS(capacity, &types);
    INTS_TO_WRITE(jobs_out);
    INTS_TO_WRITE(types_out);
    INTS_TO_WRITE(gpus_out);
    entries.jobs = jobs_out, entries.types = types_out, entries.gpus = gpus_out;
    FLOATS_TO_WRITE(owing);
    FLOAT(stay_part_s);
    FLOAT(whole);
    FLOAT(usual_stay);
    FLOAT(longest_stay);
    const Py_ssize_t all = count * types;
    const Py_ssize_t items[] = {cells, owners, keys,  owed_keys, owed_cells, count, count, all,   all,
                                count, count,  count, count,     types,      count, count, count, all};
    if (!sized(&arrays, items) || !below(held_type, count, types)) goto fail;
    int applies = owners == count && keys == count && cells == all;
    for (Py_ssize_t j = 0; applies && j < count; j++) applies = owner_of[j] == j && !(pinned[j] && held_type[j] < 0);
    if (!applies) {
        result = Py_NewRef(Py_None);
        goto fail;
    }
    ranked = malloc(sizeof *ranked * (size_t)(cells + count + 1));
    work = malloc(sizeof *work * (size_t)(3 * types + 2 * cells + 2 * count + 1));
    room = malloc(sizeof *room * (size_t)(types + 1));
    waits = malloc((size_t)(count + 1));
    if (!ranked || !work || !room || !waits) {
        PyErr_NoMemory();
        goto fail;
    }
    double *liking = work, *credit = work + types, *left = credit + cells, *stay = left + cells, *fastest = stay + count;

    /* credit = share + deficit; what pinned jobs keep is served already. */
    double longest = usual_stay;
    Py_ssize_t owed_types = owed_keys ? owed_cells / owed_keys : 0, eligible = 0;
    int64_t unused = 0, waiting = 0;
    memcpy(room, capacity, sizeof *room * types);
    for (Py_ssize_t j = 0; j < count; j++) {
        const double *before = owed_to(owner_key[j], owed_key, owed_keys, owed_gpus, owed_types);
        fastest[j] = 0.0;
        for (Py_ssize_t t = 0, i = j * types; t < types; t++, i++) {
            left[i] = credit[i] = shares[i] + (before && t < owed_types ? before[t] : 0.0);
            if (ideal_rate[i] > fastest[j]) fastest[j] = ideal_rate[i];
        }
        waits[j] = 1;
        if (pinned[j]) {
            grant(&entries, j, held_type[j], held_gpus[j], room, waits);
            left[j * types + held_type[j]] -= (double)held_gpus[j];
        }
        stay[j] = stay_of(restart_s[j], stay_part_s, usual_stay, longest_stay);
        if (stay[j] > longest) longest = stay[j];
    }

    /* `_serve_jobs`: the gang that is owed the largest part of itself is first. */
    for (Py_ssize_t t = 0; t < types; t++) unused += room[t];
    for (Py_ssize_t i = 0; i < cells; i++) {
        if (!(shares[i] > whole) || !(rate[i] > 0)) continue;
        Py_ssize_t j = i / types;
        double part = left[i] / (double)width[j];
        int holds = held_type[j] == i % types;
        if (holds) part += stay[j];
        if ((holds ? part : left[i]) > whole) ranked[eligible++] = (Ranked){.value = part, .place = i};
    }
    qsort(ranked, eligible, sizeof *ranked, by_rank);
    for (Py_ssize_t place = 0; place < eligible; place++) {
        int64_t j = ranked[place].place / types, t = ranked[place].place % types;
        if (!waits[j] || width[j] > room[t]) continue;
        grant(&entries, j, t, width[j], room, waits);
        unused -= width[j];
        if (!unused) break;
    }

    /* `refill` with `stay`: GPUs that are left go to jobs without any, running jobs first. */
    if (any(room, types)) {
        for (Py_ssize_t j = 0; j < count; j++)
            if (waits[j])
                ranked[waiting++] = (Ranked){.group = !held_gpus[j],
                                             .value = sum_of(left + j * types, types) / (double)width[j],
                                             .tie = job[j],
                                             .place = j};
        qsort(ranked, waiting, sizeof *ranked, by_rank);
        for (Py_ssize_t place = 0; place < waiting; place++) {
            int64_t j = ranked[place].place;
            if (place % 128 == 0 && !any(room, types)) break;
            memcpy(liking, rate + j * types, sizeof *liking * types);
            if (held_type[j] >= 0) liking[held_type[j]] = liking[held_type[j]] > 0 ? INFINITY : 0.0;
            Py_ssize_t t = best_with_room(liking, types, width[j], room);
            if (t >= 0) grant(&entries, j, t, width[j], room, waits);
        }
    }

    /* The deficits, and whether the shares were met exactly. */
    int exact = 1;
    memset(owing, 0, sizeof *owing * cells);
    for (Py_ssize_t e = 0; e < entries.count; e++)
        owing[entries.jobs[e] * types + entries.types[e]] += (double)entries.gpus[e];
    for (Py_ssize_t j = 0; j < count; j++) {
        double most = sum_of(shares + j * types, types) + (double)(2 * width[j]);
        most += (longest - usual_stay) * (double)width[j];
        for (Py_ssize_t i = j * types; i < (j + 1) * types; i++) {
            if (fabs(owing[i] - shares[i]) >= whole) exact = 0;
            double owed = credit[i] - owing[i];
            if (owed < -most) owed = -most;
            if (owed > most) owed = most;
            owing[i] = fabs(owed) < whole ? 0.0 : owed;
        }
    }
    move_up(&entries, types, rate, fastest, pinned, room, ranked);
    result = Py_BuildValue("(ni)", entries.count, exact);
fail:
    free(ranked);
    free(work);
    free(room);
    free(waits);
    release_all(&arrays);
    return result;
}

/* ---- stability: `_drop_idle_changes` where no job mixes types ------------------------------------------------------------ */

/* keep_idle(jobs, types, gpus, held_type, held_gpus, rate, restart_s, capacity, kept, round_s, worth) -> number of changes.
   `kept` receives `types` with the moves that do not pay taken back; -1: a job holds several types. */
PyObject *keep_idle(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Arrays arrays = {.count = 0};
    PyObject *result = NULL;
    Ranked *moving = NULL;
    int64_t *idle = NULL;
    Py_ssize_t at = 0, count, active, types, moves = 0, changes = 0;
    if (!enough(nargs, 11)) return NULL;
    INTS(jobs, &count);
    INTS(type_of, NULL);
    INTS(gpus, NULL);
    INTS(held_type, &active);
    INTS(held_gpus, NULL);
    FLOATS(rate, NULL);
    FLOATS(restart_s, NULL);
    INTS(capacity, &types);
    INTS_TO_WRITE(kept);
    FLOAT(round_s);
    FLOAT(worth);
    const Py_ssize_t items[] = {count, count, count, active, active, active * types, active, types, count};
    if (!sized(&arrays, items) || !below(held_type, active, types)) goto fail;
    if (!inside(jobs, count, active) || !inside(type_of, count, types)) goto fail;
    moving = malloc(sizeof *moving * (size_t)(count + 1));
    idle = malloc(sizeof *idle * (size_t)(types + 1));
    if (!moving || !idle) {
        PyErr_NoMemory();
        goto fail;
    }
    memcpy(idle, capacity, sizeof *idle * types);
    for (Py_ssize_t e = 0; e < count; e++) {
        int64_t j = jobs[e], old = held_type[j];
        if (old < -1 || (e && jobs[e - 1] == j)) {
            result = PyLong_FromLong(-1);
            goto fail;
        }
        kept[e] = type_of[e];
        idle[type_of[e]] -= gpus[e];
        if (old >= 0 && old != type_of[e] && held_gpus[j] == gpus[e]) moving[moves++] = (Ranked){.tie = j, .place = e};
    }
    qsort(moving, moves, sizeof *moving, by_rank);
    for (Py_ssize_t place = 0; place < moves; place++) {
        int64_t e = moving[place].place, j = jobs[e], here = held_type[j], there = type_of[e];
        double kept_s = fmax(round_s, worth * restart_s[j]);
        if (rate[j * types + there] * (kept_s - restart_s[j]) > rate[j * types + here] * kept_s) continue;
        if (idle[here] < gpus[e]) continue;
        kept[e] = here;
        idle[there] += gpus[e];
        idle[here] -= gpus[e];
        changes++;
    }
    result = PyLong_FromSsize_t(changes);
fail:
    free(moving);
    free(idle);
    release_all(&arrays);
    return result;
}
