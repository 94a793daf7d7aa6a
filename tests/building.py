"""Small clusters, profiles, workloads and views, made by hand or by hypothesis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from checker import Checked, check_journal
from fairlead.model.allocation import Grants, Level, Placement, Shares, Spot
from fairlead.model.changes import Change, ChangeKind
from fairlead.model.cluster import Cluster, NodeGroup, build_cluster, parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, NodeDown, Started, Stopped
from fairlead.model.jobs import JobSpec
from fairlead.model.tasks import Choice, Known, Rule, TaskPlan
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order
from fairlead.policies import REGISTRY
from fairlead.policies import ROUND_POLICIES as REGISTERED
from fairlead.policies.policy import AnyPolicy, Knows, Policy, RoundPolicy, TaskPolicy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.rounds.look import look
from fairlead.rounds.loop import Settings, Switching, When
from fairlead.rounds.state import State
from fairlead.sim.loops import loop_for
from fairlead.sim.truth import World
from fairlead.studies.policy_lab.policy_worlds import FACTS, GPUS, MODELS
from fairlead.studies.runs.simulate import Result, Setup, simulate, without_impossible
from fairlead.traces.formats import Trace


def speed(model: str, gpu: str, steps_per_s: float, *, gpus: int = 1, nodes: int = 1, batch: float = 1.0) -> Speed:
    return Speed(model, gpu, gpus, nodes, batch, steps_per_s, "made up")


def profile(rates: Mapping[str, Mapping[str, float]], facts: Mapping[str, ModelFacts] | None = None) -> Profile:
    """{model: {gpu: samples/s of one GPU}}; the rate grows linearly with the width."""
    rows = tuple(speed(model, gpu, rate) for model, row in rates.items() for gpu, rate in row.items())
    return Profile("made up", rows, facts or {})


# One model that is twice as fast on v100 as on k80, one that is equally fast on both, one that runs on v100 only.
THREE = profile(
    {"fast": {"v100": 4.0, "p100": 2.0, "k80": 1.0}, "even": {"v100": 1.0, "p100": 1.0, "k80": 1.0}, "v": {"v100": 1.0}}
)


def job(
    id_: str, gpus: int = 1, samples: float = 1000.0, *, at: float = 0.0, model: str = "even", **more: Any
) -> JobSpec:
    """A job of this many samples: one step at width `gpus` is `gpus` samples where a batch is 1."""
    return JobSpec(id_, more.pop("tenant", "t"), model, at, gpus, samples / gpus, **more)


def setup(
    jobs: Sequence[JobSpec],
    cluster: str | Cluster = "v100:4",
    policy: str | AnyPolicy = "fifo",
    speeds: Profile = THREE,
    *,
    world: World | None = None,
    restart_s: float | None = None,
    tenant_weight: Mapping[str, float] | None = None,
    **settings: Any,
) -> Setup:
    ordered = tuple(sorted(jobs, key=lambda spec: (spec.arrival_s, spec.id)))
    return Setup(
        cluster=parse_short_form(cluster) if isinstance(cluster, str) else cluster,
        trace=Trace(ordered, "made up", "own"),
        profile=speeds,
        policy=REGISTRY[policy] if isinstance(policy, str) else policy,
        settings=Settings(**{**settings, "when": When(settings.get("when", "rounds"))}),
        world=world or World(),
        restart_s=restart_s,
        tenant_weight=tenant_weight or {},
    )


def true_samples(made: Setup) -> dict[str, float]:
    return {
        spec.id: spec.steps * spec.gpus * _batch(made.profile, spec.model) for spec in made.trace.jobs if spec.steps
    }


def run_checked(made: Setup, journal: Path) -> tuple[Result, Checked]:
    """Simulate with a journal and check the journal. A run that does not end fails."""
    decisions = count(1)

    def tick(state: State) -> None:
        assert next(decisions) < 20_000, f"at {state.now_s} s still {state.active} of {state.jobs} jobs are active"

    result = simulate(made, journal, tick)
    return result, check_journal(journal, true_samples(made))


def _batch(speeds: Profile, model: str) -> float:
    return next(row.batch for row in speeds.speeds if row.model == model)


# ---- views ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A moment in time: which jobs are present, what they hold since when, which nodes are down."""

    jobs: Sequence[JobSpec]
    cluster: str | Cluster = "v100:4"
    speeds: Profile = THREE
    held: Mapping[str, Spot] = field(default_factory=dict)  # job -> (node, GPUs) pairs
    since: Mapping[str, float] = field(default_factory=dict)
    down: Sequence[int] = ()
    now_s: float = 0.0
    restart_s: float | None = None
    tenant_weight: Mapping[str, float] = field(default_factory=dict)

    def state(self) -> State:
        cluster = parse_short_form(self.cluster) if isinstance(self.cluster, str) else self.cluster
        state = State(cluster, TableEstimator(self.speeds, cluster, restart_s=self.restart_s), self.tenant_weight)
        for spec in self.jobs:
            state.fold(Arrived(spec.arrival_s, spec))
        for id_ in sorted(self.held, key=lambda id_: self.since.get(id_, 0.0)):
            start(state, id_, self.held[id_], self.since.get(id_, 0.0))
        for node in self.down:
            state.fold(NodeDown(state.now_s, node))
        state.pass_time(self.now_s)
        return state

    def view(self, round_s: float = 360.0, policy: Policy | None = None) -> View:
        return look(self.state(), policy or _ALL_KNOWING, round_s)


_ALL_KNOWING = replace(REGISTERED["fifo"], name="all-knowing", knows=frozenset(Knows))


def start(state: State, id_: str, spot: Spot, time_s: float, rate: float = 1.0) -> None:
    """The scheduler starts the job on the spot, and the engine confirms."""
    jobs = np.array([state.position[id_]])
    state.fold(Decision(time_s, Cause.ROUND, jobs[:0], jobs, (spot,), math.inf, ""))
    state.fold(Started(time_s, jobs, np.array([rate]), np.array([time_s])))


def stop(state: State, id_: str, time_s: float, samples: float) -> None:
    jobs = np.array([state.position[id_]])
    state.fold(Decision(time_s, Cause.ROUND, jobs, jobs[:0], (), math.inf, ""))
    state.fold(Stopped(time_s, jobs, np.array([samples])))


def grants(table: Sequence[Sequence[int]], order: Sequence[int] | None = None) -> Grants:
    """Grants from GPUs by job and type, with jobs in `order`."""
    gpus, first = np.array(table), np.array(order or range(len(table)))
    place, types = np.nonzero(gpus[first])
    return Grants(first[place], types, gpus[first[place], types])


def granted(view: View, allocation: Grants) -> list[list[int]]:
    """The GPUs granted by job and type."""
    table = np.zeros((view.jobs, len(view.capacity)), dtype=np.int64)
    table[allocation.jobs, allocation.types] = allocation.gpus
    rows: list[list[int]] = table.tolist()
    return rows


# ---- worlds --------------------------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to three types in nodes of unequal size; now and then one GPU with two memory sizes."""
    groups = [
        NodeGroup(draw(st.integers(1, 3)), gpu, draw(st.integers(1, 4)), draw(st.sampled_from((None, 12.0, 32.0))))
        for gpu in draw(st.lists(st.sampled_from(GPUS), max_size=3))
    ]
    return build_cluster([NodeGroup(draw(st.integers(1, 2)), "v100", draw(st.integers(1, 4))), *groups])


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    rows = []
    for model in MODELS:
        batch = draw(st.sampled_from((1.0, 8.0, 32.0)))
        for gpu in GPUS[:1] if model == "picky" else GPUS:
            rate = draw(st.floats(0.2, 8.0)) / batch
            rows.append(speed(model, gpu, rate, batch=batch))
            if model == "light":
                rows.append(speed(model, gpu, rate * draw(st.floats(0.5, 1.0)), gpus=4, batch=batch))
                rows.append(speed(model, gpu, rate * draw(st.floats(0.2, 1.0)), gpus=4, nodes=2, batch=batch))
    return Profile("made up", tuple(rows), FACTS)


@st.composite
def workloads(draw: st.DrawFn, speeds: Profile, most: int = 10) -> tuple[JobSpec, ...]:
    jobs = []
    for i in range(draw(st.integers(1, most))):
        gpus = draw(st.sampled_from((1, 1, 2, 3, 4, 8)))
        model = draw(st.sampled_from(MODELS))
        seconds = draw(st.sampled_from((0.01, 30.0, 360.0, 700.0, 2500.0)))  # on one kind of GPU or another
        steps = seconds * draw(st.floats(0.5, 2.0)) / _batch(speeds, model)
        jobs.append(
            JobSpec(
                id=f"j{i}",
                tenant=draw(st.sampled_from(("ann", "bob", "cyd"))),
                model=model,
                arrival_s=draw(st.sampled_from((0.0, 0.0, 100.0, 360.0, 720.0, 1000.5, 5000.0))),
                gpus=gpus,
                steps=steps,
                widths=draw(st.sampled_from(((), tuple(sorted({1, gpus, 2 * gpus}))))),
                types=draw(st.sampled_from(((), (), ("v100",), ("k80", "p100")))),
                weight=draw(st.sampled_from((1.0, 1.0, 0.5, 3.0))),
                relaxed=draw(st.booleans()),
            )
        )
    return tuple(sorted(jobs, key=lambda spec: (spec.arrival_s, spec.id)))


@st.composite
def hidden_worlds(draw: st.DrawFn) -> World:
    """Faults, hidden speeds and wrong lengths, each on or off. Faults are rare enough for the widest gang to finish."""
    return World(
        seed=draw(st.integers(0, 5)),
        server_factor=draw(st.sampled_from(((1.0, 1.0), (0.6, 1.1)))),
        mtbf_s=draw(st.sampled_from((0.0, 40_000.0))),
        repair_s=300.0,
        checkpoint_s=draw(st.sampled_from((100.0, 1800.0))),
        length_error=draw(st.sampled_from((0.0, 0.5))),
    )


@st.composite
def cluster_changes(draw: st.DrawFn, cluster: Cluster) -> tuple[Change, ...]:
    """Nodes join, leave, come back with other GPUs, and shrink; in the end all nodes are present again."""
    sizes: dict[str, int] = dict(zip(cluster.nodes, cluster.node_gpus.tolist(), strict=True))  # 0 = has left
    times = sorted(draw(st.lists(st.sampled_from((0.0, 50.0, 360.0, 400.5, 900.0, 2000.0)), max_size=5)))
    changes = []
    for i, time_s in enumerate(times):
        node = draw(st.sampled_from([*sizes, f"new-{i}"]))
        if not sizes.get(node):
            changes.append(Change(time_s, ChangeKind.ADD, node, draw(node_groups())))
            sizes[node] = changes[-1].group.gpus if changes[-1].group else 0
        elif draw(st.booleans()):
            changes.append(Change(time_s, ChangeKind.REMOVE, node))
            sizes[node] = 0
        else:
            changes.append(Change(time_s, ChangeKind.USABLE, node, usable=draw(st.integers(0, sizes[node]))))
    for node, size in sizes.items():
        if size:
            changes.append(Change(5000.0, ChangeKind.USABLE, node, usable=size))
        else:
            changes.append(Change(5000.0, ChangeKind.ADD, node, draw(node_groups())))
    return tuple(changes) if times else ()


def node_groups() -> st.SearchStrategy[NodeGroup]:
    sizes, memories = st.integers(1, 4), st.sampled_from((None, 12.0, 32.0))
    return st.builds(NodeGroup, st.just(1), st.sampled_from(GPUS), sizes, memories)


@st.composite
def setups(draw: st.DrawFn, policy: str | AnyPolicy, most: int = 10) -> Setup:
    """A world in which every job can run."""
    speeds, cluster = draw(profiles()), draw(clusters())
    world = draw(hidden_worlds())
    if not loop_for(REGISTRY[policy] if isinstance(policy, str) else policy).faults:
        world = replace(world, mtbf_s=0.0)  # the task-level simulator has no faults
    made = setup(
        draw(workloads(speeds, most)),
        cluster,
        policy,
        speeds,
        world=world,
        restart_s=draw(st.sampled_from((None, 0.0, 30.0, 400.0))),
        tenant_weight=draw(st.sampled_from(({}, {"ann": 2.0}))),
        round_s=draw(st.sampled_from((60.0, 360.0, 97.3))),
        when=draw(st.sampled_from(When)),
        min_run_s=draw(st.sampled_from((0.0, 0.0, 500.0))),
        switching=draw(st.sampled_from(Switching)),
    )
    if not loop_for(made.policy).changes:
        return possible(made)
    made = replace(made, changes=draw(cluster_changes(cluster)))
    at_last = possible(replace(made, cluster=made.clusters()[-1], changes=()))
    return replace(made, trace=at_last.trace)


def possible(made: Setup) -> Setup:
    return replace(made, trace=without_impossible(made, skip=True)[0])


# ---- made-up policies, one per level ---------------------------------------------------------------------------------


def _shares(view: View, memory: int | None) -> tuple[Shares, int]:
    """An equal part of every type for each tenant; the memory counts the rounds."""
    owner_key, owner_of = np.unique(view.tenant, return_inverse=True)
    gpus = np.tile(view.capacity / max(len(owner_key), 1), (len(owner_key), 1))
    return Shares(gpus, owner_of.astype(np.int64), owner_key), (memory or 0) + 1


def _grants(view: View, memory: int | None) -> tuple[Grants, int]:
    """Last in, first out, on the slowest type that fits."""
    order = np.arange(view.jobs)[::-1]
    slowness = np.divide(1.0, view.rate, out=np.zeros_like(view.rate), where=view.rate > 0)
    return Grants(*fill_in_order(order, view.width, slowness, view.capacity)), (memory or 0) + 1


def _mixed(view: View, memory: int | None) -> tuple[Grants, int]:
    """In order of arrival, on the slowest GPUs that are left; relaxed jobs take them from any type."""
    left: list[int] = view.capacity.tolist()
    entries: list[tuple[int, int, int]] = []
    for j in range(view.jobs):
        width = int(view.width[j])
        slowest = sorted(np.flatnonzero(view.rate[j] > 0).tolist(), key=lambda t: (float(view.rate[j, t]), t))
        taken = next(({t: width} for t in slowest if left[t] >= width), {})
        if view.mixable[j].any() and view.mixable[j] @ np.array(left) >= width:
            taken = {}
            for t in np.flatnonzero(view.mixable[j]).tolist():
                if left[t] and width > sum(taken.values()):
                    taken[t] = min(left[t], width - sum(taken.values()))
        for t, gpus in taken.items():
            left[t] -= gpus
            entries.append((j, t, gpus))
    columns = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    return Grants(*columns), (memory or 0) + 1


def _placement(view: View, memory: int | None) -> tuple[Placement, int]:
    """Running jobs stay; any other job gets the first single node with room, else several nodes of its first type."""
    free: list[int] = view.node_free.tolist()
    spots: list[Spot] = []
    for j in range(view.jobs):
        spot = view.spots.get(j) or _first_fit(view, j, free)
        if j not in view.spots:
            for node, count in spot:
                free[node] -= count
        spots.append(spot)
    return Placement(tuple(spots)), (memory or 0) + 1


def _tasks(known: Known) -> TaskPlan:
    """Last in, first out, on the fastest idle GPU."""
    last_first = Rule(-np.arange(known.jobs, dtype=np.float64), np.zeros(known.jobs), choice=Choice.FASTEST_IDLE)
    return TaskPlan((("last come", last_first),))


def _first_fit(view: View, j: int, free: list[int]) -> Spot:
    for t in np.flatnonzero(view.rate[j]).tolist():
        left, spot = int(view.width[j]), []
        for node in np.flatnonzero(view.cluster.node_type == t).tolist():
            take = min(left, free[node])
            if take:
                spot.append((node, take))
                left -= take
        if not left:
            return tuple(spot)
    return ()


PLUG_INS: tuple[AnyPolicy, ...] = (
    RoundPolicy("plug-in-shares", "Tenants share every type equally.", "made up", Level.SHARES, _shares),
    RoundPolicy("plug-in-grants", "Last come, first served.", "made up", Level.GRANTS, _grants),
    RoundPolicy("plug-in-mixed", "First come, first served, types mixed.", "made up", Level.GRANTS, _mixed),
    RoundPolicy("plug-in-placement", "First fit.", "made up", Level.PLACEMENT, _placement),
    TaskPolicy("plug-in-tasks", "Last come, first served.", "made up", _tasks),
)
EVERY_POLICY: tuple[AnyPolicy, ...] = (*REGISTRY.values(), *PLUG_INS)
# Task-level policies do not decide rounds: they have a separate engine.
ROUND_POLICIES: tuple[Policy, ...] = tuple(p for p in EVERY_POLICY if not isinstance(p, TaskPolicy))
TASK_POLICIES: tuple[TaskPolicy, ...] = tuple(p for p in EVERY_POLICY if isinstance(p, TaskPolicy))
