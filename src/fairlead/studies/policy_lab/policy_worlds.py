"""Small worlds from a number, for checks of a policy, with or without faults, restarts, hidden speeds, wrong lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.jobs import JobSpec
from fairlead.model.words import counted
from fairlead.numerics.random import stream
from fairlead.policies.policy import AnyPolicy
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.rounds.loop import Settings, When
from fairlead.sim.loops import loop_for
from fairlead.sim.truth import World
from fairlead.studies.runs.simulate import Setup, without_impossible
from fairlead.traces.formats import Trace

GPUS = ("v100", "p100", "k80")
MODELS = ("light", "heavy", "picky", "spready")
# `heavy` needs memory that not every type has, `picky` runs on one type only, `spready` is slower on several nodes.
FACTS = {
    "light": ModelFacts(restart_s=5.0),
    "heavy": ModelFacts(memory_gib=14.0, restart_s=40.0),
    "spready": ModelFacts(restart_s=15.0, spread=0.5),
}
MOST_JOBS = 10


def make_world(policy: AnyPolicy, example: int) -> Setup:
    """The world of a number, which is always the same; every job in it can run."""
    random = stream(example, "policy check")
    speeds = _profile(random)
    setup = Setup(
        cluster=_cluster(random),
        trace=Trace(_with_shapes(_jobs(random), stream(example, "shapes")), f"example {example}", "generated"),
        profile=speeds,
        policy=policy,
        settings=Settings(
            round_s=float(random.choice((60.0, 360.0, 97.3))),
            when=When(str(random.choice(list(When)))),
            min_run_s=float(random.choice((0.0, 0.0, 500.0))),
        ),
        world=_world(random, example, faults=loop_for(policy).faults),
        restart_s=(None, 0.0, 30.0, 400.0)[int(random.integers(4))],
        tenant_weight={"ann": 2.0} if random.random() < 0.5 else {},
    )
    return _possible(setup)


def smaller(setup: Setup) -> Iterator[Setup]:
    """Worlds that are one step simpler: one job less, or one difficulty less."""
    jobs = setup.trace.jobs
    calm = World(seed=setup.world.seed)
    if setup.world != calm:  # first of all, because with failing nodes it takes long to detect a run that never ends
        yield replace(setup, world=calm)
    for i in range(len(jobs)):
        yield _with_jobs(setup, jobs[:i] + jobs[i + 1 :])
    if setup.tenant_weight:
        yield replace(setup, tenant_weight={})
    if setup.settings != Settings():
        yield replace(setup, settings=Settings())
    if setup.restart_s is None:
        yield replace(setup, restart_s=0.0)
    for i, job in enumerate(jobs):
        plain = JobSpec(job.id, job.tenant, job.model, job.arrival_s, job.gpus, job.steps)
        if plain != job:
            yield _possible(_with_jobs(setup, (*jobs[:i], plain, *jobs[i + 1 :])))


def describe(setup: Setup) -> str:
    """A description of the world in a few readable lines."""
    cluster = setup.cluster
    nodes = ", ".join(
        f"{name} ({gpus} {cluster.types[t]})"
        for name, gpus, t in zip(cluster.nodes, cluster.node_gpus.tolist(), cluster.node_type.tolist(), strict=True)
    )
    lines = [f"nodes: {nodes}", f"settings: {_beyond_defaults(setup.settings)}"]
    lines += [f"world: {_beyond_defaults(setup.world)}"]
    restart = "each model's own" if setup.restart_s is None else f"{setup.restart_s:g} s"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in setup.tenant_weight.items())
    lines += [f"restart cost: {restart}", f"tenant weights: {weights or 'all 1'}", "jobs:"]
    for job in setup.trace.jobs:
        more = f", types {'|'.join(job.types)}" if job.types else ""
        more += f", widths {'|'.join(map(str, job.widths))}" if len(job.widths) > 1 else ""
        more += f", on exactly {counted(job.nodes, 'node')}" if job.nodes else ""
        more += ", relaxed" * job.relaxed + (f", weight {job.weight:g}" if job.weight != 1 else "")
        lines.append(
            f"  {job.id} of {job.tenant}: {job.model}, {counted(job.gpus, 'GPU')}, {job.steps:.4g} steps, at {job.arrival_s:g} s{more}"
        )
    return "\n".join(lines)


def _beyond_defaults(chosen: Settings | World) -> str:
    plain = type(chosen)()
    names = [part.name for part in fields(chosen) if getattr(chosen, part.name) != getattr(plain, part.name)]
    return ", ".join(f"{name}={getattr(chosen, name)}" for name in names) or "defaults"


def _cluster(random: np.random.Generator) -> Cluster:
    groups = [NodeGroup(int(random.integers(1, 3)), "v100", int(random.integers(1, 5)))]
    for gpu in random.choice(GPUS, size=int(random.integers(0, 4))).tolist():
        memory = (None, 12.0, 32.0)[int(random.integers(3))]
        groups.append(NodeGroup(int(random.integers(1, 4)), gpu, int(random.integers(1, 5)), memory))
    return build_cluster(groups)


def _profile(random: np.random.Generator) -> Profile:
    rows = []
    for model in MODELS:
        for gpu in GPUS[:1] if model == "picky" else GPUS:
            rate = float(random.uniform(0.2, 8.0))
            rows.append(Speed(model, gpu, 1, 1, 1.0, rate, "made up"))
            if model == "light":
                rows.append(Speed(model, gpu, 4, 1, 1.0, rate * float(random.uniform(0.5, 1.0)), "made up"))
    return Profile("made up", tuple(rows), FACTS)


def _jobs(random: np.random.Generator) -> tuple[JobSpec, ...]:
    jobs = []
    for i in range(int(random.integers(1, MOST_JOBS + 1))):
        gpus = int(random.choice((1, 1, 2, 3, 4, 8)))
        jobs.append(
            JobSpec(
                id=f"j{i}",
                tenant=str(random.choice(("ann", "bob", "cyd"))),
                model=str(random.choice(MODELS)),
                arrival_s=float(random.choice((0.0, 0.0, 100.0, 360.0, 720.0, 1000.5, 5000.0))),
                gpus=gpus,
                steps=float(random.choice((0.01, 30.0, 360.0, 700.0, 2500.0)) * random.uniform(0.5, 2.0)),
                widths=((), tuple(sorted({1, gpus, 2 * gpus})))[int(random.integers(2))],
                types=((), (), ("v100",), ("k80", "p100"))[int(random.integers(4))],
                weight=float(random.choice((1.0, 1.0, 0.5, 3.0))),
                relaxed=bool(random.random() < 0.5),
            )
        )
    return tuple(sorted(jobs, key=lambda job: (job.arrival_s, job.id)))


def _with_shapes(jobs: tuple[JobSpec, ...], random: np.random.Generator) -> tuple[JobSpec, ...]:
    """In one of three worlds, some rigid jobs need an exact number of nodes."""
    if random.random() > 1 / 3:
        return jobs
    divisors = {job.id: [n for n in (1, 2, 4) if job.gpus % n == 0 and n <= job.gpus] for job in jobs}
    return tuple(
        replace(job, nodes=int(random.choice(divisors[job.id])), relaxed=False)
        if job.widths == (job.gpus,) and random.random() < 0.7
        else job
        for job in jobs
    )


def _world(random: np.random.Generator, seed: int, *, faults: bool) -> World:
    """Faults are rare enough for the widest gang to finish."""
    return World(
        seed=seed,
        server_factor=((1.0, 1.0), (0.6, 1.1))[int(random.integers(2))],
        mtbf_s=(0.0, 40_000.0)[int(random.integers(2)) * faults],
        repair_s=300.0,
        checkpoint_s=(100.0, 1800.0)[int(random.integers(2))],
        length_error=(0.0, 0.5)[int(random.integers(2))],
    )


def _with_jobs(setup: Setup, jobs: tuple[JobSpec, ...]) -> Setup:
    weight = {name: w for name, w in setup.tenant_weight.items() if name in {job.tenant for job in jobs}}
    return replace(setup, trace=replace(setup.trace, jobs=jobs), tenant_weight=weight)


def _possible(setup: Setup) -> Setup:
    return _with_jobs(setup, without_impossible(setup, skip=True)[0].jobs)
