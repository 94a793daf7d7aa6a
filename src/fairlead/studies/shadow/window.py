"""A watched stretch of time as a workload: the jobs that Slurm ran, with their true arrivals and lengths.

Slurm knows neither what a job trains nor how fast it would run elsewhere. A job of a model that the profile has is as
fast as the profile says; any other is as fast on each GPU type as the models of the profile are on average. Every such
assumption is a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fairlead.engines.slurm.watch_file import WatchRecord
from fairlead.engines.slurm.watched import FORGOTTEN, WatchedJob
from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.past import Past
from fairlead.model.words import counted
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.traces.formats import Trace

FORMAT = "slurm-watch"
UNKNOWN = "unknown"  # the model of jobs whose model the profile does not have
_SHORTEST_S = 1.0  # Slurm's times are whole seconds


@dataclass(frozen=True, slots=True)
class WatchedWindow:
    """What was watched, ready to be simulated."""

    cluster: Cluster
    trace: Trace  # its notes state what was assumed
    profile: Profile
    tenant_weight: Mapping[str, float]
    origin_s: float  # time of the trace's zero, since 1970
    until_s: float


def read_window(
    record: WatchRecord, profile: Profile, *, since_s: float | None = None, tenant: str | None = None
) -> WatchedWindow:
    """The jobs of the record that were submitted since then. InputError if there is nothing to compare.

    The notes quote words from jobs of the tenant alone, if there is one.
    """
    cluster = _cluster(record)
    until_s = record.last_s or 0.0
    rows = [row for row in record.jobs.values() if since_s is None or row.spec.arrival_s >= since_s]
    ran = [row for row in rows if row.runs]
    if not ran:
        raise InputError(
            f"none of {counted(len(rows), 'watched job')} has run yet, so that there is nothing to compare; "
            "let the service watch for longer, or begin the window earlier"
        )
    known = _with_unknown(profile, cluster)
    origin_s = min(row.spec.arrival_s for row in ran)
    reader = _Reader(cluster, known, origin_s, until_s, tenant)
    jobs = [reader.job(row) for row in ran]
    jobs.sort(key=lambda job: (job.arrival_s, job.id))
    notes = (*_window_notes(record, rows, origin_s, until_s), *reader.notes())
    name = f"Slurm, {_day(origin_s)} to {_day(until_s)}"
    tenants = {job.tenant for job in jobs}
    weights = {tenant: weight for tenant, weight in record.weights.items() if tenant in tenants}
    trace = Trace(tuple(jobs), name, FORMAT, notes=notes, past=reader.past)
    return WatchedWindow(cluster, trace, known, weights, origin_s, until_s)


class _Reader:
    """Turns rows into jobs of a trace and counts what it assumes."""

    def __init__(self, cluster: Cluster, profile: Profile, origin_s: float, until_s: float, tenant: str | None) -> None:
        self._profile, self._origin_s, self._until_s, self._tenant = profile, origin_s, until_s, tenant
        types = (cluster.gpu[t] for t in cluster.node_type.tolist())
        self._gpu_of = dict(zip(cluster.nodes, types, strict=True))
        self._models = frozenset(profile.models)
        self._from: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._strange: set[str] = set()
        self.past: dict[str, Past] = {}

    def job(self, row: WatchedJob) -> JobSpec:
        runs, spec = row.runs, row.spec
        ends_s = [self._until_s if run.end_s is None else run.end_s for run in runs]
        ran_s = max(sum(end_s - run.start_s for run, end_s in zip(runs, ends_s, strict=True)), _SHORTEST_S)
        self._counts["running"] += runs[-1].end_s is None
        self._counts["forgotten"] += row.ended == FORGOTTEN
        self._counts["again"] += len(runs) > 1
        self._counts["requeued"] += any("requeued" in note for note in row.notes)
        model, rate = self._model(row, runs[-1].hosts)
        waited_s = max(runs[0].start_s - spec.arrival_s, 0.0)
        self.past[spec.id] = Past(waited_s, ran_s, runs[-1].hosts, row.name, row.partition, row.model_from)
        arrival_s = spec.arrival_s - self._origin_s
        steps = ran_s * rate / self._profile.samples_per_step(model, spec.gpus)
        return replace(spec, model=model, arrival_s=arrival_s, steps=steps)

    def _model(self, row: WatchedJob, hosts: Sequence[str]) -> tuple[str, float]:
        """The model by which the job is simulated, and its rate where it ran."""
        model, gpus = row.spec.model, row.spec.gpus
        if model in self._models and model != UNKNOWN:
            rate = self._rate(model, gpus, hosts)
            if rate > 0:
                self._from[row.model_from] += 1
                return model, rate
            self._counts["cannot"] += 1
        elif row.model_from != "default" and self._tenant in (None, row.spec.tenant):
            self._strange.add(model)
        self._from[UNKNOWN] += 1
        return UNKNOWN, self._rate(UNKNOWN, gpus, hosts) or 1.0

    def _rate(self, model: str, gpus: int, hosts: Sequence[str]) -> float:
        """Samples/s where it ran; over several types, that of the slowest."""
        types = {self._gpu_of[host] for host in hosts if host in self._gpu_of}
        self._counts["mixed"] += len(types) > 1 and model == UNKNOWN
        return min((self._profile.samples_per_s(model, gpu, gpus, len(hosts)) for gpu in types), default=0.0)

    def notes(self) -> list[str]:
        by = ", ".join(f"{count} {_MODEL_FROM[how]}" for how, count in self._from.most_common())
        notes = [f'model: {by}; speeds from profile "{self._profile.name}"']
        notes += [text.format(counted(self._counts[key], "job")) for key, text in _COUNTED.items() if self._counts[key]]
        if self._strange:
            notes.append(f"models that the profile does not have count as unknown: {', '.join(sorted(self._strange))}")
        return notes


_MODEL_FROM = {
    "comment": "from the comment",
    "name": "from the job's name",
    "default": "by default",
    UNKNOWN: "unknown (speeds and restarts as those of the profile's models on average)",
}
_COUNTED = {
    "running": "{} still running: as long as they have run so far",
    "forgotten": "{} that Slurm forgot between two looks: they end when they were last seen",
    "again": "{} with several runs: one run, as long as all of them together",
    "requeued": "{} requeued before they were first seen: submitted at that time",
    "cannot": "{} of models that do not run on their GPUs by the profile: unknown model",
    "mixed": "{} over several GPU types: as fast as on the slowest of them",
}


def _window_notes(record: WatchRecord, rows: Sequence[WatchedJob], origin_s: float, until_s: float) -> list[str]:
    notes = ["arrivals, starts and lengths are Slurm's; Slurm had other rules, such as priorities and reservations"]
    waiting = sum(not row.runs and not row.ended for row in rows)
    cancelled = sum(not row.runs and bool(row.ended) for row in rows)
    if waiting:
        notes.append(f"left out: {counted(waiting, 'job')} that Slurm has not started yet, whose length nobody knows")
    if cancelled:
        notes.append(f"left out: {counted(cancelled, 'job')} that ended before they ran")
    if record.aside:
        reasons = Counter(record.aside.values())
        text = ", ".join(f"{count} because {reason}" for reason, count in reasons.most_common(3))
        notes.append(f"left aside: {text}; GPUs that they held count as free")
    gaps = [gap for gap in record.gaps if gap.to_s >= origin_s]
    if gaps:
        hours = sum(min(gap.to_s, until_s) - max(gap.from_s, origin_s) for gap in gaps) / 3600
        notes.append(
            f"nobody watched for {hours:.2g} h in {counted(len(gaps), 'gap')}; jobs of that time may be missing"
        )
    if any(not node.up for node in record.nodes.values()) or len(record.node_changes) > len(record.nodes):
        notes.append("nodes that were down or drained for some of the time count as up for all of it")
    if not record.weights:
        notes.append("all tenants have the same weight: Slurm's accounting shows no shares")
    return notes


def _cluster(record: WatchRecord) -> Cluster:
    hosts: dict[tuple[str, int], list[str]] = {}
    for node in record.nodes.values():
        if node.gpus:
            hosts.setdefault((node.type, node.gpus), []).append(node.name)
    if not hosts:
        raise InputError("the record has no node with GPUs yet; let the service watch until it has seen some")
    return build_cluster([NodeGroup(len(names), gpu, gpus, hosts=tuple(names)) for (gpu, gpus), names in hosts.items()])


def _with_unknown(profile: Profile, cluster: Cluster) -> Profile:
    """The profile with a model that is as fast on each type as its models on average, and a GPU type that it does not have
    as fast as the slowest. A restart costs as much as that of the median model.
    """
    speed = TableEstimator(profile, cluster).type_speed()  # t
    slowest = float(speed[speed > 0].min()) if (speed > 0).any() else 1.0
    rows = tuple(
        Speed(UNKNOWN, gpu, 1, 1, 1.0, float(speed[t]) or slowest, "assumed: mean speed of the profile's models")
        for t, gpu in enumerate(cluster.gpu)
    )
    costs = sorted(profile.facts_of(model).restart_s for model in profile.models)
    facts = {**profile.facts, UNKNOWN: ModelFacts(restart_s=costs[len(costs) // 2] if costs else 0.0)}
    return replace(profile, speeds=(*profile.speeds, *_first_of_each(rows)), facts=facts)


def _first_of_each(rows: Sequence[Speed]) -> list[Speed]:
    """One row for each GPU, which may belong to several types of the cluster."""
    return list({row.gpu: row for row in reversed(rows)}.values())


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
