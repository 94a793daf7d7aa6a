"""One run of a comparison as data: what is simulated, a key from its content, and the resulting record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.rounds.loop import Journal, Run
from fairlead.sim.loops import loop_for
from fairlead.sim.truth import World
from fairlead.studies.compare.as_it_was import ASSUMED, NAME, as_it_was
from fairlead.studies.compare.run_records import (
    KIND,
    JobColumns,
    RunFairness,
    RunRecord,
    StayColumns,
    Timings,
    record_from_json,
)
from fairlead.studies.fairness.journal_audit import AuditingJournal, Auditor, RunAudit
from fairlead.studies.policy_lab.plugins import PolicyRef
from fairlead.studies.runs.digest import code_digest
from fairlead.studies.runs.simulate import BothJournals, Setup, simulate
from fairlead.studies.runs.store import Store
from fairlead.studies.runs.summary import FinishedJobs, Summary, finished_jobs, summarise, summarise_run
from fairlead.studies.runs.timeline import NO_NODE, Timeline, read_series

SLICES = 160  # of a run, for charts over time
MOST_TENANTS = 8  # with charts of their own
MOST_STAYS = 60_000  # kept for the Gantt chart


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a worker needs. The policy to run is `policy`; the one in `setup` is ignored."""

    policy: PolicyRef
    load: float | None  # None: the trace as it is
    seed: int
    setup: Setup
    keep_stays: bool  # keep which job held which GPUs when, for the Gantt chart
    audit: bool  # compute envy and sharing incentives
    key: str  # cases with the same key have the same record except for timings


def make_case(
    policy: PolicyRef,
    load: float | None,
    seed: int,
    setup: Setup,
    common: str,
    *,
    keep_stays: bool,
    audit: bool = False,
) -> Case:
    """A case with its key. `common` is the setup's `common_digest`, which all policies share."""
    digest = hashlib.sha256("\n".join((KIND, code_digest(), _policy_digest(policy), common)).encode()).hexdigest()
    key = digest[:32] + "s" * keep_stays + "a" * audit
    return Case(policy, load, seed, replace(setup, policy=_NO_POLICY), keep_stays, audit, key)


def run_case(case: Case, watch: Journal | None = None) -> RunRecord:
    """Simulate a case. The same case always has the same record except for its timings. `watch` is as in `simulate`."""
    setup = replace(case.setup, policy=case.policy.load())
    line = Timeline(setup.cluster)
    has_tenants = len({job.tenant for job in setup.trace.jobs}) > 1  # promises are about tenants
    auditor = Auditor.of(setup.header(), promised=setup.policy.promises) if case.audit or has_tenants else None
    watches: list[Journal] = [
        line,
        *([] if auditor is None else [AuditingJournal(auditor)]),
        *([] if watch is None else [watch]),
    ]
    result = simulate(setup, watch=reduce(BothJournals, watches))
    finished = result.finished_jobs()
    summary = summarise(result.state, finished)
    if not loop_for(setup.policy).places:
        summary = replace(summary, migrations_per_job=None, restarts_per_job=None)  # a task never moves
    record = record_of(case, setup.policy.name, line, summary, finished, result.run)
    audit = None if auditor is None else auditor.audit()
    fairness = _fairness(audit) if audit is not None and case.audit else None
    promises = () if audit is None or not has_tenants else tuple(audit.promises)
    timings = replace(record.timings, cpu_s=result.cpu_s, wall_s=result.wall_s)
    return replace(record, timings=timings, fairness=fairness, promises=promises)


def past_record(case: Case) -> RunRecord:
    """What happened to the jobs of the case, whatever its policy."""
    past = as_it_was(case.setup)
    finished = finished_jobs(past.state)
    run = Run(notes=list(past.notes), assumed=(ASSUMED,))
    return record_of(case, NAME, past.line, summarise(past.state, finished), finished, run)


def record_of(case: Case, name: str, line: Timeline, summary: Summary, finished: FinishedJobs, run: Run) -> RunRecord:
    """The record of a run that was simulated, or that a trace or a journal has."""
    numbers = summarise_run(run)
    series = read_series(line, case.setup.tenant_weight, SLICES, MOST_TENANTS)
    return RunRecord(
        key=case.key,
        policy=name,
        load=case.load,
        seed=case.seed,
        summary=summary,
        fragmented_gpus=series.mean_fragmented_gpus,
        rounds=numbers["rounds"],
        decisions=numbers["decisions"],
        timings=Timings(numbers["decision_s"], 0.0, 0.0),
        jobs={
            "jct_s": finished.jct_s.tolist(),
            **{name: column.tolist() for name, column in finished.ratios().items() if name != "ftf_isolated"},
        },
        series=series,
        stays=_stays(line) if case.keep_stays else None,
        notes=tuple(run.notes),
        assumed=run.assumed,
        per_job=_job_columns(finished),
    )


def _job_columns(finished: FinishedJobs) -> JobColumns:
    def over(time_s: FloatArray, expected_s: FloatArray) -> list[float | None]:
        pairs = zip(time_s.tolist(), expected_s.tolist(), strict=True)
        return [one / expected if expected > 0 else None for one, expected in pairs]

    return JobColumns(
        job=list(finished.ids),
        tenant=list(finished.tenants),
        jct_s=finished.jct_s.tolist(),
        wait_s=finished.wait_s.tolist(),
        ftf=over(finished.jct_s, finished.alone_s),
        latency_ratio=over(finished.wait_s, finished.age_s),
    )


def _fairness(audit: RunAudit) -> RunFairness:
    return RunFairness(audit.max_envy, audit.min_sharing_incentive, audit.mean_sharing_incentive)


def find_record(store: Store, case: Case) -> RunRecord | None:
    """The stored record of a case; None if there is none or the file is not valid."""
    try:
        value = json.loads(store.find(_name(case)) or "null")
        if value is None or value["fairlead"] != KIND or value["key"] != case.key:
            return None
        return replace(record_from_json(value), load=case.load, seed=case.seed)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def keep_record(store: Store, case: Case, record: RunRecord) -> None:
    store.keep(_name(case), json.dumps(record.to_json(), allow_nan=False))


def _name(case: Case) -> str:
    return f"{case.key[:2]}/{case.key}"


def changes_with_seed(world: World) -> bool:
    """Whether anything in the world is drawn at random."""
    ranges = (world.server_factor, world.job_server_factor)
    drawn = (world.mtbf_s, world.length_error, world.sensing_noise)
    return any(low != high for low, high in ranges) or any(value > 0 for value in drawn)


def _stays(line: Timeline) -> StayColumns | None:
    stays = line.stays()
    if len(stays.job) > MOST_STAYS or (stays.node == NO_NODE).any():
        return None
    names = list(line.tenants)
    return StayColumns(
        job=stays.job.tolist(),
        node=stays.node.tolist(),
        gpus=stays.gpus.astype(int).tolist(),
        start_s=[round(s, 3) for s in stays.start_s.tolist()],
        end_s=[round(s, 3) for s in stays.end_s.tolist()],
        tenant=[names[u] for u in line.tenant_of],
    )


# ---- keys ----------------------------------------------------------------------------------------------------------


def common_digest(setup: Setup) -> str:
    """The digest of everything except the policy. If nothing in the world is random, it does not depend on the seed."""
    digest = hashlib.sha256()
    for job in setup.trace.jobs:
        digest.update(repr(job).encode())
    models = {job.model for job in setup.trace.jobs}
    known, truth = setup.used_profile(), setup.profile.restricted_to(models, setup.clusters()[-1].gpu)
    world = setup.world if changes_with_seed(setup.world) else replace(setup.world, seed=0)
    parts: list[Any] = [
        [rates.speeds, *(sorted(table.items()) for table in (rates.facts, rates.parts, rates.links))]
        for rates in (known, truth)
    ]
    parts += [*_cluster_parts(setup.cluster), setup.settings, world]
    parts += [setup.changes] if setup.changes else []
    parts += [setup.restart_s, sorted(setup.tenant_weight.items()), setup.sensing, setup.all_new]
    digest.update(repr(parts).encode())
    return digest.hexdigest()


def _policy_digest(policy: PolicyRef) -> str:
    return hashlib.sha256(repr((policy.text, policy.source, policy.beside)).encode()).hexdigest()


def _cluster_parts(cluster: Cluster) -> list[Any]:
    numbers = [cluster.memory_gib.tolist(), cluster.node_type.tolist(), cluster.node_gpus.tolist()]
    return [cluster.types, cluster.gpu, cluster.nodes, *numbers]


_NO_POLICY: Any = None  # a policy's function often cannot be sent to another process; its reference can
