"""What is known now, folded from events and decisions, one column per fact. Replaying a journal gives the same state.

Columns of jobs grow as jobs arrive; a round touches the active ones only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fairlead.model import events as ev
from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import NO_JOBS, BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase, Step, advance
from fairlead.model.quotas import Quota, Quotas, quota_table
from fairlead.model.view import MIXED_TYPES, NO_TYPE
from fairlead.rates.estimator import Estimator, allowed_rates, mixable_types
from fairlead.rates.three_layer import Learns
from fairlead.rounds.columns import COLUMNS
from fairlead.rounds.nodes import Nodes


class State:
    """Mutable on purpose: it is the one thing kept open through a run."""

    phase: IntArray
    tenant: IntArray
    model: IntArray
    kind: IntArray
    alike: IntArray
    arrival_s: FloatArray
    width: IntArray
    width_set: IntArray
    weight: FloatArray
    relaxed: BoolArray
    mixable_row: IntArray
    total: FloatArray
    restart_s: FloatArray
    done: FloatArray
    rate: FloatArray
    at_s: FloatArray
    resume_s: FloatArray
    attained_gpu_s: FloatArray
    run_s: FloatArray
    held_type: IntArray
    held_gpus: IntArray
    held_nodes: IntArray
    since_s: FloatArray
    mean_gpus: FloatArray
    part: FloatArray
    first_start_s: FloatArray
    end_s: FloatArray
    leases: IntArray
    restarts: IntArray
    migrations: IntArray
    crowd_in: FloatArray
    crowd_out: FloatArray

    def __init__(
        self, cluster: Cluster, estimator: Estimator, tenant_weight: Mapping[str, float] | None = None
    ) -> None:
        self.nodes = Nodes(cluster)
        self.estimator = estimator
        self._learner = estimator if isinstance(estimator, Learns) else None
        self.now_s = 0.0
        self.moment = 0  # counts the folds
        self.specs: list[JobSpec] = []
        self.position: dict[str, int] = {}
        self.spots: list[Spot] = []
        self.last_spots: list[Spot] = []
        self.tenants: dict[str, int] = {}
        self.models: dict[str, int] = {}
        self.kinds: dict[tuple[str, str, int, tuple[str, ...]], int] = {}
        self._alike: dict[tuple[bytes, int, float], int] = {}
        self._mixable: dict[bytes, int] = {}
        self.mixable_rows: list[BoolArray] = []  # t  which types may be mixed, each answer once
        self.tenant_weight: list[float] = []
        self._given_weight = dict(tenant_weight or {})
        self._given_quotas: dict[int, tuple[Quota, ...]] = {}
        self.quotas: Quotas | None = None
        self.best_rate = np.zeros((0, len(cluster.types)))  # j,t  samples/s at the reference width
        for name, (dtype, _) in COLUMNS.items():
            setattr(self, name, np.zeros(0, dtype=dtype))

        self.width_sets: list[tuple[int, ...]] = []
        self._width_set: dict[tuple[int, ...], int] = {}
        self.type_speed = estimator.type_speed()  # t
        self.active = 0  # jobs that arrived, have not ended and are not held
        self._active_jobs: IntArray = NO_JOBS  # as of the last look; news wait in the two lists
        self.fixed: dict[str, Any] = {}  # columns of these jobs that never change, as far as they were looked at
        self._news: list[int] = []
        self._gone: list[int] = []
        self._released = False  # an old job is among the news

        # Integrals over time since the first arrival.
        self.first_arrival_s = math.inf
        self.busy_gpu_s = 0.0
        self.up_gpu_s = 0.0
        self.waiting_time_s = 0.0  # time in which at least one job waits
        self.idle_while_waiting_gpu_s = 0.0
        self.crowd_s = 0.0  # active jobs x time
        self._busy_gpus = 0.0
        self.running = 0  # jobs that hold GPUs
        self.served: dict[int, FloatArray] = {}  # job -> t  what it holds on average, where GPUs change hands by task
        self._unserved = 0.0  # part of the time in which the job that waits most of those waits

    @property
    def cluster(self) -> Cluster:
        return self.nodes.cluster

    @property
    def node_up(self) -> BoolArray:
        return self.nodes.up

    @property
    def node_free(self) -> IntArray:
        """n  usable GPUs that no job holds, whether the node is up or not"""
        return self.nodes.free

    @property
    def capacity(self) -> IntArray:
        """t  usable GPUs on nodes that are up"""
        return self.nodes.capacity

    @property
    def jobs(self) -> int:
        return len(self.specs)

    @property
    def ended(self) -> int:
        """Jobs that will never run again, or not before they are released."""
        return self.jobs - self.active

    @property
    def active_jobs(self) -> IntArray:
        """Positions of jobs that arrived, have not ended and are not held, ascending."""
        if self._news or self._gone:
            jobs = np.concatenate((self._active_jobs, np.array(self._news, dtype=np.int64)))
            if self._released:
                jobs, self._released = np.sort(jobs), False
            self._active_jobs = np.delete(jobs, np.searchsorted(jobs, self._gone))
            self._news, self._gone = [], []
            self.fixed = {}
        return self._active_jobs

    def someone_could_start(self) -> bool:
        """A job waits and a GPU is free."""
        return self.active > self.running and self.nodes.up_gpus > self._busy_gpus

    def done_at(self, jobs: IntArray, time_s: float) -> FloatArray:
        """Samples done, on the straight line from the last report."""
        ran = time_s - np.maximum(self.at_s.take(jobs), self.resume_s.take(jobs))
        return self.done.take(jobs) + self.rate.take(jobs) * np.maximum(ran, 0.0)

    def attained_at(self, jobs: IntArray, time_s: float) -> FloatArray:
        """GPU-seconds held."""
        held_s = np.maximum(time_s - self.since_s.take(jobs), 0.0)
        return self.attained_gpu_s.take(jobs) + self.held_gpus.take(jobs) * held_s

    def ran_at(self, jobs: IntArray, time_s: float) -> FloatArray:
        """Seconds with GPUs."""
        return self.run_s.take(jobs) + np.maximum(time_s - self.since_s.take(jobs), 0.0)

    def relative_to_table(self, jobs: IntArray, time_s: float) -> FloatArray | None:
        """j,n  rate on a node / what the estimator says of its type; None where it does not learn."""
        return None if self._learner is None else self._learner.relative(jobs)

    def relative_spread(self, jobs: IntArray, time_s: float) -> FloatArray | None:
        """j,t  rate over several nodes / what the slowest of them would make of it."""
        return None if self._learner is None else self._learner.spread(jobs)

    def learnt_rate(self, j: int, spot: Spot) -> float | None:
        """Samples per second that are expected there; None where the estimator does not learn."""
        return None if self._learner is None else self._learner.predict(j, self.specs[j].model, spot)

    def mixable_at(self, jobs: IntArray, time_s: float) -> BoolArray:
        """j,t  types of which GPUs may be part of a mix."""
        rows = np.array(self.mixable_rows, dtype=np.bool_).reshape(-1, len(self.cluster.types))
        return np.asarray(rows.take(self.mixable_row.take(jobs), axis=0))

    # ---- the fold -----------------------------------------------------------------------------------------------

    def fold(self, event: ev.Event | Decision) -> None:
        self.pass_time(event.time_s)
        self.moment += 1
        _FOLD[type(event)](self, event)

    def pass_time(self, time_s: float) -> None:
        elapsed = time_s - self.now_s
        if elapsed < 0:
            raise BrokenInvariantError(f"time runs backwards: an event at {time_s} s came after {self.now_s} s")
        if elapsed and self.first_arrival_s < math.inf:
            self.busy_gpu_s += elapsed * self._busy_gpus
            self.up_gpu_s += elapsed * self.nodes.up_gpus
            self.crowd_s += elapsed * self.active
            if self.active > self.running or self._unserved:
                waits_s = elapsed if self.active > self.running else elapsed * self._unserved
                self.waiting_time_s += waits_s
                self.idle_while_waiting_gpu_s += waits_s * max(self.nodes.up_gpus - self._busy_gpus, 0.0)
        self.now_s = time_s

    def _arrived(self, event: ev.Arrived) -> None:
        spec, j = event.spec, len(self.specs)
        if spec.id in self.position:
            raise BrokenInvariantError(f"job {spec.id} arrived twice")
        if j == len(self.phase):
            self._grow(max(256, 2 * j))
        self.specs.append(spec)
        self.position[spec.id] = j
        self.spots.append(NOWHERE)
        self.last_spots.append(NOWHERE)
        self.tenant[j] = self._tenant(spec.tenant)
        self.model[j] = self.models.setdefault(spec.model, len(self.models))
        self.kind[j] = self.kinds.setdefault((spec.tenant, spec.model, spec.gpus, spec.types), len(self.kinds))
        self.arrival_s[j] = spec.arrival_s
        self.width[j] = spec.gpus
        self.width_set[j] = self._width_set.setdefault(spec.widths, len(self.width_sets))
        if self.width_set[j] == len(self.width_sets):
            self.width_sets.append(spec.widths)
        self.weight[j] = spec.weight
        self.relaxed[j] = spec.relaxed
        if spec.steps is not None:
            self.total[j] = spec.steps * self.estimator.samples_per_step(spec.model, spec.gpus)
        self.restart_s[j] = self.estimator.restart_s(spec.model)
        rates = self.best_rate[j] = allowed_rates(spec, self.cluster, self.estimator)
        self.alike[j] = self._alike.setdefault((rates.tobytes(), spec.gpus, spec.weight), len(self._alike))
        self.mixable_row[j] = self._mixable_row(spec)
        self.crowd_in[j] = self.crowd_s
        self.first_arrival_s = min(self.first_arrival_s, event.time_s)
        self.active += 1
        self._news.append(j)

    def _decision(self, event: Decision) -> None:
        if not event.stop.size and not event.start.size:
            return
        stop, start = set(event.stop.tolist()), set(event.start.tolist())
        for jobs, step in ((stop - start, Step.STOP), (stop & start, Step.MOVE), (start - stop, Step.START)):
            self._step(np.array(sorted(jobs), dtype=np.int64), step)
        self._release(event.stop, event.time_s)
        self._occupy(event.start, event.spots, event.time_s)

    def _started(self, event: ev.Started) -> None:
        self._step(event.jobs, Step.STARTED)
        self.at_s[event.jobs] = event.time_s
        self.rate[event.jobs] = event.rate
        self.resume_s[event.jobs] = event.resume_s
        if event.measured:
            self._learn(event.jobs, event.rate)
        fresh = event.jobs[np.isnan(self.first_start_s[event.jobs])]
        self.first_start_s[fresh] = event.time_s

    def _learn(self, jobs: IntArray, rate: FloatArray) -> None:
        if self._learner is not None:
            for j, seen in zip(jobs.tolist(), rate.tolist(), strict=True):
                self._learner.observe(j, self.specs[j].model, self.spots[j], seen)

    def _progress(self, event: ev.Progress) -> None:
        self._report(event.jobs, event.samples, event.rate, event.time_s)
        self._learn(event.jobs, event.rate)

    def _leave_served(self, jobs: IntArray, time_s: float) -> None:
        if not self.served:
            return
        served = [j for j in jobs.tolist() if self.served.pop(j, None) is not None]
        if served:
            self._settle_served(np.array(served), time_s)
            self.running -= len(served)
            if not self.served:
                self._busy_gpus, self._unserved = 0.0, 0.0  # float sums do not come back to nothing by themselves

    def _serve(self, event: ev.Served) -> None:
        fresh = event.jobs[self.phase[event.jobs] == Phase.WAITING]
        if fresh.size:
            self._step(fresh, Step.START)
            self._step(fresh, Step.STARTED)
            self.first_start_s[fresh] = event.time_s
            self.running += len(fresh)
        self._settle_served(event.jobs, event.time_s)
        self._report(event.jobs, event.samples, event.rate, event.time_s)
        self.part[event.jobs] = event.part
        self.mean_gpus[event.jobs] = event.gpus.sum(axis=1)
        self._busy_gpus += float(event.gpus.sum())
        self.served.update(zip(event.jobs.tolist(), event.gpus, strict=True))
        self._unserved = float((1.0 - self.part[list(self.served)]).max(initial=0.0))

    def _settle_served(self, jobs: IntArray, time_s: float) -> None:
        """Count what these jobs held on average since they were last told of."""
        elapsed_s = time_s - self.at_s[jobs]
        self.attained_gpu_s[jobs] += self.mean_gpus[jobs] * elapsed_s
        self.run_s[jobs] += self.part[jobs] * elapsed_s
        self._busy_gpus -= float(self.mean_gpus[jobs].sum())
        self.mean_gpus[jobs] = self.part[jobs] = 0.0

    def _stopped(self, event: ev.Stopped) -> None:
        self._step(event.jobs, Step.STOPPED)
        self._report(event.jobs, event.samples, 0.0, event.time_s)

    def _lost(self, event: ev.Lost) -> None:
        self._step(event.jobs, Step.LOST)
        self._report(event.jobs, event.samples, 0.0, event.time_s)
        self._release(event.jobs, event.time_s)

    def _refused(self, event: ev.Refused) -> None:
        self._step(event.jobs, Step.REFUSED)
        self._release(event.jobs, event.time_s)

    def _finished(self, event: ev.Finished) -> None:
        self._step(event.jobs, Step.FINISHED)
        self._leave_served(event.jobs, event.time_s)
        self._report(event.jobs, event.samples, 0.0, event.time_s)
        self._end(event.jobs, event.time_s)

    def _failed(self, event: ev.Failed) -> None:
        self._step(event.jobs, Step.FAILED)
        self._end(event.jobs, event.time_s)

    def _cancelled(self, event: ev.Cancelled) -> None:
        held = self.phase[event.jobs] == Phase.HELD
        self._step(event.jobs, Step.CANCEL)
        self.end_s[event.jobs[held]] = event.time_s  # it left the queue when it was held
        self._end(event.jobs[~held], event.time_s)

    def _held(self, event: ev.Held) -> None:
        self._step(event.jobs, Step.HOLD)
        self._report(event.jobs, event.samples, 0.0, event.time_s)
        self._release(event.jobs, event.time_s)
        self._leave_queue(event.jobs)

    def _back(self, event: ev.Released) -> None:
        """Time on hold counts neither as waiting nor as crowding."""
        self._step(event.jobs, Step.RELEASE)
        self.crowd_in[event.jobs] += self.crowd_s - self.crowd_out[event.jobs]
        self.crowd_out[event.jobs] = math.nan
        self.active += len(event.jobs)
        for j in event.jobs.tolist():
            if j in self._gone:  # nobody has looked since it was held
                self._gone.remove(j)
            else:
                self._news.append(j)
                self._released = True
        self.fixed = {}

    def _tenant_set(self, event: ev.TenantSet) -> None:
        u = self._tenant(event.tenant)
        self.tenant_weight[u] = event.weight
        self._given_quotas[u] = event.quotas
        self._draw_up_quotas()

    def _policy_set(self, event: ev.PolicySet) -> None:
        pass

    def _node_down(self, event: ev.NodeDown) -> None:
        self.nodes.set_up(event.node, up=False)

    def _node_up(self, event: ev.NodeUp) -> None:
        self.nodes.set_up(event.node, up=True)

    def _node_usable(self, event: ev.NodeUsable) -> None:
        self.nodes.set_usable(event.node, event.gpus)

    # ---- what the folds share -------------------------------------------------------------------------------------

    def _step(self, jobs: IntArray, step: Step) -> None:
        if jobs.size:
            try:
                self.phase[jobs] = advance(self.phase[jobs], step)
            except BrokenInvariantError as error:
                story = "; ".join(f"{self.specs[j].id} is {Phase(int(self.phase[j])).name}" for j in jobs.tolist()[:8])
                raise BrokenInvariantError(f"at {self.now_s} s: {error} ({story})") from None

    def _report(self, jobs: IntArray, samples: FloatArray, rate: FloatArray | float, time_s: float) -> None:
        self.done[jobs] = samples
        self.rate[jobs] = rate
        self.at_s[jobs] = time_s

    def _occupy(self, jobs: IntArray, spots: tuple[Spot, ...], time_s: float) -> None:
        if not jobs.size:
            return
        types: list[int] = []
        totals: list[int] = []
        moved: list[bool] = []
        for j, spot in zip(jobs.tolist(), spots, strict=True):
            total, type_ = 0, self.nodes.types[spot[0][0]]
            for node, count in spot:
                total += count
                if self.nodes.types[node] != type_:
                    type_ = MIXED_TYPES
            types.append(type_)
            totals.append(total)
            moved.append(spot != self.last_spots[j])
            self.spots[j] = self.last_spots[j] = spot
        ran = ~np.isnan(self.first_start_s[jobs])  # what was refused before it ever ran restores nothing
        self.restarts[jobs] += ran
        self.migrations[jobs] += ran & moved
        self.leases[jobs] += 1
        self.held_type[jobs] = types
        self.held_gpus[jobs] = totals
        self.held_nodes[jobs] = [len(spot) for spot in spots]
        self._busy_gpus += sum(totals)
        self.since_s[jobs] = time_s
        self.running += len(jobs)
        self.nodes.take(spots)

    def _release(self, jobs: IntArray, time_s: float) -> None:
        held = jobs[self.held_gpus[jobs] > 0]
        if not held.size:
            return
        gpus, held_s = self.held_gpus[held], time_s - self.since_s[held]
        self.attained_gpu_s[held] += gpus * held_s
        self.run_s[held] += held_s
        self.since_s[held] = math.inf
        self._busy_gpus -= int(gpus.sum())
        self.running -= len(held)
        self.held_gpus[held] = 0
        self.held_nodes[held] = 0
        self.held_type[held] = NO_TYPE
        leaving: list[int] = held.tolist()
        self.nodes.give_back([self.spots[j] for j in leaving])
        for j in leaving:
            self.spots[j] = NOWHERE

    def _end(self, jobs: IntArray, time_s: float) -> None:
        self._release(jobs, time_s)
        self.rate[jobs] = 0.0
        self.end_s[jobs] = time_s
        self._leave_queue(jobs)

    def _leave_queue(self, jobs: IntArray) -> None:
        self.crowd_out[jobs] = self.crowd_s
        self.active -= len(jobs)
        self._gone += jobs.tolist()

    def _tenant(self, name: str) -> int:
        u = self.tenants.setdefault(name, len(self.tenants))
        if u == len(self.tenant_weight):
            self.tenant_weight.append(self._given_weight.get(name, 1.0))
            self._draw_up_quotas()
        return u

    def relabel(self) -> None:
        """Draw up what follows from the jobs' descriptions and their columns: positions, kinds, sets of widths."""
        for j, spec in enumerate(self.specs):
            self.position[spec.id] = j
            self.models.setdefault(spec.model, len(self.models))
            self.kinds.setdefault((spec.tenant, spec.model, spec.gpus, spec.types), len(self.kinds))
            if self._width_set.setdefault(spec.widths, len(self.width_sets)) == len(self.width_sets):
                self.width_sets.append(spec.widths)
            self._alike.setdefault((self.best_rate[j].tobytes(), spec.gpus, spec.weight), len(self._alike))
            self._mixable_row(spec)

    def _mixable_row(self, spec: JobSpec) -> int:
        mixable = mixable_types(spec, self.cluster, self.estimator)
        row = self._mixable.setdefault(mixable.tobytes(), len(self.mixable_rows))
        if row == len(self.mixable_rows):
            self.mixable_rows.append(mixable)
        return row

    def _draw_up_quotas(self) -> None:
        self.quotas = quota_table(self._given_quotas, len(self.tenants), self.cluster.types)

    def _grow(self, rows: int) -> None:
        for name, (dtype, fresh) in COLUMNS.items():
            column: Any = np.full(rows, fresh, dtype=dtype)
            column[: self.jobs] = getattr(self, name)[: self.jobs]
            setattr(self, name, column)
        best = np.zeros((rows, self.best_rate.shape[1]))
        best[: self.jobs] = self.best_rate[: self.jobs]
        self.best_rate = best


# How each kind of news changes the state.
_FOLD: dict[type, Callable[[State, Any], None]] = {
    Decision: State._decision,
    ev.Arrived: State._arrived,
    ev.Started: State._started,
    ev.Progress: State._progress,
    ev.Served: State._serve,
    ev.Stopped: State._stopped,
    ev.Finished: State._finished,
    ev.Failed: State._failed,
    ev.Lost: State._lost,
    ev.Refused: State._refused,
    ev.Cancelled: State._cancelled,
    ev.Held: State._held,
    ev.Released: State._back,
    ev.TenantSet: State._tenant_set,
    ev.PolicySet: State._policy_set,
    ev.NodeDown: State._node_down,
    ev.NodeUp: State._node_up,
    ev.NodeUsable: State._node_usable,
}
