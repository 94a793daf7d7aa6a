"""The current state, folded from events and decisions, one column per fact. Replaying a journal gives the same state.

Columns of jobs grow as jobs arrive, and shrink when jobs that have ended are forgotten; a round touches only the active
jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fairlead.model import events as ev
from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase, Step, advance, advance_one
from fairlead.model.outcomes import Reason
from fairlead.model.pre_emption import Charge
from fairlead.model.quotas import Quota, Quotas, quota_table
from fairlead.rates.estimator import Estimator
from fairlead.rates.three_layer import Learns
from fairlead.rounds.columns import COLUMNS
from fairlead.rounds.departing import (
    Departure,
    How,
    charge_lost_work,
    charge_pre_emptions,
    charge_restarts,
    note_departures,
    note_stops,
)
from fairlead.rounds.describing import describe
from fairlead.rounds.forgetting import forget
from fairlead.rounds.holding import occupy, release
from fairlead.rounds.labels import Labels
from fairlead.rounds.measured import MeasuredRates
from fairlead.rounds.model_trials import ModelTrials, fold_trials, leave_trials, note_arrival, note_started, note_unfit
from fairlead.rounds.nodes import NodeEvent, Nodes
from fairlead.rounds.pausing import Pause, end_pauses, note_setback
from fairlead.rounds.queue import Queue
from fairlead.rounds.restarting import RestartCosts, note_restarts
from fairlead.rounds.serving import leave_served, serve
from fairlead.rounds.speeds import (
    draw_up_again,
    end_measured,
    expected_factors,
    label_rates,
    next_round_measured,
    note_never_fits,
    note_spread,
    report_measured,
)
from fairlead.rounds.waiting import note_outcomes, set_reason


class State:
    """The state of a run. It is mutable on purpose, because it stays open for the whole run."""

    number: IntArray
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
    exact_nodes: IntArray
    mixable_row: IntArray
    total: FloatArray
    restart_s: FloatArray
    started_warm: BoolArray
    done: FloatArray
    safe: FloatArray
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
    setbacks: IntArray
    refusals: IntArray
    migrations: IntArray
    restart_gpu_s: FloatArray
    reason: IntArray
    reason_s: FloatArray
    reason_free: IntArray
    reason_a: FloatArray
    reason_b: FloatArray
    crowd_in: FloatArray
    crowd_out: FloatArray

    def __init__(
        self, cluster: Cluster, estimator: Estimator, tenant_weight: Mapping[str, float] | None = None
    ) -> None:
        self.nodes = Nodes(cluster)
        self.estimator = estimator
        self.learner: Learns | None = estimator if isinstance(estimator, Learns) else None
        self.now_s = 0.0
        self.moment = 0  # number of folds
        self.forgotten = 0  # number of jobs that arrived and were forgotten
        self.specs: list[JobSpec] = []
        self.position: dict[str, int] = {}
        self.spots: list[Spot] = []
        self.last_spots: list[Spot] = []
        self.tenants: dict[str, int] = {}
        self.labels = Labels()
        self.tenant_weight: list[float] = []
        self.given_weight = dict(tenant_weight or {})  # of tenants, whether they have appeared or not
        self._given_quotas: dict[int, tuple[Quota, ...]] = {}
        self.quotas: Quotas | None = None
        self.best_rate = np.zeros((0, len(cluster.types)))  # j,t  the table's samples/s at the reference width
        self.measured = MeasuredRates(len(cluster.types))
        self.trials = ModelTrials()
        for name, (dtype, _) in COLUMNS.items():
            setattr(self, name, np.zeros(0, dtype=dtype))

        self.type_speed = estimator.type_speed()  # t
        self.restart_costs: RestartCosts = {}
        self.active = 0  # jobs that arrived, have not ended and are not held
        self.queue = Queue()
        self.terms: dict[int, dict[str, float]] = {}  # waiting job -> the policy's own numbers about it
        self.spread_rate: dict[int, float] = {}  # job -> samples/s on its spot, if lower than on the fewest nodes
        self.departures: dict[int, Departure] = {}  # job that ran and holds no GPUs -> how it came off them
        self.pre_empted: list[Charge] = []  # of the last hour before the newest of them, in order of time
        self.pauses: dict[int, Pause] = {}  # waiting job -> until when it is not started again
        self.run_nowhere: set[int] = set()  # jobs that have not ended and that no node or mix of nodes can run

        # Integrals over time since the first arrival.
        self.first_arrival_s = math.inf
        self.busy_gpu_s = 0.0
        self.up_gpu_s = 0.0
        self.waiting_time_s = 0.0  # time in which at least one job waits
        self.idle_while_waiting_gpu_s = 0.0
        self.crowd_s = 0.0  # active jobs x time
        self.busy_gpus = 0.0
        self.running = 0  # jobs that hold GPUs
        self.served: dict[int, FloatArray] = {}  # job -> t  mean GPUs held, for task-level policies
        self.unserved = 0.0  # largest part of the time that one of these jobs waits

    @property
    def cluster(self) -> Cluster:
        return self.nodes.cluster

    @property
    def node_up(self) -> BoolArray:
        return self.nodes.up

    @property
    def node_free(self) -> IntArray:
        """n  Usable GPUs that no job holds, whether the node is up or not."""
        return self.nodes.free

    @property
    def capacity(self) -> IntArray:
        """t  Usable GPUs on nodes that are up."""
        return self.nodes.capacity

    @property
    def jobs(self) -> int:
        return len(self.specs)

    @property
    def ended(self) -> int:
        """The number of jobs that have ended or are held."""
        return self.jobs - self.active

    @property
    def active_jobs(self) -> IntArray:
        """Positions of jobs that arrived, have not ended and are not held, ascending."""
        return self.queue.jobs

    def schedulable(self) -> tuple[IntArray, dict[str, Any]]:
        """Active jobs that some node can run, and a cache of their columns that never change.

        A job whose hardware has left the cluster is hidden from policies until such hardware joins, and one that pauses
        until its pause is over.
        """
        jobs = self.active_jobs
        hidden = [j for j in self.run_nowhere if self.phase[j] != Phase.HELD and not self.held_gpus[j]]
        hidden += self.pauses
        if not hidden:
            return jobs, self.queue.fixed
        return jobs[~np.isin(jobs, hidden)], {}

    def someone_could_start(self) -> bool:
        """Whether a job waits and a GPU is free."""
        return self.active > self.running and self.nodes.up_gpus > self.busy_gpus

    def done_at(self, jobs: IntArray, time_s: float) -> FloatArray:
        """Samples done, extrapolated linearly from the last report."""
        ran = time_s - np.maximum(self.at_s.take(jobs), self.resume_s.take(jobs))
        return self.done.take(jobs) + self.rate.take(jobs) * np.maximum(ran, 0.0)

    def attained_at(self, jobs: IntArray, time_s: float) -> FloatArray:
        """GPU-seconds held so far."""
        held_s = np.maximum(time_s - self.since_s.take(jobs), 0.0)
        return self.attained_gpu_s.take(jobs) + self.held_gpus.take(jobs) * held_s

    def ran_at(self, jobs: IntArray, time_s: float) -> FloatArray:
        """Seconds with GPUs so far."""
        return self.run_s.take(jobs) + np.maximum(time_s - self.since_s.take(jobs), 0.0)

    def relative_to_table(self, jobs: IntArray, time_s: float) -> FloatArray | None:
        """j,n  Rate on a node / the table's rate for its type; None if the estimator does not learn."""
        return None if self.learner is None else self.learner.relative(jobs, expected_factors(self, jobs))

    def relative_spread(self, jobs: IntArray, time_s: float) -> FloatArray | None:
        """j,t  Rate over several nodes / the rate that the slowest of them implies."""
        return None if self.learner is None else self.learner.spread(jobs, expected_factors(self, jobs))

    def learnt_rate(self, j: int, spot: Spot) -> float | None:
        """Expected samples per second on the spot; None if the estimator does not learn."""
        if self.learner is None:
            return None
        expected = expected_factors(self, np.array([j]))
        return self.learner.predict(j, self.specs[j].model, spot, None if expected is None else expected[0])

    def mixable_at(self, jobs: IntArray, time_s: float) -> BoolArray:
        """j,t  Types whose GPUs may be part of a mix."""
        rows = np.array(self.labels.mixable_rows, dtype=np.bool_).reshape(-1, len(self.cluster.types))
        return np.asarray(rows.take(self.mixable_row.take(jobs), axis=0))

    # ---- the fold -----------------------------------------------------------------------------------------------

    def fold(self, event: ev.Event | Decision) -> None:
        self.pass_time(event.time_s)
        self.moment += 1
        _FOLD[type(event)](self, event)

    def pass_time(self, time_s: float) -> None:
        elapsed = time_s - self.now_s
        if elapsed < 0:
            raise BrokenInvariantError(f"time runs backwards: an event at {time_s} s follows {self.now_s} s")
        if elapsed and self.first_arrival_s < math.inf:
            self.busy_gpu_s += elapsed * self.busy_gpus
            self.up_gpu_s += elapsed * self.nodes.up_gpus
            self.crowd_s += elapsed * self.active
            if self.active > self.running or self.unserved:
                waits_s = elapsed if self.active > self.running else elapsed * self.unserved
                self.waiting_time_s += waits_s
                self.idle_while_waiting_gpu_s += waits_s * max(self.nodes.up_gpus - self.busy_gpus, 0.0)
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
        self.number[j] = self.forgotten + j
        self.tenant[j] = self._tenant(spec.tenant)
        describe(self, j, spec)
        note_arrival(self, j)
        self.crowd_in[j] = self.crowd_s
        self.first_arrival_s = min(self.first_arrival_s, event.time_s)
        self.active += 1
        self.queue.arrive(j)

    def _decision(self, event: Decision) -> None:
        if event.why is not None:
            note_outcomes(self, event.why.outcomes, event.time_s)
        if event.cause is Cause.ROUND:
            next_round_measured(self)
        if event.trials or self.trials.on:
            fold_trials(self, event)
        if not event.stop.size and not event.start.size:
            return
        stop, start = set(event.stop.tolist()), set(event.start.tolist())
        for jobs, step in ((stop - start, Step.STOP), (stop & start, Step.MOVE), (start - stop, Step.START)):
            self.step(np.array(sorted(jobs), dtype=np.int64), step)
        end_pauses(self, start if self.pauses else ())
        note_stops(self, event)
        if event.stop.size:
            charge_pre_emptions(self, event)
        release(self, event.stop, event.time_s)
        occupy(self, event.start, event.spots, event.time_s)

    def _started(self, event: ev.Started) -> None:
        self.step(event.jobs, Step.STARTED)
        charge_restarts(self, event.jobs, event.resume_s)
        self.refusals[event.jobs] = 0
        self.at_s[event.jobs] = event.time_s
        self.rate[event.jobs] = event.rate
        self.resume_s[event.jobs] = event.resume_s
        if self.trials.on:
            note_started(self, event.jobs)
        if event.measured:
            self._learn(event.jobs, event.rate)
        fresh = event.jobs[np.isnan(self.first_start_s[event.jobs])]
        self.first_start_s[fresh] = event.time_s

    def _learn(self, jobs: IntArray, rate: FloatArray) -> None:
        if self.learner is not None:
            for j, observed in zip(jobs.tolist(), rate.tolist(), strict=True):
                if observed > 0:
                    self.learner.observe(j, self.specs[j].model, self.spots[j], observed)
                    report_measured(self, self.learner, j)

    def _progress(self, event: ev.Progress) -> None:
        self.report(event.jobs, event.samples, event.rate, event.time_s)
        self._learn(event.jobs, event.rate)

    def _stopped(self, event: ev.Stopped) -> None:
        self.step(event.jobs, Step.STOPPED)
        self._keep(event)
        note_never_fits(self, event.jobs)

    def _lost(self, event: ev.Lost) -> None:
        self.step(event.jobs, Step.LOST)
        charge_lost_work(self, event.jobs, event.samples, event.time_s)
        note_departures(self, event.jobs, event.time_s, How.LOST, event.reason)
        self._keep(event)
        if event.unfit:
            note_unfit(self, event.jobs)
        leave_trials(self, event.jobs, over=False)
        release(self, event.jobs, event.time_s)
        note_setback(self, event)
        note_never_fits(self, event.jobs)

    def _refused(self, event: ev.Refused) -> None:
        self.step(event.jobs, Step.REFUSED)
        note_departures(self, event.jobs, event.time_s, How.REFUSED, event.reason)
        leave_trials(self, event.jobs, over=False)
        release(self, event.jobs, event.time_s)
        note_setback(self, event)
        note_never_fits(self, event.jobs)

    def _finished(self, event: ev.Finished) -> None:
        self.step(event.jobs, Step.FINISHED)
        leave_served(self, event.jobs, event.time_s)
        leave_trials(self, event.jobs, over=True, tried=True)
        self._keep(event)
        self._end(event.jobs, event.time_s)

    def _failed(self, event: ev.Failed) -> None:
        self.step(event.jobs, Step.FAILED)
        note_departures(self, event.jobs, event.time_s, How.FAILED, event.reason)
        self._end(event.jobs, event.time_s)

    def _cancelled(self, event: ev.Cancelled) -> None:
        held = self.phase[event.jobs] == Phase.HELD
        self.step(event.jobs, Step.CANCEL)
        self.end_s[event.jobs[held]] = event.time_s  # it had left the queue when it was held
        self.run_nowhere.difference_update(event.jobs[held].tolist())
        end_measured(self, event.jobs[held])
        leave_trials(self, event.jobs[held], over=True)
        self._end(event.jobs[~held], event.time_s)

    def _held(self, event: ev.Held) -> None:
        self.step(event.jobs, Step.HOLD)
        self._keep(event)
        leave_trials(self, event.jobs, over=False)
        release(self, event.jobs, event.time_s)
        self._leave_queue(event.jobs)
        set_reason(self, event.jobs, Reason.HELD, event.time_s)

    def _back(self, event: ev.Released) -> None:
        """Return jobs to the queue; time on hold counts neither as waiting nor as contention."""
        held = event.jobs[self.phase[event.jobs] == Phase.HELD]
        self.step(event.jobs, Step.RELEASE)
        end_pauses(self, event.jobs.tolist())
        set_reason(self, held, Reason.UNDECIDED, event.time_s)
        note_never_fits(self, event.jobs)
        self.crowd_in[held] += self.crowd_s - self.crowd_out[held]
        self.crowd_out[held] = math.nan
        self.active += len(held)
        self.queue.come_back(held)

    def _renumbered(self, event: ev.Renumbered) -> None:
        self.leases[event.jobs] = event.leases

    def _tenant_set(self, event: ev.TenantSet) -> None:
        u = self._tenant(event.tenant)
        self.tenant_weight[u] = event.weight
        self._given_quotas[u] = event.quotas
        self.queue.forget("weight", "alike")
        self.draw_up_quotas()

    def _no_change(self, event: ev.PolicySet | ev.SettingsSet | ev.LimitsSet) -> None:
        pass  # it changes how decisions are made, or what may be submitted

    def _advised(self, event: ev.Advised) -> None:
        decision = event.decision
        if decision.why is not None:
            note_outcomes(self, decision.why.outcomes, event.time_s)
        starts = decision.start[self.held_gpus[decision.start] == 0]
        set_reason(self, starts[self.reason[starts] > 0], Reason.UNDECIDED, event.time_s)

    def _node(self, event: NodeEvent) -> None:
        self.nodes.fold(event)

    def _cluster(self, event: ev.NodeAdded | ev.NodeRemoved) -> None:
        self.nodes.fold(event)
        draw_up_again(self)

    # ---- shared by the folds ---------------------------------------------------------------------------------------

    def step(self, jobs: IntArray, step: Step) -> None:
        if jobs.size == 1:
            after = advance_one(int(self.phase[jobs[0]]), step)
            if after >= 0:
                self.phase[jobs[0]] = after
                return
        if jobs.size:
            try:
                self.phase[jobs] = advance(self.phase[jobs], step)
            except BrokenInvariantError as error:
                phases = "; ".join(f"{self.specs[j].id} is {Phase(int(self.phase[j])).name}" for j in jobs.tolist()[:8])
                raise BrokenInvariantError(f"at {self.now_s} s: {error} ({phases})") from None

    def report(self, jobs: IntArray, samples: FloatArray, rate: FloatArray | float, time_s: float) -> None:
        self.done[jobs] = samples
        self.rate[jobs] = rate
        self.at_s[jobs] = time_s

    def _keep(self, event: ev.Stopped | ev.Lost | ev.Held | ev.Finished) -> None:
        self.report(event.jobs, event.samples, 0.0, event.time_s)
        self.safe[event.jobs] = event.samples

    def _end(self, jobs: IntArray, time_s: float) -> None:
        release(self, jobs, time_s)
        self.rate[jobs] = 0.0
        self.end_s[jobs] = time_s
        self.run_nowhere.difference_update(jobs.tolist())
        leave_trials(self, jobs, over=True)
        end_measured(self, jobs)
        self._leave_queue(jobs)

    def _leave_queue(self, jobs: IntArray) -> None:
        end_pauses(self, jobs.tolist() if self.pauses else ())
        if self.reason[jobs].any():
            set_reason(self, jobs, Reason.UNDECIDED, self.now_s)
        self.crowd_out[jobs] = self.crowd_s
        self.active -= len(jobs)
        self.queue.leave(jobs)

    def _tenant(self, name: str) -> int:
        u = self.tenants.setdefault(name, len(self.tenants))
        if u == len(self.tenant_weight):
            self.tenant_weight.append(self.given_weight.get(name, 1.0))
            self.draw_up_quotas()
        return u

    def relabel(self) -> None:
        """Compute what follows from the jobs' descriptions and columns: positions and labels."""
        for j, spec in enumerate(self.specs):
            self.position[spec.id] = j
            self.labels.model(spec)
            self.labels.kind(spec)
            self.labels.width_set(spec)
            label_rates(self, j)
        note_spread(self, (j for j, spot in enumerate(self.spots) if len(spot) > 1))

    def quotas_of(self, u: int) -> tuple[Quota, ...]:
        """The limits of a tenant, by its position."""
        return self._given_quotas.get(u, ())

    def draw_up_quotas(self) -> None:
        self.quotas = quota_table(self._given_quotas, len(self.tenants), self.cluster.types)

    def _grow(self, rows: int) -> None:
        for name, (dtype, fresh) in COLUMNS.items():
            column: Any = np.full(rows, fresh, dtype=dtype)
            column[: self.jobs] = getattr(self, name)[: self.jobs]
            setattr(self, name, column)
        best = np.zeros((rows, self.best_rate.shape[1]))
        best[: self.jobs] = self.best_rate[: self.jobs]
        self.best_rate = best


# How each kind of record changes the state.
_FOLD: dict[type, Callable[[State, Any], None]] = {
    Decision: State._decision,
    ev.Arrived: State._arrived,
    ev.Started: State._started,
    ev.Progress: State._progress,
    ev.FirstProgress: note_restarts,
    ev.Served: serve,
    ev.Stopped: State._stopped,
    ev.Finished: State._finished,
    ev.Failed: State._failed,
    ev.Lost: State._lost,
    ev.Refused: State._refused,
    ev.Cancelled: State._cancelled,
    ev.Held: State._held,
    ev.Released: State._back,
    ev.Renumbered: State._renumbered,
    ev.Forgotten: forget,
    ev.TenantSet: State._tenant_set,
    ev.PolicySet: State._no_change,
    ev.SettingsSet: State._no_change,
    ev.LimitsSet: State._no_change,
    ev.Advised: State._advised,
    ev.NodeDown: State._node,
    ev.NodeUp: State._node,
    ev.NodeUsable: State._node,
    ev.NodeAdded: State._cluster,
    ev.NodeRemoved: State._cluster,
}
