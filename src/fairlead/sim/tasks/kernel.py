"""The compiled half of the task-level simulator: one loop over events, and one over a fixed list.

Functions here take and return arrays. Numba caches the compiled code next to this file.
"""

from __future__ import annotations

import numpy as np

from fairlead.numerics.compiled import compiled, compiled_into_callers

FASTEST_IDLE, EARLIEST_FINISH, LONGEST_IDLE = 0, 1, 2  # as in model/tasks.py
STARTED = -1  # in the list of ready jobs: all tasks of the job have started; smaller values: the job has a new key
MANY_GPUS = 256  # with more GPUs, most dispatch passes are partial, and a full one follows once in `full_every_s`
FEW_WAITS = 64  # tasks that may reserve a busy GPU in a partial pass
LOOK_BACK = 16  # idle GPUs of a type that are searched for one that ran the job last


@compiled
def _before(heap_s, heap_id, a, b):
    return heap_s[a] < heap_s[b] or (heap_s[a] == heap_s[b] and heap_id[a] < heap_id[b])


@compiled
def _sift_up(heap_s, heap_id, at):
    while at > 0:
        parent = (at - 1) >> 1
        if not _before(heap_s, heap_id, at, parent):
            break
        heap_s[at], heap_s[parent] = heap_s[parent], heap_s[at]
        heap_id[at], heap_id[parent] = heap_id[parent], heap_id[at]
        at = parent


@compiled
def _sift_down(heap_s, heap_id, size, at):
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap_s, heap_id, child + 1, child):
            child += 1
        if not _before(heap_s, heap_id, child, at):
            break
        heap_s[at], heap_s[child] = heap_s[child], heap_s[at]
        heap_id[at], heap_id[child] = heap_id[child], heap_id[at]
        at = child


@compiled
def _heapify(heap_s, heap_id, size):
    for at in range(size // 2 - 1, -1, -1):
        _sift_down(heap_s, heap_id, size, at)


@compiled_into_callers
def _push(heap_s, heap_id, size, when_s, id_):
    heap_s[size], heap_id[size] = when_s, id_
    _sift_up(heap_s, heap_id, size)
    return size + 1


@compiled_into_callers
def _pop(heap_s, heap_id, size):
    """Remove the first entry."""
    heap_s[0], heap_id[0] = heap_s[size - 1], heap_id[size - 1]
    _sift_down(heap_s, heap_id, size - 1, 0)
    return size - 1


@compiled
def _key(n, started, round_, base, slope, by_round, first_round, unit, growth, queues):
    value = base[n] + slope[n] * started
    if len(by_round) > 0:
        value += by_round[first_round[n] + round_]
    if len(unit) == 0:
        return value
    level, edge = 0, unit[n]
    while value >= edge and level < queues - 1:
        level += 1
        edge *= growth
    return float(level)


@compiled
def _insert(ready, size, key, n):
    """Insert a job into a list that ends with the job to go first; ties are broken by position, that is by arrival."""
    low, high = 0, size
    while low < high:
        middle = (low + high) >> 1
        other = ready[middle]
        if key[other] > key[n] or (key[other] == key[n] and other > n):
            low = middle + 1
        else:
            high = middle
    for i in range(size, low, -1):
        ready[i] = ready[i - 1]
    ready[low] = n


@compiled
def _sort(ready, size, key):
    old = ready[:size].copy()
    for i in range(size):
        _insert(ready, i, key, old[i])


@compiled
def run_events(
    arrival_s,
    rounds,
    scale,
    task_s,
    sync_s,
    switch_s,
    gpus,
    base,
    slope,
    by_round,
    weight,
    unit,
    growth,
    queues,
    promote,
    choice,
    sigma,
    cost_s,
    blind_rank,
    last,
    pace,
    full_every_s,
    restarts,
    node_of,
    spread_sync_s,
):
    """Process arrivals, ends of tasks and barriers in order of time, with one dispatch pass after all events of an instant."""
    N, G = task_s.shape
    M = gpus.sum()
    first_gpu, type_of = _numbered(gpus)
    first_round = np.zeros(N + 1, np.int64)
    total = 0
    prefer = np.empty((N, G), np.int64)  # types from the cheapest to the most expensive, ties by position
    for n in range(N):
        first_round[n + 1] = first_round[n] + rounds[n]
        total += rounds[n] * scale[n]
        prefer[n] = np.argsort(cost_s[n], kind="mergesort")

    out_job, out_round, out_task = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    out_gpu, out_start, out_end = np.empty(total, np.int64), np.empty(total), np.empty(total)

    unstarted, running = np.zeros(N, np.int64), np.zeros(N, np.int64)  # tasks of the current round
    since_s = np.zeros(N)
    ended_s = np.zeros((N, G))  # when the last task of the current round ended on each type; below 0 = none did
    first_node, round_nodes, nodes = _places(scale), np.empty(scale.sum(), np.int64), np.zeros(N, np.int64)
    idle_on = np.bincount(node_of)  # idle GPUs of each node
    round_, started = np.zeros(N, np.int64), np.zeros(N, np.int64)
    key = np.zeros(N)
    ready, moved, size = np.empty(N + 1, np.int64), np.empty(N, np.int64), 0

    last_job, now_job = np.full(M, -1, np.int64), np.full(M, -1, np.int64)
    free_s = np.zeros(M)  # since when a GPU is idle, or until when it is busy
    idle, idle_size = np.empty(M, np.int64), gpus.copy()  # idle GPUs of type g: idle[first_gpu[g]:][:idle_size[g]]
    for g in range(G):
        for i in range(gpus[g]):
            idle[first_gpu[g] + i] = first_gpu[g + 1] - 1 - i
    idle_total = M

    heap_s, heap_id, heap_size = np.empty(M + N), np.empty(M + N, np.int64), 0  # id: a GPU, or M + the job of a barrier
    virtual_s, virtual_id = np.empty(M), np.zeros(M, np.int64)  # a heap per type: when its GPUs are free, as reserved
    built, left = np.zeros(G, np.bool_), np.zeros(G, np.int64)
    arrived, rows, switches = 0, 0, 0
    full_s = 0.0  # when the next pass is a full one

    while arrived < N or heap_size > 0:
        now = np.inf
        if heap_size > 0:
            now = heap_s[0]
        if arrived < N and arrival_s[arrived] < now:
            now = arrival_s[arrived]

        # ---- all events of this instant
        while True:
            opened = -1
            if heap_size > 0 and heap_s[0] <= now:
                event = heap_id[0]
                heap_size = _pop(heap_s, heap_id, heap_size)
                if event < M:  # a task has ended on GPU `event`
                    n, g = now_job[event], type_of[event]
                    now_job[event] = -1
                    free_s[event] = now
                    idle[first_gpu[g] + idle_size[g]] = event
                    idle_size[g] += 1
                    idle_total += 1
                    running[n] -= 1
                    idle_on[node_of[event]] += 1
                    ended_s[n, g] = now
                    if running[n] == 0:
                        since_s[n] = now
                        if unstarted[n] == 0:
                            part = last[n] if round_[n] == rounds[n] - 1 else 1.0
                            in_s = _gradients_in_s(n, ended_s, part, nodes[n], sync_s, spread_sync_s)
                            heap_size = _push(heap_s, heap_id, heap_size, in_s, M + n)
                else:  # all gradients of a round are in
                    n = event - M
                    round_[n] += 1
                    if round_[n] < rounds[n]:
                        opened = n
            elif arrived < N and arrival_s[arrived] <= now:
                opened = arrived
                arrived += 1
            else:
                break
            if opened >= 0:
                unstarted[opened] = scale[opened]
                ended_s[opened] = -1.0
                nodes[opened] = 0
                since_s[opened] = now
                key[opened] = _key(
                    opened, started[opened], round_[opened], base, slope, by_round, first_round, unit, growth, queues
                )
                _insert(ready, size, key, opened)
                size += 1

        if promote < np.inf and size > 0 and idle_total > 0:
            changed = False
            for i in range(size):
                n = ready[i]
                if _waits_too_long(n, now, running, started, slope, weight, scale, since_s, promote):
                    started[n] = 0
                    since_s[n] = now
                    key[n] = _key(n, 0, round_[n], base, slope, by_round, first_round, unit, growth, queues)
                    changed = True
            if changed:
                _sort(ready, size, key)

        # ---- dispatch
        left_total, waits = idle_total, 0
        cut = M > MANY_GPUS and now < full_s
        if not cut:
            full_s = now + full_every_s
        left[:] = idle_size
        built[:] = False
        at = size - 1
        touched = False
        while at >= 0 and left_total > 0 and not (cut and waits >= FEW_WAITS):
            n = ready[at]
            at -= 1
            begun = False
            for _ in range(unstarted[n]):
                if left_total == 0 or (cut and waits >= FEW_WAITS):
                    break
                if choice == LONGEST_IDLE:
                    gpu = _longest_idle(n, task_s, first_gpu, idle, idle_size, free_s, blind_rank)
                    if gpu < 0:
                        break
                    best = type_of[gpu]
                else:
                    best, best_s = (
                        -1,
                        np.inf,
                    )  # where it ends first; inlined, because a call would cost a third of the time
                    for i in range(G):
                        g = prefer[n, i]
                        if gpus[g] == 0 or task_s[n, g] == np.inf:
                            continue
                        if left[g] > 0:
                            if now + cost_s[n, g] < best_s:
                                best, best_s = g, now + cost_s[n, g]
                            break  # this type is idle, so a more expensive type is no better even if it is idle too
                        if choice == FASTEST_IDLE:
                            continue
                        top = first_gpu[g]
                        if not built[g]:
                            built[g] = True
                            virtual_s[top : first_gpu[g + 1]] = free_s[top : first_gpu[g + 1]]
                            _heapify(virtual_s[top : first_gpu[g + 1]], virtual_id[top : first_gpu[g + 1]], gpus[g])
                        if virtual_s[top] + sigma * cost_s[n, g] < best_s:
                            best, best_s = g, virtual_s[top] + sigma * cost_s[n, g]
                    if best < 0:
                        break
                    if left[best] == 0:  # it waits; its place is reserved for this pass
                        waits += 1
                        top, end = first_gpu[best], first_gpu[best + 1]
                        virtual_s[top] += task_s[n, best]
                        _sift_down(virtual_s[top:end], virtual_id[top:end], gpus[best], 0)
                        continue
                    near = round_nodes[first_node[n] : first_node[n] + nodes[n]]
                    gpu = _idle_gpu(
                        n, first_gpu[best], idle, idle_size[best], last_job, node_of, near, idle_on, unstarted[n]
                    )
                _take(gpu, first_gpu[best], idle, idle_size[best])
                idle_size[best] -= 1
                idle_total -= 1
                left[best] -= 1
                left_total -= 1
                part = last[n] if round_[n] == rounds[n] - 1 else 1.0
                end_s = now + task_s[n, best] * part * pace[gpu]
                if last_job[gpu] != n:
                    if round_[n] > 0 if restarts else last_job[gpu] >= 0:
                        end_s += switch_s[n]
                        switches += 1
                    last_job[gpu] = n
                idle_on[node_of[gpu]] -= 1
                nodes[n] = _with_node(round_nodes, first_node[n], nodes[n], node_of[gpu])
                now_job[gpu] = n
                free_s[gpu] = end_s
                heap_size = _push(heap_s, heap_id, heap_size, end_s, gpu)
                out_job[rows], out_round[rows], out_task[rows] = n, round_[n], scale[n] - unstarted[n]
                out_gpu[rows], out_start[rows], out_end[rows] = gpu, now, end_s
                rows += 1
                unstarted[n] -= 1
                running[n] += 1
                started[n] += 1
                begun = True
            if begun:
                touched = True
                if unstarted[n] > 0:
                    new = _key(n, started[n], round_[n], base, slope, by_round, first_round, unit, growth, queues)
                    if new != key[n]:
                        key[n] = new
                        ready[at + 1] = STARTED - 1 - n  # it is moved to its new place after the pass
                else:
                    ready[at + 1] = STARTED
        if touched:
            size = _settled(ready, moved, at + 1, size, key)
    return out_job, out_round, out_task, out_gpu, out_start, out_end, switches


@compiled
def _numbered(gpus):
    """(first GPU of each type, type of each GPU); GPUs are numbered type by type."""
    first_gpu = np.zeros(len(gpus) + 1, np.int64)
    type_of = np.empty(gpus.sum(), np.int64)
    for g in range(len(gpus)):
        first_gpu[g + 1] = first_gpu[g] + gpus[g]
        type_of[first_gpu[g] : first_gpu[g + 1]] = g
    return first_gpu, type_of


@compiled
def _waits_too_long(n, now, running, started, slope, weight, scale, since_s, promote):
    if running[n] > 0 or started[n] == 0:
        return False
    service_s = started[n] * slope[n] * weight[n] / scale[n]
    return now - since_s[n] >= promote * service_s


@compiled
def _longest_idle(n, task_s, first_gpu, idle, idle_size, free_s, blind_rank):
    """The GPU that has been idle longest among those on which the job runs; below 0 if there is none."""
    gpu = -1
    for g in range(len(idle_size)):
        if task_s[n, g] == np.inf:
            continue
        for i in range(first_gpu[g], first_gpu[g] + idle_size[g]):
            other = idle[i]
            if (
                gpu < 0
                or free_s[other] < free_s[gpu]
                or (free_s[other] == free_s[gpu] and blind_rank[other] < blind_rank[gpu])
            ):
                gpu = other
    return gpu


@compiled
def _idle_gpu(n, top, idle, size, last_job, node_of, near, idle_on, unstarted):
    """One of the type's idle GPUs: one that ran the job last, on a node of this round, on a node with room for the rest."""
    best, best_score = idle[top + size - 1], -1
    for i in range(size - 1, max(-1, size - 1 - LOOK_BACK), -1):
        gpu = idle[top + i]
        node = node_of[gpu]
        score = 4 * (last_job[gpu] == n) + (idle_on[node] >= unstarted)
        for other in near:
            if other == node:
                score += 2
                break
        if score > best_score:
            best, best_score = gpu, score
    return best


@compiled
def _places(scale):
    """Where each job's nodes begin in a list with room for one node per task of a round."""
    first = np.zeros(len(scale) + 1, np.int64)
    for n in range(len(scale)):
        first[n + 1] = first[n] + scale[n]
    return first


@compiled
def _with_node(round_nodes, first, count, node):
    """Add a node to those of a round, unless it is one of them; returns their number."""
    for i in range(first, first + count):
        if round_nodes[i] == node:
            return count
    round_nodes[first + count] = node
    return count + 1


@compiled
def _gradients_in_s(n, ended_s, part, nodes, sync_s, spread_sync_s):
    """When all gradients of a round have arrived that ran on that many nodes."""
    in_s = 0.0
    for g in range(ended_s.shape[1]):
        if ended_s[n, g] >= 0.0:
            S = sync_s[n, g]
            if spread_sync_s.size > 0:
                S = spread_sync_s[n, g, min(nodes, spread_sync_s.shape[2]) - 1]
            in_s = max(in_s, ended_s[n, g] + S * part)
    return in_s


@compiled_into_callers
def _take(gpu, top, idle, size):
    """Remove a GPU from the list of the type's idle GPUs."""
    for i in range(size - 1, -1, -1):
        if idle[top + i] == gpu:
            idle[top + i] = idle[top + size - 1]
            break


@compiled
def _settled(ready, moved, kept, size, key):
    """Update the list of ready jobs after a pass that started at `kept`; returns its new size."""
    moves = 0
    for i in range(kept, size):
        entry = ready[i]
        if entry >= 0:
            ready[kept] = entry
            kept += 1
        elif entry < STARTED:
            moved[moves] = STARTED - 1 - entry
            moves += 1
    for i in range(moves):
        _insert(ready, kept, key, moved[i])
        kept += 1
    return kept


@compiled
def spread(job, type_of_row, start_s, end_s, in_s, samples, first_segment, first_slice, segments, types, slice_s):
    """For each time slice of each job: GPU-seconds by type, seconds of service, samples in the slice and before it.

    Rows are in order of start. A job is served while one of its tasks runs (start to end) or its gradients are being
    sent (until `in_s`).
    """
    gpu_s, served_s, done = np.zeros((segments, types)), np.zeros(segments), np.zeros(segments)
    until_s = np.full(len(first_segment), -np.inf)
    for row in range(len(job)):
        n, g = job[row], type_of_row[row]
        shift = first_segment[n] - first_slice[n]
        rate = samples[row] / (end_s[row] - start_s[row])
        at_s = start_s[row]
        i = int(np.floor(at_s / slice_s))
        while at_s < end_s[row]:
            edge_s = max(at_s, min(end_s[row], (i + 1) * slice_s))
            gpu_s[shift + i, g] += edge_s - at_s
            done[shift + i] += rate * (edge_s - at_s)
            at_s = edge_s
            i += 1
        at_s = max(start_s[row], until_s[n])
        i = int(np.floor(at_s / slice_s))
        while at_s < in_s[row]:
            edge_s = max(at_s, min(in_s[row], (i + 1) * slice_s))
            served_s[shift + i] += edge_s - at_s
            at_s = edge_s
            i += 1
        until_s[n] = max(until_s[n], in_s[row])
    before = np.zeros(segments)
    for n in range(len(first_segment)):
        end = first_segment[n + 1] if n + 1 < len(first_segment) else segments
        for i in range(first_segment[n] + 1, end):
            before[i] = before[i - 1] + done[i - 1]
    return gpu_s, served_s, done, before


@compiled
def run_list(
    job,
    scale,
    task_s,
    sync_s,
    switch_s,
    arrival_s,
    gpus,
    finish_first,
    blind_rank,
    rounds,
    last,
    pace,
    restarts,
    node_of,
    spread_sync_s,
):
    """Run rounds in the order of the list, task by task, each on the GPU that is free first or where it ends first."""
    N, G = task_s.shape
    M = gpus.sum()
    total = 0
    for n in job:
        total += scale[n]
    out_job, out_round, out_task = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    out_gpu, out_start, out_end = np.empty(total, np.int64), np.empty(total), np.empty(total)
    barrier_s, round_ = arrival_s.copy(), np.zeros(N, np.int64)
    last_job = np.full(M, -1, np.int64)
    first_gpu, type_of = _numbered(gpus)
    # A heap of free times for each type, or one for all GPUs if types do not matter.
    heaps = G if finish_first else 1
    edges = first_gpu if finish_first else np.array([0, M])
    heap_s, heap_id = np.zeros(M), np.arange(M)
    ended_s, round_nodes = np.empty((N, G)), np.empty(max(1, scale.max()) if N else 1, np.int64)
    name = np.arange(M) if finish_first else np.argsort(blind_rank)  # the GPU behind an id; ties go by id
    rows = 0
    for n in job:
        ready_s, nodes = barrier_s[n], 0
        ended_s[n] = -1.0
        part = last[n] if round_[n] == rounds[n] - 1 else 1.0
        for task in range(scale[n]):
            best, best_s = -1, np.inf
            for h in range(heaps):
                if edges[h] == edges[h + 1]:
                    continue
                end_s = heap_s[edges[h]]
                if finish_first:
                    end_s = max(ready_s, end_s) + task_s[n, h] * part
                # Ties go to the GPU that is free first, so that on equal GPUs both choices are the same.
                if end_s < best_s or (end_s == best_s and heap_s[edges[h]] < heap_s[edges[best]]):
                    best, best_s = h, end_s
            low, high = edges[best], edges[best + 1]
            gpu = name[heap_id[low]]
            g = type_of[gpu]
            start = max(ready_s, heap_s[low])
            end = start + task_s[n, g] * part * pace[gpu]
            if last_job[gpu] != n and (round_[n] > 0 if restarts else last_job[gpu] >= 0):
                end += switch_s[n]
            last_job[gpu] = n
            heap_s[low] = end
            _sift_down(heap_s[low:high], heap_id[low:high], high - low, 0)
            ended_s[n, g] = max(ended_s[n, g], end)
            nodes = _with_node(round_nodes, 0, nodes, node_of[gpu])
            out_job[rows], out_round[rows], out_task[rows] = n, round_[n], task
            out_gpu[rows], out_start[rows], out_end[rows] = gpu, start, end
            rows += 1
        barrier_s[n] = _gradients_in_s(n, ended_s, part, nodes, sync_s, spread_sync_s)
        round_[n] += 1
    return out_job, out_round, out_task, out_gpu, out_start, out_end
